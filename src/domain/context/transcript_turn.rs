//! A turn as later prompts of its session show it.

use super::sight::ViewerKey;
use super::text;
use crate::chat::{ChatMessage, Reasoning, ToolCall};
use crate::foreign::ForeignText;
use crate::media::LINE_BYTES;
use crate::session::TurnRecord;
use std::ops::Deref;
use std::sync::{Mutex, OnceLock};

/// A turn of a transcript: its record, which never changes, and the bytes of showing it, which are computed once
/// because every prompt of a long session needs them.
#[derive(Debug, Default)]
pub struct TranscriptTurn {
    record: TurnRecord,
    shown: OnceLock<TurnSize>,
    whole_for: Mutex<Option<ViewerKey>>,
}

/// Facts about showing a turn whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnSize {
    /// Bytes in the prompt, with the venue's notes above results.
    pub(super) bytes: usize,
    /// No line of the turn is quoted.
    pub(super) as_it_is: bool,
}

impl TranscriptTurn {
    pub(super) fn shown_size(&self) -> TurnSize {
        *self.shown.get_or_init(|| {
            let heard = self.heard.iter().map(|heard| (text::quote_heard(&heard.text).len(), heard.text.len()));
            let said = self.said.iter().map(|message| {
                (message_bytes(message, |text| ForeignText::text(text).len()), message_bytes(message, str::len))
            });
            let (bytes, stored) = heard.chain(said).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            let noted: usize = result_notes(self).map(|(_, line)| line.len() + 1).sum();
            // Quoting only makes a text longer.
            let lines = self.heard.iter().map(|heard| heard.attachments.len() * LINE_BYTES).sum::<usize>();
            TurnSize { bytes: bytes + noted + lines, as_it_is: bytes == stored }
        })
    }

    /// Whether the turn is known to be whole for this viewer: it stands for the turn and may know everything that the
    /// turn learned. If no turn before has learned anything else, the turn is shown whole.
    pub(super) fn is_whole_for(&self, viewer: &ViewerKey) -> bool {
        self.whole_for.lock().is_ok_and(|known| known.as_ref() == Some(viewer))
    }

    /// Remembers the last viewer for whom the turn is whole.
    pub(super) fn remember_whole_for(&self, viewer: &ViewerKey) {
        if let Ok(mut known) = self.whole_for.lock()
            && known.as_ref() != Some(viewer)
        {
            *known = Some(viewer.clone());
        }
    }
}

impl From<TurnRecord> for TranscriptTurn {
    fn from(record: TurnRecord) -> Self {
        Self { record, shown: OnceLock::new(), whole_for: Mutex::new(None) }
    }
}

impl Deref for TranscriptTurn {
    type Target = TurnRecord;

    fn deref(&self) -> &TurnRecord {
        &self.record
    }
}

impl PartialEq for TranscriptTurn {
    fn eq(&self, other: &Self) -> bool {
        self.record == other.record
    }
}

/// Returns the bytes of a message in the prompt; `fit` returns the shown bytes of its text.
pub(super) fn message_bytes(message: &ChatMessage, fit: impl Fn(&str) -> usize) -> usize {
    match message {
        ChatMessage::User { text, attachments } => fit(text) + attachments.len() * LINE_BYTES,
        ChatMessage::Tool { text, name, .. } => fit(text) + name.len(),
        ChatMessage::Assistant { text, calls, reasoning } => {
            fit(text) + reasoning_bytes(reasoning.as_ref()) + calls.iter().map(ToolCall::bytes).sum::<usize>()
        }
    }
}

/// Returns the bytes of a reply's reasoning in later prompts.
pub fn reasoning_bytes(reasoning: Option<&Reasoning>) -> usize {
    reasoning.into_iter().flat_map(|reasoning| &reasoning.items).map(|item| item.to_string().len()).sum()
}

/// Iterates over the venue's notes above results, with the index of the message.
pub(crate) fn result_notes(turn: &TurnRecord) -> impl Iterator<Item = (usize, String)> {
    let results = (0..).zip(&turn.said).filter(|(_, message)| matches!(message, ChatMessage::Tool { .. }));
    let noted = results.zip(&turn.calls).filter_map(|((at, _), call)| Some((at, call.note.as_deref()?)));
    noted.map(|(at, note)| (at, text::note(note)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::Arguments;
    use crate::session::CallerMessage;
    use serde_json::json;

    #[test]
    fn a_turn_reports_its_shown_size_and_whether_it_was_cut() {
        let call = ToolCall { id: "c".into(), name: "read".into(), arguments: Arguments::Json(json!({"n": 1})) };
        let turn = |heard: &str, answer: &str, result: &str| {
            let said = vec![
                ChatMessage::assistant(answer.into(), vec![call.clone()]),
                ChatMessage::Tool { call: "c".into(), name: "read".into(), text: result.into() },
            ];
            let heard = vec![CallerMessage { job: None, text: heard.into(), attachments: Vec::new() }];
            TranscriptTurn::from(TurnRecord { heard, said, ..TurnRecord::default() })
        };
        let fixed = "read".len() * 2 + r#"{"n":1}"#.len();
        for (heard, answer, result, quotes) in [
            ("", "", "", 0),
            ("[Task 1 (from: a)]\nhello", "hi", "a\nb", 0),
            ("[Task 1 (from: a)]\n[Task 2 (from: b)]", "hi", "b", 1),
            ("hello", "a\n[Message]", "[Context Map]\n[Message]", 3),
        ] {
            let shown = turn(heard, answer, result).shown_size();
            assert_eq!(shown.bytes, fixed + heard.len() + answer.len() + result.len() + 2 * quotes, "{heard:?}");
            assert_eq!(shown.as_it_is, quotes == 0, "{heard:?}");
        }
    }
}
