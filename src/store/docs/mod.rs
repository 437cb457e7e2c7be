//! Documents with types, over any [`Store`]: one or many are read, edited, paged through and written.
//!
//! ```text
//! get · versioned · get_many      what a key holds
//! DocWrite::{json, put, mark, delete, check}, `.at(version)`
//! edit                            read, decide, write; again while others are faster, and not for ever
//! Grouped                         the same of what all turns change: those of one process go together
//! docs · entries · all_sessions · all_owners   page after page, a page in memory
//! ```

mod grouped;
mod pages;

pub use grouped::{GroupEdit, Grouped};
pub use pages::{Documents, Listing, Owners, Pages, Sessions};

use super::{Change, Doc, DocKey, DocWrite, Expect, OutsideWrite, SessionFacts, Store, StoreError, decode, keys};
use crate::domain::ids::{Owner, SessionId, SessionKey};
use crate::domain::job::JobStatus;
use crate::domain::quota::Quota;
use crate::domain::time::Millis;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::time::Duration;

/// Attempts of an edit that others get in the way of. Before each but the first two is a pause of up to
/// `PAUSES` - 1 ms, so that not all who want the same try again at the same moment.
pub const EDIT_ATTEMPTS: u32 = 64;
const PAUSES: u32 = 7;

/// Sessions that one step of a search for one looks at: mostly it is among the first few.
const FOUND: usize = 20;

impl Doc {
    /// Its value, from JSON; `None` when it isn't there. [`StoreError::Corrupt`] names `key`.
    pub fn decode<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StoreError> {
        self.value.as_ref().map(|bytes| decode(key, bytes)).transpose()
    }

    /// Of the document at [`keys::job_status`]: where the job stands and since when. `None` when it isn't there, or
    /// is none.
    pub fn status(&self) -> Option<(JobStatus, Millis)> {
        keys::decode_status(self.value.as_ref()?)
    }
}

impl DocWrite {
    const fn new(key: DocKey, change: Change) -> Self {
        Self { key, expect: Expect::Any, change }
    }

    /// Puts these bytes, whatever is there.
    pub fn put(key: impl Into<DocKey>, bytes: impl Into<Bytes>) -> Self {
        Self::new(key.into(), Change::Put(bytes.into()))
    }

    /// Puts a value as JSON, whatever is there.
    ///
    /// # Panics
    /// When `value` has no JSON, as of a map whose keys aren't texts: no type of a document has such.
    pub fn json(key: impl Into<DocKey>, value: &impl Serialize) -> Self {
        Self::put(key, serde_json::to_vec(value).expect("documents serialise"))
    }

    /// Puts an entry of an index, whose key says everything.
    pub fn mark(key: impl Into<DocKey>) -> Self {
        Self::put(key, Bytes::new())
    }

    /// Deletes it, if it is there.
    pub fn delete(key: impl Into<DocKey>) -> Self {
        Self::new(key.into(), Change::Delete)
    }

    /// Writes nothing; with it everything else is written only over this version.
    pub fn check(key: impl Into<DocKey>, version: u64) -> Self {
        Self::new(key.into(), Change::Check).at(version)
    }

    /// Bytes that it puts.
    pub fn bytes(&self) -> usize {
        match &self.change {
            Change::Put(bytes) => bytes.len(),
            Change::Delete | Change::Check => 0,
        }
    }

    /// The same, only over this version; 0 = where nothing was ever written.
    #[must_use]
    pub fn at(self, version: u64) -> Self {
        Self { expect: Expect::Version(version), ..self }
    }
}

/// What an attempt at an edit has decided by what it has read.
#[derive(Debug)]
pub struct Edit<T> {
    writes: Vec<DocWrite>,
    within: Option<Quota>,
    answer: T,
}

impl<T> Edit<T> {
    /// Nothing is to be written.
    pub const fn nothing(answer: T) -> Self {
        Self { writes: Vec::new(), within: None, answer }
    }

    /// This is to be written, all or none; what was read [at its version](DocWrite::at).
    pub fn write(writes: impl Into<Vec<DocWrite>>, answer: T) -> Self {
        Self { writes: writes.into(), within: None, answer }
    }

    /// The same as [`DocumentStore::write_within`](crate::store::DocumentStore::write_within) does it, where there is a quota.
    #[must_use]
    pub fn within(self, quota: impl Into<Option<Quota>>) -> Self {
        Self { within: quota.into(), ..self }
    }
}

/// The pause before so many-eth attempt of an edit, counted from 0.
async fn pause_before(tried: u32) {
    if tried > 1 {
        tokio::time::sleep(Duration::from_millis(u64::from(tried % PAUSES))).await;
    }
}

impl dyn Store + '_ {
    /// One document.
    pub async fn doc(&self, owner: &Owner, key: &str) -> Result<Doc, StoreError> {
        Ok(self.read(owner, &[key.to_owned()]).await?.pop().unwrap_or_default())
    }

    /// What a document holds as JSON; `None` when it isn't there.
    pub async fn get<T: DeserializeOwned>(&self, owner: &Owner, key: &str) -> Result<Option<T>, StoreError> {
        self.doc(owner, key).await?.decode(key)
    }

    /// The same with its version, which one that isn't there may have, too.
    pub async fn versioned<T: DeserializeOwned>(
        &self,
        owner: &Owner,
        key: &str,
    ) -> Result<(Option<T>, u64), StoreError> {
        let doc = self.doc(owner, key).await?;
        Ok((doc.decode(key)?, doc.version))
    }

    /// What documents hold, in the order of their keys here. One consistent state.
    pub async fn get_many<T: DeserializeOwned>(
        &self,
        owner: &Owner,
        keys: &[DocKey],
    ) -> Result<Vec<Option<T>>, StoreError> {
        let docs = self.read(owner, keys).await?;
        keys.iter().zip(docs).map(|(key, doc)| doc.decode(key)).collect()
    }

    /// Writes within a quota where there is one, else without.
    pub async fn write_under(
        &self,
        now: Millis,
        owner: &Owner,
        writes: &[DocWrite],
        quota: Option<&Quota>,
    ) -> Result<OutsideWrite, StoreError> {
        match quota {
            None => self.write(now, owner, writes).await,
            Some(quota) => self.write_within(now, owner, writes, quota).await,
        }
    }

    /// Has `attempt` read and decide, and writes what it has decided; all of it again when a document was changed
    /// under it, [`EDIT_ATTEMPTS`] times at most. Then, [`StoreError::Contended`] says of `what` (a kind and a
    /// name), nothing was written.
    ///
    /// After it: the writes of the last attempt are durable, and its answer is given. A crash before it: nothing
    /// of it is.
    pub async fn edit<T, E: From<StoreError>, F: Future<Output = Result<Edit<T>, E>>>(
        &self,
        now: Millis,
        owner: &Owner,
        what: (&'static str, &(dyn Display + Sync)),
        attempt: impl Fn() -> F,
    ) -> Result<T, E> {
        for tried in 0..EDIT_ATTEMPTS {
            pause_before(tried).await;
            let Edit { writes, within, answer } = attempt().await?;
            if writes.is_empty() {
                return Ok(answer);
            }
            if self.write_under(now, owner, &writes, within.as_ref()).await? == OutsideWrite::Done {
                return Ok(answer);
            }
        }
        let (kind, name) = what;
        Err(StoreError::Contended { what: format!("{kind} `{name}`") }.into())
    }

    /// What lies under a prefix, in the order of keys: pages of 500 documents that weigh
    /// [`LIST_BYTES`](crate::domain::limits::LIST_BYTES) at most, or of one that weighs more.
    pub fn docs<'s>(&'s self, owner: &'s Owner, prefix: impl Into<String>) -> Pages<Documents<'s>> {
        Pages::new(Documents::under(self, owner, prefix.into()))
    }

    /// The entries of an index, whose documents are empty or a line: pages of 500, a page in one read.
    pub fn entries<'s>(&'s self, owner: &'s Owner, prefix: impl Into<String>) -> Pages<Documents<'s>> {
        Pages::new(Documents::under(self, owner, prefix.into()).small())
    }

    /// The sessions of an agent, or (`None`) of all, sorted: pages of 200.
    pub fn all_sessions<'s>(
        &'s self,
        owner: &'s Owner,
        agent: Option<&'s crate::domain::ids::AgentId>,
    ) -> Pages<Sessions<'s>> {
        Pages::new(Sessions::new(self, owner, agent))
    }

    /// One session; `None` when nothing was ever sent to it.
    pub async fn find_session(&self, owner: &Owner, key: &SessionKey) -> Result<Option<SessionFacts>, StoreError> {
        let mut sessions = self.all_sessions(owner, Some(&key.agent)).after(place_before(key)).of(FOUND);
        while let Some(page) = sessions.next().await? {
            let behind = page.into_iter().find(|facts| facts.key.token() >= key.token());
            if behind.is_some() {
                return Ok(behind.filter(|facts| facts.key == *key));
            }
        }
        Ok(None)
    }

    /// All owners, sorted: pages of 500.
    pub fn all_owners(&self) -> Pages<Owners<'_>> {
        Pages::new(Owners::new(self))
    }
}

/// A place in the order of sessions that is before this one, and mostly just before it.
fn place_before(key: &SessionKey) -> Option<SessionKey> {
    let mut name = key.session.as_str().to_owned();
    name.pop();
    let session = SessionId::new(name).ok()?;
    Some(SessionKey { agent: key.agent.clone(), session })
}
