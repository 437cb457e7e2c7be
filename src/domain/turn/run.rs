//! What a lease holder knows between turns, and what is to be done next.

use crate::domain::agent::AgentConfig;
use crate::domain::context::assemble::Served;
use crate::domain::event::{Event, Payload};
use crate::domain::ids::JobId;
use crate::domain::job::JobStatus;
use crate::domain::session::SessionState;

/// A pending event with what the mailbox says of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Pending {
    /// Its mailbox key.
    pub key: String,
    /// What it says.
    pub event: Event,
    /// Workers that it (perhaps) killed.
    pub crashes: u32,
    /// Status of its job.
    pub status: Option<JobStatus>,
}

impl Pending {
    /// A task whose job has ended from outside: cancelled, or dead.
    fn is_settled_task(&self) -> bool {
        matches!(self.event.payload, Payload::Task { .. }) && self.status.is_some_and(JobStatus::is_terminal)
    }
}

/// A session between two turns.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Run {
    /// Turns committed.
    pub version: u64,
    /// What the session remembers.
    pub state: SessionState,
    /// Pending events in order.
    pub inbox: Vec<Pending>,
}

/// What a turn serves, with the mailbox keys.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// The open task.
    pub task: Option<Pending>,
    /// Notifications.
    pub messages: Vec<Pending>,
    /// Awaited completions.
    pub results: Vec<Pending>,
    /// Events that need no model: tasks that ended from outside, results that nobody awaits.
    pub settled: Vec<Pending>,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// A turn with a model call.
    Turn(Box<Plan>),
    /// Only events that need no model: drop them.
    Settle(Vec<Pending>),
    /// Nothing: the session rests until something arrives.
    Rest,
}

impl Run {
    /// Decides what is to be done next.
    pub fn next(&self) -> Next {
        let plan = self.plan();
        let news = !plan.messages.is_empty() || !plan.results.is_empty();
        let task_wants = plan.task.as_ref().is_some_and(|task| match (&self.state.task, task.event.job()) {
            (Some(progress), Some(job)) if progress.job == *job => !self.state.parked,
            (Some(_) | None, _) => true,
        });
        if news || task_wants || self.state.unfinished {
            Next::Turn(Box::new(plan))
        } else if plan.settled.is_empty() {
            Next::Rest
        } else {
            Next::Settle(plan.settled)
        }
    }

    /// The session as it will be after a commit, when nothing else arrives.
    #[must_use]
    pub fn after(&self, state: &SessionState, consumed: &[String]) -> Self {
        let inbox = self.inbox.iter().filter(|pending| !consumed.contains(&pending.key)).cloned().collect();
        Self { version: self.version + 1, state: state.clone(), inbox }
    }

    /// Sorts the mailbox: the oldest open task, all messages and awaited results, and the rest.
    pub fn plan(&self) -> Plan {
        let mut plan = Plan::default();
        for pending in &self.inbox {
            match &pending.event.payload {
                Payload::Task { .. } if pending.is_settled_task() => plan.settled.push(pending.clone()),
                Payload::Task { .. } if plan.task.is_none() => plan.task = Some(pending.clone()),
                Payload::Task { .. } => {}
                Payload::Message { .. } => plan.messages.push(pending.clone()),
                Payload::Result { job, .. } if self.state.pending.contains_key(job) => {
                    plan.results.push(pending.clone());
                }
                Payload::Result { .. } => plan.settled.push(pending.clone()),
            }
        }
        plan
    }
}

impl Plan {
    /// The open task's job.
    pub fn job(&self) -> Option<&JobId> {
        self.task.as_ref().and_then(|task| task.event.job())
    }

    /// What the prompt is built from.
    pub fn served(&self, state: &SessionState, config: &AgentConfig) -> Served {
        let arrived = |job: &JobId| self.results.iter().any(|r| r.event.job() == Some(job));
        let pending = state.pending.iter().filter(|(job, _)| !arrived(job));
        let remind = config.completion == crate::domain::agent::Completion::Explicit
            && state.task.as_ref().is_some_and(|progress| progress.reminded && Some(&progress.job) == self.job());
        Served {
            task: self.task.as_ref().map(|task| task.event.clone()),
            results: self.results.iter().map(|p| p.event.clone()).collect(),
            messages: self.messages.iter().map(|p| p.event.clone()).collect(),
            pending: pending.map(|(job, p)| (job.clone(), p.clone())).collect(),
            remind,
        }
    }

    /// Mailbox keys that the turn's commit consumes whatever the model answers.
    pub fn consumed(&self) -> Vec<String> {
        let shown = self.messages.iter().chain(&self.results).chain(&self.settled);
        shown.map(|pending| pending.key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::job::JobResult;
    use crate::domain::session::{PendingJob, TaskProgress};
    use crate::domain::time::Millis;
    use serde_json::json;

    fn job(n: u8) -> JobId {
        JobId::new(&format!("{n:032x}")).unwrap()
    }

    fn pending(n: u8, payload: Payload, status: Option<JobStatus>) -> Pending {
        let event = Event {
            id: format!("e{n}").parse().unwrap(),
            caller: None,
            received: Millis(0),
            reply_to: None,
            parent: None,
            payload,
        };
        Pending { key: format!("k{n}"), event, crashes: 0, status }
    }

    fn task(n: u8, status: JobStatus) -> Pending {
        pending(n, Payload::Task { job: job(n), input: json!(1) }, Some(status))
    }

    fn message(n: u8) -> Pending {
        pending(n, Payload::Message { input: json!("hi") }, None)
    }

    fn result(n: u8) -> Pending {
        pending(n, Payload::Result { job: job(n), result: JobResult::complete(json!(1)) }, None)
    }

    fn state(task: Option<u8>, parked: bool, children: &[u8]) -> SessionState {
        let child = |n: &u8| (job(*n), PendingJob { agent: "b".parse().unwrap(), started: Millis(0) });
        SessionState {
            pending: children.iter().map(child).collect(),
            task: task.map(|n| TaskProgress { job: job(n), turns: 1, reminded: false }),
            parked,
            ..SessionState::default()
        }
    }

    fn keys(pending: &[Pending]) -> Vec<&str> {
        pending.iter().map(|p| p.key.as_str()).collect()
    }

    #[test]
    fn an_empty_mailbox_rests() {
        assert_eq!(Run::default().next(), Next::Rest);
    }

    #[test]
    fn the_oldest_open_task_is_served_with_all_messages_and_awaited_results() {
        let inbox = vec![task(1, JobStatus::Cancelled), task(2, JobStatus::Started), task(3, JobStatus::Pending), message(4), result(5), result(6)];
        let run = Run { version: 1, state: state(Some(2), false, &[5]), inbox };
        let Next::Turn(plan) = run.next() else { panic!("expected a turn") };
        assert_eq!(plan.task.as_ref().unwrap().key, "k2");
        assert_eq!(keys(&plan.messages), ["k4"]);
        assert_eq!(keys(&plan.results), ["k5"]);
        assert_eq!(keys(&plan.settled), ["k1", "k6"]);
        assert_eq!(plan.consumed(), ["k4", "k5", "k1", "k6"]);
    }

    #[test]
    fn a_parked_session_wakes_for_news_only() {
        let parked = |inbox| Run { version: 1, state: state(Some(1), true, &[2]), inbox };
        assert_eq!(parked(vec![task(1, JobStatus::Started)]).next(), Next::Rest);
        assert!(matches!(parked(vec![task(1, JobStatus::Started), result(2)]).next(), Next::Turn(_)));
        assert!(matches!(parked(vec![task(1, JobStatus::Started), message(3)]).next(), Next::Turn(_)));
    }

    #[test]
    fn what_needs_no_model_is_settled_without_one() {
        let run = Run { version: 1, state: state(None, false, &[]), inbox: vec![result(2), task(1, JobStatus::Failed)] };
        let Next::Settle(settled) = run.next() else { panic!("expected to settle") };
        assert_eq!(keys(&settled), ["k2", "k1"]);
    }
}
