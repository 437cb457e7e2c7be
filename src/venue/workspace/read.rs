//! Reads of one value, and of a whole collection.

use super::overlay::Overlay;
use super::{Workspace, WorkspaceError};
use crate::domain::ids::decode_token;
use crate::domain::lattice::Path;
use crate::domain::lattice::layout::{CHUNK, Collection, Root, Shape, base};
use crate::domain::lattice::value::{self, index_of};
use crate::domain::limits::{READ_DOCUMENTS, READ_WHOLE_BYTES};
use crate::store::{DocKey, decode};
use bytes::Bytes;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

impl Workspace {
    /// The value at `path`, when there is one.
    pub async fn get(&self, path: &Path) -> Result<Option<Value>, WorkspaceError> {
        Ok(self.read(path).await?.map(|(_, value)| value))
    }

    /// The same with the version of the document that holds it; of a whole namespace there is none, 0.
    pub async fn read(&self, path: &Path) -> Result<Option<(u64, Value)>, WorkspaceError> {
        let state = self.state.lock().await;
        self.get_in(&state.overlay, path).await
    }

    /// Version of the document that holds `path`; 0 when there is none.
    pub async fn version(&self, path: &Path) -> Result<u64, WorkspaceError> {
        let state = self.state.lock().await;
        let (collection, rest) = self.collection(path, "read")?;
        let (version, root) = self.root(&state.overlay, &collection).await?;
        let key = match (rest.first(), root) {
            (None, Some(_)) => return Ok(version),
            (Some(first), Some(Root { generation, shape: Shape::Map })) => collection.entry(generation, first),
            (Some(first), Some(Root { generation, shape: Shape::Array { .. } })) => match index_of(first) {
                Some(index) => collection.chunk(generation, index as u64),
                None => return Ok(0),
            },
            (Some(_), Some(Root { shape: Shape::Leaf { .. }, .. })) | (_, None) => return Ok(0),
        };
        let (version, bytes) = state.overlay.fetch(self, &key).await?;
        Ok(if bytes.is_some() { version } else { 0 })
    }

    pub(super) async fn get_in(&self, overlay: &Overlay, path: &Path) -> Result<Option<(u64, Value)>, WorkspaceError> {
        if path.segments().is_empty() {
            return Ok(self.whole_namespace(overlay, path).await?.map(|all| (0, all)));
        }
        let (collection, rest) = self.collection(path, "read")?;
        let (version, root) = self.root(overlay, &collection).await?;
        let Some(root) = root else { return Ok(None) };
        let Some((first, inner)) = rest.split_first() else {
            return Ok(Some((version, self.whole(overlay, &collection, root).await?)));
        };
        let of = |version: u64, value: Option<&Value>| value.map(|value| (version, value.clone()));
        match root.shape {
            Shape::Leaf { value } => Ok(of(version, value::get(&value, rest))),
            Shape::Map => {
                let key = collection.entry(root.generation, first);
                let (version, bytes) = overlay.fetch(self, &key).await?;
                let Some(bytes) = bytes else { return Ok(None) };
                Ok(of(version, value::get(&decode::<Value>(&key, &bytes)?, inner)))
            }
            Shape::Array { len } => {
                let Some(index) = index_of(first).map(|i| i as u64).filter(|i| *i < len) else { return Ok(None) };
                let key = collection.chunk(root.generation, index);
                let (version, bytes) = overlay.fetch(self, &key).await?;
                let Some(bytes) = bytes else { return Ok(None) };
                let mut chunk: Vec<Value> = decode(&key, &bytes)?;
                let at = usize::try_from(index % CHUNK).unwrap_or(0);
                if at >= chunk.len() {
                    return Ok(None);
                }
                Ok(of(version, value::get(&chunk.swap_remove(at), inner)))
            }
        }
    }

    pub(super) async fn whole(
        &self,
        overlay: &Overlay,
        collection: &Collection,
        root: Root,
    ) -> Result<Value, WorkspaceError> {
        let mut left = READ_WHOLE_BYTES;
        self.whole_within(overlay, collection, root, &mut left).await
    }

    /// The same with a number of bytes that others have had a part of.
    pub(super) async fn whole_within(
        &self,
        overlay: &Overlay,
        collection: &Collection,
        root: Root,
        left: &mut usize,
    ) -> Result<Value, WorkspaceError> {
        let prefix = collection.entries(root.generation);
        match root.shape {
            Shape::Leaf { value } => Ok(value),
            Shape::Map => {
                let mut map = Map::new();
                for (key, bytes) in self.all_below(overlay, &prefix, left).await? {
                    let name = decode_token(&key[prefix.len()..]).unwrap_or_default();
                    map.insert(name, decode(&key, &bytes)?);
                }
                Ok(Value::Object(map))
            }
            Shape::Array { .. } => {
                let mut items = Vec::new();
                for (key, bytes) in self.all_below(overlay, &prefix, left).await? {
                    items.append(&mut decode(&key, &bytes)?);
                }
                Ok(Value::Array(items))
            }
        }
    }

    async fn whole_namespace(&self, overlay: &Overlay, path: &Path) -> Result<Option<Value>, WorkspaceError> {
        let Some(base) = base(path.namespace(), &self.scope) else { return Ok(None) };
        let prefix = format!("{base}/");
        let mut map = Map::new();
        let mut left = READ_WHOLE_BYTES;
        for (key, bytes) in self.all_below(overlay, &prefix, &mut left).await? {
            let Some(name) = decode_token(&key[prefix.len()..]) else { continue };
            let root: Root = decode(&key, &bytes)?;
            let Ok(inner) = Path::from_segments(vec![path.namespace().prefix().into(), name.clone()]) else { continue };
            if let Some((collection, _)) = Collection::of(&inner, &self.scope) {
                map.insert(name, self.whole_within(overlay, &collection, root, &mut left).await?);
            }
        }
        Ok(Some(Value::Object(map)))
    }

    /// The documents of one value that is read whole, as far as there is left for them.
    async fn all_below(
        &self,
        overlay: &Overlay,
        prefix: &str,
        left: &mut usize,
    ) -> Result<BTreeMap<DocKey, Bytes>, WorkspaceError> {
        let found = overlay.scan_within(self, prefix, READ_DOCUMENTS, *left).await?;
        let found = found.ok_or_else(too_large)?;
        *left = left.saturating_sub(found.values().map(Bytes::len).sum());
        Ok(found)
    }
}

fn too_large() -> WorkspaceError {
    let size = READ_WHOLE_BYTES >> 20;
    WorkspaceError::Refused(format!(
        "the value is larger than {size} MiB and can't be read whole; read parts of it, or use `lattice/slice`"
    ))
}
