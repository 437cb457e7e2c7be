//! The provider code against a mock of providers that was not written here: replies, calls, and faults.

use crate::support::aimock;
use crate::support::model_calls::{call, plain_request, user};
use serde_json::json;
use std::time::Duration;
use trellis::domain::chat::{Arguments, ChatMessage, ModelRequest, Reply, TokenUsage, ToolSpec};
use trellis::model::ModelError;

const PROVIDERS: [&str; 5] = ["openai", "openai_resp", "anthropic", "gemini", "ollama"];

/// The outcome of a request at every provider, and what was streamed.
async fn check(request: impl Fn(&str) -> ModelRequest, expected: impl Fn(&str, Result<Reply, ModelError>, String)) {
    let Some(server) = aimock::judged() else { return };
    for provider in PROVIDERS {
        let (outcome, streamed) = call(&server.url(""), &request(provider)).await;
        expected(provider, outcome, streamed);
    }
}

fn says(text: &'static str) -> impl Fn(&str) -> ModelRequest {
    move |provider| plain_request(provider, vec![user(text)])
}

#[tokio::test(flavor = "multi_thread")]
async fn text_and_usage_arrive() {
    let text = "Grüße, Ann: 🌱 one two three four five six seven";
    check(says("greet"), |provider, outcome, streamed| {
        let reply = outcome.unwrap();
        assert_eq!((reply.text.as_str(), streamed.as_str()), (text, text), "{provider}");
        assert_eq!(reply.usage, TokenUsage::new(11, 7), "{provider}");
    })
    .await;
}

fn with_tools(provider: &str, messages: Vec<ChatMessage>) -> ModelRequest {
    let tool = |name: &str| ToolSpec {
        name: name.into(),
        description: "Looks it up.".into(),
        schema: json!({"type": "object", "properties": {"id": {"type": "integer"}}}),
    };
    let mut request = plain_request(provider, messages);
    request.tools = vec![tool("get_invoice"), tool("now")].into();
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_and_results_go_round() {
    let Some(server) = aimock::judged() else { return };
    for provider in PROVIDERS {
        let asked = user("invoice 7");
        let (outcome, _) = call(&server.url(""), &with_tools(provider, vec![asked.clone()])).await;
        let reply = outcome.unwrap();
        let called: Vec<(&str, &Arguments)> =
            reply.calls.iter().map(|call| (call.name.as_str(), &call.arguments)).collect();
        let (id, none) = (Arguments::Json(json!({"id": 7})), Arguments::Json(json!({})));
        assert_eq!(called, [("get_invoice", &id), ("now", &none)], "{provider}");
        let results = reply.calls.iter().map(|call| ChatMessage::Tool {
            call: call.id.clone(),
            name: call.name.clone(),
            text: "5".into(),
        });
        let said = ChatMessage::assistant(reply.text.clone(), reply.calls.clone());
        let messages = [asked, said].into_iter().chain(results).collect();
        let (outcome, _) = call(&server.url(""), &with_tools(provider, messages)).await;
        assert_eq!(outcome.unwrap().text, "It is five.", "{provider}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_says_when_to_ask_again() {
    check(says("limited"), |provider, outcome, _| match outcome {
        Err(ModelError::Transient { reason, retry_after, .. }) => {
            assert_eq!(retry_after, Some(Duration::from_secs(7)), "{provider}: {reason}");
            assert!(reason.contains("429") && reason.contains("slow down"), "{provider}: {reason}");
        }
        other => panic!("{provider}: {other:?}"),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_are_transient() {
    for fault in ["broken", "gone", "down", "cut"] {
        check(says(fault), |provider, outcome, streamed| {
            assert!(matches!(outcome, Err(ModelError::Transient { .. })), "{provider} {fault}: {outcome:?}");
            assert_eq!(fault == "cut", !streamed.is_empty(), "{provider} {fault}: {streamed}");
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_at_its_limit_says_so() {
    check(says("too long"), |provider, outcome, _| {
        // It ends a response as `incomplete` without the details that OpenAI gives: no whole answer, and no limit.
        if provider == "openai_resp" {
            assert!(matches!(outcome, Err(ModelError::Transient { .. })), "{outcome:?}");
            return;
        }
        let reply = outcome.unwrap();
        assert_eq!((reply.text.as_str(), reply.truncated), ("half", true), "{provider}");
    })
    .await;
}
