//! `contextMapping`: rows `{key, source, fallback?}`, parsed once.

use crate::decode;
use crate::lattice::value::type_name;
use crate::nearest::did_you_mean;
use crate::values::{Tier, Values};
use crate::visible::{first_hidden, quote_foreign};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fmt;

mod error;

pub use error::{MappingKeyError, RowSourceError};

/// Number of rows of one configuration at most: each turn reads every one.
const ROWS: usize = 256;

/// Bytes of a key at most.
pub const KEY_BYTES: usize = 128;

/// Source of a row's value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RowSource {
    /// `session.k`, `user.k`, `agent.k`, `project.k`: starts at that tier and goes down.
    From(Tier, String),
    /// `k`: searches all tiers.
    Walk(String),
    /// `_global`: the project tier only, at the row's own key.
    Global,
    /// `CONSTANT:x`: the value x as JSON, or as text where it isn't JSON.
    Constant(Value),
    /// `_auto`: all tiers at the row's own key, and injected into arguments of the same name.
    Auto,
    /// `LLM`: the model fills it in.
    Llm,
}

impl RowSource {
    /// Returns the precedence, 0 first: constants, keys of tiers, `_global`, `_auto`, `LLM`.
    pub const fn rank(&self) -> u8 {
        match self {
            Self::Constant(_) => 0,
            Self::From(..) | Self::Walk(_) => 1,
            Self::Global => 2,
            Self::Auto => 3,
            Self::Llm => 4,
        }
    }

    /// Parses a source that an author wrote; a misspelt name of a tier is an error.
    pub fn parse_written(text: &str) -> Result<Self, RowSourceError> {
        if let Some((first, rest)) = text.split_once('.')
            && let Some(tier) = TIERS.iter().find(|tier| is_misspelt(first, tier))
        {
            return Err(RowSourceError::Tier { first: first.to_owned(), rest: rest.to_owned(), nearest: tier });
        }
        Self::parse(text)
    }

    /// Parses a source in its stored form.
    pub fn parse(text: &str) -> Result<Self, RowSourceError> {
        if let Some(constant) = text.strip_prefix("CONSTANT:") {
            let value =
                decode::lenient_json(constant.as_bytes()).unwrap_or_else(|_| Value::String(constant.to_owned()));
            return Ok(Self::Constant(value));
        }
        match text {
            "_global" => return Ok(Self::Global),
            "_auto" => return Ok(Self::Auto),
            "LLM" => return Ok(Self::Llm),
            _ => {}
        }
        if text.starts_with('_') || text.contains(':') || text.eq_ignore_ascii_case("llm") {
            return Err(RowSourceError::Unknown(text.to_owned()));
        }
        for (prefix, tier) in
            [("session", Tier::Session), ("user", Tier::User), ("agent", Tier::Agent), ("project", Tier::Project)]
        {
            if let Some(key) = text.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('.')) {
                check_key(key).map_err(|error| RowSourceError::TierKey { text: text.to_owned(), error })?;
                return Ok(Self::From(tier, key.to_owned()));
            }
            let (first, rest) = text.split_once('.').unwrap_or((text, ""));
            if !rest.is_empty() && first.eq_ignore_ascii_case(prefix) {
                return Err(RowSourceError::Unknown(text.to_owned()));
            }
        }
        check_key(text)?;
        Ok(Self::Walk(text.to_owned()))
    }
}

/// Names of tiers at the beginning of a source.
const TIERS: [&str; 4] = ["session", "user", "agent", "project"];

/// Whether a text is one slip of the pen away from a tier; its plural is another word.
fn is_misspelt(text: &str, tier: &str) -> bool {
    let plural = text.strip_suffix('s') == Some(tier);
    // No longer text is one slip away, and a comparison costs the product of two lengths.
    let is_near = text.len() <= tier.len() + 4;
    text != tier && !plural && is_near && strsim::osa_distance(&text.to_lowercase(), tier) == 1
}

impl TryFrom<String> for RowSource {
    type Error = RowSourceError;

    fn try_from(text: String) -> Result<Self, RowSourceError> {
        Self::parse(&text)
    }
}

impl From<RowSource> for String {
    fn from(source: RowSource) -> Self {
        source.to_string()
    }
}

impl fmt::Display for RowSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::From(tier, key) => write!(f, "{}.{key}", tier.as_str()),
            Self::Walk(key) => f.write_str(key),
            Self::Global => f.write_str("_global"),
            Self::Constant(value) => write!(f, "CONSTANT:{value}"),
            Self::Auto => f.write_str("_auto"),
            Self::Llm => f.write_str("LLM"),
        }
    }
}

/// One row of the mapping.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MappingRow {
    /// Key that the row defines.
    pub key: String,
    /// Source of the value.
    pub source: RowSource,
    /// Value that is used if the source has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Value>,
}

/// The rows of a configuration. Several rows of one key are tried in the order of precedence.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContextMapping {
    rows: Vec<MappingRow>,
}

/// A rule that a mapping breaks, with its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{place}`: {reason}")]
pub struct MappingError {
    /// Place of the error, e.g. `contextMapping[2].source`.
    pub place: String,
    /// Rule that it breaks.
    pub reason: String,
}

fn mapping_error(place: impl Into<String>, reason: impl fmt::Display) -> MappingError {
    MappingError { place: place.into(), reason: reason.to_string() }
}

impl ContextMapping {
    /// Reads both forms: a list of rows, and a map from key to source, row or constant. In a map, a text is a source, a
    /// map is a row without its key, and any other value is a constant.
    pub fn parse(place: &str, value: &Value) -> Result<Self, MappingError> {
        let rows = match value {
            Value::Array(rows) => {
                let numbered = rows.iter().enumerate();
                numbered.map(|(n, row)| parse_row(&format!("{place}[{n}]"), row)).collect::<Result<Vec<_>, _>>()?
            }
            Value::Object(map) => {
                let keyed = map.iter();
                keyed
                    .map(|(key, value)| parse_keyed_row(&format!("{place}.{key}"), key, value))
                    .collect::<Result<_, _>>()?
            }
            other => {
                return Err(mapping_error(
                    place,
                    format!("expected a list of rows or a map, got {}", type_name(other)),
                ));
            }
        };
        if rows.len() > ROWS {
            return Err(mapping_error(place, format!("expected at most {ROWS} rows, got {}", rows.len())));
        }
        let mut mapping = Self { rows };
        mapping.check_unambiguous(place)?;
        mapping.rows.sort_by_key(|row| row.source.rank());
        Ok(mapping)
    }

    /// Refuses two rows of one key and one rank: nothing says which of them wins.
    fn check_unambiguous(&self, place: &str) -> Result<(), MappingError> {
        for (n, row) in self.rows.iter().enumerate() {
            let rank = row.source.rank();
            if self.rows[..n].iter().any(|other| other.key == row.key && other.source.rank() == rank) {
                return Err(mapping_error(
                    format!("{place}[{n}]"),
                    format!("key `{}` has another row of the same precedence", row.key),
                ));
            }
        }
        Ok(())
    }

    /// Returns all rows, those of higher precedence first.
    pub fn rows(&self) -> &[MappingRow] {
        &self.rows
    }

    /// Returns the rows of a key, those of higher precedence first.
    pub fn rows_of<'m>(&'m self, key: &'m str) -> impl Iterator<Item = &'m MappingRow> + 'm {
        self.rows.iter().filter(move |row| row.key == key)
    }

    /// Returns the keys that may be injected by the name of an argument.
    pub fn auto_keys(&self) -> impl Iterator<Item = &str> + '_ {
        self.rows.iter().filter(|row| row.source == RowSource::Auto).map(|row| row.key.as_str())
    }

    /// Returns the constants, which are the agent tier.
    pub fn constants(&self) -> Values {
        let constant = |row: &MappingRow| match &row.source {
            RowSource::Constant(value) => Some((row.key.clone(), value.clone())),
            RowSource::From(..) | RowSource::Walk(_) | RowSource::Global | RowSource::Auto | RowSource::Llm => None,
        };
        self.rows.iter().filter_map(constant).collect()
    }

    /// Returns the mapping with a constant for each key that has no row, ahead of all rows; keys that no placeholder can
    /// name are left out.
    #[must_use]
    pub fn with_constants(mut self, constants: impl IntoIterator<Item = (String, Value)>) -> Self {
        for (key, value) in constants {
            if check_key(&key).is_ok() && self.rows_of(&key).next().is_none() {
                self.rows.insert(0, MappingRow { key, source: RowSource::Constant(value), fallback: None });
            }
        }
        self
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Checks a key of a row or a binding.
pub(super) fn check_key(key: &str) -> Result<(), MappingKeyError> {
    if key.is_empty() {
        Err(MappingKeyError::Empty)
    } else if key.len() > KEY_BYTES {
        Err(MappingKeyError::TooLong(key.len()))
    } else if key.chars().any(|c| c.is_control() || c.is_whitespace() || "{}$".contains(c)) {
        Err(MappingKeyError::Illegal(key.to_owned()))
    } else if first_hidden(key).is_some() {
        Err(MappingKeyError::Hidden(key.to_owned()))
    } else {
        Ok(())
    }
}

fn parse_row(place: &str, row: &Value) -> Result<MappingRow, MappingError> {
    let Value::Object(map) = row else {
        return Err(mapping_error(
            place,
            format!("expected a row `{{key, source, fallback?}}`, got {}", type_name(row)),
        ));
    };
    check_keys(place, map, &["key", "source", "fallback"])?;
    let at = || format!("{place}.key");
    let key = match map.get("key") {
        None => return Err(mapping_error(place, "expected `key`")),
        Some(Value::String(key)) => key,
        Some(other) => return Err(mapping_error(at(), format!("expected a text, got {}", type_name(other)))),
    };
    check_key(key).map_err(|error| mapping_error(at(), error))?;
    Ok(MappingRow { key: key.clone(), source: source(place, map)?, fallback: fallback(map) })
}

fn parse_keyed_row(place: &str, key: &str, value: &Value) -> Result<MappingRow, MappingError> {
    check_key(key).map_err(|error| mapping_error(place, error))?;
    let key = key.to_owned();
    match value {
        Value::String(text) => {
            let source = RowSource::parse_written(text).map_err(|error| mapping_error(place, error))?;
            Ok(MappingRow { key, source, fallback: None })
        }
        Value::Object(map) => {
            check_keys(place, map, &["source", "fallback"])?;
            Ok(MappingRow { key, source: source(place, map)?, fallback: fallback(map) })
        }
        constant @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_)) => {
            Ok(MappingRow { key, source: RowSource::Constant(constant.clone()), fallback: None })
        }
    }
}

fn source(place: &str, map: &Map<String, Value>) -> Result<RowSource, MappingError> {
    let at = || format!("{place}.source");
    match map.get("source") {
        None => Err(mapping_error(place, "expected `source`; a constant map is written `CONSTANT:{…}`")),
        Some(Value::String(text)) => RowSource::parse_written(text).map_err(|error| mapping_error(at(), error)),
        Some(other) => Err(mapping_error(at(), format!("expected a text, got {}", type_name(other)))),
    }
}

fn fallback(map: &Map<String, Value>) -> Option<Value> {
    map.get("fallback").filter(|value| !value.is_null()).cloned()
}

fn check_keys(place: &str, map: &Map<String, Value>, known: &[&str]) -> Result<(), MappingError> {
    let Some(key) = map.keys().find(|key| !known.contains(&key.as_str())) else { return Ok(()) };
    let hint = did_you_mean(key, known);
    Err(mapping_error(place, format!("unknown key `{}`{hint}", quote_foreign(key))))
}

/// Returns the list form, which is also the stored form.
impl From<&ContextMapping> for Value {
    fn from(mapping: &ContextMapping) -> Self {
        json!(mapping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: &Value) -> Result<ContextMapping, String> {
        ContextMapping::parse("contextMapping", value).map_err(|e| e.to_string())
    }

    #[test]
    fn every_source_form_is_parsed_and_written_again() {
        for (text, expected) in [
            ("session.k", RowSource::From(Tier::Session, "k".into())),
            ("session.a.0.b", RowSource::From(Tier::Session, "a.0.b".into())),
            ("user.name", RowSource::From(Tier::User, "name".into())),
            ("agent.k", RowSource::From(Tier::Agent, "k".into())),
            ("project.k", RowSource::From(Tier::Project, "k".into())),
            ("_global", RowSource::Global),
            ("_auto", RowSource::Auto),
            ("LLM", RowSource::Llm),
            ("k", RowSource::Walk("k".into())),
            ("customer.id", RowSource::Walk("customer.id".into())),
            ("session_id", RowSource::Walk("session_id".into())),
            ("CONSTANT:hello", RowSource::Constant(json!("hello"))),
            ("CONSTANT:", RowSource::Constant(json!(""))),
            ("CONSTANT:42", RowSource::Constant(json!(42))),
            ("CONSTANT:{\"a\":[1]}", RowSource::Constant(json!({"a": [1]}))),
            ("CONSTANT:{a", RowSource::Constant(json!("{a"))),
        ] {
            let parsed = RowSource::parse(text).unwrap();
            assert_eq!(parsed, expected, "{text}");
            assert_eq!(RowSource::parse(&parsed.to_string()), Ok(parsed), "{text}");
        }
    }

    #[test]
    fn an_unknown_source_is_refused_with_the_nearest_form() {
        for (text, hint) in [
            ("_globl", "did you mean `_global`"),
            ("_automatic", "did you mean `_auto`"),
            ("constant:x", "did you mean `CONSTANT:`"),
            ("CONST:x", "did you mean `CONSTANT:`"),
            ("llm", "did you mean `LLM`"),
            ("Session.k", "did you mean `session.`"),
            ("session.", "expected a key"),
            ("", "expected a key"),
            ("a b", "illegal key `a b`"),
            ("${k}", "illegal key"),
        ] {
            let error = RowSource::parse(text).unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn a_misspelt_tier_is_no_key() {
        for (text, hint) in [
            ("sesion.k", Some("did you mean `session.k`")),
            ("sessoin.a.b", Some("did you mean `session.a.b`")),
            ("usr.name", Some("did you mean `user.name`")),
            ("agnt.k", Some("did you mean `agent.k`")),
            ("projcet.k", Some("did you mean `project.k`")),
            ("session.sesion.k", None),
            ("users.0", None),
            ("customer.id", None),
            ("product.id", None),
            ("sesion", None),
        ] {
            let error = RowSource::parse_written(text).err().map(|error| error.to_string());
            assert_eq!(error.is_some(), hint.is_some(), "{text}: {error:?}");
            assert!(error.unwrap_or_default().contains(hint.unwrap_or_default()), "{text}");
        }
    }

    #[test]
    fn a_list_of_rows_and_a_map_mean_the_same() {
        let list = json!([
            {"key": "from", "source": "session.user_email", "fallback": "nobody"},
            {"key": "greeting", "source": "CONSTANT:hello"},
            {"key": "limits", "source": "CONSTANT:[1,2]"},
        ]);
        let map = json!({
            "from": {"source": "session.user_email", "fallback": "nobody"},
            "greeting": "CONSTANT:hello",
            "limits": [1, 2],
        });
        let (list, map) = (parse(&list).unwrap(), parse(&map).unwrap());
        assert_eq!(list, map);
        assert_eq!(Value::Object(list.constants()), json!({"greeting": "hello", "limits": [1, 2]}));
        assert_eq!(parse(&Value::from(&list)), Ok(list));
    }

    #[test]
    fn rows_of_one_key_stand_in_the_order_of_precedence() {
        let rows = json!([
            {"key": "k", "source": "LLM"}, {"key": "k", "source": "_auto"}, {"key": "k", "source": "_global"},
            {"key": "k", "source": "session.k"}, {"key": "k", "source": "CONSTANT:1"},
        ]);
        let mapping = parse(&rows).unwrap();
        let sources: Vec<_> = mapping.rows_of("k").map(|row| row.source.to_string()).collect();
        assert_eq!(sources, ["CONSTANT:1", "session.k", "_global", "_auto", "LLM"]);
    }

    #[test]
    fn bad_rows_are_refused_with_their_place() {
        let ok = json!({"key": "a", "source": "b"});
        for (value, expected) in [
            (json!("x"), "`contextMapping`: expected a list of rows or a map, got string"),
            (json!([1]), "`contextMapping[0]`: expected a row `{key, source, fallback?}`, got number"),
            (json!([ok, {"source": "b"}]), "`contextMapping[1]`: expected `key`"),
            (json!([ok, ok]), "`contextMapping[1]`: key `a` has another row of the same precedence"),
            (json!([{"key": 1, "source": "b"}]), "`contextMapping[0].key`: expected a text, got number"),
            (json!([{"key": "", "source": "b"}]), "`contextMapping[0].key`: expected a key, got an empty text"),
            (json!([ok, {"key": "b", "source": 1}]), "`contextMapping[1].source`: expected a text, got number"),
            (json!([{"key": "a", "sorce": "b"}]), "`contextMapping[0]`: unknown key `sorce`, did you mean `source`"),
            (
                json!({"a": {"fallback": 1}}),
                "`contextMapping.a`: expected `source`; a constant map is written `CONSTANT:{…}`",
            ),
        ] {
            assert_eq!(parse(&value).unwrap_err(), expected);
        }
        let error = parse(&json!([ok, ok, {"key": "c", "source": "_glob"}])).unwrap_err();
        assert!(error.starts_with("`contextMapping[2].source`: unknown source `_glob`"), "{error}");
        let many: Vec<_> = (0..=ROWS).map(|n| json!({"key": format!("k{n}"), "source": "x"})).collect();
        assert_eq!(parse(&json!(many)).unwrap_err(), "`contextMapping`: expected at most 256 rows, got 257");
    }
}
