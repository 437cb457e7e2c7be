//! The calls of a reply: target and arguments of each, or the reason why it can't be made, and its outcome.

use crate::a2a::name::agent_of_path;
use crate::external::PUBLISH;
use crate::ids::JobId;
use crate::lattice::catalog::{DECLARED_JOBS, catalog_path, is_run};
use crate::limits::JOB_DEPTH;
use crate::mcp::name::{TOOLS_CALL, TOOLS_CALL_ALIAS, called_tool};
use crate::scope::{Delegate, ScopedSection};
use crate::time::Millis;
use crate::values::inject::Injection;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// One tool call of a reply, resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedCall {
    /// Id of the call, given by the provider.
    pub id: String,
    /// Name by which the model called the tool.
    pub tool: String,
    /// Target and arguments, or why the call can't be made.
    pub what: Result<ResolvedCall, CallRefusal>,
    /// Arguments that the runtime fills in, as they were when the reply came; the model never sees them.
    #[serde(default, skip_serializing_if = "Injection::is_empty")]
    pub injection: Injection,
    /// Instance that the call is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Sections of the context that go with the call, as the prompt showed them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scoped: Vec<ScopedSection>,
    /// The published operation that the call runs, as the turn was offered it; absent for compiled operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<PublishedVersion>,
}

/// A published operation in one of its versions. A call that was decided on one version is never made with another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedVersion {
    /// Catalogue path of the operation.
    pub path: String,
    /// Version of its publication.
    pub version: String,
}

/// Marks that a call with an effect carries outside the venue, by which both sides find it in their records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SentMarks {
    /// Value of `Idempotency-Key`; absent for a run without a key, and where the author of the call has set that header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Value of `traceparent`, as the Trace Context of the W3C has it.
    pub traceparent: String,
    /// Value of `Trellis-Job`: the job that the call was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
}

/// Returns the value of `traceparent` from hexadecimal digits, of which 32 name the trace and 16 the call. It says that
/// the call is recorded: the ledger has it.
pub fn trace_context(trace: &str, span: &str) -> String {
    let digits = |text: &str, count: usize| text.chars().chain("1".chars().cycle()).take(count).collect::<String>();
    format!("00-{}-{}-01", digits(trace, 32), digits(span, 16))
}

impl PlannedCall {
    /// Returns the operation as records name it: a path of the catalogue, `g/<agent>`, or the tool of a resource.
    pub fn operation(&self) -> String {
        match self.what.as_ref().ok().map(|resolved| &resolved.target) {
            Some(ToolTarget::Delegate(Delegate { agent: Some(agent), .. })) => format!("g/{agent}"),
            target => target.and_then(ToolTarget::operation).unwrap_or(&self.tool).to_owned(),
        }
    }
}

/// A call that can be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResolvedCall {
    /// Target of the call.
    pub target: ToolTarget,
    /// Arguments of the call.
    pub arguments: Value,
}

/// Target of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolTarget {
    /// Invokes the operation at a path of the catalogue.
    Operation(String),
    /// Uses a resource of the agent.
    Resource {
        /// Name of the resource in the configuration.
        resource: String,
        /// Name of the tool within the resource's provider.
        tool: String,
    },
    /// Completes the open task.
    Complete,
    /// Fails the open task.
    Fail,
    /// Shows a path from the next turn on.
    Load,
    /// Stops showing a path.
    Unload,
    /// Finds operations that are not offered yet.
    MoreTools,
    /// Opens a goal with a conversation of its own.
    Subgoal,
    /// Ends the goal, or the open task, with its input as the result.
    CompleteGoal,
    /// Fails the goal, or the open task.
    FailGoal,
    /// Replaces the turns so far by a summary.
    Compact,
    /// Starts a child job.
    Delegate(Delegate),
    /// Runs nothing: the arguments are the result. Holds the sections that the model must read for it.
    Latent(Vec<String>),
}

impl ToolTarget {
    /// Returns the path of the operation that it invokes.
    pub fn operation(&self) -> Option<&str> {
        match self {
            Self::Operation(path) => Some(path),
            Self::Complete
            | Self::Fail
            | Self::Load
            | Self::Unload
            | Self::MoreTools
            | Self::Subgoal
            | Self::CompleteGoal
            | Self::FailGoal
            | Self::Compact
            | Self::Delegate(_)
            | Self::Latent(_)
            | Self::Resource { .. } => None,
        }
    }
}

/// Start of the turn of a reply. The key under which it is stored says which time the ids of the reply's calls contain.
/// A successor of another build makes the same ids or can't read the record, so that nothing is sent twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplyStart {
    /// The reply was recorded by a build whose ids leave the start out.
    #[serde(rename = "start")]
    Undated(Millis),
    /// The ids contain the start. So does the record of a build before [`ReplyStart::Served`].
    #[serde(rename = "began")]
    Dated(Millis),
    /// The ids contain when the event that the turn serves came in. A session that begins anew under its name makes other
    /// ids; a turn that is run again because the store lost it makes the same.
    #[serde(rename = "serves")]
    Served {
        /// Start of the turn.
        start: Millis,
        /// Time at which the event came in.
        received: Millis,
    },
}

impl ReplyStart {
    /// Returns the time of the start.
    pub const fn time(self) -> Millis {
        match self {
            Self::Undated(start) | Self::Dated(start) | Self::Served { start, .. } => start,
        }
    }

    /// Returns when the event that the turn serves came in, if that is known.
    pub const fn received_at(self) -> Option<Millis> {
        match self {
            Self::Undated(_) | Self::Dated(_) => None,
            Self::Served { received, .. } => Some(received),
        }
    }

    /// Returns the time that the ids of the reply's calls contain, if they do.
    pub const fn time_in_ids(self) -> Option<Millis> {
        match self {
            Self::Undated(_) => None,
            Self::Dated(time) | Self::Served { received: time, .. } => Some(time),
        }
    }
}

/// The turn whose reply has the calls that are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyTurn {
    /// Number of the turn in its session.
    pub number: u64,
    /// Start of that turn.
    pub start: ReplyStart,
}

/// Effect of a call elsewhere, which counts against the limits of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEffect {
    /// A child job whose result is awaited.
    Child,
    /// A message or a timer.
    Notice,
}

/// Returns the effect of a call elsewhere, if it has one.
pub fn call_effect(call: &PlannedCall) -> Option<CallEffect> {
    let Ok(ResolvedCall { target, arguments }) = &call.what else { return None };
    if matches!(target, ToolTarget::Delegate(_)) {
        return Some(CallEffect::Child);
    }
    operation_effect(&innermost_operation(target.operation()?, arguments))
}

/// Returns the path of the operation that a call of `path` runs in the end, whether it exists or not.
pub fn innermost_operation(path: &str, arguments: &Value) -> String {
    let (mut path, mut arguments) = (path.to_owned(), arguments);
    for _ in 0..=JOB_DEPTH {
        if [TOOLS_CALL, TOOLS_CALL_ALIAS].contains(&path.as_str()) {
            let Some(tool) = called_tool(arguments) else { break };
            (path, arguments) = (tool, &arguments["arguments"]);
            continue;
        }
        if !is_run(&path) {
            break;
        }
        path = catalog_path(arguments["operation"].as_str().unwrap_or_default());
        arguments = &arguments["input"];
    }
    path
}

/// Returns the effect elsewhere of a call of the operation at this path of the catalogue.
pub fn operation_effect(path: &str) -> Option<CallEffect> {
    match path {
        "v/ops/agent/request" | PUBLISH => Some(CallEffect::Child),
        path if path.starts_with(DECLARED_JOBS) || agent_of_path(path).is_some() => Some(CallEffect::Child),
        "v/ops/agent/message" | "v/ops/agent/chat" | "v/ops/agent/trigger" | "v/ops/scheduler/schedule" => {
            Some(CallEffect::Notice)
        }
        _ => None,
    }
}

/// Kind of a call's outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// The call returned a value.
    Ok,
    /// The call failed.
    Error,
    /// A capability was missing, or the operation is not for this request.
    Denied,
    /// No tool has this name.
    Unknown,
    /// The call named sections of the context that may not be handed on.
    Scope,
    /// The arguments don't fit the tool.
    Arguments,
    /// A limit is reached: of children, loads, goals, or of what is handed on.
    Limit,
    /// The task was cancelled before or during the call.
    Cancelled,
    /// The call began, and a crash or a broken answer hides whether it took effect.
    OutcomeUnknown,
    /// The call waits for a person's approval.
    Awaiting,
    /// A person rejected the call, or nobody answered in time.
    Rejected,
}

impl Outcome {
    /// Whether the call was made, or waits for it.
    pub const fn is_made(self) -> bool {
        match self {
            // An operation may have read something before it refused its arguments.
            Self::Ok | Self::Error | Self::Arguments | Self::Limit | Self::OutcomeUnknown | Self::Awaiting => true,
            Self::Denied | Self::Unknown | Self::Scope | Self::Cancelled | Self::Rejected => false,
        }
    }

    /// Returns the word of the timeline.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Denied => "denied",
            Self::Unknown => "unknown tool",
            Self::Scope => "refused scope",
            Self::Arguments => "bad arguments",
            Self::Limit => "limit reached",
            Self::Cancelled => "cancelled",
            Self::OutcomeUnknown => "outcome unknown",
            Self::Awaiting => "awaiting approval",
            Self::Rejected => "rejected",
        }
    }
}

/// Reason why a call can't be made, as the model gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredRefusal")]
pub struct CallRefusal {
    /// Kind of the reason.
    pub outcome: Outcome,
    /// Text that says what is wrong and what to do.
    pub text: String,
}

/// Stored form: older builds stored the text alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredRefusal {
    Text(String),
    Reason { outcome: Outcome, text: String },
}

impl From<StoredRefusal> for CallRefusal {
    fn from(kept: StoredRefusal) -> Self {
        match kept {
            StoredRefusal::Text(text) => Self { outcome: Outcome::Unknown, text },
            StoredRefusal::Reason { outcome, text } => Self { outcome, text },
        }
    }
}

impl CallRefusal {
    /// Makes a reason of an outcome and a text.
    pub fn new(outcome: Outcome, text: impl Into<String>) -> Self {
        Self { outcome, text: text.into() }
    }

    /// Makes a reason for arguments that don't fit.
    pub fn arguments(text: impl fmt::Display) -> Self {
        Self::new(Outcome::Arguments, text.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_reason_reads_back_also_from_older_records() {
        for (outcome, word, kept) in [
            (Outcome::Unknown, "unknown tool", "unknown"),
            (Outcome::Denied, "denied", "denied"),
            (Outcome::Scope, "refused scope", "scope"),
            (Outcome::Arguments, "bad arguments", "arguments"),
            (Outcome::Limit, "limit reached", "limit"),
            (Outcome::Cancelled, "cancelled", "cancelled"),
            (Outcome::Rejected, "rejected", "rejected"),
        ] {
            let unmade = CallRefusal::new(outcome, "why");
            assert_eq!((outcome.as_str(), json!(unmade)), (word, json!({"outcome": kept, "text": "why"})));
            assert_eq!(serde_json::from_value::<CallRefusal>(json!(unmade)).unwrap(), unmade);
        }
        let old: Result<(), CallRefusal> = serde_json::from_value(json!({"Err": "unknown tool `x`"})).unwrap();
        assert_eq!(old, Err(CallRefusal::new(Outcome::Unknown, "unknown tool `x`")));
    }

    #[test]
    fn a_trace_has_its_digits_and_a_declared_job_is_a_child() {
        let context = trace_context(&"ab".repeat(32), &"cd".repeat(32));
        assert_eq!(context, format!("00-{}-{}-01", "ab".repeat(16), "cd".repeat(8)));
        assert_eq!(trace_context("0", "").len(), context.len());
        assert_eq!(operation_effect("v/ops/jobs/ocr"), Some(CallEffect::Child));
        assert_eq!(operation_effect("v/ops/a2a/weather/send"), Some(CallEffect::Child));
        assert_eq!(operation_effect("v/ops/own/refund"), None);
    }

    #[test]
    fn the_key_of_a_replys_start_has_the_parts_of_its_ids() {
        for (start, stored, in_ids) in [
            (ReplyStart::Undated(Millis(7)), json!({"start": 7}), None),
            (ReplyStart::Dated(Millis(7)), json!({"began": 7}), Some(Millis(7))),
            (
                ReplyStart::Served { start: Millis(7), received: Millis(5) },
                json!({"serves": {"start": 7, "received": 5}}),
                Some(Millis(5)),
            ),
        ] {
            assert_eq!(serde_json::to_value(start).unwrap(), stored);
            assert_eq!(serde_json::from_value::<ReplyStart>(stored).unwrap(), start);
            assert_eq!((start.time(), start.time_in_ids()), (Millis(7), in_ids));
        }
    }
}
