//! Journal entries that wait for the next batch.

use super::{Journal, JournalError};
use crate::domain::ids::Owner;
use crate::domain::journal::{JournalBatch, JournalEntry, JournaledChange, content_mark};
use crate::domain::time::Millis;
use crate::domain::venue_mac::VenueMac;
use crate::store::Store;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};

/// Entries per message, some hundred KB.
const BATCH: usize = 2_000;

/// Most entries that wait while the queue is away; older ones are dropped and counted.
const MOST: usize = 200_000;

/// The waiting entries of one process.
pub(super) struct EntryBuffer {
    by: String,
    key: Vec<u8>,
    waiting: Mutex<WaitingEntries>,
    /// Held while a flush sends, so that batches keep their order.
    sending: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct WaitingEntries {
    entries: Vec<JournalEntry>,
    dropped: u64,
}

impl EntryBuffer {
    pub(super) fn new(by: &str, key: &[u8]) -> Self {
        Self { by: by.to_owned(), key: key.to_vec(), waiting: Mutex::default(), sending: tokio::sync::Mutex::default() }
    }

    pub(super) fn push(&self, entry: JournalEntry) {
        let mut waiting = self.waiting.lock();
        if waiting.entries.len() >= MOST {
            waiting.entries.drain(..MOST / 10);
            waiting.dropped += (MOST / 10) as u64;
        }
        waiting.entries.push(entry);
    }

    pub(super) fn oldest_time(&self) -> Option<Millis> {
        self.waiting.lock().entries.first().map(|entry| entry.at)
    }

    /// Sends all entries, oldest first; entries that the queue refuses stay.
    pub(super) async fn flush(&self, journal: &dyn Journal, store: &dyn Store) -> Result<(), JournalError> {
        let _sending = self.sending.lock().await;
        loop {
            let WaitingEntries { entries, dropped } = std::mem::take(&mut *self.waiting.lock());
            if entries.is_empty() {
                self.waiting.lock().dropped += dropped;
                return Ok(());
            }
            let entries = with_versions(entries, store).await;
            let mut rest = entries.as_slice();
            let mut untold = dropped;
            while !rest.is_empty() {
                let (first, others) = rest.split_at(rest.len().min(BATCH));
                let (by, entries) = (self.by.clone(), first.to_vec());
                let batch = JournalBatch { by, entries, dropped: untold, ..JournalBatch::default() }.seal(&self.key);
                if let Err(error) = journal.append(&batch).await {
                    let mut waiting = self.waiting.lock();
                    let newer = std::mem::take(&mut waiting.entries);
                    waiting.entries = rest.iter().cloned().chain(newer).collect();
                    waiting.dropped += untold;
                    return Err(error);
                }
                (rest, untold) = (others, 0);
            }
        }
    }
}

/// Adds the versions of documents that were written without a condition and have not changed since. A document that was
/// overwritten has a later entry, or belongs to a turn.
async fn with_versions(mut entries: Vec<JournalEntry>, store: &dyn Store) -> Vec<JournalEntry> {
    let mut keys: BTreeMap<Owner, Vec<String>> = BTreeMap::new();
    for entry in &entries {
        if let JournaledChange::Document { key, version: None, .. } = &entry.change {
            keys.entry(entry.owner.clone()).or_default().push(key.clone());
        }
    }
    let mut found = HashMap::new();
    for (owner, keys) in keys {
        for page in keys.chunks(BATCH) {
            // The journal then names these documents without versions.
            let Ok(docs) = store.read(&owner, page).await else { continue };
            found.extend(page.iter().cloned().zip(docs).map(|(key, doc)| ((owner.clone(), key), doc)));
        }
    }
    for entry in &mut entries {
        if let JournaledChange::Document { key, mark, version: version @ None } = &mut entry.change
            && let Some(doc) = found.get(&(entry.owner.clone(), key.clone()))
            && doc.value.as_ref().map(|bytes| content_mark(bytes)) == *mark
        {
            *version = Some(doc.version);
        }
    }
    entries
}
