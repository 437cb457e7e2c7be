//! Requests to models and their replies, independent of any provider.

mod headers;
mod price;
mod settings;
mod settings_error;

pub use headers::{HeaderText, ModelHeaderError, ModelHeaders};
pub(crate) use price::per_token;
pub use price::{Price, PriceError};
pub use settings::{Effort, ModelSettings, ToolChoice};
pub use settings_error::{ModelPlaceError, ModelSettingFault, ModelSettingsError};

use crate::media::Attachment;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// One model call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelRequest {
    /// Model and its settings.
    pub model: ModelSettings,
    /// System prompt of the call.
    pub system: String,
    /// Messages behind the system prompt, oldest first.
    pub messages: Vec<ChatMessage>,
    /// Tools that the model may call; shared by all turns with the same tools.
    #[serde(with = "shared")]
    pub tools: Arc<[ToolSpec]>,
    /// Name of the turn, `owner/agent/session/turn`: for logs and for the scripted model.
    pub turn: String,
    /// Number of leading `messages` whose bytes stay the same in the session's next request, as far as known: marks of
    /// providers' caches are set at their end.
    #[serde(skip)]
    pub stable: usize,
    /// Type of the text, where a task's output is typed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputFormat>,
}

impl ModelRequest {
    /// Whether it shows pictures or files.
    pub fn has_attachments(&self) -> bool {
        self.messages.iter().any(|message| match message {
            ChatMessage::User { attachments, .. } => attachments.iter().any(Attachment::is_shown),
            ChatMessage::Assistant { .. } | ChatMessage::Tool { .. } => false,
        })
    }

    /// Returns the attachments that are shown.
    pub fn shown_attachments(&mut self) -> impl Iterator<Item = &mut Attachment> {
        let attachments = self.messages.iter_mut().flat_map(|message| match message {
            ChatMessage::User { attachments, .. } => attachments.as_mut_slice(),
            ChatMessage::Assistant { .. } | ChatMessage::Tool { .. } => &mut [],
        });
        attachments.filter(|attachment| attachment.is_shown())
    }
}

/// Type of the text that a model must write.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputFormat {
    /// JSON Schema of a map.
    pub schema: Value,
    /// Whether the tools do no more than the text can: a provider that takes no tools beside a typed text gets none.
    pub tools_optional: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_no_token(number: &u64) -> bool {
    *number == 0
}

/// Serialises a shared list as a plain one.
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum ChatMessage {
    /// Text from the caller, or context.
    User {
        /// Text of the message.
        text: String,
        /// Pictures and files behind the text.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<Attachment>,
    },
    /// Text and calls from the model.
    Assistant {
        /// Text of the message; may be empty beside calls.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
        /// Calls that the model asked for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
        /// Reasoning before the text: it is sent to the model that wrote it, and to no other.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reasoning: Option<Reasoning>,
    },
    /// The result of one call.
    Tool {
        /// Id of the call, [`ToolCall::id`].
        call: String,
        /// Name of the tool.
        name: String,
        /// Result as the model sees it.
        text: String,
    },
}

impl ChatMessage {
    /// Makes a message from the caller, or of context, without attachments.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { text: text.into(), attachments: Vec::new() }
    }

    /// Makes a model's message without reasoning.
    pub const fn assistant(text: String, calls: Vec<ToolCall>) -> Self {
        Self::Assistant { text, calls, reasoning: None }
    }
}

/// Reasoning of a model before its answer, in the pieces of its provider's wire format. They are signed or encrypted,
/// so nothing of them is changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reasoning {
    /// Model that wrote it, [`ModelSettings::reasoning_identity`]: no other one gets it.
    pub by: String,
    /// Pieces in their order.
    pub items: Vec<Value>,
}

/// A tool as a model sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolSpec {
    /// Name of 1 to 64 characters, `[A-Za-z0-9_-]`.
    pub name: String,
    /// Description of the tool.
    pub description: String,
    /// JSON Schema of the arguments.
    pub schema: Value,
}

/// A call that a model asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCall {
    /// Id of the call, given by the provider or made from its position.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Arguments of the call; text where the model wrote malformed JSON.
    pub arguments: Arguments,
}

/// Arguments of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Arguments {
    /// Arguments that are JSON.
    Json(Value),
    /// Text that isn't JSON, as it came.
    Malformed(String),
}

impl Arguments {
    /// Returns the arguments as a value: JSON, or the malformed text.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Json(value) => value.clone(),
            Self::Malformed(text) => text.clone().into(),
        }
    }
}

/// Reply of a model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Reply {
    /// Text of the reply.
    pub text: String,
    /// Calls that the model asks for, in order.
    pub calls: Vec<ToolCall>,
    /// Tokens of the call.
    pub usage: TokenUsage,
    /// Whether the limit of tokens cut it off: its text is not whole, and its last call may not be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Reasoning before the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
}

impl Reply {
    /// Returns the bytes of the text and the calls.
    pub fn said_bytes(&self) -> usize {
        self.text.len() + self.calls.iter().map(ToolCall::bytes).sum::<usize>()
    }
}

impl ToolCall {
    /// Returns the bytes of the name and the arguments.
    pub fn bytes(&self) -> usize {
        let arguments = match &self.arguments {
            Arguments::Json(value) => value.to_string().len(),
            Arguments::Malformed(text) => text.len(),
        };
        self.name.len() + arguments
    }
}

/// Tokens of one call; absent numbers are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenUsage {
    /// Prompt tokens, those of the provider's cache included.
    pub input: u64,
    /// Reply tokens, those of reasoning included.
    pub output: u64,
    /// Tokens of `input` that were read from the provider's cache.
    #[serde(default, skip_serializing_if = "is_no_token")]
    pub cache_read: u64,
    /// Tokens of `input` that were written to the provider's cache.
    #[serde(default, skip_serializing_if = "is_no_token")]
    pub cache_write: u64,
    /// Tokens of `output` that are reasoning.
    #[serde(default, skip_serializing_if = "is_no_token")]
    pub reasoning: u64,
}

impl TokenUsage {
    /// Makes a usage without classes of tokens.
    pub const fn new(input: u64, output: u64) -> Self {
        Self { input, output, cache_read: 0, cache_write: 0, reasoning: 0 }
    }
}
