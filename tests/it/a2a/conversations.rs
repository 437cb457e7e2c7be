//! Tasks that ask: a question is answered by a message, a permission by yes or no.

use super::client::BINDINGS;
use super::{Desk, answer, text};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_answered_by_a_text_or_by_data() {
    let desk = Desk::open().await;
    for binding in BINDINGS {
        let client = desk.client("asker", binding);
        for parts in [json!([{"text": "L"}]), json!([{"data": {"size": "L"}}])] {
            let task = client.ok("SendMessage", text("m1", "a coffee")).await["task"].clone();
            assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{task}");
            let asked = &task["status"]["message"]["parts"];
            assert_eq!(asked[0]["text"], "The order: Which size?", "{task}");
            assert_eq!(asked[1]["data"]["asks"][0]["choices"], json!(["S", "L"]));
            let waiting = client.ok("ListTasks", json!({"status": "TASK_STATE_INPUT_REQUIRED"})).await;
            assert_eq!(waiting["tasks"][0]["id"], task["id"], "{waiting}");
            assert_eq!(client.ok("ListTasks", json!({"status": "TASK_STATE_AUTH_REQUIRED"})).await["totalSize"], 0);
            // What is no choice is refused, and the task goes on waiting.
            let refused = client.refused("SendMessage", answer("m2", &task["id"], "XXL")).await;
            assert_eq!(refused.reason, "INVALID_PARAMS", "{refused:?}");
            let mut reply = answer("m3", &task["id"], "");
            reply["message"]["parts"] = parts.clone();
            let done = client.ok("SendMessage", reply).await["task"].clone();
            assert_eq!(
                (&done["id"], &done["status"]["state"]),
                (&task["id"], &json!("TASK_STATE_COMPLETED")),
                "{done}"
            );
            let said = done["artifacts"][0]["parts"][0]["text"].as_str().unwrap();
            assert!(said.contains("\"size\":\"L\""), "{said}");
            let history = done["history"].as_array().unwrap();
            let roles: Vec<&str> = history.iter().map(|message| message["role"].as_str().unwrap()).collect();
            assert_eq!(roles, ["ROLE_USER", "ROLE_AGENT", "ROLE_USER"], "{done}");
            assert_eq!((&history[0]["messageId"], &history[2]["messageId"]), (&json!("m1"), &json!("m3")));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_is_given_by_yes_and_refused_by_no() {
    let desk = Desk::open().await;
    for binding in BINDINGS {
        let client = desk.client("payer", binding);
        for said in ["yes", "no"] {
            let task = client.ok("SendMessage", text("m1", "pay it")).await["task"].clone();
            assert_eq!(task["status"]["state"], "TASK_STATE_AUTH_REQUIRED", "{task}");
            let asked = task["status"]["message"]["parts"][0]["text"].as_str().unwrap();
            assert_eq!(asked, "permission is needed for `v/ops/lattice/append`");
            let refused = client.refused("SendMessage", answer("m2", &task["id"], "perhaps")).await;
            assert!(refused.reason == "INVALID_PARAMS" && refused.text.contains("`yes` or `no`"), "{refused:?}");
            let done = client.ok("SendMessage", answer("m3", &task["id"], said)).await["task"].clone();
            assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
        }
    }
    let paid = desk.venue.read("w/paid").await;
    assert_eq!(paid, Some(json!([100, 100])), "once for each yes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_another_context_continues_no_task() {
    let desk = Desk::open().await;
    for binding in BINDINGS {
        let client = desk.client("asker", binding);
        let task = client.ok("SendMessage", text("m1", "a coffee")).await["task"].clone();
        let mut reply = answer("m2", &task["id"], "L");
        reply["message"]["contextId"] = json!("elsewhere");
        let refused = client.refused("SendMessage", reply).await;
        assert!(refused.reason == "INVALID_PARAMS" && refused.text.contains("`message.contextId`"), "{refused:?}");
    }
}
