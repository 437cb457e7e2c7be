//! Separates `<think>…</think>` at the beginning of a text, which is reasoning, from the answer.

use std::mem::take;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";
/// Most bytes before the opening tag. A text with more blanks has no tag.
const BLANKS_MAX: usize = 256;

/// The position of the next piece in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ThinkPosition {
    /// Before the opening tag: only blanks or a part of the tag came so far.
    #[default]
    Beginning,
    Thought,
    /// Blanks behind the closing tag, which are dropped.
    Gap,
    Answer,
}

/// Splits a text into the answer and the reasoning before it.
#[derive(Debug, Default)]
pub(super) struct ThinkSplitter {
    place: ThinkPosition,
    /// Text that may be a part of a tag.
    pending: String,
}

impl ThinkSplitter {
    /// Returns the answer and the reasoning in one more piece.
    pub(super) fn push(&mut self, piece: &str) -> (String, String) {
        let (mut visible, mut thought) = (String::new(), String::new());
        if piece.is_empty() {
            return (visible, thought);
        }
        self.pending.push_str(piece);
        loop {
            match self.place {
                ThinkPosition::Beginning => {
                    let begin = self.pending.trim_start();
                    if let Some(rest) = begin.strip_prefix(OPEN) {
                        self.pending = rest.to_owned();
                        self.place = ThinkPosition::Thought;
                    } else if OPEN.starts_with(begin) && self.pending.len() <= BLANKS_MAX {
                        return (visible, thought);
                    } else {
                        self.place = ThinkPosition::Answer;
                    }
                }
                ThinkPosition::Thought => {
                    if let Some((before, rest)) = self.pending.split_once(CLOSE) {
                        thought.push_str(before);
                        self.pending = rest.to_owned();
                        self.place = ThinkPosition::Gap;
                    } else {
                        let keep = pending_tag_bytes(&self.pending);
                        thought.push_str(&self.pending[..self.pending.len() - keep]);
                        self.pending.drain(..self.pending.len() - keep);
                        return (visible, thought);
                    }
                }
                ThinkPosition::Gap => {
                    let rest = self.pending.trim_start().to_owned();
                    self.pending = rest;
                    if self.pending.is_empty() {
                        return (visible, thought);
                    }
                    self.place = ThinkPosition::Answer;
                }
                ThinkPosition::Answer => {
                    visible.push_str(&take(&mut self.pending));
                    return (visible, thought);
                }
            }
        }
    }

    /// Returns the rest as answer and reasoning at the end of the text: it was no tag.
    pub(super) fn finish(self) -> (String, String) {
        match self.place {
            ThinkPosition::Thought => (String::new(), self.pending),
            ThinkPosition::Beginning | ThinkPosition::Gap | ThinkPosition::Answer => (self.pending, String::new()),
        }
    }
}

/// Returns how many bytes at the end may begin the closing tag.
fn pending_tag_bytes(text: &str) -> usize {
    (1..CLOSE.len()).rev().find(|bytes| text.ends_with(&CLOSE[..*bytes])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_is_kept_apart_however_it_is_cut() {
        for (given, visible, thought) in [
            ("answer", "answer", ""),
            ("<think>why</think>\n\nanswer", "answer", "why"),
            ("\n <think>a < b </thin </think>x<think>y</think>", "x<think>y</think>", "a < b </thin "),
            ("<think>never closed", "", "never closed"),
            ("<thi", "<thi", ""),
            ("<thought>x", "<thought>x", ""),
            ("<think></think>x", "x", ""),
            ("", "", ""),
        ] {
            for at in (0..=given.len()).filter(|at| given.is_char_boundary(*at)) {
                let mut think = ThinkSplitter::default();
                let (mut shown, mut kept) = (String::new(), String::new());
                for piece in [&given[..at], &given[at..]] {
                    let (a, b) = think.push(piece);
                    shown.push_str(&a);
                    kept.push_str(&b);
                }
                let (a, b) = think.finish();
                assert_eq!((shown + &a, kept + &b), (visible.to_owned(), thought.to_owned()), "{given:?} at {at}");
            }
        }
    }
}
