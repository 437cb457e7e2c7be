//! The session between two turns as the holder of its lease knows it, and what to do next.

#[cfg(test)]
mod paused_tests;
#[cfg(test)]
mod tests;

use super::{FinalTurn, RecordedReply};
use crate::agent::{AgentConfig, CompletionRule};
use crate::authority::envelope::Envelope;
use crate::budget::{Budget, Deadline, Purse};
use crate::context::goals::GoalView;
use crate::context::inputs::ServedEvents;
use crate::event::{Event, Mandate, Payload};
use crate::expiry::Ttl;
use crate::ids::JobId;
use crate::job::{JobResult, JobStatus};
use crate::scope::DelegateContext;
use crate::session::{PendingJob, SessionState};
use crate::time::Millis;
use crate::tools::TurnEnds;
use crate::values::Values;
use serde_json::Value;

/// A pending event with its state in the mailbox.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingEvent {
    /// Key in the mailbox.
    pub key: String,
    /// Content of the event.
    pub event: Event,
    /// Number of workers that have died while they served it.
    pub crashes: u32,
    /// Status of its job.
    pub status: Option<JobStatus>,
}

impl PendingEvent {
    /// Whether it is a task whose job has not ended from outside (cancelled or dead).
    fn is_open_task(&self) -> bool {
        matches!(self.event.payload, Payload::Task { .. }) && !self.status.is_some_and(JobStatus::is_terminal)
    }

    /// Whether its job is paused, so that no turn begins for it.
    fn is_paused(&self) -> bool {
        self.status == Some(JobStatus::Paused)
    }
}

/// Most unawaited results that wait until nothing else is to be done.
const UNAWAITED_RESULTS_MAX: usize = 16;

/// A session between two turns.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SessionRun {
    /// Number of committed turns.
    pub version: u64,
    /// State of the session.
    pub state: SessionState,
    /// Pending events, in order.
    pub inbox: Vec<PendingEvent>,
}

/// The events that a turn serves, with their mailbox keys.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// The open task.
    pub task: Option<PendingEvent>,
    /// Messages for the session.
    pub messages: Vec<PendingEvent>,
    /// Results of awaited jobs.
    pub results: Vec<PendingEvent>,
    /// Events that need no model: tasks that ended from outside, results that no job waits for.
    pub settled: Vec<PendingEvent>,
    /// Placeholders of the agent's `taskPrompt` without a value.
    pub missed: Vec<String>,
}

/// What the worker does next with a session.
#[derive(Debug, Clone, PartialEq)]
pub enum NextStep {
    /// Run a turn with a model call.
    Turn(Box<Plan>),
    /// Drop these events; they need no model.
    Settle(Vec<PendingEvent>),
    /// End messages and results during which too many workers died, with a note instead of a turn.
    GiveUp(Box<Plan>),
    /// Wait for a person's decision on calls.
    Await {
        /// There is an answer, or the task of the calls has ended.
        news: bool,
        /// Time at which the first approval expires or the task's time is over.
        until: Millis,
    },
    /// Nothing to do until an event arrives.
    Rest,
}

impl SessionRun {
    /// Makes the run of a leased session; `more` means that its mailbox has events beyond `inbox`.
    pub fn new(version: u64, state: SessionState, inbox: Vec<PendingEvent>, more: bool) -> Self {
        let mut run = Self { version, state, inbox: Vec::new() };
        run.refresh(inbox, more);
        run
    }

    /// Replaces the mailbox. If the begun task has ended from outside, the session forgets its progress; otherwise the
    /// next task would wait for its children.
    pub fn refresh(&mut self, inbox: Vec<PendingEvent>, more: bool) {
        self.inbox = inbox;
        let Some(progress) = &self.state.task else { return };
        let is_it = |pending: &&PendingEvent| {
            matches!(pending.event.payload, Payload::Task { .. }) && pending.event.job() == Some(&progress.job)
        };
        let ended = match self.inbox.iter().find(is_it) {
            Some(task) => !task.is_open_task(),
            // An ended task is removed from the mailbox, but an absent one may stand behind the listed events.
            None => !more,
        };
        if ended {
            self.state.end_task();
        }
    }

    /// Returns when the first of its messages and open tasks arrived.
    pub fn first_arrival(&self) -> Option<Millis> {
        let counts = |pending: &&PendingEvent| match pending.event.payload {
            Payload::Task { .. } => pending.is_open_task(),
            Payload::Message { .. } => true,
            Payload::Result { .. } | Payload::Decision { .. } => false,
        };
        self.inbox.iter().filter(counts).map(|pending| pending.event.received).min()
    }

    /// Resets the session if its time to live was over at `at`; its newest turn ended at `last`. Returns whether it
    /// did.
    pub fn reset_if_expired(&mut self, ttl: &Ttl, last: Millis, at: Millis) -> bool {
        let over = self.state.is_expired(ttl, last, at);
        if over {
            self.state = SessionState::after_expiry(self.version);
        }
        over
    }

    fn open_task(&self, job: &JobId) -> Option<&PendingEvent> {
        self.inbox.iter().find(|pending| pending.is_open_task() && pending.event.job() == Some(job))
    }

    /// Decides what to do next. Tasks that ended from outside go first and alone: their commit publishes their
    /// completion and takes the count of crashes from the events served with them. A result that no job waits for goes
    /// last, because the turn that began its job may have been lost with a server and is then run again first. If there
    /// are more than 16 such results they go first, because they would hide the events behind them.
    pub fn next_step(&self, crash_limit: u32) -> NextStep {
        let plan = self.plan();
        let poisoned = self.poisoned_events(crash_limit);
        let is_result = |pending: &PendingEvent| matches!(pending.event.payload, Payload::Result { .. });
        let goes_last =
            plan.settled.len() <= UNAWAITED_RESULTS_MAX && plan.settled.iter().all(is_result) && poisoned.is_none();
        if !plan.settled.is_empty() && !goes_last {
            return NextStep::Settle(plan.settled);
        }
        if let Some(poisoned) = poisoned {
            return NextStep::GiveUp(Box::new(poisoned));
        }
        let settled = plan.settled.clone();
        match self.next_turn(plan) {
            NextStep::Rest | NextStep::Await { .. } if !settled.is_empty() => NextStep::Settle(settled),
            next => next,
        }
    }

    /// Decides what to do next with the events that need a model.
    fn next_turn(&self, plan: Plan) -> NextStep {
        if self.is_task_paused() {
            return NextStep::Rest;
        }
        if let Some(awaiting) = &self.state.awaiting {
            let news = self.is_withdrawn() || self.pending_answers().next().is_some();
            let until = awaiting.first_expiry();
            return NextStep::Await { news, until: self.deadline().map_or(until, |deadline| deadline.min(until)) };
        }
        let news = !plan.messages.is_empty() || !plan.results.is_empty();
        let task_wants = plan.task.as_ref().is_some_and(|task| match (&self.state.task, task.event.job()) {
            (Some(progress), Some(job)) if progress.job == *job => !self.state.parked,
            (Some(_) | None, _) => true,
        });
        if news || task_wants || !self.state.shown.is_empty() { NextStep::Turn(Box::new(plan)) } else { NextStep::Rest }
    }

    /// Whether a job is open in this session and paused.
    pub fn is_paused(&self, job: Option<&JobId>) -> bool {
        job.and_then(|job| self.open_task(job)).is_some_and(PendingEvent::is_paused)
    }

    /// Returns the begun task, or else the oldest open one.
    fn current_task(&self) -> Option<&PendingEvent> {
        let begun = self.state.task.as_ref().and_then(|progress| self.open_task(&progress.job));
        begun.or_else(|| self.inbox.iter().find(|pending| pending.is_open_task()))
    }

    /// Whether the session is paused because its task is.
    fn is_task_paused(&self) -> bool {
        self.current_task().is_some_and(PendingEvent::is_paused)
    }

    /// Finds a task whose time is over before a turn can end it, because it is paused or stands behind another; returns
    /// its result. `limits` are those of its agent.
    pub fn find_overdue_task(&self, limits: &Budget, now: Millis) -> Option<(JobId, JobResult)> {
        let next = self.current_task().and_then(|task| task.event.job());
        let waits = |pending: &&PendingEvent| pending.is_paused() || pending.event.job() != next;
        self.inbox.iter().filter(|pending| pending.is_open_task()).filter(waits).find_map(|pending| {
            let job = pending.event.job()?;
            let last = FinalTurn::from_deadline(&self.task_deadline(pending, limits)?, now)?;
            let how = if pending.is_paused() { "while it was paused" } else { "before it began" };
            Some((job.clone(), JobResult::failure(last.code, format!("{}, {how}", last.reason))))
        })
    }

    /// Returns when the time of an open task is over; a begun task keeps the deadline of its first turn.
    fn task_deadline(&self, task: &PendingEvent, limits: &Budget) -> Option<Deadline> {
        let job = task.event.job()?;
        if let Some(begun) = self.state.task.as_ref().filter(|progress| progress.job == *job) {
            return begun.deadline;
        }
        let event = &task.event;
        Purse::for_task(job, event.received, limits, &event.budget, &[], event.envelope.deadline).deadline
    }

    /// Returns the time at which the session must be checked again: the earliest deadline of its open tasks.
    pub fn next_deadline(&self, limits: &Budget) -> Option<Millis> {
        let open = self.inbox.iter().filter(|pending| pending.is_open_task());
        open.filter_map(|pending| self.task_deadline(pending, limits)).map(|deadline| deadline.at).min()
    }

    /// Returns when the open task's time is over.
    pub fn deadline(&self) -> Option<Millis> {
        let progress = self.state.task.as_ref()?;
        progress.deadline.filter(|_| self.open_task(&progress.job).is_some()).map(|deadline| deadline.at)
    }

    /// Whether calls that wait must be handled before anything else: a turn that has begun with their answers continues
    /// under its own number, by which its effects are known.
    pub fn has_answers(&self, now: Millis) -> bool {
        if self.is_task_paused() {
            return false;
        }
        let due = self.state.awaiting.as_ref().is_some_and(|awaiting| now >= awaiting.first_expiry());
        due || (self.state.awaiting.is_some() && (self.is_withdrawn() || self.pending_answers().next().is_some()))
    }

    /// Whether the task of the waiting calls has ended from outside.
    pub fn is_withdrawn(&self) -> bool {
        let begun = self.state.task.as_ref().map(|progress| &progress.job);
        self.state.awaiting.as_ref().is_some_and(|awaiting| match &awaiting.job {
            Some(job) => begun != Some(job),
            // The messages of the loose run were removed.
            None => self.state.shown.is_empty(),
        })
    }

    fn awaits(&self, approval: &JobId) -> bool {
        self.state.awaiting.as_ref().is_some_and(|awaiting| awaiting.awaits(approval))
    }

    /// Iterates over the answers to calls that wait.
    fn pending_answers(&self) -> impl Iterator<Item = &PendingEvent> {
        let is_answer = |pending: &&PendingEvent| match &pending.event.payload {
            Payload::Decision { approval } => self.awaits(approval),
            Payload::Task { .. } | Payload::Message { .. } | Payload::Result { .. } => false,
        };
        self.inbox.iter().filter(is_answer)
    }

    /// Returns the plan of a turn that makes calls on which a person has decided: their task, if it is still open, and
    /// the answers to settle. It shows no event.
    pub fn plan_for_answers(&self) -> Plan {
        let job = self.state.awaiting.as_ref().and_then(|awaiting| awaiting.job.as_ref());
        let task = job.and_then(|job| self.open_task(job)).cloned();
        Plan { task, settled: self.pending_answers().cloned().collect(), ..Plan::default() }
    }

    /// Returns the messages and results with at least `crash_limit` crashes. Tasks become dead letters when the lease
    /// is granted.
    pub fn poisoned_events(&self, crash_limit: u32) -> Option<Plan> {
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

    /// Splits a plan by what was revoked; `over` returns why nothing may start for a request. With a reason the turn
    /// starts nothing, and its events end there. If an open task or a loose run continues, the revoked events wait for
    /// a turn of their own.
    pub fn without_revoked(&self, plan: Plan, over: impl Fn(&Envelope) -> Option<String>) -> (Plan, Option<String>) {
        let ended = |pending: &PendingEvent| self.request_of(pending).and_then(|request| over(&request.envelope));
        if let Some(reason) = self.running_request(plan.task.as_ref()).and_then(|request| over(&request.envelope)) {
            let messages = plan.messages.into_iter().filter(|message| ended(message).is_some()).collect();
            return (Plan { messages, ..plan }, Some(reason));
        }
        let Some(reason) = plan.results.iter().chain(&plan.messages).find_map(&ended) else { return (plan, None) };
        let split = |all: Vec<PendingEvent>| all.into_iter().partition::<Vec<_>, _>(|one| ended(one).is_some());
        let (over_messages, messages) = split(plan.messages);
        let (over_results, results) = split(plan.results);
        if !self.state.shown.is_empty() {
            return (Plan { messages, results, ..plan }, None);
        }
        (Plan { messages: over_messages, results: over_results, ..Plan::default() }, Some(reason))
    }

    /// Returns the plan of a recorded reply: the events that its prompt showed. The task is missing if it has ended
    /// meanwhile.
    pub fn plan_for_recorded(&self, recorded: &RecordedReply) -> Plan {
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

    /// Returns the session after a commit, if no other event arrives.
    #[must_use]
    pub fn after_commit(&self, state: &SessionState, consumed: &[String]) -> Self {
        let inbox = self.inbox.iter().filter(|pending| !consumed.contains(&pending.key)).cloned().collect();
        Self { version: self.version + 1, state: state.clone(), inbox }
    }

    /// Returns the request that a turn serves: that of its task, or else of its loose run or its events. Of several
    /// with the same authority it is the one with the longest chain, so that a message from outside doesn't reset the
    /// length of a chain of agents.
    pub fn mandate(&self, plan: &Plan) -> Mandate {
        let begun = self.running_request(plan.task.as_ref());
        if let (Some(begun), Some(_)) = (&begun, &plan.task) {
            return begun.clone();
        }
        let arrived = plan.results.iter().chain(&plan.messages).filter_map(|pending| self.request_of(pending));
        let all: Vec<_> = begun.into_iter().chain(arrived).collect();
        // The first of several with the same length: `max_by_key` takes the last.
        let way = |mandate: &Mandate| (mandate.is_caused(), mandate.envelope.lineage.chain.len());
        all.into_iter().rev().max_by_key(way).unwrap_or_default()
    }

    /// Returns the request of the running task or loose run.
    fn running_request(&self, task: Option<&PendingEvent>) -> Option<Mandate> {
        match task {
            Some(task) => Some(task.event.mandate()),
            None if self.state.shown.is_empty() => None,
            None => Some(self.state.under.clone().unwrap_or_default()),
        }
    }

    /// Returns the request of a message, or the request for which a result's job was started; `None` for the task's.
    fn request_of(&self, pending: &PendingEvent) -> Option<Mandate> {
        match &pending.event.payload {
            Payload::Result { job, .. } => self.state.pending.get(job)?.under.clone(),
            Payload::Message { to: Some(_), .. } => None,
            Payload::Task { .. } | Payload::Message { .. } | Payload::Decision { .. } => Some(pending.event.mandate()),
        }
    }

    /// Sorts the mailbox: the open task, the messages and awaited results for its turn, and the rest. A begun task
    /// stays the open one, even if an older one arrives later. A turn acts for one request; requests with other values
    /// or another authority wait for turns of their own.
    pub fn plan(&self) -> Plan {
        let mut plan = Plan { task: self.current_task().cloned(), ..Plan::default() };
        let mut mandate = self.running_request(plan.task.as_ref());
        let mut joins = |pending: &PendingEvent| match self.request_of(pending) {
            None => true,
            Some(own) => mandate.get_or_insert_with(|| own.clone()).may_share_turn(&own),
        };
        for pending in self.inbox.iter().filter(|pending| !self.state.shown.contains(&pending.key)) {
            match &pending.event.payload {
                Payload::Task { .. } if pending.is_open_task() => {}
                // The task of this message has ended, and the message has no other receiver.
                Payload::Message { to: Some(_), .. } if pending.status.is_none_or(JobStatus::is_terminal) => {
                    plan.settled.push(pending.clone());
                }
                Payload::Message { to: Some(to), .. } if plan.job() != Some(to) => {}
                // Messages belong to the conversation, not to a goal inside it.
                Payload::Message { .. } if !self.state.parked && self.state.goals.top().is_some() => {}
                Payload::Message { .. } if joins(pending) => plan.messages.push(pending.clone()),
                Payload::Message { .. } => {}
                Payload::Result { job, .. } if self.state.pending.contains_key(job) => {
                    // A result for another open goal waits for that goal.
                    let waits = |awaited: &PendingJob| self.state.goals.is_waiting(awaited.frame);
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

/// Returns an event without its values, its buckets, its authority and its handed-over sections.
fn without_context(event: &Event) -> Event {
    let (session_context, envelope, handed) = (Values::new(), Envelope::default(), DelegateContext::default());
    Event { session_context, context_ids: Vec::new(), envelope, handed, response_schema: None, ..event.clone() }
}

impl Plan {
    /// Returns the job of the open task.
    pub fn job(&self) -> Option<&JobId> {
        self.task.as_ref().and_then(|task| task.event.job())
    }

    /// Returns the input of the task.
    pub fn input(&self) -> Option<&Value> {
        match &self.task.as_ref()?.event.payload {
            Payload::Task { input, .. } => Some(input),
            Payload::Message { .. } | Payload::Result { .. } | Payload::Decision { .. } => None,
        }
    }

    /// Returns the schema of the task's output.
    pub fn output<'s>(&'s self, config: &'s AgentConfig) -> Option<&'s Value> {
        let own = config.outputs.complete.as_ref().map(|output| &output.schema);
        self.task.as_ref()?.event.response_schema.as_ref().or(own)
    }

    /// Returns what completes the task; a typed output needs a call.
    pub fn completion(&self, config: &AgentConfig) -> CompletionRule {
        if self.output(config).is_some() { CompletionRule::Explicit } else { config.completion }
    }

    /// Returns the task and goal that a turn can end.
    pub fn ends<'s>(&'s self, state: &'s SessionState, config: &'s AgentConfig) -> TurnEnds<'s> {
        let goal = state.goals.top();
        TurnEnds {
            task: self.task.is_some(),
            inner: goal.is_some(),
            output: self.output(config),
            goal: goal.and_then(|goal| goal.output.as_ref()),
        }
    }

    /// Returns the sections that another agent has handed to the task.
    pub fn handed_sections(&self) -> Option<&DelegateContext> {
        self.task.as_ref().map(|task| &task.event.handed).filter(|handed| !handed.is_empty())
    }

    /// Returns the place of the step that the task does, in the pipeline of its agent.
    pub fn step(&self) -> Option<&str> {
        self.handed_sections().and_then(|handed| handed.step.as_deref())
    }

    /// Whether the task runs without an agent of its own.
    pub fn is_anonymous(&self) -> bool {
        self.handed_sections().is_some_and(|handed| handed.anonymous.is_some())
    }

    /// Returns the events for the prompt, with the awaited jobs of the turn's request.
    pub fn served_events(&self, state: &SessionState, mandate: &Mandate) -> ServedEvents {
        let arrived = |job: &JobId| self.results.iter().any(|r| r.event.job() == Some(job));
        let own = |pending: &PendingJob| pending.under.as_ref().is_none_or(|under| under.may_share_turn(mandate));
        let pending = state.pending.iter().filter(|(job, pending)| !arrived(job) && own(pending));
        let begun = state.task.as_ref().filter(|progress| Some(&progress.job) == self.job());
        let remind = begun.is_some_and(|progress| progress.reminded);
        ServedEvents {
            last: false,
            goals: GoalView::default(),
            task: self.task.as_ref().map(|task| without_context(&task.event)),
            results: self.results.iter().map(with_key).collect(),
            messages: self.messages.iter().map(with_key).collect(),
            pending: pending.map(|(job, p)| (job.clone(), p.clone())).collect(),
            remind,
            missed: self.missed.clone(),
        }
    }

    /// Returns the mailbox key of the first event, if no task is served.
    pub fn first_event_key(&self) -> Vec<String> {
        let first = self.results.iter().chain(&self.messages).next().filter(|_| self.task.is_none());
        first.map(|pending| pending.key.clone()).into_iter().collect()
    }

    /// Returns the mailbox keys that the commit removes, whatever the model replies.
    pub fn event_keys(&self) -> Vec<String> {
        self.messages.iter().chain(&self.results).map(|pending| pending.key.clone()).collect()
    }
}

fn with_key(pending: &PendingEvent) -> (String, Event) {
    (pending.key.clone(), without_context(&pending.event))
}
