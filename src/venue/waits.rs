//! Why jobs, sessions and agents wait. Any process can tell it: by the records of sessions, the notes of workers that
//! gave work back, and the registry of workers.

use crate::domain::agent::{AgentRecord, AgentStatus};
use crate::domain::event::EventKind;
use crate::domain::gate::Gate;
use crate::domain::ids::{AgentId, JobId, Owner, SessionKey};
use crate::domain::invocation::NO_AGENT;
use crate::domain::job::{Job, JobStatus, WaitNote};
use crate::domain::lease::DUE_AFTER;
use crate::domain::mcp::pending::PENDING_CALL;
use crate::domain::reader::{JobReader, JobVisibility};
use crate::domain::session::SessionState;
use crate::domain::time::Millis;
use crate::domain::wait::{WaitCause, WaitReason};
use crate::store::{MailboxEntry, SessionFacts, StoreError, keys};
use crate::venue::agents::{self, sessions};
use crate::venue::operation_jobs::find_tool_call;
use crate::venue::registry;
use crate::venue::{Venue, approvals, jobs};

/// Sessions that one request reads: a parent, its children and theirs.
const LOOKS: usize = 24;

/// Sessions of an agent that are read at a time: their states may be large.
const SESSIONS_STEP: usize = 20;

/// Sessions of an agent that are read for one that waits.
const SESSIONS: usize = 1_000;

/// Waiting sessions of an agent whose reasons are read, until one needs a person.
const EXPLAINED: usize = 24;

/// Sets why a job waits, as far as this reader may know it.
pub async fn explain(venue: &Venue, owner: &Owner, reader: &JobReader, job: &mut Job) -> Result<(), StoreError> {
    match WaitSearch::new(venue, owner, reader).job_reason(job).await? {
        Some(wait) => job.set_wait(wait),
        // The job runs: its old reason is removed.
        None if !job.status.is_terminal() => (job.wait, job.waiting) = (None, None),
        None => {}
    }
    Ok(())
}

/// Returns why a session waits, as far as this reader may know it; `None` while it runs, and if it has nothing to do.
pub async fn session_reason(
    venue: &Venue,
    owner: &Owner,
    reader: &JobReader,
    key: &SessionKey,
) -> Result<Option<WaitReason>, StoreError> {
    let Some(facts) = sessions::find(venue, owner, key).await? else { return Ok(None) };
    WaitSearch::new(venue, owner, reader).visible_reason(&facts).await
}

/// What an agent waits for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentWait {
    /// Reason of a session, preferably of one that needs a person; `None` if no session that was read waits.
    pub reason: Option<WaitReason>,
    /// Whether the agent has more sessions than were read.
    pub is_partial: bool,
}

/// Returns why an agent's work waits, as far as this reader may know it: the agent is suspended, or one of its sessions
/// waits.
pub async fn agent_reason(
    venue: &Venue,
    owner: &Owner,
    reader: &JobReader,
    id: &AgentId,
) -> Result<AgentWait, StoreError> {
    let mut found = AgentWait::default();
    let Some((agent, _)) = agents::get(venue, owner, id).await? else { return Ok(found) };
    let mut look = WaitSearch::new(venue, owner, reader);
    if agent.status == AgentStatus::Suspended {
        found.reason = Some(look.withhold(jobs::suspension_reason(&agent), id));
        return Ok(found);
    }
    let mut pages = venue.store.all_sessions(owner, Some(id)).page_size(SESSIONS_STEP);
    let (mut read, mut explained) = (0, 0);
    while let Some(page) = pages.next().await? {
        read += page.len();
        for facts in page.iter().filter(|facts| !facts.mailbox.is_empty() && !is_leased(facts, venue.now())) {
            let Some(reason) = look.visible_reason(facts).await? else { continue };
            explained += 1;
            let needs_person = reason.needs_person();
            if needs_person || found.reason.is_none() {
                found.reason = Some(reason);
            }
            if needs_person || explained == EXPLAINED {
                return Ok(found);
            }
        }
        if read >= SESSIONS {
            found.is_partial = true;
            break;
        }
    }
    Ok(found)
}

/// A turn that a worker runs.
pub struct RunningTurn {
    /// Number of the turn in the session, from 1.
    pub turn: u64,
    /// Name of the worker.
    pub worker: String,
    /// When that worker acquired the session.
    pub since: Millis,
}

/// Returns the turn of a task that runs now; `None` while the task waits, and when it has ended.
pub async fn running_turn(venue: &Venue, owner: &Owner, job: &Job) -> Result<Option<RunningTurn>, StoreError> {
    if job.status.is_terminal() || job.head.op.is_some() {
        return Ok(None);
    }
    let key = SessionKey { agent: job.head.agent.clone(), session: job.head.session.clone() };
    let found = sessions::find(venue, owner, &key).await?.filter(|facts| is_leased(facts, venue.now()));
    let Some(facts) = found else { return Ok(None) };
    let served = next_task(&facts, &sessions::state(&facts)).and_then(|task| task.job.as_ref());
    let worker = facts.lease_worker.clone().filter(|_| served == Some(&job.head.id));
    Ok(worker.map(|worker| RunningTurn { turn: facts.version + 1, worker, since: Millis(facts.epoch) }))
}

fn is_leased(facts: &SessionFacts, now: Millis) -> bool {
    facts.lease_until.is_some_and(|until| until > now)
}

/// Search for the reasons of one reader.
struct WaitSearch<'v> {
    venue: &'v Venue,
    owner: &'v Owner,
    reader: &'v JobReader,
    /// Sessions that may still be read.
    left: usize,
}

/// Why a session waits, and the job of the task that it serves next; `None` if it has nothing to do.
type SessionWait = Option<(Option<WaitReason>, Option<JobId>)>;

impl<'v> WaitSearch<'v> {
    const fn new(venue: &'v Venue, owner: &'v Owner, reader: &'v JobReader) -> Self {
        Self { venue, owner, reader, left: LOOKS }
    }

    /// Withholds a reason that concerns a job or a session which the reader may not read. If he may read the agent, he
    /// may know why it is suspended, and its limit.
    fn withhold(&self, reason: WaitReason, agent: &AgentId) -> WaitReason {
        let is_agents = match &reason {
            WaitReason::Suspended { agent: of, .. } | WaitReason::AgentLimit { agent: of, .. } => of == agent,
            WaitReason::NotAdmitted
            | WaitReason::Due
            | WaitReason::QueueAway { .. }
            | WaitReason::NoWorker { .. }
            | WaitReason::SlotsTaken { .. }
            | WaitReason::OwnerShare
            | WaitReason::OwnerLimit { .. }
            | WaitReason::Paused { .. }
            | WaitReason::Behind { .. }
            | WaitReason::Person { .. }
            | WaitReason::Child { .. }
            | WaitReason::ResultDue { .. }
            | WaitReason::External { .. }
            | WaitReason::Timer { .. }
            | WaitReason::Noted { .. }
            | WaitReason::Withheld { .. } => false,
        };
        if is_agents && self.reader.may_read_agent(agent) { reason } else { reason.withhold() }
    }

    /// Returns how much the reader sees of a job that is known by its id; nothing of a job without a record.
    async fn job_sight(&self, job: &JobId) -> Result<JobVisibility, StoreError> {
        if self.reader.operator {
            return Ok(JobVisibility::Whole);
        }
        let head = jobs::head(self.venue, self.owner, job).await?;
        Ok(head.map_or(JobVisibility::Nothing, |head| self.reader.visibility(&head)))
    }

    /// Returns why a session waits, for a reader who has asked for it.
    async fn visible_reason(&mut self, facts: &SessionFacts) -> Result<Option<WaitReason>, StoreError> {
        let Some((Some(reason), task)) = self.session_wait(facts).await? else { return Ok(None) };
        let agent = &facts.key.agent;
        let is_readable = match &task {
            Some(job) => self.job_sight(job).await? == JobVisibility::Whole,
            None => self.reader.may_read_agent(agent),
        };
        Ok(Some(if is_readable { reason } else { self.withhold(reason, agent) }))
    }

    /// Returns why an open job waits; `None` while it runs, and if it has ended.
    async fn job_reason(&mut self, job: &Job) -> Result<Option<WaitReason>, StoreError> {
        let reason = self.whole_reason(job).await?;
        let is_whole = self.reader.visibility(&job.head) == JobVisibility::Whole;
        Ok(reason.map(|reason| if is_whole { reason } else { self.withhold(reason, &job.head.agent) }))
    }

    /// Returns why an open job waits, with nothing withheld.
    async fn whole_reason(&mut self, job: &Job) -> Result<Option<WaitReason>, StoreError> {
        let id = &job.head.id;
        if job.status.is_terminal() {
            return Ok(None);
        }
        if job.status == JobStatus::Paused {
            return Ok(Some(paused_reason(id, job.waiting.as_ref())));
        }
        if job.head.op.is_some() {
            return self.operation_reason(job).await;
        }
        if self.left == 0 {
            return Ok(job.waiting.as_ref().map(WaitNote::to_reason));
        }
        self.left -= 1;
        let key = SessionKey { agent: job.head.agent.clone(), session: job.head.session.clone() };
        let facts = sessions::find(self.venue, self.owner, &key).await?;
        let is_admitted = |facts: &SessionFacts| facts.mailbox.iter().any(|entry| entry.open_task() == Some(id));
        let Some(facts) = facts.filter(is_admitted) else {
            let unread = || self.queue_outage().unwrap_or(WaitReason::NotAdmitted);
            return Ok((job.status == JobStatus::Pending).then(unread));
        };
        Ok(match Box::pin(self.session_wait(&facts)).await? {
            Some((wait, Some(first))) if first != *id => Some(self.earlier_task_reason(first, wait, &key.agent).await?),
            Some((wait, _)) => wait,
            None => None,
        })
    }

    /// Returns the reason of a task that waits until the session has ended an earlier one.
    async fn earlier_task_reason(
        &self,
        first: JobId,
        wait: Option<WaitReason>,
        agent: &AgentId,
    ) -> Result<WaitReason, StoreError> {
        let sight = self.job_sight(&first).await?;
        let wait = wait.map(|wait| if sight == JobVisibility::Whole { wait } else { self.withhold(wait, agent) });
        let behind = WaitReason::Behind { job: first, wait: wait.map(Box::new) };
        Ok(if sight == JobVisibility::Nothing { behind.withhold() } else { behind })
    }

    /// Returns why a job waits that is no task: an external worker's, or an operation.
    async fn operation_reason(&mut self, job: &Job) -> Result<Option<WaitReason>, StoreError> {
        let begun = job.status != JobStatus::Pending;
        if let Some(watch) = &job.outbound {
            let noted = job.waiting.as_ref().filter(|_| !begun).map(WaitNote::to_reason);
            return Ok(Some(noted.unwrap_or(WaitReason::External { queue: watch.queue.to_string(), begun })));
        }
        if job.head.op.as_deref() == Some(PENDING_CALL) {
            let call = find_tool_call(self.venue, self.owner, &job.head.id).await?;
            let asked = call.and_then(|call| call.approval().map(|asked| asked.id.clone()));
            return Ok(asked.map(|id| WaitReason::Person { approvals: vec![id] }));
        }
        if begun || job.head.agent.as_str() != NO_AGENT {
            return Ok(None);
        }
        let none = registry::fleet_state(self.venue).await?.no_worker();
        Ok(Some(none.or_else(|| self.queue_outage()).unwrap_or(WaitReason::Due)))
    }

    /// Returns the reason of all work while the queue is away: workers begin nothing then.
    fn queue_outage(&self) -> Option<WaitReason> {
        self.venue.bus.outage().map(|since| WaitReason::QueueAway { since })
    }

    async fn session_wait(&mut self, facts: &SessionFacts) -> Result<SessionWait, StoreError> {
        let now = self.venue.now();
        if facts.mailbox.is_empty() && !is_leased(facts, now) {
            return Ok(None);
        }
        let state = sessions::state(facts);
        let task = next_task(facts, &state);
        let first = task.and_then(|task| task.job.clone());
        let wait = self.serving_reason(facts, &state, task).await?;
        Ok(Some((wait, first)))
    }

    async fn serving_reason(
        &mut self,
        facts: &SessionFacts,
        state: &SessionState,
        task: Option<&MailboxEntry<()>>,
    ) -> Result<Option<WaitReason>, StoreError> {
        let now = self.venue.now();
        let agent = agents::get(self.venue, self.owner, &facts.key.agent).await?.map(|(agent, _)| agent);
        if let Some(agent) = agent.as_ref().filter(|agent| agent.status == AgentStatus::Suspended) {
            return Ok(Some(jobs::suspension_reason(agent)));
        }
        if is_leased(facts, now) {
            return Ok(None);
        }
        let job = task.and_then(|task| task.job.as_ref());
        let note = self.read_note(facts, job).await?;
        if let Some(job) = job.filter(|_| task.is_some_and(|task| task.job_status == Some(JobStatus::Paused))) {
            return Ok(Some(paused_reason(job, note.as_ref())));
        }
        if let Some(person) = self.person_reason(&facts.key.agent, state, job).await? {
            return Ok(Some(person));
        }
        // A session that was given back until a time is due at that time; another time shows that something has
        // happened.
        let is_valid = |note: &WaitNote| note.until.is_some_and(|until| until > now && facts.due == Some(until));
        if let Some(note) = note.filter(is_valid) {
            return Ok(Some(note.to_reason()));
        }
        // A worker that couldn't read a record of the session may not know its task.
        if job.is_some()
            && facts.due.is_some_and(|due| due > now)
            && let Some(note) = self.read_note(facts, None).await?.filter(is_valid)
        {
            return Ok(Some(note.to_reason()));
        }
        let has_news = facts.mailbox.iter().any(|entry| entry.kind != EventKind::Task);
        if state.parked
            && !has_news
            && let Some(child) = self.child_reason(state).await?
        {
            return Ok(Some(child));
        }
        self.slot_reason(facts, agent.as_ref()).await.map(Some)
    }

    /// Returns why a session that needs a slot waits.
    async fn slot_reason(&self, facts: &SessionFacts, agent: Option<&AgentRecord>) -> Result<WaitReason, StoreError> {
        let fleet = registry::fleet_state(self.venue).await?;
        if let Some(none) = fleet.no_worker() {
            return Ok(none);
        }
        let Some(due) = facts.due else {
            let limit = agent.map(|agent| agent.gate().concurrency).filter(|limit| *limit != Gate::UNLIMITED);
            let of_agent =
                |limit, owner_limit| WaitReason::AgentLimit { agent: facts.key.agent.clone(), limit, owner_limit };
            return Ok(match (limit, fleet.owner_cap) {
                (Some(limit), cap) => of_agent(limit, cap),
                (None, Some(limit)) => WaitReason::OwnerLimit { limit },
                (None, None) => self.queue_outage().unwrap_or(WaitReason::Due),
            });
        };
        if due > self.venue.now().plus(DUE_AFTER) {
            return Ok(WaitReason::Timer { until: due });
        }
        Ok(self.queue_outage().unwrap_or_else(|| fleet.due_reason(self.owner)))
    }

    /// Returns the note of the last worker that gave the session back.
    async fn read_note(&self, facts: &SessionFacts, job: Option<&JobId>) -> Result<Option<WaitNote>, StoreError> {
        let key = job.map_or_else(|| keys::session_wait(&facts.key), keys::job_wait);
        self.venue.store.get(self.owner, &key).await
    }

    /// Returns the unanswered approvals of the session. It names those of the task that it serves, and those of an
    /// agent that the reader may read.
    async fn person_reason(
        &self,
        agent: &AgentId,
        state: &SessionState,
        task: Option<&JobId>,
    ) -> Result<Option<WaitReason>, StoreError> {
        let Some(awaiting) = &state.awaiting else { return Ok(None) };
        let ids: Vec<JobId> = awaiting.calls.iter().map(|call| call.approval.clone()).collect();
        let approvals = approvals::list_unanswered(self.venue, self.owner, &ids).await?;
        let is_open = !approvals.is_empty();
        let is_named = |job: Option<&JobId>| self.reader.may_read_agent(agent) || job.is_some() && job == task;
        let named = approvals.into_iter().filter(|approval| is_named(approval.job.as_ref()));
        Ok(is_open.then(|| WaitReason::Person { approvals: named.map(|approval| approval.id).collect() }))
    }

    /// Returns the child that the session waits for: preferably one that needs a person, else one that waits; an ended
    /// child if no other is open.
    async fn child_reason(&mut self, state: &SessionState) -> Result<Option<WaitReason>, StoreError> {
        let pending: Vec<JobId> = state.pending.keys().cloned().collect();
        let ended = jobs::list_ended(self.venue, self.owner, &pending).await?;
        let rest: Vec<JobId> = pending.into_iter().filter(|id| !ended.contains(id)).collect();
        let Some(first) = rest.first() else { return self.ended_child(ended).await };
        let open = jobs::read_summaries(self.venue, self.owner, &rest).await?;
        let others = rest.len() - 1;
        let mut found: Option<(&Job, Option<WaitReason>)> = None;
        for child in &open {
            let wait = Box::pin(self.job_reason(child)).await?;
            let rank = |wait: Option<&WaitReason>| wait.map_or(0, |wait| 1 + u8::from(wait.needs_person()));
            if found.as_ref().is_none_or(|(_, known)| rank(wait.as_ref()) > rank(known.as_ref())) {
                found = Some((child, wait));
            }
        }
        let Some((child, wait)) = found else { return Ok(self.unadmitted_child(state, first, others)) };
        let is_named = self.reader.visibility(&child.head) != JobVisibility::Nothing;
        let (job, agent) = (child.head.id.clone(), child.head.agent.clone());
        let child = WaitReason::Child { job, agent, wait: wait.map(Box::new), others };
        Ok(Some(if is_named { child } else { child.withhold() }))
    }

    /// Returns the reason for a child without a record: its message is in the queue.
    fn unadmitted_child(&self, state: &SessionState, job: &JobId, others: usize) -> Option<WaitReason> {
        let agent = state.pending.get(job)?.agent.clone();
        let is_named = self.reader.may_read_agent(&agent);
        let wait = Some(Box::new(WaitReason::NotAdmitted));
        let child = WaitReason::Child { job: job.clone(), agent, wait, others };
        Some(if is_named { child } else { child.withhold() })
    }

    async fn ended_child(&self, ended: Vec<JobId>) -> Result<Option<WaitReason>, StoreError> {
        let Some(job) = ended.into_iter().next() else { return Ok(None) };
        let sight = self.job_sight(&job).await?;
        let due = WaitReason::ResultDue { job };
        Ok(Some(if sight == JobVisibility::Nothing { due.withhold() } else { due }))
    }
}

/// Returns the task that the session serves: the one that was begun, else the first open one.
fn next_task<'f>(facts: &'f SessionFacts, state: &SessionState) -> Option<&'f MailboxEntry<()>> {
    let begun = state.task.as_ref().map(|progress| &progress.job);
    let open = || facts.mailbox.iter().filter(|entry| entry.open_task().is_some());
    open().find(|entry| entry.job.as_ref() == begun && begun.is_some()).or_else(|| open().next())
}

fn paused_reason(job: &JobId, note: Option<&WaitNote>) -> WaitReason {
    let by = note.filter(|note| note.cause == WaitCause::Paused).map(|note| note.reason.clone());
    WaitReason::Paused { job: job.clone(), by }
}
