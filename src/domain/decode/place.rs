//! What is wrong with data, and where: `context[1].budget`.

use crate::limits::{VALUE_DEPTH, VALUE_PARTS};
use crate::nearest::did_you_mean;
use serde::de::{self, Expected, Unexpected};
use std::fmt;

/// Characters of a key that an error shows.
const KEY_CHARS: usize = 60;

/// Steps of a place that an error shows: those of a deep one say nothing more.
const STEPS: usize = 12;

/// Keys of a submission that only the venue sets: nobody is told to.
const VENUE_ONLY: [&str; 6] = ["caller", "parent", "envelope", "handed", "redriveOf", "seal"];

/// One step into a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
    /// Steps that were written down before.
    Known(String),
}

/// What is wrong with data from outside, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// `context[1].budget`; empty when it is about all of it.
    pub place: String,
    /// The rule that it breaks.
    pub reason: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() { f.write_str(&self.reason) } else { write!(f, "`{}`: {}", self.place, self.reason) }
    }
}

impl std::error::Error for Wrong {}

impl Wrong {
    /// Of all of it.
    pub fn root(reason: impl Into<String>) -> Self {
        Self { place: String::new(), reason: reason.into() }
    }

    pub(super) fn at(steps: &[Step], reason: impl Into<String>) -> Self {
        Self { place: place(steps), reason: reason.into() }
    }

    pub(super) fn deep(steps: &[Step], depth: usize) -> Self {
        Self::at(steps, too_deep(depth))
    }
}

/// What is said of data that is nested too deeply.
pub(super) fn too_deep(depth: usize) -> String {
    let advice = if depth == VALUE_DEPTH { "; make it flatter, or keep its parts apart" } else { "" };
    format!("nested deeper than {depth} levels of maps and lists{advice}")
}

/// What is said of data of too many values.
pub(super) fn too_many(parts: usize) -> String {
    let advice = if parts == VALUE_PARTS { "; send it in parts, or as a text" } else { "" };
    format!("more than {parts} values in one{advice}")
}

/// Steps in order, as an error shows them.
fn place(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps.iter().take(STEPS) {
        match step {
            Step::Index(at) => text.extend(["[", &at.to_string(), "]"]),
            Step::Known(known) if known.starts_with('[') => text.push_str(known),
            Step::Known(known) => join(&mut text, known),
            Step::Key(key) => join(&mut text, &shown(key)),
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

fn shown(key: &str) -> String {
    let cut: String = key.chars().take(KEY_CHARS).collect();
    let more = if cut.len() < key.len() { "…" } else { "" };
    if !cut.is_empty() && cut.chars().all(is_plain) { format!("{cut}{more}") } else { format!("{cut:?}{more}") }
}

/// What is wrong, on its way up to the root.
#[derive(Debug)]
pub(super) struct Fault {
    /// From the place to the root.
    steps: Vec<Step>,
    reason: String,
}

impl Fault {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self { steps: Vec::new(), reason: reason.into() }
    }

    #[must_use]
    pub(super) fn under(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

impl From<Fault> for Wrong {
    fn from(mut fault: Fault) -> Self {
        fault.steps.reverse();
        let Some((Step::Known(known), way)) = fault.steps.split_last() else {
            return Self::at(&fault.steps, fault.reason);
        };
        // A rule names its place from further out at times: what both say is said once.
        let way = place(way);
        let (outer, inner): (Vec<_>, Vec<_>) = (way.split('.').collect(), known.split('.').collect());
        let both = (1..=outer.len().min(inner.len())).rev().find(|n| outer[outer.len() - n..] == inner[..*n]);
        let rest = inner[both.unwrap_or(0)..].join(".");
        Self::at(&[Step::Known(way), Step::Known(rest)], fault.reason)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Fault {}

/// A text that begins with a place, as [`Wrong`] writes it, and the rest of it.
fn placed(text: &str) -> Option<(&str, &str)> {
    let (place, reason) = text.strip_prefix('`')?.split_once("`: ")?;
    let legal = |c: char| is_plain(c) || matches!(c, '.' | '[' | ']' | '…');
    (!place.is_empty() && place.chars().all(legal)).then_some((place, reason))
}

impl de::Error for Fault {
    /// Rules of a value's own type name places inside it.
    fn custom<T: fmt::Display>(message: T) -> Self {
        let text = message.to_string();
        match placed(&text) {
            Some((place, reason)) => Self::new(reason).under(Step::Known(place.to_owned())),
            None => Self::new(text),
        }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("expected {}, got {}", words(expected), got(&found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let hint = did_you_mean(variant, expected);
        let known = match expected {
            [one] => format!("`{one}`"),
            [one, other] => format!("`{one}` or `{other}`"),
            many => format!("one of {}", many.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")),
        };
        Self::new(format!("unknown variant `{}`, expected {known}{hint}", readable(variant)))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let sealed = expected.contains(&"seal");
        let known: Vec<&'static str> =
            expected.iter().copied().filter(|key| !(sealed && VENUE_ONLY.contains(key))).collect();
        let hint = did_you_mean(field, &known);
        let listed = known.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
        let listed = if listed.is_empty() { "none is known here".to_owned() } else { format!("known are {listed}") };
        Self::new(format!("unknown field `{}`{hint}; {listed}", readable(field)))
    }
}

/// A key inside a message.
fn readable(key: &str) -> String {
    key.chars().take(KEY_CHARS).flat_map(char::escape_debug).collect()
}

/// What serde calls a type of this crate, in words.
fn words(expected: &dyn Expected) -> String {
    let text = expected.to_string();
    match text.as_str() {
        struct_or_enum if is_map(struct_or_enum) => "a map".to_owned(),
        "usize" | "u8" | "u16" | "u32" | "u64" => "a whole number of at least 0".to_owned(),
        "isize" | "i8" | "i16" | "i32" | "i64" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a sequence" => "a list".to_owned(),
        _ => text,
    }
}

/// Visitors of structs, and of enums whose variants are told apart by a key, say so.
pub(super) fn is_map(expected: &str) -> bool {
    ["struct ", "internally tagged enum ", "adjacently tagged enum "].iter().any(|begin| expected.starts_with(begin))
}

pub(super) fn got(found: &Unexpected<'_>) -> String {
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
