//! How other programs see an agent: as a tool with a title and an input schema.

use crate::decode::{self, DataError};
use crate::limits::{PUBLISHED_SCHEMA_BYTES, PUBLISHED_SCHEMA_DEPTH};
use crate::outputs::{self, OutputSchemaError};
use crate::visible::quote_foreign;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Key of the setting in a configuration.
const KEY: &str = "published";

/// Most characters of a title.
const TITLE_CHARS: usize = 200;

/// Annotation by which clients repeat an argument in a header, where proxies and logs see it.
const HEADER_ANNOTATION: &str = "x-mcp-header";

/// Combinations that common clients and providers refuse at the top of a tool's schema.
const COMBINATIONS: [&str; 4] = ["anyOf", "oneOf", "allOf", "not"];

/// Settings of an agent that programs outside see.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PublishedSettings {
    /// Name of the agent for people; absent is its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// JSON Schema of a task's input, which is a map; without it the input is a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
}

/// Rule that these settings break; the text begins with the key.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PublishedError {
    /// The title is empty, too long, or has several lines.
    #[error("`published.title`: expected a line of 1 to {TITLE_CHARS} characters")]
    Title,
    /// The schema can't be used.
    #[error("`published.input`: {0}")]
    Schema(OutputSchemaError),
    /// The schema is of another value than a map.
    #[error("`published.input`: expected a schema with `\"type\": \"object\"`: arguments of a tool are a map")]
    NotOfAMap,
    /// The schema is longer than that of a tool may be.
    #[error("`published.input`: expected at most {PUBLISHED_SCHEMA_BYTES} bytes, got {0}")]
    TooLong(usize),
    /// The schema is nested too deeply.
    #[error("`published.input`: {0}")]
    TooDeep(DataError),
    /// The schema combines others at its top.
    #[error("`published.input`: `{0}` at the top is refused by clients; put it into a property")]
    Combination(&'static str),
    /// A property has `true` or `false` for a schema; the text is its name.
    #[error("`published.input`: property `{0}`: expected a schema as a map: clients refuse `true` and `false`")]
    PropertyNoMap(String),
    /// The schema asks clients for headers.
    #[error("`published.input`: `{HEADER_ANNOTATION}` is not served: an argument stands in the body alone")]
    HeaderAnnotation,
}

impl PublishedSettings {
    /// Checks title and schema.
    pub fn check(&self) -> Result<(), PublishedError> {
        if let Some(title) = &self.title {
            let is_line = !title.is_empty() && !title.chars().any(char::is_control);
            if !is_line || title.chars().count() > TITLE_CHARS {
                return Err(PublishedError::Title);
            }
        }
        let Some(schema) = &self.input else { return Ok(()) };
        decode::check_to(schema, PUBLISHED_SCHEMA_DEPTH).map_err(PublishedError::TooDeep)?;
        let bytes = schema.to_string().len();
        if bytes > PUBLISHED_SCHEMA_BYTES {
            return Err(PublishedError::TooLong(bytes));
        }
        outputs::check(schema).map_err(PublishedError::Schema)?;
        if schema["type"] != "object" {
            return Err(PublishedError::NotOfAMap);
        }
        if let Some(key) = COMBINATIONS.into_iter().find(|key| schema.get(key).is_some()) {
            return Err(PublishedError::Combination(key));
        }
        let mut properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        if let Some((name, _)) = properties.find(|(_, inner)| !inner.is_object()) {
            return Err(PublishedError::PropertyNoMap(quote_foreign(name)));
        }
        if has_header_annotation(schema) { Err(PublishedError::HeaderAnnotation) } else { Ok(()) }
    }

    /// Returns the schema of the tool's arguments: that of the settings, or one of a text.
    pub fn arguments_schema(&self) -> Value {
        self.input.clone().unwrap_or_else(|| {
            json!({
                "type": "object",
                "properties": {
                    "input": {"type": "string", "description": "The task, in words."},
                    "session": {"type": "string", "description": "Conversation that the task continues; absent: a new one."}
                },
                "required": ["input"],
                "additionalProperties": false
            })
        })
    }
}

/// Whether a schema asks for a header anywhere; a property of that name is a schema, and no text.
fn has_header_annotation(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => {
            map.get(HEADER_ANNOTATION).is_some_and(Value::is_string) || map.values().any(has_header_annotation)
        }
        Value::Array(items) => items.iter().any(has_header_annotation),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Replaces `published: true` by an empty map, and removes `published: false`.
pub fn expand_flag(config: &mut Map<String, Value>) {
    match config.get(KEY) {
        Some(Value::Bool(true)) => {
            config.insert(KEY.to_owned(), Value::Object(Map::new()));
        }
        Some(Value::Bool(false)) => {
            config.shift_remove(KEY);
        }
        Some(_) | None => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::agent::AgentConfig;
    use serde_json::{Value, json};

    fn parse(published: &Value) -> Result<Value, String> {
        let config = json!({"model": {"provider": "scripted", "name": "echo"}, "published": published});
        let config = AgentConfig::parse(&config).map_err(|error| error.to_string())?;
        Ok(json!(config.published))
    }

    #[test]
    fn an_agent_is_published_by_a_flag_or_a_map() {
        let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        for (given, expected) in [
            (json!(true), json!({})),
            (json!(false), Value::Null),
            (json!({}), json!({})),
            (json!({"title": "Weather"}), json!({"title": "Weather"})),
            (json!({"input": schema}), json!({"input": schema})),
        ] {
            assert_eq!(parse(&given), Ok(expected), "{given}");
        }
        for (given, part) in [
            (json!("yes"), "published"),
            (json!({"titel": "x"}), "titel"),
            (json!({"title": ""}), "`published.title`: expected a line"),
            (json!({"title": "a\nb"}), "`published.title`: expected a line"),
            (json!({"input": {"type": "string"}}), "expected a schema with `\"type\": \"object\"`"),
            (json!({"input": {"type": "object", "properties": 5}}), "`published.input`: not a JSON Schema"),
        ] {
            let error = parse(&given).unwrap_err();
            assert!(error.contains(part), "{given}: {error}");
        }
    }

    #[test]
    fn a_schema_that_breaks_clients_is_refused() {
        let deep = (0..40).fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
        for (schema, part) in [
            (json!({"type": "object", "description": "x".repeat(20_000)}), "expected at most 16384 bytes, got 20"),
            (json!({"type": "object", "properties": {"a": deep}}), "`published.input`: "),
            (json!({"type": "object", "oneOf": [{"required": ["a"]}]}), "`oneOf` at the top"),
            (json!({"type": "object", "properties": {"a": true}}), "property `a`: expected a schema as a map"),
            (
                json!({"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "Region"}}}),
                "`x-mcp-header` is not served",
            ),
            (json!({"type": "object", "properties": {"a": {"$ref": "https://evil.example/s"}}}), "`published.input`: "),
        ] {
            let error = parse(&json!({"input": schema})).unwrap_err();
            assert!(error.contains(part), "{part}: {error}");
        }
        let named = json!({"type": "object", "properties": {"x-mcp-header": {"type": "string"}}});
        assert_eq!(parse(&json!({"input": named})), Ok(json!({"input": named})));
    }

    #[test]
    fn without_a_schema_the_input_is_a_text() {
        let schema = super::PublishedSettings::default().arguments_schema();
        assert_eq!(schema["required"], json!(["input"]));
        assert_eq!(schema["properties"]["input"]["type"], "string");
    }
}
