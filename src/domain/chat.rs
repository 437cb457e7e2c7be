//! What goes to a model and what comes back, independent of any provider.

use crate::ids::secret::SecretName;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
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
    /// Share of the likeliest tokens that are sampled from, 0–1; the provider's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Texts at which the reply ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Seed of the sampling, where the provider takes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// How much the model reasons before it answers; the provider's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Effort>,
    /// Whether the model must call a tool; the provider's default (`auto`) when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// Whether one reply may call several tools; the provider's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// Keys that are merged into the body of every request, as the provider names them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
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

/// How much a model reasons before it answers: `none`, `low`, `medium`, `high`, or a number of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// No reasoning, as far as the model can go without.
    None,
    /// Little.
    Low,
    /// The provider's middle.
    Medium,
    /// Much.
    High,
    /// At most so many tokens, where the provider takes a number; else the nearest word.
    Tokens(u32),
}

impl Effort {
    /// The word that most providers take.
    pub const fn word(self) -> &'static str {
        match self {
            Self::None | Self::Tokens(0) => "none",
            Self::Low | Self::Tokens(1..=2_048) => "low",
            Self::Medium | Self::Tokens(2_049..=8_192) => "medium",
            Self::High | Self::Tokens(_) => "high",
        }
    }

    /// The number of tokens that providers take which want one.
    pub const fn tokens(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Low => 1_024,
            Self::Medium => 4_096,
            Self::High => 16_384,
            Self::Tokens(tokens) => tokens,
        }
    }
}

impl Serialize for Effort {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Tokens(tokens) => to.serialize_u32(*tokens),
            Self::None | Self::Low | Self::Medium | Self::High => to.serialize_str(self.word()),
        }
    }
}

impl<'de> Deserialize<'de> for Effort {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        let tokens = value.as_u64().and_then(|tokens| u32::try_from(tokens).ok());
        match (value.as_str(), tokens) {
            (Some("none"), _) => Ok(Self::None),
            (Some("low"), _) => Ok(Self::Low),
            (Some("medium"), _) => Ok(Self::Medium),
            (Some("high"), _) => Ok(Self::High),
            (_, Some(tokens)) => Ok(Self::Tokens(tokens)),
            _ => Err(serde::de::Error::custom(format!(
                "`reasoning` expected `none`, `low`, `medium`, `high` or a number of tokens, got {value}"
            ))),
        }
    }
}

/// Whether a model must call a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// It calls at least one.
    Required,
    /// It calls none.
    None,
    /// It calls the tool of this name.
    Tool(String),
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
            top_p: None,
            stop: Vec::new(),
            seed: None,
            reasoning: None,
            tool_choice: None,
            parallel_tool_calls: None,
            extra: Map::new(),
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
    /// Number of leading `messages` whose bytes stay the same in the session's next request, as far as known:
    /// providers' cache marks stand at their end.
    #[serde(skip)]
    pub stable: usize,
    /// What the text must be, where a task's output is typed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputFormat>,
}

/// The type of a text that is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutputFormat {
    /// JSON Schema of a map.
    pub schema: Value,
    /// The tools do nothing that the text can't: a provider that takes no tools beside a typed text is sent none.
    pub tools_optional: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_no_token(number: &u64) -> bool {
    *number == 0
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
        /// What it reasoned before: goes back to the model that wrote it, and to nobody else.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reasoning: Option<Reasoning>,
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

impl ChatMessage {
    /// A model's message without reasoning.
    pub const fn assistant(text: String, calls: Vec<ToolCall>) -> Self {
        Self::Assistant { text, calls, reasoning: None }
    }
}

/// What a model reasoned before its answer, in the pieces of its provider's wire format: signed or encrypted,
/// so that nothing of them is changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reasoning {
    /// The model that wrote it, `provider/name`: another one is not given it.
    pub by: String,
    /// The pieces, in order.
    pub items: Vec<Value>,
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
    /// The limit of tokens cut it off: its text is not whole, and its last call may not be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// What it reasoned before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
}

/// Tokens of one call; absent numbers are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Prompt tokens, those of the provider's cache included.
    pub input: u64,
    /// Reply tokens, those of reasoning included.
    pub output: u64,
    /// Of `input`: read from the provider's cache.
    #[serde(default, skip_serializing_if = "is_no_token")]
    pub cache_read: u64,
    /// Of `input`: written to the provider's cache.
    #[serde(default, skip_serializing_if = "is_no_token")]
    pub cache_write: u64,
    /// Of `output`: reasoning.
    #[serde(default, skip_serializing_if = "is_no_token")]
    pub reasoning: u64,
}

impl Usage {
    /// Tokens of a prompt and a reply without classes.
    pub const fn new(input: u64, output: u64) -> Self {
        Self { input, output, cache_read: 0, cache_write: 0, reasoning: 0 }
    }
}

/// US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Price {
    /// Of a prompt.
    pub input: f64,
    /// Of a reply, reasoning included.
    pub output: f64,
    /// Of what a prompt reads from the provider's cache; as `input` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<f64>,
    /// Of what a prompt writes to the provider's cache; as `input` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
}

impl Price {
    /// A price without classes of a prompt.
    pub const fn new(input: f64, output: f64) -> Self {
        Self { input, output, cache_read: None, cache_write: None }
    }

    /// Prices that can't be meant.
    pub fn check(&self) -> Result<(), String> {
        let classes = [("cacheRead", self.cache_read), ("cacheWrite", self.cache_write)];
        let classes = classes.into_iter().filter_map(|(key, price)| Some((key, price?)));
        for (key, price) in [("input", self.input), ("output", self.output)].into_iter().chain(classes) {
            if !price.is_finite() || !(0.0..=1e6).contains(&price) {
                return Err(format!("`{key}`: expected dollars per million tokens, got {price}"));
            }
        }
        Ok(())
    }

    /// What so many tokens cost at most, in billionths of a dollar, rounded up: nothing is known of a cache yet.
    pub fn ceiling(self, input: u64, output: u64) -> u64 {
        let dearest = self.cache_write.map_or(self.input, |price| price.max(self.input));
        nano([(dearest, input), (self.output, output)])
    }

    /// What a call has cost, in billionths of a dollar, each class rounded up.
    pub fn cost(self, usage: Usage) -> u64 {
        let read = usage.cache_read.min(usage.input);
        let written = usage.cache_write.min(usage.input - read);
        nano([
            (self.input, usage.input - read - written),
            (self.cache_read.unwrap_or(self.input), read),
            (self.cache_write.unwrap_or(self.input), written),
            (self.output, usage.output),
        ])
    }
}

/// Billionths of a dollar of so many tokens at these prices per million.
fn nano<const N: usize>(parts: [(f64, u64); N]) -> u64 {
    let part = |(price, tokens): (f64, u64)| (per_token(price) * u128::from(tokens)).div_ceil(1_000);
    u64::try_from(parts.map(part).iter().sum::<u128>()).unwrap_or(u64::MAX)
}

/// Thousandths of billionths of a dollar per token, so that the smallest prices are whole.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: 0 to a million")]
pub(crate) fn per_token(price: f64) -> u128 {
    (price * 1e6).round() as u128
}
