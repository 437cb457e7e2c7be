//! Everything that a prompt is made of: what the shell fetched, and what a record of it keeps.

use super::budget::PromptBudget;
use super::item::Item;
use super::past::TranscriptTurn;
use super::sight::Viewer;
use crate::agent::CompletedBy;
use crate::agent::PromptStyle;
use crate::authority::{Authority, Disclosure};
use crate::chat::{ModelSettings, OutputFormat};
use crate::context::goals::View;
use crate::event::Event;
use crate::ids::{AgentId, AssetId, EventId, JobId};
use crate::media::Attachment;
use crate::prefix::StablePrefix;
use crate::session::{Heard, PendingJob};
use crate::tools::ToolTable;
use crate::values::known::KnownValues;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The inputs of one prompt. The same inputs give the same bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Inputs {
    /// Who, with which model, under which limits.
    pub frame: Frame,
    /// What changes with every turn.
    pub moment: Moment,
    /// The system prompt as it is configured.
    pub system: String,
    /// What its placeholders insert, and those of the items.
    pub values: KnownValues,
    /// Entries, loads and resources, in the order of the prompt.
    pub items: Vec<Item>,
    /// Tools of this turn.
    pub tools: Arc<ToolTable>,
    /// Turns of the session, oldest first.
    pub transcript: Vec<Arc<TranscriptTurn>>,
    /// What the turn serves.
    pub served: Served,
    /// The order of the prompt.
    pub layout: Layout,
    /// Attachments of this prompt: each asset that an item, an event or a turn refers to, as it was looked up.
    pub attachments: Vec<Attachment>,
}

/// The order of a prompt, and what decides on the places in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// The context map before the transcript, the open task at the end: the order of older records, in which alone
    /// they give their recorded hash.
    MapFirst,
    /// What stays before what changes, after what the session's last prompt had in its stable part.
    StableFirst(Option<StablePrefix>),
}

impl Layout {
    /// The stable prefix of the session's last prompt.
    pub const fn before(&self) -> Option<&StablePrefix> {
        match self {
            Self::MapFirst => None,
            Self::StableFirst(before) => before.as_ref(),
        }
    }
}

/// What stays the same over the turns of a configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Frame {
    /// The agent.
    pub agent: AgentId,
    /// Name of the venue.
    pub venue: String,
    /// The model.
    pub model: ModelSettings,
    /// What the turn may do.
    pub authority: Authority,
    /// How it is told so; absent in older records, and where nothing limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disclosure: Option<Disclosure>,
    /// What its request may do at most.
    #[serde(default, skip_serializing_if = "Authority::is_unlimited")]
    pub bound: Authority,
    /// What completes a task.
    pub completion: CompletedBy,
    /// A placeholder without a value fails the turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// Paths of the seed's catalog (`v/ops/covia/…`) are in use.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aliases: bool,
    /// Nobody's own agent: its configured text is the whole system prompt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bare: bool,
    /// What of the venue stands in the prompt.
    #[serde(default, skip_serializing_if = "is_full")]
    pub prompt: PromptStyle,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_full(prompt: &PromptStyle) -> bool {
    *prompt == PromptStyle::Full
}

impl Frame {
    /// As whom its turn looks at the turns before it.
    pub const fn viewer(&self) -> Viewer<'_> {
        Viewer { authority: &self.authority, bound: &self.bound }
    }
}

/// What changes with every turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Moment {
    /// `owner/agent/session/turn`.
    pub turn: String,
    /// `YYYY-MM-DD`.
    pub date: String,
    /// Bytes allowed.
    pub budget: PromptBudget,
}

/// What a turn serves.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Served {
    /// The open task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Event>,
    /// Completions of child jobs, each with its key in the mailbox.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<(String, Event)>,
    /// Notifications, each with its key in the mailbox.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<(String, Event)>,
    /// Children that are still running.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<(JobId, PendingJob)>,
    /// The agent has said something without completing its task, in `explicit` mode.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remind: bool,
    /// Where in the tree of its goals it is.
    #[serde(default, skip_serializing_if = "View::is_plain")]
    pub goals: View,
    /// A limit is reached: the task ends with this turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
}

impl Inputs {
    /// The type of a text that is the output of the task that is served; `None` inside a goal of it.
    pub fn output(&self) -> Option<OutputFormat> {
        let serves = self.served.task.is_some() && self.served.goals.goal.is_none();
        self.tools.output().filter(|_| serves)
    }
}

/// An event that the prompt really shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownEvent {
    /// Its key in the mailbox.
    pub key: String,
    /// Its id.
    pub id: EventId,
    /// As it is shown.
    pub text: String,
    /// Assets that are shown with it.
    pub attachments: Vec<AssetId>,
}

impl ShownEvent {
    /// What the transcript keeps of it.
    pub fn heard(&self) -> Heard {
        Heard { job: None, text: self.text.clone(), attachments: self.attachments.clone() }
    }
}
