//! Puts the parts of a prompt in order, and writes its messages and its ledger.
//!
//! ```text
//! system │ front, goals, summaries, turns (with pieces where they came), what is new │ pieces that change, date,
//!        │                                                                           │ map, running jobs,
//!        │◀──────────── stays the same in the next request ─────────────────────────▶│ how the task ends
//! ```

use super::{AssembledPrompt, Assembly, GAP, PromptPart};
use crate::agent::PromptStyle;
use crate::call::ToolTarget;
use crate::chat::{ChatMessage, ModelRequest};
use crate::context::attach::references_of;
use crate::context::digest::prompt_hash;
use crate::context::inputs::{Layout, ShownEvent};
use crate::context::item::Section;
use crate::context::ledger::{HashForm, PromptLedger, Row};
use crate::context::map;
use crate::context::message::{BuiltMessage, MessageBuilder, PartText};
use crate::context::text;
use crate::context::tiles::{MessageTiles, TileSource};
use crate::context::transcript::{Exchange, TaskPlace};
use crate::ids::{AssetId, sha256_hex};
use crate::media::Attachment;
use crate::prefix::{PiecePlace, StablePrefix, UnplacedPrompt};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Hexadecimal digits of a hash that distinguishes two texts of one place. A collision costs only a cache hit.
const HASH_DIGITS: usize = 8;

/// The messages of a prompt while they are put in order.
#[derive(Default)]
struct PromptMessages {
    all: Vec<ChatMessage>,
    /// Sources of the bytes of each message.
    tiles: Vec<MessageTiles>,
    /// Indexes of the conversation before this turn.
    conversation: Vec<usize>,
    /// Number of messages that stay the same in the next request.
    stable: usize,
    /// Number of messages of reference data.
    references: usize,
}

impl PromptMessages {
    fn push(&mut self, built: BuiltMessage) {
        self.all.push(built.message);
        self.tiles.push(built.tiles);
    }

    fn push_user(&mut self, source: TileSource, text: impl Into<String>, assets: Vec<AssetId>) {
        let attachments = assets.into_iter().map(Attachment::of_asset).collect();
        let message = ChatMessage::User { text: text.into(), attachments };
        self.push(BuiltMessage::single_source(source, message));
    }

    fn push_conversation(&mut self, source: TileSource, message: ChatMessage) {
        self.conversation.push(self.all.len());
        self.push(BuiltMessage::single_source(source, message));
    }

    /// Adds a message of reference data, unless there are no texts. Each text comes with its index among the parts.
    fn push_reference(&mut self, texts: &[(usize, &PartText<'_>)]) {
        if texts.is_empty() {
            return;
        }
        let bytes: usize = texts.iter().map(|(_, text)| text.len() + GAP).sum();
        let mut reference =
            MessageBuilder::starting_with(TileSource::Reference, text::REFERENCE, text::REFERENCE.len() + bytes);
        for (at, text) in texts {
            reference.push_part(TileSource::Part(*at), text);
        }
        self.push(reference.finish());
        self.references += 1;
    }
}

impl<'i> Assembly<'i> {
    pub(super) fn finish(self) -> AssembledPrompt {
        let (places, prefix) = match &self.inputs.layout {
            Layout::MapFirst => (BTreeMap::new(), None),
            Layout::StableFirst(before) => {
                let (places, prefix) = self.place_pieces(before.as_ref());
                (places, Some(prefix))
            }
        };
        let (messages, map, used) = match &prefix {
            None => self.messages_map_first(),
            Some(_) => self.messages_stable_first(&places),
        };
        let PromptMessages { mut all, mut tiles, conversation, stable, references: _ } = messages;
        self.attachments.resolve(&mut all);
        let is_new = prefix.is_some();
        let request = ModelRequest {
            model: self.inputs.frame.model.clone(),
            system: self.system.clone(),
            messages: all,
            tools: Arc::clone(&self.inputs.tools.specs),
            turn: self.inputs.moment.turn.clone(),
            stable,
            output: self.inputs.output().filter(|_| is_new),
        };
        let (mut ledger, rows) = self.ledger(prompt_hash(&request), &map, &places);
        ledger.used = used;
        for tiles in &mut tiles {
            tiles.name_rows(&rows);
        }
        let shown = self.shown_events().into_iter().map(|(_, shown)| shown).collect();
        AssembledPrompt { request, ledger, shown, unpinned: self.unpinned, conversation, prefix, tiles }
    }

    /// Writes the context map for a prompt whose other parts have `fixed` bytes.
    fn map(&self, fixed: usize) -> String {
        let attached = self.attachments.rows();
        let map = map::ContextMap {
            items: &self.filled.items,
            rows: &self.rows(&attached),
            turns: self.transcript.describe_omitted(),
            budget: self.budget,
            is_full: self.inputs.frame.prompt == PromptStyle::Full,
            compacts: self.inputs.tools.targets.contains(&ToolTarget::Compact),
        };
        map.text(fixed, self.wanted_bytes())
    }

    /// Returns the used bytes without the map and the headings of reference data, for which only bounds were reserved.
    fn fixed_bytes(&self) -> usize {
        self.used - map::reserved_bytes(&self.filled.items) - self.reserved_headings()
    }

    /// Puts the messages in the order of older records; returns them with the map and the used bytes.
    fn messages_map_first(&self) -> (PromptMessages, String, usize) {
        let mut messages = PromptMessages::default();
        let fixed = self.fixed_bytes() + text::REFERENCE.len() + GAP;
        let map = self.map(fixed);
        let used = fixed + map.len();
        let referred = |section| matches!(section, Section::Context | Section::Loads | Section::Resource);
        let mut reference = MessageBuilder::starting_with(TileSource::Reference, text::REFERENCE, 0);
        self.visit_texts(referred, |at, part| reference.push_part(at, part));
        reference.push_text(TileSource::Map, &map);
        messages.push(reference.finish());
        let summary = TileSource::Summary;
        self.transcript.lead_texts().for_each(|text| messages.push_conversation(summary, ChatMessage::user(text)));
        for Exchange { turn, heard, task: _, said } in self.transcript.exchanges() {
            heard
                .into_iter()
                .chain(said)
                .for_each(|message| messages.push_conversation(TileSource::Turn(turn), message));
        }
        let mut tail = MessageBuilder::starting_with(TileSource::Input, &self.tail.date, 0);
        let mut pending = MessageBuilder::new_lines();
        self.visit_texts(|s| s == Section::Pending, |at, part| pending.push_part(at, part));
        self.tail.open.iter().for_each(|open| pending.push_text(TileSource::Input, open));
        tail.push_under_heading(text::PENDING, pending);
        self.visit_texts(|s| s == Section::Inbox, |at, part| tail.push_part(at, part));
        self.add_scoped_sections(&mut tail);
        self.tail.input.iter().for_each(|input| tail.push_text(TileSource::Input, input));
        messages.push(tail.finish());
        (messages, map, used)
    }

    /// Puts the messages with the stable ones first; returns them with the map and the used bytes.
    fn messages_stable_first(&self, places: &BTreeMap<usize, PiecePlace>) -> (PromptMessages, String, usize) {
        let mut messages = PromptMessages::default();
        let at = |place: PiecePlace| -> Vec<(usize, &PartText<'i>)> {
            let here = places.iter().filter(|(_, known)| **known == place);
            here.filter_map(|(at, _)| Some((*at, self.placed[*at].text.as_ref()?))).collect()
        };
        let task = self.tail.task.as_ref();
        let task_place = self.transcript.task_place();
        messages.push_reference(&at(PiecePlace::Front));
        // Sections that came with the task stay at its place as long as the task is open.
        let open = |messages: &mut PromptMessages, task: &str| {
            let mut scoped = MessageBuilder::new_paragraphs();
            self.add_scoped_sections(&mut scoped);
            scoped.into_message().into_iter().for_each(|message| messages.push(message));
            let assets = self.inputs.served.task.as_ref().map(|task| references_of(task).assets);
            messages.push_user(TileSource::Input, task, assets.unwrap_or_default());
        };
        task.iter().filter(|_| task_place == TaskPlace::Before).for_each(|task| open(&mut messages, task));
        let summary = TileSource::Summary;
        self.transcript.lead_texts().for_each(|text| messages.push_conversation(summary, ChatMessage::user(text)));
        for Exchange { turn, heard, task, said } in self.transcript.exchanges() {
            for (at, message) in heard.into_iter().enumerate() {
                match (message, &self.tail.task) {
                    (ChatMessage::User { text, .. }, Some(_)) if task == Some(at) => open(&mut messages, &text),
                    (message, _) => messages.push_conversation(TileSource::Turn(turn), message),
                }
            }
            messages.push_reference(&at(PiecePlace::Turn(turn)));
            for message in said {
                messages.push_conversation(TileSource::Turn(turn), message);
            }
        }
        // New events look as the transcript shows them in the next prompt.
        for (at, event) in self.shown_events() {
            messages.push_user(TileSource::Part(at), text::quote_heard(&event.text).into_owned(), event.attachments);
        }
        task.iter().filter(|_| task_place == TaskPlace::Behind).for_each(|task| open(&mut messages, task));
        messages.stable = messages.all.len();
        messages.push_reference(&at(PiecePlace::Turn(self.turn())));
        messages.push_reference(&at(PiecePlace::Tail));
        let fixed = self.fixed_bytes() + messages.references * (text::REFERENCE.len() + GAP);
        let map = self.map(fixed);
        let mut tail = MessageBuilder::new_paragraphs();
        for (source, text) in [(TileSource::Input, &self.tail.date), (TileSource::Map, &map)] {
            if !text.is_empty() {
                tail.push_text(source, text);
            }
        }
        let mut running = MessageBuilder::new_lines();
        self.tail.open.iter().for_each(|open| running.push_text(TileSource::Input, open));
        tail.push_under_heading(text::PENDING, running);
        self.tail.input.iter().for_each(|input| tail.push_text(TileSource::Input, input));
        tail.into_message().into_iter().for_each(|message| messages.push(message));
        let used = fixed + map.len();
        (messages, map, used)
    }

    /// Adds the sections that came with the task to a message.
    fn add_scoped_sections(&self, tail: &mut MessageBuilder) {
        let mut heading = Some(text::SCOPED);
        self.visit_texts(
            |section| section == Section::Scope,
            |at, part| {
                heading.take().iter().for_each(|heading| tail.push_text(TileSource::Scoped, heading));
                tail.push_part(at, part);
            },
        );
    }

    /// Returns the number of the turn of this prompt.
    fn turn(&self) -> u64 {
        self.inputs.moment.turn.rsplit('/').next().and_then(|turn| turn.parse().ok()).unwrap_or(0)
    }

    /// Decides where pieces of context stand, by their index among the parts; returns also the prefix for the next
    /// prompt.
    fn place_pieces(&self, before: Option<&StablePrefix>) -> (BTreeMap<usize, PiecePlace>, StablePrefix) {
        let mut times: BTreeMap<&str, usize> = BTreeMap::new();
        let (mut keys, mut pieces) = (Vec::new(), Vec::new());
        for (at, (part, placed)) in self.parts.iter().zip(&self.placed).enumerate() {
            let (PromptPart::Item(item), Some(text)) = (part, &placed.text) else { continue };
            if item.section == Section::Scope {
                continue;
            }
            let time = times.entry(&item.key).or_default();
            *time += 1;
            // Two entries may have the same key.
            let key = short_hash(&format!("{time} {}", item.key));
            keys.push((at, key.clone()));
            pieces.push((key, short_hash(&text.to_text())));
        }
        let basis = self.basis();
        let now = UnplacedPrompt { basis, from: self.transcript.first_shown(), turn: self.turn(), pieces };
        let prefix = StablePrefix::for_next_prompt(before, now, |turn| self.transcript.shows(turn));
        let places = keys.into_iter().map(|(at, key)| (at, prefix.place_of(&key))).collect();
        (places, prefix)
    }

    /// Returns the hash of everything before the turns, without the pieces of context.
    fn basis(&self) -> String {
        let model = &self.inputs.frame.model;
        let mut basis = [model.id().as_str(), &self.inputs.tools.hash, &self.system].join("\n");
        if self.transcript.task_place() == TaskPlace::Before {
            basis.extend(self.tail.task.as_deref());
        }
        self.transcript.lead_texts().for_each(|text| basis.extend(["\n", text]));
        short_hash(&basis)
    }

    /// Visits the parts of some sections that are in the prompt, in order.
    fn visit_texts(&self, wanted: impl Fn(Section) -> bool, mut each: impl FnMut(TileSource, &PartText<'_>)) {
        for (at, (part, placed)) in self.parts.iter().zip(&self.placed).enumerate() {
            let section = match part {
                PromptPart::Item(item) => item.section,
                PromptPart::Event(section, ..) => *section,
                PromptPart::Transcript => Section::Transcript,
            };
            placed.text.iter().filter(|_| wanted(section)).for_each(|text| each(TileSource::Part(at), text));
        }
    }

    /// Returns the events in the prompt, each with its index among the parts.
    fn shown_events(&self) -> Vec<(usize, ShownEvent)> {
        let parts = self.parts.iter().zip(&self.placed).enumerate();
        let shown = parts.filter_map(|(at, (part, placed))| match (part, &placed.text) {
            (PromptPart::Event(section, key, event), Some(text)) => {
                let section = if *section == Section::Pending { format!("{}\n", text::PENDING) } else { String::new() };
                let text = format!("{section}{}", text.to_text());
                let attachments = references_of(event).assets;
                Some((at, ShownEvent { key: (*key).to_owned(), id: event.id.clone(), text, attachments }))
            }
            (PromptPart::Event(..) | PromptPart::Item(_) | PromptPart::Transcript, _) => None,
        });
        shown.collect()
    }

    fn rows<'r>(&'r self, attached: &'r [Row]) -> Vec<&'r Row> {
        self.placed.iter().filter_map(|placed| placed.row.as_ref()).chain(attached).collect()
    }

    /// Returns the ledger of a prompt that isn't made.
    pub(super) fn refused_ledger(&self) -> PromptLedger {
        self.ledger(String::new(), "", &BTreeMap::new()).0
    }

    /// Makes the ledger, with the row of each part by its index among the parts.
    fn ledger(
        &self,
        prompt: String,
        map: &str,
        places: &BTreeMap<usize, PiecePlace>,
    ) -> (PromptLedger, BTreeMap<usize, usize>) {
        let (mut front, mut moved, mut events, mut scoped) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (at, (part, placed)) in self.parts.iter().zip(&self.placed).enumerate() {
            let rows = match (part, places.get(&at)) {
                (PromptPart::Item(item), _) if item.section == Section::Scope => &mut scoped,
                (PromptPart::Item(_), None | Some(PiecePlace::Front)) => &mut front,
                (PromptPart::Item(_), Some(PiecePlace::Turn(_) | PiecePlace::Tail)) => &mut moved,
                (PromptPart::Event(..), _) => &mut events,
                (PromptPart::Transcript, _) => continue,
            };
            rows.extend(placed.row.clone().map(|row| (Some(at), row)));
        }
        let fixed = |key: &str, bytes: usize| (None, Row::new_fixed(key, bytes));
        let mut rows = vec![fixed("system", self.system.len()), fixed("tools", self.inputs.tools.bytes)];
        rows.append(&mut front);
        let map = fixed("map", map.len());
        let said = || self.transcript.rows().map(|row| (None, row));
        match self.inputs.layout {
            Layout::MapFirst => {
                rows.push(map);
                rows.extend(said());
                rows.append(&mut events);
            }
            Layout::StableFirst(_) => {
                rows.extend(said());
                rows.append(&mut events);
                rows.append(&mut scoped);
                rows.append(&mut moved);
                rows.push(map);
            }
        }
        rows.append(&mut scoped);
        rows.extend(self.attachments.rows().into_iter().map(|row| (None, row)));
        rows.push(fixed("input", self.required_sections().last().map_or(0, |(_, bytes)| *bytes)));
        let part_rows = rows.iter().enumerate().filter_map(|(row, (part, _))| Some(((*part)?, row))).collect();
        let rows = rows.into_iter().map(|(_, row)| row).collect();
        let tools = &self.inputs.tools;
        let report = &self.filled.report;
        let ledger = PromptLedger {
            budget: self.inputs.moment.budget,
            used: self.used,
            rows,
            tools: tools.names().into_iter().map(str::to_owned).collect(),
            refused: tools.refused.clone(),
            reports: tools.reports.clone(),
            prefix: sha256_hex(format!("{}\n{}", tools.hash, self.system).as_bytes()),
            prompt,
            form: HashForm::Canonical,
            values: report.used.clone(),
            unresolved: report.missed_keys(),
            cut: report.cut.clone(),
        };
        (ledger, part_rows)
    }
}

fn short_hash(text: &str) -> String {
    let mut hash = sha256_hex(text.as_bytes());
    hash.truncate(HASH_DIGITS);
    hash
}
