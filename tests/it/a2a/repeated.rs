//! Messages that come again because their answers got lost, and ids that two clients have chosen alike.

use super::client::BINDINGS;
use super::{Desk, answer, at_once, text};
use serde_json::{Value, json};

fn ids(task: &Value) -> Vec<String> {
    let history = task["history"].as_array().unwrap();
    history.iter().map(|message| message["messageId"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_again_is_given_once() {
    let desk = Desk::open().await;
    for binding in BINDINGS {
        let client = desk.client("asker", binding);
        let task = client.ok("SendMessage", text("m1", "a coffee")).await["task"].clone();
        let reply = answer("m2", &task["id"], "L");
        let done = client.ok("SendMessage", reply.clone()).await["task"].clone();
        assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
        // The task has ended meanwhile: the same message is no error, another one is.
        assert_eq!(client.ok("SendMessage", reply.clone()).await["task"], done);
        let events = client.stream("SendStreamingMessage", reply).await;
        assert_eq!(events.last().unwrap().state(), "COMPLETED", "{events:?}");
        assert_eq!(client.ok("GetTask", json!({"id": task["id"]})).await, done, "nothing was told twice");
        let refused = client.refused("SendMessage", answer("m3", &task["id"], "L")).await;
        assert_eq!(refused.reason, "UNSUPPORTED_OPERATION", "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_again_is_no_answer_to_the_next_question() {
    let desk = Desk::open().await;
    for binding in BINDINGS {
        let client = desk.client("curious", binding);
        let task = client.ok("SendMessage", text("m1", "a coffee")).await["task"]["id"].clone();
        let asked = |task: &Value| task["status"]["message"]["parts"][0]["text"].clone();
        let reply = answer("m2", &task, "L");
        for _ in 0..3 {
            let waiting = client.ok("SendMessage", reply.clone()).await["task"].clone();
            assert_eq!(asked(&waiting), "Question 2", "{waiting}");
            assert_eq!(ids(&waiting).iter().filter(|id| *id == "m2").count(), 1, "{waiting}");
        }
        // Only a message of its own answers it.
        let done = client.ok("SendMessage", answer("m3", &task, "L")).await["task"].clone();
        assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_to_a_task_that_comes_again_is_told_once() {
    let desk = Desk::idle().await;
    for binding in BINDINGS {
        let client = desk.client("clerk", binding);
        let task = client.ok("SendMessage", at_once(text("m1", "hi"))).await["task"]["id"].clone();
        let more = at_once(answer("m2", &task, "and more"));
        for _ in 0..3 {
            let told = client.ok("SendMessage", more.clone()).await["task"].clone();
            assert_eq!(ids(&told), ["m1", "m2"], "{told}");
        }
        // The message that began the task isn't one to it, whatever its id is.
        let told = client.ok("SendMessage", at_once(answer("m1", &task, "hi"))).await["task"].clone();
        assert_eq!(ids(&told), ["m1", "m2", "m1"], "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_agents_may_have_one_context_and_one_message_id() {
    let desk = Desk::idle().await;
    for binding in BINDINGS {
        let mut message = at_once(text("m1", "hi"));
        message["message"]["contextId"] = json!(format!("talk-{binding:?}"));
        let mut tasks = Vec::new();
        for agent in ["clerk", "slow"] {
            tasks.push(desk.client(agent, binding).ok("SendMessage", message.clone()).await["task"]["id"].clone());
        }
        assert_ne!(tasks[0], tasks[1]);
        // An empty context, as some clients write it, is none: each message begins one.
        message["message"]["contextId"] = json!("");
        message["message"]["taskId"] = json!("");
        let client = desk.client("clerk", binding);
        let first = client.ok("SendMessage", message.clone()).await["task"]["contextId"].clone();
        assert_ne!(client.ok("SendMessage", message).await["task"]["contextId"], first);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_has_the_last_messages_of_a_task() {
    let desk = Desk::idle().await;
    for binding in BINDINGS {
        let client = desk.client("clerk", binding);
        let task = client.ok("SendMessage", at_once(text("m0", "hi"))).await["task"]["id"].clone();
        for n in 1..5 {
            client.ok("SendMessage", at_once(answer(&format!("m{n}"), &task, "more"))).await;
        }
        for (length, expected) in [(2, vec!["m3", "m4"]), (50, vec!["m0", "m1", "m2", "m3", "m4"])] {
            let read = client.ok("GetTask", json!({"id": task, "historyLength": length})).await;
            assert_eq!(ids(&read), expected, "{read}");
        }
        let mut streamed = answer("m5", &task, "more");
        streamed["configuration"] = json!({"historyLength": 1});
        let mut events = client.open("SendStreamingMessage", streamed).await.unwrap();
        let first = events.next().await.unwrap();
        assert_eq!(ids(&first.value["task"]), ["m4"], "as the task was before the message: {first:?}");
    }
}
