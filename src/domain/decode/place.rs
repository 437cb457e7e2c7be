//! Errors of data with their place, such as `context[1].budget`.

use crate::limits::{VALUE_DEPTH, VALUE_PARTS};
use crate::nearest::did_you_mean;
use crate::visible::{beginning, is_secret_name, quote_names};
use schemars::JsonSchema;
use serde::de::{self, Expected, Unexpected};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Most characters of a key that an error shows.
const KEY_CHARS: usize = 60;

/// Most keys of a map that an error shows.
const KEYS_SHOWN: usize = 8;

/// Most steps of a place that an error shows; more steps don't help the reader.
const STEPS: usize = 12;

/// Most bytes of an error's reason in JSON, so that with a place it fits into the text of an error.
const REASON_BYTES: usize = 640;

/// Most bytes of each other part of an error in JSON.
const PART_BYTES: usize = 200;

/// Keys of a submission that only the venue sets; errors never propose them.
const VENUE_ONLY: [&str; 6] = ["caller", "parent", "envelope", "handed", "redriveOf", "seal"];

/// One step into a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathStep {
    Key(String),
    Index(usize),
    /// Steps that are written as a text already.
    Known(String),
}

/// The kind of rule that data breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Code {
    /// The data can't be read at all.
    Syntax,
    /// The data is too deep or too large.
    Limit,
    /// The value has the wrong type, or is not one of the expected values.
    Type,
    /// A key is missing.
    Missing,
    /// A key or a name is unknown.
    Unknown,
    /// The value breaks a rule of its own type.
    Rule,
}

/// The error of a value. All its texts are short, whatever was sent: only this module makes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fact {
    /// Kind of rule that the value breaks.
    pub code: Code,
    /// Text of the error without the hint.
    pub reason: String,
    /// Values that are allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// Value that was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// Nearest right form, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Keys of the expected map.
    #[serde(skip)]
    pub(super) keys: Vec<&'static str>,
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, ", did you mean `{hint}`"))
    }
}

impl Fact {
    fn new(code: Code, reason: impl Into<String>) -> Self {
        let reason = beginning(reason.into(), REASON_BYTES);
        Self { code, reason, expected: None, found: None, hint: None, keys: Vec::new() }
    }

    /// Makes an error with the expected and the found value.
    fn expectation_error(code: Code, expected: String, found: String) -> Self {
        let reason = format!("expected {expected}, got {found}");
        let part = |text| Some(beginning(text, PART_BYTES));
        Self { expected: part(expected), found: part(found), ..Self::new(code, reason) }
    }

    /// Returns the error without the value that was sent, because it is a secret.
    fn without_value(self) -> Self {
        let Self { code, reason, expected, found, keys, .. } = self;
        match (expected, found) {
            (Some(expected), Some(found)) => {
                let kinds = [("text ", "a text"), ("number ", "a number"), ("a list", "a list"), ("a map", "a map")];
                let kind = kinds.iter().find(|(begin, _)| code == Code::Type && found.starts_with(begin));
                let found = kind.map_or("another value", |(_, kind)| kind);
                Self { keys, ..Self::expectation_error(code, expected, found.to_owned()) }
            }
            _ if code == Code::Missing => Self::new(code, reason),
            _ => Self::new(code, "not a legal value"),
        }
    }

    /// Makes the error of a rule; `expected a, got b` becomes two facts.
    fn from_rule(reason: String) -> Self {
        let parts = reason.strip_prefix("expected ").and_then(|rest| rest.rsplit_once(", got "));
        let parts = parts.map(|(expected, found)| (expected.to_owned(), found.to_owned()));
        match parts {
            Some((expected, found)) => Self::expectation_error(Code::Rule, expected, found),
            None => Self::new(Code::Rule, reason),
        }
    }
}

/// The error of data from outside, with its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DataError {
    /// Place such as `context[1].budget`; empty for the whole value.
    #[serde(skip)]
    pub place: String,
    /// Place as a JSON pointer, `/context/1/budget`; of a long one the beginning.
    pub pointer: String,
    /// The rule that the value breaks.
    #[serde(flatten)]
    pub fact: Box<Fact>,
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() { self.fact.fmt(f) } else { write!(f, "`{}`: {}", self.place, self.fact) }
    }
}

impl std::error::Error for DataError {}

impl From<String> for DataError {
    /// Makes the error of a rule's text, which may begin with a place.
    fn from(text: String) -> Self {
        <DecodeFault as de::Error>::custom(text).into()
    }
}

impl DataError {
    /// Makes an error about the whole value.
    pub fn root(code: Code, reason: impl Into<String>) -> Self {
        Self::from_steps(&[], code, reason)
    }

    /// Makes an error about the place of a JSON pointer.
    pub fn at_pointer(pointer: &str, code: Code, reason: impl Into<String>) -> Self {
        Self { pointer: beginning(pointer.to_owned(), PART_BYTES), ..Self::root(code, reason) }
    }

    /// Returns the error without the value that was sent.
    #[must_use]
    pub fn without_value(self) -> Self {
        Self { fact: Box::new(self.fact.without_value()), ..self }
    }

    /// Whether the error is about a key or a name that this version doesn't know; a newer one may.
    #[must_use]
    pub fn is_unknown_name(&self) -> bool {
        self.fact.code == Code::Unknown
    }

    /// Returns the steps to the place, keys and indexes, with the unknown key at the end if the error is about one.
    #[must_use]
    pub fn steps(&self) -> Vec<String> {
        let way = self.pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~"));
        way.chain(self.unknown_key().map(str::to_owned)).collect()
    }

    /// Returns the unknown key, if the error is about one.
    #[must_use]
    pub fn unknown_key(&self) -> Option<&str> {
        let kinds = ["unknown key `", "unknown field `"];
        kinds.iter().find_map(|kind| self.fact.reason.strip_prefix(kind)?.split('`').next())
    }

    pub(super) fn from_steps(steps: &[PathStep], code: Code, reason: impl Into<String>) -> Self {
        Self::with_fact(steps, Box::new(Fact::new(code, reason)))
    }

    fn with_fact(steps: &[PathStep], fact: Box<Fact>) -> Self {
        let pointer = steps.iter().map(pointer).collect();
        Self { place: beginning(format_steps(steps), PART_BYTES), pointer: beginning(pointer, PART_BYTES), fact }
    }

    pub(super) fn too_deep(steps: &[PathStep], depth: usize) -> Self {
        Self::from_steps(steps, Code::Limit, too_deep(depth))
    }
}

/// Writes a step of a JSON pointer.
fn pointer(step: &PathStep) -> String {
    match step {
        PathStep::Index(at) => format!("/{at}"),
        PathStep::Key(key) => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
        PathStep::Known(known) => {
            let keys = known.split(['.', '[', ']']).filter(|key| !key.is_empty());
            keys.flat_map(|key| ["/", key]).collect()
        }
    }
}

/// Returns the error for data that is nested too deeply.
pub(super) fn too_deep(depth: usize) -> String {
    let advice = if depth == VALUE_DEPTH { "; make it flatter, or keep its parts apart" } else { "" };
    format!("nested deeper than {depth} levels of maps and lists{advice}")
}

/// Returns the error for data with too many values.
pub(super) fn too_many(parts: usize) -> String {
    let advice = if parts == VALUE_PARTS { "; send it in parts, or as a text" } else { "" };
    format!("more than {parts} values in one{advice}")
}

/// Writes steps in order, as an error shows them.
fn format_steps(steps: &[PathStep]) -> String {
    let mut text = String::new();
    for step in steps.iter().take(STEPS) {
        match step {
            PathStep::Index(at) => text.extend(["[", &at.to_string(), "]"]),
            PathStep::Known(known) if known.starts_with('[') => text.push_str(known),
            PathStep::Known(known) => join(&mut text, known),
            PathStep::Key(key) => join(&mut text, &shown_key(key)),
        }
    }
    if steps.len() > STEPS {
        text.push('…');
    }
    text
}

fn join(text: &mut String, key: &str) {
    if !text.is_empty() && !key.is_empty() {
        text.push('.');
    }
    text.push_str(key);
}

fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | ':' | '@')
}

fn shown_key(key: &str) -> String {
    let cut: String = key.chars().take(KEY_CHARS).collect();
    let more = if cut.len() < key.len() { "…" } else { "" };
    if !cut.is_empty() && cut.chars().all(is_plain) { format!("{cut}{more}") } else { format!("{cut:?}{more}") }
}

/// An error on its way up to the root.
#[derive(Debug)]
pub(super) struct DecodeFault {
    /// Steps from the place to the root.
    steps: Vec<PathStep>,
    fact: Box<Fact>,
}

impl DecodeFault {
    pub(super) fn new(code: Code, reason: impl Into<String>) -> Self {
        Fact::new(code, reason).into()
    }

    /// Makes an error with the expected and the found value; if a map is expected, with its keys.
    pub(super) fn expected_type(expected: String, found: &Unexpected<'_>, keys: Vec<&'static str>) -> Self {
        Fact { keys, ..Fact::expectation_error(Code::Type, expected, describe_found(found)) }.into()
    }

    /// Makes the error for a value where a struct with these fields is expected.
    pub(super) fn expected_struct(found: &Unexpected<'_>, fields: &'static [&'static str]) -> Self {
        let keys = settable_fields(fields);
        Self::expected_type(map_with(&keys), found, keys)
    }

    #[must_use]
    pub(super) fn under_step(mut self, step: PathStep) -> Self {
        if matches!(&step, PathStep::Key(key) if is_secret_name(key)) {
            *self.fact = self.fact.without_value();
        }
        self.steps.push(step);
        self
    }
}

impl From<Fact> for DecodeFault {
    fn from(fact: Fact) -> Self {
        Self { steps: Vec::new(), fact: Box::new(fact) }
    }
}

impl From<DecodeFault> for DataError {
    fn from(mut fault: DecodeFault) -> Self {
        fault.steps.reverse();
        let Some((PathStep::Known(known), way)) = fault.steps.split_last() else {
            return Self::with_fact(&fault.steps, fault.fact);
        };
        // A rule may name its place from further out; steps that both name are written once.
        let shown = format_steps(way);
        let (outer, inner): (Vec<_>, Vec<_>) = (shown.split('.').collect(), known.split('.').collect());
        let both = (1..=outer.len().min(inner.len())).rev().find(|n| outer[outer.len() - n..] == inner[..*n]);
        let rest = inner[both.unwrap_or(0)..].join(".");
        let steps: Vec<_> = way.iter().cloned().chain([PathStep::Known(rest)]).collect();
        Self::with_fact(&steps, fault.fact)
    }
}

impl fmt::Display for DecodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fact.fmt(f)
    }
}

impl std::error::Error for DecodeFault {}

/// Splits a text that begins with a place, as [`DataError`] writes it, into the place and the rest.
fn split_place(text: &str) -> Option<(&str, &str)> {
    let (place, reason) = text.strip_prefix('`')?.split_once("`: ")?;
    let legal = |c: char| is_plain(c) || matches!(c, '.' | '[' | ']' | '…');
    (!place.is_empty() && place.chars().all(legal)).then_some((place, reason))
}

impl de::Error for DecodeFault {
    /// Makes an error of a rule of the value's own type, which may name a place inside it.
    fn custom<T: fmt::Display>(message: T) -> Self {
        let text = message.to_string();
        // In this text serde names the type of an untagged enum.
        if text.starts_with("data did not match any variant") {
            return Self::new(Code::Type, "fits none of the forms that are known here");
        }
        match split_place(&text) {
            Some((place, reason)) => {
                Self::from(Fact::from_rule(reason.to_owned())).under_step(PathStep::Known(place.to_owned()))
            }
            None => Fact::from_rule(text).into(),
        }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::expected_type(describe_expected(expected), &found, Vec::new())
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(Code::Missing, format!("missing field `{field}`"))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let hint = did_you_mean(variant, expected);
        let known = match expected {
            [one] => format!("`{one}`"),
            [one, other] => format!("`{one}` or `{other}`"),
            many => format!("one of {}", quote_names(many)),
        };
        Self::new(Code::Unknown, format!("unknown variant `{}`, expected {known}{hint}", escape_key(variant)))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let known = settable_fields(expected);
        let hint = did_you_mean(field, &known);
        let listed = match known.as_slice() {
            [] => "none is known here".to_owned(),
            known => format!("known are {}", quote_names(known)),
        };
        Self::new(Code::Unknown, format!("unknown field `{}`{hint}; {listed}", escape_key(field)))
    }
}

/// Escapes a key for a message.
fn escape_key(key: &str) -> String {
    key.chars().take(KEY_CHARS).flat_map(char::escape_debug).collect()
}

/// Returns the fields of a struct that a sender may set.
fn settable_fields(fields: &'static [&'static str]) -> Vec<&'static str> {
    let sealed = fields.contains(&"seal");
    fields.iter().copied().filter(|key| !(sealed && VENUE_ONLY.contains(key))).collect()
}

/// Describes a map by its first keys.
fn map_with(keys: &[&str]) -> String {
    let shown: Vec<_> = keys.iter().take(KEYS_SHOWN).map(|key| format!("`{key}`")).collect();
    match shown.as_slice() {
        [] => "a map".to_owned(),
        shown if shown.len() < keys.len() => format!("a map with {}, …", shown.join(", ")),
        [one] => format!("a map with {one}"),
        [first @ .., last] => format!("a map with {} and {last}", first.join(", ")),
    }
}

/// Describes a type of this crate in words, from serde's text.
fn describe_expected(expected: &dyn Expected) -> String {
    let text = expected.to_string();
    let begins = |kind: &str| text.starts_with(kind);
    match text.as_str() {
        named if is_map(named) => "a map".to_owned(),
        _ if begins("tuple ") => "a list".to_owned(),
        _ if begins("unit ") => "null".to_owned(),
        _ if begins("newtype ") => "another value".to_owned(),
        _ if begins("enum ") => "a name, or a map of one key".to_owned(),
        "usize" | "u8" | "u16" | "u32" | "u64" => "a whole number of at least 0".to_owned(),
        "isize" | "i8" | "i16" | "i32" | "i64" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a sequence" => "a list".to_owned(),
        "variant identifier" | "field identifier" => "a name".to_owned(),
        _ => text,
    }
}

/// Whether serde's text describes a struct, or an enum whose variants are distinguished by a key.
pub(super) fn is_map(expected: &str) -> bool {
    ["struct ", "internally tagged enum ", "adjacently tagged enum "].iter().any(|begin| expected.starts_with(begin))
}

pub(super) fn describe_found(found: &Unexpected<'_>) -> String {
    match found {
        Unexpected::Str(text) => {
            let cut: String = text.chars().take(KEY_CHARS).collect();
            let more = if cut.len() < text.len() { "…" } else { "" };
            format!("text {cut:?}{more}")
        }
        Unexpected::Map => "a map".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Unit => "null".to_owned(),
        Unexpected::Bool(yes) => format!("`{yes}`"),
        Unexpected::Unsigned(number) => format!("number {number}"),
        Unexpected::Signed(number) => format!("number {number}"),
        Unexpected::Float(number) => format!("number {number}"),
        other => other.to_string(),
    }
}
