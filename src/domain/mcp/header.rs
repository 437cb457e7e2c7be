//! Arguments of a call that go into headers, too: properties of a tool's schema with `x-mcp-header`.

use crate::headers::is_name;
use crate::limits::{MCP_PARAM_HEADER_BYTES, MCP_PARAM_HEADERS};
use crate::visible::quote_foreign;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

/// Keyword of a schema that names a header.
const KEYWORD: &str = "x-mcp-header";

/// Beginning of these headers.
const PREFIX: &str = "Mcp-Param-";

/// Mark of an encoded value, at its beginning and its end.
const ENCODED: [&str; 2] = ["=?base64?", "?="];

/// Largest integer that all clients write alike: 2^53 - 1.
const SAFE_INTEGER: i64 = (1 << 53) - 1;

/// Types of arguments that may go into a header.
const TYPES: [&str; 3] = ["string", "integer", "boolean"];

/// A header that carries the value of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamHeader {
    /// Whole name of the header.
    pub name: String,
    /// Keys that lead to the argument.
    pub place: Vec<String>,
}

/// Why a tool can't be used with the headers that its schema asks for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParamHeaderError {
    /// The name is no part of a header's name.
    #[error("`{KEYWORD}`: expected the name of a header, got `{}`", quote_foreign(.found))]
    Name {
        /// Name as the schema has it, or its JSON.
        found: String,
    },
    /// Two arguments ask for one header.
    #[error("`{KEYWORD}`: two arguments ask for `{}`", quote_foreign(.found))]
    Duplicate {
        /// Name of the header.
        found: String,
    },
    /// There are too many headers.
    #[error("`{KEYWORD}`: expected at most {MCP_PARAM_HEADERS} arguments, got more")]
    TooMany,
    /// The argument isn't a text, an integer or a boolean.
    #[error("`{KEYWORD}`: expected a `string`, an `integer` or a `boolean` for `{}`", quote_foreign(.found))]
    Type {
        /// Name of the header.
        found: String,
    },
    /// The keyword stands where no single argument is meant.
    #[error("`{KEYWORD}`: expected at properties that are reached by `properties` alone")]
    Place,
    /// The argument is no text, integer or boolean of that range.
    #[error("argument `{}` goes into a header: expected a text, a boolean or an integer of at most 2^53 - 1", .place.join("."))]
    Value {
        /// Keys that lead to the argument.
        place: Vec<String>,
    },
    /// The headers of a call are too large.
    #[error("the arguments that go into headers take more than {MCP_PARAM_HEADER_BYTES} bytes: send shorter ones")]
    TooLarge,
}

/// Returns the headers that a schema asks for.
///
/// # Errors
/// The schema breaks a rule of them: the tool must not be used over HTTP.
pub fn param_headers(schema: &Value) -> Result<Vec<ParamHeader>, ParamHeaderError> {
    let mut found = Vec::new();
    collect(schema, &mut Vec::new(), &mut found)?;
    // Wherever else the keyword stands, it would silently be ignored.
    if count_keywords(schema) != found.len() {
        return Err(ParamHeaderError::Place);
    }
    Ok(found)
}

fn collect(schema: &Value, place: &mut Vec<String>, found: &mut Vec<ParamHeader>) -> Result<(), ParamHeaderError> {
    if let Some(given) = schema.get(KEYWORD) {
        let name = given.as_str().filter(|name| is_name(name));
        let name = name.ok_or_else(|| ParamHeaderError::Name { found: given.to_string() })?;
        if place.is_empty() {
            return Err(ParamHeaderError::Place);
        }
        let whole = format!("{PREFIX}{name}");
        if found.iter().any(|other| other.name.eq_ignore_ascii_case(&whole)) {
            return Err(ParamHeaderError::Duplicate { found: name.to_owned() });
        }
        if found.len() == MCP_PARAM_HEADERS {
            return Err(ParamHeaderError::TooMany);
        }
        if !schema["type"].as_str().is_some_and(|kind| TYPES.contains(&kind)) {
            return Err(ParamHeaderError::Type { found: name.to_owned() });
        }
        found.push(ParamHeader { name: whole, place: place.clone() });
    }
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        place.push(key.clone());
        collect(property, place, found)?;
        place.pop();
    }
    Ok(())
}

/// Counts the keyword in a schema. A property may have its name.
fn count_keywords(schema: &Value) -> usize {
    match schema {
        Value::Object(map) => map
            .iter()
            .map(|(key, inner)| match (key.as_str(), inner) {
                (KEYWORD, _) => 1,
                (
                    "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                    Value::Object(named),
                ) => named.values().map(count_keywords).sum(),
                ("const" | "enum" | "default" | "examples", _) => 0,
                (_, inner) => count_keywords(inner),
            })
            .sum(),
        Value::Array(items) => items.iter().map(count_keywords).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Returns names and values of the headers of a call. Arguments that are absent or null have none.
pub fn header_values(headers: &[ParamHeader], arguments: &Value) -> Result<Vec<(String, String)>, ParamHeaderError> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    for header in headers {
        let value = header.place.iter().try_fold(arguments, |value, key| value.get(key));
        let text = match value {
            None | Some(Value::Null) => continue,
            Some(Value::String(text)) => text.clone(),
            Some(Value::Bool(flag)) => flag.to_string(),
            Some(Value::Number(number)) => match number.as_i64().filter(|n| (-SAFE_INTEGER..=SAFE_INTEGER).contains(n))
            {
                Some(number) => number.to_string(),
                None => return Err(ParamHeaderError::Value { place: header.place.clone() }),
            },
            Some(Value::Array(_) | Value::Object(_)) => {
                return Err(ParamHeaderError::Value { place: header.place.clone() });
            }
        };
        let text = encode_value(&text);
        bytes += header.name.len() + text.len();
        if bytes > MCP_PARAM_HEADER_BYTES {
            return Err(ParamHeaderError::TooLarge);
        }
        found.push((header.name.clone(), text));
    }
    Ok(found)
}

/// Returns a text as the value of a header: as it is, or encoded if it isn't plain.
pub fn encode_value(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
    let has_edges = text.starts_with([' ', '\t']) || text.ends_with([' ', '\t']);
    let looks_encoded = text.starts_with(ENCODED[0]) && text.ends_with(ENCODED[1]);
    if is_plain && !has_edges && !looks_encoded {
        return text.to_owned();
    }
    format!("{}{}{}", ENCODED[0], BASE64_STANDARD.encode(text), ENCODED[1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    #[test]
    fn values_are_encoded_where_a_header_would_change_them() {
        for (text, expected) in [
            ("us-west1", "us-west1"),
            ("", ""),
            ("Hello, \u{4e16}\u{754c}", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ] {
            assert_eq!(encode_value(text), expected);
        }
    }

    #[test]
    fn a_schema_names_headers_by_the_rules_or_not_at_all() {
        let of = |property: Value| json!({"type": "object", "properties": {"a": property}});
        let many: Map<String, Value> =
            (0..400).map(|n| (format!("p{n}"), json!({"type": "string", "x-mcp-header": format!("H{n}")}))).collect();
        for (schema, expected) in [
            (of(json!({"type": "string", "x-mcp-header": "Region"})), Ok(1)),
            (of(json!({"type": "object", "properties": {"b": {"type": "integer", "x-mcp-header": "B"}}})), Ok(1)),
            (json!({"properties": {"x-mcp-header": {"type": "string"}}}), Ok(0)),
            (of(json!({"enum": [{"x-mcp-header": "no"}]})), Ok(0)),
            (of(json!({"type": "string", "x-mcp-header": ""})), Err("expected the name of a header")),
            (of(json!({"type": "string", "x-mcp-header": "a b"})), Err("expected the name of a header")),
            (of(json!({"type": "string", "x-mcp-header": "a\r\nb"})), Err("expected the name of a header")),
            (of(json!({"type": "string", "x-mcp-header": 1})), Err("expected the name of a header")),
            (of(json!({"type": "number", "x-mcp-header": "N"})), Err("expected a `string`")),
            (of(json!({"x-mcp-header": "N"})), Err("expected a `string`")),
            (of(json!({"type": "array", "items": {"type": "string", "x-mcp-header": "N"}})), Err("`properties` alone")),
            (of(json!({"anyOf": [{"type": "string", "x-mcp-header": "N"}]})), Err("`properties` alone")),
            (json!({"type": "string", "x-mcp-header": "N"}), Err("`properties` alone")),
            (
                json!({"properties": {
                    "a": {"type": "string", "x-mcp-header": "N"}, "b": {"type": "string", "x-mcp-header": "n"}
                }}),
                Err("two arguments ask for"),
            ),
            (json!({"properties": many}), Err("expected at most 32 arguments")),
        ] {
            match (param_headers(&schema), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found.len(), expected, "{schema}"),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (found, expected) => panic!("expected {expected:?}, got {found:?}"),
            }
        }
    }

    #[test]
    fn headers_have_the_values_of_the_call() {
        let schema = json!({"properties": {
            "s": {"type": "string", "x-mcp-header": "S"}, "i": {"type": "integer", "x-mcp-header": "I"},
            "in": {"properties": {"b": {"type": "boolean", "x-mcp-header": "B"}}}
        }});
        let headers = param_headers(&schema).unwrap();
        let values = |arguments: Value| header_values(&headers, &arguments);
        let own = |name: &str, value: &str| (format!("Mcp-Param-{name}"), value.to_owned());
        assert_eq!(
            values(json!({"s": "x", "i": -7, "in": {"b": true}})),
            Ok(vec![own("S", "x"), own("I", "-7"), own("B", "true")])
        );
        assert_eq!(values(json!({"s": null, "in": {}})), Ok(vec![]));
        assert!(values(json!({"i": 9_007_199_254_740_992_u64})).is_err());
        assert!(values(json!({"i": 1.5})).is_err());
        assert!(values(json!({"s": ["x"]})).is_err());
        assert_eq!(values(json!({"s": "x".repeat(7_000)})), Err(ParamHeaderError::TooLarge));
    }
}
