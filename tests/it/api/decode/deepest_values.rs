//! The deepest values that are let in are read back from everything they are wrapped into.

use super::{nested, venues};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use trellis::domain::chat::{Arguments, ChatMessage, ToolCall};
use trellis::domain::decode;
use trellis::domain::event::{Event, Payload, ResultBody, Submission};
use trellis::domain::ids::JobId;
use trellis::domain::job::{JobResult, JobStatus};
use trellis::domain::limits::{DECODER_DEPTH, MESSAGE_DEPTH, RESULT_DEPTH, VALUE_DEPTH};
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::scope::{DelegateContext, ScopedSection};
use trellis::domain::session::TurnRecord;
use trellis::domain::time::Millis;

const RULES: &str = r#"
[[rule]]
when = { agent = "boss", text = "again" }
then = { text = "still here" }

[[rule]]
when = { agent = "boss", turn = 1 }
then = { calls = [{ tool = "lattice_write", arguments = { path = "w/deep/own", value = "{{input}}" } }, { tool = "agent_request", arguments = { agentId = "child", input = "{{input}}", wait = 60000 } }] }

[[rule]]
when = { agent = "child", turn = 1 }
then = { calls = [{ tool = "lattice_write", arguments = { path = "w/deep/child", value = "{{input}}" } }] }

[[rule]]
when = { agent = "child", turn = 2 }
then = { calls = [{ tool = "complete_task", arguments = { result = "{{input}}" } }] }

[[rule]]
when = { agent = "boss", turn = 2 }
then = { calls = [{ tool = "lattice_read", arguments = { path = "w/deep" } }, { tool = "lattice_copy", arguments = { from = "w/deep/own", to = "w/deep/copy" } }] }

[[rule]]
when = { agent = "boss" }
then = { text = "done" }
"#;

/// Everything that the store has of an owner can be read by a decoder with the usual limit.
#[tokio::test(flavor = "multi_thread")]
async fn the_deepest_input_goes_through_turns_children_and_results() {
    for (venue, _dir) in venues(RULES).await {
        venue.agent("boss", json!({"context": ["w/deep", "w"], "tools": ["v/ops/lattice/copy"]})).await;
        venue.agent("child", json!({"context": ["w/deep"]})).await;
        venue.worker();
        // The arguments of a call have one level more, the body of a submission too.
        let deepest = nested(VALUE_DEPTH - 1);
        let body = json!({"input": deepest, "sessionId": "s"}).to_string();
        let submission = trellis::venue::ingress::parse(body.as_bytes()).unwrap();
        let submitted = venue.arrive("boss", "t1", true, submission).await;
        let job = venue.ended(&submitted.job.unwrap()).await;
        assert_eq!(job.status, JobStatus::Complete, "{:?}", job.result);
        assert_eq!(venue.read("w/deep/child").await, Some(deepest.clone()));
        assert_eq!(venue.read("w/deep/copy").await, Some(deepest));
        let again =
            Submission { input: json!("again"), session_id: Some("s".parse().unwrap()), ..Submission::default() };
        let submitted = venue.arrive("boss", "t2", true, again).await;
        assert_eq!(venue.ended(&submitted.job.unwrap()).await.result.unwrap().output, Some(json!("still here")));

        let mut read = 0;
        for (key, doc) in venue.venue.store.scan(&venue.owner, "", None, false, 10_000).await.unwrap() {
            let bytes = doc.value.unwrap_or_default();
            for line in bytes.split(|byte| *byte == b'\n') {
                if line.first().is_some_and(|first| b"[{".contains(first)) {
                    assert!(!decode::is_deeper(line), "{key} is too deep to be read");
                    read += 1;
                }
            }
        }
        assert!(read > 20, "{read}");
        super::nothing_is_left_in_the_outbox(&venue).await;
    }
}

fn survives<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    let text = serde_json::to_string(value).unwrap();
    assert_eq!(&serde_json::from_str::<T>(&text).unwrap(), value);
    assert_eq!(&decode::read_stored::<T>(text.as_bytes()).unwrap(), value);
}

#[test]
fn the_deepest_value_survives_every_wrapping() {
    const { assert!(VALUE_DEPTH < RESULT_DEPTH && RESULT_DEPTH < MESSAGE_DEPTH && MESSAGE_DEPTH + 16 <= DECODER_DEPTH) };
    let job = JobId::new(&"0f".repeat(16)).unwrap();
    let (value, shown) = (nested(VALUE_DEPTH), nested(RESULT_DEPTH));
    let result = JobResult::complete(shown.clone());
    survives(&Event::new("e".parse().unwrap(), Millis(1), Payload::Task { job: job.clone(), input: value.clone() }));
    survives(&Event::new(
        "e".parse().unwrap(),
        Millis(1),
        Payload::Result { job: job.clone(), result: result.clone() },
    ));
    let call = ToolCall { id: "c".into(), name: "f".into(), arguments: Arguments::Json(value.clone()) };
    let said = vec![ChatMessage::assistant(String::new(), vec![call])];
    survives(&TurnRecord { said, ..TurnRecord::default() });

    let scoped: ScopedSection = serde_json::from_value(json!({
        "key": "context/x", "source": "w/x", "content": shown, "bytes": 1, "of": 1
    }))
    .unwrap();
    let handed = DelegateContext { scoped: vec![scoped], ..DelegateContext::default() };
    let submission = Submission { input: value, handed, ..Submission::default() };
    survives(&submission);
    for body in [
        serde_json::to_value(&submission).unwrap(),
        json!(ResultBody { session_id: "s".parse().unwrap(), job, result, output_omitted: None }),
    ] {
        decode::check_to(&body, MESSAGE_DEPTH).unwrap();
        let to =
            MessageAddress::In { owner: "t/u".parse().unwrap(), agent: "a".parse().unwrap(), kind: InboundKind::Task };
        let message = BusMessage { to, id: None, body, trace: None };
        survives(&serde_json::to_value(message).unwrap());
    }
}

#[test]
fn shallow_parts_of_a_too_deep_value_survive() {
    for depth in [100, 126, 127, 128, 129, 200, 1_000] {
        let text = json!({"before": 1, "deep": nested(depth), "after": {"b": [2]}}).to_string();
        let read: Value = decode::read_stored(text.as_bytes()).unwrap();
        assert_eq!((&read["before"], &read["after"]), (&json!(1), &json!({"b": [2]})), "{depth}");
        assert_eq!(decode::is_deeper(text.as_bytes()), depth + 1 > DECODER_DEPTH, "{depth}");
        assert_eq!(read["deep"] == nested(depth), depth < DECODER_DEPTH, "{depth}");
        let again = serde_json::to_string(&read).unwrap();
        assert_eq!(decode::read_stored::<Value>(again.as_bytes()).unwrap(), read);
    }
}
