//! Writes inputs and ledger as lines and parts.

use super::RecordWriter;
use super::manifest::{BaseManifest, Manifest};
use super::part::{PackedContent, PartName};
use crate::context::inputs::{Inputs, Layout, Moment, ServedEvents};
use crate::context::item::{Absence, HandOffTags, ItemContent, PromptItem, Section};
use crate::context::ledger::{HashForm, PromptLedger, Row, RowStatus};
use crate::event::Event;
use crate::ids::AssetId;
use crate::origin::Origin;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// An item without its content.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ItemLine {
    pub(super) section: Section,
    pub(super) key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) label: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) allowed: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) asked: Option<usize>,
    pub(super) priority: i32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) required: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) unresolved: Vec<String>,
    #[serde(default, skip_serializing_if = "HandOffTags::is_default")]
    pub(super) tags: HandOffTags,
    #[serde(default, skip_serializing_if = "Origin::is_unknown")]
    pub(super) origin: Origin,
    pub(super) content: ItemKind,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) attachments: Vec<AssetId>,
}

/// The kind of an item's content; its text follows, unless it is absent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ItemKind {
    Text,
    Value,
    Excerpt(usize),
    Absent(Absence, String),
}

/// A row without field names and without its origin.
pub(super) type RowLine = (String, Option<String>, Option<String>, usize, usize, usize, RowStatus, Option<String>);
/// A row without field names, with its origin.
pub(super) type OriginRowLine =
    (String, Option<String>, Option<String>, usize, usize, usize, RowStatus, Option<String>, Origin);

/// Line of the prompt's layout; records without it have [`Layout::MapFirst`].
pub(super) const STABLE_FIRST: &str = "layout 2";
/// Suffix of the hash of a canonical prompt; hashes by older versions have none.
pub(super) const CANONICAL: &str = " rfc8785";

struct ManifestWriter<'s> {
    scribe: &'s RecordWriter,
    /// Lines of parts that are stored already.
    known: HashSet<&'s str>,
    lines: Vec<String>,
    parts: Vec<(PartName, String)>,
    named: HashSet<PartName>,
}

/// Writes the whole record; returns it with the parts that `base` doesn't have.
pub(super) fn lines(
    scribe: &RecordWriter,
    base: Option<&BaseManifest>,
    inputs: &Inputs,
    ledger: &PromptLedger,
) -> (Manifest, Vec<(PartName, String)>) {
    let known = base.map(|base| base.manifest.part_lines()).unwrap_or_default();
    let mut writer = ManifestWriter { scribe, known, lines: Vec::new(), parts: Vec::new(), named: HashSet::new() };
    writer.inputs(inputs);
    writer.ledger(ledger);
    (Manifest { lines: writer.lines }, writer.parts)
}

fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("records serialise")
}

impl ManifestWriter<'_> {
    fn inputs(&mut self, inputs: &Inputs) {
        let Inputs { frame, moment, system: _, values, items, tools: _, transcript, served, layout, attachments } =
            inputs;
        // The name of the turn is the key of the record.
        let Moment { turn: _, date, budget } = moment;
        let scribe = self.scribe;
        self.lines.push("frame".into());
        self.put_content(&scribe.namer.bundle(&json(frame)));
        self.lines.push("system".into());
        self.put_content(&scribe.system);
        if !values.is_empty() {
            self.component("filled".into(), &json(values));
        }
        self.lines.push("tools".into());
        self.put_content(&scribe.tools);
        self.lines.push(format!("moment {}", json(&(date, budget))));
        match layout {
            Layout::MapFirst => {}
            Layout::StableFirst(before) => self.component(STABLE_FIRST.into(), &json(before)),
        }
        for item in items {
            self.item(item);
        }
        if !attachments.is_empty() {
            self.component("attachments".into(), &json(attachments));
        }
        self.write_served_events(served);
        if let (Some(first), Some(last)) = (transcript.first(), transcript.last()) {
            self.lines.push(format!("transcript {}", json(&(first.turn, last.turn, transcript.len()))));
        }
    }

    fn item(&mut self, item: &PromptItem) {
        let PromptItem {
            section,
            key,
            label,
            source,
            allowed,
            asked,
            priority,
            required,
            unresolved,
            tags,
            origin,
            ..
        } = item;
        let PromptItem { content, attachments, .. } = item;
        let (kind, text) = match content {
            ItemContent::Text(text) => (ItemKind::Text, Some(text.clone())),
            ItemContent::Value(value) => (ItemKind::Value, Some(value.to_string())),
            ItemContent::Excerpt { text, of } => (ItemKind::Excerpt(*of), Some(text.clone())),
            ItemContent::Absent(why, reason) => (ItemKind::Absent(*why, reason.clone()), None),
        };
        let line = ItemLine {
            section: *section,
            key: key.clone(),
            label: label.clone(),
            source: source.clone(),
            allowed: allowed.clone(),
            asked: *asked,
            priority: *priority,
            required: *required,
            unresolved: unresolved.clone(),
            tags: tags.clone(),
            origin: origin.clone(),
            content: kind,
            attachments: attachments.clone(),
        };
        self.lines.push(format!("item {}", json(&line)));
        if let Some(text) = text {
            self.put_content(&self.scribe.namer.pack(&text));
        }
    }

    fn write_served_events(&mut self, served: &ServedEvents) {
        let ServedEvents { task, results, messages, pending, remind, goals, last, missed } = served;
        if let Some(task) = task {
            self.component("task".into(), &json(task));
        }
        let mut events = |kind: &str, events: &[(String, Event)]| {
            for (key, event) in events {
                self.component(format!("{kind} {}", json(key)), &json(event));
            }
        };
        events("result", results);
        events("message", messages);
        if !pending.is_empty() {
            self.component("pending".into(), &json(pending));
        }
        if !goals.is_plain() {
            self.component("goals".into(), &json(goals));
        }
        if *remind {
            self.lines.push("remind".into());
        }
        if *last {
            self.lines.push("last".into());
        }
        if !missed.is_empty() {
            self.lines.push(format!("missed {}", json(missed)));
        }
    }

    fn ledger(&mut self, ledger: &PromptLedger) {
        // Budget and tools are those of the inputs.
        let PromptLedger {
            budget: _,
            used,
            rows,
            values,
            unresolved,
            cut,
            tools: _,
            refused: _,
            reports: _,
            prefix,
            prompt,
            form,
        } = ledger;
        for row in rows {
            let Row { key, source, allowed, asked, given, rendered, status, reason, origin } = row;
            let line = if origin.is_unknown() {
                json(&(key, source, allowed, asked, given, rendered, status, reason))
            } else {
                json(&(key, source, allowed, asked, given, rendered, status, reason, origin))
            };
            self.lines.push(format!("row {line}"));
        }
        if !values.is_empty() {
            self.lines.push(format!("values {}", json(values)));
        }
        for (name, list) in [("unresolved", unresolved), ("cut", cut)] {
            if !list.is_empty() {
                self.lines.push(format!("{name} {}", json(list)));
            }
        }
        let form = if *form == HashForm::Canonical { CANONICAL } else { "" };
        self.lines.extend([format!("used {used}"), format!("prefix {prefix}"), format!("prompt {prompt}{form}")]);
    }

    fn component(&mut self, line: String, content: &str) {
        self.lines.push(line);
        self.put_content(&self.scribe.namer.pack(content));
    }

    fn put_content(&mut self, packed: &PackedContent) {
        let new: HashSet<&str> =
            packed.lines.iter().map(String::as_str).filter(|line| !self.known.contains(line)).collect();
        // The chunks of a known list are stored; of a new list any chunk may be new.
        let list = new.iter().any(|line| line.starts_with('#'));
        for (name, content) in &packed.parts {
            let line = format!("@{name}");
            if (list || new.contains(line.as_str())) && self.named.insert(name.clone()) {
                self.parts.push((name.clone(), content.to_string()));
            }
        }
        self.lines.extend(packed.lines.iter().cloned());
    }
}
