//! Everything that a prompt is made of: what the worker fetched, and what a record of it stores.

use super::budget::PromptBudget;
pub use super::frame::PromptFrame;
use super::item::PromptItem;
use super::sight::Viewer;
use super::transcript_turn::TranscriptTurn;
use crate::chat::OutputFormat;
use crate::context::goals::GoalView;
use crate::event::Event;
use crate::ids::{AssetId, EventId, JobId};
use crate::media::Attachment;
use crate::prefix::StablePrefix;
use crate::session::{CallerMessage, PendingJob};
use crate::tools::ToolTable;
use crate::values::inserted_values::KnownValues;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The inputs of one prompt. The same inputs give the same bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Inputs {
    /// Agent, model and limits.
    pub frame: PromptFrame,
    /// Values that change with every turn.
    pub moment: Moment,
    /// System prompt as it is configured.
    pub system: String,
    /// Values of the placeholders in the system prompt and in the items.
    pub values: KnownValues,
    /// Entries, loads and resources, in the order of the prompt.
    pub items: Vec<PromptItem>,
    /// Tools of this turn.
    pub tools: Arc<ToolTable>,
    /// Turns of the session, oldest first.
    pub transcript: Vec<Arc<TranscriptTurn>>,
    /// Events that the turn serves.
    pub served: ServedEvents,
    /// Order of the prompt.
    pub layout: Layout,
    /// Attachments of this prompt: each asset that an item, an event or a turn refers to, as it was looked up.
    pub attachments: Vec<Attachment>,
}

/// The order of a prompt, with the prefix that decides about the places in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// The context map before the transcript, the open task at the end. Older records have this order, and only in it
    /// they give their recorded hash.
    MapFirst,
    /// Stable parts before parts that change, continuing the stable prefix of the session's last prompt.
    StableFirst(Option<StablePrefix>),
}

impl PromptFrame {
    /// Returns the authority with which its turn views earlier turns.
    pub const fn viewer(&self) -> Viewer<'_> {
        Viewer { authority: &self.authority, bound: &self.bound }
    }
}

/// Values that change with every turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Moment {
    /// Name of the turn, `owner/agent/session/turn`.
    pub turn: String,
    /// Date as `YYYY-MM-DD`.
    pub date: String,
    /// Budget of the prompt.
    pub budget: PromptBudget,
}

/// The events and jobs that a turn serves.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServedEvents {
    /// The open task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Event>,
    /// Results of child jobs, each with its key in the mailbox.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<(String, Event)>,
    /// Messages for the session, each with its key in the mailbox.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<(String, Event)>,
    /// Child jobs that are still running.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<(JobId, PendingJob)>,
    /// The agent must be reminded: it has written a text without completing its task, in `explicit` mode.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remind: bool,
    /// Position in the goal tree.
    #[serde(default, skip_serializing_if = "GoalView::is_plain")]
    pub goals: GoalView,
    /// The task ends with this turn because a limit is reached.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
    /// Placeholders of the agent's `taskPrompt` without a value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missed: Vec<String>,
}

impl Inputs {
    /// Returns the output format for the text of the served task; `None` inside a goal of it.
    pub fn output(&self) -> Option<OutputFormat> {
        let serves = self.served.task.is_some() && self.served.goals.goal.is_none();
        self.tools.output().filter(|_| serves)
    }
}

/// An event that the prompt shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownEvent {
    /// Key in the mailbox.
    pub key: String,
    /// Id of the event.
    pub id: EventId,
    /// Text as the prompt shows it.
    pub text: String,
    /// Assets that are shown with it.
    pub attachments: Vec<AssetId>,
}

impl ShownEvent {
    /// Makes the transcript's entry of the event.
    pub fn transcript_entry(&self) -> CallerMessage {
        CallerMessage { job: None, text: self.text.clone(), attachments: self.attachments.clone() }
    }
}
