//! One pager for all ordered lists: documents, sessions, owners.

use super::super::{Doc, DocKey, SessionFacts, Store, StoreError, decode_listed, steps};
use crate::domain::ids::{AgentId, Owner, SessionKey};
use crate::domain::limits::LIST_BYTES;
use serde::de::DeserializeOwned;

/// An ordered list that can be read from any place.
pub trait Listing: Sync {
    /// An entry of the list.
    type Item: Send;
    /// The position of an entry.
    type Place: Send + Sync;
    /// Default number of entries per page.
    const PAGE: usize;

    /// Returns at most `limit` entries after a place, fewer if they are large, and whether the last is among them.
    fn page(
        &self,
        after: Option<&Self::Place>,
        limit: usize,
    ) -> impl Future<Output = Result<(Vec<Self::Item>, bool), StoreError>> + Send;

    /// Returns the place of an entry.
    fn place(item: &Self::Item) -> Self::Place;
}

/// Iterates over the pages of a list; keeps no page.
pub struct Pages<L: Listing> {
    listing: L,
    after: Option<L::Place>,
    limit: usize,
    ended: bool,
}

impl<L: Listing> Pages<L> {
    pub(super) const fn new(listing: L) -> Self {
        Self { listing, after: None, limit: L::PAGE, ended: false }
    }

    /// Starts after this place.
    #[must_use]
    pub fn start_after(self, place: Option<L::Place>) -> Self {
        Self { after: place, ..self }
    }

    /// Limits pages to `limit` entries.
    #[must_use]
    pub fn page_size(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    /// Returns the next page, with at least one entry; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<L::Item>>, StoreError> {
        if self.ended || self.limit == 0 {
            return Ok(None);
        }
        let (page, ended) = self.listing.page(self.after.as_ref(), self.limit).await?;
        self.ended = ended || page.is_empty();
        let Some(last) = page.last() else { return Ok(None) };
        self.after = Some(L::place(last));
        Ok(Some(page))
    }

    /// Returns the place of the last entry read; `None` at the end or before the first page.
    pub fn last_place(self) -> Option<L::Place> {
        self.after.filter(|_| !self.ended)
    }
}

/// A list of the documents of an owner under a prefix.
pub struct DocumentList<'s> {
    store: &'s dyn Store,
    owner: &'s Owner,
    prefix: String,
    reverse: bool,
    /// Most bytes of a page; `None` for index entries, which have none.
    bytes: Option<usize>,
}

impl<'s> DocumentList<'s> {
    pub(super) const fn with_prefix(store: &'s dyn Store, owner: &'s Owner, prefix: String) -> Self {
        Self { store, owner, prefix, reverse: false, bytes: Some(LIST_BYTES) }
    }

    pub(super) fn without_byte_limit(self) -> Self {
        Self { bytes: None, ..self }
    }
}

impl Listing for DocumentList<'_> {
    type Item = (DocKey, Doc);
    type Place = DocKey;
    const PAGE: usize = 500;

    async fn page(&self, after: Option<&DocKey>, limit: usize) -> Result<(Vec<(DocKey, Doc)>, bool), StoreError> {
        let Self { store, owner, prefix, reverse, bytes } = self;
        let after = after.map(String::as_str);
        let Some(bytes) = *bytes else {
            let docs = store.scan(owner, prefix, after, *reverse, limit).await?;
            let ended = docs.len() < limit;
            return Ok((docs, ended));
        };
        let range = steps::KeyRange { prefix, after, reverse: *reverse };
        let found = steps::scan(*store, owner, range, limit, bytes).await?;
        Ok((found.docs, found.ended))
    }

    fn place(entry: &Self::Item) -> DocKey {
        let (key, _) = entry;
        key.clone()
    }
}

impl Pages<DocumentList<'_>> {
    /// Reverses the order, last key first; `start_after` then starts before a key.
    #[must_use]
    pub fn reverse(mut self) -> Self {
        self.listing.reverse = true;
        self
    }

    /// Returns the keys of the next page.
    pub async fn keys(&mut self) -> Result<Option<Vec<DocKey>>, StoreError> {
        Ok(self.next().await?.map(|page| page.into_iter().map(|(key, _)| key).collect()))
    }

    /// Returns the next page with decoded values. A damaged document is left out, so that the others are listed; the
    /// audit names it.
    pub async fn records<T: DeserializeOwned>(&mut self) -> Result<Option<Vec<(DocKey, T)>>, StoreError> {
        let Some(page) = self.next().await? else { return Ok(None) };
        let owner = self.listing.owner;
        let records = page.into_iter().filter_map(|(key, doc)| {
            let value = decode_listed(owner, &key, &doc.value.unwrap_or_default())?;
            Some((key, value))
        });
        Ok(Some(records.collect()))
    }
}

/// A list of the sessions of an owner.
pub struct SessionList<'s> {
    store: &'s dyn Store,
    owner: &'s Owner,
    agent: Option<&'s AgentId>,
}

impl<'s> SessionList<'s> {
    pub(super) const fn new(store: &'s dyn Store, owner: &'s Owner, agent: Option<&'s AgentId>) -> Self {
        Self { store, owner, agent }
    }
}

impl Listing for SessionList<'_> {
    type Item = SessionFacts;
    type Place = SessionKey;
    const PAGE: usize = 200;

    async fn page(&self, after: Option<&SessionKey>, limit: usize) -> Result<(Vec<SessionFacts>, bool), StoreError> {
        let page = self.store.sessions(self.owner, self.agent, after, limit).await?;
        let ended = page.len() < limit;
        Ok((page, ended))
    }

    fn place(facts: &SessionFacts) -> SessionKey {
        facts.key.clone()
    }
}

/// A list of all owners.
pub struct OwnerList<'s> {
    store: &'s dyn Store,
}

impl<'s> OwnerList<'s> {
    pub(super) const fn new(store: &'s dyn Store) -> Self {
        Self { store }
    }
}

impl Listing for OwnerList<'_> {
    type Item = Owner;
    type Place = Owner;
    const PAGE: usize = 500;

    async fn page(&self, after: Option<&Owner>, limit: usize) -> Result<(Vec<Owner>, bool), StoreError> {
        let page = self.store.owners(after, limit).await?;
        let ended = page.len() < limit;
        Ok((page, ended))
    }

    fn place(owner: &Owner) -> Owner {
        owner.clone()
    }
}
