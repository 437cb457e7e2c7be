//! A real model: its own words, real counts of tokens, and a schema that its server enforces. Few and short calls.

mod agent;

use crate::support::model_calls::{call, plain_request, user};
use crate::support::real_model::JudgedModel;
use serde_json::{Value, json};
use trellis::domain::chat::{ChatMessage, OutputFormat};

const REPLY_TOKENS: u32 = 16;

/// A short call: a text that was streamed as it came, and counts that can be true.
async fn check_short_call(provider: &str, messages: Vec<ChatMessage>) {
    let Some(model) = JudgedModel::get().await else { return };
    let mut request = plain_request(provider, messages);
    request.model.max_tokens = Some(REPLY_TOKENS);
    request.model.temperature = Some(0.0);
    let (outcome, streamed) = call(&model.url(""), &request).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn responses_stream_text_and_usage() {
    check_short_call("openai_resp", vec![user("Say hello to Ann.")]).await;
}

/// The server holds the model to the schema of a typed text.
#[tokio::test(flavor = "multi_thread")]
async fn a_typed_text_is_json_of_its_type() {
    let Some(model) = JudgedModel::get().await else { return };
    let schema = json!({
        "type": "object",
        "properties": {"vendor": {"type": "string"}, "amount": {"type": "integer"}},
        "required": ["vendor", "amount"],
        "additionalProperties": false,
    });
    let mut request = plain_request("llamacpp", vec![user("The invoice is for 137 EUR from Globex.")]);
    request.system = "Extract the vendor and the amount of the invoice.".into();
    request.model.temperature = Some(0.0);
    request.output = Some(OutputFormat { schema, tools_optional: true });
    let (outcome, _) = call(&model.url(""), &request).await;
    let text = outcome.unwrap().text;
    let invoice: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(invoice["vendor"].is_string() && invoice["amount"].is_i64(), "{invoice}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_comes_again_is_read_from_the_cache() {
    let Some(model) = JudgedModel::get().await else { return };
    let story = "Ann counts the boats in the harbour. ".repeat(30);
    let mut request = plain_request("openai", vec![user(&story)]);
    request.model.max_tokens = Some(4);
    let mut read = Vec::new();
    for _ in 0..2 {
        let usage = call(&model.url(""), &request).await.0.unwrap().usage;
        assert!(usage.input > 200 && usage.cache_read < usage.input, "{usage:?}");
        read.push(usage.cache_read * 10 >= usage.input * 9);
    }
    assert_eq!(read, [false, true], "what it read of its cache");
}
