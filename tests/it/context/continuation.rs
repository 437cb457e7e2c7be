//! What doesn't fit into a prompt: how much of it is shown, and that the rest can be read on.

use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use trellis::domain::chat::ChatMessage;
use trellis::domain::event::Submission;
use trellis::domain::session::TurnRecord;

const RULES: &str = r#"
[[rule]]
when = { tool = "lattice_read" }
then = { text = "done" }

[[rule]]
when = { tool = "lattice_slice" }
then = { text = "done" }

[[rule]]
when = { agent = "reader", text = "several" }
then = { calls = [
    { tool = "lattice_read", arguments = { path = "w/long" } },
    { tool = "lattice_read", arguments = { path = "w/small" } },
    { tool = "lattice_read", arguments = { path = "w/long" } },
    { tool = "lattice_read", arguments = { path = "w/long" } },
] }

[[rule]]
when = { agent = "reader", text = '"slice"' }
then = { calls = [{ tool = "lattice_slice", arguments = { path = "{{input.slice}}", offset = "{{input.offset}}", limit = 30000 } }] }

[[rule]]
when = { agent = "reader", text = '"read"' }
then = { calls = [{ tool = "lattice_read", arguments = { path = "{{input.read}}" } }] }

[[rule]]
then = { text = "heard" }
"#;

/// A text without repetitions, of characters of one and two bytes.
fn long(prefix: &str, lines: usize) -> String {
    (0..lines).map(|n| format!("{prefix} é {n}\n")).collect::<Vec<_>>().concat()
}

async fn venue() -> (TestVenue, tempfile::TempDir) {
    let (venue, dir) = TestVenue::embedded(RULES).await;
    venue.agent("reader", json!({"defaultTools": false, "tools": ["v/ops/lattice/read", "v/ops/lattice/slice"]})).await;
    venue.worker();
    (venue, dir)
}

async fn ended(venue: &TestVenue, id: &str, input: Value) {
    let submission = Submission { input, session_id: Some("s".parse().unwrap()), ..Submission::default() };
    let submitted = venue.arrive("reader", id, true, submission).await;
    venue.ended(&submitted.job.unwrap()).await;
}

/// The turn that made the calls of a task.
async fn task(venue: &TestVenue, id: &str, input: Value) -> TurnRecord {
    ended(venue, id, input).await;
    let turns = venue.turns("reader", "s").await;
    turns.into_iter().rev().find(|turn| !turn.calls.is_empty()).unwrap()
}

fn results(turn: &TurnRecord) -> Vec<&str> {
    let results = turn.said.iter().filter_map(|message| match message {
        ChatMessage::Tool { text, .. } => Some(text.as_str()),
        ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
    });
    results.collect()
}

/// The path and the offset that a cut text ends with.
fn rest(text: &str) -> (String, usize) {
    let (_, rest) = text.rsplit_once("; read on with lattice_slice, path `").unwrap();
    let (path, offset) = rest.split_once("`, offset ").unwrap();
    (path.to_owned(), offset.trim_end_matches(']').parse().unwrap())
}

fn characters(text: &str, range: std::ops::Range<usize>) -> String {
    text.chars().skip(range.start).take(range.len()).collect()
}

#[tokio::test]
async fn a_cut_result_is_read_on_where_it_was_cut() {
    let (venue, _dir) = venue().await;
    let text = long("line", 3_000);
    venue.write("w/long", json!(text)).await;
    let turn = task(&venue, "t1", json!({"read": "w/long"})).await;
    let shown = results(&turn)[0];
    assert!(shown.len() <= 32_768 && shown.len() > 32_500, "{} bytes: {}", shown.len(), &shown[shown.len() - 200..]);
    let (path, offset) = rest(shown);
    assert_eq!(path, "w/long");
    let turn = task(&venue, "t2", json!({"slice": path, "offset": offset})).await;
    let slice: Value = serde_json::from_str(results(&turn)[0]).unwrap();
    let all = text.chars().count();
    assert_eq!((&slice["type"], &slice["count"], &slice["offset"]), (&json!("string"), &json!(all), &json!(offset)));
    assert_eq!(slice["values"], characters(&text, offset..all));
    assert!(slice.get("next").is_none());
}

#[tokio::test]
async fn results_of_one_reply_share_by_need() {
    let (venue, _dir) = venue().await;
    venue.write("w/long", json!(long("line", 5_000))).await;
    venue.write("w/small", json!("small")).await;
    let turn = task(&venue, "t1", json!("several")).await;
    let lens: Vec<_> = results(&turn).iter().map(|text| text.len()).collect();
    assert!([0, 2, 3].into_iter().all(|at| lens[at] > 32_500 && lens[at] <= 32_768), "{lens:?}");
    assert!(lens[1] < 100, "{lens:?}");
}

#[tokio::test]
async fn a_message_that_no_prompt_has_room_for_is_kept_and_read_on() {
    let (venue, _dir) = venue().await;
    let text = long("word", 20_000);
    let message = |id: &'static str, input: Value| {
        let session_id = Some("s".parse().unwrap());
        venue.arrive("reader", id, false, Submission { input, session_id, ..Submission::default() })
    };
    message("whole", json!({"from": "me", "text": "m".repeat(40_000)})).await;
    message("large", json!(text)).await;
    // Messages go before tasks, one of these two at a time.
    ended(&venue, "t0", json!("hello")).await;
    ended(&venue, "t1", json!("hello")).await;
    let turn = task(&venue, "t2", json!({"read": "c/messages"})).await;
    let heard: Vec<_> = venue.turns("reader", "s").await.into_iter().flat_map(|turn| turn.heard).collect();
    assert!(heard.iter().any(|heard| heard.text.contains(&"m".repeat(40_000))), "a message is shown whole");
    let cut = heard.iter().find(|heard| heard.text.contains("word é 0\n")).unwrap();
    assert!(cut.text.len() > 70_000, "{} bytes", cut.text.len());
    assert!(results(&turn)[0].contains("large: "), "{:.300}", results(&turn)[0]);
    let (path, offset) = rest(&cut.text);
    assert_eq!(path, "c/messages/large");
    let turn = task(&venue, "t3", json!({"slice": path, "offset": offset})).await;
    let slice = results(&turn)[0];
    let begin = serde_json::to_string(&characters(&text, offset..offset + 20_000)).unwrap();
    assert!(slice.contains(begin.trim_matches('"')), "{slice:.200}");
}
