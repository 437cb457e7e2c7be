//! Streams as servers of this format write them.

use super::super::super::tests::{body, read, request, shown, user};
use crate::chat::{ChatMessage, ModelRequest};
use serde_json::{Value, json};

const PROVIDER: &str = "openai_resp";

/// The events as a stream with names and without `[DONE]`.
fn stream(events: &[Value]) -> String {
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    events.iter().map(event).collect::<Vec<_>>().concat()
}

fn check(events: &[Value], expected: &str) {
    let given = stream(events);
    assert_eq!(shown(read(PROVIDER, &given)), expected, "{given}");
}

fn message(text: &str) -> Value {
    json!({"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": text}]})
}

fn call(arguments: &str) -> Value {
    json!({"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read", "arguments": arguments})
}

fn reasoning(encrypted: Option<&str>) -> Value {
    let summary = json!([{"type": "summary_text", "text": "why"}]);
    json!({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": encrypted})
}

fn added(place: usize, item: &Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": place, "item": item})
}

fn finished(place: usize, item: &Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": place, "item": item})
}

/// A piece of an item.
fn delta(kind: &str, place: usize, id: &str, text: &str) -> Value {
    json!({"type": format!("response.{kind}.delta"), "output_index": place, "item_id": id, "delta": text})
}

fn completed(output: &[Value]) -> Value {
    let usage = json!({"input_tokens": 20, "input_tokens_details": {"cached_tokens": 16, "cache_write_tokens": 1},
        "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 25});
    json!({"type": "response.completed", "response": {"status": "completed", "error": null, "output": output, "usage": usage}})
}

const USAGE: &str = "[20, 5, 16, 1, 2]";

#[test]
fn a_text_is_read_once_however_often_it_is_told() {
    let created =
        json!({"type": "response.created", "response": {"status": "in_progress", "error": null, "output": []}});
    let text = delta("output_text", 0, "msg_1", "Grüße ");
    let more = delta("output_text", 0, "msg_1", "🦀");
    let whole = message("Grüße 🦀");
    let text_done =
        json!({"type": "response.output_text.done", "output_index": 0, "item_id": "msg_1", "text": "Grüße 🦀"});
    let expected = format!("\"Grüße 🦀\" | {USAGE}");
    for events in [
        vec![created, added(0, &message("")), text.clone(), more.clone(), text_done.clone(), finished(0, &whole)],
        vec![text.clone(), more.clone()],
        vec![added(0, &message("")), finished(0, &whole)],
        vec![text_done],
        vec![],
    ] {
        let with_output: Vec<Value> = events.iter().cloned().chain([completed(std::slice::from_ref(&whole))]).collect();
        check(&with_output, &expected);
        if !events.is_empty() {
            let without: Vec<Value> = events.into_iter().chain([completed(&[])]).collect();
            check(&without, &expected);
        }
    }
    // llama.cpp tells no places, and other ids at the end.
    let placeless = |mut event: Value| {
        event.as_object_mut().unwrap().remove("output_index");
        event
    };
    let mut renamed = whole;
    renamed["id"] = json!("msg_9");
    check(&[placeless(text), placeless(more), completed(&[renamed])], &expected);
}

#[test]
fn calls_are_read_once_however_often_they_are_told() {
    let expected = format!("\"\" | c1 read {{\"path\":\"x\"}} | {USAGE}");
    let pieces =
        [("{\"path\":", 1), ("\"x\"}", 1)].map(|(text, at)| delta("function_call_arguments", at, "fc_1", text));
    let arguments = "{\"path\":\"x\"}";
    let done = json!({"type": "response.function_call_arguments.done", "output_index": 1, "item_id": "fc_1", "arguments": arguments});
    for events in [
        vec![added(1, &call("")), pieces[0].clone(), pieces[1].clone(), done.clone(), finished(1, &call(arguments))],
        vec![added(1, &call("")), pieces[0].clone(), pieces[1].clone()],
        vec![added(1, &call("")), done.clone()],
        vec![pieces[0].clone(), pieces[1].clone(), finished(1, &call(arguments))],
        vec![finished(1, &call(arguments))],
        vec![],
    ] {
        let events: Vec<Value> = events.into_iter().chain([completed(&[call(arguments)])]).collect();
        check(&events, &expected);
    }
    let mut second = call("{\"path\":\"y\"}");
    second["id"] = json!("fc_2");
    second["call_id"] = json!("c2");
    let events = [
        added(0, &call("")),
        added(1, &second),
        delta("function_call_arguments", 1, "fc_2", "{\"path\":\"y\"}"),
        delta("function_call_arguments", 0, "fc_1", arguments),
        completed(&[call(arguments), second]),
    ];
    check(&events, &format!("\"\" | c1 read {{\"path\":\"x\"}} | c2 read {{\"path\":\"y\"}} | {USAGE}"));
}

#[test]
fn a_call_that_a_limit_cut_off_is_malformed() {
    let end = json!({"type": "response.incomplete", "response": {"status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"}, "output": [call("{\"path\":\"")]}});
    let piece = delta("function_call_arguments", 0, "fc_1", "{\"path\":\"");
    check(&[added(0, &call("")), piece, end.clone()], "\"\" | c1 read malformed {\"path\":\" | truncated");
    check(&[added(0, &call(""))], "Incomplete");
    check(&[end], "\"\" | c1 read malformed {\"path\":\" | truncated");
}

#[test]
fn encrypted_reasoning_is_recorded_in_its_place() {
    let pieces = [
        added(0, &reasoning(None)),
        delta("reasoning_summary_text", 0, "rs_1", "why"),
        finished(0, &reasoning(Some("e"))),
        delta("output_text", 1, "msg_1", "früh"),
        finished(1, &message("früh")),
        finished(2, &call("{}")),
    ];
    let output = [reasoning(Some("e")), message("früh"), call("{}")];
    let expected = format!(
        "\"früh\" | c1 read {{}} | reasoning {} | {USAGE}",
        concat!(
            r#"[{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"why"}],"encrypted_content":"e"},"#,
            r#"{"type":"message","id":"msg_1","length":5},{"type":"function_call","id":"fc_1"}]"#,
        )
    );
    let streamed: Vec<Value> = pieces.into_iter().chain([completed(&output)]).collect();
    check(&streamed, &expected);
    check(&[completed(&output)], &expected);
    for encrypted in [None, Some("")] {
        let readable = [completed(&[reasoning(encrypted), message("a")])];
        check(&readable, &format!("\"a\" | {USAGE}"));
    }
}

#[test]
fn recorded_items_go_back_unchanged() {
    let output = [reasoning(Some("e")), message("früh"), call("{}")];
    let reply = read(PROVIDER, &stream(&[completed(&output)])).unwrap();
    let told = ChatMessage::Assistant { text: reply.text, calls: reply.calls, reasoning: reply.reasoning };
    let result = ChatMessage::Tool { call: "c1".into(), name: "read".into(), text: "x".into() };
    let sent = body(&ModelRequest { messages: vec![user("a"), told, result], ..request(PROVIDER) });
    let kinds: Vec<(&str, &str)> = sent["input"].as_array().unwrap()[1..]
        .iter()
        .map(|item| (item["type"].as_str().unwrap(), item["id"].as_str().unwrap_or_default()))
        .collect();
    let expected =
        [("reasoning", "rs_1"), ("message", "msg_1"), ("function_call", "fc_1"), ("function_call_output", "")];
    assert_eq!(kinds, expected);
}

#[test]
fn only_a_whole_reply_is_one() {
    let end = |status: &str, reason: Value| {
        json!({"type": format!("response.{status}"), "response": {"status": status,
            "incomplete_details": {"reason": reason}, "output": [message("a")]}})
    };
    for (status, reason, expected) in [
        ("completed", json!(null), "\"a\""),
        ("incomplete", json!("max_output_tokens"), "\"a\" | truncated"),
        ("incomplete", json!("content_filter"), "Filtered { reason: \"content_filter\", chars: 1 }"),
        ("incomplete", json!("max_messages"), "Unfinished(\"max_messages\")"),
        ("incomplete", json!(7), "Unfinished(\"incomplete\")"),
        ("cancelled", json!(null), "Unfinished(\"cancelled\")"),
        ("failed", json!(null), "Unfinished(\"failed\")"),
    ] {
        check(&[end(status, reason)], expected);
    }
    check(&[delta("output_text", 0, "m", "a")], "Incomplete");
    check(&[delta("output_text", 0, "m", "a"), json!({"type": "response.completed"})], "\"a\"");
}

#[test]
fn a_reply_that_is_no_stream_is_read() {
    let whole =
        json!({"id": "r", "object": "response", "status": "completed", "error": null, "output": [message("a")]});
    assert_eq!(shown(read(PROVIDER, &whole.to_string())), "\"a\"");
}

#[test]
fn refusals_and_failures_are_told_in_the_words_of_the_server() {
    let refusal = json!({"type": "message", "id": "m", "content": [{"type": "refusal", "refusal": "I can't help."}]});
    check(
        &[delta("refusal", 0, "m", "I can't help."), completed(std::slice::from_ref(&refusal))],
        "Refused(\"I can't help.\")",
    );
    check(&[completed(&[refusal])], "Refused(\"I can't help.\")");
    let reported = |kinds: &[&str]| {
        format!("Reported(ProviderReport {{ message: \"overloaded\", kinds: {kinds:?}, status: None }})")
    };
    for (failure, kinds) in [
        (json!({"type": "error", "code": "server_error", "message": "overloaded"}), vec!["error", "server_error"]),
        (json!({"type": "error", "error": {"type": "server_error", "message": "overloaded"}}), vec!["server_error"]),
        (
            json!({"type": "response.failed", "response": {"status": "failed",
                "error": {"code": "server_error", "message": "overloaded"}}}),
            vec!["server_error"],
        ),
        (json!({"error": {"message": "overloaded"}}), vec![]),
        (json!({"message": "overloaded"}), vec![]),
        (json!({"type": "invalid", "message": "overloaded"}), vec!["invalid"]),
    ] {
        assert_eq!(shown(read(PROVIDER, &failure.to_string())), reported(&kinds), "{failure}");
        check(&[delta("output_text", 0, "m", "a"), failure], &reported(&kinds));
    }
}

#[test]
fn odd_events_are_passed_over() {
    let odd = [
        json!(7),
        json!({}),
        json!({"type": 7}),
        json!({"type": "keepalive", "sequence_number": 3}),
        json!({"type": "response.output_text.delta", "delta": {}, "output_index": "x"}),
        json!({"type": "response.function_call_arguments.delta"}),
        json!({"type": "response.output_item.done", "item": null}),
        json!({"type": "response.output_item.done", "item": {"type": "web_search_call"}}),
        json!({"type": "response.output_item.added", "item": {"type": "message", "content": 5}}),
        json!({"type": "response.unknown.event", "error": null}),
    ];
    let last =
        completed(&[json!(null), json!({"type": "message", "content": [null, 5, {}]}), json!({"type": "reasoning"})]);
    let events: Vec<Value> = odd.into_iter().chain([delta("output_text", 0, "m", "a"), last]).collect();
    check(&events, &format!("\"a\" | {USAGE}"));
}
