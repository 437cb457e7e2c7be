//! Projects the type of a text to Anthropic's structured output: closed maps, and few of the keywords.

use serde_json::{Map, Value, json};

/// Formats of texts that the provider takes.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];
/// Keywords that put no condition on a value.
const ANNOTATIONS: [&str; 8] =
    ["$schema", "$id", "$comment", "title", "default", "examples", "additionalProperties", "required"];
/// Most properties that may be absent, in the whole schema.
const OPTIONAL_MOST: usize = 24;
/// Most values with several types, in the whole schema.
const UNIONS_MOST: usize = 16;

/// Returns the schema as the provider takes it; `None` if it has no equivalent, such as a map of free keys.
pub(super) fn close_schema(schema: &Value) -> Option<Value> {
    let mut closing = SchemaCloser::default();
    let mut closed = closing.close_value(schema)?;
    if let Some(definitions) = schema.get("$defs").and_then(Value::as_object) {
        // A definition that names another may be recursive, which the provider refuses.
        closing.is_definition = true;
        let definitions = definitions.iter().map(|(name, one)| Some((name.clone(), closing.close_value(one)?)));
        closed["$defs"] = Value::Object(definitions.collect::<Option<_>>()?);
    }
    (closing.optional <= OPTIONAL_MOST && closing.unions <= UNIONS_MOST).then_some(closed)
}

#[derive(Debug, Default)]
struct SchemaCloser {
    optional: usize,
    unions: usize,
    is_definition: bool,
}

impl SchemaCloser {
    fn close_value(&mut self, schema: &Value) -> Option<Value> {
        let given = schema.as_object()?;
        if let Some(name) = given.get("$ref") {
            let is_definition = name.as_str().is_some_and(|name| name.starts_with("#/$defs/"));
            return (is_definition && !self.is_definition).then(|| json!({"$ref": name}));
        }
        let mut closed = Map::new();
        let mut told: Vec<&str> = vec!["$defs", "description"];
        if let Some(key @ ("anyOf" | "oneOf")) = ["anyOf", "oneOf"].into_iter().find(|key| given.contains_key(*key)) {
            self.unions += 1;
            let branches = given[key].as_array()?.iter().map(|branch| self.close_value(branch));
            closed.insert("anyOf".into(), Value::Array(branches.collect::<Option<_>>()?));
            told.push(key);
        } else if let Some(key @ ("enum" | "const")) =
            ["enum", "const"].into_iter().find(|key| given.contains_key(*key))
        {
            let is_plain = |value: &Value| !value.is_object() && !value.is_array();
            let values = given[key].as_array().filter(|_| key == "enum");
            let all_plain =
                values.map_or_else(|| is_plain(&given[key]), |all| !all.is_empty() && all.iter().all(is_plain));
            if !all_plain {
                return None;
            }
            closed.insert(key.into(), given[key].clone());
            told.extend([key, "type"]);
        } else {
            told.extend(self.close_typed(given, &mut closed)?);
        }
        describe(given, &told, &mut closed);
        Some(Value::Object(closed))
    }

    /// Writes a value of named types; returns the keywords that were written completely.
    fn close_typed(
        &mut self,
        given: &Map<String, Value>,
        closed: &mut Map<String, Value>,
    ) -> Option<Vec<&'static str>> {
        let kind = given.get("type")?;
        let is_of = |name: &str| kind == name || kind.as_array().is_some_and(|all| all.iter().any(|one| one == name));
        self.unions += usize::from(kind.is_array());
        closed.insert("type".into(), kind.clone());
        let mut told = vec!["type"];
        if is_of("object") {
            let properties = given.get("properties")?.as_object().filter(|all| !all.is_empty())?;
            if given.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false)) {
                return None;
            }
            let required = given.get("required").and_then(Value::as_array).map_or(0, Vec::len);
            self.optional += properties.len().saturating_sub(required);
            let properties = properties.iter().map(|(name, one)| Some((name.clone(), self.close_value(one)?)));
            closed.insert("properties".into(), Value::Object(properties.collect::<Option<_>>()?));
            closed.insert("additionalProperties".into(), Value::Bool(false));
            closed.extend(given.get("required").map(|names| ("required".to_owned(), names.clone())));
            told.push("properties");
        }
        if is_of("array") {
            closed.insert("items".into(), self.close_value(given.get("items")?)?);
            told.push("items");
            if let Some(least) = given.get("minItems").filter(|least| matches!(least.as_u64(), Some(0 | 1))) {
                closed.insert("minItems".into(), least.clone());
                told.push("minItems");
            }
        }
        if let Some(format) = given.get("format").filter(|it| it.as_str().is_some_and(|it| FORMATS.contains(&it))) {
            closed.insert("format".into(), format.clone());
            told.push("format");
        }
        Some(told)
    }
}

/// Writes the description. It lists the keywords that could not be written.
fn describe(given: &Map<String, Value>, told: &[&str], closed: &mut Map<String, Value>) {
    let is_left = |key: &&String| !told.contains(&key.as_str()) && !ANNOTATIONS.contains(&key.as_str());
    let left: Vec<String> = given.keys().filter(is_left).map(|key| format!("{key}: {}", given[key])).collect();
    let description = given.get("description").and_then(Value::as_str).unwrap_or_default();
    let description = match (description, left.is_empty()) {
        ("", true) => return,
        (text, true) => text.to_owned(),
        ("", false) => format!("{{{}}}", left.join(", ")),
        (text, false) => format!("{text}\n\n{{{}}}", left.join(", ")),
    };
    closed.insert("description".into(), description.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &Value, expected: Option<&Value>) {
        assert_eq!(close_schema(given).as_ref(), expected, "{given}");
    }

    #[test]
    fn maps_are_closed_and_other_keywords_are_told() {
        check(
            &json!({
                "$schema": "x", "type": "object", "required": ["n"], "title": "T",
                "properties": {
                    "n": {"type": "integer", "minimum": 1, "description": "A number"},
                    "s": {"type": ["string", "null"], "format": "date", "maxLength": 9},
                    "e": {"type": "string", "enum": ["a", "b"]},
                    "l": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"oneOf": [{"type": "null"}, {"const": 1}]}}
                }
            }),
            Some(&json!({
                "type": "object", "required": ["n"], "additionalProperties": false,
                "properties": {
                    "n": {"type": "integer", "description": "A number\n\n{minimum: 1}"},
                    "s": {"type": ["string", "null"], "format": "date", "description": "{maxLength: 9}"},
                    "e": {"enum": ["a", "b"]},
                    "l": {
                        "type": "array", "minItems": 1, "items": {"anyOf": [{"type": "null"}, {"const": 1}]},
                        "description": "{maxItems: 3}"
                    }
                }
            })),
        );
    }

    #[test]
    fn definitions_are_closed_too_unless_they_may_go_round() {
        let object = |inside: Value| json!({"type": "object", "properties": {"a": inside}});
        let mut given = object(json!({"$ref": "#/$defs/A"}));
        given["$defs"] = json!({"A": {"type": "string"}});
        let mut expected = given.clone();
        expected["additionalProperties"] = json!(false);
        check(&given, Some(&expected));
        given["$defs"] = json!({"A": object(json!({"$ref": "#/$defs/A"}))});
        check(&given, None);
        check(&object(json!({"$ref": "#"})), None);
    }

    #[test]
    fn keywords_without_an_equivalent_are_left_out() {
        let many: Map<String, Value> = (0..25).map(|n| (format!("k{n}"), json!({"type": "null"}))).collect();
        for given in [
            json!(true),
            json!({}),
            json!({"type": "object"}),
            json!({"type": "object", "properties": {"a": {}}}),
            json!({"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": true}),
            json!({"type": "object", "properties": {"a": {"type": "array"}}}),
            json!({"type": "object", "properties": {"a": {"enum": [{"b": 1}]}}}),
            json!({"type": "object", "properties": {"a": {"allOf": [{"type": "null"}]}}}),
            json!({"type": "object", "properties": many}),
        ] {
            check(&given, None);
        }
    }
}
