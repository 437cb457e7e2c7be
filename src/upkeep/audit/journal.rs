//! The journal of what the store acknowledged, which the queue keeps: sent there, and compared with a store whose server
//! is another, or back without its last seconds.

use super::{AuditError, tail};
use crate::domain::ids::{AgentId, EventId, Owner, SessionId, SessionKey};
use crate::domain::job::JobStatus;
use crate::domain::journal::{JournalEntry, JournaledChange, content_mark, current};
use crate::domain::tail::{Loss, Losses, SafePoint};
use crate::domain::time::Millis;
use crate::store::journaled::{BATCH_EVERY, JournalError, JournaledStore};
use crate::store::{Admit, DocWrite, EventKind, Intake, NewEvent, OutsideWrite, SessionFacts, StoreError, keys};
use crate::venue::agents::sessions;
use crate::venue::{Venue, venue_owner};
use bytes::Bytes;
use futures::{StreamExt, stream};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time between two safe points: so much of the journal is read again after a loss, at least.
const SAFE_EVERY: Duration = Duration::from_secs(10);

/// How long living processes have to put back what they know.
const PUT_BACK: Duration = Duration::from_secs(5);

/// The journal is read from so long before the safe point: clocks differ, and batches come a little later.
const SLACK: Duration = Duration::from_secs(15);

/// [`SLACK`] of a cluster, of which another node than that of the safe point may be set back.
const CLUSTER_SLACK: Duration = Duration::from_mins(10);

/// Entries that are compared at a time.
const AT_ONCE: usize = 32;

/// Sends the entries of this process to the queue, until `stop`.
pub async fn flush(venue: Arc<Venue>, stop: CancellationToken) {
    let Some(journaled) = venue.history.journal() else { return };
    let mut is_told = true;
    loop {
        let is_over = tokio::select! {
            biased;
            () = stop.cancelled() => true,
            () = venue.clock.until(venue.clock.steady() + BATCH_EVERY) => false,
        };
        match journaled.flush().await {
            Ok(()) => is_told = true,
            Err(error) => {
                if is_told {
                    tracing::warn!(%error, "the queue doesn't keep the journal of changes now; it is told later");
                }
                is_told = false;
            }
        }
        if is_over {
            return;
        }
    }
}

/// State between two looks of one process.
#[derive(Debug, Default)]
pub(super) struct JournalWatch {
    /// When the store's history was first seen to be another.
    seen: Option<Millis>,
    /// The safe point that was read last: while it is young, and of this history, there is nothing to do.
    safe: SafePoint,
}

impl JournalWatch {
    /// Compares the store with the journal, as the process of this name, where the store's history isn't that of its last
    /// safe point; what is missing is kept for operators. Else the safe point goes ahead.
    pub(super) async fn look(&mut self, venue: &Venue, by: &str) -> Result<(), AuditError> {
        let Some(journaled) = venue.history.journal() else { return Ok(()) };
        let mut names = venue.store.history().await?;
        if names.is_empty() {
            return Ok(());
        }
        names.sort_unstable();
        let now = venue.now();
        if self.safe.is_of(&names) && self.safe.at.plus(SAFE_EVERY) > now {
            self.seen = None;
            return Ok(());
        }
        let (safe, version) = venue.store.versioned::<SafePoint>(&venue_owner(), keys::SAFE_POINT).await?;
        self.safe = safe.unwrap_or_default();
        let safe = &self.safe;
        let mut writes =
            vec![DocWrite::json(keys::SAFE_POINT, &SafePoint { names: names.clone(), at: now }).at(version)];
        if safe.is_of(&names) {
            self.seen = None;
            if safe.at.plus(SAFE_EVERY) <= now {
                venue.store.write(now, &venue_owner(), &writes).await?;
            }
            return Ok(());
        }
        // Living processes put back first what they know.
        if self.seen.get_or_insert(now).plus(PUT_BACK) > now {
            return Ok(());
        }
        let slack = if venue.history.parts().len() > 1 { CLUSTER_SLACK } else { SLACK };
        let since = Millis(safe.at.0.saturating_sub(u64::try_from(slack.as_millis()).unwrap_or(u64::MAX)));
        let (losses, notes) = compare(venue, journaled, since, now).await?;
        let all = Losses::split(now, by, tail::untold(venue, losses).await?, notes);
        let is_serious = all.first().is_some_and(Losses::is_serious);
        if is_serious {
            let parts = all.iter().enumerate();
            writes.extend(parts.map(|(n, part)| DocWrite::json(keys::losses_part(now, by, n), part)));
        }
        // With the safe point, so that of several processes one tells it.
        let written = venue.store.write(now, &venue_owner(), &writes).await?;
        self.seen = None;
        if written == OutsideWrite::Done && is_serious {
            tell(&all);
        }
        Ok(())
    }
}

fn tell(all: &[Losses]) {
    let kinds = all.first().map(|first| sums(&first.kinds)).unwrap_or_default();
    tracing::error!(
        "the store has lost changes that it had acknowledged, by the journal in the queue: {kinds}; `trellis audit \
         --after-loss` lists them"
    );
    for note in all.iter().flat_map(|part| &part.notes) {
        tracing::error!("{note}");
    }
    for loss in all.iter().flat_map(|part| &part.lines) {
        tracing::warn!("{loss}");
    }
}

/// E.g. `3 documents, 1 turns`.
pub(super) fn sums(kinds: &BTreeMap<String, u64>) -> String {
    let each = kinds.iter().map(|(kind, n)| format!("{n} {}", if kind.is_empty() { "changes" } else { kind }));
    let each: Vec<_> = each.collect();
    if each.is_empty() { "nothing".to_owned() } else { each.join(", ") }
}

/// Changes of the journal since a time that the store lacks, and limits of the journal in words.
async fn compare(
    venue: &Venue,
    journaled: &JournaledStore,
    since: Millis,
    now: Millis,
) -> Result<(Vec<Loss>, Vec<String>), AuditError> {
    let part = journaled.entries_since(since).await.map_err(JournalError::into_store_error)?;
    let mut notes = Vec::new();
    if let Some(begins) = part.begins.filter(|begins| *begins > since && since.0 > 0) {
        notes.push(format!(
            "the journal reaches back to {} only: what was acknowledged since {} and before isn't known",
            begins.rfc3339(),
            since.rfc3339()
        ));
    }
    let dropped: u64 = part.batches.iter().map(|batch| batch.dropped).sum();
    if dropped > 0 {
        notes.push(format!("the journal lacks {dropped} changes: the queue was away for too long"));
    }
    let entries = current(part.batches.into_iter().flat_map(|batch| batch.entries).collect());
    let looks: Vec<_> = entries.iter().map(|entry| find_difference(venue, now, entry)).collect();
    let looks: Vec<Result<Option<String>, StoreError>> = stream::iter(looks).buffered(AT_ONCE).collect().await;
    let mut losses = Vec::new();
    for (entry, look) in entries.iter().zip(looks) {
        let lost = match look {
            Ok(None) => continue,
            Ok(lost) => lost,
            Err(error) if error.is_transient() => return Err(error.into()),
            Err(error) => Some(error.to_string()),
        };
        losses.push(Loss {
            owner: entry.owner.clone(),
            acknowledged: entry.at,
            kind: entry.change.kind().to_owned(),
            what: entry.change.to_string(),
            lost,
        });
    }
    Ok((losses, notes))
}

/// How it stands instead of what was acknowledged, in words; `None`: it is there.
async fn find_difference(venue: &Venue, now: Millis, entry: &JournalEntry) -> Result<Option<String>, StoreError> {
    let (store, owner) = (&*venue.store, &entry.owner);
    let lost = |is_lost: bool, how: &str| is_lost.then(|| how.to_owned());
    Ok(match &entry.change {
        JournaledChange::Event { job: Some(job), .. } => {
            let head = store.doc(owner, &keys::job_head(job)).await?;
            lost(head.value.is_none(), "the store doesn't know its job")
        }
        JournaledChange::Event { id, job: None, .. } => {
            let probed = store.admit(now, &probe(owner, id)).await?.intake;
            lost(matches!(probed, Intake::Refused(_)), "the store doesn't know it")
        }
        JournaledChange::End { job, status } => match store.doc(owner, &keys::job_status(job)).await?.status() {
            None => Some("the store doesn't know the job".to_owned()),
            Some((is, _)) => (is != *status).then(|| format!("it is {}", is.as_str())),
        },
        JournaledChange::Hold { job, paused } => match store.doc(owner, &keys::job_status(job)).await?.status() {
            None => Some("the store doesn't know the job".to_owned()),
            Some((is, _)) => {
                let is_so = is.is_terminal() || *paused == (is == JobStatus::Paused);
                (!is_so).then(|| format!("it is {}", is.as_str()))
            }
        },
        JournaledChange::Document { key, mark, version } => {
            let doc = store.doc(owner, key).await?;
            let is_same = doc.value.as_ref().map(|bytes| content_mark(bytes)) == *mark;
            match version {
                _ if is_same => None,
                Some(version) => lost(doc.version <= *version, "it is as before or otherwise"),
                None => Some("unless somebody else has changed it since".to_owned()),
            }
        }
        JournaledChange::Deletion { key, .. } => {
            lost(store.doc(owner, key).await?.value.is_some(), "it is there again")
        }
        JournaledChange::Turn { session, turn } => {
            let turns = find_session(venue, owner, session).await?.map(|facts| facts.version);
            match turns {
                Some(turns) => (turns < *turn).then(|| format!("its session has {turns} turns")),
                None => Some("its session is gone".to_owned()),
            }
        }
        JournaledChange::Session { session, turns, mark } => {
            let facts = find_session(venue, owner, session).await?;
            match (facts, mark) {
                (None, None) => None,
                (None, Some(_)) => Some("the store doesn't know it".to_owned()),
                (Some(facts), Some(mark)) => {
                    let state = facts.state.as_ref().map(|bytes| content_mark(bytes));
                    let is_so = facts.version > *turns || facts.version == *turns && state.as_ref() == Some(mark);
                    lost(!is_so, "it is as before or otherwise")
                }
                (Some(_), None) => Some("it is there again".to_owned()),
            }
        }
    })
}

async fn find_session(venue: &Venue, owner: &Owner, token: &str) -> Result<Option<SessionFacts>, StoreError> {
    match SessionKey::from_token(token) {
        Ok(key) => sessions::find(venue, owner, &key).await,
        Err(_) => Ok(None),
    }
}

/// The event once more, for an agent that nobody has: the store knows it as a duplicate or refuses it, and takes
/// nothing.
fn probe(owner: &Owner, id: &EventId) -> Admit {
    let nobody = format!("nobody-{}", uuid::Uuid::new_v4().simple());
    let event = NewEvent {
        id: id.clone(),
        body_hash: String::new(),
        kind: EventKind::Message,
        job: None,
        order: "0".to_owned(),
        body: Bytes::new(),
        open: None,
        finish: None,
        outbox: Vec::new(),
        within: None,
        asks_way: false,
    };
    let session = SessionKey {
        agent: AgentId::new(nobody).expect("a legal name"),
        session: SessionId::new("probe").expect("a legal name"),
    };
    Admit { owner: owner.clone(), session, event: Some(event), lease: None }
}
