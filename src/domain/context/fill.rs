//! Placeholders of the configured texts: the system prompt, labels and literal entries. What was
//! fetched is data, and is never expanded.

use super::inputs::Inputs;
use super::item::{Content, Item, Section};
use crate::domain::values::Resolver;
use crate::domain::values::placeholder::{Expanded, Used, expand, has_any};
use serde_json::Value;
use std::borrow::Cow;

/// The configured texts with their placeholders filled in.
pub(super) struct Filled<'i> {
    pub(super) system: Cow<'i, str>,
    pub(super) items: Vec<Cow<'i, Item>>,
    /// What became of the placeholders.
    pub(super) report: Report,
}

/// What became of the placeholders of several texts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Keys that had a value, each once.
    pub used: Vec<Used>,
    /// Keys that had none, each once.
    pub missed: Vec<String>,
    /// Keys whose values were too long, with what was inserted.
    pub cut: Vec<String>,
}

impl Report {
    fn take(&mut self, expanded: Expanded) -> String {
        let Expanded { text, used, missed, cut } = expanded;
        self.used.extend(used.into_iter().filter(|new| !self.used.contains(new)).collect::<Vec<_>>());
        self.miss(missed);
        self.cut
            .extend(cut.into_iter().map(|cut| format!("`{}` cut from {} to {} bytes", cut.key, cut.bytes, cut.given)));
        text
    }

    fn miss(&mut self, keys: impl IntoIterator<Item = String>) {
        for key in keys {
            if !self.missed.contains(&key) {
                self.missed.push(key);
            }
        }
    }
}

/// Fills in everything that is configured in `inputs`.
pub(super) fn fill(inputs: &Inputs) -> Filled<'_> {
    let mut report = Report::default();
    let system = text(&inputs.system, &inputs.resolver, &mut report);
    let items = inputs.items.iter().map(|item| filled(item, &inputs.resolver, &mut report)).collect();
    Filled { system, items, report }
}

fn filled<'i>(item: &'i Item, resolver: &Resolver, report: &mut Report) -> Cow<'i, Item> {
    report.miss(item.unresolved.iter().cloned());
    // What a model writes, the label of a load, is data: it can't ask for values that it isn't shown.
    let configured = item.section != Section::Loads;
    let label = item.label.as_deref().filter(|label| configured && has_any(label));
    let literal = match (&item.source, &item.content) {
        (None, Content::Text(literal)) if has_any(literal) => Some(literal),
        (None | Some(_), _) => None,
    };
    if label.is_none() && literal.is_none() {
        return Cow::Borrowed(item);
    }
    let mut item = item.clone();
    if let (true, Some(label)) = (configured, &mut item.label) {
        // A value can't break the line that a header is.
        *label = text(label, resolver, report).replace(char::is_control, " ").replace(']', ")");
    }
    if let (None, Content::Text(literal)) = (&item.source, &mut item.content) {
        *literal = text(literal, resolver, report).into_owned();
    }
    Cow::Owned(item)
}

fn text<'t>(template: &'t str, resolver: &Resolver, report: &mut Report) -> Cow<'t, str> {
    if !has_any(template) {
        return Cow::Borrowed(template);
    }
    Cow::Owned(report.take(expand(template, &|key| resolver.lookup(key))))
}

/// Fills in every text of an operation's input; with what became of the placeholders.
pub fn input(value: Value, resolver: &Resolver) -> (Value, Report) {
    let mut report = Report::default();
    let value = within(value, resolver, &mut report);
    (value, report)
}

fn within(value: Value, resolver: &Resolver, report: &mut Report) -> Value {
    match value {
        Value::String(template) => Value::String(text(&template, resolver, report).into_owned()),
        Value::Array(items) => items.into_iter().map(|item| within(item, resolver, report)).collect(),
        Value::Object(map) => map.into_iter().map(|(key, item)| (key, within(item, resolver, report))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}
