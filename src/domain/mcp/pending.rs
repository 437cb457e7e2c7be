//! Calls of tools that go on after their turn: what is stored of one, and its next step.
//!
//! ```text
//! call ─▶ task ─────────asked for again and again─────────▶ result
//!   │      └─▶ question ─▶ answer of a person ─▶ sent ─▶ task
//!   └─▶ question ─▶ answer of a person ─▶ the call is made again with it ─▶ result, task or question
//!                                           └─ its process died: made again if that is harmless, else OUTCOME_UNKNOWN
//! ```

use crate::ids::{AgentId, JobId, sha256_hex};
use crate::limits::{MCP_POLL_RANGE, MCP_TASK_RETRY_PAUSES};
use crate::mcp::input::InputRound;
use crate::mcp::name::ServerName;
use crate::mcp::revision::ProtocolEra;
use crate::mcp::task::TaskHandle;
use crate::time::{Millis, doubled_pause};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;

/// Operation in the head of a job that stands for a call which goes on. Nobody can invoke it.
pub const PENDING_CALL: &str = "v/ops/mcp/call";

/// Divisor of a task's age: so long at least is the pause before the server is asked for it again.
const POLL_PART: u32 = 20;

/// Hexadecimal digits of the idempotency key of a call that is made again with answers.
const KEY_DIGITS: usize = 32;

/// A call of a tool that goes on. It is written before each step that can't be undone, and nobody but workers reads it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingToolCall {
    /// The call as the turn has made it.
    pub call: StartedToolCall,
    /// Session of the server in which its task is; absent in the revision without a handshake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<McpTaskSession>,
    /// State of the call.
    pub phase: PendingPhase,
    /// Rounds of questions so far.
    #[serde(default)]
    pub rounds: u32,
    /// Keys of the task's questions that have an answer: a task may show them a little longer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answered: Vec<String>,
    /// Requests in a row that have failed.
    #[serde(default)]
    pub failures: u32,
    /// Time since which the server works, as far as a worker has seen it.
    #[serde(default)]
    pub begun: Millis,
    /// Time from which the server isn't asked any more while it works; a person has a time of his own.
    pub deadline: Millis,
}

/// A call as its turn has made it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartedToolCall {
    /// Name of the server.
    pub server: ServerName,
    /// Agent of this venue that has declared it; absent for one that the venue names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared_by: Option<AgentId>,
    /// Hash of the place that the call was decided for: it goes to no other one.
    pub place: String,
    /// Name of the tool at the server.
    pub tool: String,
    /// Name by which the model called it.
    pub called: String,
    /// Turn of the call.
    pub turn: u64,
    /// Position of the call in its reply.
    pub index: u32,
    /// Arguments of the call.
    pub arguments: Value,
    /// Whether it may be made again after a crash.
    pub is_repeatable: bool,
    /// Marks of a call with an effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marks: Option<CallMarks>,
}

/// Marks with which a call leaves the venue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallMarks {
    /// Value of `Idempotency-Key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Value of `traceparent`.
    pub traceparent: String,
    /// Value of `Trellis-Job`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
}

/// Session of a server, as every process can go on with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpTaskSession {
    /// Id of the session; servers without state have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Revision that was agreed on.
    pub revision: String,
}

/// State of a call that goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PendingPhase {
    /// The server works on a task.
    #[serde(rename_all = "camelCase")]
    Working {
        /// Id of the task.
        task: String,
        /// Milliseconds until the next look.
        poll_ms: u64,
    },
    /// A person is asked.
    #[serde(rename_all = "camelCase")]
    Asking {
        /// What the server wants to know.
        round: InputRound,
        /// Task that asks; absent if the call itself does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<String>,
        /// Approval that holds the question, and its end; absent before it is stored.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approval: Option<AskedApproval>,
    },
    /// The answers go to the server.
    #[serde(rename_all = "camelCase")]
    Answering {
        /// Responses by the keys of the server.
        responses: Map<String, Value>,
        /// State of the server that goes with them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<String>,
        /// Task that gets them; absent if the call is made again with them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<String>,
        /// Time since which the call, or the task's answers, may have left; absent before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sending: Option<Millis>,
    },
}

/// An approval that holds a server's question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedApproval {
    /// Id of the approval.
    pub id: JobId,
    /// Time from which an approval without an answer counts as denied.
    pub expires: Millis,
}

impl PendingPhase {
    /// Makes the phase of a task that the server works on.
    pub fn of_task(task: TaskHandle) -> Self {
        let TaskHandle { id, poll } = task;
        Self::Working { task: id, poll_ms: u64::try_from(poll.as_millis()).unwrap_or(u64::MAX) }
    }

    /// Makes the phase of questions; `task` asks them, or else the call itself. A server that asks nothing only wants the
    /// call again.
    pub fn of_round(round: InputRound, task: Option<String>) -> Self {
        if round.requests.is_empty() {
            return Self::Answering { responses: Map::new(), state: round.state, task, sending: None };
        }
        Self::Asking { round, task, approval: None }
    }
}

impl PendingToolCall {
    /// Returns the revision in which the server is asked.
    pub const fn era(&self) -> ProtocolEra {
        if self.session.is_some() { ProtocolEra::Handshake } else { ProtocolEra::Stateless }
    }

    /// Returns the task of the server, if there is one.
    pub fn task(&self) -> Option<&str> {
        match &self.phase {
            PendingPhase::Working { task, .. } => Some(task),
            PendingPhase::Asking { task, .. } | PendingPhase::Answering { task, .. } => task.as_deref(),
        }
    }

    /// Returns the approval that is open, if a person is asked.
    pub const fn approval(&self) -> Option<&AskedApproval> {
        match &self.phase {
            PendingPhase::Asking { approval, .. } => approval.as_ref(),
            PendingPhase::Working { .. } | PendingPhase::Answering { .. } => None,
        }
    }

    /// Whether the call may have been made again of which no answer has come, and must not be made once more.
    pub const fn is_in_doubt(&self) -> bool {
        let has_left = matches!(&self.phase, PendingPhase::Answering { task: None, sending: Some(_), .. });
        has_left && !self.call.is_repeatable
    }

    /// Whether the call may have had an effect of which nobody learns if it ends now, without an answer: it has left and must
    /// not be repeated, or it is a task that may go on. `is_cancelled`: the server has taken the cancellation of its task.
    pub fn may_have_effect(&self, is_cancelled: bool) -> bool {
        let goes_on = self.task().is_some() && !is_cancelled && !self.call.is_repeatable;
        self.is_in_doubt() || goes_on
    }

    /// Whether the server may not be asked any more. A person who is asked has a time of his own.
    pub fn is_late(&self, now: Millis) -> bool {
        now >= self.deadline && !matches!(self.phase, PendingPhase::Asking { .. })
    }

    /// Returns a pause that ends at the deadline, if that is sooner.
    pub fn limit_pause(&self, now: Millis, pause: Duration) -> Duration {
        match self.phase {
            PendingPhase::Asking { .. } => pause,
            PendingPhase::Working { .. } | PendingPhase::Answering { .. } => {
                pause.min(self.deadline.elapsed_since(now).max(Duration::from_millis(1)))
            }
        }
    }

    /// Returns the pause before the next look at a task; `asked` is what the server asks for. It grows with the age of the
    /// task, since a server may ask for looks twice a second for a day.
    pub fn poll_pause(&self, now: Millis, asked: Duration) -> Duration {
        asked.max(now.elapsed_since(self.begun) / POLL_PART).min(*MCP_POLL_RANGE.end())
    }

    /// Returns the call in another phase.
    #[must_use]
    pub fn in_phase(self, phase: PendingPhase) -> Self {
        Self { phase, failures: 0, ..self }
    }

    /// Returns the call as its answers may have left.
    #[must_use]
    pub fn mark_as_sent(mut self, now: Millis) -> Self {
        if let PendingPhase::Answering { sending, .. } = &mut self.phase {
            *sending = Some(now);
        }
        self
    }

    /// Returns what of a task's questions has no answer yet.
    pub fn open_questions(&self, mut round: InputRound) -> InputRound {
        round.requests.retain(|request| !self.answered.contains(&request.key));
        round
    }

    /// Returns the call after its task has got these responses. What was put away may be asked again.
    #[must_use]
    pub fn with_answered(mut self, responses: &Map<String, Value>) -> Self {
        let given = responses.iter().filter(|(_, response)| response["action"] != "cancel");
        self.answered.extend(given.map(|(key, _)| key.clone()));
        self
    }

    /// Returns the call after one more failed request.
    #[must_use]
    pub fn after_failure(self) -> Self {
        Self { failures: self.failures.saturating_add(1), ..self }
    }

    /// Returns the pause after the failures in a row.
    pub fn retry_pause(&self) -> Duration {
        doubled_pause(MCP_TASK_RETRY_PAUSES.0, MCP_TASK_RETRY_PAUSES.1, self.failures)
    }

    /// Returns the idempotency key with which the call is made again: a server that knows the key of the first time would
    /// give the first answer again.
    pub fn key_of_round(&self) -> Option<String> {
        let key = self.call.marks.as_ref()?.key.as_ref()?;
        Some(sha256_hex(format!("mcp-round {key} {}", self.rounds).as_bytes())[..KEY_DIGITS].to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(phase: PendingPhase, is_repeatable: bool) -> PendingToolCall {
        let call = StartedToolCall {
            server: ServerName::new("shop").unwrap(),
            declared_by: None,
            place: "p".into(),
            tool: "pay".into(),
            called: "shop__pay".into(),
            turn: 1,
            index: 0,
            arguments: json!({}),
            is_repeatable,
            marks: Some(CallMarks { key: Some("k".into()), traceparent: "t".into(), job: None }),
        };
        PendingToolCall {
            call,
            session: None,
            phase,
            rounds: 1,
            answered: Vec::new(),
            failures: 0,
            begun: Millis(1_000),
            deadline: Millis(9),
        }
    }

    fn answering(task: Option<&str>, sending: Option<Millis>) -> PendingPhase {
        PendingPhase::Answering { responses: Map::new(), state: None, task: task.map(str::to_owned), sending }
    }

    #[test]
    fn only_a_call_that_may_have_run_twice_is_in_doubt() {
        let working = PendingPhase::Working { task: "t".into(), poll_ms: 1 };
        let round = InputRound { requests: Vec::new(), state: Some("s".into()) };
        let asking = PendingPhase::Asking { round, task: None, approval: None };
        for (phase, is_repeatable, is_in_doubt, task) in [
            (working, false, false, Some("t")),
            (asking, false, false, None),
            (answering(None, None), false, false, None),
            (answering(None, Some(Millis(1))), false, true, None),
            (answering(None, Some(Millis(1))), true, false, None),
            (answering(Some("t"), Some(Millis(1))), false, false, Some("t")),
        ] {
            let pending = call(phase, is_repeatable);
            assert_eq!((pending.is_in_doubt(), pending.task()), (is_in_doubt, task), "{pending:?}");
            let text = serde_json::to_string(&pending).unwrap();
            assert_eq!(serde_json::from_str::<PendingToolCall>(&text).unwrap(), pending, "{text}");
        }
    }

    #[test]
    fn an_end_without_an_answer_hides_no_effect() {
        let working = || PendingPhase::Working { task: "t".into(), poll_ms: 1 };
        let asking = |task: Option<&str>| PendingPhase::Asking {
            round: InputRound { requests: Vec::new(), state: None },
            task: task.map(str::to_owned),
            approval: None,
        };
        for (phase, is_repeatable, is_cancelled, may_have_effect) in [
            (working(), false, false, true),
            (working(), false, true, false),
            (working(), true, false, false),
            (asking(Some("t")), false, false, true),
            (asking(Some("t")), false, true, false),
            (asking(None), false, false, false),
            (answering(Some("t"), None), false, false, true),
            (answering(None, None), false, false, false),
            (answering(None, Some(Millis(1))), false, false, true),
            (answering(None, Some(Millis(1))), false, true, true),
            (answering(None, Some(Millis(1))), true, false, false),
        ] {
            let pending = call(phase, is_repeatable);
            assert_eq!(pending.may_have_effect(is_cancelled), may_have_effect, "{pending:?}, {is_cancelled}");
        }
    }

    #[test]
    fn looks_at_an_old_task_are_rare() {
        let pending = call(PendingPhase::Working { task: "t".into(), poll_ms: 1 }, true);
        for (now, asked_ms, pause_ms) in
            [(1_000, 500, 500), (21_000, 500, 1_000), (21_000, 5_000, 5_000), (99_999_000, 500, 60_000), (0, 500, 500)]
        {
            let pause = pending.poll_pause(Millis(now), Duration::from_millis(asked_ms));
            assert_eq!(pause, Duration::from_millis(pause_ms), "{now} {asked_ms}");
        }
    }

    #[test]
    fn a_question_that_has_an_answer_is_not_asked_again() {
        let form = json!({"method": "elicitation/create", "params": {"requestedSchema": {"type": "object"}}});
        let round = InputRound::read(&json!({"a": form, "b": form, "c": form}), &Value::Null).unwrap();
        let Value::Object(given) = json!({"a": {"action": "decline"}, "b": {"action": "cancel"}}) else {
            panic!("a map")
        };
        let after = call(answering(Some("t"), None), true).with_answered(&given);
        let open: Vec<_> = after.open_questions(round).requests.into_iter().map(|request| request.key).collect();
        assert_eq!(open, ["b", "c"]);
    }

    #[test]
    fn each_round_has_a_key_of_its_own() {
        let first = call(answering(None, None), true);
        let second = PendingToolCall { rounds: 2, ..first.clone() };
        assert_ne!(first.key_of_round(), second.key_of_round());
        assert_eq!(first.key_of_round(), first.clone().after_failure().key_of_round());
        assert_eq!(
            [1, 3, 9].map(|failures| PendingToolCall { failures, ..first.clone() }.retry_pause().as_secs()),
            [1, 4, 60]
        );
    }
}
