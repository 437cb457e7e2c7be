//! Projects a schema to the subset of `OpenAPI` 3.0 that Gemini and Vertex read as the message `Schema`.
//!
//! Each schema has one type with `nullable` beside it; `anyOf` stands alone (Vertex); choices are texts; maps have
//! properties, lists have `items`, and a declaration is at most [`LEVELS_MAX`] maps and lists deep. Everything else
//! becomes a note in the description, or JSON text.

use super::error::{ProjectionError, ProjectionFault};
use super::keys::{PropertyNames, string_items};
use super::limits::JOINED_MAX;
use super::notes;
use super::plain::parse_count;
use super::projected::ProjectedSchema;
use super::renames::{JsonKind, Renames};
use super::source::{FlatSchema, SchemaSource, choices, size};
use super::union::{GeminiSchema, union};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Most levels of maps and lists: "exceeds the maximum allowed nesting depth" (Portkey-AI/gateway #1616, gemini-cli
/// #5923). Google names no number.
pub(super) const LEVELS_MAX: usize = 4;
/// Most levels of schemas, with alternatives.
const NESTING_MAX: usize = 24;
/// Most alternatives of one value.
const ALTERNATIVES_MAX: usize = 24;
/// Bytes of lists of alternatives whose copy costs as much as joining one alternative.
const COPY_BYTES: usize = 512;
/// Keywords of every type that the description states.
const STATED_KEYWORDS: [&str; 9] = [
    "default",
    "examples",
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedProperties",
];

/// Writes the arguments schema of a tool.
pub(super) fn project(
    source: SchemaSource<'_>,
    names: &PropertyNames,
    flat: &FlatSchema,
) -> Result<ProjectedSchema, ProjectionError> {
    let mut writer = GeminiWriter { source, names, joined: 0 };
    let mut written = writer.write_map(&flat.fields, "#", Depth { levels: 1, nesting: 1 })?;
    let described = notes::description_or_title(&flat.fields).to_owned();
    notes::prepend(&mut written.schema, &described);
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.append(&mut written.schema);
    schema.entry("properties").or_insert_with(|| json!({}));
    Ok(ProjectedSchema { schema: Value::Object(schema), renames: written.renames })
}

/// How deep a schema is nested.
#[derive(Clone, Copy)]
struct Depth {
    /// Number of maps and lists around it.
    levels: usize,
    /// Number of schemas around it.
    nesting: usize,
}

struct GeminiWriter<'s> {
    source: SchemaSource<'s>,
    names: &'s PropertyNames,
    /// Alternatives joined so far, each as often as it was joined.
    joined: usize,
}

impl GeminiWriter<'_> {
    /// Counts alternatives that are joined with others, and copies that cost as much. Lists of alternatives about one
    /// value multiply.
    fn count_joined(&mut self, count: usize, place: &str) -> Result<(), ProjectionError> {
        self.joined += count;
        if self.joined > JOINED_MAX {
            return Err(ProjectionFault::ManyAlternatives.into_error(place));
        }
        Ok(())
    }

    fn write(&mut self, node: &Value, place: &str, depth: Depth) -> Result<GeminiSchema, ProjectionError> {
        if depth.nesting > NESTING_MAX || self.source.is_spent() {
            let described = node.as_object().map(notes::description_or_title).unwrap_or_default();
            return Ok(json_text(&BTreeSet::from(JsonKind::ANY), described, Some(node)));
        }
        let flat = self.source.flatten(node, place)?;
        self.write_flat(flat, place, depth)
    }

    fn write_flat(&mut self, mut flat: FlatSchema, place: &str, depth: Depth) -> Result<GeminiSchema, ProjectionError> {
        if flat.groups.is_empty() {
            return self.write_kinds(&flat, place, depth);
        }
        let group = flat.groups.remove(0);
        let described = notes::description_or_title(&flat.fields).to_owned();
        for key in ["description", "title"] {
            flat.fields.remove(key);
        }
        if group.len() > ALTERNATIVES_MAX || depth.nesting > NESTING_MAX {
            let whole = json!({"anyOf": group});
            return Ok(json_text(&BTreeSet::from(JsonKind::ANY), &described, Some(&whole)));
        }
        let bytes = size(&Value::Object(flat.fields.clone()));
        // Each alternative gets a copy of the lists that are left.
        let copied = flat.groups.iter().flatten().map(size).sum::<usize>() / COPY_BYTES;
        let mut alternatives = Vec::new();
        let mut is_nullable = false;
        for branch in &group {
            self.source.charge(place, bytes)?;
            self.count_joined(copied, place)?;
            let mut alternative = self.source.flatten(branch, place)?;
            let mut base = flat.clone();
            base.groups.append(&mut alternative.groups);
            // The description of the alternative comes first; the common one is put before it at the end.
            alternative.merge(FlatSchema { groups: base.groups, ..base });
            if alternative.is_never {
                continue;
            }
            if alternative.groups.is_empty() && alternative.kinds() == BTreeSet::from([JsonKind::Null]) {
                is_nullable = true;
                continue;
            }
            let inner = Depth { nesting: depth.nesting + 1, ..depth };
            let written = self.write_flat(alternative, place, inner)?;
            self.count_joined(written.alternatives(), place)?;
            alternatives.push(written);
        }
        let whole = json!({"anyOf": group});
        Ok(union(alternatives, is_nullable, &described, &whole))
    }

    /// Writes a schema without alternatives, one type after the other.
    fn write_kinds(&mut self, flat: &FlatSchema, place: &str, depth: Depth) -> Result<GeminiSchema, ProjectionError> {
        let mut kinds = flat.kinds();
        let described = notes::description_or_title(&flat.fields);
        if kinds.is_empty() || flat.is_never {
            let mut written = json_text(&BTreeSet::from(JsonKind::ANY), described, None);
            add_keyword_note(&mut written.schema, &flat.fields, &STATED_KEYWORDS);
            return Ok(written);
        }
        if let Some(values) = choices(&flat.fields) {
            let mut written = write_choices(&values, &kinds);
            notes::prepend(&mut written.schema, described);
            add_keyword_note(&mut written.schema, &flat.fields, &STATED_KEYWORDS);
            return Ok(written);
        }
        let is_nullable = kinds.remove(&JsonKind::Null);
        if kinds.contains(&JsonKind::Number) {
            kinds.remove(&JsonKind::Integer);
        }
        let mut alternatives = Vec::new();
        for kind in kinds {
            let mut written = match kind {
                JsonKind::Object => self.write_inner_map(&flat.fields, place, depth)?,
                JsonKind::Array => self.write_array(&flat.fields, place, depth)?,
                JsonKind::String => write_string(&flat.fields),
                JsonKind::Integer | JsonKind::Number => write_number(kind, &flat.fields),
                JsonKind::Null | JsonKind::Boolean => GeminiSchema::with_type("boolean"),
            };
            add_keyword_note(&mut written.schema, &flat.fields, &STATED_KEYWORDS);
            alternatives.push(written);
        }
        Ok(union(alternatives, is_nullable, described, &Value::Object(flat.fields.clone())))
    }

    fn write_inner_map(
        &mut self,
        fields: &Map<String, Value>,
        place: &str,
        depth: Depth,
    ) -> Result<GeminiSchema, ProjectionError> {
        let properties = fields.get("properties").and_then(Value::as_object);
        let text = || json_text(&[JsonKind::Object].into(), "", Some(&Value::Object(fields.clone())));
        let is_empty = properties.is_none_or(Map::is_empty) && !fields.contains_key("required");
        if is_empty || depth.levels >= LEVELS_MAX {
            return Ok(text());
        }
        let mut written = self.write_map(fields, place, one_level_deeper(depth))?;
        if !written.schema.contains_key("properties") {
            return Ok(text());
        }
        written.schema.insert("type".to_owned(), json!("object"));
        Ok(written)
    }

    /// Writes `properties` and the keywords of maps, without the type.
    fn write_map(
        &mut self,
        fields: &Map<String, Value>,
        place: &str,
        depth: Depth,
    ) -> Result<GeminiSchema, ProjectionError> {
        let names = self.names;
        let mut written = GeminiSchema::default();
        let mut properties = Map::new();
        let given = fields.get("properties").and_then(Value::as_object);
        for (ours, schema) in given.into_iter().flatten().filter(|(_, schema)| **schema != Value::Bool(false)) {
            let place = format!("{place}/properties/{ours}");
            let inner = self.write(schema, &place, Depth { nesting: depth.nesting + 1, ..depth })?;
            add_property(&mut properties, &mut written.renames, ours, names.sent_name(ours), inner);
        }
        let required: BTreeSet<String> = fields
            .get("required")
            .and_then(Value::as_array)
            .map(|list| string_items(list).collect())
            .unwrap_or_default();
        for ours in &required {
            if !properties.contains_key(names.sent_name(ours)) {
                let any = json_text(&BTreeSet::from(JsonKind::ANY), "", None);
                add_property(&mut properties, &mut written.renames, ours, names.sent_name(ours), any);
            }
        }
        let further = FurtherFields::new(fields).description(!properties.is_empty());
        if let Some(text) = &further {
            properties.insert(names.more.clone(), json!({"type": "string", "description": text}));
            written.renames.more = Some(names.more.clone());
        }
        let required: Vec<&str> = required.iter().map(|ours| names.sent_name(ours)).collect();
        if !properties.is_empty() {
            written.schema.insert("properties".to_owned(), Value::Object(properties));
        }
        if !required.is_empty() {
            written.schema.insert("required".to_owned(), json!(required));
        }
        if further.is_none() {
            write_counts(fields, &mut written.schema, &["minProperties", "maxProperties"]);
        }
        add_keyword_note(&mut written.schema, fields, &["propertyNames"]);
        Ok(written)
    }

    fn write_array(
        &mut self,
        fields: &Map<String, Value>,
        place: &str,
        depth: Depth,
    ) -> Result<GeminiSchema, ProjectionError> {
        if depth.levels >= LEVELS_MAX {
            return Ok(json_text(&[JsonKind::Array].into(), "", Some(&Value::Object(fields.clone()))));
        }
        let mut inner = one_level_deeper(depth);
        inner.nesting += 1;
        let tuple = match (fields.get("prefixItems"), fields.get("items")) {
            (Some(Value::Array(tuple)), _) | (_, Some(Value::Array(tuple))) if !tuple.is_empty() => Some(tuple),
            (_, _) => None,
        };
        let rest = match fields.get("items") {
            Some(Value::Array(_)) => fields.get("additionalItems"),
            items => items,
        };
        let mut written = GeminiSchema::with_type("array");
        let items = match (tuple, rest) {
            (None, rest) => rest.filter(|rest| rest.is_object()).cloned().unwrap_or_else(|| json!({})),
            (Some(tuple), rest) => {
                let order = format!("In this order: {}", notes::short_json(&json!(tuple)));
                notes::add(&mut written.schema, &order);
                let rest = match rest {
                    Some(Value::Bool(false)) => None,
                    rest => Some(rest.cloned().unwrap_or_else(|| json!({}))),
                };
                json!({"anyOf": tuple.iter().cloned().chain(rest).collect::<Vec<_>>()})
            }
        };
        let items = self.write(&items, &format!("{place}/items"), inner)?;
        written.schema.insert("items".to_owned(), Value::Object(items.schema));
        written.renames.items = (!items.renames.is_empty()).then(|| Box::new(items.renames));
        write_counts(fields, &mut written.schema, &["minItems", "maxItems"]);
        match (tuple, rest) {
            (None, Some(Value::Bool(false))) => drop(written.schema.insert("maxItems".to_owned(), json!(0))),
            (Some(tuple), Some(Value::Bool(false))) => {
                written.schema.entry("maxItems").or_insert_with(|| json!(tuple.len()));
            }
            (_, _) => {}
        }
        add_keyword_note(&mut written.schema, fields, &["uniqueItems", "contains", "minContains", "maxContains"]);
        Ok(written)
    }
}

const fn one_level_deeper(depth: Depth) -> Depth {
    Depth { levels: depth.levels + 1, nesting: depth.nesting }
}

fn add_keyword_note(schema: &mut Map<String, Value>, fields: &Map<String, Value>, keys: &[&str]) {
    if let Some(note) = notes::keywords_note(fields, keys) {
        notes::add(schema, &note);
    }
}

fn add_property(
    properties: &mut Map<String, Value>,
    renames: &mut Renames,
    ours: &str,
    sent: &str,
    mut inner: GeminiSchema,
) {
    if ours != sent {
        inner.prefix(&format!("`{}`", notes::shorten(ours)));
        renames.keys.insert(sent.to_owned(), ours.to_owned());
    }
    if !inner.renames.is_empty() {
        renames.properties.insert(sent.to_owned(), inner.renames);
    }
    properties.insert(sent.to_owned(), Value::Object(inner.schema));
}

/// Fields that a map may have beside its named ones. JSON Schema allows them everywhere; they are offered where the
/// author mentions them, or names no field at all.
enum FurtherFields {
    /// No further fields are offered.
    None,
    /// Fields with any value.
    Any,
    /// Fields by one schema, or by one for each pattern of names.
    Typed(Value),
}

impl FurtherFields {
    fn new(fields: &Map<String, Value>) -> Self {
        let patterns = fields.get("patternProperties").filter(|map| **map != json!({}));
        match (fields.get("additionalProperties"), patterns) {
            (_, Some(patterns)) => Self::Typed(patterns.clone()),
            (Some(schema), None) if *schema == json!({}) || *schema == Value::Bool(true) => Self::Any,
            (Some(schema @ Value::Object(_)), None) => Self::Typed(schema.clone()),
            (Some(_), None) => Self::None,
            (None, None) if fields.contains_key("properties") || fields.contains_key("required") => Self::None,
            (None, None) => Self::Any,
        }
    }

    /// Describes the JSON text that holds all further fields; `None` if there is no such text.
    fn description(&self, has_named: bool) -> Option<String> {
        let which = if has_named { "all further fields" } else { "all fields" };
        match self {
            Self::None => None,
            Self::Any => Some(format!("JSON text of a map with {which}")),
            Self::Typed(schema) => {
                Some(format!("JSON text of a map with {which}, each by {}", notes::short_json(schema)))
            }
        }
    }
}

/// Writes a value as JSON text.
pub(super) fn json_text(kinds: &BTreeSet<JsonKind>, described: &str, shape: Option<&Value>) -> GeminiSchema {
    let mut written = GeminiSchema::with_type("string");
    notes::add(&mut written.schema, described);
    let what = match kinds.iter().collect::<Vec<_>>().as_slice() {
        [JsonKind::Object] => "JSON text of a map",
        [JsonKind::Array] => "JSON text of a list",
        _ => "JSON text of the value: a string stands in quotes",
    };
    let shape = shape.and_then(Value::as_object).cloned().map(|mut shape| {
        shape.retain(|key, _| !["description", "title", "$defs", "definitions"].contains(&key.as_str()));
        shape
    });
    let says_more = |shape: &Map<String, Value>| {
        shape.keys().any(|key| key != "type") || shape.get("type").is_some_and(Value::is_array)
    };
    let shape =
        shape.filter(says_more).map(|shape| format!(", by the schema {}", notes::short_json(&Value::Object(shape))));
    notes::add(&mut written.schema, &format!("{what}{}", shape.unwrap_or_default()));
    written.renames.text.clone_from(kinds);
    written
}

fn write_counts(fields: &Map<String, Value>, schema: &mut Map<String, Value>, keys: &[&str]) {
    for key in keys {
        if let Some(count) = fields.get(*key).and_then(parse_count) {
            schema.insert((*key).to_owned(), json!(count));
        }
    }
}

fn write_string(fields: &Map<String, Value>) -> GeminiSchema {
    let mut written = GeminiSchema::with_type("string");
    let schema = &mut written.schema;
    let text = |key: &str| fields.get(key).and_then(Value::as_str);
    if text("format") == Some("date-time") {
        schema.insert("format".to_owned(), json!("date-time"));
    } else {
        add_keyword_note(schema, fields, &["format"]);
    }
    match text("pattern") {
        // Gemini's patterns are patterns of RE2.
        Some(pattern) if !pattern.contains("(?") => drop(schema.insert("pattern".to_owned(), json!(pattern))),
        Some(_) | None => add_keyword_note(schema, fields, &["pattern"]),
    }
    write_counts(fields, schema, &["minLength", "maxLength"]);
    written
}

fn write_number(kind: JsonKind, fields: &Map<String, Value>) -> GeminiSchema {
    let mut written = GeminiSchema::with_type(kind.name());
    for key in ["minimum", "maximum"] {
        if let Some(limit @ Value::Number(_)) = fields.get(key) {
            written.schema.insert(key.to_owned(), limit.clone());
        }
    }
    add_keyword_note(&mut written.schema, fields, &["exclusiveMinimum", "exclusiveMaximum", "multipleOf"]);
    written
}

/// Writes values to choose from as texts; other values than texts become JSON text.
fn write_choices(values: &[Value], kinds: &BTreeSet<JsonKind>) -> GeminiSchema {
    let is_nullable = values.contains(&Value::Null) && kinds.contains(&JsonKind::Null);
    let fitting = values.iter().filter(|value| !value.is_null() && kinds.iter().any(|kind| kind.fits(value)));
    let fitting: Vec<&Value> = fitting.collect();
    let mut written = if !fitting.is_empty() && fitting.iter().all(|value| value.is_boolean()) {
        let mut written = GeminiSchema::with_type("boolean");
        if let [only] = fitting.as_slice() {
            notes::add(&mut written.schema, &format!("Only {only}"));
        }
        written
    } else {
        let mut texts: Vec<String> = Vec::new();
        let mut written = GeminiSchema::with_type("string");
        for value in fitting {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if !value.is_string() {
                written.renames.text.extend(JsonKind::ANY.into_iter().filter(|kind| kind.fits(value)));
            }
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        if texts.is_empty() || texts.iter().any(String::is_empty) {
            notes::add(&mut written.schema, &format!("One of {}", notes::short_json(&json!(values))));
        } else {
            written.schema.insert("enum".to_owned(), json!(texts));
        }
        written
    };
    if is_nullable {
        written.schema.insert("nullable".to_owned(), json!(true));
    }
    written
}
