//! Writes into descriptions what a projected schema can't say.

use super::source::FlatSchema;
use serde_json::{Map, Value};

/// Most characters of one note.
const NOTE_CHARS_MAX: usize = 600;
/// Most alternatives that a note lists.
const LISTED_MAX: usize = 12;

/// Shortens a text to 600 characters.
pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(NOTE_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Writes a value as JSON text, shortened to 600 characters.
pub(super) fn short_json(value: &Value) -> String {
    shorten(&value.to_string())
}

/// Adds a text behind the description.
pub(super) fn add(schema: &mut Map<String, Value>, note: &str) {
    let said = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let text = join(said, note);
    if !text.is_empty() {
        schema.insert("description".to_owned(), Value::String(text));
    }
}

/// Puts a text before the description.
pub(super) fn prepend(schema: &mut Map<String, Value>, note: &str) {
    let said = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let text = join(note, said);
    if !text.is_empty() {
        schema.insert("description".to_owned(), Value::String(text));
    }
}

fn join(first: &str, second: &str) -> String {
    match (first.trim_end(), second.trim()) {
        ("", only) | (only, "") => only.to_owned(),
        (first, second) if first == second => first.to_owned(),
        (first, second) if second.starts_with('(') => format!("{first} {second}"),
        (first, second) if first.ends_with(['.', '!', '?', ':', ')', '…']) => format!("{first} {second}"),
        (first, second) => format!("{first}. {second}"),
    }
}

/// Returns the description of a schema, or else its title.
pub(super) fn description_or_title(fields: &Map<String, Value>) -> &str {
    let text = |key: &str| fields.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    text("description").or_else(|| text("title")).unwrap_or_default()
}

/// Writes `key: value` for each of these keywords that a schema has.
pub(super) fn keywords_note(fields: &Map<String, Value>, keys: &[&str]) -> Option<String> {
    let found = keys.iter().filter_map(|key| Some(format!("{key}: {}", short_json(fields.get(*key)?))));
    let all = found.collect::<Vec<_>>().join("; ");
    (!all.is_empty()).then(|| format!("({all})"))
}

/// Describes the needs of one alternative of a map: its fixed values and its required properties.
pub(super) fn outline(flat: &FlatSchema) -> String {
    let properties = flat.fields.get("properties").and_then(Value::as_object);
    let fixed = |schema: &Value| match (schema.get("const"), schema.get("enum").and_then(Value::as_array)) {
        (Some(only), _) => Some(short_json(only)),
        (None, Some(values)) if values.len() == 1 => values.first().map(short_json),
        (None, _) => None,
    };
    let all: Vec<(&String, String)> =
        properties.into_iter().flatten().filter_map(|(name, schema)| Some((name, fixed(schema)?))).collect();
    let is_fixed = |name: &str| all.iter().any(|(key, _)| *key == name);
    let required = flat.fields.get("required").and_then(Value::as_array).into_iter().flatten();
    let needed = required.filter_map(Value::as_str).filter(|name| !is_fixed(name)).map(|name| format!("`{name}`"));
    let parts: Vec<String> = all.iter().map(|(name, value)| format!("`{name}` = {value}")).chain(needed).collect();
    match (parts.is_empty(), description_or_title(&flat.fields)) {
        (false, _) => parts.join(", "),
        (true, "") => "no field is needed".to_owned(),
        (true, text) => text.to_owned(),
    }
}

/// Describes the alternatives in one sentence; `None` if there is only one.
pub(super) fn alternatives_note(outlines: &[String]) -> Option<String> {
    let mut known: Vec<&String> = Vec::new();
    for outline in outlines {
        if !known.contains(&outline) {
            known.push(outline);
        }
    }
    if known.len() < 2 {
        return None;
    }
    let told = known.iter().take(LISTED_MAX).enumerate().map(|(at, text)| format!("({}) {text}", at + 1));
    let rest = if known.len() > LISTED_MAX { "; …" } else { "" };
    Some(shorten(&format!("Give one of: {}{rest}", told.collect::<Vec<_>>().join("; "))))
}
