//! The model of an agent and its settings.

use super::Price;
use super::headers::{self, HeaderText, ModelHeaders};
use super::settings_error::{ModelPlaceError, ModelSettingFault, ModelSettingsError};
use crate::ids::secret::SecretName;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Number of stop texts at most: the fewest that a provider takes.
pub(super) const STOP_TEXTS: usize = 4;

/// Number of fallback models at most: a turn that finds all of them slow waits for each.
pub const FALLBACK_MODELS: usize = 4;

/// A model and its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelSettings {
    /// Name of the provider: `scripted`, `openai`, `anthropic`, `ollama`, `gemini`, …
    pub provider: String,
    /// Name of the model within its provider.
    pub name: String,
    /// URL of another endpoint of the same protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Temperature of the sampling, 0–2; the provider's default when absent.
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
    /// Tokens of the longest reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Tokens of prompt and reply together that the model takes: an upper bound of the context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u32>,
    /// Price of the model: needed where cost is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// Secret of the owner that is sent as the API key, `s/NAME`; the venue's own key when absent.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "key")]
    pub key: Option<SecretName>,
    /// Headers of every request besides those of the wire format.
    #[serde(default, skip_serializing_if = "ModelHeaders::is_empty")]
    pub headers: ModelHeaders,
    /// Models that are called in this order when the first is unavailable. Each is a complete setting of its own:
    /// nothing is inherited, and none has fallbacks itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<ModelSettings>,
}

/// Amount of reasoning before an answer: `none`, `low`, `medium`, `high`, or a number of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// No reasoning, as far as the model allows it.
    None,
    /// Less reasoning than the provider's middle.
    Low,
    /// The provider's middle.
    Medium,
    /// More reasoning than the provider's middle.
    High,
    /// At most so many tokens, where the provider takes a number; else the nearest word.
    Tokens(u32),
}

impl Effort {
    /// Returns the word that most providers take.
    pub const fn word(self) -> &'static str {
        match self {
            Self::None | Self::Tokens(0) => "none",
            Self::Low | Self::Tokens(1..=2_048) => "low",
            Self::Medium | Self::Tokens(2_049..=8_192) => "medium",
            Self::High | Self::Tokens(_) => "high",
        }
    }

    /// Returns the number of tokens, for providers that take a number.
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
    /// The model decides whether it calls a tool.
    Auto,
    /// The model calls at least one tool.
    Required,
    /// The model calls no tool.
    None,
    /// The model calls the tool of this name.
    Tool(String),
}

/// Serialises a secret's name as its path. A key in its place is refused, and the error doesn't repeat it.
mod key {
    use super::SecretName;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    // The signature is given by serde.
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
        value.as_str().and_then(|path| SecretName::from_path(path).ok()).map(Some).ok_or_else(wrong)
    }
}

impl ModelSettings {
    /// Makes a model with its provider's defaults.
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
            headers: ModelHeaders::new(),
            fallback: Vec::new(),
        }
    }

    /// Returns the model and its fallbacks, in the order in which they are called.
    pub fn in_order(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.fallback)
    }

    /// Returns the settings without fallbacks, as one provider gets them.
    #[must_use]
    pub fn without_fallback(&self) -> Self {
        Self { fallback: Vec::new(), ..self.clone() }
    }

    /// Returns the tokens that a prompt may have so that each of the models takes it beside its longest reply; `None`
    /// where no window is known.
    pub fn prompt_tokens(&self) -> Option<u32> {
        let room = |model: &Self| Some(model.context_window?.saturating_sub(model.max_tokens.unwrap_or(0)));
        self.in_order().filter_map(room).min()
    }

    /// Returns the id of the model, `provider/name`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.provider, self.name)
    }

    /// Returns the secrets that a call of this model alone opens, each once.
    pub fn secrets(&self) -> Vec<&SecretName> {
        let mut names: Vec<_> = self.key.iter().chain(self.headers.values().filter_map(HeaderText::secret)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns the identity that owns reasoning: the model, and the endpoint, the key and the headers by which its
    /// provider recognises its own signatures.
    pub fn reasoning_identity(&self) -> String {
        let url = self.base_url.as_ref().map(|url| format!(" at {url}")).unwrap_or_default();
        let key = self.key.as_ref().map(|key| format!(" by {}", key.path())).unwrap_or_default();
        let header = |(name, text): (&String, &HeaderText)| format!(" with {name}: {}", text.to_json());
        let headers: String = self.headers.iter().map(header).collect();
        format!("{}{url}{key}{headers}", self.id())
    }

    /// Returns the key in a configuration of the model at this index of [`Self::in_order`].
    pub fn key_at(at: usize) -> String {
        at.checked_sub(1).map_or_else(|| "model".to_owned(), |at| format!("model.fallback[{at}]"))
    }

    /// Runs a check on each of the models in order; an error of a fallback names its place.
    pub fn check_each<E>(&self, check: impl Fn(&Self) -> Result<(), E>) -> Result<(), ModelPlaceError<E>> {
        let mut models = self.in_order().enumerate();
        models.try_for_each(|(at, model)| check(model).map_err(|error| ModelPlaceError { at, error }))
    }

    /// Checks the settings that every provider limits; limits of a single provider are checked when a request is
    /// encoded for it.
    pub fn check(&self) -> Result<(), ModelSettingsError> {
        if self.fallback.len() > FALLBACK_MODELS {
            return Err(ModelSettingsError::TooManyFallbacks { found: self.fallback.len() });
        }
        if let Some(at) = self.fallback.iter().position(|model| !model.fallback.is_empty()) {
            return Err(ModelSettingsError::NestedFallback { at });
        }
        Ok(self.check_each(Self::check_alone)?)
    }

    fn check_alone(&self) -> Result<(), ModelSettingFault> {
        let within = |key: &'static str, number: Option<f64>, most: f64| match number {
            Some(found) if !(0.0..=most).contains(&found) => Err(ModelSettingFault::Range { key, most, found }),
            Some(_) | None => Ok(()),
        };
        within("temperature", self.temperature, 2.0)?;
        within("topP", self.top_p, 1.0)?;
        if self.stop.len() > STOP_TEXTS {
            return Err(ModelSettingFault::TooManyStops { found: self.stop.len() });
        }
        if let Some(at) = self.stop.iter().position(|text| text.trim().is_empty()) {
            return Err(ModelSettingFault::BlankStop { at });
        }
        headers::check(&self.headers).map_err(ModelSettingFault::Header)?;
        if let Some(ToolChoice::Tool(name)) = &self.tool_choice
            && name.is_empty()
        {
            return Err(ModelSettingFault::UnnamedTool);
        }
        if let (Some(window), reply) = (self.context_window, self.max_tokens.unwrap_or(0))
            && window <= reply
        {
            return Err(ModelSettingFault::SmallWindow { reply, window });
        }
        match &self.price {
            Some(price) => price.check().map_err(ModelSettingFault::Price),
            None => Ok(()),
        }
    }
}
