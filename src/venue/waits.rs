//! Why jobs, sessions and agents wait, as any process can tell it: by the records of sessions, the notes of workers that
//! gave work back, and the list of workers.

use crate::domain::agent::{AgentRecord, AgentStatus};
use crate::domain::event::EventKind;
use crate::domain::gate::Gate;
use crate::domain::ids::{AgentId, JobId, Owner, SessionKey};
use crate::domain::invoked::NO_AGENT;
use crate::domain::job::{Job, JobStatus, Waiting};
use crate::domain::lease::DUE_AFTER;
use crate::domain::roll::FleetState;
use crate::domain::session::SessionState;
use crate::domain::time::Millis;
use crate::domain::wait::{WaitCause, WaitReason};
use crate::store::{MailboxEntry, SessionFacts, StoreError, keys};
use crate::venue::agents::{self, sessions};
use crate::venue::roll;
use crate::venue::{Venue, approvals, jobs};

/// Sessions of an agent that are looked at for one that waits.
const SESSIONS: usize = 200;

/// Sessions that one question looks at: a parent, its children and theirs.
const LOOKS: usize = 24;

/// Why an open job does not go on now; `None` while it runs, and of one that has ended.
pub async fn of_job(venue: &Venue, owner: &Owner, job: &Job) -> Result<Option<WaitReason>, StoreError> {
    WaitLook::new(venue, owner).job(job).await
}

/// Sets why a job does not go on, for those who look at it.
pub async fn explain(venue: &Venue, owner: &Owner, job: &mut Job) -> Result<(), StoreError> {
    match of_job(venue, owner, job).await? {
        Some(wait) => job.tell_wait(wait),
        // It runs: what it waited for is over.
        None if !job.status.is_terminal() => (job.wait, job.waiting) = (None, None),
        None => {}
    }
    Ok(())
}

/// Why a session does not go on now; `None` while it runs, and of one in which nothing is to be done.
pub async fn of_session(venue: &Venue, owner: &Owner, key: &SessionKey) -> Result<Option<WaitReason>, StoreError> {
    let Some(facts) = sessions::find(venue, owner, key).await? else { return Ok(None) };
    let mut look = WaitLook::new(venue, owner);
    Ok(look.session(&facts).await?.and_then(|(reason, _)| reason))
}

/// Why an agent's work does not go on: it is suspended, or what the first of its sessions waits for that waits.
pub async fn of_agent(venue: &Venue, owner: &Owner, id: &AgentId) -> Result<Option<WaitReason>, StoreError> {
    let Some((agent, _)) = agents::get(venue, owner, id).await? else { return Ok(None) };
    if agent.status == AgentStatus::Suspended {
        return Ok(Some(jobs::suspended(&agent)));
    }
    let is_waiting = |facts: &SessionFacts| !facts.mailbox.is_empty() && !is_leased(facts, venue.now());
    let sessions = venue.store.sessions(owner, Some(id), None, SESSIONS).await?;
    let Some(first) = sessions.into_iter().find(is_waiting) else { return Ok(None) };
    Ok(WaitLook::new(venue, owner).session(&first).await?.and_then(|(reason, _)| reason))
}

/// A turn that a worker runs.
pub struct RunningTurn {
    /// Its number in the session, from 1.
    pub turn: u64,
    /// Name of the worker.
    pub worker: String,
    /// When that worker took the session.
    pub since: Millis,
}

/// The turn of a task that runs now; `None` while the task waits, and when it has ended.
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

/// One question, and what was read for it.
struct WaitLook<'v> {
    venue: &'v Venue,
    owner: &'v Owner,
    /// Sessions that it may still look at.
    left: usize,
    fleet: Option<FleetState>,
}

/// What a session waits for, and the job of the task that it serves next; `None`: nothing is to be done in it.
type SessionWait = Option<(Option<WaitReason>, Option<JobId>)>;

impl<'v> WaitLook<'v> {
    const fn new(venue: &'v Venue, owner: &'v Owner) -> Self {
        Self { venue, owner, left: LOOKS, fleet: None }
    }

    async fn job(&mut self, job: &Job) -> Result<Option<WaitReason>, StoreError> {
        let id = &job.head.id;
        if job.status.is_terminal() {
            return Ok(None);
        }
        if job.status == JobStatus::Paused {
            return Ok(Some(paused(id, job.waiting.as_ref())));
        }
        if job.head.op.is_some() {
            return self.operation(job).await;
        }
        if self.left == 0 {
            return Ok(job.waiting.as_ref().map(Waiting::to_reason));
        }
        self.left -= 1;
        let key = SessionKey { agent: job.head.agent.clone(), session: job.head.session.clone() };
        let facts = sessions::find(self.venue, self.owner, &key).await?;
        let is_admitted = |facts: &SessionFacts| facts.mailbox.iter().any(|entry| entry.open_task() == Some(id));
        let Some(facts) = facts.filter(is_admitted) else {
            return Ok((job.status == JobStatus::Pending).then_some(WaitReason::NotAdmitted));
        };
        Ok(match Box::pin(self.session(&facts)).await? {
            Some((wait, Some(first))) if first != *id => {
                Some(WaitReason::Behind { job: first, wait: wait.map(Box::new) })
            }
            Some((wait, _)) => wait,
            None => None,
        })
    }

    /// A job that is no task: an external worker's, or an operation that was invoked.
    async fn operation(&mut self, job: &Job) -> Result<Option<WaitReason>, StoreError> {
        let begun = job.status != JobStatus::Pending;
        if let Some(watch) = &job.outbound {
            let noted = job.waiting.as_ref().filter(|_| !begun).map(Waiting::to_reason);
            return Ok(Some(noted.unwrap_or(WaitReason::External { queue: watch.queue.to_string(), begun })));
        }
        if begun || job.head.agent.as_str() != NO_AGENT {
            return Ok(None);
        }
        Ok(Some(self.fleet().await?.no_worker().unwrap_or(WaitReason::Due)))
    }

    async fn session(&mut self, facts: &SessionFacts) -> Result<SessionWait, StoreError> {
        let now = self.venue.now();
        if facts.mailbox.is_empty() && !is_leased(facts, now) {
            return Ok(None);
        }
        let state = sessions::state(facts);
        let task = next_task(facts, &state);
        let first = task.and_then(|task| task.job.clone());
        let wait = self.served(facts, &state, task).await?;
        Ok(Some((wait, first)))
    }

    async fn served(
        &mut self,
        facts: &SessionFacts,
        state: &SessionState,
        task: Option<&MailboxEntry<()>>,
    ) -> Result<Option<WaitReason>, StoreError> {
        let now = self.venue.now();
        let agent = agents::get(self.venue, self.owner, &facts.key.agent).await?.map(|(agent, _)| agent);
        if let Some(agent) = agent.as_ref().filter(|agent| agent.status == AgentStatus::Suspended) {
            return Ok(Some(jobs::suspended(agent)));
        }
        if is_leased(facts, now) {
            return Ok(None);
        }
        let job = task.and_then(|task| task.job.as_ref());
        let note = self.note(facts, job).await?;
        if let Some(job) = job.filter(|_| task.is_some_and(|task| task.job_status == Some(JobStatus::Paused))) {
            return Ok(Some(paused(job, note.as_ref())));
        }
        if let Some(person) = self.person(state).await? {
            return Ok(Some(person));
        }
        // One that was given back until a time is looked at just then; else something has happened since.
        let is_valid = |note: &Waiting| note.until.is_some_and(|until| until > now && facts.due == Some(until));
        if let Some(note) = note.filter(is_valid) {
            return Ok(Some(note.to_reason()));
        }
        let has_news = facts.mailbox.iter().any(|entry| entry.kind != EventKind::Task);
        if state.parked
            && !has_news
            && let Some(child) = self.child(state).await?
        {
            return Ok(Some(child));
        }
        self.slot(facts, agent.as_ref()).await.map(Some)
    }

    /// What the session needs to run is a slot.
    async fn slot(&mut self, facts: &SessionFacts, agent: Option<&AgentRecord>) -> Result<WaitReason, StoreError> {
        let (now, owner) = (self.venue.now(), self.owner.clone());
        let fleet = self.fleet().await?;
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
                (None, None) => WaitReason::Due,
            });
        };
        if due > now.plus(DUE_AFTER) {
            return Ok(WaitReason::Timer { until: due });
        }
        Ok(fleet.due_reason(&owner))
    }

    /// What the last worker has noted that gave the session back.
    async fn note(&self, facts: &SessionFacts, job: Option<&JobId>) -> Result<Option<Waiting>, StoreError> {
        let key = job.map_or_else(|| keys::session_wait(&facts.key), keys::job_wait);
        self.venue.store.get(self.owner, &key).await
    }

    /// The approvals of the session that nobody has answered.
    async fn person(&self, state: &SessionState) -> Result<Option<WaitReason>, StoreError> {
        let Some(awaiting) = &state.awaiting else { return Ok(None) };
        let ids: Vec<JobId> = awaiting.calls.iter().map(|call| call.approval.clone()).collect();
        let approvals = approvals::unanswered(self.venue, self.owner, &ids).await?;
        let approvals: Vec<JobId> = approvals.into_iter().map(|approval| approval.id).collect();
        Ok((!approvals.is_empty()).then_some(WaitReason::Person { approvals }))
    }

    /// The child that it waits for; of several the one for which a person has to do something, else one that waits.
    async fn child(&mut self, state: &SessionState) -> Result<Option<WaitReason>, StoreError> {
        let ids: Vec<JobId> = state.pending.keys().cloned().collect();
        if ids.is_empty() {
            return Ok(None);
        }
        let mut found: Option<(JobId, AgentId, Option<WaitReason>)> = None;
        let children = jobs::get_many(self.venue, self.owner, &ids).await?;
        let open: Vec<Job> = children.into_iter().filter(|job| !job.status.is_terminal()).collect();
        for child in &open {
            let wait = Box::pin(self.job(child)).await?;
            let rank = |wait: Option<&WaitReason>| wait.map_or(0, |wait| 1 + u8::from(wait.needs_person()));
            if found.as_ref().is_none_or(|(.., known)| rank(wait.as_ref()) > rank(known.as_ref())) {
                found = Some((child.head.id.clone(), child.head.agent.clone(), wait));
            }
        }
        let others = open.len().saturating_sub(1);
        Ok(found.map(|(job, agent, wait)| WaitReason::Child { job, agent, wait: wait.map(Box::new), others }))
    }

    async fn fleet(&mut self) -> Result<&FleetState, StoreError> {
        if self.fleet.is_none() {
            self.fleet = Some(roll::fleet(self.venue).await?);
        }
        Ok(self.fleet.get_or_insert_default())
    }
}

/// The task that the session serves: the one that was begun, else the first open one.
fn next_task<'f>(facts: &'f SessionFacts, state: &SessionState) -> Option<&'f MailboxEntry<()>> {
    let begun = state.task.as_ref().map(|progress| &progress.job);
    let open = || facts.mailbox.iter().filter(|entry| entry.open_task().is_some());
    open().find(|entry| entry.job.as_ref() == begun && begun.is_some()).or_else(|| open().next())
}

fn paused(job: &JobId, note: Option<&Waiting>) -> WaitReason {
    let by = note.filter(|note| note.cause == WaitCause::Paused).map(|note| note.reason.clone());
    WaitReason::Paused { job: job.clone(), by }
}
