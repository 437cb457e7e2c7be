//! Masks secrets in outputs: the value and its usual encodings become `[secret NAME]`.

use super::PlainSecret;
use super::needle::{Needle, NeedleMatch};
use crate::ids::secret::SecretName;
use crate::lines;
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;

/// Length of a line of a secret from which on the line is masked by itself.
const LINE_LENGTH: usize = 16;
/// Length of a decoded secret from which on it is masked, too.
const DECODED_LENGTH: usize = 8;
/// Characters of a secret's beginning that reveal something of it, at the end of a cut text.
const REVEALING_CHARS: usize = 4;

/// Secrets that are masked.
#[derive(Clone)]
pub struct Mask {
    secrets: Vec<MaskedSecret>,
    /// Bytes that a match can begin with: all others are skipped at once.
    first: [bool; 256],
}

impl Default for Mask {
    fn default() -> Self {
        Self { secrets: Vec::new(), first: [false; 256] }
    }
}

#[derive(Clone)]
struct MaskedSecret {
    shown: String,
    /// Digits of a secret that is a number: JSON has those without quotes.
    number: Option<String>,
    needles: Vec<Needle>,
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.secrets.iter().map(|masked| &masked.shown)).finish()
    }
}

impl Mask {
    /// Adds a secret to the mask.
    pub fn add(&mut self, name: &SecretName, value: &PlainSecret) {
        let value = value.reveal();
        let mut needles = forms(value);
        for line in value.lines().map(str::trim).filter(|line| line.len() >= LINE_LENGTH && *line != value) {
            needles.extend(forms(line));
        }
        // A server may return the decoded form of a credential that is kept in base64.
        for decoded in [BASE64_STANDARD.decode(value), BASE64_URL_SAFE_NO_PAD.decode(value)].into_iter().flatten() {
            if let Ok(text) = String::from_utf8(decoded)
                && text.len() >= DECODED_LENGTH
                && !text.chars().any(char::is_control)
            {
                needles.extend(forms(&text));
            }
        }
        let number = value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.to_owned());
        for needle in &needles {
            for (byte, can) in (0..=u8::MAX).zip(&mut self.first) {
                *can |= needle.begins_with(byte);
            }
        }
        self.secrets.push(MaskedSecret { shown: format!("{}{name}]", lines::SECRET), number, needles });
    }

    /// Whether nothing is masked.
    pub const fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    /// Returns a text with the secrets masked.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let (shown, _) = self.scan(text, false);
        shown.map_or(Cow::Borrowed(text), Cow::Owned)
    }

    /// Masks a text whose end may be cut off, and removes the beginning of a secret at its end.
    pub fn cut_text(&self, text: &str) -> String {
        let (shown, seen) = self.scan(text, true);
        let rest = &text[seen..];
        let rest = if rest.chars().count() < REVEALING_CHARS { self.text(rest) } else { Cow::Borrowed("…") };
        shown.unwrap_or_else(|| text[..seen].to_owned()) + &rest
    }

    /// Masks a value, keys of maps included.
    pub fn value(&self, value: Value) -> Value {
        if self.is_empty() {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.text(&text).into_owned()),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(map) => Value::Object(
                map.into_iter()
                    .map(|(key, inner)| (self.text(&key).into_owned(), self.value(inner)))
                    .collect::<Map<_, _>>(),
            ),
            Value::Number(number) => {
                let text = number.to_string();
                let is_it = |masked: &&MaskedSecret| masked.number.as_ref().is_some_and(|digits| text.contains(digits));
                self.secrets.iter().find(is_it).map_or(Value::Number(number), |masked| masked.shown.as_str().into())
            }
            Value::Null | Value::Bool(_) => value,
        }
    }

    /// Returns the text with replacements, if there are any, and how many of its bytes were scanned in full. With
    /// `open` the text may continue, and a possible beginning of a match is left.
    ///
    /// Positions are in bytes: a match begins and ends with whole characters, and so does the rest.
    fn scan(&self, text: &str, open: bool) -> (Option<String>, usize) {
        let bytes = text.as_bytes();
        let mut out: Option<String> = None;
        let (mut kept, mut at) = (0, 0);
        while at < bytes.len() {
            let here =
                if self.first[usize::from(bytes[at])] { self.longest_match(bytes, at) } else { ScanResult::default() };
            // A longer match, or characters that belong to this one, may follow.
            if open && (here.begun || here.found.is_some_and(|found| found.end == bytes.len())) {
                break;
            }
            match here.found {
                Some(Match { start, end, shown }) => {
                    let out = out.get_or_insert_default();
                    // The character before may be part of an earlier replacement.
                    out.push_str(text.get(kept..start.max(kept)).unwrap_or_default());
                    out.push_str(shown);
                    (kept, at) = (end, end);
                }
                None => at += 1,
            }
        }
        if let Some(out) = &mut out {
            out.push_str(text.get(kept..at).unwrap_or_default());
        }
        (out, at)
    }

    fn longest_match(&self, bytes: &[u8], at: usize) -> ScanResult<'_> {
        let mut here = ScanResult::default();
        for masked in &self.secrets {
            for needle in masked.needles.iter().filter(|needle| needle.begins_with(bytes[at])) {
                match needle.match_at(bytes, at) {
                    NeedleMatch::To(end) if here.found.is_none_or(|found| end > found.end) => {
                        here.found = Some(Match { start: needle.match_start(bytes, at), end, shown: &masked.shown });
                    }
                    NeedleMatch::Begun => here.begun = true,
                    NeedleMatch::To(_) | NeedleMatch::No => {}
                }
            }
        }
        here
    }
}

/// Result of a scan at one position of a text.
#[derive(Default)]
struct ScanResult<'m> {
    found: Option<Match<'m>>,
    /// Whether something would match if the text continued.
    begun: bool,
}

#[derive(Clone, Copy)]
struct Match<'m> {
    start: usize,
    end: usize,
    shown: &'m str,
}

/// Returns the encodings of one text. An encoding too short to be told from chance is left out.
fn forms(text: &str) -> Vec<Needle> {
    let bytes = text.as_bytes();
    let base64 = (0..3).map(|offset| Needle::base64(bytes, offset));
    [Needle::text(text), Needle::hex(bytes)].into_iter().chain(base64).collect()
}

/// Masks a text that comes in pieces: a possible beginning of a secret is held back until it is decided.
#[derive(Debug)]
pub struct MaskedStream<'m> {
    mask: &'m Mask,
    held: String,
}

impl Mask {
    /// Makes the stream of a text that comes in pieces.
    pub const fn stream(&self) -> MaskedStream<'_> {
        MaskedStream { mask: self, held: String::new() }
    }
}

impl MaskedStream<'_> {
    /// Adds a piece, and returns the text that can be shown.
    pub fn push(&mut self, piece: &str) -> String {
        self.held.push_str(piece);
        let (shown, seen) = self.mask.scan(&self.held, true);
        let mut shown = shown.unwrap_or_else(|| self.held[..seen].to_owned());
        self.held.drain(..seen);
        // A match may begin with the character before it, so the last one stays.
        if let Some(last) = shown.pop() {
            self.held.insert(0, last);
        }
        shown
    }

    /// Returns the masked rest.
    pub fn finish(self) -> String {
        self.mask.text(&self.held).into_owned()
    }
}

#[cfg(test)]
mod tests;
