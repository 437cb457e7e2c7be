//! Turns the reply and the outcomes of its calls into the decision that the turn commits.

use super::ends::{self, Ending};
use super::record::{answer, record};
use super::verdict::{Verdict, is_waiting, verdict};
use super::{Asked, CallOutcome, Recorded, Setting};
use crate::agent::{Looping, PromptStyle};
use crate::approval::{Approval, Awaiting, AwaitingCall};
use crate::authority::Authority;
use crate::call::Outcome;
use crate::call::causes;
use crate::chat::ChatMessage;
use crate::context::attach;
use crate::context::record::LedgerWrite;
use crate::context::text;
use crate::event::{Event, Mandate, Payload};
use crate::ids::JobId;
use crate::job::{ErrorCode, JobResult, JobStatus};
use crate::limits::FOUND_TOOLS;
use crate::load::{Level, LoadChange};
use crate::session::{Heard, PendingJob, SessionState, TaskProgress, TurnRecord};
use crate::spend::{Tally, Today};
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
    pub ended: Option<(JobId, JobResult)>,
    /// Changes to the loads of the agent.
    pub agent: Vec<LoadChange>,
    /// The turn was cancelled, so its writes to the tree are dropped.
    pub cancelled: bool,
    /// Record of what the model saw; `None` for a turn without a prompt.
    pub ledger: Option<LedgerWrite>,
    /// An earlier turn of this session with new results: of calls on which a person decided, or of a goal that ended.
    pub amended: Option<TurnRecord>,
    /// Approvals that the turn asks for.
    pub asked: Vec<Approval>,
    /// New status of the served task's job, if it changes without ending.
    pub status: Option<(JobId, JobStatus)>,
    /// What the served task has used so far.
    pub tally: Option<(JobId, Tally)>,
    /// What the session has used today, if this turn has used something.
    pub today: Option<Today>,
}

/// Makes the transcript's entry of an event.
pub fn heard_entry(event: &Event, prompt: PromptStyle) -> Heard {
    let attachments = attach::references_of(event).assets;
    match &event.payload {
        Payload::Task { job, input } => Heard {
            job: Some(job.clone()),
            text: text::heard_task(job, event.caller.as_deref(), input, prompt),
            attachments,
        },
        Payload::Message { .. } | Payload::Result { .. } | Payload::Decision { .. } => {
            Heard { job: None, text: text::whole_event(event), attachments }
        }
    }
}

/// Returns the task if this turn shows it for the first time.
pub fn begun(setting: &Setting) -> Option<&Event> {
    let begun = setting.state.task.as_ref().map(|progress| &progress.job);
    setting.plan.task.as_ref().filter(|task| begun != task.event.job()).map(|task| &task.event)
}

/// Returns the events that end in a turn without a reply: those in `consume`, and a task that begins.
fn answered<'s>(setting: &'s Setting, consume: &[String]) -> Vec<&'s Event> {
    let plan = &setting.plan;
    let consumed = plan.results.iter().chain(&plan.messages).filter(|pending| consume.contains(&pending.key));
    consumed.map(|pending| &pending.event).chain(begun(setting)).collect()
}

/// Decides a turn with a reply.
pub fn replied(setting: &Setting, recorded: &Recorded, mut outcomes: Vec<CallOutcome>, now: Millis) -> Decision {
    let mut state = carry(setting, recorded);
    started(setting, &mut state, &outcomes, now);
    count_children(&mut state, recorded.calls.iter().zip(&outcomes));
    let agent = changed(&mut state, recorded, &outcomes);
    let waits = is_waiting(&state, setting.state.goals.active());
    let ending = ends::ending(setting, recorded, &outcomes, waits);
    let verdict = verdict(setting, &state, recorded, &outcomes, ending.as_ref());
    if !matches!(verdict, Verdict::Await) {
        unasked(&mut outcomes);
    }
    if matches!(ending, Some(Ending::Goal(_)))
        || matches!(verdict, Verdict::Ended(_) | Verdict::WindDown | Verdict::Exhausted)
    {
        ends::unopened(recorded, &mut outcomes);
    }
    if let (Some(progress), Some(_)) = (&mut state.task, ends::misfit(setting, recorded, &outcomes)) {
        progress.refused += 1;
    }
    let record = record(setting, Some(recorded), &outcomes, now);
    advance(setting, &mut state, recorded, &outcomes, &record);
    let mut decision = Decision {
        consume: consumed(setting, &recorded.consume),
        agent,
        ledger: recorded.ledger.clone(),
        ..Decision::new(record, state)
    };
    if let Some(Ending::Goal(outcome)) = ending {
        decision.give_back(setting, &outcome);
    }
    decision.follow(setting, verdict, outcomes);
    decision
}

/// Applies the changes that the calls ask for to the session; returns the changes to the agent's loads.
fn changed(state: &mut SessionState, recorded: &Recorded, outcomes: &[CallOutcome]) -> Vec<LoadChange> {
    // Loads without room leave first, because the model may have loaded them again in this reply.
    let mut agent: Vec<_> = unpin(state, &recorded.unpinned).collect();
    let changes: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.change.clone()).collect();
    for change in &changes {
        change.apply(Level::Session, &mut state.loads);
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
fn advance(
    setting: &Setting,
    state: &mut SessionState,
    recorded: &Recorded,
    outcomes: &[CallOutcome],
    record: &TurnRecord,
) {
    if let Some(summary) = ends::compaction(setting, recorded, outcomes) {
        // The results of this turn's calls are not compacted, because the model has not seen them yet.
        let under = (setting.authority.clone().nowhere(), setting.mandate.envelope.bound.clone());
        state.goals.compact(setting.turn - 1, &summary, under);
    }
    count_turn(setting, state, record);
    let opened = ends::opened(recorded, outcomes);
    if !opened.is_empty() {
        state.goals.open(setting.turn, opened, setting.plan.job(), &setting.mandate);
    }
}

/// Counts the turn and the items of its record for the goal or conversation.
fn count_turn(setting: &Setting, state: &mut SessionState, record: &TurnRecord) {
    if setting.config.looping == Looping::GoalTree {
        state.goals.count(record.items());
    }
}

/// Adds the jobs that calls have started to those that the session waits for.
pub(super) fn started(setting: &Setting, state: &mut SessionState, outcomes: &[CallOutcome], now: Millis) {
    for (job, agent) in outcomes.iter().filter_map(|outcome| outcome.started.as_ref()) {
        let under = setting.plan.task.is_none().then(|| setting.mandate.clone());
        let frame = setting.state.goals.active();
        state.pending.insert(job.clone(), PendingJob { agent: agent.clone(), started: now, under, frame });
    }
}

/// Counts child jobs, messages and timers against the limit of a run, including jobs that have ended at once.
pub(super) fn count_children<'c>(
    state: &mut SessionState,
    calls: impl Iterator<Item = (&'c super::PlannedCall, &'c CallOutcome)>,
) {
    let begun = calls.filter(|(call, outcome)| causes(call).is_some() && outcome.outcome == Outcome::Ok).count();
    state.children = state.children.saturating_add(u32::try_from(begun).unwrap_or(u32::MAX));
}

/// Cancels the approvals that calls ask for, because the task or goal ends with this turn.
fn unasked(outcomes: &mut [CallOutcome]) {
    for outcome in outcomes.iter_mut().filter(|outcome| outcome.asked.is_some()) {
        *outcome = CallOutcome::plain(Outcome::Cancelled, "not made: it needs an approval, and the task ended here");
    }
}

/// Removes loads that had no room in the context: those of the session at once. Returns the changes for those of the
/// agent.
fn unpin<'r>(state: &mut SessionState, unpinned: &'r [String]) -> impl Iterator<Item = LoadChange> + 'r {
    let is_own = |path: &&String| state.goals.loads(&state.loads).iter().any(|load| load.path == **path);
    let (own, agents): (Vec<_>, Vec<_>) = unpinned.iter().partition(is_own);
    state.loads.retain(|load| !own.contains(&&load.path));
    state.goals.unload(unpinned);
    agents.into_iter().map(|path| LoadChange::Unload(Level::Agent, path.clone()))
}

/// Decides a turn that has no reply: the task fails, and the events in `consume` are removed with a note. Other events
/// stay for the next turn.
pub fn failed(setting: &Setting, consume: &[String], code: ErrorCode, error: &str, now: Millis) -> Decision {
    let mut record = record(setting, None, &[], now);
    // The note stands in the record with its events, because callers of `agent/chat` look for their event there.
    let shown = answered(setting, consume);
    record.heard = shown.iter().map(|event| heard_entry(event, setting.config.prompt_style())).collect();
    record.events = shown.iter().map(|event| event.id.clone()).collect();
    record.said.push(ChatMessage::assistant(format!("[{error}]"), Vec::new()));
    // A task that has begun and isn't served continues with its goals.
    let over = setting.plan.task.is_some() || setting.state.task.is_none();
    if over {
        record.frame = 0;
    }
    let mut decision = Decision { consume: consumed(setting, consume), ..Decision::new(record, setting.state.clone()) };
    for result in setting.plan.results.iter().filter(|result| consume.contains(&result.key)) {
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
    count_turn(setting, &mut decision.state, &decision.record);
    decision.end(setting, JobResult::failed(code, error));
    decision
}

/// Decides a turn whose task was cancelled while it ran. The transcript stays consistent and has the known outcomes of
/// calls that can't be undone; nothing else is stored.
pub fn cancelled(
    setting: &Setting,
    recorded: Option<&Recorded>,
    noted: &[(u32, CallOutcome)],
    now: Millis,
) -> Decision {
    let known = |index: u32| noted.iter().find(|(at, _)| *at == index).map(|(_, outcome)| outcome.clone());
    let outcomes: Vec<_> = recorded
        .into_iter()
        .flat_map(|recorded| recorded.calls.iter().zip(0..))
        .map(|(_, index)| known(index).unwrap_or_else(|| CallOutcome::plain(Outcome::Cancelled, CANCELLED)))
        .collect();
    let consume = consumed(setting, recorded.map_or(&[], |recorded| &recorded.consume));
    let state = SessionState { shown: Vec::new(), under: None, ..setting.state.clone() };
    let decision = Decision {
        consume,
        ledger: recorded.and_then(|recorded| recorded.ledger.clone()),
        ..Decision::new(record(setting, recorded, &outcomes, now), state)
    };
    decision.cancel(setting)
}

/// Returns the mailbox keys that a commit removes: those of its turn, and those that a loose run has shown before.
fn consumed(setting: &Setting, now: &[String]) -> Vec<String> {
    let mut keys = setting.state.shown.clone();
    keys.extend(now.iter().filter(|key| !setting.state.shown.contains(key)).cloned());
    keys
}

/// Returns the session state after a turn with a reply, before its outcomes.
fn carry(setting: &Setting, recorded: &Recorded) -> SessionState {
    let mut state = setting.state.clone();
    for result in &setting.plan.results {
        if recorded.consume.contains(&result.key)
            && let Some(job) = result.event.job()
        {
            state.pending.remove(job);
        }
    }
    state.parked = false;
    state.shown.clear();
    state.under = None;
    state.prefixes.retain(|frame, _| *frame == 0 || setting.state.goals.frames.iter().any(|open| open.id == *frame));
    // The last turn of a task has other tools, so the next prompt continues the prefix before it.
    let prefix = recorded.prefix.clone().filter(|_| recorded.last.is_none());
    state.prefixes.extend(prefix.map(|prefix| (recorded.frame, prefix)));
    match setting.plan.job() {
        None => {
            state.task = None;
            state.loose_turns = if setting.plan.messages.is_empty() { state.loose_turns + 1 } else { 1 };
        }
        Some(job) => {
            let before = state.task.take().filter(|progress| progress.job == *job);
            let before = before.unwrap_or_else(|| TaskProgress::new(job.clone()));
            let deadline = setting.purse.deadline;
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
            ended: None,
            agent: Vec::new(),
            cancelled: false,
            ledger: None,
            amended: None,
            asked: Vec::new(),
            status: None,
            tally: None,
            today: None,
        }
    }

    /// Returns the record with the results of the calls that this turn makes.
    pub fn shown(&mut self) -> &mut TurnRecord {
        match &mut self.amended {
            Some(amended) if self.record.settles.is_some() => amended,
            // The other case: the amended turn opened a goal and has other calls.
            Some(_) | None => &mut self.record,
        }
    }

    /// Returns the record of [`Self::shown`] for reading.
    pub fn exchange(&self) -> &TurnRecord {
        self.amended.as_ref().filter(|_| self.record.settles.is_some()).unwrap_or(&self.record)
    }

    /// Narrows the authority of the record, if it was narrowed before the commit.
    pub fn narrowed(&mut self, now: Authority) {
        let before = std::mem::replace(&mut self.record.authority, now.nowhere());
        if before != self.record.authority {
            self.record.wider.get_or_insert(before);
        }
    }

    /// Removes the approvals of calls that are denied before the commit.
    pub fn unask(&mut self, denied: &[u32]) {
        let Some(awaiting) = self.state.awaiting.as_mut().filter(|_| !self.asked.is_empty()) else { return };
        let is_denied = |call: &AwaitingCall| denied.contains(&call.call);
        self.asked.retain(|asked| !awaiting.calls.iter().any(|call| is_denied(call) && call.approval == asked.id));
        awaiting.all_started &= !awaiting.calls.iter().any(is_denied);
        awaiting.calls.retain(|call| !is_denied(call));
        if awaiting.calls.is_empty() {
            (self.state.awaiting, self.status) = (None, None);
        }
    }

    /// Stores the calls that wait for a person. The model is asked again only after the decision; the events of a loose
    /// run stay in the mailbox.
    fn wait_for_people(&mut self, setting: &Setting, outcomes: Vec<CallOutcome>) {
        if setting.plan.task.is_none() {
            self.keep(setting);
        }
        let all_started = outcomes.iter().all(|outcome| outcome.asked.is_some() || outcome.started.is_some());
        let asked = (0..).zip(outcomes).filter_map(|(call, outcome)| Some((call, *outcome.asked?)));
        let (mut asked_now, mut calls) = (Vec::new(), Vec::new());
        for (call, Asked { approval, planned }) in asked {
            calls.push(AwaitingCall { approval: approval.id.clone(), call, expires: approval.expires, planned });
            asked_now.push(approval);
        }
        self.asked = asked_now;
        let job = setting.plan.job().cloned();
        self.status = job.clone().map(|job| (job, JobStatus::InputRequired));
        let authority = setting.authority.clone().nowhere();
        self.state.awaiting = Some(Awaiting { turn: setting.turn, job, authority, all_started, calls });
    }

    /// Applies the verdict to the task or loose run.
    fn follow(&mut self, setting: &Setting, verdict: Verdict, outcomes: Vec<CallOutcome>) {
        match verdict {
            Verdict::Ended(result) => self.end(setting, result),
            Verdict::Await => self.wait_for_people(setting, outcomes),
            Verdict::GoOn => {}
            Verdict::Loose => self.keep(setting),
            Verdict::Park => self.state.parked = true,
            Verdict::WindDown => {
                if let Some(progress) = &mut self.state.task {
                    progress.winding = true;
                }
            }
            Verdict::Remind => {
                if let Some(progress) = &mut self.state.task {
                    progress.reminded = true;
                }
            }
            Verdict::Refuse(wrong) => {
                self.record.said.push(ChatMessage::user(text::refused_output(&wrong)));
                if let Some(progress) = &mut self.state.task {
                    progress.reminded = true;
                    progress.refused += 1;
                }
            }
            Verdict::Idle => (self.state.loose_turns, self.state.children) = (0, 0),
            Verdict::Exhausted => {
                self.state.children = 0;
                // Results of pending jobs would begin further turns without any limit.
                self.state.loose_turns = 0;
                self.state.pending.clear();
                self.abandon(setting);
                self.state.goals.end();
            }
        }
    }

    /// Closes the goal that the turn worked on, and writes its result to the call that opened it.
    fn give_back(&mut self, setting: &Setting, outcome: &CallOutcome) {
        let Some(closed) = self.state.goals.close() else { return };
        if let Some(opener) = &setting.opener {
            let mut opener = TurnRecord::clone(opener);
            answer(&mut opener, closed.call, outcome);
            if setting.authority.covers(&opener.authority) {
                // Who reads the result may see what this turn has seen, so the record gets the narrower authority.
                opener.authority = setting.authority.clone().nowhere();
            }
            let learned =
                self.record.calls.iter().flat_map(|call| &call.needs).chain(self.record.used.iter().flatten());
            let learned: Vec<_> = learned.cloned().collect();
            if let Some(call) = usize::try_from(closed.call).ok().and_then(|at| opener.calls.get_mut(at)) {
                call.needs.extend(learned);
            }
            self.amended = Some(opener);
        }
    }

    /// Ends the goal that the turn worked on because its task has ended; the call that opened it gets a note.
    fn abandon(&mut self, setting: &Setting) {
        if let (Some(frame), Some(opener), None) = (setting.state.goals.top(), &setting.opener, &self.amended) {
            let mut opener = TurnRecord::clone(opener);
            let text = "not finished: what it was for has ended";
            answer(&mut opener, frame.call, &CallOutcome::plain(Outcome::Cancelled, text));
            self.amended = Some(opener);
        }
    }

    /// Returns the decision with the record of its prompt.
    #[must_use]
    pub fn with(self, ledger: LedgerWrite) -> Self {
        Self { ledger: Some(ledger), ..self }
    }

    /// Leaves the shown events in the mailbox, because a loose run continues.
    fn keep(&mut self, setting: &Setting) {
        self.state.shown = std::mem::take(&mut self.consume);
        self.state.under = Some(setting.mandate.clone()).filter(|mandate| *mandate != Mandate::default());
    }

    fn end(&mut self, setting: &Setting, result: JobResult) {
        if let Some(task) = &setting.plan.task {
            self.abandon(setting);
            self.state.end_task();
            self.consume.push(task.key.clone());
            if let Some(job) = task.event.job() {
                self.record.ended.push((job.clone(), result.status));
                self.ended = Some((job.clone(), result));
            }
        }
    }

    /// Cancels the decision because its task was cancelled before the commit. Text and calls stay in the transcript;
    /// output, writes and messages are dropped.
    #[must_use]
    pub fn cancel(mut self, setting: &Setting) -> Self {
        self.ended = None;
        self.status = None;
        self.asked.clear();
        self.agent.clear();
        self.record.ended.clear();
        self.cancelled = true;
        self.abandon(setting);
        self.state.end_task();
        if let Some(task) = &setting.plan.task
            && !self.consume.contains(&task.key)
        {
            self.consume.push(task.key.clone());
        }
        self
    }
}
