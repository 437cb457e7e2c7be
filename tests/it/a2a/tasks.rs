//! Tasks: sent, read, listed, cancelled, by both bindings.

use super::client::BINDINGS;
use super::{Desk, answer, at_once, becomes, text};
use serde_json::{Value, json};
use trellis::domain::asset::Draft;
use trellis::venue::assets;

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_a_task_with_an_artifact_and_a_history() {
    let desk = Desk::open().await;
    for binding in BINDINGS {
        let client = desk.client("clerk", binding);
        let task = client.ok("SendMessage", text("m1", "hi")).await["task"].clone();
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
        let parts = json!([{"text": "echo hi", "mediaType": "text/plain"}]);
        assert_eq!(task["artifacts"], json!([{"artifactId": "output", "parts": parts}]));
        assert_eq!(task["history"][0]["messageId"], "m1");
        assert_eq!(task["history"][0]["taskId"], task["id"]);
        // The job is the same task.
        let job = desk.server.get(&format!("/api/v1/jobs/{}", task["id"].as_str().unwrap())).await.body(200);
        assert_eq!((&job["status"], &job["output"]), (&json!("COMPLETE"), &json!("echo hi")));
        let read = client.ok("GetTask", json!({"id": task["id"]})).await;
        assert_eq!(read, task);
        let short = client.ok("GetTask", json!({"id": task["id"], "historyLength": 0})).await;
        assert!(short.get("history").is_none() && short["artifacts"] == task["artifacts"], "{short}");
        // Another task of the same context.
        let mut next = text("m2", "again");
        next["message"]["contextId"] = task["contextId"].clone();
        next["configuration"] = json!({"historyLength": 1});
        let next = client.ok("SendMessage", next).await["task"].clone();
        assert_ne!(next["id"], task["id"]);
        assert_eq!((&next["contextId"], next["history"].as_array().unwrap().len()), (&task["contextId"], 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_and_several_parts_are_read_as_such() {
    let desk = Desk::open().await;
    for binding in BINDINGS {
        let client = desk.client("clerk", binding);
        for (parts, expected) in [
            (json!([{"data": {"n": 5}}]), "echo {\"n\":5}"),
            (
                json!([{"text": "see"}, {"url": "https://example.com/a"}]),
                "echo [\"see\",{\"url\":\"https://example.com/a\"}]",
            ),
        ] {
            let message = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": parts}});
            let task = client.ok("SendMessage", message).await["task"].clone();
            assert_eq!(task["artifacts"][0]["parts"][0]["text"], expected);
            assert_eq!(task["history"][0]["parts"], parts);
        }
        // A file is stored once, and comes back in the history.
        let file = json!({"raw": "iVBORw0KGgo=", "mediaType": "image/png", "filename": "a.png"});
        let message = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [file, {"text": "what?"}]}});
        let sent = client.ask("SendMessage", message).await;
        match sent {
            Ok(sent) => assert_eq!(sent["task"]["history"][0]["parts"][0], file, "{sent}"),
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_beyond_the_room_of_an_answer_are_links() {
    let desk = Desk::idle().await;
    let draft = Draft::new(vec![b'x'; 1 << 20], "text/plain", None, None, desk.venue.venue.now()).unwrap();
    let (asset, ..) = assets::put(&desk.venue.venue, &desk.venue.owner, &draft).await.unwrap();
    let parts = vec![json!({"data": {"$asset": format!("a/{asset}")}}); 20];
    for binding in BINDINGS {
        let client = desk.client("clerk", binding);
        let message = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": parts}});
        let task = client.ok("SendMessage", at_once(message)).await["task"].clone();
        let sent = task["history"][0]["parts"].as_array().unwrap();
        let count = |key: &str| sent.iter().filter(|part| part.get(key).is_some()).count();
        assert_eq!((count("raw"), count("url")), (4, 16), "20 KB of parts don't make 20 MB");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_whole_messages_writes_parts_itself() {
    let desk = Desk::open().await;
    for binding in BINDINGS {
        let client = desk.client("whole", binding);
        let task = client.ok("SendMessage", text("m", "please")).await["task"].clone();
        let parts =
            json!([{"text": "a"}, {"data": {"b": 1}}, {"url": "https://example.com/c.txt", "filename": "c.txt"}]);
        assert_eq!(task["artifacts"][0]["parts"], parts);
        let direct = client.ok("SendMessage", text("m", "as message")).await;
        assert_eq!((&direct["message"]["role"], direct.get("task")), (&json!("ROLE_AGENT"), None), "{direct}");
        assert_eq!(direct["message"]["parts"], json!([{"text": "no task needed"}]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_listed_page_by_page_the_last_changed_first() {
    let desk = Desk::open().await;
    for binding in BINDINGS {
        let client = desk.client("clerk", binding);
        let first = client.ok("SendMessage", text("m", "0")).await["task"].clone();
        let context = &first["contextId"];
        let mut sent = vec![first["id"].clone()];
        for n in 1..5 {
            let mut message = text(&format!("m{n}"), &n.to_string());
            message["message"]["contextId"] = context.clone();
            sent.insert(0, client.ok("SendMessage", message).await["task"]["id"].clone());
        }
        let (mut found, mut token): (Vec<Value>, String) = (Vec::new(), String::new());
        for expected in [2, 2, 1] {
            let mut asked = json!({"contextId": context, "pageSize": 2});
            if !token.is_empty() {
                asked["pageToken"] = token.clone().into();
            }
            let page = client.ok("ListTasks", asked).await;
            assert_eq!((&page["pageSize"], &page["totalSize"]), (&json!(2), &json!(5)), "{page}");
            let tasks = page["tasks"].as_array().unwrap();
            assert_eq!(tasks.len(), expected, "{page}");
            assert!(tasks.iter().all(|task| task.get("artifacts").is_none() && task.get("history").is_none()));
            found.extend(tasks.iter().map(|task| task["id"].clone()));
            token = page["nextPageToken"].as_str().unwrap().to_owned();
        }
        assert_eq!((found, token.as_str()), (sent, ""));
        let asked = json!({"contextId": context, "includeArtifacts": true, "historyLength": 1, "pageSize": 1});
        let page = client.ok("ListTasks", asked).await;
        assert_eq!(page["tasks"][0]["artifacts"][0]["parts"][0]["text"], "echo 4", "{page}");
        assert_eq!(page["tasks"][0]["history"].as_array().unwrap().len(), 1);
        for (filter, total) in [
            (json!({"contextId": context, "status": "TASK_STATE_COMPLETED"}), 5),
            (json!({"contextId": context, "status": "TASK_STATE_FAILED"}), 0),
            (json!({"contextId": context, "statusTimestampAfter": "2001-01-01T00:00:00Z"}), 5),
            (json!({"contextId": context, "statusTimestampAfter": "2201-01-01T00:00:00Z"}), 0),
            (json!({"contextId": "elsewhere"}), 0),
        ] {
            assert_eq!(client.ok("ListTasks", filter.clone()).await["totalSize"], total, "{filter}");
        }
        // Another agent's tasks are in another list.
        assert_eq!(desk.client("slow", binding).ok("ListTasks", json!({})).await["totalSize"], 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_cancelled_once() {
    let desk = Desk::open().await;
    for binding in BINDINGS {
        let client = desk.client("never", binding);
        let task = client.ok("SendMessage", at_once(text("m", "hi"))).await["task"].clone();
        becomes(&client, &task["id"], "TASK_STATE_WORKING").await;
        let cancelled = client.ok("CancelTask", json!({"id": task["id"]})).await;
        assert_eq!(cancelled["status"]["state"], "TASK_STATE_CANCELED", "{cancelled}");
        let refused = client.refused("CancelTask", json!({"id": task["id"]})).await;
        assert_eq!(refused.reason, "TASK_NOT_CANCELABLE", "{refused:?}");
        let refused = client.refused("SendMessage", answer("m2", &task["id"], "more")).await;
        assert_eq!(refused.reason, "UNSUPPORTED_OPERATION", "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_fails_says_why() {
    let desk = Desk::open().await;
    for binding in BINDINGS {
        let client = desk.client("broken", binding);
        let task = client.ok("SendMessage", text("m", "hi")).await["task"].clone();
        assert_eq!(task["status"]["state"], "TASK_STATE_FAILED", "{task}");
        let message = &task["status"]["message"];
        assert_eq!(message["role"], "ROLE_AGENT");
        assert!(message["parts"][0]["text"].as_str().is_some_and(|text| !text.is_empty()), "{task}");
        assert!(message["metadata"]["errorCode"].is_string() && task.get("artifacts").is_none(), "{task}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_comes_again_in_its_context_is_one_task() {
    let desk = Desk::open().await;
    for binding in BINDINGS {
        let client = desk.client("clerk", binding);
        let mut message = text("m1", "hi");
        message["message"]["contextId"] = json!(format!("talk-{binding:?}"));
        let first = client.ok("SendMessage", message.clone()).await["task"].clone();
        assert_eq!(client.ok("SendMessage", message).await["task"], first);
        let keyed = client.with_header("Idempotency-Key", &format!("key-{binding:?}"));
        let first = keyed.ok("SendMessage", text("m1", "hi")).await["task"].clone();
        assert_eq!(keyed.ok("SendMessage", text("m1", "hi")).await["task"], first);
    }
}
