//! The given schema: follows its references and joins its keywords about one value.

use super::error::{ProjectionError, ProjectionFault};
use super::limits::{CHAIN_MAX, SPENT_LIMIT};
use super::renames::JsonKind;
use crate::schema::cost::percent_decoded;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Most bytes that written-out references may take. In a subset without references, the rest is described instead.
const SPENT_MAX: usize = 96 * 1024;
/// Least cost of a step, in bytes.
const STEP_BYTES: usize = 16;

/// Keywords about the schema itself, not about a value.
const META: [&str; 7] = ["$schema", "$id", "$comment", "$defs", "definitions", "$ref", "allOf"];

/// A schema without `$ref` and `allOf`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct FlatSchema {
    /// Its keywords without those of alternatives.
    pub fields: Map<String, Value>,
    /// Every list of `anyOf` and `oneOf`.
    pub groups: Vec<Vec<Value>>,
    /// No value fits the schema.
    pub is_never: bool,
}

/// The whole schema, and the bytes that reading it has cost.
pub(super) struct SchemaSource<'s> {
    root: &'s Value,
    spent: usize,
}

impl<'s> SchemaSource<'s> {
    pub const fn new(root: &'s Value) -> Self {
        Self { root, spent: 0 }
    }

    /// Whether no more references are written out.
    pub const fn is_spent(&self) -> bool {
        self.spent > SPENT_MAX
    }

    /// Adds copied bytes and one step to the cost.
    pub fn charge(&mut self, place: &str, bytes: usize) -> Result<(), ProjectionError> {
        self.spent += bytes + STEP_BYTES;
        if self.spent > SPENT_LIMIT {
            return Err(ProjectionFault::TooCostly.into_error(place));
        }
        Ok(())
    }

    /// Returns the target of a reference.
    pub fn target(&self, reference: &str, place: &str) -> Result<&'s Value, ProjectionError> {
        let pointer = reference.strip_prefix('#').filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let foreign = || ProjectionFault::ForeignReference { reference: reference.to_owned() }.into_error(place);
        let missing = || ProjectionFault::MissingTarget { reference: reference.to_owned() }.into_error(place);
        let found = percent_decoded(pointer.ok_or_else(foreign)?).and_then(|pointer| self.root.pointer(&pointer));
        found.ok_or_else(missing)
    }

    /// Joins a schema with everything that it refers to.
    pub fn flatten(&mut self, node: &Value, place: &str) -> Result<FlatSchema, ProjectionError> {
        self.flatten_at(node, place, 0)
    }

    fn flatten_at(&mut self, node: &Value, place: &str, depth: usize) -> Result<FlatSchema, ProjectionError> {
        if depth > CHAIN_MAX {
            return Err(ProjectionFault::LongChain.into_error(place));
        }
        self.charge(place, 0)?;
        let Value::Object(map) = node else {
            return Ok(FlatSchema { is_never: *node == Value::Bool(false), ..FlatSchema::default() });
        };
        let mut flat = FlatSchema::default();
        for (key, value) in map {
            match (key.as_str(), value) {
                ("anyOf" | "oneOf", Value::Array(group)) if !group.is_empty() => flat.groups.push(group.clone()),
                ("anyOf" | "oneOf", _) => {}
                (key, value) if META.contains(&key) || !is_shaped(key, value) => {}
                (key, value) => drop(flat.fields.insert(key.to_owned(), value.clone())),
            }
        }
        if let Some(Value::String(reference)) = map.get("$ref") {
            let target = self.target(reference, place)?;
            self.charge(place, size(target))?;
            flat.merge(self.flatten_at(target, place, depth + 1)?);
        }
        for part in map.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            flat.merge(self.flatten_at(part, place, depth + 1)?);
        }
        Ok(flat)
    }
}

impl FlatSchema {
    /// Adds the keywords of another schema for the same value. Where both can't be joined, the looser one stays.
    pub fn merge(&mut self, other: Self) {
        self.is_never |= other.is_never;
        self.groups.extend(other.groups);
        let has_objects = |fields: &Map<String, Value>| {
            ["properties", "patternProperties", "additionalProperties"].iter().any(|key| fields.contains_key(*key))
        };
        let both = has_objects(&self.fields) && has_objects(&other.fields);
        for (key, theirs) in other.fields {
            match self.fields.remove(&key) {
                None => drop(self.fields.insert(key, theirs)),
                Some(ours) => self.merge_keyword(key, ours, theirs),
            }
        }
        // A closed part forbids the properties of the other part, so that no value would fit: the result stays open.
        if both && self.fields.get("additionalProperties") == Some(&Value::Bool(false)) {
            self.fields.remove("additionalProperties");
        }
    }

    fn merge_keyword(&mut self, key: String, ours: Value, theirs: Value) {
        let merged = match (key.as_str(), ours, theirs) {
            ("type", ours, theirs) => {
                let (a, b) = (parse_kinds(&ours), parse_kinds(&theirs));
                let common = common_kinds(&a, &b);
                if common.is_empty() && !a.is_empty() && !b.is_empty() {
                    self.is_never = true;
                }
                kinds_value(&common)
            }
            ("properties" | "patternProperties", Value::Object(mut ours), Value::Object(theirs)) => {
                for (name, theirs) in theirs {
                    let merged = match ours.get(&name) {
                        None => theirs,
                        Some(same) if *same == theirs => theirs,
                        Some(first) => json!({"allOf": [first, theirs]}),
                    };
                    ours.insert(name, merged);
                }
                Value::Object(ours)
            }
            ("required", Value::Array(mut ours), Value::Array(theirs)) => {
                for name in theirs {
                    if !ours.contains(&name) {
                        ours.push(name);
                    }
                }
                Value::Array(ours)
            }
            ("enum", Value::Array(ours), Value::Array(theirs)) => {
                let common: Vec<Value> = ours.iter().filter(|value| theirs.contains(value)).cloned().collect();
                if common.is_empty() {
                    self.is_never = true;
                    Value::Array(ours)
                } else {
                    Value::Array(common)
                }
            }
            ("additionalProperties", ours, theirs) if ours != theirs => Value::Bool(true),
            (_, ours, _) => ours,
        };
        self.fields.insert(key, merged);
    }

    /// Returns the types that a value may have; empty for any. Without `type` they follow from the other keywords.
    pub fn kinds(&self) -> BTreeSet<JsonKind> {
        kinds(&self.fields)
    }

    /// Whether a map can fit.
    pub fn takes_maps(&self) -> bool {
        let kinds = parse_kinds(self.fields.get("type").unwrap_or(&Value::Null));
        !self.is_never && (kinds.is_empty() || kinds.contains(&JsonKind::Object))
    }
}

/// Whether a keyword has a value of its shape; other values have no meaning.
fn is_shaped(key: &str, value: &Value) -> bool {
    match key {
        "properties" | "patternProperties" | "dependentSchemas" | "dependentRequired" => value.is_object(),
        "required" | "prefixItems" => value.is_array(),
        "enum" => value.as_array().is_some_and(|list| !list.is_empty()),
        "items" => value.is_object() || value.is_boolean() || value.is_array(),
        "additionalProperties" | "additionalItems" | "not" | "if" | "then" | "else" => {
            value.is_object() || value.is_boolean()
        }
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "minimum" | "maximum" => {
            value.is_number()
        }
        "pattern" | "format" | "title" | "description" => value.is_string(),
        _ => true,
    }
}

/// Keywords that apply to one type only.
const TYPED_KEYWORDS: [(&str, JsonKind); 18] = [
    ("properties", JsonKind::Object),
    ("required", JsonKind::Object),
    ("additionalProperties", JsonKind::Object),
    ("patternProperties", JsonKind::Object),
    ("propertyNames", JsonKind::Object),
    ("minProperties", JsonKind::Object),
    ("items", JsonKind::Array),
    ("prefixItems", JsonKind::Array),
    ("minItems", JsonKind::Array),
    ("maxItems", JsonKind::Array),
    ("minLength", JsonKind::String),
    ("maxLength", JsonKind::String),
    ("pattern", JsonKind::String),
    ("format", JsonKind::String),
    ("minimum", JsonKind::Number),
    ("maximum", JsonKind::Number),
    ("exclusiveMinimum", JsonKind::Number),
    ("exclusiveMaximum", JsonKind::Number),
];

/// Returns the types of a schema by its keywords.
pub(super) fn kinds(fields: &Map<String, Value>) -> BTreeSet<JsonKind> {
    let named = parse_kinds(fields.get("type").unwrap_or(&Value::Null));
    if !named.is_empty() {
        return named;
    }
    if let Some(values) = choices(fields) {
        return values.iter().filter_map(|value| JsonKind::ANY.into_iter().find(|kind| kind.fits(value))).collect();
    }
    TYPED_KEYWORDS.iter().filter(|(key, _)| fields.contains_key(*key)).map(|(_, kind)| *kind).collect()
}

/// Returns the values of `enum` or `const`.
pub(super) fn choices(fields: &Map<String, Value>) -> Option<Vec<Value>> {
    match (fields.get("const"), fields.get("enum")) {
        (Some(only), _) => Some(vec![only.clone()]),
        (None, Some(Value::Array(values))) if !values.is_empty() => Some(values.clone()),
        (None, _) => None,
    }
}

/// Reads the types of a `type`; empty for any.
pub(super) fn parse_kinds(value: &Value) -> BTreeSet<JsonKind> {
    match value {
        Value::String(name) => JsonKind::parse(name).into_iter().collect(),
        Value::Array(names) => names.iter().filter_map(|name| JsonKind::parse(name.as_str()?)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => BTreeSet::new(),
    }
}

fn common_kinds(a: &BTreeSet<JsonKind>, b: &BTreeSet<JsonKind>) -> BTreeSet<JsonKind> {
    if a.is_empty() || b.is_empty() {
        return a.union(b).copied().collect();
    }
    let has = |set: &BTreeSet<JsonKind>, kind: JsonKind| {
        set.contains(&kind) || (kind == JsonKind::Integer && set.contains(&JsonKind::Number))
    };
    a.union(b).copied().filter(|kind| has(a, *kind) && has(b, *kind)).collect()
}

/// Writes types as the value of `type`.
pub(super) fn kinds_value(kinds: &BTreeSet<JsonKind>) -> Value {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    match names.as_slice() {
        [one] => json!(one),
        several => json!(several),
    }
}

/// Returns the size of a value as JSON, in bytes.
pub(super) fn size(value: &Value) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX / 2, |text| text.len())
}
