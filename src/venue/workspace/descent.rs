//! Descent along a path from the root of its collection: an entry that has grown is a collection of its own.

use super::overlay::Overlay;
use super::{Workspace, WorkspaceError};
use crate::domain::lattice::Path;
use crate::domain::lattice::layout::{CHUNK, Collection, CollectionShape, EntryDocument, Root, version_base};
use crate::domain::lattice::value::index_of;
use crate::store::{DocKey, StoreError, corrupt, decode};
use serde_json::Value;

/// Result of a descent: the documents of a path.
pub(super) struct Descent<'p> {
    /// The last collection along the path.
    pub(super) collection: Collection,
    /// Root of that collection; `None` if it doesn't exist.
    pub(super) root: Option<Root>,
    /// The path below that collection.
    pub(super) rest: &'p [String],
    /// For a map with such a rest: the entry's document.
    pub(super) entry: Option<ValueSlot>,
    /// Version of the root document.
    pub(super) version: u64,
    /// Roots of the collections above it, with their versions.
    pub(super) above: Vec<(DocKey, u64)>,
}

/// A document that holds a value.
pub(super) struct ValueSlot {
    pub(super) key: DocKey,
    /// Version that was read; 0 if the document was never there.
    pub(super) version: u64,
    pub(super) value: Option<Value>,
}

impl ValueSlot {
    /// Returns the version as callers see it: unlike that of any earlier generation.
    pub(super) fn shown_version(&self) -> u64 {
        version_base(&self.key) + self.version
    }
}

impl Descent<'_> {
    /// Makes the commit check that the collections above are unchanged.
    pub(super) fn check_above(&self, overlay: &mut Overlay) {
        for (key, version) in &self.above {
            overlay.check(key.clone(), *version);
        }
    }

    /// Makes the commit check that all collections along the path are unchanged.
    pub(super) fn check(&self, overlay: &mut Overlay) {
        self.check_above(overlay);
        overlay.check(self.collection.root_key(), self.version);
    }
}

impl Workspace {
    /// Descends along `path` as far as there are collections.
    pub(super) async fn descend<'p>(
        &self,
        overlay: &Overlay,
        path: &'p Path,
        verb: &'static str,
    ) -> Result<Descent<'p>, WorkspaceError> {
        let (collection, rest) = self.find_collection(path, verb)?;
        let (version, root) = self.read_root(overlay, &collection).await?;
        let mut at = Descent { collection, root, rest, entry: None, version, above: Vec::new() };
        while let (Some(Root { generation, shape: CollectionShape::Map }), Some((first, inner))) =
            (&at.root, at.rest.split_first())
        {
            let key = at.collection.entry_key(*generation, first);
            let (version, bytes) = overlay.fetch(self, &key).await?;
            let value = match bytes.map(|bytes| parse_entry(&key, &bytes)).transpose()? {
                Some(EntryDocument::Branch(root)) => {
                    at.above.push((at.collection.root_key(), at.version));
                    at.collection = at.collection.branch(*generation, first);
                    (at.version, at.root, at.rest) = (version, Some(root), inner);
                    continue;
                }
                Some(EntryDocument::Value(value)) => Some(value),
                None => None,
            };
            at.entry = Some(ValueSlot { key, version, value });
            break;
        }
        Ok(at)
    }

    /// Returns the chunk that holds element `segment` of an array of `len`, and the element's index in it.
    pub(super) async fn find_chunk(
        &self,
        overlay: &Overlay,
        collection: &Collection,
        generation: u64,
        len: u64,
        segment: &str,
    ) -> Result<Option<(ValueSlot, u64)>, StoreError> {
        let Some(index) = index_of(segment).map(|index| index as u64).filter(|index| *index < len) else {
            return Ok(None);
        };
        let key = collection.chunk_key(generation, index);
        let (version, bytes) = overlay.fetch(self, &key).await?;
        let elements: Option<Vec<Value>> = bytes.map(|bytes| decode(&key, &bytes)).transpose()?;
        Ok(Some((ValueSlot { key, version, value: elements.map(Value::Array) }, index % CHUNK)))
    }
}

/// Parses the document of an entry; [`StoreError::Corrupt`] names its key.
pub(super) fn parse_entry(key: &str, bytes: &[u8]) -> Result<EntryDocument, StoreError> {
    EntryDocument::parse(bytes).map_err(|error| corrupt(key, &error))
}
