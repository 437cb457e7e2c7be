//! Changes: write, delete, append, copy.

use super::overlay::Overlay;
use super::{Workspace, WorkspaceError};
use crate::domain::decode;
use crate::domain::lattice::Path;
use crate::domain::lattice::layout::{CHUNK, Collection, Root, Shape};
use crate::domain::lattice::value::{self, ChangeError, index_of, type_name};
use crate::store::{decode, keys};
use bytes::Bytes;
use serde_json::{Map, Value, json};

/// One change, as it is repeated on a newer version.
#[derive(Debug, Clone, PartialEq)]
pub enum WriteOp {
    /// Write a value.
    Write {
        /// Where.
        path: Path,
        /// What.
        value: Value,
        /// The version that the document must have; 0 = absent.
        expect: Option<u64>,
    },
    /// Delete what is there, if anything.
    Delete {
        /// Where.
        path: Path,
    },
    /// Append to an array.
    Append {
        /// Where.
        path: Path,
        /// What.
        value: Value,
    },
    /// Write the value of another path.
    Copy {
        /// From where.
        from: Path,
        /// To where.
        to: Path,
    },
}

impl WriteOp {
    /// The path that is changed.
    pub const fn target(&self) -> &Path {
        match self {
            Self::Write { path, .. }
            | Self::Delete { path }
            | Self::Append { path, .. }
            | Self::Copy { to: path, .. } => path,
        }
    }
}

/// A document as a change sees it.
struct Slot {
    key: String,
    version: u64,
    value: Option<Value>,
}

/// A document of the tree as it is stored: no deeper than what may come in, however many levels were
/// put below one another.
fn document(path: &Path, value: &Value) -> Result<Bytes, WorkspaceError> {
    decode::check(value)
        .map_err(|wrong| WorkspaceError::Refused(format!("`{path}` would be {}", wrong.fact.reason)))?;
    Ok(encode(value))
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
                Ok(json!({"written": true, "version": version, "existed": existed}))
            }
            WriteOp::Delete { path } => Ok(json!({"deleted": self.delete(overlay, path).await?})),
            WriteOp::Append { path, value } => {
                let index = self.append(overlay, path, value::normalise(value.clone())).await?;
                Ok(json!({"appended": true, "index": index, "newSize": index + 1}))
            }
            WriteOp::Copy { from, to } => match self.get_in(overlay, from).await? {
                None => Ok(json!({"copied": false, "exists": false})),
                Some((_, value)) => {
                    let (version, existed) = self.write(overlay, to, value, None).await?;
                    Ok(json!({"copied": true, "version": version, "existed": existed}))
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
        let (collection, rest) = self.collection(path, "written")?;
        if rest.is_empty() {
            let (version, root) = self.root(overlay, &collection).await?;
            check_expect(path, expect, version, root.is_some())?;
            document(path, &new)?;
            replace_collection(overlay, &collection, version, root.as_ref(), new);
            return Ok((version + 1, root.is_some()));
        }
        let (slot, inner) = self.slot(overlay, &collection, rest).await?;
        check_expect(path, expect, slot.version, slot.value.is_some())?;
        let (new, existed) = match (inner.is_empty(), slot.value) {
            (true, old) => (new, old.is_some()),
            (false, old) => {
                let mut doc = old.unwrap_or_else(|| Value::Object(Map::new()));
                let existed = value::set(&mut doc, &inner, new)?;
                (doc, existed)
            }
        };
        overlay.put(slot.key, slot.version, document(path, &new)?);
        Ok((slot.version + 1, existed))
    }

    async fn delete(&self, overlay: &mut Overlay, path: &Path) -> Result<bool, WorkspaceError> {
        let (collection, rest) = self.collection(path, "deleted")?;
        let (version, root) = self.root(overlay, &collection).await?;
        let Some(root) = root else { return Ok(false) };
        if rest.is_empty() {
            overlay.delete(collection.root(), version);
            mark_garbage(overlay, &collection, &root);
            return Ok(true);
        }
        if let Shape::Leaf { .. } = root.shape {
            return Ok(false);
        }
        if let (Shape::Array { len }, Some(index)) = (&root.shape, rest.first())
            && index_of(index).is_none_or(|i| i as u64 >= *len)
        {
            return Ok(false);
        }
        let (slot, inner) = self.slot(overlay, &collection, rest).await?;
        let Some(mut doc) = slot.value else { return Ok(false) };
        if inner.is_empty() {
            overlay.delete(slot.key, slot.version);
            return Ok(true);
        }
        let removed = value::remove(&mut doc, &inner);
        if removed {
            overlay.put(slot.key, slot.version, document(path, &doc)?);
        }
        Ok(removed)
    }

    async fn append(&self, overlay: &mut Overlay, path: &Path, item: Value) -> Result<u64, WorkspaceError> {
        let (collection, rest) = self.collection(path, "written")?;
        if !rest.is_empty() {
            let (slot, inner) = self.slot(overlay, &collection, rest).await?;
            let mut doc = slot
                .value
                .unwrap_or_else(|| if inner.is_empty() { Value::Array(vec![]) } else { Value::Object(Map::new()) });
            let index = value::append(&mut doc, &inner, item)?;
            overlay.put(slot.key, slot.version, document(path, &doc)?);
            return Ok(index as u64);
        }
        let (version, root) = self.root(overlay, &collection).await?;
        let (generation, len) = match root {
            None => (version + 1, 0),
            Some(Root { generation, shape: Shape::Array { len } }) => (generation, len),
            Some(Root { shape: Shape::Map, .. }) => return Err(ChangeError::NotAnArray { found: "map" }.into()),
            Some(Root { shape: Shape::Leaf { value }, .. }) => {
                return Err(ChangeError::NotAnArray { found: type_name(&value) }.into());
            }
        };
        let key = collection.chunk(generation, len);
        let (chunk_version, bytes) = overlay.fetch(self, &key).await?;
        let mut chunk: Vec<Value> = bytes.map(|b| decode(&key, &b)).transpose()?.unwrap_or_default();
        chunk.push(item);
        overlay.put(key, chunk_version, document(path, &Value::Array(chunk))?);
        overlay.put(collection.root(), version, encode(&Root { generation, shape: Shape::Array { len: len + 1 } }));
        Ok(len)
    }

    /// The document that holds `rest`, and the segments inside it. Makes the collection a map
    /// when it isn't one yet. An array element lies inside its chunk.
    async fn slot(
        &self,
        overlay: &mut Overlay,
        collection: &Collection,
        rest: &[String],
    ) -> Result<(Slot, Vec<String>), WorkspaceError> {
        let (first, inner) = rest.split_first().ok_or_else(|| ChangeError::TooShort { path: collection.root() })?;
        let (version, root) = self.root(overlay, collection).await?;
        let mut inner = inner.to_vec();
        let key = match root {
            Some(Root { generation, shape: Shape::Map }) => {
                overlay.check(collection.root(), version);
                collection.entry(generation, first)
            }
            Some(Root { generation, shape: Shape::Array { len } }) => {
                let index = index_of(first).map(|i| i as u64).filter(|i| *i < len).ok_or_else(|| {
                    let len = usize::try_from(len).unwrap_or(usize::MAX);
                    ChangeError::OutOfRange { index: first.clone(), len }
                })?;
                overlay.check(collection.root(), version);
                inner.insert(0, (index % CHUNK).to_string());
                collection.chunk(generation, index)
            }
            Some(Root { shape: Shape::Leaf { .. }, .. }) | None => {
                let generation = version + 1;
                overlay.put(collection.root(), version, encode(&Root { generation, shape: Shape::Map }));
                collection.entry(generation, first)
            }
        };
        let (version, bytes) = overlay.fetch(self, &key).await?;
        let value = bytes.map(|b| decode(&key, &b)).transpose()?;
        Ok((Slot { key, version, value }, inner))
    }
}

fn check_expect(path: &Path, expect: Option<u64>, version: u64, exists: bool) -> Result<(), WorkspaceError> {
    let Some(expected) = expect else { return Ok(()) };
    let actual = if exists { version } else { 0 };
    if expected == actual {
        return Ok(());
    }
    Err(WorkspaceError::VersionConflict { path: path.to_string(), expected, actual })
}

/// Marks the entries of a generation that nobody can reach any more, for the janitor.
fn mark_garbage(overlay: &mut Overlay, collection: &Collection, root: &Root) {
    match root.shape {
        Shape::Map | Shape::Array { .. } => {
            let key = keys::garbage(&collection.entries(root.generation));
            overlay.put(key, 0, Bytes::new());
        }
        Shape::Leaf { .. } => {}
    }
}

fn replace_collection(overlay: &mut Overlay, collection: &Collection, version: u64, old: Option<&Root>, new: Value) {
    if let Some(old) = old {
        mark_garbage(overlay, collection, old);
    }
    let generation = version + 1;
    let shape = match new {
        Value::Object(map) => {
            for (name, value) in map {
                overlay.put(collection.entry(generation, &name), 0, encode(&value));
            }
            Shape::Map
        }
        Value::Array(items) => {
            let len = items.len() as u64;
            for (number, chunk) in items.chunks(usize::try_from(CHUNK).unwrap_or(64)).enumerate() {
                overlay.put(collection.chunk(generation, number as u64 * CHUNK), 0, encode(&chunk));
            }
            Shape::Array { len }
        }
        value => Shape::Leaf { value },
    };
    overlay.put(collection.root(), version, encode(&Root { generation, shape }));
}
