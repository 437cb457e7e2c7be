//! Parser of the JSON5 in prompts, for scripted models.

use crate::domain::decode::parse_number;
use crate::domain::limits::RESULT_DEPTH;
use serde_json::{Map, Value};

/// Levels of maps and lists that are parsed, as many as a tool result may have; a deeper text is not a value.
const DEPTH_MAX: usize = RESULT_DEPTH;

/// Parses the value at the start of `text` and returns it with the rest; `None` if there is none. It accepts JSON and
/// the JSON5 that [`render`](crate::domain::render) writes: unquoted keys, either quote, comments, trailing commas.
/// `NaN` and infinities, which JSON lacks, become `null`.
pub fn read_prefix(text: &str) -> Option<(Value, &str)> {
    let mut reader = Json5Reader { rest: text };
    let value = reader.value(0)?;
    Some((value, reader.rest))
}

/// Parses a text that is one value and nothing else; `None` for any other text.
pub fn read(text: &str) -> Option<Value> {
    let (value, rest) = read_prefix(text)?;
    let mut reader = Json5Reader { rest };
    reader.skip_blank()?;
    reader.rest.is_empty().then_some(value)
}

/// Reader of a text; each method reads from the start of `rest`, and returns `None` if that is malformed.
struct Json5Reader<'t> {
    /// Part of the text after what was read.
    rest: &'t str,
}

impl<'t> Json5Reader<'t> {
    /// Reads a value that is inside `depth` maps and lists.
    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.skip_blank()?;
        match self.rest.chars().next()? {
            '{' => self.map(depth),
            '[' => self.list(depth),
            '"' | '\'' => self.string().map(Value::String),
            _ => self.read_word(),
        }
    }

    fn map(&mut self, depth: usize) -> Option<Value> {
        self.take("{").then_some(())?;
        let mut map = Map::new();
        loop {
            self.skip_blank()?;
            if self.take("}") {
                return Some(Value::Object(map));
            }
            let key = match self.rest.chars().next()? {
                '"' | '\'' => self.string()?,
                _ => self.take_bare_word()?.to_owned(),
            };
            self.skip_blank()?;
            self.take(":").then_some(())?;
            map.insert(key, self.value(depth + 1)?);
            self.skip_separator('}')?;
        }
    }

    fn list(&mut self, depth: usize) -> Option<Value> {
        self.take("[").then_some(())?;
        let mut list = Vec::new();
        loop {
            self.skip_blank()?;
            if self.take("]") {
                return Some(Value::Array(list));
            }
            list.push(self.value(depth + 1)?);
            self.skip_separator(']')?;
        }
    }

    /// Skips a comma; a closing bracket is left for the caller.
    fn skip_separator(&mut self, close: char) -> Option<()> {
        self.skip_blank()?;
        (self.take(",") || self.rest.starts_with(close)).then_some(())
    }

    /// Reads a string with its quotes, which may be `"` or `'`.
    fn string(&mut self) -> Option<String> {
        let quote = self.rest.chars().next()?;
        let mut end = None;
        let mut escaped = false;
        for (at, c) in self.rest.char_indices().skip(1) {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                c if c == quote => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
        }
        let (quoted, rest) = self.rest.split_at(end? + 1);
        self.rest = rest;
        if quote == '"' {
            return serde_json::from_str(quoted).ok();
        }
        serde_json::from_str(&with_double_quotes(&quoted[1..quoted.len() - 1])?).ok()
    }

    /// Reads a number, or a word such as `true`.
    fn read_word(&mut self) -> Option<Value> {
        match self.take_bare_word()? {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            "null" | "NaN" | "Infinity" | "-Infinity" => Some(Value::Null),
            text => parse_number(text).map(Value::Number),
        }
    }

    /// Reads the letters, digits and signs of a number or of an unquoted key.
    fn take_bare_word(&mut self) -> Option<&'t str> {
        let end = self
            .rest
            .find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '$' | '-' | '+' | '.')))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    /// Skips `token` if it is next, and returns whether it was.
    fn take(&mut self, token: &str) -> bool {
        self.rest.strip_prefix(token).map(|rest| self.rest = rest).is_some()
    }

    /// Skips white space and comments; `None` if a comment has no end.
    fn skip_blank(&mut self) -> Option<()> {
        loop {
            self.rest = self.rest.trim_start();
            if let Some(comment) = self.rest.strip_prefix("/*") {
                self.rest = comment.split_once("*/")?.1;
            } else if let Some(comment) = self.rest.strip_prefix("//") {
                self.rest = comment.split_once('\n').map_or("", |(_, rest)| rest);
            } else {
                return Some(());
            }
        }
    }
}

/// Returns the JSON string with the content of a JSON5 string in single quotes: its escapes are those of JSON, and `\'`.
fn with_double_quotes(content: &str) -> Option<String> {
    let mut json = String::from("\"");
    let mut chars = content.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next()? {
                '\'' => json.push('\''),
                escaped => json.extend(['\\', escaped]),
            },
            '"' => json.push_str("\\\""),
            _ => json.push(c),
        }
    }
    json.push('"');
    Some(json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_and_the_renderers_json5_are_read() {
        let table = [
            (r#"{"a": [1, 2.5, "x\n\"y\""], "b": null}"#, Some(json!({"a": [1, 2.5, "x\n\"y\""], "b": null}))),
            (r"{a: 1, $b_2: 'it\'s \u0041', }", Some(json!({"a": 1, "$b_2": "it's A"}))),
            (r#"['say "hi"', 'say \"hi\"', '\\', '\\\'']"#, Some(json!(["say \"hi\"", "say \"hi\"", "\\", "\\'"]))),
            (r#"{a: "long" /* String, 2.0KB */, /* +3 more, 1.0MB */}"#, Some(json!({"a": "long"}))),
            ("[1, // one\n 2]", Some(json!([1, 2]))),
            ("{/* Map, 3 keys, 1.0KB */}", Some(json!({}))),
            ("[NaN, -Infinity, true]", Some(json!([null, null, true]))),
            ("-3e2", Some(json!(-300.0))),
            ("[18446744073709551615]", Some(json!([u64::MAX]))),
            ("[18446744073709551616]", None),
            ("hello", None),
            ("{a: 1", None),
            ("{a 1}", None),
            ("[1 2]", None),
            ("\"open", None),
            ("/* open", None),
            ("{} tail", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(read(text), expected, "{text}");
        }
        assert_eq!(read_prefix("{a: 1}\nrest"), Some((json!({"a": 1}), "\nrest")));
    }

    #[test]
    fn values_as_deep_as_a_tool_result_are_read() {
        let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        assert!(read(&nested(RESULT_DEPTH)).is_some());
        assert_eq!(read(&nested(RESULT_DEPTH + 1)), None);
    }

    #[test]
    fn a_hostile_depth_is_refused() {
        assert_eq!(read(&"[".repeat(100_000)), None);
    }
}
