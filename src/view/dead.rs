//! Answers about tasks that killed too many workers, and about messages that can't be read.

use super::notification::UndeliveredView;
use crate::domain::dead::{Attempt, DeadLetter, UnreadableMessage};
use crate::domain::event::Payload;
use crate::domain::ids::{AgentId, JobId, SessionId};
use crate::domain::session::WITHHELD;
use crate::domain::time::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A page of an owner's dead letters, the last to die first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeadLetterPage {
    /// Dead letters of the page.
    pub items: Vec<DeadLetterView>,
    /// Dead letters in all.
    pub total: usize,
    /// Dead letters that were left out before the page.
    pub offset: usize,
    /// Most dead letters of the page.
    pub limit: usize,
    /// `offset` of the next page; null after the last.
    pub next: Option<usize>,
    /// Messages that can't be read.
    pub unreadable: UnreadablePage,
    /// Notifications whose delivery to a webhook was given up lately, the latest first.
    #[serde(default)]
    pub undelivered: Vec<UndeliveredView>,
}

/// The newest messages that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnreadablePage {
    /// Messages in all.
    pub total: usize,
    /// The newest of them.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub items: Vec<UnreadableMessage>,
}

/// A task that killed too many workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeadLetterView {
    /// Id of the dead job.
    pub job: JobId,
    /// Agent that served it.
    pub agent: AgentId,
    /// Session that served it.
    pub session: SessionId,
    /// Workers that died while they served it.
    pub crashes: u32,
    /// When it was sent, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub received: Millis,
    /// When the last of its workers died, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub died: Millis,
    /// Error that its caller got.
    pub error: String,
    /// The last of those workers, the oldest first.
    pub attempts: Vec<DeadAttemptView>,
    /// Who sent it: an owner, or `agent:<id>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The job as which it was driven again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redriven: Option<JobId>,
    /// Its input; absent in a list, and where it is hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// `input` is left out: the task ran under authority that the reader does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<String>,
}

impl DeadLetterView {
    /// Makes the view of a letter with the input of its task.
    pub fn with_input(letter: &DeadLetter) -> Self {
        let input = match &letter.event.payload {
            Payload::Task { input, .. } => Some(input.clone()),
            Payload::Message { .. } | Payload::Result { .. } | Payload::Decision { .. } => None,
        };
        Self { input, ..Self::from(letter) }
    }

    /// Makes the view of a letter for a reader who may not read its input.
    pub fn without_input(letter: &DeadLetter) -> Self {
        Self { hidden: Some(WITHHELD.to_owned()), ..Self::from(letter) }
    }
}

/// Makes the view of a letter in a list.
impl From<&DeadLetter> for DeadLetterView {
    fn from(letter: &DeadLetter) -> Self {
        Self {
            job: letter.job.clone(),
            agent: letter.session.agent.clone(),
            session: letter.session.session.clone(),
            crashes: letter.crashes,
            received: letter.event.received,
            died: letter.died,
            error: letter.error.clone(),
            attempts: letter.attempts.iter().map(DeadAttemptView::from).collect(),
            caller: letter.event.caller.clone(),
            redriven: letter.redriven.clone(),
            input: None,
            hidden: None,
        }
    }
}

/// A worker that died while it served a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeadAttemptView {
    /// Name of the worker.
    pub worker: String,
    /// Epoch of its lease.
    pub epoch: u64,
    /// Number of the turn that it didn't commit.
    pub turn: u64,
    /// When its lease expired, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub lapsed: Millis,
}

impl From<&Attempt> for DeadAttemptView {
    fn from(attempt: &Attempt) -> Self {
        let Attempt { worker, epoch, turn, lapsed, job: _ } = attempt;
        Self { worker: worker.clone(), epoch: *epoch, turn: *turn, lapsed: *lapsed }
    }
}

/// A failed task that was driven again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedriveView {
    /// The new job.
    pub job: JobId,
    /// The failed one.
    pub redrive_of: JobId,
    /// Whether it had been driven again before: then `job` is the same one.
    pub duplicate: bool,
}
