//! What a lease holder knows between turns, and what is to be done next.

use super::Recorded;
use crate::domain::agent::AgentConfig;
use crate::domain::authority::envelope::Envelope;
use crate::domain::context::inputs::Served;
use crate::domain::event::{Event, Mandate, Payload};
use crate::domain::ids::JobId;
use crate::domain::job::JobStatus;
use crate::domain::scope::Handed;
use crate::domain::session::{PendingJob, SessionState};
use crate::domain::values::Values;

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
    /// A task whose job has not ended from outside: cancelled, or dead.
    fn is_open_task(&self) -> bool {
        matches!(self.event.payload, Payload::Task { .. }) && !self.status.is_some_and(JobStatus::is_terminal)
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
    /// Messages and results that killed their workers too often: a note instead of a turn.
    GiveUp(Box<Plan>),
    /// Nothing: the session rests until something arrives.
    Rest,
}

impl Run {
    /// A session as a grant shows it; `more`: its mailbox has more than `inbox`.
    pub fn new(version: u64, state: SessionState, inbox: Vec<Pending>, more: bool) -> Self {
        let mut run = Self { version, state, inbox: Vec::new() };
        run.refresh(inbox, more);
        run
    }

    /// The mailbox is another now. A task that ended from outside takes with it what the session
    /// remembers of it, else the next task would wait for its children.
    pub fn refresh(&mut self, inbox: Vec<Pending>, more: bool) {
        self.inbox = inbox;
        let Some(progress) = &self.state.task else { return };
        let is_it = |pending: &&Pending| {
            matches!(pending.event.payload, Payload::Task { .. }) && pending.event.job() == Some(&progress.job)
        };
        let ended = match self.inbox.iter().find(is_it) {
            Some(task) => !task.is_open_task(),
            // Consumed when it ended, unless it is behind what was handed out.
            None => !more,
        };
        if ended {
            self.state.end_task();
        }
    }

    fn open_task(&self, job: &JobId) -> Option<&Pending> {
        self.inbox.iter().find(|pending| pending.is_open_task() && pending.event.job() == Some(job))
    }

    /// Decides what is to be done next. What ended from outside goes first, on its own: its commit
    /// publishes its completion and takes its crashes from those that were served with it.
    pub fn next(&self, crash_limit: u32) -> Next {
        let plan = self.plan();
        if !plan.settled.is_empty() {
            return Next::Settle(plan.settled);
        }
        if let Some(poisoned) = self.poisoned(crash_limit) {
            return Next::GiveUp(Box::new(poisoned));
        }
        let news = !plan.messages.is_empty() || !plan.results.is_empty();
        let task_wants = plan.task.as_ref().is_some_and(|task| match (&self.state.task, task.event.job()) {
            (Some(progress), Some(job)) if progress.job == *job => !self.state.parked,
            (Some(_) | None, _) => true,
        });
        if news || task_wants || !self.state.shown.is_empty() { Next::Turn(Box::new(plan)) } else { Next::Rest }
    }

    /// Messages and results with too many crashes; tasks are dead-lettered by the grant.
    pub fn poisoned(&self, crash_limit: u32) -> Option<Plan> {
        let poisoned = self.inbox.iter().filter(|pending| pending.crashes > 0 && pending.crashes >= crash_limit);
        let mut plan = Plan::default();
        for pending in poisoned {
            match &pending.event.payload {
                Payload::Task { .. } => {}
                Payload::Message { .. } => plan.messages.push(pending.clone()),
                Payload::Result { .. } => plan.results.push(pending.clone()),
            }
        }
        (!plan.messages.is_empty() || !plan.results.is_empty()).then_some(plan)
    }

    /// What a recorded reply serves: what it was shown, whatever has arrived since. Its task is
    /// missing when it has ended meanwhile.
    pub fn plan_of(&self, recorded: &Recorded) -> Plan {
        let mut plan =
            Plan { task: recorded.job.as_ref().and_then(|job| self.open_task(job)).cloned(), ..Plan::default() };
        for pending in self.inbox.iter().filter(|pending| recorded.consume.contains(&pending.key)) {
            match &pending.event.payload {
                Payload::Task { .. } => {}
                Payload::Message { .. } => plan.messages.push(pending.clone()),
                Payload::Result { .. } => plan.results.push(pending.clone()),
            }
        }
        plan
    }

    /// The session as it will be after a commit, when nothing else arrives.
    #[must_use]
    pub fn after(&self, state: &SessionState, consumed: &[String]) -> Self {
        let inbox = self.inbox.iter().filter(|pending| !consumed.contains(&pending.key)).cloned().collect();
        Self { version: self.version + 1, state: state.clone(), inbox }
    }

    /// The request that a turn serves: its task, else the one whose loose run goes on, else that of
    /// its first event.
    pub fn mandate(&self, plan: &Plan) -> Mandate {
        if let Some(begun) = self.begun(plan.task.as_ref()) {
            return begun;
        }
        let first = plan.results.iter().chain(&plan.messages).next();
        first.and_then(|pending| self.request_of(pending)).unwrap_or_default()
    }

    /// The request whose turns are running.
    fn begun(&self, task: Option<&Pending>) -> Option<Mandate> {
        match task {
            Some(task) => Some(task.event.mandate()),
            None if self.state.shown.is_empty() => None,
            None => Some(self.state.under.clone().unwrap_or_default()),
        }
    }

    /// The request that a message is, or in whose service a result's job was started; `None` = the
    /// task's.
    fn request_of(&self, pending: &Pending) -> Option<Mandate> {
        match &pending.event.payload {
            Payload::Result { job, .. } => self.state.pending.get(job)?.under.clone(),
            Payload::Task { .. } | Payload::Message { .. } => Some(pending.event.mandate()),
        }
    }

    /// Sorts the mailbox: the open task, the messages and awaited results that it may see, and the
    /// rest. A begun task stays the open one, also when an older one arrives late. A turn acts for one
    /// request: others, with other values or other authority, wait for turns of their own.
    pub fn plan(&self) -> Plan {
        let begun = self.state.task.as_ref().and_then(|progress| self.open_task(&progress.job));
        let oldest = || self.inbox.iter().find(|pending| pending.is_open_task());
        let mut plan = Plan { task: begun.or_else(oldest).cloned(), ..Plan::default() };
        let mut mandate = self.begun(plan.task.as_ref());
        let mut joins = |pending: &Pending| match self.request_of(pending) {
            None => true,
            Some(own) => mandate.get_or_insert_with(|| own.clone()).is_same(&own),
        };
        for pending in self.inbox.iter().filter(|pending| !self.state.shown.contains(&pending.key)) {
            match &pending.event.payload {
                Payload::Task { .. } if pending.is_open_task() => {}
                Payload::Message { .. } if joins(pending) => plan.messages.push(pending.clone()),
                Payload::Message { .. } => {}
                Payload::Result { job, .. } if self.state.pending.contains_key(job) => {
                    if joins(pending) {
                        plan.results.push(pending.clone());
                    }
                }
                Payload::Task { .. } | Payload::Result { .. } => plan.settled.push(pending.clone()),
            }
        }
        plan
    }
}

/// An event without its values, its authority and what it brings along: they are no part of what it
/// says.
fn plain(event: &Event) -> Event {
    let (session_context, envelope, handed) = (Values::new(), Envelope::default(), Handed::default());
    Event { session_context, envelope, handed, ..event.clone() }
}

impl Plan {
    /// The open task's job.
    pub fn job(&self) -> Option<&JobId> {
        self.task.as_ref().and_then(|task| task.event.job())
    }

    /// What its task brings along from another agent's context.
    pub fn handed(&self) -> Option<&Handed> {
        self.task.as_ref().map(|task| &task.event.handed).filter(|handed| !handed.is_empty())
    }

    /// Its task runs without an agent of its own.
    pub fn is_anonymous(&self) -> bool {
        self.handed().is_some_and(|handed| handed.anonymous.is_some())
    }

    /// What the prompt is built from; of awaited jobs those of the request that the turn serves.
    pub fn served(&self, state: &SessionState, config: &AgentConfig, mandate: &Mandate) -> Served {
        let arrived = |job: &JobId| self.results.iter().any(|r| r.event.job() == Some(job));
        let own = |pending: &PendingJob| pending.under.as_ref().is_none_or(|under| under.is_same(mandate));
        let pending = state.pending.iter().filter(|(job, pending)| !arrived(job) && own(pending));
        let remind = config.completion == crate::domain::agent::Completion::Explicit
            && state.task.as_ref().is_some_and(|progress| progress.reminded && Some(&progress.job) == self.job());
        Served {
            task: self.task.as_ref().map(|task| plain(&task.event)),
            results: self.results.iter().map(keyed).collect(),
            messages: self.messages.iter().map(keyed).collect(),
            pending: pending.map(|(job, p)| (job.clone(), p.clone())).collect(),
            remind,
        }
    }

    /// Mailbox keys of what the turn is for when no task is: its first event.
    pub fn reason(&self) -> Vec<String> {
        let first = self.results.iter().chain(&self.messages).next().filter(|_| self.task.is_none());
        first.map(|pending| pending.key.clone()).into_iter().collect()
    }

    /// Mailbox keys that the turn's commit consumes whatever the model answers.
    pub fn consumed(&self) -> Vec<String> {
        self.messages.iter().chain(&self.results).map(|pending| pending.key.clone()).collect()
    }
}

fn keyed(pending: &Pending) -> (String, Event) {
    (pending.key.clone(), plain(&pending.event))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::authority::Capability;
    use crate::domain::job::JobResult;
    use crate::domain::session::TaskProgress;
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
            session_context: serde_json::Map::new(),
            envelope: Envelope::default(),
            handed: Handed::default(),
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
        let child = |n: &u8| (job(*n), PendingJob { agent: "b".parse().unwrap(), started: Millis(0), under: None });
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
        assert_eq!(Run::default().next(5), Next::Rest);
    }

    #[test]
    fn the_oldest_open_task_is_served_with_all_messages_and_awaited_results() {
        let inbox = vec![
            task(1, JobStatus::Cancelled),
            task(2, JobStatus::Started),
            task(3, JobStatus::Pending),
            message(4),
            result(5),
            result(6),
        ];
        let run = Run { version: 1, state: state(Some(2), false, &[5]), inbox };
        let plan = run.plan();
        assert_eq!(plan.task.as_ref().unwrap().key, "k2");
        assert_eq!(keys(&plan.messages), ["k4"]);
        assert_eq!(keys(&plan.results), ["k5"]);
        assert_eq!(keys(&plan.settled), ["k1", "k6"]);
        assert_eq!(plan.consumed(), ["k4", "k5"]);
        let Next::Settle(settled) = run.next(5) else { panic!("what has ended goes first") };
        assert_eq!(keys(&settled), ["k1", "k6"]);
    }

    #[test]
    fn a_parked_session_wakes_for_news_only() {
        let parked = |inbox| Run::new(1, state(Some(1), true, &[2]), inbox, false);
        assert_eq!(parked(vec![task(1, JobStatus::Started)]).next(5), Next::Rest);
        assert!(matches!(parked(vec![task(1, JobStatus::Started), result(2)]).next(5), Next::Turn(_)));
        assert!(matches!(parked(vec![task(1, JobStatus::Started), message(3)]).next(5), Next::Turn(_)));
    }

    #[test]
    fn what_needs_no_model_is_settled_without_one() {
        let run =
            Run { version: 1, state: state(None, false, &[]), inbox: vec![result(2), task(1, JobStatus::Failed)] };
        let Next::Settle(settled) = run.next(5) else { panic!("expected to settle") };
        assert_eq!(keys(&settled), ["k2", "k1"]);
    }

    #[test]
    fn a_begun_task_stays_the_open_one_when_an_older_one_arrives_late() {
        let run = Run::new(
            1,
            state(Some(2), false, &[]),
            vec![task(1, JobStatus::Pending), task(2, JobStatus::Started)],
            false,
        );
        assert_eq!(run.plan().task.unwrap().key, "k2");
    }

    #[test]
    fn a_task_that_ended_from_outside_leaves_nothing_behind_for_the_next() {
        let (open, gone) = (task(1, JobStatus::Started), task(1, JobStatus::Cancelled));
        let next = || task(2, JobStatus::Pending);
        for (inbox, more, kept) in [
            (vec![next()], false, false),
            // It may be behind the entries that were handed out.
            (vec![next()], true, true),
            (vec![gone.clone(), next()], false, false),
            (vec![gone, next()], true, false),
            (vec![open, next()], false, true),
        ] {
            let run = Run::new(1, state(Some(1), true, &[7]), inbox, more);
            assert_eq!((run.state.task.is_some(), run.state.parked, !run.state.pending.is_empty()), (kept, kept, kept));
        }
    }

    #[test]
    fn what_a_loose_run_has_shown_keeps_it_going_and_is_not_shown_again() {
        let shown = SessionState { shown: vec!["k4".into(), "k5".into()], ..SessionState::default() };
        let run = Run::new(1, shown, vec![result(5), message(4)], false);
        let Next::Turn(plan) = run.next(5) else { panic!("the run goes on") };
        assert_eq!(*plan, Plan::default());
    }

    #[test]
    fn values_of_two_requests_never_meet_in_one_turn() {
        let with = |n: u8, value: &str| {
            let mut pending = message(n);
            pending.event.session_context.insert("k".into(), value.into());
            pending
        };
        let value = |run: &Run| run.mandate(&run.plan()).session_context.get("k").cloned();
        let run =
            Run::new(1, SessionState::default(), vec![message(4), with(5, "a"), with(6, "b"), with(7, "a")], false);
        assert_eq!((keys(&run.plan().messages), value(&run)), (vec!["k4"], None), "nor do those without any");
        let run =
            Run::new(1, SessionState::default(), vec![with(5, "a"), message(4), with(6, "b"), with(7, "a")], false);
        assert_eq!((keys(&run.plan().messages), value(&run)), (vec!["k5", "k7"], Some("a".into())));
        let under = Some(with(5, "a").event.mandate());
        let shown = SessionState { shown: vec!["k5".into()], under, ..SessionState::default() };
        let run = Run::new(1, shown, vec![with(5, "a"), with(6, "b"), message(7)], false);
        assert_eq!((keys(&run.plan().messages), value(&run)), (vec![], Some("a".into())), "through all its turns");
        let run =
            Run::new(1, SessionState::default(), vec![with(6, "b"), message(7), task(1, JobStatus::Pending)], false);
        assert_eq!((keys(&run.plan().messages), value(&run)), (vec!["k7"], None));
        let mut own = task(1, JobStatus::Pending);
        own.event.session_context.insert("k".into(), "b".into());
        let run = Run::new(1, SessionState::default(), vec![with(6, "b"), with(7, "a"), own], false);
        assert_eq!((keys(&run.plan().messages), value(&run)), (vec!["k6"], Some("b".into())));
        let parked = Run::new(1, state(Some(1), true, &[2]), vec![with(6, "b"), task(1, JobStatus::Started)], false);
        assert_eq!(parked.next(5), Next::Rest, "what waits is no reason for a turn");
    }

    #[test]
    fn events_of_differing_authority_are_taken_in_turns_of_their_own() {
        let granted = |n: u8, path: &str| {
            let mut pending = message(n);
            let cap = Capability { with: path.into(), can: "crud".into() };
            pending.event.envelope = Envelope::default().granted(Some(vec![cap]));
            pending.event.envelope.holders.push(format!("caller {n}"));
            pending
        };
        let run = |state, inbox: &[Pending]| Run::new(1, state, inbox.to_vec(), false);
        let free = run(SessionState::default(), &[granted(4, "w/a"), granted(5, "w/b"), message(6), granted(7, "w/a")]);
        let plan = free.plan();
        assert_eq!(keys(&plan.messages), ["k4", "k7"], "whoever holds the same");
        assert_eq!(free.mandate(&plan).envelope.holders, ["caller 4"]);
        // A result runs under the request in whose service its job was started, also when that is gone.
        let mut waiting = state(None, true, &[2, 3]);
        waiting.pending.get_mut(&job(2)).unwrap().under = Some(granted(4, "w/a").event.mandate());
        waiting.pending.get_mut(&job(3)).unwrap().under = Some(Mandate::default());
        let back = run(waiting.clone(), &[result(2), result(3), message(8)]);
        let plan = back.plan();
        assert_eq!((keys(&plan.results), keys(&plan.messages)), (vec!["k2"], vec![]));
        assert_eq!(back.mandate(&plan).envelope, granted(4, "w/a").event.envelope);
        // With a task open it waits until that has ended, and is not forgotten with it.
        let mut busy = SessionState { task: state(Some(1), true, &[]).task, ..waiting };
        let with_task = run(busy.clone(), &[result(2), task(1, JobStatus::Started)]);
        assert_eq!((keys(&with_task.plan().results), with_task.plan().settled.len()), (vec![], 0));
        busy.end_task();
        assert!(busy.pending.contains_key(&job(2)));
    }

    #[test]
    fn messages_that_kill_their_workers_are_given_up_and_a_dead_task_goes_first() {
        let killer = Pending { crashes: 5, ..message(4) };
        let run =
            Run::new(1, SessionState::default(), vec![killer.clone(), message(5), task(1, JobStatus::Pending)], false);
        let Next::GiveUp(plan) = run.next(5) else { panic!("expected to give up") };
        assert_eq!((keys(&plan.messages), plan.task), (vec!["k4"], None));
        assert!(matches!(run.next(6), Next::Turn(_)));
        let dead = Pending { crashes: 5, ..task(1, JobStatus::Failed) };
        let run = Run::new(1, SessionState::default(), vec![killer, dead], false);
        let Next::Settle(settled) = run.next(5) else { panic!("expected to settle") };
        assert_eq!(keys(&settled), ["k1"]);
    }
}
