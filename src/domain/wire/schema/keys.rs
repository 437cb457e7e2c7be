//! Makes property names that providers take.

use super::super::dialect::SchemaSubset;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Most characters of a property name (Anthropic, `OpenAI`, Vertex).
pub(super) const KEY_CHARS_MAX: usize = 64;
/// Name of the property for further entries, where a map may have any.
const MORE: &str = "more_fields";

/// The name to send for each property name of a schema. Each name is sent in the same form everywhere.
pub(super) struct PropertyNames {
    sent: BTreeMap<String, String>,
    /// Name of the property for further entries.
    pub more: String,
}

impl PropertyNames {
    /// Makes the names for all properties of a schema.
    pub fn new(schema: &Value, subset: SchemaSubset) -> Self {
        let mut ours = Vec::new();
        collect_names(schema, &mut ours);
        let mut taken: BTreeSet<String> = ours.iter().filter(|name| is_legal(name, subset)).cloned().collect();
        let mut sent = BTreeMap::new();
        for name in ours {
            if !is_legal(&name, subset) && !sent.contains_key(&name) {
                let legal = unique_key(&nearest_legal(&name, subset), &mut taken);
                sent.insert(name, legal);
            }
        }
        let more = unique_key(MORE, &mut taken);
        Self { sent, more }
    }

    /// Returns the name to send for one of ours.
    pub fn sent_name<'n>(&'n self, ours: &'n str) -> &'n str {
        self.sent.get(ours).map_or(ours, String::as_str)
    }

    /// Whether all names are sent unchanged.
    pub fn is_plain(&self) -> bool {
        self.sent.is_empty()
    }
}

/// Whether a subset takes a property name. The rule of Gemini is the narrowest one that its documentation ever had.
pub(super) fn is_legal(name: &str, subset: SchemaSubset) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_short = !name.is_empty() && name.len() <= KEY_CHARS_MAX;
    is_short
        && match subset {
            SchemaSubset::OpenAi | SchemaSubset::Anthropic => name.chars().all(|c| word(c) || c == '.' || c == '-'),
            SchemaSubset::Gemini => {
                name.chars().all(word) && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            }
        }
}

fn nearest_legal(name: &str, subset: SchemaSubset) -> String {
    let kept = |c: char| {
        let is_kept = match subset {
            SchemaSubset::OpenAi | SchemaSubset::Anthropic => c == '.' || c == '-',
            SchemaSubset::Gemini => false,
        };
        if c.is_ascii_alphanumeric() || c == '_' || is_kept { c } else { '_' }
    };
    let mut found: String = name.trim().chars().map(kept).take(KEY_CHARS_MAX).collect();
    if found.is_empty() {
        return "unnamed".to_owned();
    }
    if !is_legal(&found, subset) {
        found.insert(0, '_');
        found.truncate(KEY_CHARS_MAX);
    }
    found
}

fn unique_key(name: &str, taken: &mut BTreeSet<String>) -> String {
    let mut found = name.to_owned();
    let mut number = 2;
    while !taken.insert(found.clone()) {
        let end = format!("_{number}");
        found = format!("{}{end}", &name[..name.len().min(KEY_CHARS_MAX - end.len())]);
        number += 1;
    }
    found
}

/// Collects the names in `properties`, `required` and fixed values, at any depth.
fn collect_names(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                match (key.as_str(), inner) {
                    ("properties", Value::Object(properties)) => names.extend(properties.keys().cloned()),
                    ("required", Value::Array(required)) => names.extend(string_items(required)),
                    ("const", Value::Object(fixed)) => names.extend(fixed.keys().cloned()),
                    ("enum", Value::Array(values)) => {
                        names.extend(values.iter().filter_map(Value::as_object).flat_map(Map::keys).cloned());
                    }
                    _ => {}
                }
                collect_names(inner, names);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_names(item, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Iterates over the texts of a list.
pub(super) fn string_items(list: &[Value]) -> impl Iterator<Item = String> + '_ {
    list.iter().filter_map(Value::as_str).map(str::to_owned)
}
