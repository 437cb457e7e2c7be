//! The transcript in a prompt: the newest exchanges of the current goal that fit, each tool result with its call;
//! before them the goals above and the summaries of compacted turns.

use super::ledger::{Row, RowStatus};
use super::sight::{RevokedMarks, Sight, Viewer, turn_sights};
use super::text;
use super::transcript_turn::{TranscriptTurn, message_bytes, result_notes};
use crate::chat::ChatMessage;
use crate::context::goals::GoalView;
use crate::foreign::ForeignText;
use crate::ids::JobId;
use crate::lines;
use crate::media::Attachment;
use crate::session::{CallerMessage, TurnRecord};
use std::ops::Range;
use std::sync::Arc;

/// Percentage of the room that the turns take after the oldest have left; no turn leaves until they fill the room
/// again.
const CUT_TO: usize = 70;
/// Percentage of the room below which older turns come back.
const GROW_BELOW: usize = CUT_TO / 2;

/// The open task, with the text that replaces it in its first turn.
pub(super) struct OpenTask<'i> {
    /// Job of the task.
    pub(super) job: &'i JobId,
    /// Text of the task, or a mark if the text stands elsewhere.
    pub(super) shown: String,
    /// The bytes of the text are counted elsewhere.
    pub(super) is_counted: bool,
}

/// Which turns leave the prompt if there is too little room.
#[derive(Debug, Clone, Copy)]
pub(super) enum Trim {
    /// The oldest turns leave one by one.
    Single,
    /// Many turns leave at once, and then none for a long time; has the first turn of the last prompt.
    Steps(Option<u64>),
}

/// A turn as the prompt shows it.
#[derive(Default)]
pub(super) struct Exchange {
    /// Number of the turn.
    pub(super) turn: u64,
    /// Messages to the turn.
    pub(super) heard: Vec<ChatMessage>,
    /// Index in `heard` of the task that is still open.
    pub(super) task: Option<usize>,
    /// Messages of the model, with the results of its calls.
    pub(super) said: Vec<ChatMessage>,
}

/// The part of a transcript that a prompt shows.
pub(super) struct TranscriptWindow<'i> {
    /// Text of the position in the goal tree.
    place: Option<String>,
    /// Summaries of compacted turns, oldest first; shown from index `segments_from` on.
    segments: &'i [String],
    segments_from: usize,
    lines: Vec<TranscriptLine<'i>>,
    /// Numbers of turns whose authority the viewer doesn't cover.
    denied: Vec<u64>,
    /// Numbers of turns that are shown without revoked parts.
    marked: Vec<u64>,
    open: Option<OpenTask<'i>>,
    /// No turn has shown the open task yet.
    is_task_new: bool,
    /// Number of the oldest turn, shown or not.
    oldest_read: u64,
    /// Bytes of all turns.
    whole: usize,
    /// Bytes of the newest turn, if the model hasn't seen the results of its calls.
    required: usize,
    /// Index of the first shown line.
    from: usize,
    given: usize,
    rendered: usize,
}

impl<'i> TranscriptWindow<'i> {
    /// Makes a cut that shows only the required turn.
    pub(super) fn new(
        turns: &'i [Arc<TranscriptTurn>],
        goals: &'i GoalView,
        task: Option<OpenTask<'i>>,
        viewer: Viewer<'_>,
    ) -> Self {
        let open = task.as_ref().map(|task| task.job);
        let live = || turns.iter().filter(|turn| goals.shows(turn));
        // Turns after this one have results that no turn has answered yet.
        let answered = live().filter(|turn| !awaits_answer(turn)).map(|turn| turn.turn).next_back().unwrap_or(0);
        let is_open = |turn: &TurnRecord| turn.turn > answered || (open.is_some() && turn.job.as_ref() == open);
        let mut lines: Vec<TranscriptLine<'i>> = Vec::new();
        let (mut denied, mut marked) = (Vec::new(), Vec::new());
        for (turn, sight) in turns.iter().zip(turn_sights(turns, viewer, is_open)).filter(|(turn, _)| goals.shows(turn))
        {
            match (sight, lines.last_mut()) {
                (Sight::Whole, _) => lines.push(TranscriptLine::Turn(turn, None)),
                (Sight::Marked(marks), _) => {
                    marked.push(turn.turn);
                    lines.push(TranscriptLine::Turn(turn, Some(marks)));
                }
                (Sight::Hidden, last) => {
                    denied.push(turn.turn);
                    match last {
                        Some(TranscriptLine::Gap { last, .. }) => *last = turn.turn,
                        Some(TranscriptLine::Turn(..)) | None => {
                            lines.push(TranscriptLine::Gap { first: turn.turn, last: turn.turn });
                        }
                    }
                }
            }
        }
        let is_task_new = open.is_some() && !turns.iter().any(|turn| turn.job.as_ref() == open);
        let open = task;
        let whole: usize = lines.iter().map(|line| line.bytes(open.as_ref())).sum();
        let unanswered =
            lines.last().filter(|line| matches!(line, TranscriptLine::Turn(turn, _) if awaits_answer(turn)));
        let place = goals.position_text();
        let required = unanswered.map_or(0, |line| line.bytes(open.as_ref())) + place.as_ref().map_or(0, String::len);
        let from = lines.len() - usize::from(unanswered.is_some());
        let segments = goals.segments.as_slice();
        let segments_from = segments.len();
        let whole = whole + place.iter().chain(segments).map(String::len).sum::<usize>();
        let (given, rendered) = (required, required);
        Self {
            place,
            segments,
            segments_from,
            lines,
            denied,
            marked,
            open,
            is_task_new,
            oldest_read: turns.first().map_or(0, |turn| turn.turn),
            whole,
            required,
            from,
            given,
            rendered,
        }
    }

    /// Returns the bytes that can't be left out.
    pub(super) const fn required_bytes(&self) -> usize {
        self.required
    }

    /// Returns the bytes of the whole transcript.
    pub(super) const fn whole_bytes(&self) -> usize {
        self.whole
    }

    /// Describes the summaries and turns that had no room.
    pub(super) fn describe_omitted(&self) -> Option<String> {
        let summaries = match self.segments_from {
            0 => None,
            1 => Some("1 summary".to_owned()),
            many => Some(format!("{many} summaries")),
        };
        let first = self.lines.first().map_or(0, TranscriptLine::first);
        let turns = match self.from.checked_sub(1).map(|at| self.lines[at].last()) {
            None => None,
            Some(last) if last == first => Some(format!("turn {last}")),
            Some(last) => Some(format!("turns {first} to {last}")),
        };
        let gone: Vec<_> = summaries.into_iter().chain(turns).collect();
        (!gone.is_empty()).then(|| gone.join(", "))
    }

    /// Shows summaries, then older turns, the newest first, as whole turns within `room`; returns their bytes. `trim`
    /// decides which turns leave if not all fit.
    pub(super) fn fill(&mut self, room: usize, trim: Trim) -> usize {
        let mut taken = 0;
        while let Some(segment) = self.segments_from.checked_sub(1).and_then(|at| self.segments.get(at)) {
            if taken + segment.len() > room {
                break;
            }
            taken += segment.len();
            self.segments_from -= 1;
        }
        let (older, end) = (room - taken, self.from);
        self.from = match trim {
            Trim::Single => self.newest_fitting(older),
            Trim::Steps(from) => self.step_start(older, from),
        };
        taken += self.bytes(self.from..end);
        self.given += room;
        self.rendered += taken;
        taken
    }

    /// Returns the index of the first of the newest lines that fit into `room`.
    fn newest_fitting(&self, room: usize) -> usize {
        let (mut from, mut taken) = (self.from, 0);
        while let Some(line) = from.checked_sub(1).and_then(|at| self.lines.get(at)) {
            taken += line.bytes(self.open.as_ref());
            if taken > room {
                break;
            }
            from -= 1;
        }
        from
    }

    /// Returns the index of the first line if turns leave in steps: the first turn of the last prompt, as long as the
    /// turns from there on fit.
    fn step_start(&self, room: usize, before: Option<u64>) -> usize {
        let all = self.bytes(0..self.from);
        // At least one turn is shown, if it fits.
        let cut = |room: usize| match self.newest_fitting(room / 100 * CUT_TO) {
            none if none == self.from => self.newest_fitting(room).max(self.from.saturating_sub(1)),
            some => some,
        };
        let anew = || if all <= room { 0 } else { cut(room) };
        let Some(before) = before else { return anew() };
        let begins = |line: &TranscriptLine<'_>| line.first() <= before && before <= line.last();
        match self.lines.iter().position(begins).map(|at| at.min(self.from)) {
            Some(at) => match self.bytes(at..self.from) {
                bytes if bytes > room => cut(room),
                bytes if bytes < room.min(all) / 100 * GROW_BELOW => at.min(anew()),
                _ => at,
            },
            // The first turn of the last prompt isn't read any more.
            None if before < self.oldest_read => cut(room.min(all)),
            // A summary has replaced the first turn of the last prompt.
            None => anew(),
        }
    }

    fn bytes(&self, lines: Range<usize>) -> usize {
        self.lines[lines].iter().map(|line| line.bytes(self.open.as_ref())).sum()
    }

    /// Iterates over the texts before the turns: the position in the goal tree, and summaries.
    pub(super) fn lead_texts(&self) -> impl Iterator<Item = &str> {
        self.place.iter().chain(&self.segments[self.segments_from..]).map(String::as_str)
    }

    /// Iterates over the shown turns, oldest first.
    pub(super) fn exchanges(&self) -> impl Iterator<Item = Exchange> {
        self.lines[self.from..].iter().map(|line| line.exchange(self.open.as_ref()))
    }

    /// Returns the number of the first shown turn; 0 if there is none.
    pub(super) fn first_shown(&self) -> u64 {
        self.lines.get(self.from).map_or(0, TranscriptLine::first)
    }

    /// Whether the turn with this number is shown with its content.
    pub(super) fn shows(&self, number: u64) -> bool {
        self.lines[self.from..].iter().any(|line| matches!(line, TranscriptLine::Turn(turn, _) if turn.turn == number))
    }

    /// Returns where the text of the open task stands.
    pub(super) fn task_place(&self) -> TaskPlace {
        let Some(open) = &self.open else { return TaskPlace::Nowhere };
        let heard = |line: &TranscriptLine<'_>| match line {
            TranscriptLine::Turn(turn, _) => turn.heard.iter().any(|heard| heard.job.as_ref() == Some(open.job)),
            TranscriptLine::Gap { .. } => false,
        };
        match (self.is_task_new, self.lines[self.from..].iter().any(heard)) {
            (true, _) => TaskPlace::Behind,
            (false, true) => TaskPlace::Within,
            (false, false) => TaskPlace::Before,
        }
    }

    /// Iterates over its rows in the ledger; none without a transcript.
    pub(super) fn rows(&self) -> impl Iterator<Item = Row> {
        let row = |turns: &[u64], what: &str| {
            let numbers = turns.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
            let reason = Some(format!("turns {numbers} {what}"));
            (!turns.is_empty()).then(|| Row { status: RowStatus::Denied, reason, ..Row::new_fixed("transcript", 0) })
        };
        let denied = row(&self.denied, "ran under authority that this one doesn't have");
        let marked = row(&self.marked, "are shown without what they learned by authority that this one doesn't have");
        self.row().into_iter().chain(denied).chain(marked)
    }

    fn row(&self) -> Option<Row> {
        let turns =
            |lines: &[TranscriptLine<'_>]| lines.iter().filter(|line| matches!(line, TranscriptLine::Turn(..))).count();
        let (all, left_out) = (turns(&self.lines), turns(&self.lines[..self.from]));
        let status = match (left_out, all) {
            (_, 0) => return None,
            (0, _) => RowStatus::Full,
            (left_out, all) if left_out == all => RowStatus::Dropped,
            _ => RowStatus::Shrunk,
        };
        let first = self.lines.first().map_or(0, TranscriptLine::first);
        Some(Row {
            source: list_turns(&self.lines[self.from..]),
            asked: self.whole,
            given: self.given,
            rendered: self.rendered,
            status,
            reason: (left_out > 0).then(|| {
                let last = self.lines[self.from - 1].last();
                format!("turns {first} to {last} left out, {left_out} of {all}")
            }),
            ..Row::new_fixed("transcript", 0)
        })
    }
}

/// Where the text of the open task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskPlace {
    /// There is no open task.
    Nowhere,
    /// Behind the turns, because the task is new.
    Behind,
    /// In the turn that first showed it.
    Within,
    /// Before the turns, because the turn that first showed it isn't shown.
    Before,
}

/// Whether the model hasn't seen the results of the turn's calls.
fn awaits_answer(turn: &TurnRecord) -> bool {
    matches!(turn.said.last(), Some(ChatMessage::Tool { .. }))
}

/// A turn, or a note for turns that are not shown.
enum TranscriptLine<'i> {
    /// A turn with its marked parts.
    Turn(&'i TranscriptTurn, Option<RevokedMarks>),
    Gap {
        first: u64,
        last: u64,
    },
}

impl TranscriptLine<'_> {
    fn first(&self) -> u64 {
        match self {
            Self::Turn(turn, _) => turn.turn,
            Self::Gap { first, .. } => *first,
        }
    }

    fn last(&self) -> u64 {
        match self {
            Self::Turn(turn, _) => turn.turn,
            Self::Gap { last, .. } => *last,
        }
    }

    fn bytes(&self, open: Option<&OpenTask<'_>>) -> usize {
        match self {
            Self::Turn(turn, None) => turn_bytes(turn, open),
            Self::Turn(..) => {
                let Exchange { turn: _, heard, task, said } = self.exchange(open);
                let uncounted = task.filter(|_| open.is_some_and(|open| open.is_counted));
                let counted = |(at, _): &(usize, &ChatMessage)| Some(*at) != uncounted;
                let heard = heard.iter().enumerate().filter(counted).map(|(_, message)| message);
                heard.chain(&said).map(|message| message_bytes(message, str::len)).sum()
            }
            Self::Gap { first, last } => text::hidden_turns(*first, *last).len(),
        }
    }

    fn exchange(&self, open: Option<&OpenTask<'_>>) -> Exchange {
        match self {
            Self::Turn(turn, marks) => exchange(turn, marks.as_ref(), open),
            Self::Gap { first, last } => {
                let heard = vec![ChatMessage::user(text::hidden_turns(*first, *last))];
                Exchange { turn: *last, heard, ..Exchange::default() }
            }
        }
    }
}

/// Lists the numbers of the shown turns: `turns 1 to 3, 7`.
fn list_turns(lines: &[TranscriptLine<'_>]) -> Option<String> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for turn in lines.iter().filter(|line| matches!(line, TranscriptLine::Turn(..))).map(TranscriptLine::first) {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == turn => *last = turn,
            Some(_) | None => runs.push((turn, turn)),
        }
    }
    let run = |(first, last): &(u64, u64)| if first == last { first.to_string() } else { format!("{first} to {last}") };
    let runs: Vec<_> = runs.iter().map(run).collect();
    (!runs.is_empty()).then(|| format!("turns {}", runs.join(", ")))
}

/// Writes one turn as messages.
fn exchange(turn: &TranscriptTurn, marks: Option<&RevokedMarks>, open: Option<&OpenTask<'_>>) -> Exchange {
    let as_it_is = turn.shown_size().as_it_is;
    let is_open = |heard: &CallerMessage| open.filter(|open| heard.job.as_ref() == Some(open.job));
    let heard = turn.heard.iter().map(|heard| {
        let text = match is_open(heard) {
            Some(open) => open.shown.clone(),
            None if as_it_is => heard.text.clone(),
            None => text::quote_heard(&heard.text).into_owned(),
        };
        ChatMessage::User { text, attachments: heard.attachments.iter().cloned().map(Attachment::of_asset).collect() }
    });
    // Foreign text is quoted first, and then the venue's notes are added.
    let quoted = |message: &ChatMessage| if as_it_is { message.clone() } else { quote_message(message) };
    let mut shown: Vec<ChatMessage> = turn.said.iter().map(quoted).collect();
    for (result, line) in result_notes(turn) {
        let ChatMessage::Tool { text, .. } = &mut shown[result] else { continue };
        *text = if text.is_empty() { line } else { format!("{line}\n{text}") };
    }
    if let Some(marks) = marks {
        marks.hide_marked(&mut shown, &turn.calls);
    }
    let task = turn.heard.iter().position(|heard| is_open(heard).is_some());
    Exchange { turn: turn.turn, heard: heard.collect(), task, said: shown }
}

/// Writes the mark of a task whose text stands at the end of the prompt.
pub(super) fn task_mark(job: &JobId) -> String {
    format!("{}\n{}{job} (from: above): shown in full below", lines::TASKS, lines::TASK_ITEM)
}

/// Quotes a message of the model or a result for a later prompt.
fn quote_message(message: &ChatMessage) -> ChatMessage {
    let fit = |text: &str| ForeignText::text(text).into_owned();
    match message {
        ChatMessage::User { text, attachments } => {
            ChatMessage::User { text: fit(text), attachments: attachments.clone() }
        }
        ChatMessage::Assistant { text, calls, reasoning } => {
            ChatMessage::Assistant { text: fit(text), calls: calls.clone(), reasoning: reasoning.clone() }
        }
        ChatMessage::Tool { call, name, text } => {
            ChatMessage::Tool { call: call.clone(), name: name.clone(), text: fit(text) }
        }
    }
}

/// Returns the bytes of a turn that is shown whole.
fn turn_bytes(turn: &TranscriptTurn, open: Option<&OpenTask<'_>>) -> usize {
    let marked = |heard: &CallerMessage| {
        let open = open.filter(|open| heard.job.as_ref() == Some(open.job))?;
        let with = if open.is_counted { 0 } else { open.shown.len() };
        Some((with, text::quote_heard(&heard.text).len()))
    };
    let (with, without) = turn.heard.iter().filter_map(marked).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    turn.shown_size().bytes - without + with
}
