//! Replies of Gemini as its API streams them.

use super::super::super::names::ToolNames;
use super::super::super::{DecodeError, Decoder, EncodedRequest, HttpRequest, dialect};
use crate::chat::{Arguments, Reply, TokenUsage, ToolCall};
use serde_json::{Value, json};

/// The reply in these pieces, and the text that was watched.
fn read(pieces: &[&[u8]]) -> Result<(String, Reply), DecodeError> {
    let request = HttpRequest { path: String::new(), headers: Vec::new(), body: Value::Null };
    let encoded = EncodedRequest { request, names: ToolNames::default().into() };
    let mut decoder = Decoder::new(&dialect::find_dialect("gemini").unwrap(), &encoded, "gemini/m", None);
    let mut live = String::new();
    for piece in pieces {
        live += &decoder.feed(piece)?;
    }
    let (rest, reply) = decoder.end()?;
    Ok((live + &rest, reply))
}

/// Chunks as the API writes them.
fn stream(chunks: &[Value]) -> String {
    let event = |chunk: &Value| format!("data: {chunk}\r\n\r\n");
    chunks.iter().map(event).collect()
}

fn chunk(parts: &Value, reason: Option<&str>) -> Value {
    let mut candidate = json!({"content": {"parts": parts, "role": "model"}, "index": 0});
    if let Some(reason) = reason {
        candidate["finishReason"] = reason.into();
    }
    json!({"candidates": [candidate], "modelVersion": "gemini", "responseId": "r"})
}

fn shown(reply: &Reply) -> Value {
    let call = |call: &ToolCall| match &call.arguments {
        Arguments::Json(value) => json!([call.id, call.name, value]),
        Arguments::Malformed(text) => json!([call.id, call.name, format!("malformed {text}")]),
    };
    let mut found = json!({"text": reply.text, "calls": reply.calls.iter().map(call).collect::<Vec<_>>()});
    if let Some(reasoning) = &reply.reasoning {
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

#[test]
fn texts_thoughts_and_calls_are_read_however_they_are_cut() {
    let call = |name: &str, args: Value| json!({"functionCall": {"name": name, "args": args}});
    let signed = |mut part: Value, signature: &str| {
        part["thoughtSignature"] = signature.into();
        part
    };
    let named = json!({"functionCall": {"id": "fc_1", "name": "read"}});
    let chunks = [
        chunk(&json!([{"text": "I should ", "thought": true}]), None),
        chunk(&json!([{"text": "look", "thought": true}, {"text": "Grüß "}]), None),
        chunk(&json!([{"text": "dich 🦀"}, {"inlineData": {"data": "eA=="}}, {"executableCode": {}}]), None),
        chunk(&json!([signed(call("now", json!({})), "czE="), call("now", json!({})), named]), None),
        chunk(&json!([{"text": "", "thoughtSignature": "czI="}]), Some("STOP")),
    ];
    let expected = json!({
        "text": "Grüß dich 🦀",
        "calls": [["call_0", "now", {}], ["call_1", "now", {}], ["fc_1", "read", {}]],
        "reasoning": [
            {"call": 0, "thoughtSignature": "czE="},
            {"part": "text", "thoughtSignature": "czI="}
        ]
    });
    check(&stream(&chunks), &Ok(expected.clone()));
    // The same without `alt=sse`: a list.
    check(&json!(chunks).to_string(), &Ok(expected));
}

#[test]
fn parts_after_the_finish_reason_count() {
    let chunks = [
        chunk(&json!([{"text": "a"}]), Some("STOP")),
        chunk(&json!([{"functionCall": {"name": "read", "args": {"path": "a"}}}]), None),
        json!({"usageMetadata": {"promptTokenCount": 3}}),
    ];
    check(&stream(&chunks), &Ok(json!({"text": "a", "calls": [["call_0", "read", {"path": "a"}]]})));
    check(&stream(&chunks[1..]), &Err(DecodeError::Incomplete));
    let whole = chunk(&json!([{"text": "a"}]), Some("STOP"));
    check(&whole.to_string(), &Ok(json!({"text": "a", "calls": []})));
    let odd = [
        json!(7),
        json!({"candidates": {}}),
        json!({"candidates": [{"content": []}]}),
        chunk(&json!("x"), Some("STOP")),
    ];
    check(&stream(&odd), &Ok(json!({"text": "", "calls": []})));
}

#[test]
fn a_reply_ends_as_its_provider_says() {
    let unfinished = |reason: &str| Err(DecodeError::Unfinished(reason.into()));
    let filtered = |reason: &str| Err(DecodeError::Filtered { reason: reason.into(), chars: 1 });
    for (reason, expected) in [
        ("STOP", Ok(json!({"text": "x", "calls": []}))),
        ("MAX_TOKENS", Ok(json!({"text": "x", "calls": [], "truncated": true}))),
        ("SAFETY", filtered("SAFETY")),
        ("RECITATION", filtered("RECITATION")),
        ("BLOCKLIST", filtered("BLOCKLIST")),
        ("PROHIBITED_CONTENT", filtered("PROHIBITED_CONTENT")),
        ("SPII", filtered("SPII")),
        ("IMAGE_SAFETY", filtered("IMAGE_SAFETY")),
        ("MODEL_ARMOR", filtered("MODEL_ARMOR")),
        ("MALFORMED_FUNCTION_CALL", unfinished("MALFORMED_FUNCTION_CALL")),
        ("UNEXPECTED_TOOL_CALL", unfinished("UNEXPECTED_TOOL_CALL")),
        ("OTHER", unfinished("OTHER")),
        ("LANGUAGE", unfinished("LANGUAGE")),
        ("FINISH_REASON_UNSPECIFIED", unfinished("FINISH_REASON_UNSPECIFIED")),
        ("BRAND_NEW", unfinished("BRAND_NEW")),
    ] {
        check(&stream(&[chunk(&json!([{"text": "x"}]), Some(reason))]), &expected);
    }
    let silent = json!({"candidates": [{"finishReason": "SAFETY"}]});
    check(&stream(&[silent]), &Err(DecodeError::Refused("its content filter (`SAFETY`)".into())));
    let cut = chunk(&json!([{"functionCall": {"name": "read", "args": {}}}]), Some("MAX_TOKENS"));
    check(&stream(&[cut]), &Ok(json!({"text": "", "calls": [["call_0", "read", "malformed {}"]], "truncated": true})));
}

#[test]
fn blocked_prompts_and_errors_are_told() {
    let blocked =
        |feedback: Value| stream(&[json!({"promptFeedback": feedback, "usageMetadata": {"promptTokenCount": 9}})]);
    for (feedback, expected) in [
        (json!({"blockReason": "SAFETY"}), "its filter blocked the prompt (`SAFETY`)"),
        (json!({"blockReason": "OTHER", "blockReasonMessage": "no"}), "its filter blocked the prompt (`OTHER`): no"),
    ] {
        check(&blocked(feedback), &Err(DecodeError::Refused(expected.into())));
    }
    check(&blocked(json!({"safetyRatings": []})), &Err(DecodeError::Incomplete));
    let error = json!({"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}});
    for given in [error.to_string(), json!([error]).to_string(), stream(&[chunk(&json!([{"text": "x"}]), None), error])]
    {
        match read(&[given.as_bytes()]) {
            Err(DecodeError::Reported(report)) => {
                assert_eq!(report.message, "The model is overloaded.");
                assert_eq!((report.kinds, report.status), (vec!["UNAVAILABLE".to_owned()], Some(503)));
            }
            other => panic!("{given}: {other:?}"),
        }
    }
}

#[test]
fn tokens_have_their_classes() {
    let usage = |metadata: &[Value]| {
        let chunks = metadata.iter().map(|usage| {
            let mut chunk = chunk(&json!([{"text": "x"}]), Some("STOP"));
            chunk["usageMetadata"] = usage.clone();
            chunk
        });
        read(&[stream(&chunks.collect::<Vec<_>>()).as_bytes()]).unwrap().1.usage
    };
    let first = json!({"promptTokenCount": 1_000, "cachedContentTokenCount": 900, "thoughtsTokenCount": 40});
    let last = json!({
        "promptTokenCount": 1_000, "cachedContentTokenCount": 900, "thoughtsTokenCount": 50,
        "candidatesTokenCount": 7, "toolUsePromptTokenCount": 20, "totalTokenCount": 1_077
    });
    let expected = TokenUsage { input: 1_020, output: 57, cache_read: 900, cache_write: 0, reasoning: 50 };
    assert_eq!(usage(&[first.clone(), last]), expected);
    assert_eq!(usage(&[first, json!({})]), TokenUsage { input: 1_000, output: 40, reasoning: 40, ..expected });
    assert_eq!(usage(&[json!({"promptTokenCount": "odd", "candidatesTokenCount": -3})]), TokenUsage::default());
}
