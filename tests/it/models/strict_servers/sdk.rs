//! The official SDKs judge bodies and read streams.

use crate::support::model_server::ModelServer;
use crate::support::raw_reply::RawReply;
use crate::support::sdk_judge::Sdk;
use serde_json::{Value, json};

/// Bodies of one API, each with the words of its refusal, empty for none.
fn check(sdk: Sdk, table: &[(Value, &str)]) {
    let bodies: Vec<Value> = table.iter().map(|(body, _)| body.clone()).collect();
    let Some(found) = sdk.check(&bodies) else { return };
    for ((body, expected), found) in table.iter().zip(found) {
        let found = found.join("\n");
        let fits = if expected.is_empty() { found.is_empty() } else { found.contains(expected) };
        assert!(fits, "{sdk:?} {body}: {found}");
    }
}

#[test]
fn bodies_are_of_the_types_of_the_sdk() {
    let message = json!({"role": "user", "content": "hi"});
    check(
        Sdk::OpenAi,
        &[
            (json!({"model": "m", "messages": [message], "stream": true}), ""),
            (json!({"model": "m", "messages": [message], "temprature": 1}), "temprature"),
            (json!({"model": "m", "messages": [{"role": "user", "content": "hi", "extra": 1}]}), "extra"),
            (json!({"messages": [message]}), "model"),
        ],
    );
    check(
        Sdk::Responses,
        &[
            (json!({"model": "m", "input": [message], "max_output_tokens": 16}), ""),
            (json!({"model": "m", "input": [message], "max_tokens": 16}), "max_tokens"),
        ],
    );
    check(
        Sdk::Anthropic,
        &[
            (json!({"model": "m", "max_tokens": 1, "messages": [message]}), ""),
            (json!({"model": "m", "messages": [message]}), "max_tokens"),
            (
                json!({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "txt"}]}]}),
                "txt",
            ),
        ],
    );
    check(
        Sdk::Gemini,
        &[
            (json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}), ""),
            (json!({"contents": [{"role": "user", "parts": [{"txt": "hi"}]}]}), "txt"),
            (json!({"messages": []}), "unknown key: messages"),
        ],
    );
}

/// What the official client reads of a stream, in front of the usage.
fn check_stream(sdk: Sdk, events: &[Value], expected: Value) {
    let events: Vec<String> = events
        .iter()
        .map(|event| match event["type"].as_str() {
            Some(kind) => format!("event: {kind}\ndata: {event}\n\n"),
            None => format!("data: {event}\n\n"),
        })
        .collect();
    let done = if sdk == Sdk::OpenAi { "data: [DONE]\n\n" } else { "" };
    let server = ModelServer::scripted(vec![RawReply::sse(events.concat() + done)]);
    let base = if sdk == Sdk::OpenAi { server.url("/v1") } else { server.url("") };
    let Some(mut read) = sdk.read(&[base]) else { return };
    let mut read = read.remove(0);
    let usage = read.as_object_mut().unwrap().remove("usage");
    assert_eq!(read, expected, "{sdk:?}: {usage:?}");
    assert!(usage.is_some_and(|usage| usage.is_object()), "{sdk:?}");
}

#[test]
fn streams_are_read_by_the_official_clients() {
    let chunk = |choices: Value, usage: Value| json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, "usage": usage});
    let call = json!({"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    check_stream(
        Sdk::OpenAi,
        &[
            chunk(
                json!([{"index": 0, "delta": {"role": "assistant", "content": "hi"}, "finish_reason": null}]),
                Value::Null,
            ),
            chunk(json!([{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": null}]), Value::Null),
            chunk(json!([{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]), Value::Null),
            chunk(json!([]), json!({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5})),
        ],
        json!({"text": "hi", "calls": [{"id": "c1", "name": "f", "arguments": "{}"}], "stop": "tool_calls"}),
    );
    let message = json!({"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 3, "output_tokens": 0}});
    check_stream(
        Sdk::Anthropic,
        &[
            json!({"type": "message_start", "message": message}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": {"output_tokens": 2}}),
            json!({"type": "message_stop"}),
        ],
        json!({"text": "hi", "calls": [], "stop": "end_turn"}),
    );
    let candidate =
        json!({"index": 0, "content": {"role": "model", "parts": [{"text": "hi"}]}, "finishReason": "STOP"});
    check_stream(
        Sdk::Gemini,
        &[
            json!({"candidates": [candidate], "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}}),
        ],
        json!({"text": "hi", "calls": [], "stop": "STOP"}),
    );
}
