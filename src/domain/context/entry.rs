//! Context entries: what a configuration or a state wants the agent to see in every turn.

use crate::domain::lattice::Path;
use serde::{Deserialize, Serialize};

/// One entry: text, or a map that says where the content comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, try_from = "serde_json::Value")]
pub enum ContextEntry {
    /// A path when it has a namespace prefix and no space, else literal text.
    Short(String),
    /// With a source and options.
    Full(FullEntry),
}

/// An entry with options; exactly one source.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FullEntry {
    /// A lattice path whose value is shown.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Literal text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Heading in the prompt; the path when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Whether the turn fails without it.
    #[serde(default)]
    pub required: bool,
}

/// Where an entry's content comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The value at a path.
    Reference(Path),
    /// Itself.
    Text(String),
}

impl TryFrom<serde_json::Value> for ContextEntry {
    type Error = String;

    fn try_from(value: serde_json::Value) -> Result<Self, String> {
        match value {
            serde_json::Value::String(text) => Ok(Self::Short(text)),
            other => serde_json::from_value(other).map(Self::Full).map_err(|e| format!("in `context`: {e}")),
        }
    }
}

impl ContextEntry {
    /// Where the content comes from, or what is wrong with the entry.
    pub fn source(&self) -> Result<Source, String> {
        match self {
            Self::Short(text) => Ok(as_path(text).map_or_else(|| Source::Text(text.clone()), Source::Reference)),
            Self::Full(FullEntry { text: Some(text), .. }) => Ok(Source::Text(text.clone())),
            Self::Full(FullEntry { reference: Some(path), .. }) => {
                Path::parse(path).map(Source::Reference).map_err(|e| e.to_string())
            }
            Self::Full(FullEntry { text: None, reference: None, .. }) => Err("expected one of `ref` and `text`".into()),
        }
    }

    /// What is wrong with the entry.
    pub fn check(&self) -> Result<(), String> {
        self.source().map(|_| ())
    }

    /// Heading in the prompt; `None` for literal text without one.
    pub fn label(&self) -> Option<String> {
        let explicit = match self {
            Self::Short(_) => None,
            Self::Full(full) => full.label.clone(),
        };
        explicit.or_else(|| match self.source() {
            Ok(Source::Reference(path)) => Some(path.to_string()),
            Ok(Source::Text(_)) | Err(_) => None,
        })
    }

    /// Whether the turn fails without it.
    pub const fn required(&self) -> bool {
        match self {
            Self::Short(_) => false,
            Self::Full(full) => full.required,
        }
    }
}

fn as_path(text: &str) -> Option<Path> {
    if text.contains(char::is_whitespace) || !text.contains('/') {
        return None;
    }
    Path::parse(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_follows_the_form() {
        let path = |p| Ok(Source::Reference(Path::parse(p).unwrap()));
        for (json, source) in [
            (r#""w/docs/policy""#, path("w/docs/policy")),
            (r#""w/ is the workspace""#, Ok(Source::Text("w/ is the workspace".into()))),
            (r#""Be brief""#, Ok(Source::Text("Be brief".into()))),
            (r#"{"ref": "w/a", "label": "A"}"#, path("w/a")),
            (r#"{"text": "t", "ref": "w/a"}"#, Ok(Source::Text("t".into()))),
            (r#"{"label": "A"}"#, Err("expected one of `ref` and `text`".into())),
        ] {
            let entry: ContextEntry = serde_json::from_str(json).unwrap();
            assert_eq!(entry.source(), source, "{json}");
        }
    }
}
