//! What the shell around the rules does: counting, logging, streaming, hanging.

use super::*;
use crate::domain::chat::{ChatMessage, ModelSettings};
use serde_json::json;

fn request(name: &str, text: &str) -> ModelRequest {
    ModelRequest {
        model: ModelSettings::new("scripted", name),
        system: String::new(),
        messages: vec![ChatMessage::user(text)],
        tools: Vec::new().into(),
        turn: "acme/ann/clerk/default/7".into(),
        stable: 0,
        output: None,
    }
}

fn with_rules(rules: &str) -> (tempfile::TempDir, ScriptedModel) {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("calls.jsonl");
    std::fs::write(dir.path().join("r.toml"), format!("calls_log = {:?}\n{rules}", log.display().to_string())).unwrap();
    let options = ScriptedOptions { rules: Some(dir.path().to_owned()), ..ScriptedOptions::default() };
    (dir, ScriptedModel::new(options))
}

fn log_of(dir: &tempfile::TempDir) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(dir.path().join("calls.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn echo_answers_the_task_and_streams_it() {
    let (live, mut pieces) = LiveText::channel();
    let task = "[Tasks assigned to you]\n- Task 1 (from: ann): {message: \"hello, hello, hello\"}";
    let reply = ScriptedModel::default().complete(&request(ECHO, task), &[], &live).await.unwrap();
    assert_eq!(reply.text, "hello, hello, hello");
    drop(live);
    let mut streamed = Vec::new();
    while let Some(piece) = pieces.recv().await {
        streamed.push(piece);
    }
    assert_eq!((streamed.len(), streamed.concat()), (2, reply.text));
}

#[tokio::test(start_paused = true)]
async fn never_hangs_until_it_is_dropped() {
    let (live, _pieces) = LiveText::channel();
    let model = ScriptedModel::default();
    let request = request(NEVER, "x");
    let call = model.complete(&request, &[], &live);
    assert!(tokio::time::timeout(Duration::from_hours(1), call).await.is_err());
}

#[tokio::test]
async fn calls_are_numbered_and_logged() {
    let (dir, model) = with_rules("[[rule]]\nthen = { text = 'reply {{call}}', fault = 'overloaded', times = 1 }");
    let (live, _pieces) = LiveText::channel();
    let request = request("r.toml", "x");
    let first = model.complete(&request, &[], &live).await;
    assert!(matches!(first, Err(ModelError::Transient { retry_after: None, .. })), "{first:?}");
    assert_eq!(model.complete(&request, &[], &live).await.unwrap().text, "reply 2");
    let pid = std::process::id();
    let entry = |call: u64, event: &str| json!({"turn": "acme/ann/clerk/default/7", "model": "scripted/r.toml", "rule": 1, "call": call, "pid": pid, "event": event});
    assert_eq!(log_of(&dir), [entry(1, "started"), entry(1, "failed"), entry(2, "started"), entry(2, "replied")]);
}

#[tokio::test]
async fn a_cut_stream_shows_half_and_is_transient() {
    let (_dir, model) =
        with_rules("[[rule]]\nthen = { text = 'one two three four five six seven', fault = 'cut_stream' }");
    let (live, mut pieces) = LiveText::channel();
    let outcome = model.complete(&request("r.toml", "x"), &[], &live).await;
    assert!(matches!(outcome, Err(ModelError::Transient { .. })), "{outcome:?}");
    assert_eq!(pieces.recv().await.unwrap(), "one two thre");
}

#[tokio::test]
async fn a_request_without_an_answer_is_quoted_in_the_error() {
    let (_dir, model) = with_rules("[[rule]]\nwhen = { turn = 2 }\nthen = { text = 'x' }");
    let (live, _pieces) = LiveText::channel();
    let table = [
        ("r.toml", "no rule of `r.toml` answers turn 1 of agent `clerk`, last role user, text `pay me`"),
        ("nope.toml", "there is no rules file `nope.toml` in the folder"),
        ("../r.toml", "there is no rules file `../r.toml` in the folder"),
        ("/etc/passwd", "there is no rules file `/etc/passwd` in the folder"),
    ];
    for (name, expected) in table {
        match model.complete(&request(name, "pay me"), &[], &live).await {
            Err(ModelError::Permanent { reason, .. } | ModelError::Unusable { reason, .. }) => {
                assert!(reason.starts_with(expected), "{reason}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn one_file_can_answer_for_every_name() {
    let (dir, _) = with_rules(
        "[[rule]]\nwhen = { model = 'small' }\nthen = { text = 'small {{call}}' }\n[[rule]]\nthen = { text = 'other {{call}}' }",
    );
    let options = ScriptedOptions { rules: Some(dir.path().join("r.toml")), ..ScriptedOptions::default() };
    let model = ScriptedModel::new(options);
    let (live, _pieces) = LiveText::channel();
    for (name, expected) in [("small", "small 1"), ("/etc/passwd", "other 2"), (ECHO, "x"), ("", "other 4")] {
        assert_eq!(model.complete(&request(name, "x"), &[], &live).await.unwrap().text, expected, "{name}");
    }
}

#[tokio::test]
async fn lines_of_several_writers_do_not_mix() {
    let (dir, model) = with_rules("[[rule]]\nthen = { text = 'x' }");
    let model = Arc::new(model);
    let calls = (0..200).map(|_| {
        let model = Arc::clone(&model);
        tokio::spawn(async move { model.complete(&request("r.toml", "x"), &[], &LiveText::channel().0).await.is_ok() })
    });
    assert!(futures::future::join_all(calls).await.into_iter().all(|done| done.unwrap()));
    assert_eq!(log_of(&dir).len(), 400);
}
