//! Alternatives in Gemini's subset: one schema where possible, or else `anyOf` alone, or else JSON text.

use super::gemini::json_text;
use super::limits::UNION_MAX;
use super::notes;
use super::renames::{JsonKind, Renames};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// A schema of Gemini's subset, with the way back for its values.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct GeminiSchema {
    /// The schema to send.
    pub schema: Map<String, Value>,
    /// How values of the projected schema differ from values of ours.
    pub renames: Renames,
}

impl GeminiSchema {
    /// Makes a schema of one type.
    pub fn with_type(name: &str) -> Self {
        let mut schema = Map::new();
        schema.insert("type".to_owned(), json!(name));
        Self { schema, renames: Renames::default() }
    }

    /// Puts a text before its description. Vertex takes no description beside `anyOf`, so the text goes to the first
    /// alternative.
    pub fn prefix(&mut self, text: &str) {
        match self.schema.get_mut("anyOf").and_then(|list| list.get_mut(0)).and_then(Value::as_object_mut) {
            Some(first) => notes::prepend(first, text),
            None => notes::prepend(&mut self.schema, text),
        }
    }

    /// Returns the number of its alternatives; 1 for a schema without any.
    pub fn alternatives(&self) -> usize {
        self.schema.get("anyOf").and_then(Value::as_array).map_or(1, Vec::len)
    }

    fn set_nullable(&mut self) {
        let place = match self.schema.get_mut("anyOf").and_then(|list| list.get_mut(0)).and_then(Value::as_object_mut) {
            Some(first) => first,
            None => &mut self.schema,
        };
        place.insert("nullable".to_owned(), json!(true));
    }

    fn kind(&self) -> &str {
        self.schema.get("type").and_then(Value::as_str).unwrap_or_default()
    }
}

/// Joins all alternatives in one schema. `whole` is the given schema.
pub(super) fn union(given: Vec<GeminiSchema>, is_nullable: bool, described: &str, whole: &Value) -> GeminiSchema {
    let mut is_nullable = is_nullable;
    let as_text = || json_text(&BTreeSet::from(JsonKind::ANY), described, Some(whole));
    let mut alternatives: Vec<GeminiSchema> = Vec::new();
    for mut written in given.into_iter().flat_map(flatten_alternatives) {
        is_nullable |= written.schema.remove("nullable").is_some();
        if !alternatives.contains(&written) {
            alternatives.push(written);
        }
        // Each is compared with all others.
        if alternatives.len() > UNION_MAX {
            return as_text();
        }
    }
    let Some(mut alternatives) = join_texts(alternatives) else { return as_text() };
    let mut written = match alternatives.len() {
        0 if is_nullable => {
            // Only `null` fits; the schema is a text that no caller needs to give.
            let mut written = GeminiSchema::with_type("string");
            notes::add(&mut written.schema, "Only null");
            written
        }
        0 => return as_text(),
        1 => alternatives.remove(0),
        _ => {
            let Some(renames) = common_renames(&alternatives) else { return as_text() };
            let schemas: Vec<Value> = alternatives.into_iter().map(|written| Value::Object(written.schema)).collect();
            let mut schema = Map::new();
            schema.insert("anyOf".to_owned(), Value::Array(schemas));
            GeminiSchema { schema, renames }
        }
    };
    written.prefix(described);
    if is_nullable {
        written.set_nullable();
    }
    written
}

/// Flattens alternatives inside alternatives to one list.
fn flatten_alternatives(mut written: GeminiSchema) -> Vec<GeminiSchema> {
    match written.schema.remove("anyOf") {
        Some(Value::Array(list)) => {
            let schemas = list.into_iter().filter_map(|schema| match schema {
                Value::Object(schema) => Some(schema),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
            });
            let renames = &written.renames;
            schemas.map(|schema| GeminiSchema { schema, renames: renames.clone() }).collect()
        }
        Some(_) | None => vec![written],
    }
}

/// Joins several texts to one; `None` if the meaning of a value would be unclear.
fn join_texts(alternatives: Vec<GeminiSchema>) -> Option<Vec<GeminiSchema>> {
    let (texts, mut others): (Vec<GeminiSchema>, Vec<GeminiSchema>) =
        alternatives.into_iter().partition(|written| written.kind() == "string");
    if texts.len() < 2 {
        others.splice(0..0, texts);
        return Some(others);
    }
    let kinds: BTreeSet<JsonKind> = texts.iter().flat_map(|written| written.renames.text.clone()).collect();
    let are_choices = texts.iter().all(|written| written.schema.contains_key("enum"));
    let has_plain = texts.iter().any(|written| written.renames.text.is_empty());
    if has_plain && !kinds.is_empty() {
        return None;
    }
    let mut joined = GeminiSchema::with_type("string");
    let mut choices: Vec<Value> = Vec::new();
    for written in &texts {
        let said = notes::description_or_title(&written.schema);
        let choice = written.schema.get("enum").and_then(Value::as_array);
        choices.extend(choice.into_iter().flatten().cloned());
        match choice {
            Some(values) if !are_choices => {
                notes::add(&mut joined.schema, &format!("{said} One of {}", notes::short_json(&json!(values))));
            }
            Some(values) if !said.is_empty() => {
                notes::add(&mut joined.schema, &format!("{}: {said}", notes::short_json(&json!(values))));
            }
            Some(_) => {}
            None => notes::add(&mut joined.schema, said),
        }
    }
    if are_choices {
        let mut unique: Vec<Value> = Vec::new();
        for choice in choices {
            if !unique.contains(&choice) {
                unique.push(choice);
            }
        }
        joined.schema.insert("enum".to_owned(), Value::Array(unique));
    }
    joined.renames.text = kinds;
    others.insert(0, joined);
    Some(others)
}

/// Returns the common way back of a value; `None` if it depends on the alternative.
fn common_renames(alternatives: &[GeminiSchema]) -> Option<Renames> {
    let mut common = Renames::default();
    for (at, written) in alternatives.iter().enumerate() {
        for other in alternatives.iter().take(at) {
            if written.kind() == other.kind() && !have_same_renames(written, other) {
                return None;
            }
        }
        common.keys.extend(written.renames.keys.clone());
        common.properties.extend(written.renames.properties.clone());
        common.text.extend(written.renames.text.iter().copied());
        common.more = common.more.or_else(|| written.renames.more.clone());
        common.items = common.items.or_else(|| written.renames.items.clone());
    }
    Some(common)
}

/// Whether both alternatives map each common place back in the same way.
fn have_same_renames(a: &GeminiSchema, b: &GeminiSchema) -> bool {
    let properties = |written: &GeminiSchema| {
        let found = written.schema.get("properties").and_then(Value::as_object);
        found.map(|map| map.keys().cloned().collect::<BTreeSet<_>>()).unwrap_or_default()
    };
    let (ours, theirs) = (properties(a), properties(b));
    let nothing = Renames::default();
    let of = |written: &GeminiSchema, name: &String| written.renames.properties.get(name).unwrap_or(&nothing).clone();
    a.renames.items == b.renames.items
        && a.renames.more == b.renames.more
        && ours.intersection(&theirs).all(|name| of(a, name) == of(b, name))
}
