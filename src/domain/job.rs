//! Jobs: the handle of a task or of an outbound call, its statuses and its legal transitions.

pub mod watch;

use crate::authority::Authority;
use crate::authority::envelope::Envelope;
use crate::authority::trail::Trail;
use crate::budget::Budget;
use crate::decode;
use crate::ids::SessionKey;
use crate::ids::{AgentId, EventId, JobId, SessionId};
use crate::job::watch::Watch;
use crate::load::Load;
use crate::priority::Priority;
use crate::scope::Handed;
use crate::spend::{self, Tally, Tree};
use crate::time::Millis;
use crate::wait::{WaitCause, WaitReason};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Status of a job, spelled as on the HTTP API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schemars(inline)]
pub enum JobStatus {
    /// Accepted, no worker has taken it yet.
    Pending,
    /// A worker has taken it.
    Started,
    /// Done; there is an output.
    Complete,
    /// Ended without an output; there is an error.
    Failed,
    /// Ended by a caller.
    Cancelled,
    /// Not taken.
    Rejected,
    /// Held by an operator.
    Paused,
    /// Waits for a person.
    InputRequired,
    /// Waits for a credential.
    AuthRequired,
}

impl JobStatus {
    /// Every status.
    pub const ALL: [Self; 9] = [
        Self::Pending,
        Self::Started,
        Self::Complete,
        Self::Failed,
        Self::Cancelled,
        Self::Rejected,
        Self::Paused,
        Self::InputRequired,
        Self::AuthRequired,
    ];

    /// The spelling in storage and on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Started => "STARTED",
            Self::Complete => "COMPLETE",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
            Self::Rejected => "REJECTED",
            Self::Paused => "PAUSED",
            Self::InputRequired => "INPUT_REQUIRED",
            Self::AuthRequired => "AUTH_REQUIRED",
        }
    }

    /// The inverse of [`JobStatus::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == text)
    }

    /// Nothing changes it any more.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Complete | Self::Failed | Self::Cancelled | Self::Rejected => true,
            Self::Pending | Self::Started | Self::Paused | Self::InputRequired | Self::AuthRequired => false,
        }
    }
}

/// The turn of an agent that started a child job; its result returns there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Parent {
    /// The session that waits for the result.
    #[serde(flatten)]
    pub session: SessionKey,
    /// The task in whose service it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
}

/// What a job is, written once when it is opened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobHead {
    /// Its id.
    pub id: JobId,
    /// The producer's id of the event that opened it.
    pub event: EventId,
    /// The operation that it ran, when that is not a request to an agent; then `session` means
    /// nothing, and `agent` only says in whose name it is told about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// The agent that serves it.
    pub agent: AgentId,
    /// The session that serves it.
    pub session: SessionId,
    /// Who asked: an owner, or `agent:<id>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The task's input.
    pub input: Value,
    /// Mark of an input of which something is shown to nobody: with it a repeated request is known, and nothing can be
    /// guessed from it, see [`crate::invoked::mark`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<String>,
    /// When it was accepted.
    pub created: Millis,
    /// The turn that started it; its session gets the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Where else the completion goes: a NATS subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// The dead job that it drives again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redrive_of: Option<JobId>,
    /// How urgent it is.
    #[serde(default, skip_serializing_if = "Priority::is_normal")]
    pub priority: Priority,
    /// The mark of who asked for it, see [`crate::principal::Principal`]: he may read it. Shown to nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The rest of what its task said: from it a task is put back whose mailbox entry was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Box<Request>>,
    /// Of a run of an operation: what it might do at most. Of a task its request says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Box<Authority>>,
    /// Keys of its `sessionContext` that count for nothing: the token says these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
    /// Under whom and under what it runs.
    #[serde(default, skip_serializing_if = "Trail::is_empty")]
    pub under: Trail,
}

/// What a task said besides its input. Values of a `sessionContext` are not in it: they are kept with
/// the task alone, and are gone with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Hash by which the same submission is known.
    pub body_hash: String,
    /// It had values, without which it isn't what was sent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub had_values: bool,
    /// Shared buckets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context_ids: Vec<String>,
    /// What its turns may do at most.
    #[serde(default, skip_serializing_if = "Envelope::is_default")]
    pub envelope: Envelope,
    /// What it and everything under it may use at most.
    #[serde(default, skip_serializing_if = "Budget::is_empty")]
    pub budget: Budget,
    /// What it brings along.
    #[serde(default, skip_serializing_if = "Handed::is_empty")]
    pub handed: Handed,
    /// Paths that its session shows from its first turn on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<Load>,
    /// Where its output is written with the commit that completes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_path: Option<String>,
    /// JSON Schema of its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Value>,
}

impl JobHead {
    /// What might be done for it at most; `None` when that isn't known, of old ones.
    pub fn authority(&self) -> Option<&Authority> {
        self.request.as_ref().map(|request| &request.envelope.bound).or(self.bound.as_deref())
    }
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobResult {
    /// A terminal status.
    pub status: JobStatus,
    /// Of a complete job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Of any other: what went wrong, for the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Machine-readable reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<ErrorCode>,
    /// The output is a text that the model's limit of tokens cut off.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// Machine-readable reason of a job that did not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorCode {
    /// A limit on turns or time was reached.
    LimitReached,
    /// Its owner keeps as much as it may.
    QuotaExceeded,
    /// A budget of the request, or of one above it, is used up.
    BudgetExceeded,
    /// Its event killed its workers too often.
    Dead,
    /// Text without a completion, in `explicit` mode.
    NoCompletion,
    /// The outputs are typed, and the agent gave nothing that fits.
    OutputInvalid,
    /// The agent said that it failed.
    TaskFailed,
    /// The model provider refused for good.
    ModelError,
    /// The required context exceeds the budget.
    ContextOverflow,
    /// A required context entry is not there.
    ContextRequiredMissing,
    /// The request doesn't name the entities that it is about.
    EntityIdsRequired,
    /// The request sets values that are not its own to set.
    ContextOverrideDenied,
    /// A grant of the request breaks a rule.
    GrantInvalid,
    /// The request says of itself what only the venue says.
    Forged,
    /// No token, or one that counts for nothing.
    Unauthenticated,
    /// The token doesn't permit it.
    CapDenied,
    /// A placeholder has no value, and the configuration is strict.
    PlaceholderUnresolved,
    /// The caller ended it.
    Cancelled,
    /// The submission was refused.
    Refused,
    /// The same event id was used with another body.
    Conflict,
    /// Its task was lost, and the audit found it missing.
    Lost,
    /// It was begun, must not be repeated, and nobody knows whether it happened.
    OutcomeUnknown,
    /// Nothing keeps jobs for external workers.
    QueueUnavailable,
    /// Its external worker did not begin, gave no sign, or did not end in time.
    Timeout,
    /// A fault of the venue itself.
    Internal,
}

impl ErrorCode {
    /// The inverse of its spelling.
    pub fn parse(text: &str) -> Option<Self> {
        decode::typed(Value::String(text.to_ascii_uppercase())).ok()
    }
}

/// A job with everything known of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// What it is.
    pub head: JobHead,
    /// Where it stands.
    pub status: JobStatus,
    /// When that was decided.
    pub updated: Millis,
    /// How it ended.
    pub result: Option<JobResult>,
    /// What a worker has noted last of why it waits.
    pub waiting: Option<Waiting>,
    /// Why it does not go on now, where that was looked for.
    pub wait: Option<WaitReason>,
    /// Of a job of an external worker: how it stands with that one.
    pub outbound: Option<Watch>,
    /// What it has used itself; of jobs of older versions it isn't known.
    pub tally: Option<Tally>,
    /// What it and the jobs under it have used, where somebody has added it up.
    pub tree: Option<Tree>,
}

/// Why a job isn't being served, although it isn't finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// In words.
    pub reason: String,
    /// When it goes on; absent = when somebody lets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Millis>,
    /// What kind of reason it is.
    #[serde(default, skip_serializing_if = "WaitCause::is_other")]
    pub cause: WaitCause,
}

impl Waiting {
    /// The reason that the note stands for.
    pub fn to_reason(&self) -> WaitReason {
        WaitReason::Noted { cause: self.cause, text: self.reason.clone(), until: self.until }
    }
}

impl Job {
    /// It is shown as waiting for this from now on.
    pub fn tell_wait(&mut self, wait: WaitReason) {
        if matches!(wait, WaitReason::Suspended { .. }) {
            self.waiting = Some(Waiting { reason: wait.to_string(), until: None, cause: WaitCause::Other });
        }
        self.wait = Some(wait);
    }

    /// The record as the HTTP API and the command line show it.
    pub fn to_json(&self) -> Value {
        let mut record = serde_json::json!({
            "id": self.head.id,
            "op": self.head.op.as_deref().unwrap_or("v/ops/agent/request"),
            "status": self.status,
            "created": self.head.created,
            "updated": self.updated,
            "input": self.head.input,
        });
        if self.head.op.is_none() {
            record["agent"] = self.head.agent.as_str().into();
            record["session"] = self.head.session.as_str().into();
            record["event"] = self.head.event.as_str().into();
        }
        if let Some(caller) = &self.head.caller {
            record["caller"] = caller.clone().into();
        }
        if let Some(parent) = self.head.parent.as_ref().and_then(|p| p.job.as_ref()) {
            record["parent"] = parent.as_str().into();
        }
        if let Some(dead) = &self.head.redrive_of {
            record["redriveOf"] = dead.as_str().into();
        }
        if !self.head.priority.is_normal() {
            record["priority"] = i64::from(self.head.priority).into();
        }
        if !self.head.ignored.is_empty() {
            record["ignored"] = serde_json::json!({"sessionContext": self.head.ignored});
        }
        let waits = !self.status.is_terminal() && self.status != JobStatus::Paused;
        // Who has paused it last says nothing of one that goes on.
        let noted = self.waiting.as_ref().filter(|note| waits && note.cause != WaitCause::Paused);
        let noted = noted.map(Waiting::to_reason);
        if let Some(wait) = self.wait.as_ref().or(noted.as_ref()) {
            record["waiting"] = wait.to_json();
        }
        if let Some(outbound) = &self.outbound {
            record["outbound"] = outbound.shown();
        }
        if let Some(spend) = spend::shown(self.tally.as_ref(), self.tree.as_ref()) {
            record["spend"] = spend;
        }
        if let Some(result) = &self.result {
            if let Some(output) = &result.output {
                record["output"] = output.clone();
            }
            if result.truncated {
                record["truncated"] = true.into();
            }
            if let Some(error) = &result.error {
                record["error"] = error.clone().into();
            }
            if let Some(code) = result.error_code {
                record["errorCode"] = serde_json::to_value(code).unwrap_or_default();
            }
        }
        record
    }
}

impl JobResult {
    /// A complete one.
    pub const fn complete(output: Value) -> Self {
        Self { status: JobStatus::Complete, output: Some(output), error: None, error_code: None, truncated: false }
    }

    /// One that did not complete.
    pub fn ended(status: JobStatus, code: ErrorCode, error: impl Into<String>) -> Self {
        Self { status, output: None, error: Some(error.into()), error_code: Some(code), truncated: false }
    }

    /// A failed one.
    pub fn failed(code: ErrorCode, error: impl Into<String>) -> Self {
        Self::ended(JobStatus::Failed, code, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_round_trip_and_agree_with_serde() {
        for status in JobStatus::ALL {
            assert_eq!(JobStatus::parse(status.as_str()), Some(status));
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
    }
}
