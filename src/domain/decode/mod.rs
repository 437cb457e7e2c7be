//! Decodes data from outside with one limit of depth, one limit of values, maps only as maps, and errors that name
//! their place.
//!
//! ```text
//! text ─▶ json (depth, no key twice) ─▶ value ─▶ typed (a map for every struct) ─▶ T
//! ```
//!
//! Data that this venue has written itself is read by [`read_stored`]; `tests/it/tidy` checks that no other code reads
//! JSON or TOML.

mod json5;
mod number;
mod parse;
mod place;
mod propose;
mod strict;

use crate::limits::{DECODER_DEPTH, MESSAGE_DEPTH, MESSAGE_PARTS, RESULT_DEPTH, VALUE_DEPTH, VALUE_PARTS};
use crate::lines;
use crate::visible::cut_error;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};

pub use number::{parse_number, rounded_number};
pub use place::{Code, DataError, Fact};
pub use propose::typed_with_hint;

/// Longest line of a TOML text that an error shows.
const SHOWN_LINE_BYTES: usize = 200;

/// UTF-8 form of the byte order mark.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Returns a text without the byte order mark that some editors and clients put before it.
pub fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes)
}

/// Reads JSON from outside: at most [`VALUE_DEPTH`] deep, at most [`VALUE_PARTS`] values, no key twice in one map.
pub fn json(bytes: &[u8]) -> Result<Value, DataError> {
    parse::parse(bytes, parse::ParseLimits { depth: VALUE_DEPTH, parts: VALUE_PARTS, unique: true, cut: false })
}

/// Reads JSON like [`json`], and JSON5; for a text that is neither the error is that of JSON.
pub fn json5(bytes: &[u8]) -> Result<Value, DataError> {
    json(bytes).or_else(|error| {
        if error.fact.code != Code::Syntax {
            return Err(error);
        }
        let rewritten = std::str::from_utf8(bytes).ok().and_then(json5::to_json);
        let Some(text) = rewritten else { return Err(error) };
        json(text.as_bytes()).map_err(|other| if other.fact.code == Code::Syntax { error } else { other })
    })
}

/// Reads JSON like [`json`], but a key may be given twice: the last one counts.
pub fn lenient_json(bytes: &[u8]) -> Result<Value, DataError> {
    parse::parse(bytes, parse::ParseLimits { depth: VALUE_DEPTH, parts: VALUE_PARTS, unique: false, cut: false })
}

/// Reads an answer of a server like [`lenient_json`]. Parts that are too deep become a text that says so: one of them must
/// not cost the others.
pub fn answer_json(bytes: &[u8]) -> Result<Value, DataError> {
    let limits = parse::ParseLimits { depth: MESSAGE_DEPTH, parts: VALUE_PARTS, unique: false, cut: false };
    parse::parse(bytes, limits).map(limit_depth)
}

/// Reads a message like [`json`], with at most `depth` levels, because the venue itself may have sent it. A message
/// from any other sender must pass [`check`].
pub fn message_json(bytes: &[u8], depth: usize) -> Result<Value, DataError> {
    parse::parse(bytes, parse::ParseLimits { depth, parts: MESSAGE_PARTS, unique: true, cut: false })
}

/// Reads a typed value from a JSON value. A struct is a map; a list is an error.
pub fn into_type<T: DeserializeOwned>(value: Value) -> Result<T, DataError> {
    T::deserialize(strict::StrictValue(value)).map_err(DataError::from)
}

/// Reads a field for which null is a value and not an absent field; `#[serde(default)]` stands with it.
pub fn nullable_field<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// Reads JSON by [`json`] and [`into_type`].
pub fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DataError> {
    into_type(json(bytes)?)
}

/// Reads a TOML text as a JSON value.
pub fn toml(text: &str) -> Result<Value, TomlError> {
    let table: toml::Table = text.parse().map_err(TomlError::Syntax)?;
    check_floats(text)?;
    let value = serde_json::to_value(table)
        .map_err(|error| TomlError::Value(DataError::root(Code::Type, error.to_string())))?;
    check(&value).map_err(TomlError::Value)?;
    Ok(value)
}

/// Refuses a TOML float that JSON can't write, because it would become null, and one that would be read as another
/// number.
fn check_floats(text: &str) -> Result<(), TomlError> {
    let table = DeTable::parse(text).map_err(TomlError::Syntax)?;
    let Some((reason, mut steps)) = refused_float_in_table(table.get_ref()) else { return Ok(()) };
    steps.reverse();
    Err(TomlError::Value(DataError::from_steps(&steps, Code::Limit, reason)))
}

/// Finds the first float that is refused; returns the reason, and the steps to it, the last one first.
fn refused_float(value: &DeValue<'_>) -> Option<(String, Vec<place::PathStep>)> {
    match value {
        DeValue::Float(float) => Some((float_refusal(float.as_str())?, Vec::new())),
        DeValue::Array(items) => items.iter().enumerate().find_map(|(at, item)| {
            let (reason, mut steps) = refused_float(item.get_ref())?;
            steps.push(place::PathStep::Index(at));
            Some((reason, steps))
        }),
        DeValue::Table(table) => refused_float_in_table(table),
        DeValue::String(_) | DeValue::Integer(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => None,
    }
}

fn refused_float_in_table(table: &DeTable<'_>) -> Option<(String, Vec<place::PathStep>)> {
    table.iter().find_map(|(key, item)| {
        let (reason, mut steps) = refused_float(item.get_ref())?;
        steps.push(place::PathStep::Key(key.get_ref().to_string()));
        Some((reason, steps))
    })
}

fn float_refusal(literal: &str) -> Option<String> {
    if literal.parse::<f64>().is_ok_and(|float| !float.is_finite()) {
        return Some(format!("expected a finite number, got {literal}"));
    }
    number::check_literal(literal).map(|reason| number::number_error(Some(literal), reason))
}

/// Why a TOML text can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TomlError {
    /// The text is not TOML.
    #[error("{}", syntax_text(.0))]
    Syntax(toml::de::Error),
    /// The value breaks a rule.
    #[error("{0}")]
    Value(DataError),
}

/// Writes the place, the line and the reason of an error, without lines that are too long.
fn syntax_text(error: &toml::de::Error) -> String {
    let text = error.to_string();
    if text.lines().all(|line| line.len() <= SHOWN_LINE_BYTES) {
        return text;
    }
    let place = text.lines().next().filter(|line| line.len() <= SHOWN_LINE_BYTES).unwrap_or("TOML parse error");
    cut_error(format!("{place}\n{}", error.message()))
}

/// Reads data that the venue has written itself. Older versions stored data without a limit of depth; parts that are
/// too deep for the decoder become a text that says so, because no stored data may stop a session.
pub fn read_stored<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    match serde_json::from_slice(bytes) {
        Err(error) if error.is_syntax() && is_deeper(bytes) => {
            match parse::parse(
                bytes,
                parse::ParseLimits { depth: MESSAGE_DEPTH, parts: usize::MAX, unique: false, cut: true },
            ) {
                Ok(value) => serde_json::from_value(value),
                Err(_) => Err(error),
            }
        }
        read => read,
    }
}

/// Whether a JSON text has more levels than the decoder reads.
#[must_use]
pub fn is_deeper(bytes: &[u8]) -> bool {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => depth += 1,
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DECODER_DEPTH {
            return true;
        }
    }
    false
}

/// Returns the text in place of a part that is nested too deeply.
fn too_deep_text(depth: usize) -> String {
    format!("{}nested deeper than {depth} levels]", lines::NOT_SHOWN)
}

/// Checks that a value is at most [`VALUE_DEPTH`] deep and has at most [`VALUE_PARTS`] values.
pub fn check(value: &Value) -> Result<(), DataError> {
    check_to(value, VALUE_DEPTH)?;
    let mut left = VALUE_PARTS;
    if subtract_parts(value, &mut left) {
        Ok(())
    } else {
        Err(DataError::root(Code::Limit, place::too_many(VALUE_PARTS)))
    }
}

/// Subtracts a value and all values in it from `left`; returns whether there were enough.
fn subtract_parts(value: &Value, left: &mut usize) -> bool {
    let Some(rest) = left.checked_sub(1) else { return false };
    *left = rest;
    match value {
        Value::Object(map) => map.values().all(|inner| subtract_parts(inner, left)),
        Value::Array(items) => items.iter().all(|inner| subtract_parts(inner, left)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Checks that a value has at most `depth` levels of maps and lists.
pub fn check_to(value: &Value, depth: usize) -> Result<(), DataError> {
    match find_too_deep(value, depth) {
        None => Ok(()),
        Some(mut steps) => {
            steps.reverse();
            Err(DataError::too_deep(&steps, depth))
        }
    }
}

/// Returns the steps to a place that is deeper than `left` levels, the last one first.
fn find_too_deep(value: &Value, left: usize) -> Option<Vec<place::PathStep>> {
    let (Value::Object(_) | Value::Array(_)) = value else { return None };
    let Some(left) = left.checked_sub(1) else { return Some(Vec::new()) };
    let then = |step: place::PathStep| {
        move |mut steps: Vec<place::PathStep>| {
            steps.push(step);
            steps
        }
    };
    match value {
        Value::Object(map) => {
            map.iter().find_map(|(key, inner)| find_too_deep(inner, left).map(then(place::PathStep::Key(key.clone()))))
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(at, inner)| find_too_deep(inner, left).map(then(place::PathStep::Index(at)))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Cuts the result of an operation to the depth that may be shown and stored; deeper parts become a text that says so.
/// Results can hold earlier results, and would grow without end.
#[must_use]
pub fn limit_depth(value: Value) -> Value {
    if check_to(&value, RESULT_DEPTH).is_ok() { value } else { cut_below(value, RESULT_DEPTH) }
}

fn cut_below(value: Value, left: usize) -> Value {
    match value {
        Value::Object(_) | Value::Array(_) if left == 0 => too_deep_text(RESULT_DEPTH).into(),
        Value::Object(map) => {
            map.into_iter().map(|(key, inner)| (key, cut_below(inner, left - 1))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.into_iter().map(|inner| cut_below(inner, left - 1)).collect(),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => plain,
    }
}

#[cfg(test)]
mod tests;
