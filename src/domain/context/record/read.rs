//! Reads lines and parts back as inputs and ledger.

use super::RestoredRecord;
use super::manifest::{DamagedManifest, Manifest};
use super::part::PartName;
use super::write::{CANONICAL, ItemKind, ItemLine, OriginRowLine, RowLine, STABLE_FIRST};
use crate::call::ToolTarget;
use crate::chat::ToolSpec;
use crate::context::budget::PromptBudget;
use crate::context::inputs::{Inputs, Layout, Moment, ServedEvents};
use crate::context::item::{ItemContent, PromptItem};
use crate::context::ledger::{HashForm, PromptLedger, Row};
use crate::context::transcript_turn::TranscriptTurn;
use crate::decode;
use crate::origin::Origin;
use crate::tools::ToolTable;
use crate::values::inserted_values::KnownValues;
use crate::values::placeholder::UsedKey;
use serde::de::DeserializeOwned;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Contents of parts by name, with those of lists.
pub type PartContents = HashMap<PartName, String>;

/// The turn records of a transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TurnSpan {
    /// Number of the oldest turn.
    pub first: u64,
    /// Number of the newest turn.
    pub last: u64,
    /// Number of turn records.
    pub count: usize,
}

/// Specs, targets, refusals and reports of a tool table.
type ToolsText = (Vec<ToolSpec>, Vec<ToolTarget>, Vec<(String, String)>, Vec<(String, String)>);

/// A component: its line in two halves, and the content that follows.
struct RecordComponent<'m> {
    name: &'m str,
    about: &'m str,
    /// Content of the component; `None` if a part of it is erased or purged.
    content: Option<String>,
}

impl Manifest {
    /// Returns the parts that the given lists name.
    pub fn listed_parts(parts: &PartContents, lists: impl IntoIterator<Item = PartName>) -> Vec<PartName> {
        let texts = lists.into_iter().filter_map(|list| parts.get(&list));
        texts.flat_map(|text| text.lines()).filter_map(|line| PartName::parse(line.strip_prefix('@')?)).collect()
    }

    /// Iterates over the parts that are lists of parts.
    pub fn list_parts(&self) -> impl Iterator<Item = PartName> {
        self.lines.iter().filter_map(|line| PartName::parse(line.strip_prefix('#')?))
    }

    /// Returns the turn records of the transcript.
    pub fn span(&self) -> Result<Option<TurnSpan>, DamagedManifest> {
        let found = self.lines.iter().find_map(|line| line.strip_prefix("transcript "));
        let Some(text) = found else { return Ok(None) };
        let (first, last, count) = parse(text)?;
        Ok(Some(TurnSpan { first, last, count }))
    }

    /// Returns the placeholders that were filled in.
    pub fn values(&self) -> Result<Vec<UsedKey>, DamagedManifest> {
        let found = self.lines.iter().find_map(|line| line.strip_prefix("values "));
        found.map_or(Ok(Vec::new()), parse)
    }

    /// Iterates over the ledger's rows.
    pub fn rows(&self) -> impl Iterator<Item = Result<Row, DamagedManifest>> {
        self.lines.iter().filter_map(|line| line.strip_prefix("row ")).map(parse_row)
    }
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, DamagedManifest> {
    decode::read_stored(text.as_bytes()).map_err(|_| DamagedManifest::line(text))
}

fn parse_row(line: &str) -> Result<Row, DamagedManifest> {
    if let Ok((key, source, allowed, asked, given, rendered, status, reason, origin)) = parse::<OriginRowLine>(line) {
        return Ok(Row { key, source, allowed, asked, given, rendered, status, reason, origin });
    }
    let (key, source, allowed, asked, given, rendered, status, reason): RowLine = parse(line)?;
    Ok(Row { key, source, allowed, asked, given, rendered, status, reason, origin: Origin::default() })
}

/// Reads the record of the turn `name` (`owner/agent/session/turn`). `transcript` has the existing turn records of
/// [`Manifest::span`], oldest first.
pub fn read(
    name: &str,
    manifest: &Manifest,
    parts: &PartContents,
    transcript: Vec<Arc<TranscriptTurn>>,
) -> Result<RestoredRecord, DamagedManifest> {
    let reader = RecordReader::new(manifest, parts)?;
    let mut gone = Vec::new();
    let span = manifest.span()?;
    if span.map_or(0, |span| span.count) != transcript.len() {
        gone.push("transcript".to_owned());
    }
    let tools = reader.tools(&mut gone)?;
    let budget = reader.moment()?.1;
    let mut ledger = reader.ledger(budget)?;
    if let Some(tools) = &tools {
        ledger.tools = tools.names().into_iter().map(str::to_owned).collect();
        ledger.refused.clone_from(&tools.refused);
        ledger.reports.clone_from(&tools.reports);
    }
    let inputs = reader.inputs(name, tools, transcript, &mut gone)?;
    let inputs = match inputs {
        Some(inputs) if gone.is_empty() => Ok(inputs),
        Some(_) | None => Err(gone),
    };
    Ok(RestoredRecord { inputs, ledger })
}

struct RecordReader<'m> {
    components: VecDeque<RecordComponent<'m>>,
}

impl<'m> RecordReader<'m> {
    fn new(manifest: &'m Manifest, parts: &PartContents) -> Result<Self, DamagedManifest> {
        let mut components: VecDeque<RecordComponent<'m>> = VecDeque::new();
        for line in &manifest.lines {
            if !line.starts_with(['"', '@', '#']) {
                let (name, about) = line.split_once(' ').unwrap_or((line, ""));
                components.push_back(RecordComponent { name, about, content: Some(String::new()) });
                continue;
            }
            let Some(component) = components.back_mut() else { return Err(DamagedManifest::line(line)) };
            let more = line_text(line, parts)?;
            component.content = component.content.take().zip(more).map(|(text, more)| text + &more);
        }
        Ok(Self { components })
    }

    /// Finds the first component with a name.
    fn find(&self, name: &str) -> Option<&RecordComponent<'m>> {
        self.components.iter().find(|component| component.name == name)
    }

    fn header_value<T: DeserializeOwned>(&self, name: &str) -> Result<T, DamagedManifest> {
        parse(self.find(name).ok_or_else(|| DamagedManifest::Line(format!("no `{name}`")))?.about)
    }

    fn components_named(&self, name: &'static str) -> impl Iterator<Item = &RecordComponent<'m>> {
        self.components.iter().filter(move |component| component.name == name)
    }

    /// Returns the value of a component that every record has.
    fn value<T: DeserializeOwned>(&self, name: &str, gone: &mut Vec<String>) -> Result<Option<T>, DamagedManifest> {
        let component = self.find(name).ok_or_else(|| DamagedManifest::Line(format!("no `{name}`")))?;
        component.value(name, gone)
    }

    fn moment(&self) -> Result<(String, PromptBudget), DamagedManifest> {
        self.header_value("moment")
    }

    fn tools(&self, gone: &mut Vec<String>) -> Result<Option<Arc<ToolTable>>, DamagedManifest> {
        let Some((specs, targets, refused, reports)) = self.value::<ToolsText>("tools", gone)? else {
            return Ok(None);
        };
        Ok(Some(Arc::new(ToolTable { reports, ..ToolTable::new(specs, targets, refused) })))
    }

    fn inputs(
        &self,
        name: &str,
        tools: Option<Arc<ToolTable>>,
        transcript: Vec<Arc<TranscriptTurn>>,
        gone: &mut Vec<String>,
    ) -> Result<Option<Inputs>, DamagedManifest> {
        let frame = self.value("frame", gone)?;
        let (date, budget) = self.moment()?;
        let system =
            self.find("system").ok_or_else(|| DamagedManifest::Line("no `system`".into()))?.text("system", gone);
        let values = match self.find("filled") {
            None => Some(KnownValues::default()),
            Some(filled) => filled.value("filled", gone)?,
        };
        let mut items = Vec::new();
        for component in self.components_named("item") {
            items.extend(component.item(gone)?);
        }
        let served = self.read_served_events(gone)?;
        let layout = self.layout(gone)?;
        let attachments = match self.find("attachments") {
            None => Some(Vec::new()),
            Some(found) => found.value("attachments", gone)?,
        };
        let (Some(frame), Some(system), Some(values), Some(tools)) = (frame, system, values, tools) else {
            return Ok(None);
        };
        let Some(attachments) = attachments else { return Ok(None) };
        let moment = Moment { turn: name.to_owned(), date, budget };
        Ok(Some(Inputs { frame, moment, system, values, items, tools, transcript, served, layout, attachments }))
    }

    fn layout(&self, gone: &mut Vec<String>) -> Result<Layout, DamagedManifest> {
        let Some(layout) = self.find("layout") else { return Ok(Layout::MapFirst) };
        let line = format!("layout {}", layout.about);
        if line != STABLE_FIRST {
            return Err(DamagedManifest::line(&line));
        }
        Ok(Layout::StableFirst(layout.value("layout", gone)?.flatten()))
    }

    fn read_served_events(&self, gone: &mut Vec<String>) -> Result<ServedEvents, DamagedManifest> {
        let mut served = ServedEvents::default();
        if let Some(task) = self.find("task") {
            served.task = task.value("task", gone)?;
        }
        for (kind, events) in [("result", &mut served.results), ("message", &mut served.messages)] {
            for component in self.components_named(kind) {
                let key: String = parse(component.about)?;
                if let Some(event) = component.value(&format!("{kind} {key}"), gone)? {
                    events.push((key, event));
                }
            }
        }
        if let Some(pending) = self.find("pending") {
            served.pending = pending.value("pending", gone)?.unwrap_or_default();
        }
        if let Some(goals) = self.find("goals") {
            served.goals = goals.value("goals", gone)?.unwrap_or_default();
        }
        served.remind = self.find("remind").is_some();
        served.last = self.find("last").is_some();
        served.missed = self.find("missed").map_or(Ok(Vec::new()), |found| parse(found.about))?;
        Ok(served)
    }

    fn ledger(&self, budget: PromptBudget) -> Result<PromptLedger, DamagedManifest> {
        let list = |name: &str| self.find(name).map_or(Ok(Vec::new()), |found| parse(found.about));
        let text = |name: &str| self.find(name).map(|found| found.about.to_owned()).unwrap_or_default();
        let prompt = text("prompt");
        let (prompt, form) = match prompt.strip_suffix(CANONICAL) {
            Some(hash) => (hash.to_owned(), HashForm::Canonical),
            None => (prompt, HashForm::Fields),
        };
        Ok(PromptLedger {
            budget,
            used: self.header_value("used")?,
            rows: self.components_named("row").map(|found| parse_row(found.about)).collect::<Result<_, _>>()?,
            values: self.find("values").map_or(Ok(Vec::new()), |found| parse(found.about))?,
            unresolved: list("unresolved")?,
            cut: list("cut")?,
            tools: Vec::new(),
            refused: Vec::new(),
            reports: Vec::new(),
            prefix: text("prefix"),
            prompt,
            form,
        })
    }
}

impl RecordComponent<'_> {
    fn text(&self, name: &str, gone: &mut Vec<String>) -> Option<String> {
        if self.content.is_none() {
            gone.push(name.to_owned());
        }
        self.content.clone()
    }

    fn value<T: DeserializeOwned>(&self, name: &str, gone: &mut Vec<String>) -> Result<Option<T>, DamagedManifest> {
        self.text(name, gone).map(|text| parse(&text)).transpose()
    }

    fn item(&self, gone: &mut Vec<String>) -> Result<Option<PromptItem>, DamagedManifest> {
        let line: ItemLine = parse(self.about)?;
        let ItemLine { section, key, label, source, allowed, asked, priority, required, .. } = line;
        let ItemLine { unresolved, tags, origin, content, attachments, .. } = line;
        let content = match content {
            ItemKind::Absent(why, reason) => Some(ItemContent::Absent(why, reason)),
            ItemKind::Text => self.text(&key, gone).map(ItemContent::Text),
            ItemKind::Excerpt(of) => self.text(&key, gone).map(|text| ItemContent::Excerpt { text, of }),
            ItemKind::Value => self.value(&key, gone)?.map(ItemContent::Value),
        };
        Ok(content.map(|content| PromptItem {
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
            content,
            attachments,
        }))
    }
}

/// Returns the text of a content line; `None` if a part of it is erased or purged.
fn line_text(line: &str, parts: &PartContents) -> Result<Option<String>, DamagedManifest> {
    if line.starts_with('"') {
        return parse(line).map(Some);
    }
    let name = PartName::parse(&line[1..]).ok_or_else(|| DamagedManifest::line(line))?;
    let Some(content) = parts.get(&name) else { return Ok(None) };
    if line.starts_with('@') {
        return Ok(Some(content.clone()));
    }
    content.lines().map(|line| line_text(line, parts)).collect()
}
