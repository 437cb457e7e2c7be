//! A real model: its own words, real counts of tokens, and a schema that its server enforces. Few and short calls.

use crate::support::model_calls::{call, plain_request, user};
use crate::support::model_server::ModelServer;
use crate::support::real_model;
use serde_json::{Value, json};
use trellis::domain::chat::ChatMessage;

const REPLY_TOKENS: u32 = 16;

/// A short call: a text that was streamed as it came, and counts that can be true.
async fn check_short_call(provider: &str, messages: Vec<ChatMessage>) {
    let Some(server) = real_model::judged() else { return };
    let mut request = plain_request(provider, messages);
    request.model.max_tokens = Some(REPLY_TOKENS);
    request.model.temperature = Some(0.0);
    let (outcome, streamed) = call(&server.url(""), &request).await;
    let reply = outcome.unwrap();
    assert!(reply.text.starts_with(&streamed) && !streamed.trim().is_empty(), "{reply:?} of {streamed:?}");
    assert!(reply.calls.is_empty(), "{reply:?}");
    let usage = reply.usage;
    assert!((1..=200).contains(&usage.input), "{usage:?}");
    assert!((1..=u64::from(REPLY_TOKENS)).contains(&usage.output), "{usage:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn chat_completions_stream_text_and_usage() {
    check_short_call("openai", vec![user("Say hello to Ann.")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_stream_text_and_usage() {
    check_short_call("anthropic", vec![user("Say hello to Ann.")]).await;
}

/// Asks the server itself; the path and the body are the provider's.
async fn post(server: &ModelServer, path: &str, body: &Value) -> Value {
    let reply = reqwest::Client::new().post(server.url(path)).json(body).send().await.unwrap();
    assert_eq!(reply.status(), 200, "{path}");
    reply.json().await.unwrap()
}

fn invoice_schema() -> Value {
    json!({
        "type": "object",
        "properties": {"vendor": {"type": "string"}, "amount": {"type": "integer"}},
        "required": ["vendor", "amount"],
        "additionalProperties": false,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_enforces_a_schema() {
    let Some(server) = real_model::judged() else { return };
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "invoice", "strict": true, "schema": invoice_schema()}});
    let body = json!({
        "model": "smol", "temperature": 0, "max_tokens": 60, "response_format": format,
        "messages": [{"role": "user", "content": "The invoice is for 137 EUR from Globex."}],
    });
    let reply = post(&server, "/v1/chat/completions", &body).await;
    let text = reply.pointer("/choices/0/message/content").and_then(Value::as_str).unwrap();
    let invoice: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(invoice["vendor"].is_string() && invoice["amount"].is_i64(), "{invoice}");
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_count_tokens() {
    let Some(server) = real_model::judged() else { return };
    let body = json!({"model": "smol", "input": "Say hello to Ann.", "max_output_tokens": REPLY_TOKENS});
    let reply = post(&server, "/v1/responses", &body).await;
    assert_eq!(reply["output"][0]["content"][0]["type"], "output_text", "{reply}");
    let usage = &reply["usage"];
    assert!(usage["input_tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{reply}");
    assert!(usage["output_tokens"].as_u64().is_some_and(|tokens| tokens <= u64::from(REPLY_TOKENS)), "{reply}");
}
