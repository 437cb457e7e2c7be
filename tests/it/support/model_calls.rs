//! Calls of models through the real provider code.

use std::collections::BTreeMap;
use std::time::Duration;
use trellis::domain::chat::{ChatMessage, ModelRequest, ModelSettings, Reply, ToolSpec};
use trellis::model::endpoint::{Keys, ModelEndpoint, ProviderOptions};
use trellis::model::models::{ModelOptions, Models};
use trellis::model::{LiveText, Model, ModelError};

/// Every provider at `url`; `openai` with a key.
pub async fn models_at(url: &str, timeout: Duration) -> Models {
    let endpoint = |path: &str, key: Option<&str>| ModelEndpoint {
        base_url: format!("{url}{path}"),
        api_key_env: key.map(Into::into),
    };
    let endpoints = BTreeMap::from([
        ("openai".to_owned(), endpoint("/v1", Some("TEST_KEY"))),
        ("anthropic".to_owned(), endpoint("/v1", None)),
        ("gemini".to_owned(), endpoint("/v1beta", None)),
        ("ollama".to_owned(), endpoint("/v1", None)),
        ("openai_resp".to_owned(), endpoint("/v1", None)),
        ("llamacpp".to_owned(), endpoint("/v1", None)),
    ]);
    let keys = Keys::new([("TEST_KEY".to_owned(), "sk-test-key".to_owned())]);
    let providers = ProviderOptions { endpoints, keys, ..ProviderOptions::default() };
    Models::new(ModelOptions { providers, timeout, ..ModelOptions::default() }).unwrap()
}

/// A request without tools.
pub fn plain_request(provider: &str, messages: Vec<ChatMessage>) -> ModelRequest {
    ModelRequest {
        model: ModelSettings { max_tokens: Some(100), ..ModelSettings::new(provider, "small") },
        system: "You are a clerk.".into(),
        messages,
        tools: Vec::<ToolSpec>::new().into(),
        turn: "acme/ann/clerk/default/1".into(),
        stable: 0,
        output: None,
    }
}

pub fn user(text: &str) -> ChatMessage {
    ChatMessage::user(text)
}

/// One call: its outcome, and what was streamed.
pub async fn call(url: &str, request: &ModelRequest) -> (Result<Reply, ModelError>, String) {
    let models = models_at(url, Duration::from_mins(1)).await;
    let (live, mut pieces) = LiveText::channel();
    let outcome = models.complete(request, &[], &live).await;
    drop(live);
    let mut streamed = String::new();
    while let Some(piece) = pieces.recv().await {
        streamed.push_str(&piece);
    }
    (outcome, streamed)
}
