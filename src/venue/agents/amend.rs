//! Changes of sessions from outside their turns: rename, compact, delete. Each is one write of the store, which is
//! refused while a worker holds the session.

use super::lifecycle::LifecycleError;
use super::sessions::find;
use crate::domain::decode;
use crate::domain::goal::{LiveTurns, SummaryAuthority};
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::lattice::Namespace;
use crate::domain::lattice::layout::{self, Scope};
use crate::domain::limits::{SESSION_ERASED, SESSION_TITLE_BYTES, SUMMARY_BYTES};
use crate::domain::pipeline_run::PipelineState;
use crate::domain::session::{SessionState, TurnRecord};
use crate::domain::time::Millis;
use crate::domain::timer::TimerId;
use crate::domain::visible::check_line;
use crate::store::{
    Amend, AmendOutcome, Amendment, DocKey, DocWrite, MailboxEntry, SessionFacts, StoreError, decode, keys,
};
use crate::venue::Venue;
use crate::venue::jobs;
use crate::venue::ledger;
use crate::venue::ledger::path_uses::{self, KEPT_PAGES, PathUse};
use crate::venue::timers;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::time::Duration;

/// Longest wait for a worker to release a session.
const LET_GO: Duration = Duration::from_secs(10);

/// Pause between two reads of a session that a worker holds.
const LOOK: Duration = Duration::from_millis(50);

/// Turns that one step of a deletion reads.
const COUNTED: usize = 100;

/// Sets the title of a session; `None` removes it.
pub async fn rename(venue: &Venue, owner: &Owner, key: &SessionKey, title: Option<&str>) -> Result<(), LifecycleError> {
    if let Some(title) = title {
        let bytes = title.len();
        if title.trim().is_empty() || bytes > SESSION_TITLE_BYTES {
            return Err(LifecycleError::Config(format!(
                "`title`: expected 1 to {SESSION_TITLE_BYTES} bytes on one line, got {bytes}"
            )));
        }
        check_line(title).map_err(|rule| {
            LifecycleError::Config(format!("`title`: expected 1 to {SESSION_TITLE_BYTES} bytes on one line: {rule}"))
        })?;
    }
    let deadline = venue.clock.steady() + LET_GO;
    loop {
        let (seen, state) = read_session(venue, owner, key).await?;
        let state = SessionState { title: title.map(str::to_owned), ..state };
        if write_state(venue, owner, seen, &state, deadline).await? {
            return Ok(());
        }
    }
}

/// Lets a summary stand for all turns of a session's conversation, and returns their number. No turn is deleted.
pub async fn compact(
    venue: &Venue,
    owner: &Owner,
    key: &SessionKey,
    summary: &str,
    under: SummaryAuthority,
) -> Result<u32, LifecycleError> {
    let bytes = summary.len();
    if summary.trim().is_empty() || bytes > SUMMARY_BYTES {
        return Err(LifecycleError::Config(format!("`summary`: expected 1 to {SUMMARY_BYTES} bytes, got {bytes}")));
    }
    let deadline = venue.clock.steady() + LET_GO;
    loop {
        let (seen, mut state) = read_session(venue, owner, key).await?;
        if let Some(why) = state.current_work() {
            return Err(LifecycleError::AtWork(key.clone(), why));
        }
        let live = count_live_turns(venue, owner, key, state.goals.compacted_to().max(state.since)).await?;
        if live.is_empty() {
            return Ok(0);
        }
        state.goals.archive(seen.version, live, summary, under.clone());
        if write_state(venue, owner, seen, &state, deadline).await? {
            return Ok(live.turns);
        }
    }
}

/// Forgets the values of a pipeline's run in a session, if it is concerned. A run that is open fails with `why`. Returns
/// whether there was anything to forget.
pub async fn erase_run(
    venue: &Venue,
    owner: &Owner,
    key: &SessionKey,
    why: &str,
    is_concerned: impl Fn(&PipelineState) -> bool,
) -> Result<bool, LifecycleError> {
    let deadline = venue.clock.steady() + LET_GO;
    loop {
        let (seen, mut state) = match read_session(venue, owner, key).await {
            Err(LifecycleError::NoSession(_)) => return Ok(false),
            read => read?,
        };
        let served = state.task.as_ref().map(|progress| progress.job.clone());
        let Some(run) = state.pipeline.as_deref_mut().filter(|run| is_concerned(run)) else { return Ok(false) };
        let is_open = served.as_ref() == Some(&run.job);
        if !run.erase(is_open, why) {
            return Ok(false);
        }
        if write_state(venue, owner, seen, &state, deadline).await? {
            return Ok(true);
        }
    }
}

/// Counts the turns after turn `above` that no summary stands for.
async fn count_live_turns(venue: &Venue, owner: &Owner, key: &SessionKey, above: u64) -> Result<LiveTurns, StoreError> {
    let mut live = LiveTurns::default();
    let mut turns = venue.store.docs(owner, keys::turns(key)).start_after(Some(keys::turn(key, above)));
    while let Some(page) = turns.records::<TurnRecord>().await? {
        for (_, record) in page.iter().filter(|(_, record)| record.frame == 0) {
            live.count(record.items());
        }
    }
    Ok(live)
}

/// Reads the facts and the state of a session between two turns.
async fn read_session(
    venue: &Venue,
    owner: &Owner,
    key: &SessionKey,
) -> Result<(SessionFacts, SessionState), LifecycleError> {
    let Some(seen) = find(venue, owner, key).await? else { return Err(LifecycleError::NoSession(key.clone())) };
    let state = match &seen.state {
        None => SessionState::default(),
        Some(bytes) => decode(&format!("state of {key}"), bytes)?,
    };
    Ok((seen, state))
}

/// Writes the state of a session; `false` if it was held or has changed and must be read again.
async fn write_state(
    venue: &Venue,
    owner: &Owner,
    seen: SessionFacts,
    state: &SessionState,
    deadline: Duration,
) -> Result<bool, LifecycleError> {
    let state = Bytes::from(serde_json::to_vec(state).expect("states serialise"));
    venue.check_end_room(owner, state.len().saturating_sub(seen.state.as_ref().map_or(0, Bytes::len))).await?;
    let then = Amendment::State(state);
    let amend = Amend { version: seen.version, expected_state: seen.state, amendment: then, writes: Vec::new() };
    match venue.store.amend(venue.now(), owner, &seen.key, &amend).await? {
        AmendOutcome::Done => Ok(true),
        AmendOutcome::Changed if seen.version == 0 && venue.clock.steady() >= deadline => {
            Err(LifecycleError::NoTurn { session: seen.key, asked: 1, newest: 0 })
        }
        AmendOutcome::Held | AmendOutcome::Changed => wait_to_retry(venue, &seen.key, deadline).await.map(|()| false),
    }
}

async fn wait_to_retry(venue: &Venue, key: &SessionKey, deadline: Duration) -> Result<(), LifecycleError> {
    if venue.clock.steady() >= deadline {
        return Err(LifecycleError::Busy(key.clone()));
    }
    tokio::time::sleep(LOOK).await;
    Ok(())
}

/// Deletes a session with its turns, its mailbox and its `c/`, and returns whether it existed. Its open tasks are
/// cancelled, and its jobs stay.
pub async fn delete(venue: &Venue, owner: &Owner, key: &SessionKey) -> Result<bool, LifecycleError> {
    let mut reads = SessionReads { at: venue.now(), uses: Vec::new(), written: 0, is_written: false };
    let deleted = delete_with(venue, owner, key, &mut reads).await;
    if deleted.is_err()
        && let Err(error) = reads.keep_gone_turns(venue, owner, key).await
    {
        tracing::warn!(%owner, session = %key, %error, "a session that stays is listed as removed by `why`");
    }
    deleted
}

async fn delete_with(
    venue: &Venue,
    owner: &Owner,
    key: &SessionKey,
    reads: &mut SessionReads,
) -> Result<bool, LifecycleError> {
    let deadline = venue.clock.steady() + LET_GO;
    let reason = format!("session `{key}` was deleted");
    loop {
        let Some(seen) = find(venue, owner, key).await? else { return Ok(false) };
        for job in seen.mailbox.iter().filter_map(MailboxEntry::open_task) {
            jobs::cancel(venue, owner, job, Some(&reason)).await?;
        }
        let then = Amendment::Remove { arrivals: seen.arrivals };
        let pages = reads.collect(venue, owner, key, seen.version).await?;
        let documents = collect_documents(venue, owner, key, reads, &pages).await?;
        let mut writes: Vec<_> = documents.into_iter().map(DocWrite::delete).collect();
        // The timer is cancelled in the same write: after it, a new session of this name may have set one.
        let wake = timers::cancel_writes(venue, owner, &TimerId::from_text(&format!("wake/{}", key.token()))).await?;
        writes.extend(wake.iter().flat_map(|(_, writes)| writes.iter().cloned()));
        if pages.len() > KEPT_PAGES || reads.written > 0 {
            reads.write(venue, owner, &pages).await?;
        } else {
            writes.extend(pages);
        }
        let amend = Amend { version: seen.version, expected_state: seen.state, amendment: then, writes };
        match venue.store.amend(venue.now(), owner, key, &amend).await? {
            AmendOutcome::Done => {
                if let Some((timer, _)) = &wake {
                    timers::arm(venue, owner, timer).await;
                }
                return Ok(true);
            }
            AmendOutcome::Held | AmendOutcome::Changed => wait_to_retry(venue, key, deadline).await?,
        }
    }
}

/// Paths that models have read in a deleted session. They outlive it for as long as its turns would have been kept.
/// They are written with the deletion; for a long session before it, and removed if the session stays.
struct SessionReads {
    at: Millis,
    /// Reads of models, also of turns that the deletion has erased already.
    uses: Vec<PathUse>,
    /// Number of documents that are written.
    written: usize,
    /// Whether the documents hold all of `uses`.
    is_written: bool,
}

impl SessionReads {
    fn pages(&self, key: &SessionKey) -> Vec<DocWrite> {
        path_uses::kept_writes(self.uses.clone(), self.at, |number| keys::session_reads(key, self.at, number))
    }

    /// Collects what models have read in the first `turns` turns. Returns the documents that keep it.
    async fn collect(
        &mut self,
        venue: &Venue,
        owner: &Owner,
        key: &SessionKey,
        turns: u64,
    ) -> Result<Vec<DocWrite>, StoreError> {
        let there = path_uses::session_uses(&*venue.store, owner, key, turns).await?;
        self.forget(&there);
        self.uses.extend(there);
        self.uses.sort_by_key(|path_use| path_use.turn);
        self.is_written = false;
        Ok(self.pages(key))
    }

    fn forget(&mut self, there: &[PathUse]) {
        let there: BTreeSet<&PathUse> = there.iter().collect();
        self.uses.retain(|path_use| !there.contains(path_use));
    }

    /// Writes the pages before the session is deleted.
    async fn write(&mut self, venue: &Venue, owner: &Owner, pages: &[DocWrite]) -> Result<(), StoreError> {
        if self.is_written {
            return Ok(());
        }
        self.written = self.written.max(pages.len());
        self.is_written = true;
        path_uses::write_kept(&*venue.store, owner, venue.now(), pages, &[]).await
    }

    /// Rewrites the pages so that they hold only the reads of turns that are gone.
    async fn keep_gone_turns(&mut self, venue: &Venue, owner: &Owner, key: &SessionKey) -> Result<(), StoreError> {
        if self.written == 0 {
            return Ok(());
        }
        let turns = find(venue, owner, key).await?.map_or(0, |seen| seen.version);
        let there = path_uses::session_uses(&*venue.store, owner, key, turns).await?;
        self.forget(&there);
        let mut pages = self.pages(key);
        let surplus = pages.len()..self.written;
        pages.extend(surplus.map(|number| DocWrite::delete(keys::session_reads(key, self.at, number))));
        path_uses::write_kept(&*venue.store, owner, venue.now(), &pages, &[]).await
    }
}

/// Returns the keys of all documents of a session. If one write can't delete them all, deletes the oldest turns first;
/// what models have read in those is written before.
async fn collect_documents(
    venue: &Venue,
    owner: &Owner,
    key: &SessionKey,
    reads: &mut SessionReads,
    pages: &[DocWrite],
) -> Result<Vec<DocKey>, StoreError> {
    let mut found = vec![keys::session_cap(key), keys::session_wait(key)];
    let scope = Scope { session: Some(key.clone()), job: None };
    let base = layout::base_key(Namespace::Session, &scope).unwrap_or_default();
    for prefix in layout::prefixes_below(&format!("{base}/")) {
        let mut under = venue.store.docs(owner, prefix);
        while let Some(page) = under.keys().await? {
            found.extend(page);
        }
    }
    let mut turns = venue.store.docs(owner, keys::turns(key)).page_size(COUNTED);
    while let Some(page) = turns.next().await? {
        for (place, doc) in &page {
            let record: Option<TurnRecord> = doc.value.as_ref().and_then(|bytes| decode::read_stored(bytes).ok());
            found.extend(ledger::documents_of_turn(key, place, record.as_ref()));
        }
        if found.len() > SESSION_ERASED {
            reads.write(venue, owner, pages).await?;
            let some: Vec<_> = found.drain(..).map(DocWrite::delete).collect();
            venue.store.write(venue.now(), owner, &some).await?;
        }
    }
    Ok(found)
}
