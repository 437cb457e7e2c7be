//! Position of a key in a file, for errors about it.

use serde_json::Value;
use std::fmt;
use toml::de::{DeTable, DeValue};

/// Line and column, both counted from 1; a column is a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePosition {
    line: usize,
    column: usize,
}

impl FilePosition {
    /// Returns a position from its line and its column, each counted from 1.
    pub const fn new(line: usize, column: usize) -> Self {
        Self { line, column }
    }

    /// Returns the position of a byte of a text; `None` if no character begins at it.
    pub fn of_byte(text: &str, offset: usize) -> Option<Self> {
        let before = text.get(..offset)?;
        let column = before.rsplit('\n').next()?.chars().count() + 1;
        Some(Self::new(before.matches('\n').count() + 1, column))
    }
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Returns the position of the key or element at the end of these steps in a TOML or JSON text; if a step is missing,
/// of the last one found.
pub fn locate(text: &str, steps: &[&str]) -> Option<FilePosition> {
    let offset = if text.trim_start().starts_with('{') { json_offset(text, steps) } else { toml_offset(text, steps) }?;
    FilePosition::of_byte(text, offset)
}

fn toml_offset(text: &str, steps: &[&str]) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let mut found = None;
    let mut table = Some(root.get_ref());
    let mut list = None;
    for step in steps {
        let next = match (table, list) {
            (Some(entries), _) => {
                let entry = entries.iter().find(|(key, _)| key.get_ref() == step);
                entry.map(|(key, value)| (key.span().start, value.get_ref()))
            }
            (None, Some(items)) => {
                let items: &toml::de::DeArray<'_> = items;
                let item = step.parse().ok().and_then(|at: usize| items.get(at));
                item.map(|item| (item.span().start, item.get_ref()))
            }
            (None, None) => None,
        };
        let Some((offset, value)) = next else { break };
        found = Some(offset);
        (table, list) = match value {
            DeValue::Table(entries) => (Some(entries), None),
            DeValue::Array(items) => (None, Some(items)),
            _ => (None, None),
        };
    }
    found
}

/// Returns the offset of a key in a text that is known to be JSON: only the way to the key is parsed.
fn json_offset(text: &str, steps: &[&str]) -> Option<usize> {
    let mut found = None;
    let mut rest = text.trim_start();
    for step in steps {
        let Some((at, value)) = json_child(rest, step) else { break };
        found = Some(text.len() - at.len());
        rest = value;
    }
    found
}

/// Returns where a child of the map or list at the start of `text` begins, its key included, and where its value does.
fn json_child<'t>(text: &'t str, step: &str) -> Option<(&'t str, &'t str)> {
    let is_map = text.starts_with('{');
    let mut rest = text.strip_prefix(['{', '['])?.trim_start();
    let mut index = 0;
    loop {
        let child = rest;
        let is_wanted = if is_map {
            let (key, after) = json_value(rest)?;
            rest = after.trim_start().strip_prefix(':')?.trim_start();
            key.as_str() == Some(step)
        } else {
            index += 1;
            step.parse() == Ok(index - 1)
        };
        if is_wanted {
            return Some((child, rest));
        }
        let (_, after) = json_value(rest)?;
        rest = after.trim_start().strip_prefix(',')?.trim_start();
    }
}

/// Returns the JSON value at the start of a text, and what follows it.
fn json_value(text: &str) -> Option<(Value, &str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let value = values.next()?.ok()?;
    Some((value, text.get(values.byte_offset()..)?))
}

/// Compares the position of a part of a file with the text that an error has for it.
#[cfg(test)]
pub(super) fn check_position(found: Option<FilePosition>, expected: Option<&str>, of: (&str, &[&str])) {
    assert_eq!(found.map(|found| found.to_string()).as_deref(), expected, "{of:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, steps: &[&str], expected: Option<&str>) {
        check_position(locate(text, steps), expected, (text, steps));
    }

    #[test]
    fn a_key_has_a_line_and_a_column() {
        let toml = "a = 1\n[b]\n  cd = \"x\"\nl = [1, { e = 2 }]\n[[r]]\nx = 1\n[[r]]\nyy = { z = 1 }\n";
        check(toml, &["a"], Some("line 1, column 1"));
        check(toml, &["b", "cd"], Some("line 3, column 3"));
        check(toml, &["b", "l", "1", "e"], Some("line 4, column 11"));
        check(toml, &["r", "1", "yy", "z"], Some("line 8, column 8"));
        check(toml, &["b", "none"], Some("line 2, column 2"));
        check(toml, &["none"], None);
        let json = "{\n  \"a\": {\"ü\": [1, {\"b\": 2}]},\n  \"c\": 3\n}";
        check(json, &["c"], Some("line 3, column 3"));
        check(json, &["a", "ü", "1", "b"], Some("line 2, column 19"));
        check(json, &["a", "none"], Some("line 2, column 3"));
        check("not = [", &["not"], None);
    }
}
