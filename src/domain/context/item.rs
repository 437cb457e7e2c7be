//! A fetched piece of context with where it came from.

use crate::authority::{Authority, ResourcePath};
use crate::ids::AssetId;
use crate::limits::{ENTRY_FLOOR, INPUT_BYTES, INPUTS_BYTES};
use crate::origin::Origin;
use crate::render::cut;
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
    /// What the model may call.
    Tools,
    /// Entries of the configuration and the agent's state.
    Context,
    /// Paths that the agent loaded.
    Loads,
    /// Resources.
    Resource,
    /// What was said.
    Transcript,
    /// What all of this costs.
    Map,
    /// Results of child jobs.
    Pending,
    /// Messages.
    Inbox,
    /// Sections of the caller's context that came with the task.
    Scope,
    /// The task.
    Input,
}

impl Section {
    /// Who gets bytes first; required sections don't ask.
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
pub struct Item {
    /// Section that it belongs to: context, loads or resource.
    pub section: Section,
    /// Its key in the ledger.
    pub key: String,
    /// Heading; literal text may have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Path, asset, job or operation that it came from; `None` for literal text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The capability that allowed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
    /// Bytes asked for; by its kind when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<usize>,
    /// Higher ones get their bytes first.
    pub priority: i32,
    /// The turn fails without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// Placeholders of its source's input that had no value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unresolved: Vec<String>,
    /// What counts when it is handed on.
    #[serde(default, skip_serializing_if = "Tags::is_default")]
    pub tags: Tags,
    /// In which version it was read, and what was read for it.
    #[serde(default, skip_serializing_if = "Origin::is_unknown")]
    pub origin: Origin,
    /// What there is to show.
    pub content: Content,
    /// Assets that stand behind it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<AssetId>,
}

/// What counts when a piece of context is handed on with a call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tags {
    /// The instance that it is of; absent = of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Who keeps it from turn to turn; absent = it is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
    /// Ability and resource of everything that reading it needed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<(String, ResourcePath)>,
    /// Of a conversation: what its turns were allowed to do at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under: Option<Authority>,
}

impl Tags {
    /// Nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Who keeps a piece of context from turn to turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kept {
    /// The agent, in all of its sessions.
    Agent,
    /// The session.
    Session,
}

/// What a piece of context shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    /// Text, shown as it is.
    Text(String),
    /// A structured value, rendered within its budget.
    Value(Value),
    /// What its budget shows of a value that is too large to be kept.
    Excerpt {
        /// As rendered.
        text: String,
        /// Bytes of the whole.
        of: usize,
    },
    /// Nothing, with the reason.
    Absent(Absence, String),
}

/// Why there is nothing to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Absence {
    /// Nothing is there.
    Missing,
    /// No capability for it.
    Denied,
    /// It could not be fetched.
    Failed,
}

/// Text within a budget, and whether it is all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown<'c> {
    /// The text.
    pub text: Cow<'c, str>,
    /// Nothing is left out.
    pub whole: bool,
}

impl Content {
    /// A fetched value; too large a one is cut to `budget` bytes.
    pub fn of(value: Value, budget: usize) -> Self {
        let content = match value {
            Value::String(text) => Self::Text(text),
            other => Self::Value(other),
        };
        let bytes = content.bytes();
        if bytes <= INPUT_BYTES {
            return content;
        }
        let text = content.show(budget).map(|shown| shown.text.into_owned()).unwrap_or_default();
        Self::Excerpt { text, of: bytes }
    }

    /// About how many bytes it has.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Text(text) | Self::Excerpt { text, .. } => text.len(),
            Self::Value(value) => size_about(value),
            Self::Absent(..) => 0,
        }
    }

    /// Bytes that it gets when its entry says nothing: a text as many as it has, a value a
    /// twentieth of what is left.
    pub fn asks(&self, left: usize) -> usize {
        match self {
            Self::Text(text) | Self::Excerpt { text, .. } => text.len(),
            Self::Value(_) => ENTRY_FLOOR.max(left / 20),
            Self::Absent(..) => 0,
        }
    }

    /// It in at most about `budget` bytes.
    pub fn show(&self, budget: usize) -> Result<Shown<'_>, (Absence, &str)> {
        match self {
            Self::Text(text) if text.len() <= budget => Ok(Shown { text: text.into(), whole: true }),
            Self::Text(text) => Ok(Shown { text: cut(text, text.len(), budget).into(), whole: false }),
            Self::Excerpt { text, .. } if text.len() <= budget => Ok(Shown { text: text.into(), whole: false }),
            Self::Excerpt { text, of } => Ok(Shown { text: cut(text, *of, budget).into(), whole: false }),
            Self::Value(value) => {
                let (text, whole) = render_within(value, RenderOptions { budget, pretty: false });
                Ok(Shown { text: text.into(), whole })
            }
            Self::Absent(why, reason) => Err((*why, reason)),
        }
    }
}

/// What one turn takes of these: required ones first, then by priority, ties in their order, at most
/// [`INPUTS_BYTES`] together. What is over it is absent, with the reason.
pub fn bounded(mut items: Vec<Item>) -> Vec<Item> {
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
        *content = Content::Absent(Absence::Failed, reason);
    }
    items
}
