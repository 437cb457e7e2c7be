//! Answers about values: of the lattice, of JSON that a call gives, and of schemas.

use crate::domain::decode;
use crate::domain::schema::SchemaMisfit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A value that was read. The default is the answer where there is no value.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValueView {
    /// Whether there is a value.
    pub exists: bool,
    /// The value; null where it is larger than asked for, absent where nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "decode::nullable_field")]
    pub value: Option<Value>,
    /// Version that a write may expect; absent where the value is in parts or can't be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The value is left out, because it is larger than asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<bool>,
    /// Bytes of a value that is left out, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// The same as `size`, under Covia's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_bytes: Option<usize>,
}

/// Values of several paths.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ValuesView {
    /// Each value by its path.
    #[schemars(with = "BTreeMap<String, ValueView>")]
    pub values: Map<String, Value>,
}

/// A value that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ValueWrittenView {
    /// Whether it was written: always true.
    pub written: bool,
    /// Version of the value from now on.
    pub version: u64,
    /// Whether there was a value before.
    pub existed: bool,
}

/// A value that was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ValueDeletedView {
    /// Whether there was a value.
    pub deleted: bool,
}

/// A value that was appended to an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValueAppendedView {
    /// Whether it was appended: always true.
    pub appended: bool,
    /// Index of the element, from 0.
    pub index: u64,
    /// Number of elements from now on.
    pub new_size: u64,
}

/// A value that was copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ValueCopiedView {
    /// Whether it was copied.
    pub copied: bool,
    /// False where nothing is at the source, otherwise absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exists: Option<bool>,
    /// Version of the copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Whether something was at the target before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub existed: Option<bool>,
}

impl ValueCopiedView {
    /// Makes the answer where nothing is at the source.
    pub const fn without_source() -> Self {
        Self { copied: false, exists: Some(false), version: None, existed: None }
    }
}

impl From<ValueWrittenView> for ValueCopiedView {
    fn from(written: ValueWrittenView) -> Self {
        let ValueWrittenView { written, version, existed } = written;
        Self { copied: written, exists: None, version: Some(version), existed: Some(existed) }
    }
}

/// Keys directly under a path, or the size of the array there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct KeysView {
    /// Whether there is a value.
    pub exists: bool,
    /// Type of the value.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["null", "boolean", "number", "string", "array", "map"]))]
    pub kind: String,
    /// Number of all keys or elements; absent where the value has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// Keys before the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<usize>,
    /// Paths of the keys, where one of them has a slash in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<String>>,
    /// Keys of the page; absent where the value is no map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<String>>,
}

/// A page of an array, a map or a text. The default is the answer where there is no value.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SliceView {
    /// Whether there is a value.
    pub exists: bool,
    /// Type of the value.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["string", "array", "map"]))]
    pub kind: Option<String>,
    /// Number of all elements, entries or characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// The page: a list of elements, a list of entries with `key` and `value`, or a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<Value>,
    /// Elements, entries or characters before the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<usize>,
    /// The page is shorter than asked for, because its values are large.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<bool>,
    /// `offset` of the rest; absent where a page ends as asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<usize>,
}

/// An entry of a map in a page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EntryView {
    /// Key of the entry.
    pub key: String,
    /// Value of the entry.
    pub value: Value,
}

/// Number of entries. The default is the answer where there is no value.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CountView {
    /// Whether there is a value.
    pub exists: bool,
    /// Number of entries or elements; 1 for any other value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// Groups of entries by the text of a field, where one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<BTreeMap<String, GroupView>>")]
    pub groups: Option<Map<String, Value>>,
}

/// A group of entries with the same text in a field.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct GroupView {
    /// Number of its entries.
    pub count: usize,
}

/// Result of a computation: of `lattice/inspect` a text, or texts by path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResultView {
    /// The resulting value.
    pub result: Value,
}

/// A value that was made of others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MadeValueView {
    /// The value itself.
    pub value: Value,
}

/// Whether a value fits a schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ValidationView {
    /// Whether the value fits.
    pub valid: bool,
    /// Places that don't fit, the first ones.
    pub errors: Vec<SchemaMisfit>,
    /// There are more errors than listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<bool>,
}

/// Whether a value is a JSON Schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SchemaCheckView {
    /// Whether it is a JSON Schema.
    pub valid: bool,
    /// The place that is wrong, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A schema that fits samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InferredSchemaView {
    /// The JSON Schema.
    pub schema: Value,
}
