//! What a lease holder knows between turns, and what is to be done next.

#[cfg(test)]
mod held_tests;
#[cfg(test)]
mod tests;

use super::Recorded;
use super::setting::Last;
use crate::agent::{AgentConfig, CompletedBy};
use crate::authority::envelope::Envelope;
use crate::budget::{Budget, Deadline, Purse};
use crate::context::goals::View;
use crate::context::inputs::Served;
use crate::event::{Event, Mandate, Payload};
use crate::expiry::Ttl;
use crate::ids::JobId;
use crate::job::{JobResult, JobStatus};
use crate::scope::Handed;
use crate::session::{PendingJob, SessionState};
use crate::time::Millis;
use crate::tools::Ends;
use crate::values::Values;
use serde_json::Value;

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

    /// Somebody has paused its job: no turn begins for it.
    fn is_paused(&self) -> bool {
        self.status == Some(JobStatus::Paused)
    }
}

/// Results that nobody awaits and that wait until nothing else is to be done.
const LAST: usize = 16;

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
    /// Calls wait for a person.
    Await {
        /// There is news of them: an answer, or what they are for has ended.
        news: bool,
        /// When the first of them expires, or the time of their task is over.
        until: Millis,
    },
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

    /// When what it is to serve next arrived: the first of its messages and open tasks.
    pub fn arrived(&self) -> Option<Millis> {
        let counts = |pending: &&Pending| match pending.event.payload {
            Payload::Task { .. } => pending.is_open_task(),
            Payload::Message { .. } => true,
            Payload::Result { .. } | Payload::Decision { .. } => false,
        };
        self.inbox.iter().filter(counts).map(|pending| pending.event.received).min()
    }

    /// It is new and empty when its time to live was over at `at`; its newest turn ended at `last`.
    pub fn expire(&mut self, ttl: &Ttl, last: Millis, at: Millis) -> bool {
        let over = self.state.is_over(ttl, last, at);
        if over {
            self.state = SessionState::anew(self.version);
        }
        over
    }

    fn open_task(&self, job: &JobId) -> Option<&Pending> {
        self.inbox.iter().find(|pending| pending.is_open_task() && pending.event.job() == Some(job))
    }

    /// Decides what is to be done next. What ended from outside goes first, on its own: its commit
    /// publishes its completion and takes its crashes from those that were served with it. A result that
    /// nobody awaits goes last, unless there are many of them, which would hide what stands behind them: the turn
    /// that began its job may have been lost with a server, and is then run again first.
    pub fn next(&self, crash_limit: u32) -> Next {
        let plan = self.plan();
        let poisoned = self.poisoned(crash_limit);
        let is_result = |pending: &Pending| matches!(pending.event.payload, Payload::Result { .. });
        let goes_last = plan.settled.len() <= LAST && plan.settled.iter().all(is_result) && poisoned.is_none();
        if !plan.settled.is_empty() && !goes_last {
            return Next::Settle(plan.settled);
        }
        if let Some(poisoned) = poisoned {
            return Next::GiveUp(Box::new(poisoned));
        }
        let settled = plan.settled.clone();
        match self.next_turn(plan) {
            Next::Rest | Next::Await { .. } if !settled.is_empty() => Next::Settle(settled),
            next => next,
        }
    }

    /// The same of what is left to be served.
    fn next_turn(&self, plan: Plan) -> Next {
        if self.is_held() {
            return Next::Rest;
        }
        if let Some(awaiting) = &self.state.awaiting {
            let news = self.is_withdrawn() || self.answers().next().is_some();
            let until = awaiting.until();
            return Next::Await { news, until: self.deadline().map_or(until, |deadline| deadline.min(until)) };
        }
        let news = !plan.messages.is_empty() || !plan.results.is_empty();
        let task_wants = plan.task.as_ref().is_some_and(|task| match (&self.state.task, task.event.job()) {
            (Some(progress), Some(job)) if progress.job == *job => !self.state.parked,
            (Some(_) | None, _) => true,
        });
        if news || task_wants || !self.state.shown.is_empty() { Next::Turn(Box::new(plan)) } else { Next::Rest }
    }

    /// Whether a job is open here and paused.
    pub fn is_paused(&self, job: Option<&JobId>) -> bool {
        job.and_then(|job| self.open_task(job)).is_some_and(Pending::is_paused)
    }

    /// The begun task, else the oldest open one.
    fn task(&self) -> Option<&Pending> {
        let begun = self.state.task.as_ref().and_then(|progress| self.open_task(&progress.job));
        begun.or_else(|| self.inbox.iter().find(|pending| pending.is_open_task()))
    }

    /// Its task is paused: everything in the session waits with it.
    fn is_held(&self) -> bool {
        self.task().is_some_and(Pending::is_paused)
    }

    /// A task whose time is over before a turn of it can say so, and how it ends: one that is paused, or stands behind
    /// another. `limits` are those of its agent.
    pub fn too_late(&self, limits: &Budget, now: Millis) -> Option<(JobId, JobResult)> {
        let next = self.task().and_then(|task| task.event.job());
        let waits = |pending: &&Pending| pending.is_paused() || pending.event.job() != next;
        self.inbox.iter().filter(|pending| pending.is_open_task()).filter(waits).find_map(|pending| {
            let job = pending.event.job()?;
            let last = Last::of_time(&self.time_of(pending, limits)?, now)?;
            let how = if pending.is_paused() { "while it was paused" } else { "before it began" };
            Some((job.clone(), JobResult::failed(last.code, format!("{}, {how}", last.reason))))
        })
    }

    /// When the time of an open task is over: what its first turn was told, or will be.
    fn time_of(&self, task: &Pending, limits: &Budget) -> Option<Deadline> {
        let job = task.event.job()?;
        if let Some(begun) = self.state.task.as_ref().filter(|progress| progress.job == *job) {
            return begun.deadline;
        }
        let above = (&[][..], task.event.envelope.deadline);
        Purse::of_task(job, task.event.received, limits, &task.event.budget, above).deadline
    }

    /// When the session must be looked at for the sake of time: when that of one of its open tasks is over.
    pub fn look_at(&self, limits: &Budget) -> Option<Millis> {
        let open = self.inbox.iter().filter(|pending| pending.is_open_task());
        open.filter_map(|pending| self.time_of(pending, limits)).map(|deadline| deadline.at).min()
    }

    /// When the open task's time is over.
    pub fn deadline(&self) -> Option<Millis> {
        let progress = self.state.task.as_ref()?;
        progress.deadline.filter(|_| self.open_task(&progress.job).is_some()).map(|deadline| deadline.at)
    }

    /// Calls that wait must be looked at now, before anything else: a turn that was begun with their
    /// answers is gone on with under its own number, by which its effects are known.
    pub fn has_answers(&self, now: Millis) -> bool {
        if self.is_held() {
            return false;
        }
        let due = self.state.awaiting.as_ref().is_some_and(|awaiting| now >= awaiting.until());
        due || (self.state.awaiting.is_some() && (self.is_withdrawn() || self.answers().next().is_some()))
    }

    /// The task for which calls wait has ended from outside.
    pub fn is_withdrawn(&self) -> bool {
        let begun = self.state.task.as_ref().map(|progress| &progress.job);
        self.state.awaiting.as_ref().is_some_and(|awaiting| match &awaiting.job {
            Some(job) => begun != Some(job),
            // The messages that it is for were given up.
            None => self.state.shown.is_empty(),
        })
    }

    fn awaits(&self, approval: &JobId) -> bool {
        self.state.awaiting.as_ref().is_some_and(|awaiting| awaiting.awaits(approval))
    }

    /// Answers to calls that wait.
    fn answers(&self) -> impl Iterator<Item = &Pending> {
        let is_answer = |pending: &&Pending| match &pending.event.payload {
            Payload::Decision { approval } => self.awaits(approval),
            Payload::Task { .. } | Payload::Message { .. } | Payload::Result { .. } => false,
        };
        self.inbox.iter().filter(is_answer)
    }

    /// What a turn serves that makes calls on which a person has decided: the task that they are for,
    /// when it is still open. It shows no event, and settles the answers.
    pub fn plan_of_answers(&self) -> Plan {
        let job = self.state.awaiting.as_ref().and_then(|awaiting| awaiting.job.as_ref());
        let task = job.and_then(|job| self.open_task(job)).cloned();
        Plan { task, settled: self.answers().cloned().collect(), ..Plan::default() }
    }

    /// Messages and results with too many crashes; tasks are dead-lettered by the grant.
    pub fn poisoned(&self, crash_limit: u32) -> Option<Plan> {
        let poisoned = self.inbox.iter().filter(|pending| pending.crashes > 0 && pending.crashes >= crash_limit);
        let mut plan = Plan::default();
        for pending in poisoned {
            match &pending.event.payload {
                Payload::Task { .. } | Payload::Decision { .. } => {}
                Payload::Message { .. } => plan.messages.push(pending.clone()),
                Payload::Result { .. } => plan.results.push(pending.clone()),
            }
        }
        (!plan.messages.is_empty() || !plan.results.is_empty()).then_some(plan)
    }

    /// What a turn that serves `plan` may start at most, where `over` says why nothing starts for a
    /// request any more. With a reason it starts nothing: what it serves ends there. An open task or a
    /// loose run that goes on leaves what may not start for a turn of its own.
    pub fn standing(&self, plan: Plan, over: impl Fn(&Envelope) -> Option<String>) -> (Plan, Option<String>) {
        let ended = |pending: &Pending| self.request_of(pending).and_then(|request| over(&request.envelope));
        if let Some(reason) = self.begun(plan.task.as_ref()).and_then(|request| over(&request.envelope)) {
            let messages = plan.messages.into_iter().filter(|message| ended(message).is_some()).collect();
            return (Plan { messages, ..plan }, Some(reason));
        }
        let Some(reason) = plan.results.iter().chain(&plan.messages).find_map(&ended) else { return (plan, None) };
        let split = |all: Vec<Pending>| all.into_iter().partition::<Vec<_>, _>(|one| ended(one).is_some());
        let (over_messages, messages) = split(plan.messages);
        let (over_results, results) = split(plan.results);
        if !self.state.shown.is_empty() {
            return (Plan { messages, results, ..plan }, None);
        }
        (Plan { messages: over_messages, results: over_results, ..Plan::default() }, Some(reason))
    }

    /// What a recorded reply serves: what it was shown, whatever has arrived since. Its task is
    /// missing when it has ended meanwhile.
    pub fn plan_of(&self, recorded: &Recorded) -> Plan {
        let mut plan =
            Plan { task: recorded.job.as_ref().and_then(|job| self.open_task(job)).cloned(), ..Plan::default() };
        for pending in self.inbox.iter().filter(|pending| recorded.consume.contains(&pending.key)) {
            match &pending.event.payload {
                Payload::Task { .. } | Payload::Decision { .. } => {}
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

    /// The request that a turn serves: its task, else the one whose loose run goes on or that of its
    /// events. Of several, which permit the same, it is the one with the longest way behind it: a
    /// message from outside in between doesn't make a chain of agents begin anew.
    pub fn mandate(&self, plan: &Plan) -> Mandate {
        let begun = self.begun(plan.task.as_ref());
        if let (Some(begun), Some(_)) = (&begun, &plan.task) {
            return begun.clone();
        }
        let arrived = plan.results.iter().chain(&plan.messages).filter_map(|pending| self.request_of(pending));
        let all: Vec<_> = begun.into_iter().chain(arrived).collect();
        // The first of several that are as long: `max_by_key` takes the last.
        let way = |mandate: &Mandate| (mandate.is_caused(), mandate.envelope.lineage.chain.len());
        all.into_iter().rev().max_by_key(way).unwrap_or_default()
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
            Payload::Message { to: Some(_), .. } => None,
            Payload::Task { .. } | Payload::Message { .. } | Payload::Decision { .. } => Some(pending.event.mandate()),
        }
    }

    /// Sorts the mailbox: the open task, the messages and awaited results that it may see, and the
    /// rest. A begun task stays the open one, also when an older one arrives late. A turn acts for one
    /// request: others, with other values or other authority, wait for turns of their own.
    pub fn plan(&self) -> Plan {
        let mut plan = Plan { task: self.task().cloned(), ..Plan::default() };
        let mut mandate = self.begun(plan.task.as_ref());
        let mut joins = |pending: &Pending| match self.request_of(pending) {
            None => true,
            Some(own) => mandate.get_or_insert_with(|| own.clone()).is_same(&own),
        };
        for pending in self.inbox.iter().filter(|pending| !self.state.shown.contains(&pending.key)) {
            match &pending.event.payload {
                Payload::Task { .. } if pending.is_open_task() => {}
                // Its task has ended, and nobody else is meant.
                Payload::Message { to: Some(_), .. } if pending.status.is_none_or(JobStatus::is_terminal) => {
                    plan.settled.push(pending.clone());
                }
                Payload::Message { to: Some(to), .. } if plan.job() != Some(to) => {}
                // The conversation hears them, not a goal inside it.
                Payload::Message { .. } if !self.state.parked && self.state.goals.top().is_some() => {}
                Payload::Message { .. } if joins(pending) => plan.messages.push(pending.clone()),
                Payload::Message { .. } => {}
                Payload::Result { job, .. } if self.state.pending.contains_key(job) => {
                    // What another open goal waits for stays for that one.
                    let waits = |awaited: &PendingJob| self.state.goals.waits(awaited.frame);
                    if !self.state.pending.get(job).is_some_and(waits) && joins(pending) {
                        plan.results.push(pending.clone());
                    }
                }
                Payload::Decision { approval } if self.awaits(approval) => {}
                Payload::Task { .. } | Payload::Result { .. } | Payload::Decision { .. } => {
                    plan.settled.push(pending.clone());
                }
            }
        }
        plan
    }
}

/// An event without its values, its buckets, its authority and what it brings along: they are no part of what it
/// says.
fn plain(event: &Event) -> Event {
    let (session_context, envelope, handed) = (Values::new(), Envelope::default(), Handed::default());
    Event { session_context, context_ids: Vec::new(), envelope, handed, response_schema: None, ..event.clone() }
}

impl Plan {
    /// The open task's job.
    pub fn job(&self) -> Option<&JobId> {
        self.task.as_ref().and_then(|task| task.event.job())
    }

    /// The input of its task.
    pub fn input(&self) -> Option<&Value> {
        match &self.task.as_ref()?.event.payload {
            Payload::Task { input, .. } => Some(input),
            Payload::Message { .. } | Payload::Result { .. } | Payload::Decision { .. } => None,
        }
    }

    /// What its task's output must be.
    pub fn output<'s>(&'s self, config: &'s AgentConfig) -> Option<&'s Value> {
        let own = config.outputs.complete.as_ref().map(|output| &output.schema);
        self.task.as_ref()?.event.response_schema.as_ref().or(own)
    }

    /// What completes its task: text can't be what a typed output must be.
    pub fn completion(&self, config: &AgentConfig) -> CompletedBy {
        if self.output(config).is_some() { CompletedBy::Explicit } else { config.completion }
    }

    /// What a turn of a session can end.
    pub fn ends<'s>(&'s self, state: &'s SessionState, config: &'s AgentConfig) -> Ends<'s> {
        let goal = state.goals.top();
        Ends {
            task: self.task.is_some(),
            inner: goal.is_some(),
            output: self.output(config),
            goal: goal.and_then(|goal| goal.output.as_ref()),
        }
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
    pub fn served(&self, state: &SessionState, mandate: &Mandate) -> Served {
        let arrived = |job: &JobId| self.results.iter().any(|r| r.event.job() == Some(job));
        let own = |pending: &PendingJob| pending.under.as_ref().is_none_or(|under| under.is_same(mandate));
        let pending = state.pending.iter().filter(|(job, pending)| !arrived(job) && own(pending));
        let begun = state.task.as_ref().filter(|progress| Some(&progress.job) == self.job());
        let remind = begun.is_some_and(|progress| progress.reminded);
        Served {
            last: false,
            goals: View::default(),
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
