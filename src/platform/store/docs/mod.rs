//! Typed documents over any [`Store`]: reads, edits, pages and writes.
//!
//! ```text
//! get · versioned · get_many      decoded values by key
//! DocWrite::{json, put, mark, delete, check}, `.at(version)`
//! edit                            read, decide, write; repeated a bounded number of times under contention
//! Grouped                         edits of documents that all turns change: those of one process share a write
//! docs · entries · all_sessions · all_owners   page after page, with one page in memory
//! ```

mod grouped;
mod pages;

pub use grouped::{EditBatcher, GroupEdit};
pub use pages::{DocumentList, Listing, OwnerList, Pages, SessionList};

use super::{Doc, DocEffect, DocKey, DocWrite, Expect, SessionFacts, Store, StoreError, WriteOutcome, decode, keys};
use crate::domain::ids::{Owner, SessionId, SessionKey};
use crate::domain::job::JobStatus;
use crate::domain::quota::Quota;
use crate::domain::time::Millis;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::time::Duration;

/// Attempts of a contended edit. Before each but the first two is a pause of up to `PAUSES` - 1 ms, so that competing
/// writers don't all try again at the same moment.
pub const EDIT_ATTEMPTS: u32 = 64;
const PAUSES: u32 = 7;

/// Sessions per page of a search for one, which is mostly among the first few.
const SEARCH_PAGE: usize = 20;

impl Doc {
    /// Decodes the value from JSON; `None` if it is absent. [`StoreError::Corrupt`] names `key`.
    pub fn decode<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StoreError> {
        self.value.as_ref().map(|bytes| decode(key, bytes)).transpose()
    }

    /// Returns status and time of a document at [`keys::job_status`]; `None` if it is absent or no status.
    pub fn status(&self) -> Option<(JobStatus, Millis)> {
        keys::decode_status(self.value.as_ref()?)
    }
}

impl DocWrite {
    const fn new(key: DocKey, change: DocEffect) -> Self {
        Self { key, expect: Expect::Any, change }
    }

    /// Puts bytes without a condition.
    pub fn put(key: impl Into<DocKey>, bytes: impl Into<Bytes>) -> Self {
        Self::new(key.into(), DocEffect::Put(bytes.into()))
    }

    /// Puts a value as JSON without a condition.
    ///
    /// # Panics
    /// If `value` has no JSON, as a map whose keys aren't strings; no document type has such.
    pub fn json(key: impl Into<DocKey>, value: &impl Serialize) -> Self {
        Self::put(key, serde_json::to_vec(value).expect("documents serialise"))
    }

    /// Puts an index entry: an empty document whose key is the information.
    pub fn index_entry(key: impl Into<DocKey>) -> Self {
        Self::put(key, Bytes::new())
    }

    /// Deletes the document if it is present.
    pub fn delete(key: impl Into<DocKey>) -> Self {
        Self::new(key.into(), DocEffect::Delete)
    }

    /// Writes nothing; the other writes of the call are applied only if the document has this version.
    pub fn check(key: impl Into<DocKey>, version: u64) -> Self {
        Self::new(key.into(), DocEffect::Check).at_version(version)
    }

    /// Returns the number of bytes that it puts.
    pub fn bytes(&self) -> usize {
        match &self.change {
            DocEffect::Put(bytes) => bytes.len(),
            DocEffect::Delete | DocEffect::Check => 0,
        }
    }

    /// Adds the condition that the document has this version; 0 = never written.
    #[must_use]
    pub fn at_version(self, version: u64) -> Self {
        Self { expect: Expect::Version(version), ..self }
    }
}

/// The decision of one attempt of an edit: what to write and what to return.
#[derive(Debug)]
pub struct Edit<T> {
    writes: Vec<DocWrite>,
    within: Option<Quota>,
    answer: T,
}

impl<T> Edit<T> {
    /// Returns an edit that writes nothing.
    pub const fn without_writes(answer: T) -> Self {
        Self { writes: Vec::new(), within: None, answer }
    }

    /// Returns an edit with these writes, all or none; documents that were read carry [their version](DocWrite::at_version).
    pub fn write(writes: impl Into<Vec<DocWrite>>, answer: T) -> Self {
        Self { writes: writes.into(), within: None, answer }
    }

    /// Applies a quota to the writes, as [`DocumentStore::write_within`](crate::store::DocumentStore::write_within)
    /// does.
    #[must_use]
    pub fn with_quota(self, quota: impl Into<Option<Quota>>) -> Self {
        Self { within: quota.into(), ..self }
    }
}

/// Waits before the attempt of an edit with this index, counted from 0.
async fn pause_before(tried: u32) {
    if tried > 1 {
        tokio::time::sleep(Duration::from_millis(u64::from(tried % PAUSES))).await;
    }
}

impl dyn Store + '_ {
    /// Returns one document; [`Doc::default`] if it was never written.
    pub async fn doc(&self, owner: &Owner, key: &str) -> Result<Doc, StoreError> {
        Ok(self.read(owner, &[key.to_owned()]).await?.pop().unwrap_or_default())
    }

    /// Returns the decoded value of a document; `None` if it is absent.
    pub async fn get<T: DeserializeOwned>(&self, owner: &Owner, key: &str) -> Result<Option<T>, StoreError> {
        self.doc(owner, key).await?.decode(key)
    }

    /// Returns decoded value and version; an absent document may have a version, too.
    pub async fn get_versioned<T: DeserializeOwned>(
        &self,
        owner: &Owner,
        key: &str,
    ) -> Result<(Option<T>, u64), StoreError> {
        let doc = self.doc(owner, key).await?;
        Ok((doc.decode(key)?, doc.version))
    }

    /// Returns the decoded values of documents, in the order of `keys`, all of one consistent state.
    pub async fn get_many<T: DeserializeOwned>(
        &self,
        owner: &Owner,
        keys: &[DocKey],
    ) -> Result<Vec<Option<T>>, StoreError> {
        let docs = self.read(owner, keys).await?;
        keys.iter().zip(docs).map(|(key, doc)| doc.decode(key)).collect()
    }

    /// Writes documents, within a quota if there is one.
    pub async fn write_with_quota(
        &self,
        now: Millis,
        owner: &Owner,
        writes: &[DocWrite],
        quota: Option<&Quota>,
    ) -> Result<WriteOutcome, StoreError> {
        match quota {
            None => self.write(now, owner, writes).await,
            Some(quota) => self.write_within(now, owner, writes, quota).await,
        }
    }

    /// Runs `attempt` and writes what it decides, again when a document was changed meanwhile, at most
    /// [`EDIT_ATTEMPTS`] times; then nothing was written, and [`StoreError::Contended`] names the edited thing by `kind`
    /// and `name`.
    ///
    /// After it the writes of the last attempt are durable. After a crash before it none of them is.
    pub async fn edit<T, E: From<StoreError>, F: Future<Output = Result<Edit<T>, E>>>(
        &self,
        now: Millis,
        owner: &Owner,
        kind: &'static str,
        name: &(dyn Display + Sync),
        attempt: impl Fn() -> F,
    ) -> Result<T, E> {
        for tried in 0..EDIT_ATTEMPTS {
            pause_before(tried).await;
            let Edit { writes, within, answer } = attempt().await?;
            if writes.is_empty() {
                return Ok(answer);
            }
            if self.write_with_quota(now, owner, &writes, within.as_ref()).await? == WriteOutcome::Done {
                return Ok(answer);
            }
        }
        Err(StoreError::Contended { what: format!("{kind} `{name}`") }.into())
    }

    /// Returns pages of the documents under a prefix, in key order: 500 documents of at most
    /// [`LIST_BYTES`](crate::domain::limits::LIST_BYTES) together, or one larger document.
    pub fn docs<'s>(&'s self, owner: &'s Owner, prefix: impl Into<String>) -> Pages<DocumentList<'s>> {
        Pages::new(DocumentList::with_prefix(self, owner, prefix.into()))
    }

    /// Returns pages of 500 index entries, whose documents are empty or one line; each page is one read.
    pub fn entries<'s>(&'s self, owner: &'s Owner, prefix: impl Into<String>) -> Pages<DocumentList<'s>> {
        Pages::new(DocumentList::with_prefix(self, owner, prefix.into()).without_byte_limit())
    }

    /// Returns pages of 200 sessions of an agent, or (`None`) of all agents, sorted.
    pub fn all_sessions<'s>(
        &'s self,
        owner: &'s Owner,
        agent: Option<&'s crate::domain::ids::AgentId>,
    ) -> Pages<SessionList<'s>> {
        Pages::new(SessionList::new(self, owner, agent))
    }

    /// Returns one session; `None` if no event was ever sent to it.
    pub async fn find_session(&self, owner: &Owner, key: &SessionKey) -> Result<Option<SessionFacts>, StoreError> {
        let mut sessions =
            self.all_sessions(owner, Some(&key.agent)).start_after(place_before(key)).page_size(SEARCH_PAGE);
        while let Some(page) = sessions.next().await? {
            let behind = page.into_iter().find(|facts| facts.key.token() >= key.token());
            if behind.is_some() {
                return Ok(behind.filter(|facts| facts.key == *key));
            }
        }
        Ok(None)
    }

    /// Returns pages of 500 of all owners, sorted.
    pub fn all_owners(&self) -> Pages<OwnerList<'_>> {
        Pages::new(OwnerList::new(self))
    }
}

/// Returns a place in the order of sessions before this one, mostly directly before it.
fn place_before(key: &SessionKey) -> Option<SessionKey> {
    let mut name = key.session.as_str().to_owned();
    name.pop();
    let session = SessionId::new(name).ok()?;
    Some(SessionKey { agent: key.agent.clone(), session })
}
