//! Reads of many documents in steps, whose size follows the size of the documents, within a number of bytes.
//!
//! A list doesn't know how large its records are: a page read at once could hold a megabyte per entry.

use super::{Doc, DocKey, Store, StoreError, decode_listed, skip_damaged};
use crate::domain::ids::Owner;
use crate::domain::limits::LIST_BYTES;
use serde::de::DeserializeOwned;

/// Target bytes of one step, estimated from the steps before it.
const STEP_BYTES: usize = 1 << 20;
/// Documents, or groups of them, in the first step.
const FIRST: usize = 8;
/// Most documents, or groups of them, in one step: large ones may follow small ones.
const MOST: usize = 32;

/// The size of the next step of a read, and the bytes left for it.
pub struct Steps {
    /// Documents, or groups of them, in the next step.
    pub count: usize,
    /// Bytes left for the read.
    pub bytes_left: usize,
}

impl Steps {
    /// Returns the first step of a read of at most `bytes`.
    pub const fn with_budget(bytes: usize) -> Self {
        Self { count: FIRST, bytes_left: bytes }
    }

    /// Notes a finished step of `count` groups and `bytes`; sizes the next step by their mean size.
    pub fn note_step(&mut self, count: usize, bytes: usize) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        let mean = bytes / count.max(1);
        self.count = (STEP_BYTES / mean.max(1)).clamp(1, self.count.saturating_mul(8).min(MOST));
    }
}

/// Keys with a prefix, in one direction.
#[derive(Debug, Clone, Copy)]
pub struct KeyRange<'a> {
    /// Prefix of the keys.
    pub prefix: &'a str,
    /// Key that the range begins behind, in its direction; `None` for the first one.
    pub after: Option<&'a str>,
    /// Whether the last key comes first.
    pub reverse: bool,
}

impl<'a> KeyRange<'a> {
    /// Returns the keys with a prefix, the first one first.
    pub const fn ascending(prefix: &'a str) -> Self {
        Self { prefix, after: None, reverse: false }
    }

    /// Returns the keys with a prefix, the last one first.
    pub const fn descending(prefix: &'a str) -> Self {
        Self { prefix, after: None, reverse: true }
    }

    /// Begins behind a key, in the direction of the range.
    #[must_use]
    pub const fn start_after(self, key: &'a str) -> Self {
        Self { after: Some(key), ..self }
    }
}

/// The result of a bounded scan.
#[derive(Debug)]
pub struct BoundedScan {
    /// Documents in key order.
    pub docs: Vec<(DocKey, Doc)>,
    /// Whether there are no more documents.
    pub ended: bool,
}

/// [`DocumentStore::scan`](super::DocumentStore::scan) that stops after `bytes`; returns at least one document if there
/// is one.
pub async fn scan(
    store: &dyn Store,
    owner: &Owner,
    range: KeyRange<'_>,
    limit: usize,
    bytes: usize,
) -> Result<BoundedScan, StoreError> {
    let KeyRange { prefix, after, reverse } = range;
    let mut steps = Steps::with_budget(bytes);
    let mut docs: Vec<(DocKey, Doc)> = Vec::new();
    while docs.len() < limit && (steps.bytes_left > 0 || docs.is_empty()) {
        let count = steps.count.min(limit - docs.len());
        let place = docs.last().map_or(after, |(key, _)| Some(key.as_str()));
        let mut page = store.scan(owner, prefix, place, reverse, count).await?;
        steps.note_step(page.len(), page.iter().map(|(_, doc)| value_bytes(doc)).sum());
        let full = page.len() == count;
        docs.append(&mut page);
        if !full {
            return Ok(BoundedScan { docs, ended: true });
        }
    }
    Ok(BoundedScan { docs, ended: false })
}

/// [`DocumentStore::read`](super::DocumentStore::read) of the first of these groups of documents: as many as fit in
/// `bytes`, and at least one. Returns them and the bytes left. A damaged document counts as absent, so that the others
/// are listed; a warning names it, and the audit does.
pub async fn read<const N: usize>(
    store: &dyn Store,
    owner: &Owner,
    groups: &[[DocKey; N]],
    bytes: usize,
) -> Result<(Vec<Vec<Doc>>, usize), StoreError> {
    let mut steps = GroupSteps::new(groups, bytes);
    while let Some(keys) = steps.next_keys() {
        steps.add(read_listed(store, owner, keys).await?);
    }
    Ok(steps.into_found())
}

/// Returns documents for a list, in the order of `keys`. A damaged one counts as absent, so that the others are listed; a
/// warning names it. It is meant for few keys: around a damaged document they are read one by one.
pub async fn read_listed(store: &dyn Store, owner: &Owner, keys: &[DocKey]) -> Result<Vec<Doc>, StoreError> {
    match store.read(owner, keys).await {
        Err(error) if !error.is_transient() => {}
        found => return found,
    }
    let mut docs = Vec::with_capacity(keys.len());
    for key in keys {
        docs.push(skip_damaged(owner, key, store.doc(owner, key).await)?.unwrap_or_default());
    }
    Ok(docs)
}

/// [`read`] that fails where one of the documents is damaged.
pub async fn read_whole<const N: usize>(
    store: &dyn Store,
    owner: &Owner,
    groups: &[[DocKey; N]],
    bytes: usize,
) -> Result<(Vec<Vec<Doc>>, usize), StoreError> {
    let mut steps = GroupSteps::new(groups, bytes);
    while let Some(keys) = steps.next_keys() {
        steps.add(store.read(owner, keys).await?);
    }
    Ok(steps.into_found())
}

/// A read of groups of documents, step by step.
struct GroupSteps<'a, const N: usize> {
    groups: &'a [[DocKey; N]],
    steps: Steps,
    found: Vec<Vec<Doc>>,
}

impl<'a, const N: usize> GroupSteps<'a, N> {
    const fn new(groups: &'a [[DocKey; N]], bytes: usize) -> Self {
        Self { groups, steps: Steps::with_budget(bytes), found: Vec::new() }
    }

    /// Returns the keys of the next step; `None` when everything is read, or as much as fits.
    fn next_keys(&self) -> Option<&'a [DocKey]> {
        let Self { groups, steps, found } = self;
        let goes_on = found.len() < groups.len() && (steps.bytes_left > 0 || found.is_empty());
        let end = groups.len().min(found.len() + steps.count);
        goes_on.then(|| groups[found.len()..end].as_flattened())
    }

    /// Adds the documents of a step.
    fn add(&mut self, docs: Vec<Doc>) {
        let (count, taken) = (docs.len() / N, docs.iter().map(value_bytes).sum());
        let mut docs = docs.into_iter();
        self.found.extend((0..count).map(|_| docs.by_ref().take(N).collect()));
        self.steps.note_step(count, taken);
    }

    /// Returns the documents by group, and the bytes left.
    fn into_found(self) -> (Vec<Vec<Doc>>, usize) {
        (self.found, self.steps.bytes_left)
    }
}

fn value_bytes(doc: &Doc) -> usize {
    doc.value.as_ref().map_or(0, bytes::Bytes::len)
}

/// Returns the records at `places`, at most `limit` after the first `offset`, and the offset of the next page.
pub async fn page<T: DeserializeOwned>(
    store: &dyn Store,
    owner: &Owner,
    places: &[[DocKey; 1]],
    offset: usize,
    limit: usize,
) -> Result<(Vec<T>, usize), StoreError> {
    let wanted = &places[offset.min(places.len())..offset.saturating_add(limit).min(places.len())];
    let (found, _) = read(store, owner, wanted, LIST_BYTES).await?;
    let next = offset + found.len();
    let mut items = Vec::with_capacity(found.len());
    for ([key], mut doc) in wanted.iter().zip(found) {
        items.extend(doc.pop().and_then(|doc| doc.value).and_then(|bytes| decode_listed(owner, key, &bytes)));
    }
    Ok((items, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_documents_come_one_by_one_and_small_ones_by_dozens() {
        let mut steps = Steps::with_budget(10 << 20);
        steps.note_step(8, 800);
        assert_eq!((steps.count, steps.bytes_left), (MOST, (10 << 20) - 800));
        steps.note_step(MOST, 2 << 20);
        assert_eq!(steps.count, 16);
        steps.note_step(16, 16 << 16);
        assert_eq!(steps.count, 16);
        steps.note_step(4, 8 << 20);
        assert_eq!((steps.count, steps.bytes_left), (1, 0));
        steps.note_step(0, 0);
        assert_eq!(steps.count, 8);
    }
}
