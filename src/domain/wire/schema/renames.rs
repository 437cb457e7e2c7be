//! Maps arguments of the projected schema back to arguments of the given schema.

use crate::decode;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// A type of JSON Schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JsonKind {
    /// The type `null`.
    Null,
    /// The type `boolean`.
    Boolean,
    /// The type `integer`.
    Integer,
    /// The type `number`, which includes integers.
    Number,
    /// The type `string`.
    String,
    /// The type `array`.
    Array,
    /// The type `object`.
    Object,
}

impl JsonKind {
    /// All types of a value; `number` includes integers.
    pub const ANY: [Self; 6] = [Self::Null, Self::Boolean, Self::Number, Self::String, Self::Array, Self::Object];

    /// Returns the type of a name in a schema.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "null" => Self::Null,
            "boolean" => Self::Boolean,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "string" => Self::String,
            "array" => Self::Array,
            "object" => Self::Object,
            _ => return None,
        })
    }

    /// Returns the name of the type in a schema.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::String => "string",
            Self::Array => "array",
            Self::Object => "object",
        }
    }

    /// Whether a value has this type; `5.0` is an integer.
    pub fn fits(self, value: &Value) -> bool {
        match (self, value) {
            (Self::Null, Value::Null)
            | (Self::Boolean, Value::Bool(_))
            | (Self::Number, Value::Number(_))
            | (Self::String, Value::String(_))
            | (Self::Array, Value::Array(_))
            | (Self::Object, Value::Object(_)) => true,
            (Self::Integer, Value::Number(number)) => {
                number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|float| float.fract() == 0.0)
            }
            (
                Self::Null | Self::Boolean | Self::Integer | Self::Number | Self::String | Self::Array | Self::Object,
                _,
            ) => false,
        }
    }
}

/// How values of the projected schema differ from values of ours, by place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Renames {
    /// Our property names, by their sent names.
    pub keys: BTreeMap<String, String>,
    /// Differences inside of properties, by the sent names of these.
    pub properties: BTreeMap<String, Renames>,
    /// Differences inside of the items of a list.
    pub items: Option<Box<Renames>>,
    /// Types of the values that stand here as JSON text, because the provider has no type for them.
    pub text: BTreeSet<JsonKind>,
    /// Sent name of the property that holds all further entries of a map as JSON text.
    pub more: Option<String>,
}

impl Renames {
    /// Whether values need no mapping.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Maps a value of the projected schema back to a value of ours.
    pub fn restore(&self, value: Value) -> Value {
        match value {
            Value::Object(map) => Value::Object(self.restore_map(map)),
            Value::Array(items) => match &self.items {
                Some(inside) => items.into_iter().map(|item| inside.restore(item)).collect(),
                None => Value::Array(items),
            },
            Value::String(text) => self.restore_text(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => value,
        }
    }

    fn restore_map(&self, map: Map<String, Value>) -> Map<String, Value> {
        let mut ours = Map::new();
        let mut more = None;
        for (key, value) in map {
            if self.more.as_ref() == Some(&key) {
                more = Some((key, value));
                continue;
            }
            let value = match self.properties.get(&key) {
                Some(inside) => inside.restore(value),
                None => value,
            };
            ours.insert(self.keys.get(&key).cloned().unwrap_or(key), value);
        }
        let Some((key, value)) = more else { return ours };
        match parse_json_text(value) {
            Value::Object(further) => {
                for (key, value) in further {
                    ours.entry(key).or_insert(value);
                }
            }
            Value::Null => {}
            other => drop(ours.insert(key, other)),
        }
        ours
    }

    /// Restores a JSON text; a text that isn't JSON of the expected types stays as it is.
    fn restore_text(&self, text: String) -> Value {
        if self.text.is_empty() {
            return Value::String(text);
        }
        match decode::lenient_json(text.as_bytes()) {
            Ok(value) if self.text.iter().any(|kind| kind.fits(&value)) => value,
            Ok(_) | Err(_) => Value::String(text),
        }
    }
}

/// Parses a JSON text; any other value stays as it is.
fn parse_json_text(value: Value) -> Value {
    match value.as_str().map(|text| decode::lenient_json(text.as_bytes())) {
        Some(Ok(inner)) => inner,
        Some(Err(_)) | None => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(kinds: &[JsonKind]) -> Renames {
        Renames { text: kinds.iter().copied().collect(), ..Renames::default() }
    }

    #[test]
    fn renamed_values_are_mapped_back() {
        let renames = Renames {
            keys: [("a_b".to_owned(), "a b".to_owned())].into(),
            properties: [
                ("a_b".to_owned(), text(&[JsonKind::Integer])),
                ("any".to_owned(), text(&JsonKind::ANY)),
                ("list".to_owned(), Renames { items: Some(Box::new(text(&[JsonKind::Object]))), ..Renames::default() }),
            ]
            .into(),
            more: Some("more".to_owned()),
            ..Renames::default()
        };
        for (given, expected) in [
            (json!({"a_b": "5", "c": "5"}), json!({"a b": 5, "c": "5"})),
            (json!({"a_b": "x"}), json!({"a b": "x"})),
            (json!({"a_b": "5.5"}), json!({"a b": "5.5"})),
            (json!({"any": "{\"a_b\":1}"}), json!({"any": {"a_b": 1}})),
            (json!({"any": "\"5\""}), json!({"any": "5"})),
            (json!({"any": "plain text"}), json!({"any": "plain text"})),
            (json!({"any": {"x": 1}}), json!({"any": {"x": 1}})),
            (json!({"list": ["{}", "[]", 1]}), json!({"list": [{}, "[]", 1]})),
            (json!({"more": "{\"x\":1,\"c\":2}", "c": 1}), json!({"c": 1, "x": 1})),
            (json!({"more": {"x": 1}}), json!({"x": 1})),
            (json!({"more": "no JSON"}), json!({"more": "no JSON"})),
            (json!({"more": null}), json!({})),
            (json!([1, "5"]), json!([1, "5"])),
        ] {
            assert_eq!(renames.restore(given.clone()), expected, "{given}");
        }
    }

    #[test]
    fn deep_text_of_a_model_stays_text() {
        let deep = "[".repeat(100_000);
        assert_eq!(text(&JsonKind::ANY).restore(json!(deep)), json!(deep));
    }
}
