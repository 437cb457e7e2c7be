//! References to secrets in the arguments of operations.
//!
//! `{"$secret": "s/NAME"}` stands for the value; with `"prefix": "Bearer "` the text comes before the value. It counts
//! only in fields whose schema says `"x-secret": true`; in other fields it is data.

use crate::ids::secret::SecretName;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Key of a schema that marks fields in which references count.
pub const MARK: &str = "x-secret";

const KEY: &str = "$secret";
const PREFIX: &str = "prefix";

/// A place for a secret's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretReference {
    /// Name of the secret.
    pub name: SecretName,
    /// Text before the value.
    pub prefix: String,
}

/// A value that has the key of a reference and is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected `{{\"{KEY}\": \"s/NAME\"}}`, with `{PREFIX}` or not, got {found}")]
pub struct SecretReferenceError {
    /// Part of the value that is wrong.
    pub found: ReferenceFault,
}

/// Part of a value by which it is no reference to a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceFault {
    /// The value is no map.
    #[error("no map")]
    NoMap,
    /// The map has a key that no reference has.
    #[error("the key `{key}`")]
    Key {
        /// Name of the key.
        key: String,
    },
    /// The path is no text.
    #[error("no text in it")]
    NoText,
    /// The path is a text, but not that of a secret.
    #[error("another text")]
    Path,
    /// The prefix is no text.
    #[error("a prefix that is no text")]
    Prefix,
}

/// Returns the schema of a text that may also be a reference.
pub fn text_schema() -> Value {
    json!({
        MARK: true,
        "anyOf": [
            {"type": "string"},
            {
                "type": "object",
                "description": "the value of a secret, after `prefix`",
                "properties": {KEY: {"type": "string", "description": "s/NAME"}, PREFIX: {"type": "string"}},
                "required": [KEY],
                "additionalProperties": false
            }
        ]
    })
}

impl SecretReference {
    /// Whether a value has the key of a reference.
    fn has_reference_key(value: &Value) -> bool {
        value.as_object().is_some_and(|map| map.contains_key(KEY))
    }

    /// Returns the reference as a value in arguments.
    pub fn to_value(&self) -> Value {
        json!({KEY: self.name.path(), PREFIX: self.prefix})
    }

    /// Reads a value that [`find_references`] returned.
    pub fn parse(value: &Value) -> Result<Self, SecretReferenceError> {
        let fault = |found: ReferenceFault| SecretReferenceError { found };
        let map = value.as_object().ok_or_else(|| fault(ReferenceFault::NoMap))?;
        if let Some(key) = map.keys().find(|key| ![KEY, PREFIX].contains(&key.as_str())) {
            return Err(fault(ReferenceFault::Key { key: key.clone() }));
        }
        let path = map.get(KEY).and_then(Value::as_str).ok_or_else(|| fault(ReferenceFault::NoText))?;
        let name = SecretName::from_path(path).map_err(|_| fault(ReferenceFault::Path))?;
        match map.get(PREFIX) {
            None => Ok(Self { name, prefix: String::new() }),
            Some(Value::String(prefix)) => Ok(Self { name, prefix: prefix.clone() }),
            Some(_) => Err(fault(ReferenceFault::Prefix)),
        }
    }
}

/// Replaces texts `s/NAME` by references, where a schema takes a text or a reference, as [`text_schema`] does.
pub fn spell_out(schema: &Value, value: &mut Value) {
    if schema[MARK] == true && schema["anyOf"].is_array() {
        if let Some(name) = value.as_str().filter(|text| SecretName::from_path(text).is_ok()) {
            *value = json!({KEY: name});
        }
        return;
    }
    let Value::Object(map) = value else { return };
    for (key, value) in map {
        spell_out(schema["properties"].get(key).unwrap_or(&schema["additionalProperties"]), value);
    }
}

/// Returns everything in a value that looks like a reference, by its place `/key/key`.
pub fn find_references(value: &Value) -> BTreeMap<String, &Value> {
    let mut found = BTreeMap::new();
    let mut open = vec![(String::new(), value)];
    while let Some((place, value)) = open.pop() {
        match value {
            _ if SecretReference::has_reference_key(value) => drop(found.insert(place, value)),
            Value::Object(map) => open.extend(map.iter().map(|(key, inner)| (format!("{place}/{key}"), inner))),
            Value::Array(items) => {
                open.extend(items.iter().enumerate().map(|(at, inner)| (format!("{place}/{at}"), inner)));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    found
}

/// Returns the references in a value of a marked field, for replacement in place.
pub fn references_mut(value: &mut Value) -> Vec<&mut Value> {
    let mut found = Vec::new();
    collect_references(value, &mut found);
    found
}

fn collect_references<'v>(value: &'v mut Value, found: &mut Vec<&'v mut Value>) {
    if SecretReference::has_reference_key(value) {
        found.push(value);
        return;
    }
    match value {
        Value::Object(map) => map.values_mut().for_each(|inner| collect_references(inner, found)),
        Value::Array(items) => items.iter_mut().for_each(|item| collect_references(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_count_wherever_they_stand_in_a_marked_field() {
        let one = || json!({KEY: "s/A"});
        let mut body = json!([
            {"deep": [{"key": {KEY: "s/A", PREFIX: "p"}}], "text": "{\"$secret\":\"s/A\"}"}, "s/A", [1, one()]
        ]);
        let found: Vec<Value> = references_mut(&mut body).into_iter().map(|value| value.clone()).collect();
        assert_eq!(found, [json!({KEY: "s/A", PREFIX: "p"}), one()]);
    }

    #[test]
    fn a_bare_secret_name_is_a_reference_in_marked_fields() {
        let schema = json!({"properties": {
            "headers": {"additionalProperties": text_schema()}, "body": {MARK: true}, "url": {"type": "string"}
        }});
        let mut value = json!({
            "headers": {"a": "s/TOKEN", "b": "Bearer s/TOKEN", "c": {KEY: "s/B"}, "d": "s/", "e": "s/../w"},
            "body": {"a": "s/TOKEN"}, "url": "s/TOKEN"
        });
        let mut expected = value.clone();
        expected["headers"]["a"] = json!({KEY: "s/TOKEN"});
        spell_out(&schema, &mut value);
        assert_eq!(value, expected);
    }

    #[test]
    fn a_reference_is_a_path_and_perhaps_a_prefix() {
        let parse = |value: Value| SecretReference::parse(&value).map(|found| (found.name.path(), found.prefix));
        assert_eq!(parse(json!({KEY: "s/A"})), Ok(("s/A".into(), String::new())));
        assert_eq!(parse(json!({KEY: "s/A", PREFIX: "Bearer "})), Ok(("s/A".into(), "Bearer ".into())));
        let token = SecretReference { name: SecretName::new("A").unwrap(), prefix: "Bearer ".into() };
        assert_eq!(token.to_value(), json!({KEY: "s/A", PREFIX: "Bearer "}));
        for (value, got) in [
            (json!({KEY: "A"}), "got another text"),
            (json!({KEY: "w/A"}), "got another text"),
            (json!({KEY: "s/../w"}), "got another text"),
            (json!({KEY: 1}), "got no text in it"),
            (json!({KEY: "s/A", PREFIX: 1}), "got a prefix that is no text"),
            (json!({KEY: "s/A", "suffix": ""}), "got the key `suffix`"),
            (json!("s/A"), "got no map"),
        ] {
            let error = parse(value).unwrap_err().to_string();
            assert!(error.ends_with(got), "{error}");
        }
    }
}
