//! Section 7: what was said in the goal that is worked on, the newest exchanges that fit, a tool
//! result never without its call; before it the goals above and the summaries of what was compacted.

use super::ledger::{Row, Status};
use crate::domain::authority::Authority;
use crate::domain::chat::{Arguments, ChatMessage};
use crate::domain::goal::view::View;
use crate::domain::ids::JobId;
use crate::domain::session::TurnRecord;

/// How much of a transcript a prompt shows.
pub(super) struct Cut<'i> {
    /// Where in the tree of its goals the agent is.
    place: Option<String>,
    /// Summaries of compacted turns, oldest first, and from which one on they are shown.
    segments: &'i [String],
    segments_from: usize,
    turns: Vec<&'i TurnRecord>,
    /// Numbers of turns that ran under authority that this one doesn't have.
    denied: Vec<u64>,
    open: Option<&'i JobId>,
    /// Bytes of all turns.
    whole: usize,
    /// Bytes of the turn whose calls the model hasn't seen the results of.
    required: usize,
    /// Shown from this one on.
    from: usize,
    given: usize,
    rendered: usize,
}

impl<'i> Cut<'i> {
    /// Shows what is required, and nothing else yet. `open` is the job of the task that stands at
    /// the end of the prompt.
    pub(super) fn new(
        turns: &'i [TurnRecord],
        goals: &'i View,
        open: Option<&'i JobId>,
        authority: &Authority,
    ) -> Self {
        let live = turns.iter().filter(|turn| goals.shows(turn));
        let (turns, denied): (Vec<&TurnRecord>, Vec<_>) = live.partition(|turn| authority.covers(&turn.authority));
        let denied = denied.iter().map(|turn| turn.turn).collect();
        let whole: usize = turns.iter().map(|turn| bytes(turn, open)).sum();
        let unanswered = turns.last().filter(|turn| matches!(turn.said.last(), Some(ChatMessage::Tool { .. })));
        let place = goals.place();
        let required = unanswered.map_or(0, |turn| bytes(turn, open)) + place.as_ref().map_or(0, String::len);
        let from = turns.len() - usize::from(unanswered.is_some());
        let segments = goals.segments.as_slice();
        let segments_from = segments.len();
        let whole = whole + place.iter().chain(segments).map(String::len).sum::<usize>();
        let (given, rendered) = (required, required);
        Self { place, segments, segments_from, turns, denied, open, whole, required, from, given, rendered }
    }

    /// Bytes that can't be left out.
    pub(super) const fn required(&self) -> usize {
        self.required
    }

    /// Shows summaries, then older turns, the newest first, as whole turns within `room`. Returns their
    /// bytes.
    pub(super) fn fill(&mut self, room: usize) -> usize {
        let mut taken = 0;
        while let Some(segment) = self.segments_from.checked_sub(1).and_then(|at| self.segments.get(at)) {
            if taken + segment.len() > room {
                break;
            }
            taken += segment.len();
            self.segments_from -= 1;
        }
        while let Some(turn) = self.from.checked_sub(1).and_then(|at| self.turns.get(at)) {
            let next = bytes(turn, self.open);
            if taken + next > room {
                break;
            }
            taken += next;
            self.from -= 1;
        }
        self.given += room;
        self.rendered += taken;
        taken
    }

    /// What is shown, oldest first.
    pub(super) fn messages(&self) -> impl Iterator<Item = ChatMessage> {
        let lead = self.place.iter().chain(&self.segments[self.segments_from..]);
        let lead = lead.map(|text| ChatMessage::User { text: text.clone() });
        lead.chain(self.turns[self.from..].iter().flat_map(|turn| exchange(turn, self.open)))
    }

    /// Its lines in the ledger; none without a transcript.
    pub(super) fn rows(&self) -> impl Iterator<Item = Row> {
        let numbers = || self.denied.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let denied = (!self.denied.is_empty()).then(|| Row {
            key: "transcript".into(),
            source: None,
            allowed: None,
            asked: 0,
            given: 0,
            rendered: 0,
            status: Status::Denied,
            reason: Some(format!("turns {} ran under authority that this one doesn't have", numbers())),
        });
        self.row().into_iter().chain(denied)
    }

    fn row(&self) -> Option<Row> {
        let (all, left_out) = (self.turns.len(), self.from);
        let status = match (left_out, all) {
            (_, 0) => return None,
            (0, _) => Status::Full,
            (left_out, all) if left_out == all => Status::Dropped,
            _ => Status::Shrunk,
        };
        let first = self.turns.first().map_or(0, |turn| turn.turn);
        Some(Row {
            key: "transcript".into(),
            source: None,
            allowed: None,
            asked: self.whole,
            given: self.given,
            rendered: self.rendered,
            status,
            reason: (left_out > 0).then(|| {
                let last = self.turns[left_out - 1].turn;
                format!("turns {first} to {last} left out, {left_out} of {all}")
            }),
        })
    }
}

/// One turn as messages. The task that is still open is shown in full at the end of the prompt,
/// so that here only its beginning is marked.
fn exchange(turn: &TurnRecord, open: Option<&JobId>) -> impl Iterator<Item = ChatMessage> {
    let heard = turn.heard.iter().map(move |heard| {
        let text = match (&heard.job, open) {
            (Some(job), Some(open)) if job == open => marked(job),
            _ => heard.text.clone(),
        };
        ChatMessage::User { text }
    });
    heard.chain(turn.said.iter().cloned())
}

fn marked(job: &JobId) -> String {
    format!("[Tasks assigned to you]\n- Task {job} (from: above): shown in full below")
}

fn bytes(turn: &TurnRecord, open: Option<&JobId>) -> usize {
    let heard = turn.heard.iter().map(|heard| match (&heard.job, open) {
        (Some(job), Some(open)) if job == open => marked(job).len(),
        _ => heard.text.len(),
    });
    heard.chain(turn.said.iter().map(message_bytes)).sum()
}

/// Bytes of a message in the prompt.
fn message_bytes(message: &ChatMessage) -> usize {
    match message {
        ChatMessage::User { text } => text.len(),
        ChatMessage::Tool { text, name, .. } => text.len() + name.len(),
        ChatMessage::Assistant { text, calls } => {
            let arguments = |arguments: &Arguments| match arguments {
                Arguments::Json(value) => value.to_string().len(),
                Arguments::Malformed(text) => text.len(),
            };
            text.len() + calls.iter().map(|call| call.name.len() + arguments(&call.arguments)).sum::<usize>()
        }
    }
}
