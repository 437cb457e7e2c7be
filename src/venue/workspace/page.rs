//! Reads of a page: names or values directly under a path, at the cost of the page.

use super::overlay::Overlay;
use super::{Workspace, WorkspaceError};
use crate::domain::ids::decode_token;
use crate::domain::lattice::Path;
use crate::domain::lattice::layout::{CHUNK, Collection, CollectionShape, Root, base_key};
use crate::domain::lattice::value;
use crate::domain::limits::{READ_BYTES, READ_DOCUMENTS, READ_WHOLE_BYTES};
use crate::store::{StoreError, decode};
use serde_json::Value;

/// A page of what is directly under a path.
#[derive(Debug, Clone, PartialEq)]
pub struct TreePage {
    /// Type of the value: `map`, `array`, `string`, …
    pub kind: &'static str,
    /// Number of all entries or elements, if it has any.
    pub count: Option<usize>,
    /// Names or indexes of the page, with values if they were requested, else with nulls.
    pub items: Vec<(String, Value)>,
}

impl Workspace {
    /// Returns a page of what is directly under `path`; `None` if nothing is there.
    pub async fn page(
        &self,
        path: &Path,
        offset: usize,
        limit: usize,
        values: bool,
    ) -> Result<Option<TreePage>, WorkspaceError> {
        let state = self.state.lock().await;
        let overlay = &state.overlay;
        if path.segments().is_empty() {
            return self.page_of_namespace(overlay, path, offset, limit, values).await;
        }
        let at = self.descend(overlay, path, "read").await?;
        if !at.rest.is_empty() {
            let found = self.get_in(overlay, path).await?.map(|read| read.value);
            return Ok(found.map(|value| page_of_value(value, offset, limit)));
        }
        let (collection, Some(Root { generation, shape })) = (at.collection, at.root) else { return Ok(None) };
        let prefix = collection.entries_prefix(generation);
        Ok(Some(match shape {
            CollectionShape::Leaf { value } => page_of_value(value, offset, limit),
            CollectionShape::Map => {
                let limit = limit.min(READ_DOCUMENTS);
                let (count, keys) = overlay.page(self, &prefix, offset, limit).await?;
                let docs = if values {
                    overlay.fetch_within(self, &keys, READ_BYTES).await?
                } else {
                    keys.into_iter().map(|key| (key, None)).collect()
                };
                let (mut items, mut left) = (Vec::with_capacity(docs.len()), READ_WHOLE_BYTES);
                for (key, bytes) in docs {
                    let name = decode_token(&key[prefix.len()..]).unwrap_or_default();
                    let value = match bytes {
                        Some(bytes) => {
                            self.read_entry_within(overlay, &collection, generation, &name, &bytes, &mut left).await?
                        }
                        None => Value::Null,
                    };
                    items.push((name, value));
                }
                TreePage { kind: "map", count: Some(count), items }
            }
            CollectionShape::Array { len } => {
                let items = if values {
                    self.page_elements(overlay, &collection, generation, offset as u64, limit as u64, len).await?
                } else {
                    Vec::new()
                };
                TreePage { kind: "array", count: usize::try_from(len).ok(), items }
            }
        }))
    }

    /// Reads the page's chunks, and no others.
    async fn page_elements(
        &self,
        overlay: &Overlay,
        collection: &Collection,
        generation: u64,
        offset: u64,
        limit: u64,
        len: u64,
    ) -> Result<Vec<(String, Value)>, StoreError> {
        let end = offset.saturating_add(limit.min(READ_DOCUMENTS as u64 * CHUNK)).min(len);
        let first = offset / CHUNK;
        let keys: Vec<_> = (first..end.div_ceil(CHUNK)).map(|n| collection.chunk_key(generation, n * CHUNK)).collect();
        let chunks = overlay.fetch_within(self, &keys, READ_BYTES).await?;
        let mut items = Vec::new();
        for (chunk, (key, bytes)) in (first..).zip(chunks) {
            let values: Vec<Value> = bytes.map(|bytes| decode(&key, &bytes)).transpose()?.unwrap_or_default();
            let indexed = (chunk * CHUNK..end).zip(values).filter(|(index, _)| *index >= offset);
            items.extend(indexed.map(|(index, value)| (index.to_string(), value)));
        }
        Ok(items)
    }

    async fn page_of_namespace(
        &self,
        overlay: &Overlay,
        path: &Path,
        offset: usize,
        limit: usize,
        values: bool,
    ) -> Result<Option<TreePage>, WorkspaceError> {
        let Some(base) = base_key(path.namespace(), &self.scope) else { return Ok(None) };
        let prefix = format!("{base}/");
        let (count, keys) = overlay.page(self, &prefix, offset, limit.min(READ_DOCUMENTS)).await?;
        let mut items = Vec::with_capacity(keys.len());
        let mut read = 0;
        for key in keys {
            if read > READ_BYTES {
                // The page ends here; the caller continues after it.
                break;
            }
            let name = decode_token(&key[prefix.len()..]).unwrap_or_default();
            let inner = Path::from_segments(vec![path.namespace().prefix().into(), name.clone()]).ok();
            let value = match inner.as_ref().and_then(|inner| Collection::locate(inner, &self.scope)) {
                Some((collection, _)) if values => {
                    let (_, bytes) = overlay.fetch(self, &key).await?;
                    let Some(bytes) = bytes else { continue };
                    let mut left = READ_WHOLE_BYTES;
                    let value = self.read_whole_within(overlay, &collection, decode(&key, &bytes)?, &mut left).await?;
                    read += bytes.len() + (READ_WHOLE_BYTES - left);
                    value
                }
                Some(_) | None => Value::Null,
            };
            items.push((name, value));
        }
        Ok(Some(TreePage { kind: "map", count: Some(count), items }))
    }
}

/// Returns a page of what is directly in `value`.
pub fn page_of_value(value: Value, offset: usize, limit: usize) -> TreePage {
    let kind = value::type_name(&value);
    match value {
        Value::Object(map) => {
            let count = Some(map.len());
            TreePage { kind, count, items: map.into_iter().skip(offset).take(limit).collect() }
        }
        Value::Array(items) => {
            let count = Some(items.len());
            let indexed = items.into_iter().enumerate().map(|(i, v)| (i.to_string(), v));
            TreePage { kind, count, items: indexed.skip(offset).take(limit).collect() }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            TreePage { kind, count: None, items: Vec::new() }
        }
    }
}
