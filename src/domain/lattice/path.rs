//! Lattice paths: a validated type, so that no raw string reaches a store.

use crate::visible::{self, first_hidden};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use unicode_normalization::is_nfc;

/// Bytes of a segment at most.
pub const MAX_SEGMENT_BYTES: usize = 256;
/// Segments of a path at most.
pub const MAX_SEGMENTS: usize = 32;
/// Bytes of a path at most.
pub const MAX_PATH_BYTES: usize = 2048;

/// The first segment of a path, which names the kind of data under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Namespace {
    /// `w`: workspace that the owner's agents share.
    Workspace,
    /// `o`: pins of operations.
    Pins,
    /// `n`: private notes of an agent.
    Notes,
    /// `c`: scratch space of a session.
    Session,
    /// `t`: scratch space of a job.
    Job,
    /// `g`: records of agents.
    Agents,
    /// `j`: jobs of the owner.
    Jobs,
    /// `s`: secrets of the owner.
    Secrets,
    /// `a`: assets of the owner.
    Assets,
    /// `v`: data of the venue.
    Venue,
}

impl Namespace {
    /// Every namespace, in the order of the documentation.
    pub const ALL: [Self; 10] = [
        Self::Workspace,
        Self::Pins,
        Self::Notes,
        Self::Session,
        Self::Job,
        Self::Agents,
        Self::Jobs,
        Self::Secrets,
        Self::Assets,
        Self::Venue,
    ];

    /// Returns the prefix without its slash.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Workspace => "w",
            Self::Pins => "o",
            Self::Notes => "n",
            Self::Session => "c",
            Self::Job => "t",
            Self::Agents => "g",
            Self::Jobs => "j",
            Self::Secrets => "s",
            Self::Assets => "a",
            Self::Venue => "v",
        }
    }

    /// Returns the description that a prompt has.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Workspace => "workspace shared by your owner's agents",
            Self::Pins => "named operations kept for reuse",
            Self::Notes => "your private notes, kept across sessions",
            Self::Session => "scratch space of this session",
            Self::Job => "scratch space of the current job, gone when it ends",
            Self::Agents => "agent records: status, config, timeline (read-only)",
            Self::Jobs => "jobs: status, input, output (read-only)",
            Self::Secrets => "secrets: names only",
            Self::Assets => "immutable assets, named by the SHA-256 of their content",
            Self::Venue => "venue: v/ops is the operations catalog (read-only)",
        }
    }

    /// Whether tools of an agent may write in it.
    pub const fn is_writable(self) -> bool {
        match self {
            Self::Workspace | Self::Pins | Self::Notes | Self::Session | Self::Job => true,
            Self::Agents | Self::Jobs | Self::Secrets | Self::Assets | Self::Venue => false,
        }
    }
}

/// Reason why a path was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("illegal path `{path}`: {rule}")]
pub struct PathError {
    /// The refused path, cut to a readable length.
    pub path: String,
    /// The rule that it breaks.
    pub rule: PathRule,
}

/// The rule that a path breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathRule {
    /// The path is longer than [`MAX_PATH_BYTES`]; holds its bytes.
    #[error("expected at most {MAX_PATH_BYTES} bytes, got {0}")]
    TooLong(usize),
    /// The path has more than [`MAX_SEGMENTS`] segments; holds their number.
    #[error("expected at most {MAX_SEGMENTS} segments, got {0}")]
    TooManySegments(usize),
    /// The path has no segment.
    #[error("the path is empty")]
    Empty,
    /// No namespace has the first segment as its prefix.
    #[error("unknown namespace `{0}`, expected one of {known}", known = list_prefixes())]
    UnknownNamespace(String),
    /// The value is neither a text nor a list of keys.
    #[error("expected a string or an array of strings")]
    NotAPath,
    /// A segment is empty.
    #[error("empty segment")]
    EmptySegment,
    /// A segment is `.` or `..`.
    #[error("segment `{0}` is not allowed")]
    DotSegment(String),
    /// A segment has a control character.
    #[error("control characters are not allowed")]
    ControlCharacter,
    /// A segment has an invisible character.
    #[error("{}", visible::RULE)]
    HiddenCharacter,
    /// A segment is longer than [`MAX_SEGMENT_BYTES`]; holds its bytes.
    #[error("a segment has {0} bytes, expected at most {MAX_SEGMENT_BYTES}")]
    SegmentTooLong(usize),
    /// A segment is not in Unicode normalisation form C.
    #[error("expected Unicode normalisation form C")]
    NotNormalised,
}

/// Why a path can't be that of an output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutputPathError {
    /// The text is no path.
    #[error(transparent)]
    Illegal(#[from] PathError),
    /// The path lies elsewhere.
    #[error("expected a path below `w/` or `o/`, got `{0}`")]
    Elsewhere(Path),
}

fn list_prefixes() -> String {
    Namespace::ALL.iter().map(|namespace| format!("{}/", namespace.prefix())).collect::<Vec<_>>().join(" ")
}

/// A legal lattice path: a namespace and the segments below it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Path {
    namespace: Namespace,
    segments: Vec<String>,
}

impl Path {
    /// Parses the path of an output: below `w/` or `o/`, which mean the same to all agents.
    pub fn parse_output(text: &str) -> Result<Self, OutputPathError> {
        let path = Self::parse(text)?;
        if matches!(path.namespace(), Namespace::Workspace | Namespace::Pins) && !path.segments().is_empty() {
            return Ok(path);
        }
        Err(OutputPathError::Elsewhere(path))
    }

    /// Parses `w/records/123`; one leading and one trailing slash are dropped. `\/` is a slash inside a key, as in the
    /// printed form of a path.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let fail = |rule: PathRule| PathError { path: text.chars().take(120).collect(), rule };
        if text.len() > MAX_PATH_BYTES {
            return Err(fail(PathRule::TooLong(text.len())));
        }
        let inner = text.strip_prefix('/').unwrap_or(text);
        let inner = inner.strip_suffix('/').filter(|rest| !ends_escaping(rest)).unwrap_or(inner);
        if inner.is_empty() {
            return Err(fail(PathRule::Empty));
        }
        Self::from_segments(split(inner)).map_err(|e| fail(e.rule))
    }

    /// Makes a path of its segments, the namespace prefix first; a key may contain `/`.
    pub fn from_segments(mut segments: Vec<String>) -> Result<Self, PathError> {
        let shown: String = segments.join("/").chars().take(120).collect();
        let fail = |rule: PathRule| PathError { path: shown.clone(), rule };
        if segments.len() > MAX_SEGMENTS {
            return Err(fail(PathRule::TooManySegments(segments.len())));
        }
        for segment in &segments {
            check_segment(segment).map_err(fail)?;
        }
        if segments.is_empty() {
            return Err(fail(PathRule::Empty));
        }
        let first = segments.remove(0);
        let namespace = Namespace::ALL.into_iter().find(|n| n.prefix() == first);
        let namespace = namespace.ok_or_else(|| fail(PathRule::UnknownNamespace(first)))?;
        Ok(Self { namespace, segments })
    }

    /// Reads a path from a string or a JSON array of keys.
    pub fn from_json(value: &Value) -> Result<Self, PathError> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Array(keys) => {
                let segments = keys.iter().map(|key| match key {
                    Value::String(text) => Some(text.clone()),
                    Value::Number(number) => Some(number.to_string()),
                    Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
                });
                segments.collect::<Option<Vec<_>>>().map_or_else(|| Err(not_a_path(value)), Self::from_segments)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Err(not_a_path(value)),
        }
    }

    /// Returns the namespace of the path.
    pub const fn namespace(&self) -> Namespace {
        self.namespace
    }

    /// Returns the path of a key below this one, for display only: its length isn't checked.
    #[must_use]
    pub fn child(&self, key: &str) -> Self {
        let segments = self.segments.iter().cloned().chain([key.to_owned()]).collect();
        Self { namespace: self.namespace, segments }
    }

    /// Returns the segments below the namespace prefix.
    pub fn segments(&self) -> &[String] {
        &self.segments
    }
}

/// Reads a path as [`Path::from_json`] does.
impl<'de> Deserialize<'de> for Path {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::from_json(&Value::deserialize(from)?).map_err(D::Error::custom)
    }
}

impl JsonSchema for Path {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Path".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = keys_schema(generator);
        schema.insert("description".into(), "lattice path, e.g. w/records/123, or an array of keys".into());
        schema
    }
}

/// Returns the schema of a path: a text, or an array of keys.
pub fn keys_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": ["string", "integer"]}}]})
}

fn not_a_path(value: &Value) -> PathError {
    PathError { path: value.to_string().chars().take(120).collect(), rule: PathRule::NotAPath }
}

pub(super) fn check_segment(segment: &str) -> Result<(), PathRule> {
    if segment.is_empty() {
        Err(PathRule::EmptySegment)
    } else if segment == "." || segment == ".." {
        Err(PathRule::DotSegment(segment.to_owned()))
    } else if segment.chars().any(char::is_control) {
        Err(PathRule::ControlCharacter)
    } else if first_hidden(segment).is_some() {
        Err(PathRule::HiddenCharacter)
    } else if segment.len() > MAX_SEGMENT_BYTES {
        Err(PathRule::SegmentTooLong(segment.len()))
    } else if !is_nfc(segment) {
        Err(PathRule::NotNormalised)
    } else {
        Ok(())
    }
}

/// Whether a `/` behind this text is part of a key: an odd number of backslashes stands before it.
fn ends_escaping(text: &str) -> bool {
    text.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// Splits a path into keys; `\/` is a slash inside a key, and `\\/` is the last backslash of a key before a separator.
fn split(text: &str) -> Vec<String> {
    let (mut segments, mut segment, mut backslashes) = (Vec::new(), String::new(), 0);
    for char in text.chars() {
        if char == '\\' {
            backslashes += 1;
            continue;
        }
        let kept = if char == '/' { backslashes / 2 } else { backslashes };
        segment.extend(std::iter::repeat_n('\\', kept));
        if char == '/' && backslashes % 2 == 0 {
            segments.push(std::mem::take(&mut segment));
        } else {
            segment.push(char);
        }
        backslashes = 0;
    }
    segment.extend(std::iter::repeat_n('\\', backslashes));
    segments.push(segment);
    segments
}

/// A `/` inside a key is printed as `\/`, so that [`Path::parse`] reads the text as the same path.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.namespace.prefix())?;
        for (at, segment) in self.segments.iter().enumerate() {
            f.write_str("/")?;
            let mut parts = segment.split('/').peekable();
            while let Some(part) = parts.next() {
                f.write_str(part)?;
                let is_last = parts.peek().is_none();
                if is_last && at + 1 == self.segments.len() {
                    break;
                }
                // Backslashes before a slash are doubled, which tells them from those that escape it.
                let backslashes = part.len() - part.trim_end_matches('\\').len();
                f.write_str(&part[part.len() - backslashes..])?;
                if !is_last {
                    f.write_str("\\/")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn legal_paths_parse_to_their_normal_form() {
        for (text, normal) in [
            ("w/a/b", "w/a/b"),
            ("/w/a/", "w/a"),
            ("w", "w"),
            ("g/agent/timeline/0/end", "g/agent/timeline/0/end"),
            ("w/%2e%2e/x", "w/%2e%2e/x"),
        ] {
            assert_eq!(Path::parse(text).unwrap().to_string(), normal, "{text}");
        }
    }

    #[test]
    fn illegal_paths_are_refused_with_their_rule() {
        for (text, rule) in [
            ("", "the path is empty"),
            ("/", "the path is empty"),
            ("w//a", "empty segment"),
            ("//w", "empty segment"),
            ("w/../s", "segment `..` is not allowed"),
            ("w/./s", "segment `.` is not allowed"),
            ("w/a\u{0}", "control characters are not allowed"),
            ("w/e\u{301}", "expected Unicode normalisation form C"),
            ("w/ven\u{200b}dor", visible::RULE),
            ("w/a\u{2028}b", visible::RULE),
            ("x/a", "unknown namespace `x`, expected one of w/ o/ n/ c/ t/ g/ j/ s/ a/ v/"),
        ] {
            assert_eq!(Path::parse(text).unwrap_err().rule.to_string(), rule, "{text:?}");
        }
        let long = format!("w/{}", "x".repeat(257));
        let rule = |text: &str| Path::parse(text).unwrap_err().rule.to_string();
        assert!(rule(&long).contains("expected at most 256"));
        assert!(rule(&["w"; 33].join("/")).contains("32 segments"));
        assert!(rule(&format!("w/{}", "x/".repeat(1100))).contains("2048 bytes"));
    }

    #[test]
    fn the_text_of_a_path_is_read_as_the_same_path() {
        for (keys, text) in [
            (vec!["w", "a/b"], r"w/a\/b"),
            (vec!["w", "/"], r"w/\/"),
            (vec!["w", "https://x/y", "0"], r"w/https:\/\/x\/y/0"),
            (vec!["w", r"a\b"], r"w/a\b"),
            (vec!["w", r"a\", "b"], r"w/a\\/b"),
            (vec!["w", r"a\/b"], r"w/a\\\/b"),
            (vec!["w", r"a\"], r"w/a\"),
        ] {
            let path = Path::from_segments(keys.into_iter().map(str::to_owned).collect()).unwrap();
            assert_eq!(path.to_string(), text);
            assert_eq!(Path::parse(text), Ok(path.clone()), "{text}");
            assert_eq!(Path::parse(&format!("/{text}")), Ok(path), "{text}");
        }
        assert_eq!(Path::parse(r"w/a\/b/").unwrap().segments(), ["a/b"]);
    }

    #[test]
    fn an_array_of_keys_may_hold_slashes() {
        let path = Path::from_json(&json!(["w", "urls", "https://x/y", 0])).unwrap();
        assert_eq!(path.segments(), ["urls", "https://x/y", "0"]);
        assert_eq!(path.to_string(), "w/urls/https:\\/\\/x\\/y/0");
        assert!(Path::from_json(&json!(["w", ".."])).is_err());
        assert!(Path::from_json(&json!({"w": 1})).is_err());
    }
}
