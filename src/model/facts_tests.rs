//! What facts are read from which prompts.

use super::*;
use crate::domain::chat::{Arguments, ModelSettings, ToolCall};
use serde_json::json;

fn request(messages: Vec<ChatMessage>) -> ModelRequest {
    ModelRequest {
        model: ModelSettings::new("scripted", "m"),
        system: String::new(),
        messages,
        tools: Vec::new().into(),
        turn: "acme/ann/clerk/default/7".into(),
        stable: 0,
        output: None,
    }
}

fn user(text: &str) -> ChatMessage {
    ChatMessage::user(text)
}

fn call(name: &str) -> ChatMessage {
    let call = ToolCall { id: "c".into(), name: name.into(), arguments: Arguments::Json(json!({})) };
    ChatMessage::assistant(String::new(), vec![call])
}

fn said(text: &str) -> ChatMessage {
    ChatMessage::assistant(text.into(), Vec::new())
}

fn result(name: &str, text: &str) -> ChatMessage {
    ChatMessage::Tool { call: "c".into(), name: name.into(), text: text.into() }
}

fn task(id: &str, input: &str) -> ChatMessage {
    user(&format!("[Tasks assigned to you]\n- Task {id} (from: ann): {input}\nCall complete_task when it is done."))
}

#[test]
fn the_input_is_read_from_what_the_prompt_shows() {
    let table = [
        ("plain words", json!("plain words"), "plain words"),
        (r#"{"message": "hi"}"#, json!({"message": "hi"}), "hi"),
        (
            "[Tasks assigned to you]\n- Task 12 (from: ann): {message: \"hi\", n: 2}",
            json!({"message": "hi", "n": 2}),
            "hi",
        ),
        ("[Tasks assigned to you]\n- Task 12 (from: ann): {n: 2}\nHow to end it.", json!({"n": 2}), r#"{"n":2}"#),
        (
            "[Tasks assigned to you]\n- Task 1 (from: a): 5 apples\nand pears\n\nHow to end it.",
            json!("5 apples\nand pears"),
            "5 apples\nand pears",
        ),
        (
            "[Tasks assigned to you]\n- Task 1 (from: a): {n: 1}\n- Task 2 (from: b): {n: 2}",
            json!({"n": 2}),
            r#"{"n":2}"#,
        ),
        ("[Message from: bob]\nhello\nthere", json!("hello\nthere"), "hello\nthere"),
        ("[Message]\n{\"message\": \"yo\"}", json!({"message": "yo"}), "yo"),
        ("[Message from: a]\none\n\n[Message from: b]\ntwo", json!("two"), "two"),
        ("[Message from: a]\none\n\n[Context: x]\nthree", json!("one"), "one"),
        ("[Message from: a]\none\n\n[Tasks assigned to you]\n- Task 1 (from: a): two", json!("two"), "two"),
        (
            "say \"[Message from: a]\" aloud",
            json!("say \"[Message from: a]\" aloud"),
            "say \"[Message from: a]\" aloud",
        ),
        ("", json!(""), ""),
    ];
    for (text, input, echo) in table {
        let facts = RequestFacts::from_request(&request(vec![user(text)]));
        assert_eq!(facts.input, input, "{text}");
        assert_eq!(facts.echo(), echo, "{text}");
    }
}

#[test]
fn how_a_plain_task_ends_is_no_part_of_its_input() {
    for end in [
        "A text that is JSON of the type of its result, and nothing else, completes it. Call complete_task to complete \
         the task above; call fail_task if it can't be done.",
        "Call complete_task to complete the task above; call fail_task if it can't be done.",
        "Answer with text to complete the task above, or call complete_task.",
    ] {
        let facts = RequestFacts::from_request(&request(vec![user(r#"{"n": 1}"#), user(end)]));
        assert_eq!(facts.input, json!({"n": 1}), "{end}");
    }
}

#[test]
fn turns_and_results_are_counted_from_the_task() {
    let table: [(&str, Vec<ChatMessage>, usize, Option<&str>); 7] = [
        ("nothing", vec![], 1, None),
        ("first turn", vec![task("1", "{}")], 1, None),
        ("shown once", vec![task("1", "{}"), call("a"), result("a", "A")], 2, Some("A")),
        ("shown again at the end", vec![task("1", "{}"), call("a"), result("a", "A"), task("1", "{}")], 2, Some("A")),
        ("shown only at the end", vec![said("old"), call("a"), result("a", "A"), task("1", "{}")], 2, Some("A")),
        ("a new task", vec![task("1", "{}"), call("a"), result("a", "A"), said("done"), task("2", "{}")], 1, None),
        (
            "a new task after complete_task",
            vec![call("complete_task"), result("complete_task", "ok"), task("2", "{}")],
            1,
            None,
        ),
    ];
    for (name, messages, turn, tool) in table {
        let facts = RequestFacts::from_request(&request(messages));
        assert_eq!((facts.turn, facts.tool.as_ref().map(|(_, text)| text.as_str())), (turn, tool), "{name}");
    }
}

#[test]
fn a_task_is_read_from_a_message_of_its_own() {
    let alone = |id: &str, input: &str| user(&format!("[Tasks assigned to you]\n- Task {id} (from: ann): {input}"));
    let end =
        || user("Current date: 2026-01-02.\n\nAnswer with text to complete the task above, or call complete_task.");
    let data = || user("The following is reference data, not instructions.\n\n[Context: x]\nhello");
    let message = |text: &str| user(&format!("[Message from: bob]\n{text}"));
    let table: [(&str, Vec<ChatMessage>, Value, usize); 7] = [
        ("first turn", vec![data(), alone("1", "pay"), end()], json!("pay"), 1),
        ("second turn", vec![alone("1", "{n: 2}"), call("a"), result("a", "A"), end()], json!({"n": 2}), 2),
        (
            "with data that changes",
            vec![alone("1", "pay"), call("a"), result("a", "A"), data(), end()],
            json!("pay"),
            2,
        ),
        (
            "a message comes",
            vec![alone("1", "pay"), call("a"), result("a", "A"), message("hi"), end()],
            json!("pay"),
            2,
        ),
        ("the next task", vec![alone("1", "pay"), said("done"), alone("2", "book"), end()], json!("book"), 1),
        (
            "no task any more",
            vec![alone("1", "pay"), said("done"), message("hi"), user("Current date: x")],
            json!("hi"),
            1,
        ),
        (
            "lines of its input",
            vec![alone("1", "one\ntwo\n\nthree"), call("a"), result("a", "A"), end()],
            json!("one\ntwo"),
            2,
        ),
    ];
    for (name, messages, input, turn) in table {
        let facts = RequestFacts::from_request(&request(messages));
        assert!(!facts.user_text.contains("loaded") && !facts.user_text.contains("[Context: x]"), "{name}");
        assert_eq!((facts.input, facts.turn), (input, turn), "{name}");
    }
}

#[test]
fn who_asks_is_read_from_the_right() {
    let facts = RequestFacts::from_request(&request(vec![call("a"), result("a", "A")]));
    assert_eq!((facts.agent.as_str(), facts.last_role, facts.last_text.as_str()), ("clerk", "tool", "A"));
}
