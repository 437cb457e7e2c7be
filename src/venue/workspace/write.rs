//! Changes of the tree: write, delete, append, copy.

use super::descent::{Descent, ValueSlot};
use super::overlay::Overlay;
use super::{Workspace, WorkspaceError};
use crate::domain::decode;
use crate::domain::lattice::Path;
use crate::domain::lattice::layout::{CHUNK, Collection, CollectionShape, Root, is_large, version_base};
use crate::domain::lattice::value::{self, ChangeError, index_of, type_name};
use crate::store::decode;
use crate::view::lattice::{ValueAppendedView, ValueCopiedView, ValueDeletedView, ValueWrittenView};
use crate::view::to_json;
use bytes::Bytes;
use serde_json::{Map, Value};

/// One change, which can be made again on a newer version.
#[derive(Debug, Clone, PartialEq)]
pub enum WriteOp {
    /// Writes a value.
    Write {
        /// Path of the value.
        path: Path,
        /// The new value.
        value: Value,
        /// The version that the document must have; 0 = absent.
        expect: Option<u64>,
    },
    /// Deletes the value at a path, if there is one.
    Delete {
        /// Path of the value.
        path: Path,
    },
    /// Appends to an array.
    Append {
        /// Path of the array.
        path: Path,
        /// The value to append.
        value: Value,
    },
    /// Writes the value of another path.
    Copy {
        /// Path of the source.
        from: Path,
        /// Path of the copy.
        to: Path,
    },
}

impl WriteOp {
    /// Returns the path that is changed.
    pub const fn target(&self) -> &Path {
        match self {
            Self::Write { path, .. }
            | Self::Delete { path }
            | Self::Append { path, .. }
            | Self::Copy { to: path, .. } => path,
        }
    }
}

/// The document that holds the value of a change.
struct WriteTarget {
    slot: ValueSlot,
    /// Path of the value inside the document.
    inner: Vec<String>,
    /// The value as a collection of its own; `None` for a chunk.
    parts: Option<Collection>,
}

/// Encodes a document of the tree. It must not be deeper than an input may be, however many levels were put below one
/// another.
fn encode_document(path: &Path, value: &Value) -> Result<Bytes, WorkspaceError> {
    check_depth(path, value).map(|()| encode(value))
}

fn check_depth(path: &Path, value: &Value) -> Result<(), WorkspaceError> {
    decode::check(value).map_err(|wrong| WorkspaceError::Refused(format!("`{path}` would be {}", wrong.fact.reason)))
}

fn encode<T: serde::Serialize>(value: &T) -> Bytes {
    Bytes::from(serde_json::to_vec(value).expect("JSON values serialise"))
}

impl Workspace {
    pub(super) async fn perform(&self, overlay: &mut Overlay, op: &WriteOp) -> Result<Value, WorkspaceError> {
        match op {
            WriteOp::Write { path, value, expect } => {
                let value = value::normalise(value.clone());
                let (version, existed) = self.write(overlay, path, value, *expect).await?;
                Ok(to_json(&ValueWrittenView { written: true, version, existed }))
            }
            WriteOp::Delete { path } => {
                let deleted = self.delete(overlay, path).await?;
                Ok(to_json(&ValueDeletedView { deleted }))
            }
            WriteOp::Append { path, value } => {
                let index = self.append(overlay, path, value::normalise(value.clone())).await?;
                Ok(to_json(&ValueAppendedView { appended: true, index, new_size: index + 1 }))
            }
            WriteOp::Copy { from, to } => match self.get_in(overlay, from).await? {
                None => Ok(to_json(&ValueCopiedView::without_source())),
                Some(read) => {
                    let (version, existed) = self.write(overlay, to, read.value, None).await?;
                    Ok(to_json(&ValueCopiedView::from(ValueWrittenView { written: true, version, existed })))
                }
            },
        }
    }

    async fn write(
        &self,
        overlay: &mut Overlay,
        path: &Path,
        new: Value,
        expect: Option<u64>,
    ) -> Result<(u64, bool), WorkspaceError> {
        let mut at = self.descend(overlay, path, "written").await?;
        if at.rest.is_empty() {
            return replace_collection(overlay, path, &at, new, expect);
        }
        let WriteTarget { slot, inner, parts } = self.find_target(overlay, &mut at).await?;
        check_expect(path, expect, slot.shown_version(), slot.value.is_some())?;
        let (new, existed) = match (inner.is_empty(), slot.value) {
            (true, old) => (new, old.is_some()),
            (false, old) => {
                let mut doc = old.unwrap_or_else(|| Value::Object(Map::new()));
                let existed = value::set(&mut doc, &inner, new)?;
                (doc, existed)
            }
        };
        // A caller who names the version of the whole keeps it in one document.
        let parts = parts.filter(|_| expect.is_none() && !inner.is_empty());
        let version = put_entry(overlay, path, slot.key, slot.version, parts, new)?;
        Ok((version, existed))
    }

    async fn delete(&self, overlay: &mut Overlay, path: &Path) -> Result<bool, WorkspaceError> {
        let mut at = self.descend(overlay, path, "deleted").await?;
        let Some(root) = &at.root else { return Ok(false) };
        if at.rest.is_empty() {
            at.check_above(overlay);
            overlay.delete(at.collection.root_key(), at.version);
            overlay.drop_generation(&at.collection, root);
            return Ok(true);
        }
        if let CollectionShape::Leaf { .. } = root.shape {
            return Ok(false);
        }
        if let (CollectionShape::Array { len }, Some(index)) = (&root.shape, at.rest.first())
            && index_of(index).is_none_or(|i| i as u64 >= *len)
        {
            return Ok(false);
        }
        let WriteTarget { slot, inner, .. } = self.find_target(overlay, &mut at).await?;
        let Some(mut doc) = slot.value else { return Ok(false) };
        if inner.is_empty() {
            overlay.delete(slot.key, slot.version);
            return Ok(true);
        }
        let removed = value::remove(&mut doc, &inner);
        if removed {
            overlay.put(slot.key, slot.version, encode_document(path, &doc)?);
        }
        Ok(removed)
    }

    async fn append(&self, overlay: &mut Overlay, path: &Path, item: Value) -> Result<u64, WorkspaceError> {
        let mut at = self.descend(overlay, path, "written").await?;
        if !at.rest.is_empty() {
            let WriteTarget { slot, inner, parts } = self.find_target(overlay, &mut at).await?;
            let mut doc = slot
                .value
                .unwrap_or_else(|| if inner.is_empty() { Value::Array(vec![]) } else { Value::Object(Map::new()) });
            let index = value::append(&mut doc, &inner, item)?;
            put_entry(overlay, path, slot.key, slot.version, parts, doc)?;
            return Ok(index as u64);
        }
        let (generation, len) = match at.root {
            None => (overlay.new_generation(&at.collection.root_key(), at.version, None), 0),
            Some(Root { generation, shape: CollectionShape::Array { len } }) => (generation, len),
            Some(Root { shape: CollectionShape::Map, .. }) => {
                return Err(ChangeError::NotAnArray { found: "map" }.into());
            }
            Some(Root { shape: CollectionShape::Leaf { ref value }, .. }) => {
                return Err(ChangeError::NotAnArray { found: type_name(value) }.into());
            }
        };
        at.check_above(overlay);
        let collection = &at.collection;
        let key = collection.chunk_key(generation, len);
        let (chunk_version, bytes) = overlay.fetch(self, &key).await?;
        let mut chunk: Vec<Value> = bytes.map(|b| decode(&key, &b)).transpose()?.unwrap_or_default();
        chunk.push(item);
        overlay.put(key, chunk_version, encode_document(path, &Value::Array(chunk))?);
        put_root(overlay, collection, at.version, &Root { generation, shape: CollectionShape::Array { len: len + 1 } });
        Ok(len)
    }

    /// Returns the document that holds the rest of a path. Makes the collection a map if it isn't one. The element of
    /// an array lies inside its chunk.
    async fn find_target(&self, overlay: &mut Overlay, at: &mut Descent<'_>) -> Result<WriteTarget, WorkspaceError> {
        let (collection, rest) = (&at.collection, at.rest);
        let (first, inner) = rest.split_first().ok_or_else(|| ChangeError::TooShort { path: collection.root_key() })?;
        if let Some(Root { generation, shape: CollectionShape::Array { len } }) = at.root {
            let found = self.find_chunk(overlay, collection, generation, len, first).await?;
            let (slot, index) = found.ok_or_else(|| {
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                ChangeError::OutOfRange { index: first.clone(), len }
            })?;
            at.check(overlay);
            let inner = std::iter::once(index.to_string()).chain(inner.iter().cloned()).collect();
            return Ok(WriteTarget { slot, inner, parts: None });
        }
        let inner = inner.to_vec();
        if let (Some(Root { generation, shape: CollectionShape::Map }), Some(slot)) = (&at.root, at.entry.take()) {
            at.check(overlay);
            return Ok(WriteTarget { slot, inner, parts: Some(collection.branch(*generation, first)) });
        }
        let generation = overlay.new_generation(&collection.root_key(), at.version, at.root.as_ref());
        put_root(overlay, collection, at.version, &Root { generation, shape: CollectionShape::Map });
        let key = collection.entry_key(generation, first);
        let (version, bytes) = overlay.fetch(self, &key).await?;
        let value = bytes.map(|b| decode(&key, &b)).transpose()?;
        Ok(WriteTarget {
            slot: ValueSlot { key, version, value },
            inner,
            parts: Some(collection.branch(generation, first)),
        })
    }
}

/// Replaces the value at a path that is a collection.
fn replace_collection(
    overlay: &mut Overlay,
    path: &Path,
    at: &Descent<'_>,
    new: Value,
    expect: Option<u64>,
) -> Result<(u64, bool), WorkspaceError> {
    let (collection, version, root) = (&at.collection, at.version, at.root.as_ref());
    // A change of a part leaves the root's version as it is.
    if root.is_some_and(|root| root.shape.is_in_parts()) && expect.is_some_and(|expected| expected > 0) {
        return Err(WorkspaceError::Refused(format!(
            "`{path}` {} a collection whose parts have versions of their own; write its parts (`{path}/…`), each with \
             `expect`, or all of it without",
            if collection.is_branch() { "has grown into" } else { "is" }
        )));
    }
    check_expect(path, expect, version, root.is_some())?;
    check_depth(path, &new)?;
    if let Some(old) = root {
        overlay.drop_generation(collection, old);
    }
    at.check_above(overlay);
    if collection.is_branch() {
        overlay.put(collection.root_key(), version, encode(&new));
    } else {
        let generation = overlay.new_generation(&collection.root_key(), version, root);
        let shape = write_collection(overlay, collection, generation, new);
        put_root(overlay, collection, version, &Root { generation, shape });
    }
    Ok((version + 1, root.is_some()))
}

/// Puts the document of an entry; a large one in `parts`, if it may be. Returns the version, as callers see it, of the
/// document that then holds it.
fn put_entry(
    overlay: &mut Overlay,
    path: &Path,
    key: String,
    version: u64,
    parts: Option<Collection>,
    value: Value,
) -> Result<u64, WorkspaceError> {
    let whole = encode_document(path, &value)?;
    let Some(parts) = parts.filter(|_| is_large(&value, whole.len())) else {
        let shown = version_base(&key) + version + 1;
        overlay.put(key, version, whole);
        return Ok(shown);
    };
    let generation = overlay.new_generation(&key, version, None);
    let shape = write_collection(overlay, &parts, generation, value);
    put_root(overlay, &parts, version, &Root { generation, shape });
    Ok(version_base(&parts.entries_prefix(generation)) + 1)
}

fn put_root(overlay: &mut Overlay, collection: &Collection, version: u64, root: &Root) {
    overlay.put(collection.root_key(), version, Bytes::from(collection.encode(root)));
}

fn check_expect(path: &Path, expect: Option<u64>, version: u64, exists: bool) -> Result<(), WorkspaceError> {
    let Some(expected) = expect else { return Ok(()) };
    let actual = if exists { version } else { 0 };
    if expected == actual {
        return Ok(());
    }
    Err(WorkspaceError::VersionConflict { path: path.to_string(), expected, actual })
}

/// Puts the documents of a collection's new generation.
fn write_collection(overlay: &mut Overlay, collection: &Collection, generation: u64, value: Value) -> CollectionShape {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                overlay.put(collection.entry_key(generation, &name), 0, encode(&value));
            }
            CollectionShape::Map
        }
        Value::Array(items) => {
            let len = items.len() as u64;
            for (number, chunk) in items.chunks(usize::try_from(CHUNK).unwrap_or(64)).enumerate() {
                overlay.put(collection.chunk_key(generation, number as u64 * CHUNK), 0, encode(&chunk));
            }
            CollectionShape::Array { len }
        }
        value => CollectionShape::Leaf { value },
    }
}
