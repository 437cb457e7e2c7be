//! A fetched piece of context with its origin.

use crate::authority::{Authority, ResourcePath};
use crate::ids::AssetId;
use crate::limits::{ENTRY_FLOOR, INPUT_BYTES, INPUTS_BYTES};
use crate::origin::Origin;
use crate::render::cut_text;
use crate::render::{RenderOptions, render_within, size_about};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;

/// A labelled part of the context, in the order of the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Section {
    /// Identity, lattice reference, capabilities.
    System,
    /// Tools that the model may call.
    Tools,
    /// Entries of the configuration and the agent's state.
    Context,
    /// Paths that the agent loaded.
    Loads,
    /// Resources of the agent.
    Resource,
    /// The conversation so far.
    Transcript,
    /// Context map with the size of all parts.
    Map,
    /// Results of child jobs.
    Pending,
    /// Messages to the session.
    Inbox,
    /// Sections of the caller's context that came with the task.
    Scope,
    /// The task, and how it ends.
    Input,
}

impl Section {
    /// Returns the priority of the section; parts with a higher one get bytes first. Required sections always have
    /// room.
    pub const fn priority(self) -> i32 {
        match self {
            Self::System | Self::Tools | Self::Map | Self::Input => i32::MAX,
            Self::Pending => 800,
            Self::Inbox => 700,
            Self::Scope => 600,
            Self::Context => 500,
            Self::Loads => 400,
            Self::Resource => 300,
            Self::Transcript => 200,
        }
    }
}

/// A fetched piece of context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptItem {
    /// Section that it belongs to: context, loads or resource.
    pub section: Section,
    /// Key in the ledger.
    pub key: String,
    /// Heading; literal text may have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Path, asset, job or operation that it came from; `None` for literal text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Capability that allowed the read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
    /// Bytes asked for; a default by the kind of content when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<usize>,
    /// Priority; parts with higher ones get their bytes first.
    pub priority: i32,
    /// The turn fails without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// Placeholders in its source's input that had no value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unresolved: Vec<String>,
    /// Tags that count when it is handed on.
    #[serde(default, skip_serializing_if = "HandOffTags::is_default")]
    pub tags: HandOffTags,
    /// Version that was read, and the sources that were read for it.
    #[serde(default, skip_serializing_if = "Origin::is_unknown")]
    pub origin: Origin,
    /// Content to show.
    pub content: ItemContent,
    /// Assets that stand behind the item.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<AssetId>,
}

/// Facts that count when a piece of context is handed on with a call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HandOffTags {
    /// Instance that it belongs to; absent for all instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Who stores it from turn to turn; absent if it is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<StoredBy>,
    /// Ability and resource of each read that it needed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<(String, ResourcePath)>,
    /// For a conversation: the most authority of its turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under: Option<Authority>,
}

impl HandOffTags {
    /// Whether no tag is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Who stores a piece of context from turn to turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoredBy {
    /// The agent, in all of its sessions.
    Agent,
    /// The session alone.
    Session,
}

/// The content of a piece of context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ItemContent {
    /// A text, shown as it is.
    Text(String),
    /// A structured value, rendered within its budget.
    Value(Value),
    /// The rendered beginning of a value that is too large to be recorded.
    Excerpt {
        /// Rendered text of the beginning.
        text: String,
        /// Bytes of the whole value.
        of: usize,
    },
    /// No content, with the reason.
    Absent(Absence, String),
}

/// Why there is no content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Absence {
    /// Nothing is stored there.
    Missing,
    /// The authority has no capability for it.
    Denied,
    /// The content could not be fetched.
    Failed,
}

/// Text within a budget, and whether it is all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedContent<'c> {
    /// The text to show.
    pub text: Cow<'c, str>,
    /// Whether the text shows the stored value without cuts.
    pub whole: bool,
}

impl ItemContent {
    /// Makes the content of a fetched value; a value that is too large is cut to `budget` bytes.
    pub fn from_value(value: Value, budget: usize) -> Self {
        let content = match value {
            Value::String(text) => Self::Text(text),
            other => Self::Value(other),
        };
        let bytes = content.bytes();
        if bytes <= INPUT_BYTES {
            return content;
        }
        let text = content.render(budget).map(|shown| shown.text.into_owned()).unwrap_or_default();
        Self::Excerpt { text, of: bytes }
    }

    /// Returns its size in bytes, estimated for values.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Text(text) | Self::Excerpt { text, .. } => text.len(),
            Self::Value(value) => size_about(value),
            Self::Absent(..) => 0,
        }
    }

    /// Returns the bytes that it asks for by default: a text all that it has, a value a twentieth of `left`.
    pub fn default_bytes(&self, left: usize) -> usize {
        match self {
            Self::Text(text) | Self::Excerpt { text, .. } => text.len(),
            Self::Value(_) => ENTRY_FLOOR.max(left / 20),
            Self::Absent(..) => 0,
        }
    }

    /// Renders it in at most about `budget` bytes.
    pub fn render(&self, budget: usize) -> Result<RenderedContent<'_>, (Absence, &str)> {
        match self {
            Self::Text(text) if text.len() <= budget => Ok(RenderedContent { text: text.into(), whole: true }),
            Self::Text(text) => Ok(RenderedContent { text: cut_text(text, text.len(), budget).into(), whole: false }),
            Self::Excerpt { text, .. } if text.len() <= budget => {
                Ok(RenderedContent { text: text.into(), whole: false })
            }
            Self::Excerpt { text, of } => {
                Ok(RenderedContent { text: cut_text(text, *of, budget).into(), whole: false })
            }
            Self::Value(value) => {
                let (text, whole) = render_within(value, RenderOptions { budget, pretty: false });
                Ok(RenderedContent { text: text.into(), whole })
            }
            Self::Absent(why, reason) => Err((*why, reason)),
        }
    }
}

/// Limits the items of one turn to [`INPUTS_BYTES`] together: required ones first, then by priority, ties in their
/// order. Items over the limit become absent, with the reason.
pub fn limit_items(mut items: Vec<PromptItem>) -> Vec<PromptItem> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse((items[*at].required, items[*at].priority)));
    let mut left = INPUTS_BYTES;
    for at in order {
        let content = &mut items[at].content;
        let bytes = content.bytes();
        if let Some(rest) = left.checked_sub(bytes) {
            left = rest;
            continue;
        }
        let reason = format!(
            "too much at once: it has about {bytes} bytes, and {left} are left of the {INPUTS_BYTES} that all \
             entries of a turn may have; refer to a part of it"
        );
        *content = ItemContent::Absent(Absence::Failed, reason);
    }
    items
}
