//! Reads of one value, and of a whole collection.

use super::descent::parse_entry;
use super::overlay::Overlay;
use super::{Workspace, WorkspaceError};
use crate::domain::ids::decode_token;
use crate::domain::lattice::Path;
use crate::domain::lattice::layout::{Collection, CollectionShape, EntryDocument, Root, base_key};
use crate::domain::lattice::value;
use crate::domain::limits::{READ_DOCUMENTS, READ_WHOLE_BYTES};
use crate::domain::origin::{ValueState, content_hash};
use crate::store::{DocKey, decode};
use bytes::Bytes;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A value as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeValue {
    /// Version of the document that holds the value; `None` for a value in parts, which have versions of their own, and
    /// for a whole namespace.
    pub version: Option<u64>,
    /// Value at the path; null where there is none.
    pub value: Value,
}

impl TreeValue {
    /// Returns what tells this value from a later one: its version, or else its hash.
    pub fn state(&self) -> ValueState {
        let hash = self.version.is_none().then(|| content_hash(&self.value));
        ValueState { version: self.version, hash }
    }
}

impl Workspace {
    /// Returns the value at `path`, if there is one.
    pub async fn get(&self, path: &Path) -> Result<Option<Value>, WorkspaceError> {
        Ok(self.read(path).await?.map(|read| read.value))
    }

    /// Returns the value at `path` with the version of its document, if there is one.
    pub async fn read(&self, path: &Path) -> Result<Option<TreeValue>, WorkspaceError> {
        let state = self.state.lock().await;
        self.get_in(&state.overlay, path).await
    }

    /// Returns the version of the document that holds `path`; `None` if nothing is there, and for a value in parts, which
    /// have versions of their own.
    pub async fn version(&self, path: &Path) -> Result<Option<u64>, WorkspaceError> {
        let state = self.state.lock().await;
        let at = self.descend(&state.overlay, path, "read").await?;
        Ok(match (at.rest.first(), &at.root, &at.entry) {
            (None, Some(root), _) => (!root.shape.is_in_parts()).then_some(at.version),
            (Some(_), _, Some(entry)) => entry.value.is_some().then_some(entry.shown_version()),
            (Some(index), &Some(Root { generation, shape: CollectionShape::Array { len } }), None) => {
                let chunk = self.find_chunk(&state.overlay, &at.collection, generation, len, index).await?;
                chunk.filter(|(slot, _)| slot.value.is_some()).map(|(slot, _)| slot.shown_version())
            }
            (_, None, _) | (Some(_), Some(_), None) => None,
        })
    }

    pub(super) async fn get_in(&self, overlay: &Overlay, path: &Path) -> Result<Option<TreeValue>, WorkspaceError> {
        if path.segments().is_empty() {
            let all = self.whole_namespace(overlay, path).await?;
            return Ok(all.map(|value| TreeValue { version: None, value }));
        }
        let at = self.descend(overlay, path, "read").await?;
        let Some(root) = at.root else { return Ok(None) };
        let Some((first, inner)) = at.rest.split_first() else {
            let version = (!root.shape.is_in_parts()).then_some(at.version);
            let value = self.read_whole(overlay, &at.collection, root).await?;
            return Ok(Some(TreeValue { version, value }));
        };
        let versioned = |version: u64, value: Value| TreeValue { version: Some(version), value };
        match root.shape {
            CollectionShape::Leaf { value } => {
                Ok(value::get(&value, at.rest).map(|found| versioned(at.version, found.clone())))
            }
            CollectionShape::Map => {
                let Some(slot) = at.entry else { return Ok(None) };
                let version = slot.shown_version();
                let Some(value) = slot.value else { return Ok(None) };
                Ok(value::take(value, inner).map(|found| versioned(version, found)))
            }
            CollectionShape::Array { len } => {
                let found = self.find_chunk(overlay, &at.collection, root.generation, len, first).await?;
                let Some((slot, index)) = found else { return Ok(None) };
                let version = slot.shown_version();
                let Some(Value::Array(mut chunk)) = slot.value else { return Ok(None) };
                let index = usize::try_from(index).unwrap_or(usize::MAX);
                if index >= chunk.len() {
                    return Ok(None);
                }
                Ok(value::take(chunk.swap_remove(index), inner).map(|found| versioned(version, found)))
            }
        }
    }

    pub(super) async fn read_whole(
        &self,
        overlay: &Overlay,
        collection: &Collection,
        root: Root,
    ) -> Result<Value, WorkspaceError> {
        let mut left = READ_WHOLE_BYTES;
        self.read_whole_within(overlay, collection, root, &mut left).await
    }

    /// Reads a whole collection, and subtracts its bytes from `left`, which several reads share.
    pub(super) async fn read_whole_within(
        &self,
        overlay: &Overlay,
        collection: &Collection,
        root: Root,
        left: &mut usize,
    ) -> Result<Value, WorkspaceError> {
        let prefix = collection.entries_prefix(root.generation);
        match root.shape {
            CollectionShape::Leaf { value } => Ok(value),
            CollectionShape::Map => {
                let mut map = Map::new();
                for (key, bytes) in self.read_all_below(overlay, &prefix, left).await? {
                    let name = decode_token(&key[prefix.len()..]).unwrap_or_default();
                    let value =
                        self.read_entry_within(overlay, collection, root.generation, &name, &bytes, left).await?;
                    map.insert(name, value);
                }
                Ok(Value::Object(map))
            }
            CollectionShape::Array { .. } => {
                let mut items = Vec::new();
                for (key, bytes) in self.read_all_below(overlay, &prefix, left).await? {
                    items.append(&mut decode(&key, &bytes)?);
                }
                Ok(Value::Array(items))
            }
        }
    }

    /// Returns the value of an entry whose document holds `bytes`.
    pub(super) async fn read_entry_within(
        &self,
        overlay: &Overlay,
        collection: &Collection,
        generation: u64,
        name: &str,
        bytes: &[u8],
        left: &mut usize,
    ) -> Result<Value, WorkspaceError> {
        match parse_entry(&collection.entry_key(generation, name), bytes)? {
            EntryDocument::Value(value) => Ok(value),
            EntryDocument::Branch(root) => {
                let branch = collection.branch(generation, name);
                Box::pin(self.read_whole_within(overlay, &branch, root, left)).await
            }
        }
    }

    async fn whole_namespace(&self, overlay: &Overlay, path: &Path) -> Result<Option<Value>, WorkspaceError> {
        let Some(base) = base_key(path.namespace(), &self.scope) else { return Ok(None) };
        let prefix = format!("{base}/");
        let mut map = Map::new();
        let mut left = READ_WHOLE_BYTES;
        for (key, bytes) in self.read_all_below(overlay, &prefix, &mut left).await? {
            let Some(name) = decode_token(&key[prefix.len()..]) else { continue };
            let root: Root = decode(&key, &bytes)?;
            let Ok(inner) = Path::from_segments(vec![path.namespace().prefix().into(), name.clone()]) else { continue };
            if let Some((collection, _)) = Collection::locate(&inner, &self.scope) {
                map.insert(name, self.read_whole_within(overlay, &collection, root, &mut left).await?);
            }
        }
        Ok(Some(Value::Object(map)))
    }

    /// Reads the documents of one whole value, if `left` is enough for them.
    async fn read_all_below(
        &self,
        overlay: &Overlay,
        prefix: &str,
        left: &mut usize,
    ) -> Result<BTreeMap<DocKey, Bytes>, WorkspaceError> {
        let found = overlay.scan_within(self, prefix, READ_DOCUMENTS + 1, *left).await?;
        let size = READ_WHOLE_BYTES >> 20;
        let found = found.ok_or_else(|| too_large(&format!("is larger than {size} MiB")))?;
        if found.len() > READ_DOCUMENTS {
            return Err(too_large(&format!("has more than {READ_DOCUMENTS} entries")));
        }
        *left = left.saturating_sub(found.values().map(Bytes::len).sum());
        Ok(found)
    }
}

fn too_large(how: &str) -> WorkspaceError {
    WorkspaceError::Refused(format!(
        "the value {how} and can't be read whole; read parts of it, or use `lattice/slice`"
    ))
}
