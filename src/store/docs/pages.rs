//! One pager for everything that comes in an order: documents, sessions, owners.

use super::super::{Doc, DocKey, SessionFacts, Store, StoreError, decode, steps};
use crate::domain::ids::{AgentId, Owner, SessionKey};
use crate::domain::limits::LIST_BYTES;
use serde::de::DeserializeOwned;

/// What comes in an order and can be read from any place of it.
pub trait Listing: Sync {
    /// Found.
    type Item: Send;
    /// Where it stands.
    type Place: Send + Sync;
    /// Items per page where nobody says otherwise.
    const PAGE: usize;

    /// At most `limit` of those behind a place; fewer than there are only when they weigh too much. And whether
    /// those were the last.
    fn page(
        &self,
        after: Option<&Self::Place>,
        limit: usize,
    ) -> impl Future<Output = Result<(Vec<Self::Item>, bool), StoreError>> + Send;

    /// The place of an item.
    fn place(item: &Self::Item) -> Self::Place;
}

/// Page after page of a listing. It holds none of them.
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

    /// Only what is behind this place.
    #[must_use]
    pub fn after(self, place: Option<L::Place>) -> Self {
        Self { after: place, ..self }
    }

    /// Pages of at most `limit` items.
    #[must_use]
    pub fn of(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    /// The next page, with one item at least; `None` when there are no more.
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

    /// Where the pages so far end; `None` when there are no more, or none was read.
    pub fn place(self) -> Option<L::Place> {
        self.after.filter(|_| !self.ended)
    }
}

/// The documents of an owner under a prefix.
pub struct Documents<'s> {
    store: &'s dyn Store,
    owner: &'s Owner,
    prefix: String,
    reverse: bool,
    /// What a page weighs at most; `None` of documents that weigh nothing.
    bytes: Option<usize>,
}

impl<'s> Documents<'s> {
    pub(super) const fn under(store: &'s dyn Store, owner: &'s Owner, prefix: String) -> Self {
        Self { store, owner, prefix, reverse: false, bytes: Some(LIST_BYTES) }
    }

    pub(super) fn small(self) -> Self {
        Self { bytes: None, ..self }
    }
}

impl Listing for Documents<'_> {
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
        let found = steps::scan(*store, owner, prefix, after, *reverse, limit, bytes).await?;
        Ok((found.docs, found.ended))
    }

    fn place((key, _): &(DocKey, Doc)) -> DocKey {
        key.clone()
    }
}

impl Pages<Documents<'_>> {
    /// The last key first; [`Pages::after`] is then before a key.
    #[must_use]
    pub fn reverse(mut self) -> Self {
        self.listing.reverse = true;
        self
    }

    /// The next page's keys.
    pub async fn keys(&mut self) -> Result<Option<Vec<DocKey>>, StoreError> {
        Ok(self.next().await?.map(|page| page.into_iter().map(|(key, _)| key).collect()))
    }

    /// The next page with what its documents hold as JSON. A damaged one is left out: it keeps no other from being
    /// listed, and the audit names it.
    pub async fn records<T: DeserializeOwned>(&mut self) -> Result<Option<Vec<(DocKey, T)>>, StoreError> {
        let Some(page) = self.next().await? else { return Ok(None) };
        let records = page.into_iter().filter_map(|(key, doc)| match decode(&key, &doc.value.unwrap_or_default()) {
            Ok(value) => Some((key, value)),
            Err(error) => {
                tracing::warn!(key, %error, "a damaged document is left out of a list");
                None
            }
        });
        Ok(Some(records.collect()))
    }
}

/// The sessions of an owner.
pub struct Sessions<'s> {
    store: &'s dyn Store,
    owner: &'s Owner,
    agent: Option<&'s AgentId>,
}

impl<'s> Sessions<'s> {
    pub(super) const fn new(store: &'s dyn Store, owner: &'s Owner, agent: Option<&'s AgentId>) -> Self {
        Self { store, owner, agent }
    }
}

impl Listing for Sessions<'_> {
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

/// All owners.
pub struct Owners<'s> {
    store: &'s dyn Store,
}

impl<'s> Owners<'s> {
    pub(super) const fn new(store: &'s dyn Store) -> Self {
        Self { store }
    }
}

impl Listing for Owners<'_> {
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
