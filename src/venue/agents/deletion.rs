//! The end of an agent: its work is cancelled; if it is removed, its sessions and documents are deleted.
//!
//! The process that ends an agent may be interrupted: by a crash, by a client that disconnects, or because the turn
//! that asked for it serves a task that this deletion cancels. So the write that ends the agent leaves a mark, and the
//! sweep finishes every marked deletion.
//!
//! A deletion is of the agent that was marked, and of no later agent of that name: while the mark stands nobody can
//! create one, and every write of the deletion checks the mark.

use super::lifecycle::{AgentEditor, LifecycleError};
use super::{get, writes};
use crate::domain::agent::{AgentRecord, AgentStatus};
use crate::domain::ids::{AgentId, Owner};
use crate::domain::time::Millis;
use crate::store::{
    Amend, AmendOutcome, Amendment, DocWrite, Edit, MailboxEntry, SessionFacts, SetSessionOutcome, StoreError, keys,
};
use crate::venue::Venue;
use crate::venue::jobs::{self, CancelOutcome};
use crate::venue::ledger::path_uses;
use std::time::Duration;

/// Sessions of an agent that one step reads.
const SESSIONS: usize = 200;

/// Longest wait for workers to release the sessions of an agent that is removed.
const LET_GO: Duration = Duration::from_secs(20);

/// Pause between two attempts to delete sessions.
const LOOK: Duration = Duration::from_millis(100);

/// Age below which the sweep leaves a deletion to the process that began it.
const TAKEOVER_AGE: Duration = Duration::from_secs(3);

/// Deletions of an owner that one sweep continues, and tasks of each that it cancels.
const SWEPT: usize = 20;
const TASKS: usize = 200;

/// How an agent ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AgentEnd {
    /// The name stays taken.
    Terminate,
    /// The record is deleted and the name is free.
    Remove,
}

/// The stored mark of a deletion that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DeletionMark {
    since: Millis,
    end: AgentEnd,
}

impl DeletionMark {
    fn encode(self) -> String {
        let word = if self.end == AgentEnd::Remove { "remove" } else { "end" };
        format!("{} {word}", self.since.0)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (since, word) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
        let end = if word == "remove" { AgentEnd::Remove } else { AgentEnd::Terminate };
        Some(Self { since: Millis(since.parse().ok()?), end })
    }
}

/// A deletion in progress: its agent, how it ends, and the version of its mark.
struct Deletion {
    record: AgentRecord,
    end: AgentEnd,
    version: u64,
}

impl Deletion {
    /// Returns the check that makes a write fail once this deletion has ended.
    fn check(&self) -> DocWrite {
        DocWrite::check(keys::deletion_mark(&self.record.id), self.version)
    }

    /// Whether no other process has finished it.
    async fn is_open(&self, venue: &Venue, owner: &Owner) -> Result<bool, StoreError> {
        let mark = venue.store.doc(owner, &keys::deletion_mark(&self.record.id)).await?;
        Ok(mark.version == self.version && mark.value.is_some())
    }
}

/// Terminates an agent: it takes no new work, and its open tasks are cancelled. Returns the record and the number of
/// cancelled tasks. The name stays taken. Terminating it again cancels what a crash has left.
pub async fn terminate(venue: &Venue, owner: &Owner, id: &AgentId) -> Result<(AgentRecord, usize), LifecycleError> {
    let deletion = begin_deletion(venue, owner, id, AgentEnd::Terminate).await?;
    let cancelled = cancel_work(venue, owner, &deletion, usize::MAX).await?;
    if deletion.end == AgentEnd::Terminate {
        delete_mark(venue, owner, id, deletion.version).await?;
    }
    Ok((deletion.record, cancelled))
}

/// Removes an agent with its sessions and documents, and frees its name. Returns the number of cancelled tasks. Jobs
/// stay until they are deleted. May be called again after an error.
pub async fn remove(venue: &Venue, owner: &Owner, id: &AgentId, by: AgentEditor<'_>) -> Result<usize, LifecycleError> {
    let Some((record, _)) = get(venue, owner, id).await? else { return Err(LifecycleError::Unknown(id.clone())) };
    by.check_may_change(&record, "remove it")?;
    let deletion = begin_deletion(venue, owner, id, AgentEnd::Remove).await?;
    let cancelled = cancel_work(venue, owner, &deletion, usize::MAX).await?;
    delete_agent(venue, owner, &deletion, LET_GO).await?;
    Ok(cancelled)
}

/// Finishes a deletion of the agent that another process has left, and returns the agent. For a terminated agent it
/// also returns the check that makes a write fail if a deletion begins meanwhile.
pub(super) async fn finish_deletion(
    venue: &Venue,
    owner: &Owner,
    id: &AgentId,
) -> Result<(Option<(AgentRecord, u64)>, Option<DocWrite>), StoreError> {
    let has_ended = |known: &(AgentRecord, u64)| known.0.status == AgentStatus::Terminated;
    let Some(known) = get(venue, owner, id).await? else { return Ok((None, None)) };
    if !has_ended(&known) {
        return Ok((Some(known), None));
    }
    let contended = || StoreError::Contended { what: format!("agent `{id}`") };
    let mark = venue.store.doc(owner, &keys::deletion_mark(id)).await?;
    if let Some(DeletionMark { end, .. }) = mark.value.as_ref().and_then(|bytes| DeletionMark::decode(bytes)) {
        let deletion = Deletion { record: known.0, end, version: mark.version };
        match continue_deletion(venue, owner, &deletion, usize::MAX, LET_GO).await {
            Ok(_) => {}
            Err(LifecycleError::Store(error)) => return Err(error),
            Err(_) => return Err(contended()),
        }
    }
    let Some(known) = get(venue, owner, id).await? else { return Ok((None, None)) };
    if !has_ended(&known) {
        return Ok((Some(known), None));
    }
    let mark = venue.store.doc(owner, &keys::deletion_mark(id)).await?;
    if mark.value.is_some() {
        return Err(contended());
    }
    Ok((Some(known), Some(DocWrite::check(keys::deletion_mark(id), mark.version))))
}

/// Continues the deletions of an owner that were left unfinished. Returns whether there is more to do.
pub async fn sweep(venue: &Venue, owner: &Owner) -> Result<bool, StoreError> {
    let marks = venue.store.scan(owner, keys::DELETIONS, None, false, SWEPT).await?;
    let mut more = false;
    for (key, doc) in marks {
        let Some(id) = keys::agent_of_deletion(&key) else { continue };
        let Some(mark) = doc.value.as_ref().and_then(|bytes| DeletionMark::decode(bytes)) else { continue };
        if mark.since.plus(TAKEOVER_AGE) > venue.now() {
            continue;
        }
        match resume_deletion(venue, owner, &id, mark, doc.version).await {
            Ok(left) => more |= left,
            // A worker still holds a session; the next sweep continues.
            Err(LifecycleError::Busy(_)) => {}
            Err(LifecycleError::Store(error)) => return Err(error),
            Err(error) => tracing::warn!(%owner, agent = %id, %error, "deletion not ended; the next sweep will"),
        }
    }
    Ok(more)
}

/// Continues a marked deletion by one step. Returns whether there is more.
async fn resume_deletion(
    venue: &Venue,
    owner: &Owner,
    id: &AgentId,
    mark: DeletionMark,
    version: u64,
) -> Result<bool, LifecycleError> {
    let record = get(venue, owner, id).await?.map(|(record, _)| record);
    // The agent was created anew or is gone.
    let Some(record) = record.filter(|record| record.status == AgentStatus::Terminated) else {
        delete_mark(venue, owner, id, version).await?;
        return Ok(false);
    };
    continue_deletion(venue, owner, &Deletion { record, end: mark.end, version }, TASKS, Duration::ZERO).await
}

/// Continues a deletion: cancels at most `most` tasks, and waits up to `patience` for held sessions. Returns whether
/// there is more.
async fn continue_deletion(
    venue: &Venue,
    owner: &Owner,
    deletion: &Deletion,
    most: usize,
    patience: Duration,
) -> Result<bool, LifecycleError> {
    let id = &deletion.record.id;
    let cancelled = cancel_work(venue, owner, deletion, most).await?;
    if cancelled > 0 {
        tracing::info!(%owner, agent = %id, cancelled, "its deletion was left half-way and goes on");
    }
    if cancelled == most {
        return Ok(true);
    }
    match deletion.end {
        AgentEnd::Terminate => delete_mark(venue, owner, id, deletion.version).await?,
        AgentEnd::Remove => delete_agent(venue, owner, deletion, patience).await?,
    }
    Ok(false)
}

/// Terminates the agent and writes the mark in one write, so that the deletion is finished even after a crash. Joins a
/// deletion in progress.
async fn begin_deletion(venue: &Venue, owner: &Owner, id: &AgentId, end: AgentEnd) -> Result<Deletion, LifecycleError> {
    let (key, now) = (keys::deletion_mark(id), venue.now());
    let attempt = || async {
        let Some((record, version)) = get(venue, owner, id).await? else {
            return Err(LifecycleError::Unknown(id.clone()));
        };
        let known = venue.store.doc(owner, &key).await?;
        let before = known.value.as_ref().and_then(|bytes| DeletionMark::decode(bytes));
        // Terminating an agent doesn't take back its removal.
        let end = if before.is_some_and(|before| before.end == AgentEnd::Remove) { AgentEnd::Remove } else { end };
        if before.is_some_and(|before| before.end == end) && record.status == AgentStatus::Terminated {
            return Ok(Edit::without_writes(Deletion { record, end, version: known.version }));
        }
        let after = match record.status {
            AgentStatus::Terminated => record,
            AgentStatus::Active | AgentStatus::Suspended => {
                AgentRecord { status: AgentStatus::Terminated, error: None, updated: now, ..record }
            }
        };
        let mut wanted = writes(&after, version).to_vec();
        wanted.push(DocWrite::put(key.as_str(), DeletionMark { since: now, end }.encode()).at_version(known.version));
        Ok(Edit::write(wanted, Deletion { record: after, end, version: known.version + 1 }))
    };
    venue.store.edit(now, owner, "agent", id, attempt).await
}

/// Deletes the mark of a finished deletion, unless the deletion has begun again.
async fn delete_mark(venue: &Venue, owner: &Owner, id: &AgentId, version: u64) -> Result<(), StoreError> {
    venue
        .store
        .write(venue.now(), owner, &[DocWrite::delete(keys::deletion_mark(id)).at_version(version)])
        .await
        .map(|_| ())
}

/// Fails the agent's timers and cancels at most `most` of its open tasks. Returns how many it cancelled.
async fn cancel_work(venue: &Venue, owner: &Owner, deletion: &Deletion, most: usize) -> Result<usize, StoreError> {
    let AgentRecord { id, created, .. } = &deletion.record;
    let reason = format!("agent `{id}` was deleted");
    crate::venue::timers::fail_all(venue, owner, id, *created, &reason).await?;
    let mut cancelled = 0;
    let mut sessions = venue.store.all_sessions(owner, Some(id));
    while let Some(page) = sessions.next().await? {
        if !deletion.is_open(venue, owner).await? {
            return Ok(cancelled);
        }
        for job in page.iter().flat_map(|session| &session.mailbox).filter_map(MailboxEntry::open_task) {
            if cancelled == most {
                return Ok(cancelled);
            }
            if let CancelOutcome::Done(_) = jobs::cancel(venue, owner, job, Some(&reason)).await? {
                cancelled += 1;
            }
        }
    }
    Ok(cancelled)
}

/// Deletes everything of a terminated agent except its jobs. Another process may finish first.
async fn delete_agent(
    venue: &Venue,
    owner: &Owner,
    deletion: &Deletion,
    patience: Duration,
) -> Result<(), LifecycleError> {
    let id = &deletion.record.id;
    if !forget_sessions(venue, owner, deletion, patience).await? {
        return Ok(());
    }
    keep_reads(venue, owner, deletion).await?;
    // The record goes last: until then a retry knows what is left to do.
    delete_under(venue, owner, deletion, &keys::agent_documents(id), &keys::agent_gate(id)).await?;
    let mut last = [keys::agent_gate(id), keys::agent(id)].map(DocWrite::delete).to_vec();
    last.push(DocWrite::delete(keys::deletion_mark(id)).at_version(deletion.version));
    venue.store.write(venue.now(), owner, &last).await?;
    Ok(())
}

/// Keeps what the agent's models have read, for as long as its turns would have been kept.
async fn keep_reads(venue: &Venue, owner: &Owner, deletion: &Deletion) -> Result<(), LifecycleError> {
    let (record, store) = (&deletion.record, &*venue.store);
    let id = &record.id;
    let key = |number| keys::reads(id, record.created, number);
    if store.doc(owner, &key(0)).await?.value.is_some() {
        // An earlier try has written it, from all turns.
        return Ok(());
    }
    let pages = path_uses::kept_writes(path_uses::all_uses(store, owner, id).await?, venue.now(), key);
    Ok(path_uses::write_kept(store, owner, venue.now(), &pages, &[deletion.check()]).await?)
}

/// Deletes all sessions of the agent; `false` if another process has finished the deletion.
async fn forget_sessions(
    venue: &Venue,
    owner: &Owner,
    deletion: &Deletion,
    patience: Duration,
) -> Result<bool, LifecycleError> {
    let deadline = venue.clock.steady() + patience;
    loop {
        let page = venue.store.sessions(owner, Some(&deletion.record.id), None, SESSIONS).await?;
        let mut held = None;
        for session in &page {
            if !forget_session(venue, owner, deletion, session).await? {
                held = Some(session.key.clone());
            }
        }
        let is_open = deletion.is_open(venue, owner).await?;
        if page.is_empty() || !is_open {
            return Ok(is_open);
        }
        if let Some(session) = held {
            if venue.clock.steady() >= deadline {
                return Err(LifecycleError::Busy(session));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Deletes a session as it was read; `false` if it has to be read again.
async fn forget_session(
    venue: &Venue,
    owner: &Owner,
    deletion: &Deletion,
    seen: &SessionFacts,
) -> Result<bool, StoreError> {
    let then = Amendment::Remove { arrivals: seen.arrivals };
    let amend = Amend {
        version: seen.version,
        expected_state: seen.state.clone(),
        amendment: then,
        writes: vec![deletion.check()],
    };
    Ok(match venue.store.amend(venue.now(), owner, &seen.key, &amend).await? {
        AmendOutcome::Done => true,
        // A worker that has died never releases the session. If the deletion has ended meanwhile, another agent may
        // have this name and a session of this name; then the check refuses the write.
        AmendOutcome::Held => {
            let checks = [deletion.check()];
            matches!(
                venue.store.set_session(venue.now(), owner, &seen.key, None, &checks).await?,
                SetSessionOutcome::Done
            )
        }
        AmendOutcome::Changed => false,
    })
}

async fn delete_under(
    venue: &Venue,
    owner: &Owner,
    deletion: &Deletion,
    prefix: &str,
    but: &str,
) -> Result<(), LifecycleError> {
    let mut documents = venue.store.docs(owner, prefix);
    while let Some(keys) = documents.keys().await? {
        let mut wanted: Vec<_> = keys.into_iter().filter(|key| key != but).map(DocWrite::delete).collect();
        wanted.push(deletion.check());
        // If another process has finished the deletion, nothing is deleted.
        venue.store.write(venue.now(), owner, &wanted).await?;
    }
    Ok(())
}
