//! Text of models and callers on a page: cut, and with its hidden characters shown. The templates escape it.

use crate::domain::visible::{cut_at, escape_hidden_json, reveal_hidden};
use serde_json::Value;

/// Bytes of a text in a row of a list.
const SUMMARY_BYTES: usize = 200;

/// Bytes of a reason or an error in a paragraph.
const SENTENCE_BYTES: usize = 2_000;

/// Bytes of a text in its own place on a page.
const PASSAGE_BYTES: usize = 20_000;

/// Bytes of the longest JSON that a form takes for editing.
pub(super) const EDITABLE_BYTES: usize = 20_000;

/// A text in its own place on a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Passage {
    /// The text, or its beginning.
    pub(super) text: String,
    /// Bytes of the whole text, if only its beginning is shown.
    pub(super) whole_bytes: Option<usize>,
}

impl Passage {
    /// Makes a passage of a text.
    pub(super) fn of_text(text: &str) -> Self {
        Self { text: reveal_hidden(&cut_at(text, PASSAGE_BYTES)), whole_bytes: whole_bytes(text) }
    }

    /// Makes a passage of a value; a text stands without quotes.
    pub(super) fn of_value(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::of_text(text),
            other => {
                let text = format!("{other:#}");
                Self { text: escape_hidden_json(&cut_at(&text, PASSAGE_BYTES)), whole_bytes: whole_bytes(&text) }
            }
        }
    }

    /// Returns how much of the text is left out, for people; `None` if nothing is.
    pub(super) fn cut_note(&self) -> Option<String> {
        let whole = self.whole_bytes?;
        Some(format!("the first {} of {}", size_text(PASSAGE_BYTES), size_text(whole)))
    }
}

fn whole_bytes(text: &str) -> Option<usize> {
    (text.len() > PASSAGE_BYTES).then_some(text.len())
}

/// Returns a text for a row of a list: one line, and short.
pub(super) fn summary(text: &str) -> String {
    let line: String =
        cut_at(text, SUMMARY_BYTES).chars().map(|c| if matches!(c, '\n' | '\t') { ' ' } else { c }).collect();
    reveal_hidden(&line)
}

/// Returns a reason or an error for a paragraph.
pub(super) fn sentence(text: &str) -> String {
    reveal_hidden(&cut_at(text, SENTENCE_BYTES))
}

/// Returns a value for a row of a list.
pub(super) fn value_summary(value: &Value) -> String {
    match value {
        Value::String(text) => summary(text),
        other => escape_hidden_json(&cut_at(&other.to_string(), SUMMARY_BYTES)),
    }
}

/// Returns a value as JSON that a person can edit: hidden characters are escapes in it.
pub(super) fn editable_json(value: &Value) -> String {
    escape_hidden_json(&format!("{value:#}"))
}

/// Returns a value as plain text of its own page, whole.
pub(super) fn raw_text(value: &Value) -> String {
    value.as_str().map_or_else(|| format!("{value:#}"), str::to_owned)
}

/// Returns a number of bytes with its unit.
#[expect(clippy::cast_precision_loss, reason = "one digit behind the point is shown")]
pub(super) fn size_text(bytes: usize) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_long_line_is_cut_and_its_hidden_characters_are_shown() {
        let passage = Passage::of_text(&"x".repeat(1 << 20));
        assert!(passage.text.len() < PASSAGE_BYTES + 10);
        assert_eq!(passage.cut_note().as_deref(), Some("the first 20.0 kB of 1.0 MB"));
        assert_eq!(Passage::of_text("pay \u{202e}001").text, "pay ⟨U+202E⟩001");
        assert_eq!(Passage::of_value(&json!({"a": "\u{202e}"})).text, "{\n  \"a\": \"\\u202e\"\n}");
        assert_eq!(Passage::of_value(&json!("a\nb")), Passage { text: "a\nb".into(), whole_bytes: None });
    }

    #[test]
    fn a_summary_is_one_short_line() {
        assert_eq!(summary("a\nb\tc"), "a b c");
        assert_eq!(value_summary(&json!({"a": 1})), r#"{"a":1}"#);
        assert!(value_summary(&json!("é".repeat(1 << 20))).len() < SUMMARY_BYTES + 10);
    }
}
