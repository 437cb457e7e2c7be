//! What goes to a model and what comes back, independent of any provider.

mod headers;
mod price;
mod settings;

pub use headers::{HeaderText, ModelHeaders};
pub use price::Price;
pub(crate) use price::per_token;
pub use settings::{Effort, ModelSettings, ToolChoice};

use crate::media::Attachment;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

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

impl ModelRequest {
    /// Whether it shows pictures or files.
    pub fn has_attachments(&self) -> bool {
        self.messages.iter().any(|message| match message {
            ChatMessage::User { attachments, .. } => attachments.iter().any(Attachment::is_shown),
            ChatMessage::Assistant { .. } | ChatMessage::Tool { .. } => false,
        })
    }

    /// Its attachments without a reason against showing them.
    pub fn shown_attachments(&mut self) -> impl Iterator<Item = &mut Attachment> {
        let attachments = self.messages.iter_mut().flat_map(|message| match message {
            ChatMessage::User { attachments, .. } => attachments.as_mut_slice(),
            ChatMessage::Assistant { .. } | ChatMessage::Tool { .. } => &mut [],
        });
        attachments.filter(|attachment| attachment.is_shown())
    }
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
        /// Pictures and files behind it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<Attachment>,
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
    /// A message from the caller, or context, without attachments.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { text: text.into(), attachments: Vec::new() }
    }

    /// A model's message without reasoning.
    pub const fn assistant(text: String, calls: Vec<ToolCall>) -> Self {
        Self::Assistant { text, calls, reasoning: None }
    }
}

/// What a model reasoned before its answer, in the pieces of its provider's wire format: signed or encrypted,
/// so that nothing of them is changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reasoning {
    /// The model that wrote it, [`ModelSettings::reasoner`]: another one is not given it.
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

impl Reply {
    /// Bytes of its text and its calls.
    pub fn said_bytes(&self) -> usize {
        self.text.len() + self.calls.iter().map(ToolCall::bytes).sum::<usize>()
    }
}

impl ToolCall {
    /// Bytes of its name and its arguments.
    pub fn bytes(&self) -> usize {
        let arguments = match &self.arguments {
            Arguments::Json(value) => value.to_string().len(),
            Arguments::Malformed(text) => text.len(),
        };
        self.name.len() + arguments
    }
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
