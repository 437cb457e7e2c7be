//! Reads of many documents in steps, whose size follows the size of the documents, within a number of bytes.
//!
//! A list doesn't know how large its records are: a page read at once could hold a megabyte per entry.

use super::{Doc, DocKey, Store, StoreError, decode};
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
/// are listed; the audit names it.
pub async fn read<const N: usize>(
    store: &dyn Store,
    owner: &Owner,
    groups: &[[DocKey; N]],
    bytes: usize,
) -> Result<(Vec<Vec<Doc>>, usize), StoreError> {
    match read_whole(store, owner, groups, bytes).await {
        Err(error) if !error.is_transient() => {}
        found => return found,
    }
    // Reads only the first group, so that the next call continues behind it.
    let Some(group) = groups.first() else { return Ok((Vec::new(), bytes)) };
    let mut docs = Vec::with_capacity(N);
    for key in group {
        docs.push(match store.read(owner, std::slice::from_ref(key)).await {
            Ok(mut doc) => doc.pop().unwrap_or_default(),
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => {
                tracing::warn!(%owner, key, %error, "a damaged document is left out of a list");
                Doc::default()
            }
        });
    }
    let left = bytes.saturating_sub(docs.iter().map(value_bytes).sum());
    Ok((vec![docs], left))
}

/// [`read`] that fails where one of the documents is damaged.
pub async fn read_whole<const N: usize>(
    store: &dyn Store,
    owner: &Owner,
    groups: &[[DocKey; N]],
    bytes: usize,
) -> Result<(Vec<Vec<Doc>>, usize), StoreError> {
    let mut steps = Steps::with_budget(bytes);
    let mut found: Vec<Vec<Doc>> = Vec::new();
    while found.len() < groups.len() && (steps.bytes_left > 0 || found.is_empty()) {
        let step = &groups[found.len()..groups.len().min(found.len() + steps.count)];
        let mut docs = store.read(owner, step.as_flattened()).await?.into_iter();
        let mut taken = 0;
        for _ in step {
            let group: Vec<Doc> = docs.by_ref().take(N).collect();
            taken += group.iter().map(value_bytes).sum::<usize>();
            found.push(group);
        }
        steps.note_step(step.len(), taken);
    }
    Ok((found, steps.bytes_left))
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
        match doc.pop().and_then(|doc| doc.value).map(|bytes| decode(key, &bytes)).transpose() {
            Ok(item) => items.extend(item),
            Err(error) => tracing::warn!(%owner, key, %error, "a damaged document is left out of a list"),
        }
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
