//! Comparison of the journal with the store: before anything runs on a store with another history, and again when live
//! processes have submitted what they remember.

use super::{JournalError, JournalPart, JournaledStore, Millis, Owner, Store, StoreError, keys};
use crate::domain::ids::{AgentId, EventId, SessionId, SessionKey};
use crate::domain::job::JobStatus;
use crate::domain::journal::{JournalEntry, JournaledChange, content_mark, current_entries};
use crate::domain::losses::{Loss, SafePoint};
use crate::store::{Admit, EventKind, Intake, NewEvent, SessionFacts};
use bytes::Bytes;
use futures::{StreamExt, stream};
use std::collections::HashSet;
use std::time::Duration;

/// Time before the safe point from which the journal is read: clocks differ, and batches arrive later.
const SLACK: Duration = Duration::from_secs(15);

/// [`SLACK`] of a cluster, where another node than that of the safe point may be set back.
const CLUSTER_SLACK: Duration = Duration::from_mins(10);

/// Entries compared concurrently.
const AT_ONCE: usize = 32;

/// The result of a comparison with the journal.
#[derive(Debug, Default)]
pub struct JournalComparison {
    /// Changes that the store lacks.
    pub losses: Vec<Loss>,
    /// Limits of the journal, in words, such as dropped entries.
    pub notes: Vec<String>,
}

impl JournaledStore {
    /// Returns the changes in the journal since a safe point that a store with these server histories lacks.
    pub async fn compare(&self, safe: &SafePoint, names: &[String]) -> Result<JournalComparison, StoreError> {
        let since = begin_of_comparison(safe, names);
        let part = self.entries_since(since).await.map_err(JournalError::into_store_error)?;
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
        let losses = self.find_losses(&entries_of_part(part)).await?.into_iter().map(|(_, loss)| loss).collect();
        Ok(JournalComparison { losses, notes })
    }

    /// Notes turns and session changes that the store lacks, unless its history is that of the safe point: turns that
    /// run next may hide the loss.
    pub(super) async fn note_early_losses(&self, names: &[String]) -> Result<(), StoreError> {
        let safe = self.inner.get::<SafePoint>(&keys::venue_owner(), keys::SAFE_POINT).await?;
        let safe = safe.unwrap_or_default();
        if safe.covers(names) {
            return Ok(());
        }
        let since = begin_of_comparison(&safe, names);
        let part = self.entries_since(since).await.map_err(JournalError::into_store_error)?;
        let mut entries = entries_of_part(part);
        let is_hidden_later = |change: &JournaledChange| match change {
            JournaledChange::Turn { .. } | JournaledChange::Session { .. } => true,
            JournaledChange::Event { .. }
            | JournaledChange::End { .. }
            | JournaledChange::Document { .. }
            | JournaledChange::Hold { .. }
            | JournaledChange::Deletion { .. } => false,
        };
        entries.retain(|entry| is_hidden_later(&entry.change));
        let found = self.find_losses(&entries).await?;
        self.early_losses.lock().extend(found);
        Ok(())
    }

    /// Whether noted losses wait for [`Self::confirm_early_losses`].
    pub fn has_early_losses(&self) -> bool {
        !self.early_losses.lock().is_empty()
    }

    /// Returns the losses noted before anything ran, except those with a later change. Call it some seconds later, when
    /// live processes have sent their entries.
    pub async fn confirm_early_losses(&self) -> Result<Vec<Loss>, StoreError> {
        let early = self.early_losses.lock().clone();
        let Some(since) = early.iter().map(|(entry, _)| entry.at).min() else { return Ok(Vec::new()) };
        let part = self.entries_since(since.minus(SLACK)).await.map_err(JournalError::into_store_error)?;
        let entries: HashSet<_> = entries_of_part(part).iter().map(entry_name).collect();
        self.early_losses.lock().retain(|other| !early.contains(other));
        Ok(early.into_iter().filter(|(entry, _)| entries.contains(&entry_name(entry))).map(|(_, loss)| loss).collect())
    }

    /// Returns the entries that the store lacks, each with what it has instead.
    async fn find_losses(&self, entries: &[JournalEntry]) -> Result<Vec<(JournalEntry, Loss)>, StoreError> {
        let looks: Vec<_> = entries.iter().map(|entry| find_difference(&*self.inner, entry)).collect();
        let looks: Vec<Result<Option<String>, StoreError>> = stream::iter(looks).buffered(AT_ONCE).collect().await;
        let mut losses = Vec::new();
        for (entry, look) in entries.iter().zip(looks) {
            let instead = match look {
                Ok(None) => continue,
                Ok(instead) => instead,
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => Some(error.to_string()),
            };
            let loss = Loss {
                owner: entry.owner.clone(),
                acknowledged: entry.at,
                kind: entry.change.kind().to_owned(),
                what: entry.change.to_string(),
                lost: instead,
                change: Some(entry.change.clone()),
            };
            losses.push((entry.clone(), loss));
        }
        Ok(losses)
    }
}

/// Returns the time from which the journal is read for a comparison since a safe point.
fn begin_of_comparison(safe: &SafePoint, names: &[String]) -> Millis {
    let slack = if names.len() > 1 { CLUSTER_SLACK } else { SLACK };
    safe.at.minus(slack)
}

/// Returns the last entry about each thing in a part of the journal.
fn entries_of_part(part: JournalPart) -> Vec<JournalEntry> {
    current_entries(part.batches.into_iter().flat_map(|batch| batch.entries).collect())
}

fn entry_name(entry: &JournalEntry) -> (String, Millis, String) {
    (entry.owner.to_string(), entry.at, entry.change.to_string())
}

/// Returns in words what the store has instead of an acknowledged change; `None` if it has the change.
async fn find_difference(store: &dyn Store, entry: &JournalEntry) -> Result<Option<String>, StoreError> {
    let owner = &entry.owner;
    let lost = |is_lost: bool, how: &str| is_lost.then(|| how.to_owned());
    Ok(match &entry.change {
        JournaledChange::Event { job: Some(job), .. } => {
            let head = store.doc(owner, &keys::job_head(job)).await?;
            lost(head.value.is_none(), "the store doesn't know its job")
        }
        JournaledChange::Event { id, job: None, .. } => {
            let probed = store.admit(entry.at, &probe(owner, id)).await?.intake;
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
            let turns = find_session(store, owner, session).await?.map(|facts| facts.version);
            match turns {
                Some(turns) => (turns < *turn).then(|| format!("its session has {turns} turns")),
                None => Some("its session is gone".to_owned()),
            }
        }
        JournaledChange::Session { session, turns, mark } => {
            let facts = find_session(store, owner, session).await?;
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

/// Whether the store has a lost change again: by the same value, job or state. A later change of the same thing doesn't
/// count, and turns and sessions are hidden by those that ran since.
pub async fn has_again(store: &dyn Store, owner: &Owner, change: &JournaledChange) -> Result<bool, StoreError> {
    Ok(match change {
        JournaledChange::Event { job: Some(job), .. } => store.doc(owner, &keys::job_head(job)).await?.value.is_some(),
        JournaledChange::End { job, status } => {
            store.doc(owner, &keys::job_status(job)).await?.status().is_some_and(|(is, _)| is == *status)
        }
        JournaledChange::Hold { job, paused } => {
            let status = store.doc(owner, &keys::job_status(job)).await?.status();
            status.is_some_and(|(is, _)| !is.is_terminal() && *paused == (is == JobStatus::Paused))
        }
        JournaledChange::Document { key, mark, .. } => {
            store.doc(owner, key).await?.value.map(|bytes| content_mark(&bytes)) == *mark
        }
        JournaledChange::Deletion { key, .. } => store.doc(owner, key).await?.value.is_none(),
        JournaledChange::Event { job: None, .. } | JournaledChange::Turn { .. } | JournaledChange::Session { .. } => {
            false
        }
    })
}

async fn find_session(store: &dyn Store, owner: &Owner, token: &str) -> Result<Option<SessionFacts>, StoreError> {
    match SessionKey::from_token(token) {
        Ok(key) => store.find_session(owner, &key).await,
        Err(_) => Ok(None),
    }
}

/// Returns the event again, for an agent that doesn't exist: the store knows it as a duplicate or refuses it, and
/// admits nothing.
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
        quota: None,
        may_replace: false,
    };
    let session = SessionKey {
        agent: AgentId::new(nobody).expect("a legal name"),
        session: SessionId::new("probe").expect("a legal name"),
    };
    Admit { owner: owner.clone(), session, event: Some(event), lease: None }
}
