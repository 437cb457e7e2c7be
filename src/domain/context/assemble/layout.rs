//! Puts the parts of a prompt in order, and writes its messages and its ledger.
//!
//! ```text
//! system │ front, goals, summaries, turns (with pieces where they came), what is new │ pieces that change, date,
//!        │                                                                           │ map, running jobs,
//!        │◀──────────── stays the same in the next request ─────────────────────────▶│ how the task ends
//! ```

use super::{Assembled, Assembly, GAP, Part};
use crate::agent::PromptStyle;
use crate::call::ToolTarget;
use crate::chat::{ChatMessage, ModelRequest};
use crate::context::attach::references_of;
use crate::context::digest::prompt_hash;
use crate::context::inputs::{Layout, ShownEvent};
use crate::context::item::Section;
use crate::context::ledger::{Form, Ledger, Row};
use crate::context::map;
use crate::context::message::{Message, Text};
use crate::context::text;
use crate::context::tiles::{MessageTiles, TileSource};
use crate::context::transcript::{Exchange, TaskPlace};
use crate::ids::{AssetId, sha256_hex};
use crate::media::Attachment;
use crate::prefix::{PiecePlace, StablePrefix, Unplaced};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Hexadecimal digits of a hash that distinguishes two texts of one place. A collision costs only a cache hit.
const HASH_DIGITS: usize = 8;

/// The messages of a prompt while they are put in order.
#[derive(Default)]
struct Messages {
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

impl Messages {
    fn push(&mut self, (message, tiles): (ChatMessage, MessageTiles)) {
        self.all.push(message);
        self.tiles.push(tiles);
    }

    fn user(&mut self, source: TileSource, text: impl Into<String>, assets: Vec<AssetId>) {
        let attachments = assets.into_iter().map(Attachment::of_asset).collect();
        let message = ChatMessage::User { text: text.into(), attachments };
        let tiles = MessageTiles::whole(source, &message);
        self.push((message, tiles));
    }

    fn conversation(&mut self, source: TileSource, message: ChatMessage) {
        self.conversation.push(self.all.len());
        let tiles = MessageTiles::whole(source, &message);
        self.push((message, tiles));
    }

    /// Adds a message of reference data, unless there are no texts. Each text comes with its index among the parts.
    fn reference(&mut self, texts: &[(usize, &Text<'_>)]) {
        if texts.is_empty() {
            return;
        }
        let bytes: usize = texts.iter().map(|(_, text)| text.len() + GAP).sum();
        let mut reference = Message::of(TileSource::Reference, text::REFERENCE, text::REFERENCE.len() + bytes);
        for (at, text) in texts {
            reference.part(TileSource::Part(*at), text);
        }
        self.push(reference.done());
        self.references += 1;
    }
}

impl<'i> Assembly<'i> {
    pub(super) fn finish(self) -> Assembled {
        let (places, prefix) = match &self.inputs.layout {
            Layout::MapFirst => (BTreeMap::new(), None),
            Layout::StableFirst(before) => {
                let (places, prefix) = self.place_pieces(before.as_ref());
                (places, Some(prefix))
            }
        };
        let (messages, map, used) = match &prefix {
            None => self.map_first(),
            Some(_) => self.stable_first(&places),
        };
        let Messages { mut all, mut tiles, conversation, stable, references: _ } = messages;
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
        let shown = self.shown().into_iter().map(|(_, shown)| shown).collect();
        Assembled { request, ledger, shown, unpinned: self.unpinned, conversation, prefix, tiles }
    }

    /// Writes the context map for a prompt whose other parts have `fixed` bytes.
    fn map(&self, fixed: usize) -> String {
        let attached = self.attachments.rows();
        let map = map::Map {
            items: &self.filled.items,
            rows: &self.rows(&attached),
            turns: self.transcript.omitted(),
            budget: self.budget,
            is_full: self.inputs.frame.prompt == PromptStyle::Full,
            compacts: self.inputs.tools.targets.contains(&ToolTarget::Compact),
        };
        map.text(fixed, self.wanted())
    }

    /// Returns the used bytes without the map and the headings of reference data, for which only bounds were reserved.
    fn fixed(&self) -> usize {
        self.used - map::reserve(&self.filled.items) - self.reserved_headings()
    }

    /// Puts the messages in the order of older records; returns them with the map and the used bytes.
    fn map_first(&self) -> (Messages, String, usize) {
        let mut messages = Messages::default();
        let fixed = self.fixed() + text::REFERENCE.len() + GAP;
        let map = self.map(fixed);
        let used = fixed + map.len();
        let referred = |section| matches!(section, Section::Context | Section::Loads | Section::Resource);
        let mut reference = Message::of(TileSource::Reference, text::REFERENCE, 0);
        self.texts(referred, |at, part| reference.part(at, part));
        reference.text(TileSource::Map, &map);
        messages.push(reference.done());
        let summary = TileSource::Summary;
        self.transcript.lead().for_each(|text| messages.conversation(summary, ChatMessage::user(text)));
        for Exchange { turn, heard, task: _, said } in self.transcript.exchanges() {
            heard.into_iter().chain(said).for_each(|message| messages.conversation(TileSource::Turn(turn), message));
        }
        let mut tail = Message::of(TileSource::Input, &self.tail.date, 0);
        let mut pending = Message::lines();
        self.texts(|s| s == Section::Pending, |at, part| pending.part(at, part));
        self.tail.open.iter().for_each(|open| pending.text(TileSource::Input, open));
        tail.under(text::PENDING, pending);
        self.texts(|s| s == Section::Inbox, |at, part| tail.part(at, part));
        self.scoped(&mut tail);
        self.tail.input.iter().for_each(|input| tail.text(TileSource::Input, input));
        messages.push(tail.done());
        (messages, map, used)
    }

    /// Puts the messages with the stable ones first; returns them with the map and the used bytes.
    fn stable_first(&self, places: &BTreeMap<usize, PiecePlace>) -> (Messages, String, usize) {
        let mut messages = Messages::default();
        let at = |place: PiecePlace| -> Vec<(usize, &Text<'i>)> {
            let here = places.iter().filter(|(_, known)| **known == place);
            here.filter_map(|(at, _)| Some((*at, self.placed[*at].text.as_ref()?))).collect()
        };
        let task = self.tail.task.as_ref();
        let task_place = self.transcript.task_place();
        messages.reference(&at(PiecePlace::Front));
        // Sections that came with the task stay at its place as long as the task is open.
        let open = |messages: &mut Messages, task: &str| {
            let mut scoped = Message::empty();
            self.scoped(&mut scoped);
            scoped.into_message().into_iter().for_each(|message| messages.push(message));
            let assets = self.inputs.served.task.as_ref().map(|task| references_of(task).assets);
            messages.user(TileSource::Input, task, assets.unwrap_or_default());
        };
        task.iter().filter(|_| task_place == TaskPlace::Before).for_each(|task| open(&mut messages, task));
        let summary = TileSource::Summary;
        self.transcript.lead().for_each(|text| messages.conversation(summary, ChatMessage::user(text)));
        for Exchange { turn, heard, task, said } in self.transcript.exchanges() {
            for (at, message) in heard.into_iter().enumerate() {
                match (message, &self.tail.task) {
                    (ChatMessage::User { text, .. }, Some(_)) if task == Some(at) => open(&mut messages, &text),
                    (message, _) => messages.conversation(TileSource::Turn(turn), message),
                }
            }
            messages.reference(&at(PiecePlace::Turn(turn)));
            for message in said {
                messages.conversation(TileSource::Turn(turn), message);
            }
        }
        // New events look as the transcript shows them in the next prompt.
        for (at, event) in self.shown() {
            messages.user(TileSource::Part(at), text::heard(&event.text).into_owned(), event.attachments);
        }
        task.iter().filter(|_| task_place == TaskPlace::Behind).for_each(|task| open(&mut messages, task));
        messages.stable = messages.all.len();
        messages.reference(&at(PiecePlace::Turn(self.turn())));
        messages.reference(&at(PiecePlace::Tail));
        let fixed = self.fixed() + messages.references * (text::REFERENCE.len() + GAP);
        let map = self.map(fixed);
        let mut tail = Message::empty();
        for (source, text) in [(TileSource::Input, &self.tail.date), (TileSource::Map, &map)] {
            if !text.is_empty() {
                tail.text(source, text);
            }
        }
        let mut running = Message::lines();
        self.tail.open.iter().for_each(|open| running.text(TileSource::Input, open));
        tail.under(text::PENDING, running);
        self.tail.input.iter().for_each(|input| tail.text(TileSource::Input, input));
        tail.into_message().into_iter().for_each(|message| messages.push(message));
        let used = fixed + map.len();
        (messages, map, used)
    }

    /// Adds the sections that came with the task to a message.
    fn scoped(&self, tail: &mut Message) {
        let mut heading = Some(text::SCOPED);
        self.texts(
            |section| section == Section::Scope,
            |at, part| {
                heading.take().iter().for_each(|heading| tail.text(TileSource::Scoped, heading));
                tail.part(at, part);
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
            let (Part::Item(item), Some(text)) = (part, &placed.text) else { continue };
            if item.section == Section::Scope {
                continue;
            }
            let time = times.entry(&item.key).or_default();
            *time += 1;
            // Two entries may have the same key.
            let key = short_hash(&format!("{time} {}", item.key));
            keys.push((at, key.clone()));
            pieces.push((key, short_hash(&text.joined())));
        }
        let basis = self.basis();
        let now = Unplaced { basis, from: self.transcript.first_shown(), turn: self.turn(), pieces };
        let prefix = StablePrefix::next(before, now, |turn| self.transcript.shows(turn));
        let places = keys.into_iter().map(|(at, key)| (at, prefix.place(&key))).collect();
        (places, prefix)
    }

    /// Returns the hash of everything before the turns, without the pieces of context.
    fn basis(&self) -> String {
        let model = &self.inputs.frame.model;
        let mut basis = [model.id().as_str(), &self.inputs.tools.hash, &self.system].join("\n");
        if self.transcript.task_place() == TaskPlace::Before {
            basis.extend(self.tail.task.as_deref());
        }
        self.transcript.lead().for_each(|text| basis.extend(["\n", text]));
        short_hash(&basis)
    }

    /// Visits the parts of some sections that are in the prompt, in order.
    fn texts(&self, wanted: impl Fn(Section) -> bool, mut each: impl FnMut(TileSource, &Text<'_>)) {
        for (at, (part, placed)) in self.parts.iter().zip(&self.placed).enumerate() {
            let section = match part {
                Part::Item(item) => item.section,
                Part::Event(section, ..) => *section,
                Part::Transcript => Section::Transcript,
            };
            placed.text.iter().filter(|_| wanted(section)).for_each(|text| each(TileSource::Part(at), text));
        }
    }

    /// Returns the events in the prompt, each with its index among the parts.
    fn shown(&self) -> Vec<(usize, ShownEvent)> {
        let parts = self.parts.iter().zip(&self.placed).enumerate();
        let shown = parts.filter_map(|(at, (part, placed))| match (part, &placed.text) {
            (Part::Event(section, key, event), Some(text)) => {
                let section = if *section == Section::Pending { format!("{}\n", text::PENDING) } else { String::new() };
                let text = format!("{section}{}", text.joined());
                let attachments = references_of(event).assets;
                Some((at, ShownEvent { key: (*key).to_owned(), id: event.id.clone(), text, attachments }))
            }
            (Part::Event(..) | Part::Item(_) | Part::Transcript, _) => None,
        });
        shown.collect()
    }

    fn rows<'r>(&'r self, attached: &'r [Row]) -> Vec<&'r Row> {
        self.placed.iter().filter_map(|placed| placed.row.as_ref()).chain(attached).collect()
    }

    /// Returns the ledger of a prompt that isn't made.
    pub(super) fn refused_ledger(&self) -> Ledger {
        self.ledger(String::new(), "", &BTreeMap::new()).0
    }

    /// Makes the ledger, with the row of each part by its index among the parts.
    fn ledger(
        &self,
        prompt: String,
        map: &str,
        places: &BTreeMap<usize, PiecePlace>,
    ) -> (Ledger, BTreeMap<usize, usize>) {
        let (mut front, mut moved, mut events, mut scoped) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (at, (part, placed)) in self.parts.iter().zip(&self.placed).enumerate() {
            let rows = match (part, places.get(&at)) {
                (Part::Item(item), _) if item.section == Section::Scope => &mut scoped,
                (Part::Item(_), None | Some(PiecePlace::Front)) => &mut front,
                (Part::Item(_), Some(PiecePlace::Turn(_) | PiecePlace::Tail)) => &mut moved,
                (Part::Event(..), _) => &mut events,
                (Part::Transcript, _) => continue,
            };
            rows.extend(placed.row.clone().map(|row| (Some(at), row)));
        }
        let fixed = |key: &str, bytes: usize| (None, Row::fixed(key, bytes));
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
        rows.push(fixed("input", self.required().last().map_or(0, |(_, bytes)| *bytes)));
        let part_rows = rows.iter().enumerate().filter_map(|(row, (part, _))| Some(((*part)?, row))).collect();
        let rows = rows.into_iter().map(|(_, row)| row).collect();
        let tools = &self.inputs.tools;
        let report = &self.filled.report;
        let ledger = Ledger {
            budget: self.inputs.moment.budget,
            used: self.used,
            rows,
            tools: tools.names().into_iter().map(str::to_owned).collect(),
            refused: tools.refused.clone(),
            reports: tools.reports.clone(),
            prefix: sha256_hex(format!("{}\n{}", tools.hash, self.system).as_bytes()),
            prompt,
            form: Form::Canonical,
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
