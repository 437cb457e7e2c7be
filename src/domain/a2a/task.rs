//! What is known of a task of an agent elsewhere, and the next step of the job that stands for it.
//!
//! ```text
//! nothing sent ──intent stored──▶ sending ──answer──▶ task known ──asked again and again──▶ ended, or asks something
//!                                    └─ its process died: sent again if that is harmless, else OUTCOME_UNKNOWN
//! ```

use crate::a2a::card::RemoteInterface;
use crate::a2a::message::RemoteMessage;
use crate::ids::{AgentId, JobId, sha256_hex};
use crate::limits::{A2A_LOOK_PAUSES, A2A_RETRY_PAUSES};
use crate::mcp::name::ServerName;
use crate::time::{Millis, doubled_pause};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Operation in the head of a job that stands for a task of an agent elsewhere. Nobody can invoke it.
pub const OPERATION: &str = "v/ops/a2a/task";

/// Divisor of a task's age: so long is the pause before the agent is asked for it again.
const LOOK_PART: u32 = 10;

/// Hexadecimal digits of the id of a message.
const ID_DIGITS: usize = 32;

/// Input of the job that stands for a task elsewhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemoteTaskInput {
    /// Name of the agent.
    pub agent: ServerName,
    /// Agent of this venue that has declared it; absent for one that the venue names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared_by: Option<AgentId>,
    /// Hash of the place that the call was decided for: it goes to no other one.
    pub place: String,
    /// What is said to the agent.
    pub message: RemoteMessage,
    /// Time from which the agent isn't asked any more, and the task is cancelled.
    pub deadline: Millis,
}

/// What an operation needs that sends messages to an agent elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteCallPlan {
    /// Name of the agent.
    pub agent: ServerName,
    /// Agent of this venue that has declared it; `None` for one that the venue names.
    pub declared_by: Option<AgentId>,
    /// Hash of the place of its approved card.
    pub place: String,
    /// Seconds that a task may take; `None` is the default.
    pub deadline: Option<u64>,
    /// Whether its card has changed since it was approved.
    pub has_changed: bool,
    /// Whether all owners are one client to it.
    pub is_shared: bool,
}

/// What is known of a task elsewhere. It is written before each step that can't be undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemoteTask {
    /// Address of the agent at which the task is.
    pub interface: RemoteInterface,
    /// Time since which the message may have left; absent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sending: Option<Millis>,
    /// Id that the agent has given the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Time at which the task began, as far as a worker has seen it.
    pub begun: Millis,
    /// Requests in a row that have failed.
    #[serde(default)]
    pub failures: u32,
}

/// Next step for a task elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteStep<'t> {
    /// The message is sent.
    Send,
    /// The task of this id is asked for.
    Ask(&'t str),
    /// The message may have been sent, and must not be sent again.
    Doubt,
}

impl RemoteTask {
    /// Makes the record of a task of which nothing was sent. A call without a message waits for the task that it names.
    pub fn new(interface: RemoteInterface, message: &RemoteMessage, now: Millis) -> Self {
        let task = message.task.clone().filter(|_| message.is_silent());
        Self { interface, sending: None, task, begun: now, failures: 0 }
    }

    /// Returns the next step; `repeatable`: the agent knows a message that comes again.
    pub fn next_step(&self, repeatable: bool) -> RemoteStep<'_> {
        match (&self.task, self.sending) {
            (Some(task), _) => RemoteStep::Ask(task),
            (None, Some(_)) if !repeatable => RemoteStep::Doubt,
            (None, _) => RemoteStep::Send,
        }
    }

    /// Whether the message may have had an effect of which nobody learns if the job ends now, without an answer.
    /// `is_cancelled`: the agent has taken the cancellation of the task.
    pub const fn may_have_effect(&self, is_cancelled: bool) -> bool {
        self.sending.is_some() && !(self.task.is_some() && is_cancelled)
    }

    /// Returns the pause before the next look at a task that works.
    pub fn look_pause(&self, now: Millis) -> Duration {
        (now.elapsed_since(self.begun) / LOOK_PART).clamp(A2A_LOOK_PAUSES.0, A2A_LOOK_PAUSES.1)
    }

    /// Returns the pause after the failures in a row.
    pub fn retry_pause(&self) -> Duration {
        doubled_pause(A2A_RETRY_PAUSES.0, A2A_RETRY_PAUSES.1, self.failures)
    }
}

/// Returns the id of the message of a job: the same whenever it is sent, and a hash that discloses no job.
pub fn message_id(job: &JobId) -> String {
    sha256_hex(format!("a2a-message {job}").as_bytes())[..ID_DIGITS].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::card::RemoteBinding;

    fn interface() -> RemoteInterface {
        RemoteInterface { url: "https://h/a".into(), binding: RemoteBinding::JsonRpc, tenant: None }
    }

    #[test]
    fn a_message_is_sent_again_only_if_that_is_harmless() {
        let say = RemoteMessage { message: Some("hi".into()), task: Some("t".into()), ..RemoteMessage::default() };
        let fresh = RemoteTask::new(interface(), &say, Millis(1));
        assert_eq!(fresh.task, None, "a message to a task is sent before it is asked for");
        let sending = RemoteTask { sending: Some(Millis(2)), ..fresh.clone() };
        let known = RemoteTask { task: Some("t".into()), ..sending.clone() };
        let silent = RemoteMessage { message: None, ..say };
        let waiting = RemoteTask::new(interface(), &silent, Millis(1));
        for (task, repeatable, step) in [
            (&fresh, false, RemoteStep::Send),
            (&fresh, true, RemoteStep::Send),
            (&sending, false, RemoteStep::Doubt),
            (&sending, true, RemoteStep::Send),
            (&known, false, RemoteStep::Ask("t")),
            (&waiting, false, RemoteStep::Ask("t")),
        ] {
            assert_eq!(task.next_step(repeatable), step, "{task:?}");
        }
    }

    #[test]
    fn an_end_without_an_answer_hides_no_effect() {
        let fresh = RemoteTask::new(interface(), &RemoteMessage::default(), Millis(1));
        let sending = RemoteTask { sending: Some(Millis(2)), ..fresh.clone() };
        let known = RemoteTask { task: Some("t".into()), ..sending.clone() };
        let only_asked = RemoteTask { task: Some("t".into()), ..fresh.clone() };
        for (task, is_cancelled, may_have_effect) in [
            (&fresh, false, false),
            (&sending, false, true),
            (&sending, true, true),
            (&known, false, true),
            (&known, true, false),
            (&only_asked, false, false),
        ] {
            assert_eq!(task.may_have_effect(is_cancelled), may_have_effect, "{task:?}, {is_cancelled}");
        }
    }

    #[test]
    fn pauses_grow_and_have_an_end() {
        let task = RemoteTask::new(interface(), &RemoteMessage::default(), Millis(0));
        for (now, seconds) in [(0, 1), (9_000, 1), (50_000, 5), (100_000_000, 30)] {
            assert_eq!(task.look_pause(Millis(now)).as_secs(), seconds, "{now}");
        }
        for (failures, seconds) in [(1, 1), (2, 2), (6, 32), (7, 60), (40, 60), (64, 60)] {
            assert_eq!(RemoteTask { failures, ..task.clone() }.retry_pause().as_secs(), seconds, "{failures}");
        }
    }

    #[test]
    fn a_message_of_a_job_has_one_id() {
        let job = |digits: &str| JobId::new(&digits.repeat(16)).unwrap();
        assert_eq!(message_id(&job("0f")), message_id(&job("0f")));
        assert_ne!(message_id(&job("0f")), message_id(&job("0e")));
        assert!(!message_id(&job("0f")).contains("0f0f"));
    }

    #[test]
    fn a_record_reads_back() {
        let task = RemoteTask {
            sending: Some(Millis(5)),
            ..RemoteTask::new(interface(), &RemoteMessage::default(), Millis(1))
        };
        let text = serde_json::to_string(&task).unwrap();
        assert_eq!(serde_json::from_str::<RemoteTask>(&text).unwrap(), task, "{text}");
    }
}
