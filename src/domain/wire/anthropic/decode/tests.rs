//! Replies of Claude as its API streams them.

use super::super::super::names::ToolNames;
use super::super::super::{DecodeError, Decoder, EncodedRequest, HttpRequest, dialect};
use crate::chat::{Arguments, Reply, TokenUsage};
use serde_json::{Value, json};

fn decoder() -> Decoder {
    let request = HttpRequest { path: String::new(), headers: Vec::new(), body: Value::Null };
    let encoded = EncodedRequest { request, names: ToolNames::default().into() };
    Decoder::new(&dialect::find_dialect("anthropic").unwrap(), &encoded, "anthropic/m", None)
}

/// The reply in these pieces, and the text that was watched.
fn read(pieces: &[&[u8]]) -> Result<(String, Reply), DecodeError> {
    let mut decoder = decoder();
    let mut live = String::new();
    for piece in pieces {
        live += &decoder.feed(piece)?;
    }
    let (rest, reply) = decoder.end()?;
    Ok((live + &rest, reply))
}

/// Events as the API writes them.
fn stream(events: &[Value]) -> String {
    let event = |value: &Value| format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap_or("x"));
    events.iter().map(event).collect()
}

fn start(usage: &Value) -> Value {
    json!({"type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": [], "stop_reason": null,
        "stop_sequence": null, "usage": usage
    }})
}

fn begin(index: u64, block: &Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: &Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn text(index: u64, text: &str) -> Value {
    delta(index, &json!({"type": "text_delta", "text": text}))
}

fn partial(index: u64, text: &str) -> Value {
    delta(index, &json!({"type": "input_json_delta", "partial_json": text}))
}

fn end(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn stop(reason: &str) -> Vec<Value> {
    vec![
        json!({
            "type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
            "usage": {"output_tokens": 15}
        }),
        json!({"type": "message_stop"}),
    ]
}

fn tool(id: &str, input: &Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": "read", "input": input})
}

fn shown(reply: &Reply) -> Value {
    let call = |call: &crate::chat::ToolCall| match &call.arguments {
        Arguments::Json(value) => json!([call.id, call.name, value]),
        Arguments::Malformed(text) => json!([call.id, call.name, format!("malformed {text}")]),
    };
    let mut found = json!({"text": reply.text, "calls": reply.calls.iter().map(call).collect::<Vec<_>>()});
    if let Some(reasoning) = &reply.reasoning {
        assert_eq!(reasoning.by, "anthropic/m");
        found["reasoning"] = json!(reasoning.items);
    }
    if reply.truncated {
        found["truncated"] = true.into();
    }
    found
}

/// The same from a stream that is cut in two at every byte, and byte by byte.
fn check(given: &str, expected: &Result<Value, DecodeError>) {
    let bytes = given.as_bytes();
    for at in 0..=bytes.len() {
        let found = read(&[&bytes[..at], &bytes[at..]]);
        if let Ok((live, reply)) = &found {
            assert_eq!(*live, reply.text, "{given} cut at {at}");
        }
        assert_eq!(found.map(|(_, reply)| shown(&reply)), *expected, "{given} cut at {at}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(read(&single).map(|(_, reply)| shown(&reply)), *expected, "{given} byte by byte");
}

fn usage() -> Value {
    json!({"input_tokens": 25, "output_tokens": 1})
}

#[test]
fn texts_calls_and_thinking_are_read_however_they_are_cut() {
    let ping = json!({"type": "ping"});
    let hello = [
        vec![
            start(&usage()),
            begin(0, &json!({"type": "text", "text": ""})),
            ping,
            text(0, "Grüß "),
            text(0, "dich 🦀"),
        ],
        vec![end(0)],
        stop("end_turn"),
    ];
    check(&stream(&hello.concat()), &Ok(json!({"text": "Grüß dich 🦀", "calls": []})));

    let thinking = json!({"type": "thinking", "thinking": "", "signature": ""});
    let thought = |index, piece: &str| delta(index, &json!({"type": "thinking_delta", "thinking": piece}));
    let signature = |index, piece: &str| delta(index, &json!({"type": "signature_delta", "signature": piece}));
    let events = [
        vec![start(&usage()), begin(0, &thinking), thought(0, "Let "), thought(0, "me"), signature(0, "EqQB"), end(0)],
        vec![begin(1, &json!({"type": "redacted_thinking", "data": "Em"})), end(1)],
        vec![begin(2, &json!({"type": "text", "text": "A"})), text(2, "B"), end(2)],
        vec![begin(3, &thinking), signature(3, "s2"), end(3)],
        vec![
            begin(4, &tool("toolu_1", &json!({}))),
            partial(4, ""),
            partial(4, "{\"path\""),
            partial(4, ":\"a\"}"),
            end(4),
        ],
        vec![begin(5, &tool("toolu_2", &json!({}))), end(5)],
        stop("tool_use"),
    ];
    let expected = json!({
        "text": "AB",
        "calls": [["toolu_1", "read", {"path": "a"}], ["toolu_2", "read", {}]],
        "reasoning": [
            {"type": "thinking", "thinking": "Let me", "signature": "EqQB"},
            {"type": "redacted_thinking", "data": "Em"},
            {"type": "thinking", "thinking": "", "signature": "s2", "behind": {"text": true, "calls": 0}}
        ]
    });
    check(&stream(&events.concat()), &Ok(expected));
}

#[test]
fn tools_of_the_server_and_citations_are_passed_over() {
    let events = [
        vec![start(&usage())],
        vec![begin(0, &json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}))],
        vec![partial(0, "{\"query\":"), partial(0, "\"x\"}"), end(0)],
        vec![
            begin(1, &json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"a": 1}]})),
            end(1),
        ],
        vec![begin(2, &json!({"type": "text", "text": "", "citations": []}))],
        vec![delta(2, &json!({"type": "citations_delta", "citation": {"cited_text": "c"}})), text(2, "found"), end(2)],
        vec![delta(2, &json!({"type": "unknown_delta"})), json!({"type": "unknown"}), json!({"no": "type"}), json!(7)],
        stop("end_turn"),
    ];
    check(&stream(&events.concat()), &Ok(json!({"text": "found", "calls": []})));
}

#[test]
fn odd_streams_are_read_as_meant() {
    let whole = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "stop_reason": "tool_use", "usage": usage(),
        "content": [
            {"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "x"},
            tool("toolu_1", &json!({"path": "a"}))
        ]
    });
    let expected = json!({
        "text": "x", "calls": [["toolu_1", "read", {"path": "a"}]],
        "reasoning": [{"type": "thinking", "thinking": "t", "signature": "s"}]
    });
    check(&whole.to_string(), &Ok(expected));
    let full_input = [
        vec![
            start(&usage()),
            begin(0, &tool("1", &json!({"path": "a"}))),
            begin(1, &tool("2", &json!(""))),
            partial(1, "{}"),
        ],
        stop("tool_use"),
    ];
    check(
        &stream(&full_input.concat()),
        &Ok(json!({"text": "", "calls": [["1", "read", {"path": "a"}], ["2", "read", {}]]})),
    );
    let unnamed =
        [delta(0, &json!({"type": "thinking_delta", "thinking": "t"})), text(1, "x"), json!({"type": "message_stop"})];
    let expected =
        json!({"text": "x", "calls": [], "reasoning": [{"type": "thinking", "thinking": "t", "signature": ""}]});
    check(&stream(&unnamed), &Ok(expected));
    // The name of an event stands for a type that is missing.
    check("event: message_stop\ndata: {}\n\n", &Ok(json!({"text": "", "calls": []})));
    check("data: {\"type\":\"message_stop\"}\n\ndata: [DONE]\n\n", &Ok(json!({"text": "", "calls": []})));
}

#[test]
fn a_reply_ends_as_its_provider_says() {
    let said = |reason: &str| {
        let begun = vec![start(&usage()), begin(0, &json!({"type": "text", "text": "x"})), end(0)];
        stream(&[begun, stop(reason)].concat())
    };
    for (reason, expected) in [
        ("end_turn", Ok(json!({"text": "x", "calls": []}))),
        ("stop_sequence", Ok(json!({"text": "x", "calls": []}))),
        ("max_tokens", Ok(json!({"text": "x", "calls": [], "truncated": true}))),
        ("model_context_window_exceeded", Ok(json!({"text": "x", "calls": [], "truncated": true}))),
        ("refusal", Err(DecodeError::Refused("refusal".into()))),
        ("pause_turn", Err(DecodeError::Unfinished("pause_turn".into()))),
        ("brand_new", Err(DecodeError::Unfinished("brand_new".into()))),
    ] {
        check(&said(reason), &expected);
    }
    let details = json!({"type": "refusal", "category": "cyber", "explanation": "It could harm"});
    let refused = json!({"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": details}});
    check(&stream(&[start(&usage()), refused]), &Err(DecodeError::Refused("It could harm".into())));
    let cut = [start(&usage()), begin(0, &tool("1", &json!({}))), partial(0, "{\"path\":")];
    check(&stream(&cut), &Err(DecodeError::Incomplete));
    let limited = stream(&[cut.to_vec(), stop("max_tokens")].concat());
    check(&limited, &Ok(json!({"text": "", "calls": [["1", "read", "malformed {\"path\":"]], "truncated": true})));
}

#[test]
fn errors_are_told_in_the_words_of_the_server() {
    let error =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}, "request_id": "r"});
    for given in [
        stream(&[start(&usage()), text(0, "x"), error.clone()]),
        error.to_string(),
        format!("event: error\ndata: {}\n\n", json!({"message": "Overloaded", "code": "overloaded_error"})),
        json!({"error": {"message": "Overloaded", "code": "overloaded_error"}}).to_string(),
    ] {
        match read(&[given.as_bytes()]) {
            Err(DecodeError::Reported(report)) => {
                assert_eq!(
                    (report.message.as_str(), report.kinds.as_slice()),
                    ("Overloaded", ["overloaded_error".to_owned()].as_slice())
                );
            }
            other => panic!("{given}: {other:?}"),
        }
    }
}

#[test]
fn tokens_have_their_classes() {
    let given = |begun: &Value, ended: &Value| {
        let last = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": ended});
        read(&[stream(&[start(begun), last]).as_bytes()]).unwrap().1.usage
    };
    let usage = |input, output, cache_read, cache_write, reasoning| TokenUsage {
        input,
        output,
        cache_read,
        cache_write,
        reasoning,
    };
    let cached = json!({
        "input_tokens": 10, "cache_read_input_tokens": 1_000, "cache_creation_input_tokens": 200, "output_tokens": 1
    });
    for (begun, ended, expected) in [
        (cached.clone(), json!({"output_tokens": 15}), usage(1_210, 15, 1_000, 200, 0)),
        (cached.clone(), json!({"output_tokens": 15, "input_tokens": 40}), usage(1_240, 15, 1_000, 200, 0)),
        (
            cached.clone(),
            json!({"output_tokens": 15, "cache_read_input_tokens": 1_100, "output_tokens_details": {"thinking_tokens": 9}}),
            usage(1_310, 15, 1_100, 200, 9),
        ),
        (cached, json!(null), usage(1_210, 1, 1_000, 200, 0)),
        (json!({"input_tokens": 0}), json!({"input_tokens": 7, "output_tokens": 3}), usage(7, 3, 0, 0, 0)),
        (json!("odd"), json!({"output_tokens": "many", "input_tokens": -1}), usage(0, 0, 0, 0, 0)),
    ] {
        assert_eq!(given(&begun, &ended), expected, "{begun} {ended}");
    }
}
