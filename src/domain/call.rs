//! The calls of a reply: what each runs, with what, or why it can't be made, and what it came to.

use crate::external::PUBLISH;
use crate::lattice::catalog::{catalog_path, runs_another};
use crate::limits::JOB_DEPTH;
use crate::scope::{Delegate, ScopedSection};
use crate::time::Millis;
use crate::values::inject::Injection;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One tool call of a reply, resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedCall {
    /// The provider's id of it.
    pub id: String,
    /// The name that the model used.
    pub tool: String,
    /// What it is, or why it is nothing.
    pub what: Result<Resolved, Unmade>,
    /// What the runtime fills in, as it was when the reply came; the model never sees it.
    #[serde(default, skip_serializing_if = "Injection::is_empty")]
    pub injection: Injection,
    /// The instance that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// What of the context goes with it, as the prompt showed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scoped: Vec<ScopedSection>,
}

impl PlannedCall {
    /// Its operation, as records name it: a catalog path, `g/<agent>`, or the tool of a resource.
    pub fn operation(&self) -> String {
        match self.what.as_ref().ok().map(|resolved| &resolved.target) {
            Some(ToolTarget::Delegate(Delegate { agent: Some(agent), .. })) => format!("g/{agent}"),
            target => target.and_then(ToolTarget::operation).unwrap_or(&self.tool).to_owned(),
        }
    }
}

/// A call that can be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resolved {
    /// What it does.
    pub target: ToolTarget,
    /// With what.
    pub arguments: Value,
}

/// What a tool call does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolTarget {
    /// Invokes an operation.
    Operation(String),
    /// Uses a resource of the agent.
    Resource {
        /// Its name in the configuration.
        resource: String,
        /// The provider's name of the tool.
        tool: String,
    },
    /// Completes the open task.
    Complete,
    /// Fails the open task.
    Fail,
    /// Shows a path from the next turn on.
    Load,
    /// Shows it no longer.
    Unload,
    /// Finds operations that are not offered yet.
    MoreTools,
    /// Opens a goal with a conversation of its own.
    Subgoal,
    /// Ends the goal, or the open task, with its input as the result.
    CompleteGoal,
    /// Fails the goal, or the open task.
    FailGoal,
    /// Puts a summary in the place of the turns so far.
    Compact,
    /// Starts a child job.
    Delegate(Delegate),
    /// Nothing: the arguments are the result. With the sections that the model looks at for it.
    Latent(Vec<String>),
}

impl ToolTarget {
    /// The catalog path of the operation that it invokes.
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

/// Start of the turn of a reply. The key that it is stored under says what the ids of the reply's calls are made from:
/// a successor of another build sends nothing twice, for it makes the same ids or can't read the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplyStart {
    /// Recorded by a build whose ids leave the start out.
    #[serde(rename = "start")]
    Undated(Millis),
    /// The ids have the start in them: a session that begins anew under its name has others.
    #[serde(rename = "began")]
    Dated(Millis),
}

impl ReplyStart {
    /// The time itself.
    pub const fn time(self) -> Millis {
        match self {
            Self::Undated(start) | Self::Dated(start) => start,
        }
    }

    /// The part that it has in the ids of the reply's calls.
    pub const fn in_ids(self) -> Option<Millis> {
        match self {
            Self::Undated(_) => None,
            Self::Dated(start) => Some(start),
        }
    }
}

/// The turn whose reply has the calls that are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyTurn {
    /// Its number in the session.
    pub number: u64,
    /// Start of that turn, with the part that it has in ids.
    pub start: ReplyStart,
}

/// What a call causes elsewhere: it counts against the limits of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Causes {
    /// A child job, whose result is awaited.
    Child,
    /// A message or a timer.
    Notice,
}

/// What a call causes elsewhere, if anything.
pub fn causes(call: &PlannedCall) -> Option<Causes> {
    let Ok(Resolved { target, arguments }) = &call.what else { return None };
    if matches!(target, ToolTarget::Delegate(_)) {
        return Some(Causes::Child);
    }
    caused_by(target.operation()?, arguments)
}

fn caused_by(path: &str, arguments: &Value) -> Option<Causes> {
    let (mut path, mut arguments) = (path.to_owned(), arguments);
    for _ in 0..=JOB_DEPTH {
        if !runs_another(&path) {
            break;
        }
        path = catalog_path(arguments["operation"].as_str().unwrap_or_default());
        arguments = &arguments["input"];
    }
    causes_of(&path)
}

/// What a call of the operation at this catalog path causes elsewhere.
pub fn causes_of(path: &str) -> Option<Causes> {
    match path {
        "v/ops/agent/request" | PUBLISH => Some(Causes::Child),
        "v/ops/agent/message" | "v/ops/agent/chat" | "v/ops/agent/trigger" | "v/ops/scheduler/schedule" => {
            Some(Causes::Notice)
        }
        _ => None,
    }
}

/// Kind of a call's outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// It returned.
    Ok,
    /// It failed.
    Error,
    /// A capability was missing, or the operation is not for this request.
    Denied,
    /// There is no such tool.
    Unknown,
    /// It asked for sections of the context that it may not hand on.
    Scope,
    /// Its arguments are not what the tool takes.
    Arguments,
    /// A limit is reached: of children, loads, goals, or of what is handed on.
    Limit,
    /// The task was cancelled before or while it ran.
    Cancelled,
    /// It began and a crash, or a broken answer, keeps whether it happened from being known.
    OutcomeUnknown,
    /// A person is asked first.
    Awaiting,
    /// A person has said no, or nobody said anything in time.
    Rejected,
}

impl Outcome {
    /// The call was made, or waits to be.
    pub const fn is_made(self) -> bool {
        match self {
            // An operation may have looked before it refused what it was given.
            Self::Ok | Self::Error | Self::Arguments | Self::Limit | Self::OutcomeUnknown | Self::Awaiting => true,
            Self::Denied | Self::Unknown | Self::Scope | Self::Cancelled | Self::Rejected => false,
        }
    }

    /// As it stands in the timeline.
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

/// Why a call can't be made: what a model is told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Kept")]
pub struct Unmade {
    /// The kind of reason.
    pub outcome: Outcome,
    /// What was wrong, and what to do.
    pub text: String,
}

/// Older versions kept the text alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum Kept {
    Text(String),
    Reason { outcome: Outcome, text: String },
}

impl From<Kept> for Unmade {
    fn from(kept: Kept) -> Self {
        match kept {
            Kept::Text(text) => Self { outcome: Outcome::Unknown, text },
            Kept::Reason { outcome, text } => Self { outcome, text },
        }
    }
}

impl Unmade {
    /// For this reason.
    pub fn new(outcome: Outcome, text: impl Into<String>) -> Self {
        Self { outcome, text: text.into() }
    }

    /// For arguments that don't fit.
    pub fn arguments(text: impl Into<String>) -> Self {
        Self::new(Outcome::Arguments, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_reason_has_its_word_and_reads_back_also_from_older_records() {
        for (outcome, word, kept) in [
            (Outcome::Unknown, "unknown tool", "unknown"),
            (Outcome::Denied, "denied", "denied"),
            (Outcome::Scope, "refused scope", "scope"),
            (Outcome::Arguments, "bad arguments", "arguments"),
            (Outcome::Limit, "limit reached", "limit"),
            (Outcome::Cancelled, "cancelled", "cancelled"),
            (Outcome::Rejected, "rejected", "rejected"),
        ] {
            let unmade = Unmade::new(outcome, "why");
            assert_eq!((outcome.as_str(), json!(unmade)), (word, json!({"outcome": kept, "text": "why"})));
            assert_eq!(serde_json::from_value::<Unmade>(json!(unmade)).unwrap(), unmade);
        }
        let old: Result<(), Unmade> = serde_json::from_value(json!({"Err": "unknown tool `x`"})).unwrap();
        assert_eq!(old, Err(Unmade::new(Outcome::Unknown, "unknown tool `x`")));
    }

    #[test]
    fn the_key_of_a_replys_start_says_what_ids_are_made_from() {
        for (start, stored, in_ids) in [
            (ReplyStart::Undated(Millis(7)), json!({"start": 7}), None),
            (ReplyStart::Dated(Millis(7)), json!({"began": 7}), Some(Millis(7))),
        ] {
            assert_eq!(serde_json::to_value(start).unwrap(), stored);
            assert_eq!(serde_json::from_value::<ReplyStart>(stored).unwrap(), start);
            assert_eq!((start.time(), start.in_ids()), (Millis(7), in_ids));
        }
    }
}
