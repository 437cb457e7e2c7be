//! Projects a schema to the subset of `OpenAI`, Anthropic and compatible providers: JSON Schema 2020-12 with a plain
//! map at the top.
//!
//! Arrays have `items`; `oneOf` becomes `anyOf`; references lead to `#/$defs/NAME` and have only a description beside
//! them; a `type` stands in the alternatives and not beside them (the last three: Moonshot). Conditions are stated in
//! the description, because a condition without one of its keywords would be stricter.

use super::error::ProjectionError;
use super::keys::{PropertyNames, string_items};
use super::notes;
use super::projected::ProjectedSchema;
use super::renames::{JsonKind, Renames};
use super::source::{FlatSchema, SchemaSource, choices, kinds, kinds_value, parse_kinds, size};
use serde_json::{Map, Value, json};

/// Keywords whose value is one schema.
const SCHEMA_KEYWORDS: [&str; 3] = ["additionalProperties", "contains", "propertyNames"];
/// Keywords whose value is a count.
const COUNTS: [&str; 8] =
    ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"];
/// Keywords whose value is a number.
const NUMBERS: [&str; 4] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];
/// Keywords that the description states and the schema omits.
const STATED_KEYWORDS: [&str; 9] = [
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
    "unevaluatedProperties",
    "unevaluatedItems",
];
/// Keywords of a map beside `properties` and `required`.
const MAP_KEYWORDS: [&str; 5] =
    ["additionalProperties", "patternProperties", "propertyNames", "minProperties", "maxProperties"];

/// Writes the arguments schema of a tool.
pub(super) fn project(
    source: SchemaSource<'_>,
    names: &PropertyNames,
    flat: FlatSchema,
) -> Result<ProjectedSchema, ProjectionError> {
    let mut writer = PlainWriter { source, names, defs: Vec::new() };
    let mut fields = flat.fields;
    let mut top = Map::new();
    top.insert("type".to_owned(), json!("object"));
    let described = notes::description_or_title(&fields).to_owned();
    notes::add(&mut top, &described);
    if !fields.get("properties").is_some_and(Value::is_object) {
        fields.insert("properties".to_owned(), json!({}));
    }
    fields.retain(|key, _| ["properties", "required"].contains(&key.as_str()) || MAP_KEYWORDS.contains(&key.as_str()));
    let renames = writer.write_map(&fields, &mut top, "#", true)?;
    let defs = writer.write_defs()?;
    if !defs.is_empty() {
        top.insert("$defs".to_owned(), Value::Object(defs));
    }
    Ok(ProjectedSchema { schema: Value::Object(top), renames })
}

struct PlainWriter<'s> {
    source: SchemaSource<'s>,
    names: &'s PropertyNames,
    /// References in use, each with its name in `$defs`.
    defs: Vec<(String, String)>,
}

impl PlainWriter<'_> {
    /// Writes a schema below the top. Names are mapped back by their place, so they change only where the place is
    /// unique: not in alternatives and not in `$defs`. Both providers check only the names at the top.
    fn write(&mut self, node: &Value, place: &str, is_mapped: bool) -> Result<(Value, Renames), ProjectionError> {
        let fields = match node {
            Value::Bool(false) => return Ok((json!({"not": {}}), Renames::default())),
            Value::Object(fields) => fields,
            Value::Null | Value::Bool(true) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Ok((json!({}), Renames::default()));
            }
        };
        let mut out = Map::new();
        if let Some(Value::String(reference)) = fields.get("$ref") {
            let name = self.def_name(reference, place)?;
            out.insert("$ref".to_owned(), json!(format!("#/$defs/{name}")));
            notes::add(&mut out, notes::description_or_title(fields));
            return Ok((Value::Object(out), Renames::default()));
        }
        let is_union = ["anyOf", "oneOf"].iter().any(|key| is_list(fields, key));
        write_type(fields, &mut out, is_union);
        write_annotations(fields, &mut out, self.names.is_plain());
        write_scalars(fields, &mut out);
        let mut renames = self.write_map(fields, &mut out, place, is_mapped)?;
        renames.items = self.write_items(fields, &mut out, place, is_mapped)?.map(Box::new);
        self.write_combinators(fields, &mut out, place)?;
        if let Some(note) = notes::keywords_note(fields, &STATED_KEYWORDS) {
            notes::add(&mut out, &note);
        }
        Ok((Value::Object(out), renames))
    }

    fn write_map(
        &mut self,
        fields: &Map<String, Value>,
        out: &mut Map<String, Value>,
        place: &str,
        is_mapped: bool,
    ) -> Result<Renames, ProjectionError> {
        let names = self.names;
        let sent = |ours: &str| if is_mapped { names.sent_name(ours).to_owned() } else { ours.to_owned() };
        let mut renames = Renames::default();
        if let Some(Value::Object(properties)) = fields.get("properties") {
            let mut written = Map::new();
            for (ours, schema) in properties.iter().filter(|(_, schema)| **schema != Value::Bool(false)) {
                let (mut schema, inner) = self.write(schema, &format!("{place}/properties/{ours}"), is_mapped)?;
                let name = sent(ours);
                if !inner.is_empty() {
                    renames.properties.insert(name.clone(), inner);
                }
                if name != *ours {
                    if let Value::Object(schema) = &mut schema {
                        notes::prepend(schema, &format!("`{}`", notes::shorten(ours)));
                    }
                    renames.keys.insert(name.clone(), ours.clone());
                }
                written.insert(name, schema);
            }
            out.insert("properties".to_owned(), Value::Object(written));
        }
        if let Some(Value::Array(required)) = fields.get("required") {
            let mut all: Vec<String> = Vec::new();
            for ours in string_items(required) {
                let name = sent(&ours);
                if all.contains(&name) {
                    continue;
                }
                if name != ours && !renames.keys.contains_key(&name) {
                    let written = out.entry("properties").or_insert_with(|| json!({}));
                    written[&name] = json!({"description": format!("`{}`", notes::shorten(&ours))});
                    renames.keys.insert(name.clone(), ours);
                }
                all.push(name);
            }
            if !all.is_empty() {
                out.insert("required".to_owned(), json!(all));
            }
        }
        if let Some(Value::Object(patterns)) = fields.get("patternProperties") {
            let written = self.write_each(patterns, place, "patternProperties")?;
            out.insert("patternProperties".to_owned(), Value::Object(written));
        }
        for key in SCHEMA_KEYWORDS {
            match fields.get(key) {
                Some(Value::Bool(value)) => drop(out.insert(key.to_owned(), json!(value))),
                Some(schema @ Value::Object(_)) => {
                    let (schema, _) = self.write(schema, &format!("{place}/{key}"), false)?;
                    out.insert(key.to_owned(), schema);
                }
                Some(_) | None => {}
            }
        }
        write_counts(fields, out);
        Ok(renames)
    }

    fn write_each(
        &mut self,
        schemas: &Map<String, Value>,
        place: &str,
        key: &str,
    ) -> Result<Map<String, Value>, ProjectionError> {
        let mut written = Map::new();
        for (name, schema) in schemas {
            let (schema, _) = self.write(schema, &format!("{place}/{key}/{name}"), false)?;
            written.insert(name.clone(), schema);
        }
        Ok(written)
    }

    fn write_list(&mut self, schemas: &[Value], place: &str, key: &str) -> Result<Value, ProjectionError> {
        let mut written = Vec::new();
        for (at, schema) in schemas.iter().enumerate() {
            written.push(self.write(schema, &format!("{place}/{key}/{at}"), false)?.0);
        }
        Ok(Value::Array(written))
    }

    /// Writes `items`, which an array always has. The older form of tuples becomes `prefixItems`.
    fn write_items(
        &mut self,
        fields: &Map<String, Value>,
        out: &mut Map<String, Value>,
        place: &str,
        is_mapped: bool,
    ) -> Result<Option<Renames>, ProjectionError> {
        let tuple = match (fields.get("prefixItems"), fields.get("items")) {
            (Some(Value::Array(tuple)), _) | (_, Some(Value::Array(tuple))) => Some(tuple),
            (_, _) => None,
        };
        let rest = match fields.get("items") {
            Some(Value::Array(_)) => fields.get("additionalItems"),
            items => items,
        };
        if let Some(tuple) = tuple.filter(|tuple| !tuple.is_empty()) {
            let written = self.write_list(tuple, place, "prefixItems")?;
            out.insert("prefixItems".to_owned(), written);
        }
        let is_array = out.get("type").is_some_and(|kinds| parse_kinds(kinds).contains(&JsonKind::Array));
        if rest.is_none() && !is_array && !out.contains_key("prefixItems") {
            return Ok(None);
        }
        let has_tuple = out.contains_key("prefixItems");
        let (mut items, renames) = match rest {
            Some(rest) => self.write(rest, &format!("{place}/items"), is_mapped && !has_tuple)?,
            None => (json!({}), Renames::default()),
        };
        // The schema `false` in `items` means the end of a tuple.
        if items == json!({"not": {}}) {
            items = json!({});
            out.entry("maxItems").or_insert_with(|| json!(tuple.map_or(0, Vec::len)));
        }
        out.insert("items".to_owned(), items);
        Ok((!renames.is_empty()).then_some(renames))
    }

    fn write_combinators(
        &mut self,
        fields: &Map<String, Value>,
        out: &mut Map<String, Value>,
        place: &str,
    ) -> Result<(), ProjectionError> {
        let mut groups = Vec::new();
        for key in ["anyOf", "oneOf"] {
            if let Some(Value::Array(list)) = fields.get(key).filter(|_| is_list(fields, key)) {
                let typed: Vec<Value> = list.iter().map(|branch| with_type(branch, fields.get("type"))).collect();
                groups.push(self.write_list(&typed, place, key)?);
            }
        }
        let mut all = match fields.get("allOf") {
            Some(Value::Array(list)) => match self.write_list(list, place, "allOf")? {
                Value::Array(list) => list,
                _ => Vec::new(),
            },
            Some(_) | None => Vec::new(),
        };
        let mut groups = groups.into_iter();
        if let Some(first) = groups.next() {
            out.insert("anyOf".to_owned(), first);
        }
        all.extend(groups.map(|group| json!({"anyOf": group})));
        if !all.is_empty() {
            out.insert("allOf".to_owned(), Value::Array(all));
        }
        Ok(())
    }

    /// Returns the name in `$defs` of a reference's target.
    fn def_name(&mut self, reference: &str, place: &str) -> Result<String, ProjectionError> {
        if let Some((_, name)) = self.defs.iter().find(|(known, _)| known == reference) {
            return Ok(name.clone());
        }
        let target = self.source.target(reference, place)?;
        // A reference that only leads back to itself is an error.
        self.source.flatten(target, place)?;
        let last = reference.rsplit(['/', '#']).next().unwrap_or_default();
        let kept = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '_' };
        let plain: String = last.chars().map(kept).take(super::keys::KEY_CHARS_MAX / 2).collect();
        let plain = if plain.is_empty() { "root".to_owned() } else { plain };
        let is_free = |name: &String| self.defs.iter().all(|(_, known)| known != name);
        let numbered = (2..).map(|number| format!("{plain}_{number}"));
        let name = std::iter::once(plain.clone()).chain(numbered).find(is_free).unwrap_or_default();
        self.defs.push((reference.to_owned(), name.clone()));
        Ok(name)
    }

    /// Writes `$defs`: all targets of references, and the targets of references in them.
    fn write_defs(&mut self) -> Result<Map<String, Value>, ProjectionError> {
        let mut written = Map::new();
        while let Some((reference, name)) = self.defs.get(written.len()).cloned() {
            let target = self.source.target(&reference, &reference)?;
            self.source.charge(&reference, size(target))?;
            let (schema, _) = self.write(target, &reference, false)?;
            written.insert(name, schema);
        }
        Ok(written)
    }
}

fn is_list(fields: &Map<String, Value>, key: &str) -> bool {
    fields.get(key).and_then(Value::as_array).is_some_and(|list| !list.is_empty())
}

/// Returns an alternative with the common type, if it has no type.
fn with_type(branch: &Value, of_all: Option<&Value>) -> Value {
    let mut branch = branch.clone();
    let kinds = of_all.map(parse_kinds).unwrap_or_default();
    if let Value::Object(fields) = &mut branch
        && !kinds.is_empty()
        && ["type", "$ref", "anyOf", "oneOf", "allOf"].iter().all(|key| !fields.contains_key(*key))
    {
        fields.insert("type".to_owned(), kinds_value(&kinds));
    }
    branch
}

/// Writes `type`, also the type of values to choose from; beside alternatives there is none.
fn write_type(fields: &Map<String, Value>, out: &mut Map<String, Value>, is_union: bool) {
    let given = fields.get("type").unwrap_or(&Value::Null);
    let mut found = parse_kinds(given);
    let is_whole = match given {
        Value::Array(list) => list.len() == found.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => true,
    };
    let is_given = is_whole && !found.is_empty();
    if found.is_empty() && choices(fields).is_some() {
        found = kinds(fields);
    }
    if !found.is_empty() && !is_union {
        out.insert("type".to_owned(), if is_given { given.clone() } else { kinds_value(&found) });
    }
}

fn write_annotations(fields: &Map<String, Value>, out: &mut Map<String, Value>, are_names_plain: bool) {
    for key in ["title", "description", "format"] {
        if let Some(text @ Value::String(_)) = fields.get(key) {
            out.insert(key.to_owned(), text.clone());
        }
    }
    let holds_names = |value: &Value| value.is_object() || value.is_array();
    match fields.get("default") {
        Some(value) if are_names_plain || !holds_names(value) => drop(out.insert("default".to_owned(), value.clone())),
        Some(_) | None => {}
    }
    match fields.get("examples") {
        Some(Value::Array(list)) if are_names_plain || !list.iter().any(holds_names) => {
            out.insert("examples".to_owned(), json!(list));
        }
        Some(_) | None => {}
    }
}

fn write_scalars(fields: &Map<String, Value>, out: &mut Map<String, Value>) {
    match (fields.get("const"), fields.get("enum")) {
        (Some(only), _) => drop(out.insert("const".to_owned(), only.clone())),
        (None, Some(Value::Array(list))) if !list.is_empty() => drop(out.insert("enum".to_owned(), json!(list))),
        (None, _) => {}
    }
    for key in NUMBERS {
        if let Some(number @ Value::Number(_)) = fields.get(key) {
            out.insert(key.to_owned(), number.clone());
        }
    }
    // Draft 4 has `exclusiveMinimum: true` beside `minimum`.
    for (flag, limit) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        if fields.get(flag) == Some(&Value::Bool(true))
            && let Some(number) = out.remove(limit)
        {
            out.insert(flag.to_owned(), number);
        }
    }
    if let Some(step) = fields.get("multipleOf").filter(|step| step.as_f64().is_some_and(|step| step > 0.0)) {
        out.insert("multipleOf".to_owned(), step.clone());
    }
    if let Some(pattern @ Value::String(_)) = fields.get("pattern") {
        out.insert("pattern".to_owned(), pattern.clone());
    }
    if let Some(unique @ Value::Bool(_)) = fields.get("uniqueItems") {
        out.insert("uniqueItems".to_owned(), unique.clone());
    }
}

fn write_counts(fields: &Map<String, Value>, out: &mut Map<String, Value>) {
    for key in COUNTS {
        if let Some(count) = fields.get(key).and_then(parse_count) {
            out.insert(key.to_owned(), json!(count));
        }
    }
}

/// Reads a whole number from 0; `3.0` is one.
pub(super) fn parse_count(value: &Value) -> Option<u32> {
    let whole = value.as_f64().filter(|float| float.fract() == 0.0).map(|float| format!("{float:.0}"));
    value.as_u64().map(|number| number.to_string()).or(whole)?.parse().ok()
}
