//! Schemas of an OpenAPI document as JSON Schema: those of 3.0 differ in a few keywords.

use super::OpenApiError;
use crate::limits::{IMPORTED_REFERENCES, IMPORTED_SCHEMAS, PUBLISHED_SCHEMA_BYTES};
use crate::schema::compile;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Keywords of OpenAPI that mean nothing for a check of arguments.
const DROPPED: [&str; 8] =
    ["example", "examples", "xml", "externalDocs", "discriminator", "deprecated", "nullable", "contentMediaType"];

/// Keywords whose value has a schema under each name.
const NAMED: [&str; 4] = ["properties", "patternProperties", "dependentSchemas", "$defs"];

/// Keywords whose value is data.
const DATA: [&str; 4] = ["enum", "const", "default", "required"];

/// Schema that every value fits.
pub(super) static ANY_VALUE: Value = Value::Bool(true);

/// Follows references from a part of a document to what they stand for.
pub(super) fn resolve_reference<'d>(document: &'d Value, part: &'d Value) -> Result<&'d Value, OpenApiError> {
    let mut found = part;
    for _ in 0..IMPORTED_REFERENCES {
        let Some(reference) = found.get("$ref").and_then(Value::as_str) else { return Ok(found) };
        found = find_target(document, reference)?;
    }
    let reference = part["$ref"].as_str().unwrap_or_default().to_owned();
    Err(OpenApiError::MissingTarget { reference })
}

fn find_target<'d>(document: &'d Value, reference: &str) -> Result<&'d Value, OpenApiError> {
    let Some(pointer) = reference.strip_prefix('#') else {
        return Err(OpenApiError::ForeignReference { reference: reference.to_owned() });
    };
    let found = document.pointer(pointer);
    found.ok_or_else(|| OpenApiError::MissingTarget { reference: reference.to_owned() })
}

/// Reads schemas of a document, and keeps those that they refer to.
pub(super) struct SchemaReader<'d> {
    document: &'d Value,
    /// Name of each schema that is referred to, by its reference.
    names: BTreeMap<String, String>,
    definitions: Map<String, Value>,
    /// Bytes of the definitions.
    bytes: usize,
}

impl<'d> SchemaReader<'d> {
    pub(super) fn new(document: &'d Value) -> Self {
        Self { document, names: BTreeMap::new(), definitions: Map::new(), bytes: 0 }
    }

    /// Returns the document that the schemas are of.
    pub(super) const fn document(&self) -> &'d Value {
        self.document
    }

    /// Returns a schema as JSON Schema, with references to `#/$defs`.
    pub(super) fn read(&mut self, schema: &Value) -> Result<Value, OpenApiError> {
        let mut open = BTreeSet::new();
        let read = self.convert(schema, &mut open)?;
        // Each definition may refer to others, and to itself.
        while let Some(reference) = open.pop_first() {
            let name = self.names[&reference].clone();
            if self.definitions.contains_key(&name) {
                continue;
            }
            let target = find_target(self.document, &reference)?.clone();
            self.definitions.insert(name.clone(), Value::Null);
            let definition = self.convert(&target, &mut open)?;
            // Definitions may contain one another, so that all of them are much larger than the document.
            self.bytes += definition.to_string().len();
            if self.bytes > PUBLISHED_SCHEMA_BYTES {
                return Err(OpenApiError::SchemaSize);
            }
            self.definitions.insert(name, definition);
        }
        Ok(read)
    }

    /// Adds the schemas that were referred to.
    pub(super) fn with_definitions(self, mut schema: Value) -> Value {
        if let (Value::Object(fields), false) = (&mut schema, self.definitions.is_empty()) {
            fields.insert("$defs".into(), Value::Object(self.definitions));
        }
        schema
    }

    /// Converts a schema; `open` are the references whose targets are not converted yet.
    fn convert(&mut self, schema: &Value, open: &mut BTreeSet<String>) -> Result<Value, OpenApiError> {
        let Value::Object(fields) = schema else { return Ok(schema.clone()) };
        if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
            // A missing target is reported for the operation that needs it.
            find_target(self.document, reference)?;
            if self.names.len() >= IMPORTED_SCHEMAS && !self.names.contains_key(reference) {
                return Err(OpenApiError::SchemaSize);
            }
            open.insert(reference.to_owned());
            return Ok(json!({"$ref": format!("#/$defs/{}", self.name_of(reference))}));
        }
        let mut converted = Map::new();
        for (key, inner) in fields {
            if DROPPED.contains(&key.as_str()) || key.starts_with("x-") || is_foreign_pattern(key, inner) {
                continue;
            }
            let inner = match (key.as_str(), inner) {
                (key, _) if DATA.contains(&key) => inner.clone(),
                (key, Value::Object(named)) if NAMED.contains(&key) => {
                    let mut all = Map::new();
                    for (name, one) in named {
                        all.insert(name.clone(), self.convert(one, open)?);
                    }
                    Value::Object(all)
                }
                (_, Value::Object(_)) => self.convert(inner, open)?,
                (_, Value::Array(items)) => {
                    Value::Array(items.iter().map(|item| self.convert(item, open)).collect::<Result<_, _>>()?)
                }
                (_, Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => inner.clone(),
            };
            converted.insert(key.clone(), inner);
        }
        convert_bounds(&mut converted);
        if fields.get("nullable") == Some(&Value::Bool(true)) {
            allow_null(&mut converted);
        }
        Ok(Value::Object(converted))
    }

    /// Returns the name of the definition of a reference.
    fn name_of(&mut self, reference: &str) -> String {
        if let Some(name) = self.names.get(reference) {
            return name.clone();
        }
        let last = reference.rsplit('/').next().unwrap_or_default();
        let plain: String = last.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let taken: BTreeSet<&String> = self.names.values().collect();
        let numbered = (2..).map(|n: usize| format!("{plain}_{n}"));
        let name =
            std::iter::once(plain.clone()).chain(numbered).find(|name| !taken.contains(name)).unwrap_or_default();
        self.names.insert(reference.to_owned(), name.clone());
        name
    }
}

/// Whether a pattern can't be checked here, such as one that looks ahead: then the service alone checks it.
fn is_foreign_pattern(key: &str, value: &Value) -> bool {
    key == "pattern" && value.is_string() && compile(&json!({key: value})).is_err()
}

/// Writes the exclusive bounds of 3.0, which are flags, as numbers.
fn convert_bounds(fields: &mut Map<String, Value>) {
    for (flag, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        match fields.get(flag) {
            Some(Value::Bool(true)) => {
                fields.shift_remove(flag);
                if let Some(number) = fields.shift_remove(bound) {
                    fields.insert(flag.to_owned(), number);
                }
            }
            Some(Value::Bool(false)) => drop(fields.shift_remove(flag)),
            Some(_) | None => {}
        }
    }
}

/// Lets a schema take null, too.
fn allow_null(fields: &mut Map<String, Value>) {
    if let Some(Value::String(kind)) = fields.get("type") {
        let kinds = json!([kind, "null"]);
        fields.insert("type".into(), kinds);
    }
    if let Some(Value::Array(choices)) = fields.get_mut("enum")
        && !choices.contains(&Value::Null)
    {
        choices.push(Value::Null);
    }
}
