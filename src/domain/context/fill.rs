//! Fills in the placeholders of configured texts: the system prompt, labels and literal entries. Fetched content is
//! data and is never expanded.

use super::inputs::Inputs;
use super::item::{Content, Item, Section};
use crate::foreign::{filled as filled_in, name};
use crate::values::Resolver;
use crate::values::known::KnownValues;
use crate::values::placeholder::{Expanded, GivenValue, MissedKey, UsedKey, expand, has_any};
use serde_json::Value;
use std::borrow::Cow;

/// The configured texts with their placeholders filled in.
pub(crate) struct Filled<'i> {
    pub(super) system: Cow<'i, str>,
    pub(crate) items: Vec<Cow<'i, Item>>,
    /// Report on the placeholders.
    pub(super) report: Report,
}

/// Used, missing and cut values of the placeholders in several texts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Keys with a value, each once.
    pub used: Vec<UsedKey>,
    /// Keys without a value, each once, with the first text that has it.
    pub missed: Vec<MissedKey>,
    /// Notes on values that were too long: key, inserted and given bytes.
    pub cut: Vec<String>,
}

impl Report {
    fn take(&mut self, place: &str, expanded: Expanded) -> String {
        let Expanded { text, used, missed, cut, inserted: _ } = expanded;
        self.used.extend(used.into_iter().filter(|new| !self.used.contains(new)).collect::<Vec<_>>());
        self.miss(place, missed);
        self.cut
            .extend(cut.into_iter().map(|cut| format!("`{}` cut from {} to {} bytes", cut.key, cut.bytes, cut.given)));
        text
    }

    fn miss(&mut self, place: &str, keys: impl IntoIterator<Item = String>) {
        for key in keys {
            if !self.missed.iter().any(|missed| missed.key == key) {
                self.missed.push(MissedKey { key, place: place.to_owned() });
            }
        }
    }

    /// Returns the keys without a value.
    pub fn missed_keys(&self) -> Vec<String> {
        self.missed.iter().map(|missed| missed.key.clone()).collect()
    }
}

/// Fills in all configured texts of `inputs`.
pub(crate) fn fill(inputs: &Inputs) -> Filled<'_> {
    let mut report = Report::default();
    let lookup = |key: &str| inputs.values.get(key).map(Cow::Borrowed);
    let system = text("systemPrompt", &inputs.system, &lookup, &mut report);
    let items = inputs.items.iter().map(|item| filled(item, &lookup, &mut report)).collect();
    Filled { system, items, report }
}

/// Returns the values of a prompt's placeholders.
pub fn known(system: &str, items: &[Item], resolver: &Resolver) -> KnownValues {
    let texts = items.iter().flat_map(|item| [label(item), literal(item)]).flatten();
    KnownValues::of(texts.chain([system]), resolver)
}

/// Returns the label of an item if its placeholders are filled in. A label that a model writes, that of a load, is
/// data, and so is the name of a bucket: it can't request values that it isn't shown.
fn label(item: &Item) -> Option<&str> {
    item.label.as_deref().filter(|label| is_configured(item) && has_any(label))
}

/// Whether the configuration wrote the item, not a model or another agent.
fn is_configured(item: &Item) -> bool {
    !matches!(item.section, Section::Loads | Section::Resource | Section::Scope)
}

/// Returns the content of an item if its placeholders are filled in: configured text, not fetched content.
fn literal(item: &Item) -> Option<&str> {
    match (&item.source, &item.content) {
        (None, Content::Text(literal)) if is_configured(item) && has_any(literal) => Some(literal),
        (None | Some(_), _) => None,
    }
}

fn filled<'i, 'v>(
    item: &'i Item,
    lookup: &impl Fn(&str) -> Option<Cow<'v, GivenValue>>,
    report: &mut Report,
) -> Cow<'i, Item> {
    report.miss(&item.key, item.unresolved.iter().cloned());
    let (label, literal) = (label(item), literal(item));
    if label.is_none() && literal.is_none() {
        return Cow::Borrowed(item);
    }
    let mut filled = item.clone();
    if let Some(label) = label {
        // A value can't break the line of a header.
        filled.label = Some(name(&report.take(&item.key, expand(label, lookup))).into_owned());
    }
    if let Some(literal) = literal {
        filled.content = Content::Text(text(&item.key, literal, lookup, report).into_owned());
    }
    Cow::Owned(filled)
}

fn text<'t, 'v>(
    place: &str,
    template: &'t str,
    lookup: &impl Fn(&str) -> Option<Cow<'v, GivenValue>>,
    report: &mut Report,
) -> Cow<'t, str> {
    if !has_any(template) {
        return Cow::Borrowed(template);
    }
    let expanded = expand(template, lookup);
    let inserted = expanded.inserted.clone();
    // The author's text stays as it is, but an inserted value can't form a line of the venue.
    Cow::Owned(filled_in(report.take(place, expanded), &inserted))
}

/// Fills in all texts of an operation's input; returns the report on the placeholders.
pub fn input(value: Value, resolver: &Resolver) -> (Value, Report) {
    let mut report = Report::default();
    let value = within(value, resolver, &mut report);
    (value, report)
}

fn within(value: Value, resolver: &Resolver, report: &mut Report) -> Value {
    match value {
        Value::String(template) => {
            let lookup = |key: &str| resolver.find(key).map(|found| Cow::Owned(GivenValue::from_found(key, &found)));
            Value::String(report.take("input", expand(&template, &lookup)))
        }
        Value::Array(items) => items.into_iter().map(|item| within(item, resolver, report)).collect(),
        Value::Object(map) => map.into_iter().map(|(key, item)| (key, within(item, resolver, report))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}
