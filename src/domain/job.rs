//! Jobs: the handle of a task or of an outbound call, its statuses and its legal transitions.

pub mod watch;

use crate::authority::Authority;
use crate::authority::envelope::Envelope;
use crate::authority::trail::Trail;
use crate::budget::Budget;
use crate::decode;
use crate::ids::SessionKey;
use crate::ids::{AgentId, EventId, JobId, SessionId};
use crate::job::watch::ExternalWatch;
use crate::load::Load;
use crate::priority::Priority;
use crate::scope::DelegateContext;
use crate::spend::{JobTreeUse, Tally};
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
    /// Refused at its admission; there is an error.
    Rejected,
    /// Held by an operator.
    Paused,
    /// Waits for a person.
    InputRequired,
    /// Waits for a credential.
    AuthRequired,
}

impl JobStatus {
    /// Every status, in the order of a job's life; waiting ones last.
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

    /// Returns the spelling in storage, in requests and in answers.
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

    /// Parses the spelling of [`JobStatus::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == text)
    }

    /// Whether the job goes on only after an answer.
    pub const fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }

    /// Whether the status is final.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Complete | Self::Failed | Self::Cancelled | Self::Rejected => true,
            Self::Pending | Self::Started | Self::Paused | Self::InputRequired | Self::AuthRequired => false,
        }
    }
}

/// Session of the turn that started a child job; the result returns there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Parent {
    /// Session that waits for the result.
    #[serde(flatten)]
    pub session: SessionKey,
    /// Task that the turn served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
}

/// Head of a job, written once when the job is opened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobHead {
    /// Id of the job.
    pub id: JobId,
    /// Id of the event that opened it, given by the producer.
    pub event: EventId,
    /// Path of the operation that it runs, when it is not a request to an agent. Then `session` has no meaning, and
    /// `agent` is only the name under which it is reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// The agent that serves it.
    pub agent: AgentId,
    /// The session that serves it.
    pub session: SessionId,
    /// Caller: an owner, or `agent:<id>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// Input of the task.
    pub input: Value,
    /// Mark of an input with hidden parts: it identifies a repeated request and reveals nothing, see
    /// [`crate::invocation::input_mark`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<String>,
    /// Time of acceptance.
    pub created: Millis,
    /// Session of the turn that started it, which gets the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// NATS subject that the completion is published to besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Dead job that this one redrives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redrive_of: Option<JobId>,
    /// Priority among the jobs of its agent.
    #[serde(default, skip_serializing_if = "Priority::is_normal")]
    pub priority: Priority,
    /// Mark of the caller's [`crate::principal::Principal`], who may read the job. It is never shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// Other parts of the task's submission: from them a task is restored whose mailbox entry was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Box<TaskRequest>>,
    /// Upper bound of what a run of an operation may do. For a task its request holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Box<Authority>>,
    /// Keys of its `sessionContext` that were ignored, because the token sets their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
    /// Holders and grants under which it runs.
    #[serde(default, skip_serializing_if = "Trail::is_empty")]
    pub under: Trail,
}

/// Parts of a task's submission besides its input. Values of a `sessionContext` are not among them: they are stored
/// with the task alone, and deleted with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskRequest {
    /// Hash of the body, which identifies a repeated submission.
    pub body_hash: String,
    /// Hash of the body without its `replyTo`; absent where it had none, and in records of older builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_hash: Option<String>,
    /// Whether the submission had values, without which it can't be restored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub had_values: bool,
    /// Shared buckets that its turns see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context_ids: Vec<String>,
    /// Upper bound of what its turns may do.
    #[serde(default, skip_serializing_if = "Envelope::is_default")]
    pub envelope: Envelope,
    /// Budget of the task and of everything under it.
    #[serde(default, skip_serializing_if = "Budget::is_empty")]
    pub budget: Budget,
    /// Sections of the caller's context that it got.
    #[serde(default, skip_serializing_if = "DelegateContext::is_empty")]
    pub handed: DelegateContext,
    /// Paths that its session shows from its first turn on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<Load>,
    /// Path at which the commit that completes it writes its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_path: Option<String>,
    /// JSON Schema of its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Value>,
}

impl JobHead {
    /// Whether both heads are of one request, wherever its answer shall go.
    pub fn asks_the_same(&self, other: &Self) -> bool {
        let asked = |head: &Self| {
            let request = head.request.as_ref()?;
            let whole = head.reply_to.is_none().then(|| request.body_hash.clone());
            request.asked_hash.clone().or(whole)
        };
        asked(self).is_some_and(|own| asked(other) == Some(own))
    }

    /// Returns the upper bound of what might be done for it; `None` for jobs of old builds.
    pub fn authority(&self) -> Option<&Authority> {
        self.request.as_ref().map(|request| &request.envelope.bound).or(self.bound.as_deref())
    }
}

/// Result of a job that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobResult {
    /// Status of the job, a terminal one.
    pub status: JobStatus,
    /// Output of a complete job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Error text for the caller, of any other job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Error code for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<ErrorCode>,
    /// Whether the output is a text that the model's limit of tokens cut off.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// Machine-readable reason of a job that did not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorCode {
    /// A limit on turns or time was reached.
    LimitReached,
    /// The quota of its owner is reached.
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
    /// The request holds statements that only the venue may make.
    Forged,
    /// The request has no token, or an invalid one.
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
    /// Parses the name of a code, in upper or lower case.
    pub fn parse(text: &str) -> Option<Self> {
        decode::into_type(Value::String(text.to_ascii_uppercase())).ok()
    }
}

/// A job with all facts of it that were read.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Head of the job.
    pub head: JobHead,
    /// Status of the job.
    pub status: JobStatus,
    /// Time of the last change of the status.
    pub updated: Millis,
    /// Result, once the job has ended.
    pub result: Option<JobResult>,
    /// Last note of a worker about why it waits.
    pub waiting: Option<WaitNote>,
    /// Current reason why it doesn't run, where it was looked for.
    pub wait: Option<WaitReason>,
    /// Watch of a job of an external worker.
    pub outbound: Option<ExternalWatch>,
    /// Amounts that it has used itself; unknown for jobs of older builds.
    pub tally: Option<Tally>,
    /// Sums of what it and the jobs under it have used, where they were computed.
    pub tree: Option<JobTreeUse>,
}

/// Reason why an unfinished job isn't being served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitNote {
    /// Reason in words.
    pub reason: String,
    /// Time at which it runs again; absent = when somebody resumes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Millis>,
    /// Kind of the reason.
    #[serde(default, skip_serializing_if = "WaitCause::is_other")]
    pub cause: WaitCause,
}

impl WaitNote {
    /// Returns the reason that the note stands for.
    pub fn to_reason(&self) -> WaitReason {
        WaitReason::Noted { cause: self.cause, text: self.reason.clone(), until: self.until }
    }
}

impl Job {
    /// Sets the reason that the job is shown with.
    pub fn set_wait(&mut self, wait: WaitReason) {
        if matches!(wait, WaitReason::Suspended { .. }) {
            self.waiting = Some(WaitNote { reason: wait.to_string(), until: None, cause: WaitCause::Other });
        }
        self.wait = Some(wait);
    }
}

impl JobResult {
    /// Makes the result of a complete job.
    pub const fn complete(output: Value) -> Self {
        Self { status: JobStatus::Complete, output: Some(output), error: None, error_code: None, truncated: false }
    }

    /// Makes the result of a job that did not complete.
    pub fn unsuccessful(status: JobStatus, code: ErrorCode, error: impl Into<String>) -> Self {
        Self { status, output: None, error: Some(error.into()), error_code: Some(code), truncated: false }
    }

    /// Makes the result of a failed job.
    pub fn failure(code: ErrorCode, error: impl Into<String>) -> Self {
        Self::unsuccessful(JobStatus::Failed, code, error)
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
