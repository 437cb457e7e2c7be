//! Merges the alternatives of a schema into one map, because the arguments of a call may have no combinators at the
//! top.

use super::error::{ProjectionError, ProjectionFault};
use super::limits::DEPTH_MAX;
use super::notes;
use super::source::{FlatSchema, SchemaSource, choices};
use serde_json::{Map, Value, json};

/// Keywords that add a condition to a map.
const CONDITIONS: [&str; 5] = ["if", "then", "else", "not", "dependentSchemas"];

/// Returns a schema without alternatives for all maps that fit: it has all their properties and requires what each
/// alternative requires; its description lists the alternatives. `None` if no map fits.
pub(super) fn widen(
    source: &mut SchemaSource<'_>,
    flat: FlatSchema,
    place: &str,
) -> Result<Option<FlatSchema>, ProjectionError> {
    widen_at(source, flat, place, 0)
}

fn widen_at(
    source: &mut SchemaSource<'_>,
    mut flat: FlatSchema,
    place: &str,
    depth: usize,
) -> Result<Option<FlatSchema>, ProjectionError> {
    if !flat.takes_maps() {
        return Ok(None);
    }
    if depth > DEPTH_MAX {
        return Err(ProjectionFault::NestedAlternatives.into_error(place));
    }
    let mut groups = std::mem::take(&mut flat.groups);
    if let Some(values) = choices(&flat.fields) {
        flat.fields.remove("enum");
        flat.fields.remove("const");
        groups.push(values.iter().map(fixed_map).collect());
    }
    add_conditions(source, &mut flat, place, depth)?;
    for group in groups {
        let mut outlines = Vec::new();
        let mut union: Option<FlatSchema> = None;
        for branch in &group {
            let branch = source.flatten(branch, place)?;
            let Some(branch) = widen_at(source, branch, place, depth + 1)? else { continue };
            source.charge(place, 0)?;
            outlines.push(notes::outline(&branch));
            union = Some(match union {
                None => branch,
                Some(union) => merge_alternatives(union, branch),
            });
        }
        let Some(union) = union else { return Ok(None) };
        add_union(&mut flat, union);
        if let Some(note) = notes::alternatives_note(&outlines) {
            notes::add(&mut flat.fields, &note);
        }
    }
    flat.fields.insert("type".to_owned(), json!("object"));
    Ok(Some(flat))
}

/// Makes a schema that only this map fits.
fn fixed_map(value: &Value) -> Value {
    let Value::Object(map) = value else { return Value::Bool(false) };
    let properties: Map<String, Value> =
        map.iter().map(|(name, value)| (name.clone(), json!({"const": value}))).collect();
    let required: Vec<&String> = map.keys().collect();
    json!({"type": "object", "properties": properties, "required": required})
}

/// Adds properties that only a condition allows as optional ones; the description states the condition.
fn add_conditions(
    source: &mut SchemaSource<'_>,
    flat: &mut FlatSchema,
    place: &str,
    depth: usize,
) -> Result<(), ProjectionError> {
    if let Some(note) = notes::keywords_note(&flat.fields, &CONDITIONS) {
        notes::add(&mut flat.fields, &note);
    }
    let mut parts = Vec::new();
    for key in CONDITIONS {
        match (key, flat.fields.remove(key)) {
            ("then" | "else", Some(part)) => parts.push(part),
            ("dependentSchemas", Some(Value::Object(map))) => parts.extend(map.into_iter().map(|(_, part)| part)),
            (_, _) => {}
        }
    }
    for part in parts {
        let part = source.flatten(&part, place)?;
        if let Some(part) = widen_at(source, part, place, depth + 1)? {
            let fields = part.fields.into_iter().filter(|(key, _)| key == "properties").collect();
            add_union(flat, FlatSchema { fields, ..FlatSchema::default() });
        }
    }
    Ok(())
}

/// Merges two alternatives into one schema that both fit.
fn merge_alternatives(mut a: FlatSchema, b: FlatSchema) -> FlatSchema {
    let mut b = b.fields;
    let mut fields = Map::new();
    for key in ["properties", "patternProperties"] {
        let (ours, theirs) = (take_map(&mut a.fields, key), take_map(&mut b, key));
        let mut all = ours.unwrap_or_default();
        for (name, theirs) in theirs.unwrap_or_default() {
            let merged = match all.get(&name) {
                None => theirs,
                Some(ours) => any_of(ours.clone(), theirs),
            };
            all.insert(name, merged);
        }
        if !all.is_empty() {
            fields.insert(key.to_owned(), Value::Object(all));
        }
    }
    let required = |fields: &Map<String, Value>| fields.get("required").and_then(Value::as_array).cloned();
    let theirs = required(&b).unwrap_or_default();
    let common: Vec<Value> =
        required(&a.fields).unwrap_or_default().into_iter().filter(|name| theirs.contains(name)).collect();
    if !common.is_empty() {
        fields.insert("required".to_owned(), Value::Array(common));
    }
    let further = |fields: &Map<String, Value>| fields.get("additionalProperties").cloned();
    match (further(&a.fields), further(&b)) {
        (Some(ours), Some(theirs)) if ours == theirs => drop(fields.insert("additionalProperties".to_owned(), ours)),
        // A closed alternative beside an open or silent one: the schema stays silent, because no author asked for more
        // fields.
        (None | Some(Value::Bool(false)), None | Some(Value::Bool(false))) => {}
        (_, _) => drop(fields.insert("additionalProperties".to_owned(), Value::Bool(true))),
    }
    FlatSchema { fields, ..FlatSchema::default() }
}

fn take_map(fields: &mut Map<String, Value>, key: &str) -> Option<Map<String, Value>> {
    match fields.remove(key) {
        Some(Value::Object(map)) => Some(map),
        Some(_) | None => None,
    }
}

fn any_of(ours: Value, theirs: Value) -> Value {
    if ours == theirs {
        return ours;
    }
    let mut list = match ours.as_object() {
        Some(map) if map.len() == 1 && map.get("anyOf").is_some_and(Value::is_array) => {
            ours["anyOf"].as_array().cloned().unwrap_or_default()
        }
        Some(_) | None => vec![ours],
    };
    if !list.contains(&theirs) {
        list.push(theirs);
    }
    json!({"anyOf": list})
}

/// Merges the union of alternatives into the common part. For a property that both have, the common part wins, unless
/// it allows any value.
fn add_union(flat: &mut FlatSchema, union: FlatSchema) {
    let mut union = union.fields;
    let theirs = take_map(&mut union, "properties").unwrap_or_default();
    let mut all = take_map(&mut flat.fields, "properties").unwrap_or_default();
    let mut is_wider = false;
    for (name, theirs) in theirs {
        let says_nothing = |schema: &Value| *schema == json!({}) || *schema == Value::Bool(true);
        if all.get(&name).is_none_or(says_nothing) {
            is_wider |= all.insert(name, theirs).is_none();
        }
    }
    if !all.is_empty() {
        flat.fields.insert("properties".to_owned(), Value::Object(all));
    }
    for key in ["description", "title", "type"] {
        union.remove(key);
    }
    flat.merge(FlatSchema { fields: union, ..FlatSchema::default() });
    if is_wider && flat.fields.get("additionalProperties") == Some(&Value::Bool(false)) {
        flat.fields.remove("additionalProperties");
    }
}
