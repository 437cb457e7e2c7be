//! Fills in the placeholders of configured texts: the system prompt, labels and literal entries. Fetched content is
//! data and is never expanded.

use super::inputs::Inputs;
use super::item::{ItemContent, PromptItem, Section};
use crate::foreign::{fit_name, quote_inserted as filled_in};
use crate::values::Resolver;
use crate::values::inserted_values::KnownValues;
use crate::values::placeholder::{ExpandedText, InsertedText, MissedKey, UsedKey, expand, has_any};
use serde_json::Value;
use std::borrow::Cow;

/// The configured texts with their placeholders filled in.
pub(crate) struct FilledTexts<'i> {
    pub(super) system: Cow<'i, str>,
    pub(crate) items: Vec<Cow<'i, PromptItem>>,
    /// Report on the placeholders.
    pub(super) report: PlaceholderReport,
}

/// Used, missing and cut values of the placeholders in several texts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlaceholderReport {
    /// Keys with a value, each once.
    pub used: Vec<UsedKey>,
    /// Keys without a value, each once, with the first text that has it.
    pub missed: Vec<MissedKey>,
    /// Notes on values that were too long: key, inserted and given bytes.
    pub cut: Vec<String>,
}

impl PlaceholderReport {
    fn add_expanded(&mut self, place: &str, expanded: ExpandedText) -> String {
        let ExpandedText { text, used, missed, cut, inserted: _ } = expanded;
        self.used.extend(used.into_iter().filter(|new| !self.used.contains(new)).collect::<Vec<_>>());
        self.add_missed(place, missed);
        self.cut
            .extend(cut.into_iter().map(|cut| format!("`{}` cut from {} to {} bytes", cut.key, cut.bytes, cut.given)));
        text
    }

    fn add_missed(&mut self, place: &str, keys: impl IntoIterator<Item = String>) {
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
pub(crate) fn fill(inputs: &Inputs) -> FilledTexts<'_> {
    let mut report = PlaceholderReport::default();
    let lookup = |key: &str| inputs.values.get(key).map(Cow::Borrowed);
    let system = fill_text("systemPrompt", &inputs.system, &lookup, &mut report);
    report.add_missed("taskPrompt", inputs.served.missed.iter().cloned());
    let items = inputs.items.iter().map(|item| fill_item(item, &lookup, &mut report)).collect();
    FilledTexts { system, items, report }
}

/// Returns the values of a prompt's placeholders.
pub fn known_values(system: &str, items: &[PromptItem], resolver: &Resolver) -> KnownValues {
    let texts = items.iter().flat_map(|item| [template_label(item), template_text(item)]).flatten();
    KnownValues::collect(texts.chain([system]), resolver)
}

/// Returns the label of an item if its placeholders are filled in. A label that a model writes, that of a load, is
/// data, and so is the name of a bucket: it can't request values that it isn't shown.
fn template_label(item: &PromptItem) -> Option<&str> {
    item.label.as_deref().filter(|label| is_configured(item) && has_any(label))
}

/// Whether the configuration wrote the item, not a model or another agent.
fn is_configured(item: &PromptItem) -> bool {
    !matches!(item.section, Section::Loads | Section::Resource | Section::Scope)
}

/// Returns the content of an item if its placeholders are filled in: configured text, not fetched content.
fn template_text(item: &PromptItem) -> Option<&str> {
    match (&item.source, &item.content) {
        (None, ItemContent::Text(literal)) if is_configured(item) && has_any(literal) => Some(literal),
        (None | Some(_), _) => None,
    }
}

fn fill_item<'i, 'v>(
    item: &'i PromptItem,
    lookup: &impl Fn(&str) -> Option<Cow<'v, InsertedText>>,
    report: &mut PlaceholderReport,
) -> Cow<'i, PromptItem> {
    report.add_missed(&item.key, item.unresolved.iter().cloned());
    let (label, literal) = (template_label(item), template_text(item));
    if label.is_none() && literal.is_none() {
        return Cow::Borrowed(item);
    }
    let mut filled = item.clone();
    if let Some(label) = label {
        // A value can't break the line of a header.
        filled.label = Some(fit_name(&report.add_expanded(&item.key, expand(label, lookup))).into_owned());
    }
    if let Some(literal) = literal {
        filled.content = ItemContent::Text(fill_text(&item.key, literal, lookup, report).into_owned());
    }
    Cow::Owned(filled)
}

fn fill_text<'t, 'v>(
    place: &str,
    template: &'t str,
    lookup: &impl Fn(&str) -> Option<Cow<'v, InsertedText>>,
    report: &mut PlaceholderReport,
) -> Cow<'t, str> {
    if !has_any(template) {
        return Cow::Borrowed(template);
    }
    let expanded = expand(template, lookup);
    let inserted = expanded.inserted.clone();
    // The author's text stays as it is, but an inserted value can't form a line of the venue.
    Cow::Owned(filled_in(report.add_expanded(place, expanded), &inserted))
}

/// Fills in all texts of an operation's input; returns the report on the placeholders.
pub fn fill_input(value: Value, resolver: &Resolver) -> (Value, PlaceholderReport) {
    let mut report = PlaceholderReport::default();
    let value = fill_value(value, resolver, &mut report);
    (value, report)
}

fn fill_value(value: Value, resolver: &Resolver, report: &mut PlaceholderReport) -> Value {
    match value {
        Value::String(template) => {
            let lookup = |key: &str| resolver.find(key).map(|found| Cow::Owned(InsertedText::from_found(key, &found)));
            Value::String(report.add_expanded("input", expand(&template, &lookup)))
        }
        Value::Array(items) => items.into_iter().map(|item| fill_value(item, resolver, report)).collect(),
        Value::Object(map) => map.into_iter().map(|(key, item)| (key, fill_value(item, resolver, report))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}
