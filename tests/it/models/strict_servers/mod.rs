//! The strict checks themselves: what each accepts and refuses, and that the server in front of tests uses them.

#![expect(clippy::needless_pass_by_value, reason = "tables hold bodies that are written in place")]

mod anthropic;
mod encoded_requests;
mod gemini;
mod media;
mod openai;
mod recorded_streams;
mod responses;
mod sdk;
mod server;
mod session;
mod streams;

use crate::support::strict::{Judge, refusal};
use serde_json::{Value, json};

/// The refusal of a body begins with the text or has it inside; an empty text is acceptance.
fn check(judge: Judge, body: &Value, expected: &str) {
    match refusal(judge, body) {
        None => assert!(expected.is_empty(), "{judge:?} accepts {body}, expected `{expected}`"),
        Some(text) => assert!(!expected.is_empty() && text.contains(expected), "{judge:?} refuses {body}: {text}"),
    }
}

/// A body with other values at the top.
fn with(body: &Value, changes: Value) -> Value {
    let mut body = body.clone();
    for (key, value) in changes.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// Every judge says something of a body that is none, and none panics.
#[test]
fn bodies_of_any_shape_are_judged() {
    let shapes = [
        json!(null),
        json!(7),
        json!("x"),
        json!([]),
        json!({}),
        json!({"messages": 7, "contents": [7], "input": [[]]}),
    ];
    for judge in Judge::ALL {
        for shape in &shapes {
            let text = refusal(judge, shape);
            assert!(text.is_some() || judge == Judge::Ollama, "{judge:?} accepts {shape}");
        }
    }
}

#[test]
fn a_provider_and_a_model_name_their_judge() {
    for (provider, path, judge) in [
        ("gemini", "models/gemini-2.5-pro:streamGenerateContent?alt=sse", Judge::Gemini),
        ("vertex", "models/gemini-3-pro:streamGenerateContent?alt=sse", Judge::Gemini3),
        ("kimi", "chat/completions", Judge::Kimi),
        ("no-such", "chat/completions", Judge::OpenAi),
    ] {
        assert_eq!(Judge::for_request(provider, path), judge, "{provider} {path}");
    }
}

#[test]
fn a_path_names_its_judge() {
    for (path, judge) in [
        ("/v1/chat/completions", Some(Judge::OpenAi)),
        ("/openai/deployments/x/chat/completions?api-version=1", Some(Judge::OpenAi)),
        ("/v1/responses", Some(Judge::Responses)),
        ("/v1/messages", Some(Judge::Anthropic)),
        ("/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", Some(Judge::Gemini)),
        ("/v1beta/models/gemini-3-pro-preview:generateContent", Some(Judge::Gemini3)),
        ("/api/chat", Some(Judge::Ollama)),
        ("/v1/models", None),
        ("/chat", None),
    ] {
        assert_eq!(Judge::for_path(path), judge, "{path}");
    }
}
