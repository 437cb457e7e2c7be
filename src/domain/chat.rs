//! What goes to a model and what comes back, independent of any provider.

use crate::ids::secret::SecretName;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// Which model, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelSettings {
    /// `scripted`, `openai`, `anthropic`, `ollama`, `gemini`, …
    pub provider: String,
    /// The provider's name of the model.
    pub name: String,
    /// Another endpoint of the same protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// 0–2; the provider's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Longest reply in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Tokens that it takes, prompt and reply together: an upper bound of the context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u32>,
    /// What it costs: needed where cost is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// The owner's secret that is sent as the API key, `s/NAME`; without it the venue's own.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "key")]
    pub key: Option<SecretName>,
}

/// A secret's name as its path. A key in its stead is refused and never repeated.
mod key {
    use super::SecretName;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    // The signature is serde's.
    #[allow(clippy::ref_option)]
    pub(super) fn serialize<S: Serializer>(name: &Option<SecretName>, to: S) -> Result<S::Ok, S::Error> {
        name.as_ref().map(SecretName::path).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SecretName>, D::Error> {
        let wrong = || {
            serde::de::Error::custom(
                "`key` expected the name of a secret, as `s/NAME`; a key itself stands in no configuration: store it \
                 with `trellis secret set`",
            )
        };
        let Some(value) = Option::<serde_json::Value>::deserialize(from)? else { return Ok(None) };
        value.as_str().and_then(|path| SecretName::of_path(path).ok()).map(Some).ok_or_else(wrong)
    }
}

impl ModelSettings {
    /// A model with its provider's defaults.
    pub fn new(provider: &str, name: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            name: name.to_owned(),
            base_url: None,
            temperature: None,
            max_tokens: None,
            context_window: None,
            price: None,
            key: None,
        }
    }

    /// `provider/name`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.provider, self.name)
    }
}

/// One model call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelRequest {
    /// Which model.
    pub model: ModelSettings,
    /// The system prompt.
    pub system: String,
    /// The rest of the prompt, oldest first.
    pub messages: Vec<ChatMessage>,
    /// What it may call; shared by all turns with the same tools.
    #[serde(with = "shared")]
    pub tools: Arc<[ToolSpec]>,
    /// Which turn asks, `owner/agent/session/turn`: for logs and for the scripted model.
    pub turn: String,
}

/// A shared list as a plain one.
mod shared {
    use super::ToolSpec;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::sync::Arc;

    pub(super) fn serialize<S: Serializer>(tools: &Arc<[ToolSpec]>, to: S) -> Result<S::Ok, S::Error> {
        tools.as_ref().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<[ToolSpec]>, D::Error> {
        Vec::<ToolSpec>::deserialize(from).map(Into::into)
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum ChatMessage {
    /// From the caller, or context.
    User {
        /// Its text.
        text: String,
    },
    /// From the model.
    Assistant {
        /// Its text; may be empty when it only calls tools.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
        /// The calls it asked for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
    },
    /// The result of one call.
    Tool {
        /// [`ToolCall::id`] of the call.
        call: String,
        /// Name of the tool.
        name: String,
        /// What the model sees of it.
        text: String,
    },
}

/// A tool as a model sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// `[A-Za-z0-9_-]{1,64}`.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments.
    pub schema: Value,
}

/// A call that a model asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id of the call, or one made from its place.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Its arguments; text when the model wrote malformed JSON.
    pub arguments: Arguments,
}

/// Arguments of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arguments {
    /// As JSON.
    Json(Value),
    /// Not JSON: the text as it came.
    Malformed(String),
}

impl Arguments {
    /// As they were meant: JSON, or the text that is none.
    pub fn shown(&self) -> Value {
        match self {
            Self::Json(value) => value.clone(),
            Self::Malformed(text) => text.clone().into(),
        }
    }
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Reply {
    /// Its text.
    pub text: String,
    /// The calls it asks for, in order.
    pub calls: Vec<ToolCall>,
    /// What it cost.
    pub usage: Usage,
}

/// Tokens of one call; absent numbers are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Prompt tokens.
    pub input: u64,
    /// Reply tokens.
    pub output: u64,
}

/// US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Of a prompt.
    pub input: f64,
    /// Of a reply.
    pub output: f64,
}

impl Price {
    /// Prices that can't be meant.
    pub fn check(&self) -> Result<(), String> {
        for (key, price) in [("input", self.input), ("output", self.output)] {
            if !price.is_finite() || !(0.0..=1e6).contains(&price) {
                return Err(format!("`{key}`: expected dollars per million tokens, got {price}"));
            }
        }
        Ok(())
    }

    /// What so many tokens cost, in billionths of a dollar, rounded up.
    pub fn of(self, input: u64, output: u64) -> u64 {
        let part = |price: f64, tokens: u64| (per_token(price) * u128::from(tokens)).div_ceil(1_000);
        u64::try_from(part(self.input, input) + part(self.output, output)).unwrap_or(u64::MAX)
    }
}

/// Thousandths of billionths of a dollar per token, so that the smallest prices are whole.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: 0 to a million")]
pub(crate) fn per_token(price: f64) -> u128 {
    (price * 1e6).round() as u128
}
