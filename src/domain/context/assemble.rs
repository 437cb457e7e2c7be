//! Assembles the prompt and the ledger of a turn from its inputs.
//!
//! Required sections are placed first. Then each other part, by priority, gets the bytes that it asks for, or those
//! that are left, or none. The order in the prompt is that of [`Section`], not the order in which bytes were given.

use super::attach::{self, AttachmentPlan, references_of};
use super::events::EventRoom;
use super::fill::{FilledTexts, fill};
use super::inputs::{Inputs, Layout, ShownEvent};
use super::item::{Absence, ItemContent, PromptItem, Section};
use super::ledger::{PromptLedger, Row, RowStatus};
use super::message::PartText;
use super::offer::offer_bytes;
use super::tiles::{MessageTiles, PromptRows};
use super::transcript::Trim;
use super::{events, map, text, transcript};

use crate::chat::ModelRequest;
use crate::event::Event;
use crate::foreign::ForeignText;

use crate::limits::ENTRY_FLOOR;
use crate::media::LINE_BYTES;
use crate::prefix::{PiecePlace, StablePrefix};
use crate::values::placeholder::UnresolvedPlaceholders;
use std::collections::BTreeSet;
use tail::{PromptTail, open_task, tail};

mod layout;
mod tail;

/// Bytes between two parts of a message.
const GAP: usize = 2;
/// Percentage of the budget from which on loads are unpinned.
const UNPIN_FROM_PERCENT: usize = 90;
/// Percentage of the budget down to which loads are unpinned.
const UNPIN_TO_PERCENT: usize = 70;
/// Number of steps in which the bytes left for values are counted, so that values are not cut differently in every
/// turn.
const ASK_STEPS: usize = 16;

/// A prompt with its ledger and the data that later turns need.
#[derive(Debug, Clone, PartialEq)]
pub struct AssembledPrompt {
    /// The request to the model.
    pub request: ModelRequest,
    /// Record of each part of the prompt.
    pub ledger: PromptLedger,
    /// Results and messages in the prompt; the others stay in the mailbox.
    pub shown: Vec<ShownEvent>,
    /// Paths of loads that must leave because the context is nearly full.
    pub unpinned: Vec<String>,
    /// Indexes of the conversation before this turn in the request's messages, without the open task.
    pub conversation: Vec<usize>,
    /// Stable part of the prompt that the session's next prompt continues where it doesn't change.
    pub prefix: Option<StablePrefix>,
    /// For each message of the request, the parts of the prompt that its bytes belong to.
    pub tiles: Vec<MessageTiles>,
}

impl AssembledPrompt {
    /// Returns the rows of the prompt; each byte of its texts belongs to one row.
    pub fn prompt_rows(&self) -> PromptRows {
        PromptRows::new(&self.ledger, &self.request, &self.tiles)
    }
}

/// Why a prompt can't be assembled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContextError {
    /// The required parts exceed the budget.
    #[error(
        "the required context has {required} bytes, expected at most {budget} ({sizes}); raise `contextBudget` or shorten them"
    )]
    Overflow {
        /// Bytes of the required parts.
        required: usize,
        /// Bytes of the budget.
        budget: usize,
        /// Bytes of each section, as a text.
        sizes: String,
    },
    /// Placeholders have no value, and the agent sets `strictPlaceholders`.
    #[error(transparent)]
    Unresolved(#[from] UnresolvedPlaceholders),
    /// A required entry is absent.
    #[error("required context `{label}` is unavailable: {reason}")]
    RequiredMissing {
        /// Label of the entry.
        label: String,
        /// Reason for its absence.
        reason: String,
    },
}

/// The error of a prompt, with its ledger as far as it was made.
#[derive(Debug, Clone, PartialEq)]
pub struct RefusedPrompt {
    /// Why the prompt can't be assembled.
    pub error: ContextError,
    /// Ledger of the parts that were placed.
    pub ledger: PromptLedger,
}

/// A part of a prompt that asks for bytes.
enum PromptPart<'i> {
    /// An item of the inputs.
    Item(&'i PromptItem),
    /// A result or a message.
    Event(Section, &'i str, &'i Event),
    /// The conversation before this turn.
    Transcript,
}

/// The bytes that a part got.
#[derive(Default)]
struct PlacedPart<'i> {
    /// Text of the part; `None` if it is not in the prompt.
    text: Option<PartText<'i>>,
    row: Option<Row>,
    /// Bytes that the part would take with enough room.
    wants: usize,
}

/// Assembles the prompt of a turn.
pub fn assemble(inputs: &Inputs) -> Result<AssembledPrompt, Box<RefusedPrompt>> {
    let refused = match pack(inputs) {
        Err(refused) if matches!(refused.error, ContextError::Overflow { .. }) => refused,
        built => return built,
    };
    // Each load has a line in the map, which is never cut: without loads the prompt may fit.
    let (loads, items): (Vec<_>, Vec<_>) =
        inputs.items.iter().cloned().partition(|item| item.section == Section::Loads);
    if loads.is_empty() {
        return Err(refused);
    }
    let mut built = pack(&Inputs { items, ..inputs.clone() })?;
    built.unpinned = loads.into_iter().filter_map(|load| load.source).collect();
    Ok(built)
}

fn pack(inputs: &Inputs) -> Result<AssembledPrompt, Box<RefusedPrompt>> {
    let filled = fill(inputs);
    Assembly::new(inputs, &filled).run()
}

struct Assembly<'i> {
    inputs: &'i Inputs,
    filled: &'i FilledTexts<'i>,
    budget: usize,
    used: usize,
    /// Bytes of `used` that results and messages take.
    events: usize,
    system: String,
    /// Everything that asks for bytes, in the order of the prompt.
    parts: Vec<PromptPart<'i>>,
    placed: Vec<PlacedPart<'i>>,
    transcript: transcript::TranscriptWindow<'i>,
    attachments: AttachmentPlan,
    /// Fixed parts of the last message.
    tail: PromptTail,
    unpinned: Vec<String>,
}

impl<'i> Assembly<'i> {
    fn new(inputs: &'i Inputs, filled: &'i FilledTexts<'i>) -> Self {
        let served = &inputs.served;
        let items = filled.items.iter().map(|item| PromptPart::Item(item));
        let results = served.results.iter().map(|(key, event)| PromptPart::Event(Section::Pending, key, event));
        let messages = served.messages.iter().map(|(key, event)| PromptPart::Event(Section::Inbox, key, event));
        let parts: Vec<_> = items.chain([PromptPart::Transcript]).chain(results).chain(messages).collect();
        let tail = tail(inputs);
        let open = served.task.as_ref().and_then(Event::job).map(|job| open_task(job, &tail));
        let mut assembly = Self {
            budget: inputs.moment.budget.bytes,
            used: 0,
            events: 0,
            system: text::system(&inputs.frame, &filled.system, &inputs.moment.date),
            placed: parts.iter().map(|_| PlacedPart::default()).collect(),
            parts,
            transcript: transcript::TranscriptWindow::new(
                &inputs.transcript,
                &served.goals,
                open,
                inputs.frame.viewer(),
            ),
            attachments: AttachmentPlan::default(),
            tail,
            unpinned: Vec::new(),
            inputs,
            filled,
        };
        let fixed: usize = assembly.required_sections().iter().map(|(_, bytes)| bytes).sum();
        assembly.attachments = AttachmentPlan::new(inputs, assembly.budget.saturating_sub(fixed));
        assembly
    }

    fn run(mut self) -> Result<AssembledPrompt, Box<RefusedPrompt>> {
        let missed = &self.filled.report.missed;
        if self.inputs.frame.strict && !missed.is_empty() {
            let error = ContextError::Unresolved(UnresolvedPlaceholders { keys: missed.clone() });
            return Err(Box::new(RefusedPrompt { error, ledger: self.refused_ledger() }));
        }
        if let Some((label, reason)) = attach::missing_attachment(self.inputs) {
            let error = ContextError::RequiredMissing { label, reason };
            return Err(Box::new(RefusedPrompt { error, ledger: self.refused_ledger() }));
        }
        self.used = self.required_sections().iter().map(|(_, bytes)| bytes).sum();
        if self.used > self.budget {
            return Err(self.overflow_error(None));
        }
        let mut order: Vec<usize> = (0..self.parts.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(self.rank(*at)));
        for at in order {
            self.place_part(at)?;
        }
        Ok(self.finish())
    }

    /// Returns the sections that are never cut, with their bytes.
    fn required_sections(&self) -> Vec<(&'static str, usize)> {
        let PromptTail { date, open, task, input } = &self.tail;
        let input = [Some(date), open.as_ref(), task.as_ref(), input.as_ref()];
        let input = input.into_iter().flatten().map(|text| text.len() + GAP);
        let scoped = self.filled.items.iter().any(|item| item.section == Section::Scope);
        let scoped = scoped.then_some(("scope", text::SCOPED.len() + GAP));
        let fixed = [
            ("system", self.system.len()),
            ("tools", self.inputs.tools.bytes),
            ("map", map::reserved_bytes(&self.filled.items) + self.reserved_headings()),
            ("transcript", self.transcript.required_bytes()),
        ];
        let attached = Some(("attachments", self.attachments.weight())).filter(|(_, weight)| *weight > 0);
        fixed.into_iter().chain(attached).chain(scoped).chain([("input", input.sum())]).collect()
    }

    /// Returns the most messages of reference data that the prompt can have.
    fn max_headings(&self) -> usize {
        let before = match &self.inputs.layout {
            Layout::MapFirst => return 1,
            Layout::StableFirst(_) if self.filled.items.is_empty() => return 0,
            Layout::StableFirst(before) => before.as_ref(),
        };
        let places = before.iter().flat_map(|before| before.pieces.values()).filter_map(|piece| match piece.place {
            PiecePlace::Turn(turn) => Some(turn),
            PiecePlace::Front | PiecePlace::Tail => None,
        });
        // Three more: the front, this turn and the tail.
        places.collect::<BTreeSet<_>>().len() + 3
    }

    /// Returns the order of a part: required parts first, then by priority; ties keep the order of the prompt. Without
    /// a task the first event is required; a result is required because the task waits for it.
    fn rank(&self, at: usize) -> (bool, i32) {
        match &self.parts[at] {
            PromptPart::Item(item) => (item.required, item.priority),
            PromptPart::Event(section, ..) => (self.must_show(at), section.priority()),
            PromptPart::Transcript => (false, Section::Transcript.priority()),
        }
    }

    fn must_show(&self, at: usize) -> bool {
        let first = self.parts.iter().position(|part| matches!(part, PromptPart::Event(..)));
        let awaited = matches!(self.parts[at], PromptPart::Event(Section::Pending, ..));
        first == Some(at) && (awaited || self.inputs.served.task.is_none())
    }

    fn place_part(&mut self, at: usize) -> Result<(), Box<RefusedPrompt>> {
        match self.parts[at] {
            PromptPart::Transcript => {
                self.unpin_loads();
                // The last tenth of the budget stays free for the turn's reply and results.
                let room = (self.budget / 100 * UNPIN_FROM_PERCENT).saturating_sub(self.used);
                let trim = match &self.inputs.layout {
                    Layout::MapFirst => Trim::Single,
                    Layout::StableFirst(before) => {
                        Trim::Steps(before.as_ref().map(|before| before.from).filter(|from| *from > 0))
                    }
                };
                self.used += self.transcript.fill(room, trim);
                Ok(())
            }
            PromptPart::Item(item) => {
                let (required, _) = self.rank(at);
                let header = text::heading(item);
                let shown = match &item.content {
                    ItemContent::Absent(why, reason) => return self.place_absent(at, item, *why, reason),
                    content => {
                        let lines = item.attachments.len() * LINE_BYTES;
                        let left = self.budget.saturating_sub(self.used).saturating_sub(lines);
                        let room = left.saturating_sub(header.len() + GAP);
                        offer_bytes(&header, self.asked_bytes(item), content, left, room)
                    }
                };
                let wants = header.len() + GAP + shown.wants;
                let row = Row {
                    key: item.key.clone(),
                    source: item.source.clone(),
                    allowed: item.allowed.clone(),
                    origin: item.origin.clone(),
                    ..shown.row
                };
                let text =
                    shown.text.map(|body| PartText::new(header, body).with_attachments(item.attachments.clone()));
                self.place_text(at, required, text, wants, row)
            }
            PromptPart::Event(section, _, event) => {
                let required = self.must_show(at);
                let (header, content) = text::event(event);
                let assets = references_of(event).assets;
                let left = self.budget.saturating_sub(self.used).saturating_sub(GAP + assets.len() * LINE_BYTES);
                let shown = events::offer_event(
                    event,
                    &header,
                    &content,
                    EventRoom::from_budget(self.budget, left, self.events),
                );
                let wants = header.len() + GAP + shown.wants;
                self.events += shown.row.rendered;
                let key = match event.job() {
                    Some(job) => format!("pending/{job}"),
                    None => format!("inbox/{}", event.id),
                };
                let source = event.job().filter(|_| section == Section::Pending).map(|job| format!("j/{job}/output"));
                let text = shown.text.map(|body| {
                    PartText::new(header, ForeignText::continue_line(body.into_owned())).with_attachments(assets)
                });
                self.place_text(at, required, text, wants, Row { key, source, ..shown.row })
            }
        }
    }

    /// Returns the bytes that an item asks for. The default of a value depends only on the items before it: results and
    /// messages differ from turn to turn, and would change the value with them.
    fn asked_bytes(&self, item: &PromptItem) -> Option<usize> {
        match (item.asked, &item.content, &self.inputs.layout) {
            (None, ItemContent::Value(_), Layout::StableFirst(_)) => {
                let parts = self.parts.iter().zip(&self.placed);
                let items =
                    parts.filter(|(part, _)| matches!(part, PromptPart::Item(item) if item.section != Section::Scope));
                let taken: usize = items.filter_map(|(_, placed)| placed.text.as_ref()).map(PartText::len).sum();
                let left = self.budget.saturating_sub(self.system.len() + self.inputs.tools.bytes + taken);
                Some(item.content.default_bytes(left - left % (self.budget / ASK_STEPS).max(1)))
            }
            (
                asked,
                ItemContent::Text(_) | ItemContent::Value(_) | ItemContent::Excerpt { .. } | ItemContent::Absent(..),
                _,
            ) => asked,
        }
    }

    fn place_text(
        &mut self,
        at: usize,
        required: bool,
        text: Option<PartText<'i>>,
        wants: usize,
        row: Row,
    ) -> Result<(), Box<RefusedPrompt>> {
        if text.is_none() && required {
            return Err(self.overflow_error(Some((row.key, row.asked.min(ENTRY_FLOOR)))));
        }
        let is_result = matches!(self.parts[at], PromptPart::Event(Section::Pending, ..));
        // Each result stands in a message of its own, below its heading.
        let heading = match self.inputs.layout {
            Layout::StableFirst(_) if is_result => text::PENDING.len() + 1,
            Layout::MapFirst | Layout::StableFirst(_) => 0,
        };
        self.used += text.as_ref().map_or(0, |text| text.len() + heading + GAP);
        self.placed[at] = PlacedPart { text, row: Some(row), wants };
        Ok(())
    }

    /// Places a note for an item that is absent, so that absence is always visible.
    fn place_absent(
        &mut self,
        at: usize,
        item: &PromptItem,
        why: Absence,
        reason: &str,
    ) -> Result<(), Box<RefusedPrompt>> {
        let name = item.label.as_deref().unwrap_or(&item.key);
        let note = text::unavailable_entry(name, reason);
        let fits = note.len() + GAP <= self.budget.saturating_sub(self.used);
        let row = Row {
            key: item.key.clone(),
            source: item.source.clone(),
            allowed: item.allowed.clone(),
            asked: item.asked.unwrap_or(0),
            given: 0,
            rendered: if fits { note.len() } else { 0 },
            status: match why {
                Absence::Missing => RowStatus::Missing,
                Absence::Denied => RowStatus::Denied,
                Absence::Failed => RowStatus::Failed,
            },
            reason: Some(reason.to_owned()),
            origin: item.origin.clone(),
        };
        if item.required {
            self.placed[at].row = Some(row);
            let error = ContextError::RequiredMissing { label: name.to_owned(), reason: reason.to_owned() };
            return Err(Box::new(RefusedPrompt { error, ledger: self.refused_ledger() }));
        }
        let wants = note.len() + GAP;
        self.place_text(at, false, fits.then(|| PartText::from_venue(note)), wants, row)
    }

    /// Removes loads from the prompt, the newest first, until enough room is free. The measure is the wanted bytes
    /// without the transcript and the events left in the mailbox, which have their own limits.
    fn unpin_loads(&mut self) {
        let parts = self.parts.iter().zip(&self.placed);
        let items = parts.filter(|(part, _)| matches!(part, PromptPart::Item(_))).map(|(_, placed)| placed.wants);
        let events = self.events;
        let mut wanted =
            self.required_sections().iter().map(|(_, bytes)| bytes).sum::<usize>() + items.sum::<usize>() + events;
        if self.percent(wanted) < UNPIN_FROM_PERCENT {
            return;
        }
        for at in (0..self.parts.len()).rev() {
            let PromptPart::Item(item) = self.parts[at] else { continue };
            if item.section != Section::Loads || self.percent(wanted) < UNPIN_TO_PERCENT {
                continue;
            }
            let PlacedPart { text, row, wants } = &mut self.placed[at];
            wanted -= *wants;
            self.used -= text.take().map_or(0, |text| text.len() + GAP);
            if let Some(row) = row {
                let reason = Some(format!("unpinned: {UNPIN_FROM_PERCENT}% of the budget was used"));
                *row = Row { given: 0, rendered: 0, status: RowStatus::Dropped, reason, ..row.clone() };
            }
            self.unpinned.extend(item.source.clone());
        }
    }

    const fn percent(&self, bytes: usize) -> usize {
        bytes.saturating_mul(100) / self.budget
    }

    fn reserved_headings(&self) -> usize {
        self.max_headings() * (text::REFERENCE.len() + GAP)
    }

    /// Returns the bytes that everything would have with enough room, without the map.
    fn wanted_bytes(&self) -> usize {
        let headings = match self.inputs.layout {
            Layout::MapFirst => 0,
            Layout::StableFirst(_) => self.reserved_headings(),
        };
        let cut = map::reserved_bytes(&self.filled.items) + self.transcript.required_bytes() + headings;
        let fixed = self.required_sections().iter().map(|(_, bytes)| bytes).sum::<usize>().saturating_sub(cut);
        fixed + self.transcript.whole_bytes() + self.placed.iter().map(|placed| placed.wants).sum::<usize>()
    }

    fn overflow_error(&self, entry: Option<(String, usize)>) -> Box<RefusedPrompt> {
        let mut sizes: Vec<_> =
            self.required_sections().iter().map(|(name, bytes)| format!("{name} {bytes}")).collect();
        let mut required = self.used;
        if let Some((key, bytes)) = entry {
            sizes.push(format!("{key} at least {bytes}"));
            required += bytes;
        }
        let error = ContextError::Overflow { required, budget: self.budget, sizes: sizes.join(", ") };
        Box::new(RefusedPrompt { error, ledger: self.refused_ledger() })
    }
}
