//! Answers about assets: their metadata, their content, and pins.

use crate::domain::asset::AssetRecord;
use crate::domain::ids::AssetId;
use crate::domain::time::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Keys that an asset always has, whatever its metadata say.
const VENUE_KEYS: [&str; 5] = ["hash", "path", "contentType", "size", "created"];

/// A page of an owner's assets, by hash.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AssetPage {
    /// Assets of the page.
    pub items: Vec<AssetItemView>,
    /// Assets in the whole list; of a filtered one, those among the first ten thousand.
    pub total: usize,
    /// Assets before the page.
    pub offset: usize,
    /// Most assets of a page.
    pub limit: usize,
    /// `offset` of the next page; null after the last.
    pub next: Option<usize>,
}

/// An asset in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum AssetItemView {
    /// Hash of the asset alone.
    Hash(AssetId),
    /// All that is known about the asset.
    Asset(AssetView),
}

/// What is known about an asset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssetView {
    /// SHA-256 of the content, in hexadecimal digits.
    pub hash: AssetId,
    /// Path in the lattice, `a/<hash>`.
    pub path: String,
    /// Name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Media type of the content.
    pub content_type: String,
    /// Description that a context shows where the content can't be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Bytes of the content.
    pub size: usize,
    /// When it was first stored, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub created: Millis,
    /// Other keys that its maker gave, such as `type`.
    #[serde(flatten)]
    pub metadata: Map<String, Value>,
}

impl AssetView {
    /// Makes the answer of a record. Keys of the venue win over those of the metadata.
    pub fn new(id: &AssetId, record: &AssetRecord) -> Self {
        let is_set = |key: &str| match key {
            "name" => record.name.is_some(),
            "description" => record.description.is_some(),
            other => VENUE_KEYS.contains(&other),
        };
        let metadata = record.metadata.iter().flatten().filter(|(key, _)| !is_set(key.as_str()));
        Self {
            hash: id.clone(),
            path: format!("a/{id}"),
            name: record.name.clone(),
            content_type: record.content_type.clone(),
            description: record.description.clone(),
            size: record.size,
            created: record.created,
            metadata: metadata.map(|(key, value)| (key.clone(), value.clone())).collect(),
        }
    }
}

/// An asset that was stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AssetStoredView {
    /// Metadata of the asset.
    #[serde(flatten)]
    pub asset: AssetView,
    /// The same as `hash`.
    pub id: AssetId,
    /// Whether the venue keeps it: always true.
    pub stored: bool,
    /// Whether the asset existed before.
    pub existed: bool,
}

/// An asset that was looked up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AssetFoundView {
    /// Metadata of the asset; absent where there is no such asset.
    #[serde(flatten)]
    pub asset: Option<AssetView>,
    /// Whether there is such an asset.
    pub exists: bool,
}

/// Content of an asset. The default is the answer where there is no such asset.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssetContentView {
    /// Whether there is such an asset.
    pub exists: bool,
    /// SHA-256 of the content, in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<AssetId>,
    /// Media type of the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Bytes of the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// The content is left out, because it is larger than asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<bool>,
    /// Content that is UTF-8 text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Content in Base64: it is no text, or was asked for so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_base64: Option<String>,
    /// Reason why the content is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Value of a pin, at `o/<name>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PinView {
    /// Path of the asset, `a/<hash>`.
    pub asset: String,
    /// Path that was pinned.
    pub from: String,
    /// Path of the operation whose description was pinned; absent for other values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
}

/// A value that was pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PinnedView {
    /// Path of the pin, `o/<name>`.
    pub path: String,
    /// SHA-256 of the value, in hexadecimal digits.
    pub hash: AssetId,
    /// Path of the asset, `a/<hash>`.
    pub asset: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::to_json;
    use serde_json::json;

    fn record(metadata: &Value) -> AssetRecord {
        AssetRecord {
            name: Some("n".to_owned()),
            content_type: "text/plain".to_owned(),
            description: None,
            size: 2,
            created: Millis(5),
            metadata: metadata.as_object().cloned(),
        }
    }

    #[test]
    fn keys_of_the_venue_win_over_metadata() {
        let id = AssetId::of_content(b"hi");
        let (hash, path) = (id.as_str(), format!("a/{id}"));
        let asset = AssetView::new(&id, &record(&json!({"type": "invoice", "hash": 1, "name": 2, "description": 3})));
        let expected = json!({
            "hash": hash, "path": path, "name": "n", "contentType": "text/plain", "size": 2, "created": 5,
            "type": "invoice", "description": 3,
        });
        assert_eq!(to_json(&asset), expected);
        let asset = AssetView::new(&id, &record(&json!({"id": 1, "type": "invoice"})));
        let stored = AssetStoredView { asset: asset.clone(), id: id.clone(), stored: true, existed: false };
        let expected = json!({
            "hash": hash, "path": path, "name": "n", "contentType": "text/plain", "size": 2, "created": 5, "id": hash,
            "type": "invoice", "stored": true, "existed": false,
        });
        assert_eq!(to_json(&stored), expected);
        assert_eq!(to_json(&AssetFoundView { asset: None, exists: false }), json!({"exists": false}));
        let found: AssetFoundView =
            crate::domain::decode::into_type(to_json(&AssetFoundView { asset: Some(asset.clone()), exists: true }))
                .unwrap();
        assert_eq!(found, AssetFoundView { asset: Some(asset), exists: true });
    }
}
