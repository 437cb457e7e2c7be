//! Turns the reply and the outcomes of its calls into the decision that the turn commits.

use super::endings::{self, Ending};
use super::record::{set_call_result, turn_record};
use super::verdict::{TurnVerdict, decide_verdict, is_waiting};
use super::{ApprovalRequest, CallOutcome, RecordedReply, TurnInput};
use crate::agent::{LoopKind, PromptStyle};
use crate::approval::{Approval, AwaitingCall, AwaitingCalls};
use crate::authority::Authority;
use crate::call::{Outcome, PlannedCall, call_effect};
use crate::chat::ChatMessage;
use crate::context::attach;
use crate::context::record::LedgerWrite;
use crate::context::text;
use crate::event::{Event, Mandate, Payload};
use crate::goal::SummaryAuthority;
use crate::ids::JobId;
use crate::job::{ErrorCode, JobResult, JobStatus};
use crate::limits::FOUND_TOOLS;
use crate::load::{LoadChange, LoadLevel};
use crate::session::{CallerMessage, PendingJob, SessionState, TaskProgress, TurnRecord};
use crate::spend::{DayUse, Tally};
use crate::time::Millis;

/// Result of a call whose task was cancelled.
pub(super) const CANCELLED: &str = "cancelled: the task was cancelled";

/// Everything that a commit writes, except the documents of the tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Line of the timeline and part of the transcript.
    pub record: TurnRecord,
    /// State of the session after the turn.
    pub state: SessionState,
    /// Mailbox keys that the commit removes.
    pub consume: Vec<String>,
    /// The served task with its result, if it ended.
    pub ended_task: Option<(JobId, JobResult)>,
    /// Changes to the loads of the agent.
    pub agent: Vec<LoadChange>,
    /// The turn was cancelled, so its writes to the tree are dropped.
    pub cancelled: bool,
    /// Record of what the model saw; `None` for a turn without a prompt.
    pub ledger: Option<LedgerWrite>,
    /// An earlier turn of this session with new results: of calls on which a person decided, or of a goal that ended.
    pub amended_record: Option<TurnRecord>,
    /// Approvals that the turn asks for.
    pub approvals: Vec<Approval>,
    /// New status of the served task's job, if it changes without ending.
    pub status: Option<(JobId, JobStatus)>,
    /// What the served task has used so far.
    pub tally: Option<(JobId, Tally)>,
    /// What the session has used today, if this turn has used something.
    pub today: Option<DayUse>,
}

/// Makes the transcript's entry of an event.
pub fn transcript_entry(event: &Event, prompt: PromptStyle) -> CallerMessage {
    let attachments = attach::references_of(event).assets;
    match &event.payload {
        Payload::Task { job, input } => CallerMessage {
            job: Some(job.clone()),
            text: text::transcript_task(job, event.caller.as_deref(), input, prompt),
            attachments,
        },
        Payload::Message { .. } | Payload::Result { .. } | Payload::Decision { .. } => {
            CallerMessage { job: None, text: text::whole_event(event), attachments }
        }
    }
}

/// Returns the task if this turn shows it for the first time.
pub fn begun_task(turn_input: &TurnInput) -> Option<&Event> {
    let begun = turn_input.state.task.as_ref().map(|progress| &progress.job);
    turn_input.plan.task.as_ref().filter(|task| begun != task.event.job()).map(|task| &task.event)
}

/// Returns the events that end in a turn without a reply: those in `consume`, and a task that begins.
fn answered_events<'s>(turn_input: &'s TurnInput, consume: &[String]) -> Vec<&'s Event> {
    let plan = &turn_input.plan;
    let consumed = plan.results.iter().chain(&plan.messages).filter(|pending| consume.contains(&pending.key));
    consumed.map(|pending| &pending.event).chain(begun_task(turn_input)).collect()
}

/// Decides a turn with a reply.
pub fn on_reply(
    turn_input: &TurnInput,
    recorded: &RecordedReply,
    mut outcomes: Vec<CallOutcome>,
    now: Millis,
) -> Decision {
    let mut state = carry_state(turn_input, recorded);
    record_started(turn_input, &mut state, &outcomes, now);
    count_children(&mut state, recorded.calls.iter().zip(&outcomes));
    let agent = apply_changes(&mut state, recorded, &outcomes);
    let waits = is_waiting(&state, turn_input.state.goals.active_id());
    let ending = endings::find_ending(turn_input, recorded, &outcomes, waits);
    let verdict = decide_verdict(turn_input, &state, recorded, &outcomes, ending.as_ref());
    if !matches!(verdict, TurnVerdict::Await) {
        cancel_approvals(&mut outcomes);
    }
    if matches!(ending, Some(Ending::Goal(_)))
        || matches!(verdict, TurnVerdict::Ended(_) | TurnVerdict::WindDown | TurnVerdict::Exhausted)
    {
        endings::cancel_opened_goals(recorded, &mut outcomes);
    }
    if let (Some(progress), Some(_)) = (&mut state.task, endings::output_error(turn_input, recorded, &outcomes)) {
        progress.refused += 1;
    }
    let record = turn_record(turn_input, Some(recorded), &outcomes, now);
    advance_goals(turn_input, &mut state, recorded, &outcomes, &record);
    let mut decision = Decision {
        consume: consumed_keys(turn_input, &recorded.consume),
        agent,
        ledger: recorded.ledger.clone(),
        ..Decision::new(record, state)
    };
    if let Some(Ending::Goal(outcome)) = ending {
        decision.close_goal(turn_input, &outcome);
    }
    decision.apply_verdict(turn_input, verdict, outcomes);
    decision
}

/// Applies the changes that the calls ask for to the session; returns the changes to the agent's loads.
fn apply_changes(state: &mut SessionState, recorded: &RecordedReply, outcomes: &[CallOutcome]) -> Vec<LoadChange> {
    // Loads without room leave first, because the model may have loaded them again in this reply.
    let mut agent: Vec<_> = unpin_loads(state, &recorded.unpinned).collect();
    let changes: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.change.clone()).collect();
    for change in &changes {
        change.apply(LoadLevel::Session, &mut state.loads);
        state.goals.apply(change);
        if let LoadChange::Offer(paths) = change {
            let new = paths.iter().filter(|path| !state.tools.contains(path)).cloned().collect::<Vec<_>>();
            state.tools.extend(new);
            // The oldest tools leave, because the schema of each costs bytes in every turn.
            state.tools.drain(..state.tools.len().saturating_sub(FOUND_TOOLS));
        }
    }
    agent.extend(changes.into_iter().filter(LoadChange::is_of_agent));
    agent
}

/// Applies the reply to the goals: compacts turns, and opens new goals.
fn advance_goals(
    turn_input: &TurnInput,
    state: &mut SessionState,
    recorded: &RecordedReply,
    outcomes: &[CallOutcome],
    record: &TurnRecord,
) {
    if let Some(summary) = endings::compaction_summary(turn_input, recorded, outcomes) {
        // The results of this turn's calls are not compacted, because the model has not seen them yet.
        let authority = turn_input.authority.clone().without_home();
        let under = SummaryAuthority { authority, bound: turn_input.mandate.envelope.bound.clone() };
        state.goals.compact(turn_input.turn - 1, &summary, under);
    }
    count_turn(turn_input, state, record);
    let opened = endings::opened_goals(recorded, outcomes);
    if !opened.is_empty() {
        state.goals.open(turn_input.turn, opened, turn_input.plan.job(), &turn_input.mandate);
    }
}

/// Counts the turn and the items of its record for the goal or conversation.
fn count_turn(turn_input: &TurnInput, state: &mut SessionState, record: &TurnRecord) {
    if turn_input.config.looping == LoopKind::GoalTree {
        state.goals.count(record.items());
    }
}

/// Adds the jobs that calls have started to those that the session waits for.
pub(super) fn record_started(turn_input: &TurnInput, state: &mut SessionState, outcomes: &[CallOutcome], now: Millis) {
    for (job, agent) in outcomes.iter().filter_map(|outcome| outcome.started.as_ref()) {
        let under = turn_input.plan.task.is_none().then(|| turn_input.mandate.clone());
        let frame = turn_input.state.goals.active_id();
        state.pending.insert(job.clone(), PendingJob { agent: agent.clone(), started: now, under, frame });
    }
}

/// Counts child jobs, messages and timers against the limit of a run, including jobs that have ended at once.
pub(super) fn count_children<'c>(
    state: &mut SessionState,
    calls: impl Iterator<Item = (&'c PlannedCall, &'c CallOutcome)>,
) {
    let begun = calls.filter(|(call, outcome)| call_effect(call).is_some() && outcome.outcome == Outcome::Ok).count();
    state.children = state.children.saturating_add(u32::try_from(begun).unwrap_or(u32::MAX));
}

/// Cancels the approvals that calls ask for, because the task or goal ends with this turn.
pub(super) fn cancel_approvals(outcomes: &mut [CallOutcome]) {
    for outcome in outcomes.iter_mut().filter(|outcome| outcome.asked.is_some()) {
        *outcome =
            CallOutcome::from_text(Outcome::Cancelled, "not made: it needs an approval, and the task ended here");
    }
}

/// Removes loads that had no room in the context: those of the session at once. Returns the changes for those of the
/// agent.
fn unpin_loads<'r>(state: &mut SessionState, unpinned: &'r [String]) -> impl Iterator<Item = LoadChange> + 'r {
    let is_own = |path: &&String| state.goals.loads(&state.loads).iter().any(|load| load.path == **path);
    let (own, agents): (Vec<_>, Vec<_>) = unpinned.iter().partition(is_own);
    state.loads.retain(|load| !own.contains(&&load.path));
    state.goals.unload(unpinned);
    agents.into_iter().map(|path| LoadChange::Unload(LoadLevel::Agent, path.clone()))
}

/// Decides a turn that has no reply: the task fails, and the events in `consume` are removed with a note. Other events
/// stay for the next turn.
pub fn on_failure(turn_input: &TurnInput, consume: &[String], code: ErrorCode, error: &str, now: Millis) -> Decision {
    let mut record = turn_record(turn_input, None, &[], now);
    // The note stands in the record with its events, because callers of `agent/chat` look for their event there.
    let shown = answered_events(turn_input, consume);
    record.heard = shown.iter().map(|event| transcript_entry(event, turn_input.config.prompt_style())).collect();
    record.events = shown.iter().map(|event| event.id.clone()).collect();
    record.failed = Some(code);
    record.said.push(ChatMessage::assistant(format!("[{error}]"), Vec::new()));
    // A task that has begun and isn't served continues with its goals.
    let over = turn_input.plan.task.is_some() || turn_input.state.task.is_none();
    if over {
        record.frame = 0;
    }
    let mut decision =
        Decision { consume: consumed_keys(turn_input, consume), ..Decision::new(record, turn_input.state.clone()) };
    for result in turn_input.plan.results.iter().filter(|result| consume.contains(&result.key)) {
        if let Some(job) = result.event.job() {
            decision.state.pending.remove(job);
        }
    }
    decision.state.shown.clear();
    decision.state.under = None;
    decision.state.loose_turns = 0;
    decision.state.children = 0;
    if over {
        decision.state.goals.end();
    }
    count_turn(turn_input, &mut decision.state, &decision.record);
    decision.end_task(turn_input, JobResult::failure(code, error));
    decision
}

/// Decides a turn whose task was cancelled while it ran. The transcript stays consistent and has the known outcomes of
/// calls that can't be undone; nothing else is stored.
pub fn on_cancellation(
    turn_input: &TurnInput,
    recorded: Option<&RecordedReply>,
    noted: &[(u32, CallOutcome)],
    now: Millis,
) -> Decision {
    let known = |index: u32| noted.iter().find(|(at, _)| *at == index).map(|(_, outcome)| outcome.clone());
    let outcomes: Vec<_> = recorded
        .into_iter()
        .flat_map(|recorded| recorded.calls.iter().zip(0..))
        .map(|(_, index)| known(index).unwrap_or_else(|| CallOutcome::from_text(Outcome::Cancelled, CANCELLED)))
        .collect();
    let consume = consumed_keys(turn_input, recorded.map_or(&[], |recorded| &recorded.consume));
    let state = SessionState { shown: Vec::new(), under: None, ..turn_input.state.clone() };
    let decision = Decision {
        consume,
        ledger: recorded.and_then(|recorded| recorded.ledger.clone()),
        ..Decision::new(turn_record(turn_input, recorded, &outcomes, now), state)
    };
    decision.cancel(turn_input)
}

/// Returns the mailbox keys that a commit removes: those of its turn, and those that a loose run has shown before.
pub(super) fn consumed_keys(turn_input: &TurnInput, now: &[String]) -> Vec<String> {
    let mut keys = turn_input.state.shown.clone();
    keys.extend(now.iter().filter(|key| !turn_input.state.shown.contains(key)).cloned());
    keys
}

/// Returns the session state after a turn with a reply, before its outcomes.
pub(super) fn carry_state(turn_input: &TurnInput, recorded: &RecordedReply) -> SessionState {
    let mut state = turn_input.state.clone();
    for result in &turn_input.plan.results {
        if recorded.consume.contains(&result.key)
            && let Some(job) = result.event.job()
        {
            state.pending.remove(job);
        }
    }
    state.parked = false;
    state.shown.clear();
    state.under = None;
    state.prefixes.retain(|frame, _| *frame == 0 || turn_input.state.goals.frames.iter().any(|open| open.id == *frame));
    // The last turn of a task has other tools, so the next prompt continues the prefix before it.
    let prefix = recorded.prefix.clone().filter(|_| recorded.last.is_none());
    state.prefixes.extend(prefix.map(|prefix| (recorded.frame, prefix)));
    match turn_input.plan.job() {
        None => {
            state.task = None;
            state.loose_turns = if turn_input.plan.messages.is_empty() { state.loose_turns + 1 } else { 1 };
        }
        Some(job) => {
            let before = state.task.take().filter(|progress| progress.job == *job);
            let before = before.unwrap_or_else(|| TaskProgress::new(job.clone()));
            let deadline = turn_input.purse.deadline;
            state.task = Some(TaskProgress { turns: before.turns + 1, deadline, ..before });
        }
    }
    state
}

impl Decision {
    /// Makes a decision with this record and state and nothing else.
    pub(super) const fn new(record: TurnRecord, state: SessionState) -> Self {
        Self {
            record,
            state,
            consume: Vec::new(),
            ended_task: None,
            agent: Vec::new(),
            cancelled: false,
            ledger: None,
            amended_record: None,
            approvals: Vec::new(),
            status: None,
            tally: None,
            today: None,
        }
    }

    /// Returns the record with the results of the calls that this turn makes.
    pub fn results_record_mut(&mut self) -> &mut TurnRecord {
        match &mut self.amended_record {
            Some(amended) if self.record.settles.is_some() => amended,
            // The other case: the amended turn opened a goal and has other calls.
            Some(_) | None => &mut self.record,
        }
    }

    /// Returns the record of [`Self::results_record_mut`] for reading.
    pub fn results_record(&self) -> &TurnRecord {
        self.amended_record.as_ref().filter(|_| self.record.settles.is_some()).unwrap_or(&self.record)
    }

    /// Narrows the authority of the record, if it was narrowed before the commit.
    pub fn narrow_authority(&mut self, now: Authority) {
        let before = std::mem::replace(&mut self.record.authority, now.without_home());
        if before != self.record.authority {
            self.record.wider.get_or_insert(before);
        }
    }

    /// Removes the approvals of calls that are denied before the commit.
    pub fn remove_approvals(&mut self, denied: &[u32]) {
        let Some(awaiting) = self.state.awaiting.as_mut().filter(|_| !self.approvals.is_empty()) else { return };
        let is_denied = |call: &AwaitingCall| denied.contains(&call.call);
        self.approvals.retain(|asked| !awaiting.calls.iter().any(|call| is_denied(call) && call.approval == asked.id));
        awaiting.all_started &= !awaiting.calls.iter().any(is_denied);
        awaiting.calls.retain(|call| !is_denied(call));
        if awaiting.calls.is_empty() {
            (self.state.awaiting, self.status) = (None, None);
        }
    }

    /// Stores the calls that wait for a person. The model is asked again only after the decision; the events of a loose
    /// run stay in the mailbox.
    fn store_waiting_calls(&mut self, turn_input: &TurnInput, outcomes: Vec<CallOutcome>) {
        if turn_input.plan.task.is_none() {
            self.keep_events(turn_input);
        }
        let all_started = outcomes.iter().all(|outcome| outcome.asked.is_some() || outcome.started.is_some());
        let asked = (0..).zip(outcomes).filter_map(|(call, outcome)| Some((call, *outcome.asked?)));
        let (mut asked_now, mut calls) = (Vec::new(), Vec::new());
        for (call, ApprovalRequest { approval, planned }) in asked {
            calls.push(AwaitingCall { approval: approval.id.clone(), call, expires: approval.expires, planned });
            asked_now.push(approval);
        }
        self.approvals = asked_now;
        let job = turn_input.plan.job().cloned();
        self.status = job.clone().map(|job| (job, JobStatus::InputRequired));
        let authority = turn_input.authority.clone().without_home();
        self.state.awaiting = Some(AwaitingCalls { turn: turn_input.turn, job, authority, all_started, calls });
    }

    /// Applies the verdict to the task or loose run.
    pub(super) fn apply_verdict(&mut self, turn_input: &TurnInput, verdict: TurnVerdict, outcomes: Vec<CallOutcome>) {
        match verdict {
            TurnVerdict::Ended(result) => self.end_task(turn_input, result),
            TurnVerdict::Await => self.store_waiting_calls(turn_input, outcomes),
            TurnVerdict::GoOn => {}
            TurnVerdict::Loose => self.keep_events(turn_input),
            TurnVerdict::Park => self.state.parked = true,
            TurnVerdict::WindDown => {
                if let Some(progress) = &mut self.state.task {
                    progress.winding = true;
                }
            }
            TurnVerdict::Remind => {
                if let Some(progress) = &mut self.state.task {
                    progress.reminded = true;
                }
            }
            TurnVerdict::Refuse(wrong) => {
                self.record.said.push(ChatMessage::user(text::output_refusal(&wrong)));
                if let Some(progress) = &mut self.state.task {
                    progress.reminded = true;
                    progress.refused += 1;
                }
            }
            TurnVerdict::Idle => (self.state.loose_turns, self.state.children) = (0, 0),
            TurnVerdict::Exhausted => {
                self.state.children = 0;
                // Results of pending jobs would begin further turns without any limit.
                self.state.loose_turns = 0;
                self.state.pending.clear();
                self.abandon_goal(turn_input);
                self.state.goals.end();
            }
        }
    }

    /// Closes the goal that the turn worked on, and writes its result to the call that opened it.
    fn close_goal(&mut self, turn_input: &TurnInput, outcome: &CallOutcome) {
        let Some(closed) = self.state.goals.close() else { return };
        if let Some(opener) = &turn_input.opener {
            let mut opener = TurnRecord::clone(opener);
            set_call_result(&mut opener, closed.call, outcome);
            if turn_input.authority.covers(&opener.authority) {
                // Who reads the result may see what this turn has seen, so the record gets the narrower authority.
                opener.authority = turn_input.authority.clone().without_home();
            }
            let learned =
                self.record.calls.iter().flat_map(|call| &call.needs).chain(self.record.used.iter().flatten());
            let learned: Vec<_> = learned.cloned().collect();
            if let Some(call) = usize::try_from(closed.call).ok().and_then(|at| opener.calls.get_mut(at)) {
                call.needs.extend(learned);
            }
            self.amended_record = Some(opener);
        }
    }

    /// Ends the goal that the turn worked on because its task has ended; the call that opened it gets a note.
    fn abandon_goal(&mut self, turn_input: &TurnInput) {
        if let (Some(frame), Some(opener), None) =
            (turn_input.state.goals.top(), &turn_input.opener, &self.amended_record)
        {
            let mut opener = TurnRecord::clone(opener);
            let text = "not finished: what it was for has ended";
            set_call_result(&mut opener, frame.call, &CallOutcome::from_text(Outcome::Cancelled, text));
            self.amended_record = Some(opener);
        }
    }

    /// Returns the decision with the record of its prompt.
    #[must_use]
    pub fn with_ledger(self, ledger: LedgerWrite) -> Self {
        Self { ledger: Some(ledger), ..self }
    }

    /// Leaves the shown events in the mailbox, because a loose run continues.
    fn keep_events(&mut self, turn_input: &TurnInput) {
        self.state.shown = std::mem::take(&mut self.consume);
        self.state.under = Some(turn_input.mandate.clone()).filter(|mandate| *mandate != Mandate::default());
    }

    fn end_task(&mut self, turn_input: &TurnInput, result: JobResult) {
        if let Some(task) = &turn_input.plan.task {
            self.abandon_goal(turn_input);
            self.state.end_task();
            self.consume.push(task.key.clone());
            if let Some(job) = task.event.job() {
                self.record.ended.push((job.clone(), result.status));
                self.ended_task = Some((job.clone(), result));
            }
        }
    }

    /// Cancels the decision because its task was cancelled before the commit. Text and calls stay in the transcript;
    /// output, writes and messages are dropped.
    #[must_use]
    pub fn cancel(mut self, turn_input: &TurnInput) -> Self {
        self.ended_task = None;
        self.status = None;
        self.approvals.clear();
        self.agent.clear();
        self.record.ended.clear();
        self.cancelled = true;
        self.abandon_goal(turn_input);
        self.state.end_task();
        if let Some(task) = &turn_input.plan.task
            && !self.consume.contains(&task.key)
        {
            self.consume.push(task.key.clone());
        }
        self
    }
}
