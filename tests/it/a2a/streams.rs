//! Streams: the events of a task in their order, and again for those who come back.

use super::client::{BINDINGS, Event};
use super::{Desk, answer, at_once, becomes, text};
use serde_json::json;

fn names(events: &[Event]) -> Vec<String> {
    events.iter().map(Event::name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sent_message_is_followed_to_the_end_of_its_task() {
    let desk = Desk::open().await;
    for binding in BINDINGS {
        let events = desk.client("clerk", binding).stream("SendStreamingMessage", text("m", "hi")).await;
        assert_eq!(names(&events), ["task", "WORKING", "artifactUpdate", "COMPLETED"], "{events:?}");
        assert_eq!(events[0].value["task"]["status"]["state"], "TASK_STATE_SUBMITTED");
        assert_eq!(events[0].value["task"]["history"][0]["messageId"], "m");
        let artifact = &events[2].value["artifactUpdate"];
        assert_eq!(artifact["artifact"]["parts"][0]["text"], "echo hi");
        assert_eq!((&artifact["lastChunk"], &artifact["append"]), (&json!(true), &json!(false)));
        let task = &events[0].value["task"];
        for event in &events[1..] {
            let body = &event.value[event.kind()];
            assert_eq!((&body["taskId"], &body["contextId"]), (&task["id"], &task["contextId"]), "{event:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_at_a_question_and_a_subscription_goes_on() {
    let desk = Desk::open().await;
    for binding in BINDINGS {
        let client = desk.client("asker", binding);
        let events = client.stream("SendStreamingMessage", text("m", "a coffee")).await;
        let last = events.last().unwrap();
        assert_eq!(last.state(), "INPUT_REQUIRED", "{events:?}");
        assert_eq!(last.value["statusUpdate"]["status"]["message"]["parts"][0]["text"], "The order: Which size?");
        let task = events[0].value["task"]["id"].clone();
        let mut subscribed = client.open("SubscribeToTask", json!({"id": task})).await.unwrap();
        let first = subscribed.next().await.unwrap();
        assert_eq!(first.value["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{first:?}");
        let answered = client.stream("SendStreamingMessage", answer("m2", &task, "L")).await;
        assert_eq!(names(&answered).last().unwrap(), "COMPLETED", "{answered:?}");
        let mut heard = Vec::new();
        while let Some(event) = subscribed.next().await {
            heard.push(event);
        }
        assert_eq!(names(&heard), ["WORKING", "artifactUpdate", "COMPLETED"], "{heard:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_comes_back_misses_no_event() {
    let desk = Desk::open().await;
    for binding in BINDINGS {
        let client = desk.client("asker", binding);
        let events = client.stream("SendStreamingMessage", text("m", "a coffee")).await;
        let task = events[0].value["task"]["id"].clone();
        let placed: Vec<&Event> = events.iter().filter(|event| event.id.is_some()).collect();
        assert_eq!(placed.len(), 2, "what was said, and the question: {events:?}");
        // From the first of them on, the second comes again, the same to the letter.
        let back = client.clone().with_header("Last-Event-ID", placed[0].id.as_ref().unwrap());
        let mut again = back.open("SubscribeToTask", json!({"id": task})).await.unwrap();
        assert_eq!(again.next().await.unwrap().kind(), "task");
        assert_eq!(again.next().await.as_ref(), Some(placed[1]));
        drop(again);
        let bad = client.clone().with_header("Last-Event-ID", "nonsense");
        let Err(refused) = bad.open("SubscribeToTask", json!({"id": task})).await else { panic!("a stream") };
        assert_eq!(refused.reason, "INVALID_PARAMS", "{refused:?}");
        client.ok("CancelTask", json!({"id": task})).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_its_agent_is_hidden() {
    let desk = Desk::idle().await;
    for binding in BINDINGS {
        desk.venue.agent("clerk", json!({"a2a": {}})).await;
        let client = desk.client("clerk", binding);
        let task = client.ok("SendMessage", at_once(text("m", "hi"))).await["task"]["id"].clone();
        let mut events = client.open("SubscribeToTask", json!({"id": task})).await.unwrap();
        assert_eq!(events.next().await.unwrap().kind(), "task");
        desk.venue.agent("clerk", json!({})).await;
        assert_eq!(events.next().await, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_subscribers_of_a_task_hear_the_same_events() {
    let desk = Desk::open().await;
    for binding in BINDINGS {
        let client = desk.client("slow", binding);
        let task = client.ok("SendMessage", at_once(text("m", "hi"))).await["task"]["id"].clone();
        becomes(&client, &task, "TASK_STATE_WORKING").await;
        let follow = async || {
            let events = client.stream("SubscribeToTask", json!({"id": task})).await;
            events.into_iter().filter(|event| event.id.is_some()).collect::<Vec<_>>()
        };
        let (first, second) = tokio::join!(follow(), follow());
        assert_eq!(names(&first), ["artifactUpdate", "COMPLETED"]);
        assert_eq!(first, second);
    }
}
