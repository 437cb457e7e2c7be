//! Paths of the State: names with dots between them, in which a number indexes a list.

use serde_json::{Map, Value};
use std::fmt;

/// Bytes of a path at most.
const PATH_BYTES: usize = 256;

/// A path of the State, such as `editor.feedback`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatePath(String);

impl StatePath {
    /// Parses a path; `None` if the text is none.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let is_name =
            |name: &str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'));
        (text.len() <= PATH_BYTES && text.split('.').all(is_name)).then(|| Self(text.to_owned()))
    }

    /// Returns the name of the value that the path begins with.
    pub fn head(&self) -> &str {
        self.0.split('.').next().unwrap_or_default()
    }
}

impl fmt::Display for StatePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the value at a path; `None` where there is none.
pub fn get<'v>(values: &'v Map<String, Value>, path: &StatePath) -> Option<&'v Value> {
    let mut names = path.0.split('.');
    let mut found = values.get(names.next()?)?;
    for name in names {
        found = match found {
            Value::Object(map) => map.get(name)?,
            Value::Array(list) => list.get(name.parse::<usize>().ok()?)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
        };
    }
    Some(found)
}
