//! Sizes of values, counted while that is cheap and estimated beyond.
//!
//! A size is the bytes of the value in full and on one line, escapes not counted. It is exact for a string, and for a
//! container whose parts could all be read. One rendering reads no more than a few thousand parts; beyond them a size
//! is extrapolated from the parts that were read, and shown with `~`.

use super::is_bare;
use serde_json::Value;
use std::fmt::{self, Write};

/// Fewest parts that a rendering may read: some microseconds.
const PARTS_MIN: usize = 2_048;
/// Parts per byte of the budget, so that a large budget counts further.
const PARTS_PER_BYTE: usize = 2;
/// Parts that every container gets when the rest is used up.
const PARTS_EACH: usize = 32;
/// Parts that an estimate of a whole value reads: some tens of microseconds.
const PARTS_ABOUT: usize = 20_000;
/// Depth of containers inside each other that are read.
const DEPTH_MAX: usize = 64;

/// Measures values; the number of parts that it may read shrinks with every one.
pub(super) struct Gauge {
    parts: usize,
}

impl Gauge {
    /// Makes the gauge of a rendering with this budget.
    pub(super) fn new(budget: usize) -> Self {
        Self { parts: PARTS_MIN.max(budget.saturating_mul(PARTS_PER_BYTE)) }
    }

    /// Returns the size of `value` as text. The outermost container comes first and gets the most parts.
    pub(super) fn size(&mut self, value: &Value) -> String {
        let allowed = PARTS_EACH.max(self.parts / 2);
        let mut left = allowed;
        let (bytes, exact) = measure(value, &mut left, 0);
        self.parts = self.parts.saturating_sub(allowed - left);
        format(bytes, exact)
    }
}

/// Returns about how many bytes `value` has: exact up to some thousands of parts.
pub(super) fn size_about(value: &Value) -> usize {
    let (bytes, _) = measure(value, &mut { PARTS_ABOUT }, 0);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Formats bytes as `512B`, `4.2KB`, `1.0MB`; an estimate as `~1.0MB`.
pub(super) fn format(bytes: u64, exact: bool) -> String {
    let mark = if exact { "" } else { "~" };
    if bytes < 1024 {
        return format!("{mark}{bytes}B");
    }
    let (mut tenths, mut unit) = (bytes.saturating_mul(10) / 1024, "KB");
    for larger in ["MB", "GB"] {
        if tenths >= 10_240 {
            (tenths, unit) = (tenths / 1024, larger);
        }
    }
    format!("{mark}{}.{}{unit}", tenths / 10, tenths % 10)
}

/// Returns the bytes of `value` and whether they are exact. Children share `left` fairly, so that one large child is
/// not taken for all of them.
fn measure(value: &Value, left: &mut usize, depth: usize) -> (u64, bool) {
    match value {
        Value::Null | Value::Bool(true) => (4, true),
        Value::Bool(false) => (5, true),
        Value::Number(number) => {
            let mut counter = ByteCounter(0);
            write!(counter, "{number}").expect("counting can't fail");
            (counter.0, true)
        }
        Value::String(text) => (text.len() as u64 + 2, true),
        Value::Array(items) => sum(items.iter().map(|item| (0, item)), items.len(), left, depth),
        Value::Object(map) => {
            let parts = map.iter().map(|(key, item)| {
                // A long key is quoted or not; to read all of it is not worth two bytes.
                let quotes = if key.len() <= 64 && is_bare(key) { 0 } else { 2 };
                (key.len() as u64 + quotes + 2, item)
            });
            sum(parts, map.len(), left, depth)
        }
    }
}

fn sum<'v>(parts: impl Iterator<Item = (u64, &'v Value)>, count: usize, left: &mut usize, depth: usize) -> (u64, bool) {
    if count == 0 {
        return (2, true);
    }
    if depth >= DEPTH_MAX || *left == 0 {
        return (2, false);
    }
    let (mut bytes, mut exact, mut seen) = (0u64, true, 0usize);
    for (key, value) in parts {
        if *left == 0 {
            break;
        }
        *left -= 1;
        // If there are more children than parts, the first ones stand for all, and a few of their parts are read.
        let share = (*left / (count - seen)).max(4).min(*left);
        let mut own = share;
        let (inner, whole) = measure(value, &mut own, depth + 1);
        *left -= share - own;
        bytes = bytes.saturating_add(key).saturating_add(inner);
        exact &= whole;
        seen += 1;
    }
    let (seen, count) = (seen as u64, count as u64);
    let all = if seen == count { bytes } else { (bytes / seen).saturating_mul(count).max(bytes) };
    // A container has two brackets, and two bytes between any two children.
    (all.saturating_add(2 * count), exact && seen == count)
}

struct ByteCounter(u64);

impl Write for ByteCounter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len() as u64;
        Ok(())
    }
}
