//! Pending changes of documents on top of the committed documents.

use super::Workspace;
use super::window::ChangedKeys;
use crate::domain::lattice::layout::{self, Collection, CollectionShape, Root};
use crate::store::{Doc, DocEffect, DocKey, DocWrite, Expect, StoreError, Window, keys, steps};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Changed and checked documents, with the committed version that each is based on.
#[derive(Debug, Clone, Default)]
pub(super) struct Overlay {
    docs: BTreeMap<DocKey, PendingDoc>,
    /// By key of a root document: the generation of its collection that this turn makes.
    made: BTreeMap<DocKey, u64>,
}

#[derive(Debug, Clone)]
struct PendingDoc {
    base: u64,
    change: DocEffect,
}

impl Overlay {
    /// Returns version and bytes of a document as this turn sees it.
    pub(super) async fn fetch(&self, tree: &Workspace, key: &str) -> Result<(u64, Option<Bytes>), StoreError> {
        match self.docs.get(key) {
            Some(PendingDoc { base, change: DocEffect::Put(bytes) }) => Ok((base + 1, Some(bytes.clone()))),
            Some(PendingDoc { base, change: DocEffect::Delete }) => Ok((base + 1, None)),
            Some(PendingDoc { change: DocEffect::Check, .. }) | None => {
                let doc = tree.store.read(&tree.owner, &[key.to_owned()]).await?.pop().unwrap_or_default();
                Ok((doc.version, doc.value))
            }
        }
    }

    /// Returns the existing documents under a prefix, in key order, at most `limit`.
    pub(super) async fn scan(
        &self,
        tree: &Workspace,
        prefix: &str,
        limit: usize,
    ) -> Result<BTreeMap<DocKey, Bytes>, StoreError> {
        let found = tree.store.scan(&tree.owner, prefix, None, false, limit).await?;
        Ok(self.with_pending(prefix, found))
    }

    /// Returns documents like [`Overlay::scan`]; `None` if they exceed `bytes`.
    pub(super) async fn scan_within(
        &self,
        tree: &Workspace,
        prefix: &str,
        limit: usize,
        bytes: usize,
    ) -> Result<Option<BTreeMap<DocKey, Bytes>>, StoreError> {
        let found = steps::scan(&*tree.store, &tree.owner, steps::KeyRange::ascending(prefix), limit, bytes).await?;
        let whole = found.ended || found.docs.len() >= limit;
        let docs = self.with_pending(prefix, found.docs);
        Ok(Some(docs).filter(|docs| whole && docs.values().map(Bytes::len).sum::<usize>() <= bytes))
    }

    /// Applies the pending changes to committed documents under a prefix.
    fn with_pending(&self, prefix: &str, found: Vec<(DocKey, Doc)>) -> BTreeMap<DocKey, Bytes> {
        let mut docs: BTreeMap<_, _> = found.into_iter().filter_map(|(key, doc)| Some((key, doc.value?))).collect();
        for (key, pending) in self.docs.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix)) {
            match &pending.change {
                DocEffect::Put(bytes) => {
                    docs.insert(key.clone(), bytes.clone());
                }
                DocEffect::Delete => {
                    docs.remove(key);
                }
                DocEffect::Check => {}
            }
        }
        docs
    }

    /// Returns the number of documents under a prefix, and the keys of `limit` of them after the first `skip`. It costs
    /// as much as the page, not as much as there is.
    pub(super) async fn page(
        &self,
        tree: &Workspace,
        prefix: &str,
        skip: usize,
        limit: usize,
    ) -> Result<(usize, Vec<DocKey>), StoreError> {
        let changed = self.changed_under(tree, prefix).await?;
        let (passed, taken) = changed.committed_window(skip, limit);
        let window = Window { reverse: false, skip: passed, limit: taken, values: false };
        let page = tree.store.page(&tree.owner, prefix, window).await?;
        Ok(changed.merge_page(page, skip, limit))
    }

    async fn changed_under(&self, tree: &Workspace, prefix: &str) -> Result<ChangedKeys, StoreError> {
        let under = self.docs.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        let (keys, changes): (Vec<_>, Vec<_>) = under
            .filter(|(_, pending)| pending.change != DocEffect::Check)
            .map(|(key, pending)| (key.clone(), &pending.change))
            .unzip();
        let mut found = ChangedKeys::default();
        if keys.is_empty() {
            return Ok(found);
        }
        let committed = tree.store.read(&tree.owner, &keys).await?;
        for ((key, change), doc) in keys.into_iter().zip(changes).zip(committed) {
            match (change, doc.value.is_some()) {
                (DocEffect::Put(_), false) => drop(found.made.insert(key)),
                (DocEffect::Delete, true) => drop(found.deleted.insert(key)),
                (DocEffect::Put(_), true) | (DocEffect::Delete, false) | (DocEffect::Check, _) => {}
            }
        }
        Ok(found)
    }

    /// Returns the documents that the turn puts.
    pub(super) fn puts(&self) -> impl Iterator<Item = (&DocKey, &Bytes)> {
        self.docs.iter().filter_map(|(key, pending)| match &pending.change {
            DocEffect::Put(bytes) => Some((key, bytes)),
            DocEffect::Delete | DocEffect::Check => None,
        })
    }

    /// Returns the keys of the documents that the turn puts or deletes.
    pub(super) fn changed_keys(&self) -> Vec<DocKey> {
        let changed = self.docs.iter().filter(|(_, pending)| pending.change != DocEffect::Check);
        changed.map(|(key, _)| key.clone()).collect()
    }

    /// Returns the bytes of documents as this turn sees them; unchanged ones take one read.
    pub(super) async fn fetch_all(
        &self,
        tree: &Workspace,
        keys: &[DocKey],
    ) -> Result<BTreeMap<DocKey, Bytes>, StoreError> {
        let mut found = BTreeMap::new();
        let mut committed = Vec::new();
        for key in keys {
            match self.docs.get(key).map(|pending| &pending.change) {
                Some(DocEffect::Put(bytes)) => drop(found.insert(key.clone(), bytes.clone())),
                Some(DocEffect::Delete) => {}
                Some(DocEffect::Check) | None => committed.push(key.clone()),
            }
        }
        if !committed.is_empty() {
            let docs = tree.store.read(&tree.owner, &committed).await?;
            found.extend(committed.into_iter().zip(docs).filter_map(|(key, doc)| Some((key, doc.value?))));
        }
        Ok(found)
    }

    /// Returns documents in the order of `keys`: up to `bytes` in all, but at least one.
    pub(super) async fn fetch_within(
        &self,
        tree: &Workspace,
        keys: &[DocKey],
        bytes: usize,
    ) -> Result<Vec<(DocKey, Option<Bytes>)>, StoreError> {
        let mut steps = steps::Steps::with_budget(bytes);
        let mut found = Vec::new();
        while found.len() < keys.len() && (steps.bytes_left > 0 || found.is_empty()) {
            let step = &keys[found.len()..keys.len().min(found.len() + steps.count)];
            let mut docs = self.fetch_all(tree, step).await?;
            steps.note_step(step.len(), docs.values().map(Bytes::len).sum());
            found.extend(step.iter().map(|key| (key.clone(), docs.remove(key))));
        }
        Ok(found)
    }

    /// Changes a document that was read at `version` (as [`Overlay::fetch`] returned it).
    pub(super) fn put(&mut self, key: String, version: u64, bytes: Bytes) {
        self.set_change(key, version, DocEffect::Put(bytes));
    }

    /// Deletes a document that was read at `version`.
    pub(super) fn delete(&mut self, key: String, version: u64) {
        self.set_change(key, version, DocEffect::Delete);
    }

    /// Makes the commit check that this document is unchanged.
    pub(super) fn check(&mut self, key: String, version: u64) {
        self.docs.entry(key).or_insert(PendingDoc { base: version, change: DocEffect::Check });
    }

    fn set_change(&mut self, key: String, version: u64, change: DocEffect) {
        // A second change of a document is still based on the committed version of the first.
        let base = self.docs.get(&key).map_or(version, |pending| pending.base);
        self.docs.insert(key, PendingDoc { base, change });
    }

    /// Returns the generation that a collection gets in this turn, whose root document is `old` at `version`: one that
    /// it never had, and the same however often it is replaced.
    pub(super) fn new_generation(&mut self, key: &str, version: u64, old: Option<&Root>) -> u64 {
        let next = old.map_or(version, |old| old.generation.max(version)) + 1;
        *self.made.entry(key.to_owned()).or_insert(next)
    }

    /// Drops a generation of a collection that became unreachable: documents that this turn made are forgotten, and
    /// committed ones are left to the sweep.
    pub(super) fn drop_generation(&mut self, collection: &Collection, root: &Root) {
        if let CollectionShape::Leaf { .. } = root.shape {
            return;
        }
        let entries = collection.entries_prefix(root.generation);
        if self.made.get(&collection.root_key()) != Some(&root.generation) {
            self.put(keys::garbage(&entries), 0, Bytes::new());
            return;
        }
        let below = layout::prefixes_below(&entries);
        self.docs.retain(|key, _| !below.iter().any(|prefix| key.starts_with(prefix)));
    }

    pub(super) fn into_writes(self) -> Vec<DocWrite> {
        let write = |(key, pending): (String, PendingDoc)| DocWrite {
            key,
            expect: Expect::Version(pending.base),
            change: pending.change,
        };
        self.docs.into_iter().map(write).collect()
    }
}
