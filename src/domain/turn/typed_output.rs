//! Finds typed outputs in a text: JSON of the requested type, bare or in a fence, as models write it.

use crate::chat::Reply;
use crate::decode;
use crate::outputs;
use serde_json::Value;

/// Tags of a fenced block that holds JSON.
const TAGS: [&str; 4] = ["", "json", "jsonc", "json5"];

/// Why a text is no output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OutputMismatch {
    /// The text has no JSON.
    Text,
    /// The JSON is invalid, for this reason.
    Json(String),
}

impl OutputMismatch {
    /// Returns the error for the model that wrote the text.
    pub(super) fn reason(self) -> String {
        match self {
            Self::Text => "text alone is no output".to_owned(),
            Self::Json(wrong) => wrong,
        }
    }
}

/// Reads a text as a value of the schema: JSON alone or in the only fenced block. The value may be the `result` of a
/// map, and one word of a list of words may be bare.
pub(super) fn parse_typed_text(schema: &Value, text: &str) -> Result<Value, OutputMismatch> {
    let Some(json) = json_part(text) else {
        let word = Value::from(text.trim());
        let is_choice = schema.get("enum").is_some() || schema.get("const").is_some();
        return if is_choice && outputs::misfit_text(schema, &word).is_none() {
            Ok(word)
        } else {
            Err(OutputMismatch::Text)
        };
    };
    let value =
        decode::json(json.as_bytes()).map_err(|wrong| OutputMismatch::Json(format!("it can't be read: {wrong}")))?;
    let Some(wrong) = outputs::misfit_text(schema, &value) else { return Ok(value) };
    match value {
        Value::Object(mut map) if map.len() == 1 => {
            let inner = map.shift_remove("result").filter(|inner| outputs::misfit_text(schema, inner).is_none());
            inner.ok_or(OutputMismatch::Json(wrong))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            Err(OutputMismatch::Json(wrong))
        }
    }
}

/// Reads the text of a reply as a value of the schema. In a truncated reply the value must end with its own bracket or
/// quote: `12` may be the beginning of `1234`.
pub(super) fn parse_typed_reply(schema: &Value, reply: &Reply) -> Result<Value, OutputMismatch> {
    let value = parse_typed_text(schema, &reply.text)?;
    let closes = reply.text.trim_end().ends_with(['}', ']', '"', '`']);
    if reply.truncated && !closes { Err(OutputMismatch::Text) } else { Ok(value) }
}

/// Returns the JSON value in a text, of any type; a map with a repeated key is none.
pub(super) fn find_json(text: &str) -> Option<Value> {
    decode::json(json_part(text)?.as_bytes()).ok()
}

/// Returns the part of a text that is or should be JSON.
fn json_part(text: &str) -> Option<&str> {
    let text = text.trim();
    if decode::lenient_json(text.as_bytes()).is_ok() {
        return Some(text);
    }
    let fenced = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    let alone = fenced.filter(|inside| !inside.contains("```")).map(|inside| without_tag(inside).unwrap_or(inside));
    let begins = |part: &&str| part.trim_start().starts_with(['{', '[']);
    alone.or_else(|| only_block(text)).or(Some(text).filter(begins)).map(str::trim)
}

/// Returns the content of the only fenced block of a text, if its tag allows JSON.
fn only_block(text: &str) -> Option<&str> {
    let is_fence = |(_, line): &(usize, &str)| line.trim_start().starts_with("```");
    let mut lines = text.split_inclusive('\n').scan(0, |end, line| {
        let start = *end;
        *end += line.len();
        Some((start, line))
    });
    let (open, first) = lines.find(is_fence)?;
    let (close, last) = lines.find(is_fence)?;
    if lines.any(|line| is_fence(&line)) || last.trim() != "```" {
        return None;
    }
    let tag = first.trim().trim_start_matches('`').trim();
    TAGS.iter().any(|known| tag.eq_ignore_ascii_case(known)).then(|| &text[open + first.len()..close])
}

/// Returns the content of a fence without a tag on the same line.
fn without_tag(inside: &str) -> Option<&str> {
    let letters = inside.bytes().take_while(u8::is_ascii_alphanumeric).count();
    let (tag, rest) = inside.split_at(letters);
    TAGS.iter().any(|known| !known.is_empty() && tag.eq_ignore_ascii_case(known)).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map() -> Value {
        json!({"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]})
    }

    fn check(schema: &Value, text: &str, expected: Result<Value, &str>) {
        match (parse_typed_text(schema, text), expected) {
            (Ok(value), Ok(expected)) => assert_eq!(value, expected, "{text}"),
            (Err(OutputMismatch::Text), Err("")) => {}
            (Err(OutputMismatch::Json(wrong)), Err(expected)) if !expected.is_empty() => {
                assert!(wrong.starts_with(expected), "{wrong}\nexpected {expected}");
            }
            (got, expected) => panic!("{text}: got {got:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn a_map_that_names_a_key_twice_is_no_output() {
        check(&map(), "{\"total\": 3, \"total\": 4}", Err("it can't be read: "));
        assert_eq!(find_json("{\"a\": 1, \"a\": 2}"), None);
    }

    #[test]
    fn json_of_the_type_is_an_output_however_it_is_wrapped() {
        for text in [
            "{\"total\": 3}",
            "\n {\"total\": 3} \n",
            "```\n{\"total\": 3}\n```",
            "```json\n{\"total\": 3}\n```\n",
            "```JSON\r\n{\"total\": 3}\r\n```",
            "```json{\"total\": 3}```",
            "```{\"total\": 3}```",
            "Here it is:\n\n```json\n{\n  \"total\": 3\n}\n```\nAsk if you need more.",
            "Here:\n  ```\n  {\"total\": 3}\n  ```",
            "{\"result\": {\"total\": 3}}",
        ] {
            check(&map(), text, Ok(json!({"total": 3})));
        }
        check(&map(), "{\"total\": 3, \"note\": \"```\"}", Ok(json!({"total": 3, "note": "```"})));
    }

    #[test]
    fn a_value_that_is_no_map_may_come_wrapped() {
        let list = json!({"type": "array", "items": {"type": "integer"}});
        for text in ["[1, 2]", "{\"result\": [1, 2]}", "```\n{\"result\": [1, 2]}\n```"] {
            check(&list, text, Ok(json!([1, 2])));
        }
        check(&json!({"type": "number"}), "3.5", Ok(json!(3.5)));
        check(&json!({"type": "string"}), "\"three\"", Ok(json!("three")));
        check(&json!({"enum": ["yes", "no"]}), " yes\n", Ok(json!("yes")));
        check(&json!({"enum": ["yes", "no"]}), "maybe", Err(""));
        check(&json!({"type": "object"}), "{\"result\": 1}", Ok(json!({"result": 1})));
        check(&list, "{\"result\": [1], \"more\": 2}", Err("{\"result\":[1],\"more\":2} is not of type \"array\""));
        check(&list, "{\"result\": [\"x\"]}", Err("{\"result\":[\"x\"]} is not of type \"array\""));
    }

    #[test]
    fn json_that_does_not_fit_says_what() {
        check(&map(), "{\"total\": \"three\"}", Err("at `/total`: \"three\" is not of type \"number\""));
        check(&map(), "```json\n{}\n```", Err("\"total\" is a required property"));
        check(&map(), "3", Err("3 is not of type \"object\""));
        check(&map(), "{\"total\": 3", Err("it can't be read: EOF while parsing an object"));
        check(&map(), "Sure:\n```json\n{total: 3}\n```", Err("it can't be read: key must be a string"));
        let large = "{\"total\": 123456789012345678901234567890}";
        check(&map(), large, Err("it can't be read: `total`: number 123456789012345678901234567890 is larger"));
        check(&map(), &"[".repeat(100_000), Err("it can't be read: `[0][0]"));
    }

    #[test]
    fn ambiguous_output_is_text() {
        for text in [
            "",
            "three",
            "The total is {\"total\": 3}.",
            "```json\n{\"total\": 3}\n```\nor\n```json\n{\"total\": 4}\n```",
            "```python\ntotal = 3\n```\nSo it is.",
            "see\n```json\n{\"total\": 3}",
        ] {
            check(&map(), text, Err(""));
        }
        check(&json!({"type": "string"}), "I look it up first.", Err(""));
    }
}
