//! What the official SDK reads of a stream is what our decoders read of it, wherever its bytes are cut.
//!
//! The streams are written from seeds, as the API writes them. Those in other servers' manners are below, each with how
//! the SDK reads it otherwise, and why.

use crate::support::dice::Dice;
use crate::support::model_calls::{plain_request, user};
use crate::support::model_server::ModelServer;
use crate::support::raw_reply::RawReply;
use crate::support::sdk_judge::Sdk;
use crate::support::streams::WireStream;
use serde_json::{Value, json};
use std::slice::from_ref;
use trellis::domain::chat::{Arguments, ModelRequest, Reply, TokenUsage, ToolSpec};
use trellis::domain::wire::dialect::find_dialect;
use trellis::domain::wire::{DecodeError, Decoder, encode};

/// Streams of each API.
const SEEDS: u64 = 150;
/// Ways of cutting one stream, beside whole and byte by byte.
const CUTS: u64 = 12;

pub(super) const fn provider(sdk: Sdk) -> &'static str {
    match sdk {
        Sdk::OpenAi => "openai",
        Sdk::Responses => "openai_resp",
        Sdk::Anthropic => "anthropic",
        Sdk::Gemini => "gemini",
    }
}

/// Our reading of the stream in these pieces.
fn read(sdk: Sdk, pieces: &[&[u8]]) -> Result<Reply, DecodeError> {
    let tool = |name: &str| ToolSpec { name: name.into(), description: name.into(), schema: json!({"type": "object"}) };
    let tools = vec![tool("read"), tool("write_file")].into();
    let request = ModelRequest { tools, ..plain_request(provider(sdk), vec![user("x")]) };
    let dialect = find_dialect(provider(sdk)).unwrap();
    let encoded = encode(&request, &dialect, "k").unwrap();
    let mut decoder = Decoder::new(&dialect, &encoded, "p/m", None);
    for piece in pieces {
        decoder.feed(piece)?;
    }
    decoder.end().map(|(_, reply)| reply)
}

/// The same however the stream is cut.
pub(super) fn read_anyhow(stream: &WireStream, dice: &mut Dice) -> Result<Reply, DecodeError> {
    let bytes = stream.text.as_bytes();
    let whole = read(stream.sdk, &[bytes]);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(read(stream.sdk, &single), whole, "{stream:?} byte by byte");
    for _ in 0..CUTS {
        let mut at = [0; 3].map(|_| usize::try_from(dice.below(bytes.len() as u64 + 1)).unwrap());
        at.sort_unstable();
        let pieces = [&bytes[..at[0]], &bytes[at[0]..at[1]], &bytes[at[1]..at[2]], &bytes[at[2]..]];
        assert_eq!(read(stream.sdk, &pieces), whole, "{stream:?} cut at {at:?}");
    }
    whole
}

/// What the SDK reads of each stream; `None` without the SDKs.
pub(super) fn read_by_sdk(sdk: Sdk, streams: &[WireStream]) -> Option<Vec<Value>> {
    let texts: Vec<String> = streams.iter().map(|stream| stream.text.clone()).collect();
    let server = ModelServer::start(move |call| {
        let number: usize = call.path.split('/').nth(2).unwrap().parse().unwrap();
        RawReply::sse(&texts[number])
    });
    let end = if matches!(sdk, Sdk::OpenAi | Sdk::Responses) { "/v1" } else { "" };
    let urls: Vec<String> = (0..streams.len()).map(|number| server.url(&format!("/s/{number}{end}"))).collect();
    sdk.read(&urls)
}

/// Why a reply ended, in words that all APIs have; in the API's own where they mean something else.
fn ending(sdk: Sdk, stop: &Value) -> &str {
    match (sdk, stop.as_str().unwrap_or("never")) {
        (Sdk::OpenAi, "stop" | "tool_calls" | "function_call")
        | (Sdk::Responses, "completed")
        | (Sdk::Anthropic, "end_turn" | "stop_sequence" | "tool_use")
        | (Sdk::Gemini, "STOP") => "whole",
        (Sdk::OpenAi, "length")
        | (Sdk::Responses, "max_output_tokens")
        | (Sdk::Anthropic, "max_tokens" | "model_context_window_exceeded")
        | (Sdk::Gemini, "MAX_TOKENS") => "cut",
        (Sdk::OpenAi | Sdk::Responses, "content_filter")
        | (Sdk::Gemini, "SAFETY" | "RECITATION" | "PROHIBITED_CONTENT") => "filtered",
        (_, other) => other,
    }
}

fn usage(sdk: Sdk, told: &Value) -> TokenUsage {
    let number = |pointer: &str| told.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    match sdk {
        Sdk::OpenAi => TokenUsage {
            input: number("/prompt_tokens"),
            output: number("/completion_tokens"),
            cache_read: number("/prompt_tokens_details/cached_tokens"),
            cache_write: 0,
            reasoning: number("/completion_tokens_details/reasoning_tokens"),
        },
        Sdk::Responses => TokenUsage {
            input: number("/input_tokens"),
            output: number("/output_tokens"),
            cache_read: number("/input_tokens_details/cached_tokens"),
            cache_write: 0,
            reasoning: number("/output_tokens_details/reasoning_tokens"),
        },
        Sdk::Anthropic => TokenUsage {
            input: number("/input_tokens")
                + number("/cache_read_input_tokens")
                + number("/cache_creation_input_tokens"),
            output: number("/output_tokens"),
            cache_read: number("/cache_read_input_tokens"),
            cache_write: number("/cache_creation_input_tokens"),
            reasoning: 0,
        },
        Sdk::Gemini => TokenUsage {
            input: number("/prompt_token_count"),
            output: number("/candidates_token_count") + number("/thoughts_token_count"),
            cache_read: number("/cached_content_token_count"),
            cache_write: 0,
            reasoning: number("/thoughts_token_count"),
        },
    }
}

/// How our reading differs from the SDK's; empty: not at all.
pub(super) fn difference(sdk: Sdk, ours: &Result<Reply, DecodeError>, theirs: &Value) -> String {
    if let Some(error) = theirs.get("error") {
        return format!("the SDK gives up: {error}");
    }
    let end = ending(sdk, &theirs["stop"]);
    let reply = match ours {
        Ok(reply) => reply,
        // Half an answer that a filter cut is none here; the SDK leaves that to its caller.
        Err(DecodeError::Filtered { .. } | DecodeError::Refused(_)) if end == "filtered" => return String::new(),
        Err(error) => return format!("ended as {end}, where ours is an error: {error}"),
    };
    let mut found = Vec::new();
    if (if reply.truncated { "cut" } else { "whole" }) != end {
        found.push(format!("ended as {end}"));
    }
    if theirs["text"] != reply.text.as_str() {
        found.push(format!("text {}", theirs["text"]));
    }
    let calls = theirs["calls"].as_array().unwrap();
    if calls.len() != reply.calls.len() {
        found.push(format!("{} calls", calls.len()));
    }
    for (call, ours) in calls.iter().zip(&reply.calls) {
        let text = call["arguments"].as_str().map_or_else(|| call["arguments"].to_string(), str::to_owned);
        let is_alike = match &ours.arguments {
            Arguments::Json(value) => {
                let empty = || text.is_empty().then(|| json!({}));
                serde_json::from_str::<Value>(&text).ok().or_else(empty).as_ref() == Some(value)
            }
            // Of a call that was cut the SDK of Anthropic gives what it can guess of its arguments.
            Arguments::Malformed(ours) => *ours == text || sdk == Sdk::Anthropic && end == "cut",
        };
        // Gemini's calls may have none.
        let is_it = call["id"].is_null() || call["id"] == ours.id.as_str();
        if !is_alike || !is_it || call["name"] != ours.name.as_str() {
            found.push(format!("call {call}"));
        }
    }
    let told = usage(sdk, &theirs["usage"]);
    if told != reply.usage {
        found.push(format!("usage {told:?}"));
    }
    found.join(", ")
}

fn check_seeds(sdk: Sdk) {
    let streams: Vec<WireStream> = (0..SEEDS).map(|seed| WireStream::generated(sdk, seed)).collect();
    let mut dice = Dice(SEEDS);
    let ours: Vec<_> = streams.iter().map(|stream| read_anyhow(stream, &mut dice)).collect();
    let Some(theirs) = read_by_sdk(sdk, &streams) else { return };
    let mut differing = Vec::new();
    for ((stream, ours), theirs) in streams.iter().zip(&ours).zip(&theirs) {
        let difference = difference(sdk, ours, theirs);
        if !difference.is_empty() {
            differing.push(format!("{}: the SDK has {difference}; ours {ours:?}; {}", stream.name, stream.text));
        }
    }
    assert!(differing.is_empty(), "{} of {SEEDS} differ, the first: {}", differing.len(), differing[0]);
    let whole = ours.iter().filter(|reply| reply.as_ref().is_ok_and(|reply| !reply.calls.is_empty())).count();
    assert!(whole * 5 > ours.len(), "{whole} replies have calls");
}

#[test]
fn chat_completions_are_read_as_by_the_sdk() {
    check_seeds(Sdk::OpenAi);
}

#[test]
fn responses_are_read_as_by_the_sdk() {
    check_seeds(Sdk::Responses);
}

#[test]
fn messages_of_claude_are_read_as_by_the_sdk() {
    check_seeds(Sdk::Anthropic);
}

#[test]
fn contents_of_gemini_are_read_as_by_the_sdk() {
    check_seeds(Sdk::Gemini);
}

/// Events in a stream, with their names where they have types, and `[DONE]` behind those of Chat Completions.
fn stream(sdk: Sdk, events: &[Value]) -> WireStream {
    let event = |event: &Value| match event["type"].as_str() {
        Some(kind) => format!("event: {kind}\ndata: {event}\n\n"),
        None => format!("data: {event}\n\n"),
    };
    let done = if sdk == Sdk::OpenAi { "data: [DONE]\n\n" } else { "" };
    WireStream { sdk, name: String::new(), text: events.iter().map(event).collect::<String>() + done }
}

/// Each stream with how the SDK's reading differs from ours: the beginning of its words, empty where it doesn't.
fn check_odd(sdk: Sdk, table: &[(WireStream, &str)]) {
    let streams: Vec<WireStream> = table.iter().map(|(stream, _)| stream.clone()).collect();
    let mut dice = Dice(1);
    let ours: Vec<_> = streams.iter().map(|stream| read_anyhow(stream, &mut dice)).collect();
    let Some(theirs) = read_by_sdk(sdk, &streams) else { return };
    for (((stream, expected), ours), theirs) in table.iter().zip(&ours).zip(&theirs) {
        let found = difference(sdk, ours, theirs);
        let fits = if expected.is_empty() { found.is_empty() } else { found.starts_with(expected) };
        assert!(fits, "expected `{expected}`, found `{found}`; theirs {theirs}, ours {ours:?}, {}", stream.text);
    }
}

#[test]
fn chat_completions_of_other_servers_are_read_without_loss() {
    let chunk = |choices: Value| json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices});
    let delta = |delta: Value| chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]));
    let end = |reason: &str| chunk(json!([{"index": 0, "delta": {}, "finish_reason": reason}]));
    let call = |index: Value, id: &str, arguments: Value| {
        let function = json!({"name": "read", "arguments": arguments});
        delta(json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}))
    };
    let rest = |arguments: &str| delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}));
    let of = |events: &[Value]| stream(Sdk::OpenAi, events);
    let (text, path) = (delta(json!({"content": "a"})), || json!("{\"path\":\"x\"}"));
    let (usage, beside) = (
        json!({"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}),
        json!({"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 16}),
    );
    let ended_with = |usage: Value| {
        let mut last = end("stop");
        last["usage"] = usage;
        last
    };
    let mut marked = of(&[text.clone(), end("stop")]);
    marked.text.insert(0, '\u{feff}');
    let mut cut = of(from_ref(&text));
    cut.text = cut.text.replace("data: [DONE]\n\n", "");
    let mut endless = of(&[text.clone(), end("stop")]);
    endless.text = endless.text.replace("data: [DONE]\n\n", "");
    let second = chunk(json!([{"index": 1, "delta": {"content": "no"}, "finish_reason": null}]));
    let bare = json!({"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]});
    let function = delta(json!({"function_call": {"name": "read", "arguments": path()}}));
    check_odd(
        Sdk::OpenAi,
        &[
            (endless, ""),
            (of(&[text.clone(), second, end("stop")]), ""),
            (of(&[text.clone(), ended_with(usage)]), ""),
            // Calls without an index: Gemini, older servers of Mistral.
            (of(&[call(Value::Null, "a", path()), end("tool_calls")]), "the SDK gives up: "),
            // All with index 0: Gemini, some of vLLM's parsers. The SDK glues them together.
            (of(&[call(json!(0), "a", path()), call(json!(0), "b", path()), end("tool_calls")]), "1 calls"),
            // A placeholder before the arguments: vLLM.
            (of(&[call(json!(0), "a", json!("{}")), rest("{\"path\":\"x\"}"), end("tool_calls")]), "call "),
            // Id and name in every piece: the SDK repeats them.
            (of(&[call(json!(0), "a", json!("")), call(json!(0), "a", path()), end("tool_calls")]), "call "),
            // A map: Ollama. It is the same.
            (of(&[call(json!(0), "a", json!({"path": "x"})), end("tool_calls")]), ""),
            // The form before tools, which the SDK keeps elsewhere.
            (of(&[function, end("function_call")]), "0 calls"),
            // No reason, but `[DONE]`: it is whole.
            (of(from_ref(&text)), "ended as never"),
            // A connection that broke: half an answer is none.
            (cut, "ended as never, where ours is an error: the reply ended in the middle"),
            // A byte order mark: the SDK loses the first event.
            (marked, "text "),
            // Reasoning that only the total counts: xAI. It is billed.
            (of(&[text.clone(), ended_with(beside)]), "usage "),
            // A refusal is no text; the caller is told.
            (
                of(&[delta(json!({"refusal": "no"})), end("stop")]),
                "ended as whole, where ours is an error: the provider refused",
            ),
            (of(&[text, json!({"error": {"message": "busy"}})]), "the SDK gives up: \"APIError: busy"),
            (of(&[bare]), "the SDK gives up: "),
        ],
    );
}

#[test]
fn odd_messages_of_claude_differ_from_the_sdk_for_a_reason() {
    let usage = json!({"input_tokens": 3, "output_tokens": 1});
    let start = json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant",
        "model": "c", "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage}});
    let block = |begin: Value, deltas: &[Value]| {
        let mut events = vec![json!({"type": "content_block_start", "index": 0, "content_block": begin})];
        events.extend(deltas.iter().map(|delta| json!({"type": "content_block_delta", "index": 0, "delta": delta})));
        events.push(json!({"type": "content_block_stop", "index": 0}));
        events
    };
    let ended = |reason: &str, usage: Value| {
        let delta = json!({"stop_reason": reason, "stop_sequence": null});
        vec![json!({"type": "message_delta", "delta": delta, "usage": usage}), json!({"type": "message_stop"})]
    };
    let claude = |middle: Vec<Value>, reason: &str| {
        let events = [vec![start.clone()], middle, ended(reason, json!({"output_tokens": 2}))];
        stream(Sdk::Anthropic, &events.concat())
    };
    let text = || block(json!({"type": "text", "text": "be"}), &[json!({"type": "text_delta", "text": "gun"})]);
    let whole_input = json!({"type": "tool_use", "id": "1", "name": "read", "input": {"path": "a"}});
    let searching = json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}});
    let query = json!({"type": "input_json_delta", "partial_json": "{\"query\":\"x\"}"});
    let later = json!({"input_tokens": 7, "cache_read_input_tokens": 4, "output_tokens": 2});
    let later = [vec![start.clone()], text(), ended("end_turn", later)].concat();
    check_odd(
        Sdk::Anthropic,
        &[
            (claude(text(), "end_turn"), ""),
            (claude(block(whole_input, &[]), "tool_use"), ""),
            (claude(block(searching, &[query]), "end_turn"), ""),
            (stream(Sdk::Anthropic, &later), ""),
            // What is refused or not finished is no answer.
            (claude(text(), "refusal"), "ended as refusal, where ours is an error: the provider refused"),
            (
                claude(text(), "pause_turn"),
                "ended as pause_turn, where ours is an error: the reply ended with `pause_turn`",
            ),
            (stream(Sdk::Anthropic, &[vec![start.clone()], text()].concat()), "ended as never, where ours is an error"),
        ],
    );
}

#[test]
fn odd_contents_of_gemini_differ_from_the_sdk_for_a_reason() {
    let chunk = |parts: Value, reason: Value| json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": reason}]});
    let gemini = |events: &[Value]| stream(Sdk::Gemini, events);
    let parts = json!([{"text": "a"}]);
    let mut two = chunk(parts.clone(), json!("STOP"));
    two["candidates"].as_array_mut().unwrap().push(json!({"index": 1, "content": {"role": "model", "parts": parts}}));
    check_odd(
        Sdk::Gemini,
        &[
            (gemini(&[chunk(parts.clone(), Value::Null), chunk(json!([]), json!("STOP"))]), ""),
            (gemini(&[chunk(parts.clone(), Value::Null)]), "ended as never, where ours is an error"),
            (
                gemini(&[chunk(parts, json!("MALFORMED_FUNCTION_CALL"))]),
                "ended as MALFORMED_FUNCTION_CALL, where ours is an error: the reply ended with",
            ),
            (gemini(&[json!({"promptFeedback": {"blockReason": "SAFETY"}})]), "ended as never, where ours is an error"),
            // One candidate was asked for; the judge joins all.
            (gemini(&[two]), "text "),
        ],
    );
}

#[test]
fn odd_responses_differ_from_the_sdk_for_a_reason() {
    let message = json!({"type": "message", "id": "m1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "hi", "annotations": []}]});
    let response = |status: &str, output: Value, error: Value| {
        json!({"id": "r", "object": "response", "created_at": 1, "status": status, "error": error, "model": "m",
            "output": output, "parallel_tool_calls": true, "tool_choice": "auto", "tools": []})
    };
    let event = |kind: &str, at: u64, response: Value| json!({"type": format!("response.{kind}"), "sequence_number": at, "response": response});
    let created = event("created", 0, response("in_progress", json!([]), Value::Null));
    let completed = event("completed", 1, response("completed", json!([message]), Value::Null));
    let failed = event("failed", 1, response("failed", json!([]), json!({"code": "server_error", "message": "busy"})));
    check_odd(
        Sdk::Responses,
        &[
            (stream(Sdk::Responses, &[created.clone(), completed.clone()]), ""),
            // The last event tells everything.
            (stream(Sdk::Responses, &[completed]), "the SDK gives up: "),
            (stream(Sdk::Responses, &[created, failed]), "the SDK gives up: "),
        ],
    );
}
