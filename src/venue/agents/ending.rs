//! The end of an agent: its work is cancelled, and where it is removed its sessions and documents go.
//!
//! Who ends an agent may be cut off in the middle of it: by a crash, by a client that is gone, or because the
//! turn that asked for it serves a task that this very deletion cancels. So the write that ends the agent leaves
//! a mark, and the sweep does what is left of every marked one.

use super::lifecycle::{By, LifeError};
use super::{get, writes};
use crate::domain::agent::{AgentRecord, AgentStatus};
use crate::domain::ids::{AgentId, Owner};
use crate::domain::time::Millis;
use crate::store::{DocWrite, Edit, MailboxEntry, Seated, StoreError, keys};
use crate::venue::Venue;
use crate::venue::jobs::{self, Cancelled};
use crate::venue::ledger::why;
use std::time::Duration;

/// Sessions of an agent that one step looks at.
const SESSIONS: usize = 200;

/// Lines of what models have seen that one document keeps: about 100 KB.
const READS_PER_PAGE: usize = 500;

/// Such documents that one write makes.
const READ_PAGES: usize = 20;

/// Longest wait for workers to let go of the sessions of an agent that is removed.
const LET_GO: Duration = Duration::from_secs(20);

/// Pause between two looks at them.
const LOOK: Duration = Duration::from_millis(100);

/// So long a deletion is left to whoever began it.
const OWN: Duration = Duration::from_secs(3);

/// Deletions of an owner that one sweep goes on with, and tasks of each that it ends.
const SWEPT: usize = 20;
const TASKS: usize = 200;

/// How an agent ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Its name is kept.
    Terminate,
    /// It is gone afterwards.
    Remove,
}

/// A deletion that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    since: Millis,
    end: End,
}

impl Mark {
    fn encode(self) -> String {
        let word = if self.end == End::Remove { "remove" } else { "end" };
        format!("{} {word}", self.since.0)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (since, word) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
        let end = if word == "remove" { End::Remove } else { End::Terminate };
        Some(Self { since: Millis(since.parse().ok()?), end })
    }
}

/// Ends an agent: it takes no new work, and its unfinished tasks are cancelled, which the answer
/// counts. The name is kept. Ending it again cancels what has been left by a crash.
pub async fn terminate(venue: &Venue, owner: &Owner, id: &AgentId) -> Result<(AgentRecord, usize), LifeError> {
    let (record, mark) = begin(venue, owner, id, End::Terminate).await?;
    let cancelled = cancel_work(venue, owner, id, usize::MAX).await?;
    unmark(venue, owner, id, mark).await?;
    Ok((record, cancelled))
}

/// Ends an agent and frees its name: its sessions and documents are gone after it. Jobs stay, until
/// they are deleted. May be called again after an error.
pub async fn remove(venue: &Venue, owner: &Owner, id: &AgentId, by: By<'_>) -> Result<usize, LifeError> {
    let Some((record, _)) = get(venue, owner, id).await? else { return Err(LifeError::Unknown(id.clone())) };
    by.may(&record, "remove it")?;
    let (record, _) = begin(venue, owner, id, End::Remove).await?;
    let cancelled = cancel_work(venue, owner, id, usize::MAX).await?;
    erase(venue, owner, &record, LET_GO).await?;
    Ok(cancelled)
}

/// Goes on with the deletions of an owner that were begun and left. Returns whether there is more to do.
pub async fn sweep(venue: &Venue, owner: &Owner) -> Result<bool, StoreError> {
    let marks = venue.store.scan(owner, keys::ENDING, None, false, SWEPT).await?;
    let mut more = false;
    for (key, doc) in marks {
        let Some(id) = keys::ending_agent(&key) else { continue };
        let Some(mark) = doc.value.as_ref().and_then(|bytes| Mark::decode(bytes)) else { continue };
        if mark.since.plus(OWN) > venue.now() {
            continue;
        }
        match go_on(venue, owner, &id, (mark, doc.version)).await {
            Ok(left) => more |= left,
            // A worker will let go of its session.
            Err(LifeError::Busy(_)) => {}
            Err(LifeError::Store(error)) => return Err(error),
            Err(error) => tracing::warn!(%owner, agent = %id, %error, "deletion not ended; the next sweep will"),
        }
    }
    Ok(more)
}

/// A part of what is left of a deletion. Returns whether there is more.
async fn go_on(venue: &Venue, owner: &Owner, id: &AgentId, (mark, version): (Mark, u64)) -> Result<bool, LifeError> {
    let record = get(venue, owner, id).await?.map(|(record, _)| record);
    // Made anew meanwhile, or gone.
    let Some(record) = record.filter(|record| record.status == AgentStatus::Terminated) else {
        unmark(venue, owner, id, version).await?;
        return Ok(false);
    };
    let cancelled = cancel_work(venue, owner, id, TASKS).await?;
    if cancelled > 0 {
        tracing::info!(%owner, agent = %id, cancelled, "its deletion was left half-way and goes on");
    }
    if cancelled == TASKS {
        return Ok(true);
    }
    match mark.end {
        End::Terminate => unmark(venue, owner, id, version).await?,
        End::Remove => erase(venue, owner, &record, Duration::ZERO).await?,
    }
    Ok(false)
}

/// From here on it takes no work, and whoever dies, its deletion is ended. Answers its record, and the version of
/// its mark.
async fn begin(venue: &Venue, owner: &Owner, id: &AgentId, end: End) -> Result<(AgentRecord, u64), LifeError> {
    let (key, now) = (keys::ending(id), venue.now());
    let attempt = || async {
        let Some((record, version)) = get(venue, owner, id).await? else { return Err(LifeError::Unknown(id.clone())) };
        let known = venue.store.doc(owner, &key).await?;
        let before = known.value.as_ref().and_then(|bytes| Mark::decode(bytes));
        // Who ends it doesn't take a removal back.
        let end = if before.is_some_and(|before| before.end == End::Remove) { End::Remove } else { end };
        let after = match record.status {
            AgentStatus::Terminated => record,
            AgentStatus::Active | AgentStatus::Suspended => {
                AgentRecord { status: AgentStatus::Terminated, error: None, updated: now, ..record }
            }
        };
        let mut wanted = writes(&after, version).to_vec();
        wanted.push(DocWrite::put(key.as_str(), Mark { since: now, end }.encode()).at(known.version));
        Ok(Edit::write(wanted, (after, known.version + 1)))
    };
    venue.store.edit(now, owner, ("agent", id), attempt).await
}

/// All of a deletion is done, unless it has begun again.
async fn unmark(venue: &Venue, owner: &Owner, id: &AgentId, version: u64) -> Result<(), StoreError> {
    venue.store.write(venue.now(), owner, &[DocWrite::delete(keys::ending(id)).at(version)]).await.map(|_| ())
}

/// Ends its timers and cancels its open tasks, at most so many; how many those were.
async fn cancel_work(venue: &Venue, owner: &Owner, id: &AgentId, most: usize) -> Result<usize, StoreError> {
    let reason = format!("agent `{id}` was deleted");
    crate::venue::timers::fail_all(venue, owner, id, &reason).await?;
    let mut cancelled = 0;
    let mut sessions = venue.store.all_sessions(owner, Some(id));
    while let Some(page) = sessions.next().await? {
        for job in page.iter().flat_map(|session| &session.mailbox).filter_map(MailboxEntry::open_task) {
            if cancelled == most {
                return Ok(cancelled);
            }
            if let Cancelled::Done(_) = jobs::cancel(venue, owner, job, Some(&reason)).await? {
                cancelled += 1;
            }
        }
    }
    Ok(cancelled)
}

/// Everything that a terminated agent was but its jobs.
async fn erase(venue: &Venue, owner: &Owner, record: &AgentRecord, patience: Duration) -> Result<(), LifeError> {
    let id = &record.id;
    forget_sessions(venue, owner, id, patience).await?;
    keep_reads(venue, owner, record).await?;
    // The record last: until then a repetition knows what is to be done.
    delete_under(venue, owner, &keys::agent_documents(id), &keys::agent_gate(id)).await?;
    let last = [keys::agent_gate(id), keys::agent(id), keys::ending(id)].map(DocWrite::delete);
    venue.store.write(venue.now(), owner, &last).await?;
    Ok(())
}

/// What its models have seen outlives it, for as long as its turns would have been kept.
async fn keep_reads(venue: &Venue, owner: &Owner, record: &AgentRecord) -> Result<(), LifeError> {
    let (id, store) = (&record.id, &*venue.store);
    let key = |number| keys::reads(id, record.created, number);
    if store.doc(owner, &key(0)).await?.value.is_some() {
        // By a try before this one, which had all of its turns.
        return Ok(());
    }
    let mut seen = why::all(store, owner, id).await?;
    for reached in &mut seen {
        reached.removed = Some(venue.now());
    }
    let pages = seen.chunks(READS_PER_PAGE).enumerate();
    let pages: Vec<DocWrite> = pages.map(|(number, page)| DocWrite::json(key(number), &page)).collect();
    // The first one last: who finds it finds all.
    for pages in pages.rchunks(READ_PAGES) {
        store.write(venue.now(), owner, pages).await?;
    }
    Ok(())
}

async fn forget_sessions(venue: &Venue, owner: &Owner, id: &AgentId, patience: Duration) -> Result<(), LifeError> {
    let deadline = venue.clock.steady() + patience;
    loop {
        let page = venue.store.sessions(owner, Some(id), None, SESSIONS).await?;
        if page.is_empty() {
            return Ok(());
        }
        let mut held = None;
        for session in &page {
            if let Seated::Held(_) = venue.store.seat(venue.now(), owner, &session.key, None).await? {
                held = Some(session.key.clone());
            }
        }
        if let Some(session) = held {
            if venue.clock.steady() >= deadline {
                return Err(LifeError::Busy(session));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

async fn delete_under(venue: &Venue, owner: &Owner, prefix: &str, but: &str) -> Result<(), LifeError> {
    let mut documents = venue.store.docs(owner, prefix);
    while let Some(keys) = documents.keys().await? {
        let deletes: Vec<_> = keys.into_iter().filter(|key| key != but).map(DocWrite::delete).collect();
        // Without conditions there is no conflict.
        venue.store.write(venue.now(), owner, &deletes).await?;
    }
    Ok(())
}
