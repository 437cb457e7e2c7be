//! What servers that nobody here wrote stream is read as the official SDK reads it.

use super::streams::{difference, provider, read_anyhow, read_by_sdk};
use crate::support::aimock;
use crate::support::dice::Dice;
use crate::support::model_calls::{plain_request, user};
use crate::support::real_model::JudgedModel;
use crate::support::sdk_judge::Sdk;
use crate::support::streams::WireStream;
use serde_json::json;
use trellis::domain::chat::{ModelRequest, ToolSpec};
use trellis::domain::wire::dialect::find_dialect;
use trellis::domain::wire::encode;

/// The fewest that OpenAI takes.
const REPLY_TOKENS: u32 = 16;

/// The stream with which a server answers a request.
async fn record(sdk: Sdk, url: &str, request: &ModelRequest) -> WireStream {
    let encoded = encode(request, &find_dialect(provider(sdk)).unwrap(), "k").unwrap();
    let version = if sdk == Sdk::Gemini { "v1beta" } else { "v1" };
    let url = format!("{url}/{version}/{}", encoded.request.path);
    let mut post = reqwest::Client::new().post(url).bearer_auth("k").json(&encoded.request.body);
    for (name, value) in &encoded.request.headers {
        post = post.header(*name, value);
    }
    let answer = post.send().await.unwrap();
    assert!(answer.status().is_success(), "{sdk:?}: {}", answer.status());
    WireStream { sdk, name: request.turn.clone(), text: answer.text().await.unwrap() }
}

/// How our reading of these streams differs from the SDK's; `None` without the SDKs.
async fn differences(sdk: Sdk, streams: Vec<WireStream>) -> Option<Vec<String>> {
    // The clients wait for their server, which runs beside.
    let judged = tokio::task::spawn_blocking(move || {
        let mut dice = Dice(1);
        let ours: Vec<_> = streams.iter().map(|stream| read_anyhow(stream, &mut dice)).collect();
        let theirs = read_by_sdk(sdk, &streams)?;
        Some(ours.iter().zip(&theirs).map(|(ours, theirs)| difference(sdk, ours, theirs)).collect())
    });
    judged.await.unwrap()
}

fn request(sdk: Sdk, text: &str) -> ModelRequest {
    let tool = |name: &str| ToolSpec {
        name: name.into(),
        description: "Looks it up.".into(),
        schema: json!({"type": "object", "properties": {"id": {"type": "integer"}}}),
    };
    let tools = vec![tool("get_invoice"), tool("now")].into();
    ModelRequest { tools, ..plain_request(provider(sdk), vec![user(text)]) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mock_of_all_providers_is_read_as_by_their_sdks() {
    let Some(server) = aimock::judged() else { return };
    for sdk in [Sdk::OpenAi, Sdk::Responses, Sdk::Anthropic, Sdk::Gemini] {
        let mut streams = Vec::new();
        for text in ["greet", "invoice 7", "too long"] {
            streams.push(record(sdk, &server.url(""), &request(sdk, text)).await);
        }
        let Some(found) = differences(sdk, streams).await else { return };
        // It tells no details of why a response is incomplete: that may be anything.
        let limited = if sdk == Sdk::Responses { "ended as incomplete, where ours is an error" } else { "" };
        assert!(found[..2] == ["", ""] && found[2].starts_with(limited), "{sdk:?}: {found:?}");
        assert_eq!(found[2].is_empty(), limited.is_empty(), "{sdk:?}: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_model_is_read_as_by_the_sdks() {
    let Some(model) = JudgedModel::get().await else { return };
    for sdk in [Sdk::OpenAi, Sdk::Responses, Sdk::Anthropic] {
        let mut request = plain_request(provider(sdk), vec![user("Say hello to Ann.")]);
        request.model.max_tokens = Some(REPLY_TOKENS);
        let stream = record(sdk, &model.url(""), &request).await;
        let Some(found) = differences(sdk, vec![stream]).await else { return };
        // llama.cpp tells no `output_index` of its items, without which the SDK can't go on.
        let expected = if sdk == Sdk::Responses { "the SDK gives up: " } else { "" };
        assert!(found[0].starts_with(expected) && found[0].is_empty() == expected.is_empty(), "{sdk:?}: {found:?}");
    }
}
