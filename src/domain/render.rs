//! Rendering of JSON within a budget: a value in about so many bytes, always parseable as JSON5, never invented.
//!
//! Parts that don't fit are left out, and a comment at their place says so: `{a: 1, /* +3 more, 4.2KB */}`, `"begi" /*
//! String, 1.0MB */`, `[/* Vec, 9 items, 80B */]`. The work depends on the budget and not on the value: nothing is
//! serialised to be thrown away, and sizes are exact only while counting is cheap (see `size`).
//!
//! The budget is exceeded only by one unit that can't be shown smaller, a number or a comment of some 30 bytes. `NaN`
//! and infinities can't occur: a [`Value`] doesn't hold them.

mod cut;
mod size;

use crate::bytes;
pub use cut::cut_text;
use serde_json::{Map, Value};
use size::Gauge;
use std::fmt::Write;

/// Bytes reserved for brackets and the closing comment.
const RESERVE: usize = 30;
/// Bytes reserved for the quotes and the comment of a cut string.
const STRING_RESERVE: usize = 32;
/// Fewest bytes of a string that are worth showing.
const PREFIX_MIN: usize = 6;
/// Fewest bytes that a value gets.
const VALUE_MIN: usize = 10;
/// Rounds in which the values of a map share its room; each looks at no more bytes than the room has.
const SHARE_ROUNDS: usize = 6;
/// Bytes that are allocated for the output at once, at most.
const OUT_MAX: usize = 16 * 1024;
/// Depth of containers inside each other; deeper ones are summed up, so that every reader's stack is sufficient (common
/// JSON readers stop at 128).
const DEPTH_MAX: usize = 120;

/// Options of rendering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenderOptions {
    /// Bytes to stay within.
    pub budget: usize,
    /// Whether the output is indented by two spaces per level, instead of one line.
    pub pretty: bool,
}

/// Renders `value`: in full if that fits into the budget (and is at most 120 containers deep), else its beginning.
pub fn render(value: &Value, options: RenderOptions) -> String {
    render_within(value, options).0
}

/// Renders a value as [`render`] does, and returns whether nothing was left out.
pub fn render_within(value: &Value, options: RenderOptions) -> (String, bool) {
    let (renderer, whole) = Renderer::render_value(value, options);
    (renderer.out, whole)
}

/// Renders a value as [`render`] does, and returns how many characters are shown of the one string that is cut; `None`
/// where none or several are.
pub fn render_counted(value: &Value, options: RenderOptions) -> (String, Option<usize>) {
    let (renderer, _) = Renderer::render_value(value, options);
    let characters = renderer.cut_strings.as_slice();
    let characters = if let [characters] = characters { Some(*characters) } else { None };
    (renderer.out, characters)
}

/// Returns about how many bytes `value` has in full, without reading all of a large one.
pub fn size_about(value: &Value) -> usize {
    size::size_about(value)
}

struct Renderer {
    out: String,
    pretty: bool,
    gauge: Gauge,
    /// Characters shown of each string that is cut.
    cut_strings: Vec<usize>,
}

impl Renderer {
    /// Renders a value; returns whether nothing was left out.
    fn render_value(value: &Value, options: RenderOptions) -> (Self, bool) {
        let RenderOptions { budget, pretty } = options;
        let out = String::with_capacity(budget.min(OUT_MAX));
        let mut renderer = Self { out, pretty, gauge: Gauge::new(budget), cut_strings: Vec::new() };
        let whole = renderer.value(value, budget, 0);
        (renderer, whole)
    }

    /// Renders `value` in about `budget` bytes, inside `depth` containers. Returns whether it is complete.
    fn value(&mut self, value: &Value, budget: usize, depth: usize) -> bool {
        let start = self.out.len();
        if self.write_whole(value, start.saturating_add(budget), depth) {
            return true;
        }
        self.out.truncate(start);
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.scalar(value),
            Value::Array(items) if items.is_empty() => self.out.push_str("[]"),
            Value::Object(map) if map.is_empty() => self.out.push_str("{}"),
            Value::String(text) => self.cut_string(text, budget),
            Value::Array(items) => self.cut_array(value, items, budget, depth),
            Value::Object(map) => self.cut_map(value, map, budget, depth),
        }
        // A value without parts is never cut, whatever its size.
        matches!(value, Value::Null | Value::Bool(_) | Value::Number(_))
    }

    /// Writes `value` in full and returns whether it ends by `limit`; stops as soon as it doesn't, so that no more than
    /// the budget is ever written.
    fn write_whole(&mut self, value: &Value, limit: usize, depth: usize) -> bool {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.scalar(value),
            Value::String(text) => return self.write_quoted(text, limit),
            Value::Array(items) if items.is_empty() => self.out.push_str("[]"),
            Value::Object(map) if map.is_empty() => self.out.push_str("{}"),
            Value::Array(_) | Value::Object(_) if depth >= DEPTH_MAX => return false,
            Value::Array(items) => {
                self.out.push('[');
                for (at, item) in items.iter().enumerate() {
                    self.separate(at, depth + 1);
                    if !self.write_whole(item, limit, depth + 1) {
                        return false;
                    }
                }
                self.close(']', depth);
            }
            Value::Object(map) => {
                self.out.push('{');
                for (at, (key, item)) in map.iter().enumerate() {
                    self.separate(at, depth + 1);
                    if !self.key(key, limit) || !self.write_whole(item, limit, depth + 1) {
                        return false;
                    }
                }
                self.close('}', depth);
            }
        }
        self.out.len() <= limit
    }

    fn scalar(&mut self, value: &Value) {
        match value {
            Value::Null => return self.out.push_str("null"),
            Value::Bool(true) => return self.out.push_str("true"),
            Value::Bool(false) => return self.out.push_str("false"),
            // This is much faster than the number's own serialisation.
            Value::Number(number) => write!(self.out, "{number}"),
            Value::String(_) | Value::Array(_) | Value::Object(_) => write!(self.out, "{value}"),
        }
        .expect("strings take everything");
    }

    /// Writes a quoted string; returns false if it doesn't end by `limit`.
    fn write_quoted(&mut self, text: &str, limit: usize) -> bool {
        if self.out.len().saturating_add(text.len() + 2) > limit {
            return false;
        }
        self.out.push('"');
        let whole = if bytes::position(text.as_bytes(), is_escaped).is_some() {
            self.escape(text, limit - 1) == text.len()
        } else {
            self.out.push_str(text);
            true
        };
        self.out.push('"');
        whole
    }

    /// Appends as many whole characters of `text` as end by `limit`; returns their number of bytes in `text`.
    fn escape(&mut self, text: &str, limit: usize) -> usize {
        for (at, c) in text.char_indices() {
            if self.out.len() + escaped_len(c) > limit {
                return at;
            }
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                c if is_unicode(c) => write!(self.out, "\\u{:04x}", c as u32).expect("strings take everything"),
                c => self.out.push(c),
            }
        }
        text.len()
    }

    /// Writes `key: `; returns false if it doesn't end by `limit`.
    fn key(&mut self, key: &str, limit: usize) -> bool {
        if is_bare(key) {
            if self.out.len().saturating_add(key.len() + 2) > limit {
                return false;
            }
            self.out.push_str(key);
        } else if !self.write_quoted(key, limit) {
            return false;
        }
        self.out.push_str(": ");
        true
    }

    /// Writes the separator between the items of a container, or before its first item.
    fn separate(&mut self, at: usize, depth: usize) {
        match (self.pretty, at) {
            (false, 0) => {}
            (false, _) => self.out.push_str(", "),
            (true, _) => {
                if at > 0 {
                    self.out.push(',');
                }
                self.line(depth);
            }
        }
    }

    fn line(&mut self, depth: usize) {
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n("  ", depth));
    }

    fn close(&mut self, bracket: char, depth: usize) {
        if self.pretty {
            self.line(depth);
        }
        self.out.push(bracket);
    }

    /// Returns the bytes of [`Self::separate`] for an item inside `depth` containers.
    const fn separator_len(&self, depth: usize) -> usize {
        if self.pretty { 2 + 2 * depth } else { 2 }
    }

    /// Returns the bytes for the items of a container with this budget.
    const fn room(&self, budget: usize, depth: usize) -> usize {
        let lines = if self.pretty { self.separator_len(depth + 1) + self.separator_len(depth) } else { 0 };
        budget.saturating_sub(RESERVE + lines)
    }

    fn cut_string(&mut self, text: &str, budget: usize) {
        let size = size::format(text.len() as u64, true);
        let prefix = budget.saturating_sub(STRING_RESERVE);
        let start = self.out.len();
        if prefix >= PREFIX_MIN {
            self.out.push('"');
            let taken = self.escape(text, start + 1 + prefix);
            if taken > 0 {
                self.cut_strings.push(text[..taken].chars().count());
                write!(self.out, "\" /* String, {size} */").expect("strings take everything");
                return;
            }
            self.out.truncate(start);
        }
        self.cut_strings.push(0);
        write!(self.out, "null /* truncated String, {size} */").expect("strings take everything");
    }

    fn cut_array(&mut self, value: &Value, items: &[Value], budget: usize, depth: usize) {
        let size = self.gauge.size(value);
        let room = self.room(budget, depth);
        let separator = self.separator_len(depth + 1);
        let start = self.out.len();
        self.out.push('[');
        let mut shown = 0;
        for item in items {
            let left = room.saturating_sub(self.out.len() - start - 1 + separator);
            if left < VALUE_MIN || depth >= DEPTH_MAX {
                break;
            }
            self.separate(shown, depth + 1);
            self.value(item, left, depth + 1);
            shown += 1;
        }
        if shown == 0 {
            self.out.truncate(start);
            write!(self.out, "[/* Vec, {} items, {size} */]", items.len()).expect("strings take everything");
        } else {
            self.write_end(']', items.len() - shown, &size, depth);
        }
    }

    fn cut_map(&mut self, value: &Value, map: &Map<String, Value>, budget: usize, depth: usize) {
        let size = self.gauge.size(value);
        let room = self.room(budget, depth);
        let separator = self.separator_len(depth + 1);
        let visible = if depth < DEPTH_MAX { shown_entries(map, room, separator) } else { 0 };
        if visible == 0 {
            write!(self.out, "{{/* Map, {} keys, {size} */}}", map.len()).expect("strings take everything");
            return;
        }
        let keys: usize = map.keys().take(visible).map(|key| key_len(key, room) + separator).sum();
        let values = map.values().take(visible).collect();
        let share = VALUE_MIN.max(self.share(values, room.saturating_sub(keys), depth + 1));
        let start = self.out.len();
        self.out.push('{');
        let mut shown = 0;
        for (key, item) in map.iter().take(visible) {
            // An earlier value may have taken more than its share.
            let used = self.out.len() - start - 1 + key_len(key, room) + separator;
            if shown > 0 && used + VALUE_MIN > room {
                break;
            }
            self.separate(shown, depth + 1);
            self.key(key, usize::MAX);
            self.value(item, share.min(room - used), depth + 1);
            shown += 1;
        }
        self.write_end('}', map.len() - shown, &size, depth);
    }

    /// Returns the bytes that each of `values` may take of `room`: what small ones don't need goes to the large ones.
    fn share(&mut self, values: Vec<&Value>, room: usize, depth: usize) -> usize {
        let (mut large, mut left) = (values, room);
        for _ in 1..SHARE_ROUNDS {
            let (share, count) = (left / large.len(), large.len());
            if count == 1 {
                break;
            }
            large.retain(|value| match self.full_len(value, share, depth) {
                Some(bytes) => {
                    left -= bytes;
                    false
                }
                None => true,
            });
            if large.is_empty() || large.len() == count {
                return share;
            }
        }
        left / large.len()
    }

    /// Returns the bytes of a value in full, if they are at most `limit`; of a larger one no more is read.
    fn full_len(&mut self, value: &Value, limit: usize, depth: usize) -> Option<usize> {
        let start = self.out.len();
        let fits = self.write_whole(value, start + limit, depth);
        let bytes = self.out.len() - start;
        self.out.truncate(start);
        fits.then_some(bytes)
    }

    fn write_end(&mut self, bracket: char, more: usize, size: &str, depth: usize) {
        if more > 0 {
            self.separate(1, depth + 1);
            write!(self.out, "/* +{more} more, {size} */").expect("strings take everything");
        }
        self.close(bracket, depth);
    }
}

/// Returns how many entries are shown in `room` bytes: as many as have room for their keys and smallest values.
fn shown_entries(map: &Map<String, Value>, room: usize, separator: usize) -> usize {
    let mut spent = 0;
    for (at, key) in map.keys().enumerate() {
        spent += key_len(key, room) + separator + VALUE_MIN;
        if spent > room {
            return at;
        }
    }
    map.len()
}

/// Returns the bytes of `key: `; of a key longer than `enough` about its length.
fn key_len(key: &str, enough: usize) -> usize {
    if key.len() > enough || is_bare(key) {
        return key.len() + 2;
    }
    key.chars().map(escaped_len).sum::<usize>() + 4
}

/// Whether a byte needs an escape, or begins a character that may.
const fn is_escaped(byte: u8) -> bool {
    // The last two begin characters that end a line for some readers, among others.
    matches!(byte, b'"' | b'\\' | 0..0x20 | 0xc2 | 0xe2)
}

/// Whether a character is written as `\uXXXX`, so that a value in one line is one line for every reader.
const fn is_unicode(c: char) -> bool {
    matches!(c, '\0'..='\u{1f}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

const fn escaped_len(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' => 2,
        c if is_unicode(c) => 6,
        c => c.len_utf8(),
    }
}

fn is_bare(key: &str) -> bool {
    let mut bytes = key.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_' || b == b'$')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'$')
}

#[cfg(test)]
mod tests;
