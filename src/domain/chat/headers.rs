//! Headers that an agent sends to its provider besides those of the wire format: plain texts, and values of secrets.

use crate::headers::{is_name, is_of_connection, is_value};
use crate::ids::secret::SecretName;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Number of headers at most.
const HEADERS: usize = 16;
/// Bytes of a header's name at most.
const NAME_BYTES: usize = 100;
/// Bytes of a header's text at most: servers take about 8 KiB of all headers together.
const TEXT_BYTES: usize = 2_048;
/// Headers that the wire formats and the key use, in lower case.
const RESERVED_NAMES: [&str; 9] = [
    "authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "anthropic-version",
    "content-type",
    "content-encoding",
    "accept",
    "cookie",
];

const SECRET: &str = "$secret";
const PREFIX: &str = "prefix";

/// Headers by their names.
pub type ModelHeaders = BTreeMap<String, HeaderText>;

/// The value of a header: a plain text or a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderText {
    /// A text that anybody may read.
    Plain(String),
    /// The value of an owner's secret, behind a plain prefix (`Bearer `).
    Secret {
        /// Name of the owner's secret.
        name: SecretName,
        /// Text before the secret's value.
        prefix: String,
    },
}

impl HeaderText {
    /// Returns the name of the secret, if it has one.
    pub const fn secret(&self) -> Option<&SecretName> {
        match self {
            Self::Plain(_) => None,
            Self::Secret { name, .. } => Some(name),
        }
    }

    /// Returns the form of configurations; it never holds a secret's value.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Plain(text) => text.as_str().into(),
            Self::Secret { name, prefix } if prefix.is_empty() => json!({SECRET: name.path()}),
            Self::Secret { name, prefix } => json!({SECRET: name.path(), PREFIX: prefix}),
        }
    }

    /// Returns the part that is no secret: the text or the prefix.
    fn plain_part(&self) -> &str {
        match self {
            Self::Plain(text) | Self::Secret { prefix: text, .. } => text,
        }
    }

    fn from_map(map: &Map<String, Value>) -> Option<Self> {
        if map.keys().any(|key| ![SECRET, PREFIX].contains(&key.as_str())) {
            return None;
        }
        let name = SecretName::from_path(map.get(SECRET)?.as_str()?).ok()?;
        let prefix = map.get(PREFIX).map_or(Some(""), Value::as_str)?.to_owned();
        Some(Self::Secret { name, prefix })
    }
}

impl Serialize for HeaderText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(to)
    }
}

impl<'de> Deserialize<'de> for HeaderText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let read = match Value::deserialize(from)? {
            Value::String(text) => Some(match SecretName::from_path(&text) {
                Ok(name) => Self::Secret { name, prefix: String::new() },
                Err(_) => Self::Plain(text),
            }),
            Value::Object(map) => Self::from_map(&map),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
        };
        // The error doesn't repeat the given value: it may be a key.
        read.ok_or_else(|| {
            serde::de::Error::custom(
                "a header of `headers` expected a text or `{\"$secret\": \"s/NAME\"}`, with `prefix` or not",
            )
        })
    }
}

/// Reason why the headers of a model can't be sent; it holds no value of a header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelHeaderError {
    /// The model has too many headers.
    #[error("`model.headers`: expected at most {HEADERS} headers, got {found}")]
    TooMany {
        /// Number of headers.
        found: usize,
    },
    /// The name has illegal characters or is too long.
    #[error("`model.headers`: `{}` is not a header name", .beginning.escape_debug())]
    NotAName {
        /// At most 100 characters of the name.
        beginning: String,
    },
    /// The venue's connection sends this header.
    #[error("`model.headers.{name}`: it belongs to the connection, which the venue makes")]
    Connection {
        /// Name of the header.
        name: String,
    },
    /// The wire format or the key uses this header.
    #[error("`model.headers.{name}`: Trellis writes this header itself; a key belongs in `key`")]
    Reserved {
        /// Name of the header.
        name: String,
    },
    /// Two names differ only in their case.
    #[error("`model.headers.{name}`: another header has this name in other case")]
    Duplicate {
        /// Name of the second header.
        name: String,
    },
    /// The text, or the prefix of a secret, is too long or not printable.
    #[error("`model.headers.{name}`: expected at most {TEXT_BYTES} printable ASCII characters")]
    Value {
        /// Name of the header.
        name: String,
    },
}

/// Checks that the headers can be sent.
pub(super) fn check(headers: &ModelHeaders) -> Result<(), ModelHeaderError> {
    if headers.len() > HEADERS {
        return Err(ModelHeaderError::TooMany { found: headers.len() });
    }
    let mut seen = Vec::new();
    for (name, text) in headers {
        if !is_name(name) || name.len() > NAME_BYTES {
            return Err(ModelHeaderError::NotAName { beginning: name.chars().take(NAME_BYTES).collect() });
        }
        let (lower, name) = (name.to_ascii_lowercase(), name.clone());
        if is_of_connection(&lower) {
            return Err(ModelHeaderError::Connection { name });
        }
        if RESERVED_NAMES.contains(&lower.as_str()) {
            return Err(ModelHeaderError::Reserved { name });
        }
        if seen.contains(&lower) {
            return Err(ModelHeaderError::Duplicate { name });
        }
        if !is_value(text.plain_part()) || text.plain_part().len() > TEXT_BYTES {
            return Err(ModelHeaderError::Value { name });
        }
        seen.push(lower);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(headers: &Value) -> Result<Value, String> {
        let headers: ModelHeaders = serde_json::from_value(headers.clone()).map_err(|error| error.to_string())?;
        check(&headers).map_err(|error| error.to_string())?;
        Ok(json!(headers))
    }

    #[test]
    fn texts_and_secrets_are_read_and_written_the_same() {
        for headers in [
            json!({}),
            json!({"OpenAI-Organization": "org-1", "X-Title": ""}),
            json!({"X-Gateway": {"$secret": "s/GATEWAY"}, "X-Other": {"$secret": "s/A", "prefix": "Bearer "}}),
        ] {
            assert_eq!(checked(&headers), Ok(headers));
        }
        let named = json!({"X-Gateway": "s/GATEWAY"});
        assert_eq!(checked(&named), Ok(json!({"X-Gateway": {"$secret": "s/GATEWAY"}})));
    }

    #[test]
    fn headers_that_are_not_the_agents_are_refused_with_the_reason() {
        let many: Map<String, Value> = (0..17).map(|n| (format!("x-{n}"), "v".into())).collect();
        let (of_connection, own) = ("it belongs to the connection", "Trellis writes this header itself");
        for (headers, part) in [
            (json!({"Host": "x"}), of_connection),
            (json!({"content-length": "1"}), of_connection),
            (json!({"Transfer-Encoding": "chunked"}), of_connection),
            (json!({"Proxy-Authorization": "x"}), of_connection),
            (json!({"Authorization": {"$secret": "s/A"}}), own),
            (json!({"x-api-key": "k"}), own),
            (json!({"Content-Type": "x"}), own),
            (json!({"Cookie": "x"}), own),
            (json!({"a b": "x"}), "is not a header name"),
            (json!({"a\r\nb": "x"}), "`a\\r\\nb` is not a header name"),
            (json!({"x": "a\r\nHost: b"}), "printable ASCII"),
            (json!({"x": {"$secret": "s/A", "prefix": "\n"}}), "printable ASCII"),
            (json!({"x": "k".repeat(TEXT_BYTES + 1)}), "expected at most 2048"),
            (json!({"X-A": "1", "x-a": "2"}), "in other case"),
            (json!({"x": 1}), "expected a text or"),
            (json!({"x": {"$secret": "sk-live-1"}}), "expected a text or"),
            (json!({"x": {"$secret": "s/A", "suffix": ""}}), "expected a text or"),
            (many.into(), "expected at most 16 headers, got 17"),
        ] {
            let error = checked(&headers).unwrap_err();
            assert!(error.contains(part) && !error.contains("sk-live"), "{headers}: {error}");
        }
    }
}
