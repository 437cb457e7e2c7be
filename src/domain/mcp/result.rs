//! Results of calls: what the caller gets of a server's answer, and which part of it that is.

use crate::mcp::definition::ToolDefinition;
use crate::schema::{SchemaError, find_misfits};
use crate::visible::{cut_error, quote_foreign};
use serde_json::{Map, Value, json};

/// Number of misfits of a result that an error names.
const NAMED_MISFITS: usize = 3;

/// Keys of content under which bytes are sent.
const BYTES_KEYS: [&str; 2] = ["data", "blob"];

/// Keys of an item of content that the caller gets.
const ITEM_KEYS: [&str; 8] = ["type", "text", "mimeType", "uri", "name", "title", "description", "size"];

/// What a call has come to.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolAnswer {
    /// The call succeeded: `{"structuredContent": …}` or `{"content": …}`.
    Value {
        /// Result for the caller.
        value: Value,
        /// Bytes in base64 that are no part of it, in the order of the items of the content that have none.
        media: Vec<MediaContent>,
    },
    /// The tool says that it failed; holds its words.
    Failure(String),
}

/// Bytes in the content of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaContent {
    /// Index of its item in the content.
    pub item: usize,
    /// Media type, as the server says it.
    pub mime_type: String,
    /// The bytes in base64.
    pub base64: String,
}

/// Why an answer to a call can't be used. The call was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolAnswerError {
    /// The result is no map.
    #[error("expected a result as a map")]
    NoMap,
    /// The result is none that this client has said it understands.
    #[error("it answers `{kind}`, which was not offered to it")]
    Kind {
        /// Type of the result, cut to a readable length.
        kind: String,
    },
    /// The tool's own schema of results is illegal.
    #[error("its `outputSchema`: {0}")]
    Schema(#[from] SchemaError),
    /// The result doesn't fit the tool's own schema.
    #[error("`structuredContent` doesn't fit its own `outputSchema`: {0}")]
    Misfit(String),
}

/// Reads the result of a call of a tool.
pub fn read_answer(result: Value, tool: &ToolDefinition) -> Result<ToolAnswer, ToolAnswerError> {
    let Value::Object(mut result) = result else { return Err(ToolAnswerError::NoMap) };
    match result.get("resultType") {
        None | Some(Value::Null) => {}
        Some(kind) if kind == "complete" => {}
        Some(kind) => {
            let kind = kind.as_str().map_or_else(|| kind.to_string(), str::to_owned);
            return Err(ToolAnswerError::Kind { kind: quote_foreign(&kind) });
        }
    }
    let is_error = result.get("isError") == Some(&Value::Bool(true));
    let content = match result.remove("content") {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    if is_error {
        return Ok(ToolAnswer::Failure(failure_text(&content)));
    }
    if let Some(structured) = result.remove("structuredContent").filter(|value| !value.is_null()) {
        check_output(&structured, tool)?;
        return Ok(ToolAnswer::Value { value: json!({"structuredContent": structured}), media: Vec::new() });
    }
    let (value, media) = read_content(content);
    Ok(ToolAnswer::Value { value: json!({"content": value}), media })
}

fn check_output(structured: &Value, tool: &ToolDefinition) -> Result<(), ToolAnswerError> {
    let Some(schema) = &tool.output_schema else { return Ok(()) };
    let (found, _) = find_misfits(schema, structured, NAMED_MISFITS)?;
    if found.is_empty() {
        return Ok(());
    }
    let named: Vec<String> = found.iter().map(ToString::to_string).collect();
    Err(ToolAnswerError::Misfit(named.join("; ")))
}

/// Returns content without its bytes, and these: one text alone is that text.
fn read_content(items: Vec<Value>) -> (Value, Vec<MediaContent>) {
    let mut media = Vec::new();
    let mut shown: Vec<Value> = Vec::with_capacity(items.len());
    for (at, item) in items.into_iter().enumerate() {
        shown.push(read_item(at, item, &mut media));
    }
    match shown.as_slice() {
        [Value::String(text)] => (Value::String(text.clone()), media),
        _ => (Value::Array(shown), media),
    }
}

fn read_item(at: usize, item: Value, media: &mut Vec<MediaContent>) -> Value {
    let Value::Object(mut item) = item else { return item };
    if item.get("type").is_some_and(|kind| kind == "text")
        && let Some(Value::String(text)) = item.remove("text")
    {
        return Value::String(text);
    }
    // An embedded resource has its content one level below.
    if let Some(Value::Object(inner)) = item.remove("resource") {
        for (key, value) in inner {
            item.entry(key).or_insert(value);
        }
    }
    for key in BYTES_KEYS {
        if let Some(Value::String(base64)) = item.remove(key) {
            let mime_type = item.get("mimeType").and_then(Value::as_str).unwrap_or("application/octet-stream");
            media.push(MediaContent { item: at, mime_type: mime_type.to_owned(), base64 });
        }
    }
    let kept = item.into_iter().filter(|(key, _)| ITEM_KEYS.contains(&key.as_str()));
    Value::Object(kept.collect::<Map<_, _>>())
}

fn failure_text(content: &[Value]) -> String {
    let texts: Vec<&str> = content.iter().filter_map(|item| item["text"].as_str()).collect();
    if texts.is_empty() { "it says no reason".to_owned() } else { cut_error(texts.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(output: Option<Value>) -> ToolDefinition {
        let mut entry = json!({"name": "t", "inputSchema": {}});
        if let Some(output) = output {
            entry["outputSchema"] = output;
        }
        ToolDefinition::read(&entry).unwrap()
    }

    #[test]
    fn a_result_says_which_part_of_the_answer_it_is() {
        let text = |text: &str| json!({"type": "text", "text": text, "annotations": {"priority": 1}});
        for (answer, expected) in [
            (json!({"content": [text("a")]}), json!({"content": "a"})),
            (json!({"content": [text("a"), text("b")]}), json!({"content": ["a", "b"]})),
            (json!({"content": []}), json!({"content": []})),
            (json!({}), json!({"content": []})),
            (json!({"content": [text("{}")], "structuredContent": {"a": 1}}), json!({"structuredContent": {"a": 1}})),
            (json!({"structuredContent": [1], "resultType": "complete"}), json!({"structuredContent": [1]})),
            (
                json!({"content": [{"type": "resource_link", "uri": "x:y", "name": "n", "_meta": {}}]}),
                json!({"content": [{"type": "resource_link", "uri": "x:y", "name": "n"}]}),
            ),
            (
                json!({"content": [{"type": "resource", "resource": {"uri": "x:y", "text": "t", "mimeType": "a/b"}}]}),
                json!({"content": [{"type": "resource", "uri": "x:y", "text": "t", "mimeType": "a/b"}]}),
            ),
        ] {
            let found = read_answer(answer.clone(), &tool(None));
            assert_eq!(found, Ok(ToolAnswer::Value { value: expected, media: Vec::new() }), "{answer}");
        }
    }

    #[test]
    fn bytes_are_taken_out_of_the_content() {
        let image = json!({"type": "image", "data": "aGk=", "mimeType": "image/png"});
        let blob = json!({"type": "resource", "resource": {"uri": "x:y", "blob": "aGk="}});
        let found = read_answer(json!({"content": [{"type": "text", "text": "t"}, image, blob]}), &tool(None)).unwrap();
        let media = |item, mime_type: &str| MediaContent { item, mime_type: mime_type.into(), base64: "aGk=".into() };
        let value =
            json!({"content": ["t", {"type": "image", "mimeType": "image/png"}, {"type": "resource", "uri": "x:y"}]});
        let media = vec![media(1, "image/png"), media(2, "application/octet-stream")];
        assert_eq!(found, ToolAnswer::Value { value, media });
    }

    #[test]
    fn failures_and_answers_that_were_not_offered_are_told_apart() {
        let schema = json!({"type": "object", "required": ["a"]});
        let failed = json!({"content": [{"type": "text", "text": "no such city"}], "isError": true});
        assert_eq!(read_answer(failed, &tool(None)), Ok(ToolAnswer::Failure("no such city".into())));
        for (answer, part) in [
            (json!({"resultType": "input_required", "requestState": "x"}), "it answers `input_required`"),
            (json!({"resultType": "task", "taskId": "x"}), "it answers"),
            (json!({"resultType": 1}), "it answers `1`"),
            (json!("x"), "expected a result as a map"),
            (json!({"structuredContent": {}}), "doesn't fit its own `outputSchema`"),
        ] {
            let error = read_answer(answer.clone(), &tool(Some(schema.clone()))).unwrap_err().to_string();
            assert!(error.contains(part), "{answer}: {error}");
        }
        let broken = read_answer(json!({"structuredContent": {}}), &tool(Some(json!({"type": 7}))));
        assert!(matches!(broken, Err(ToolAnswerError::Schema(_))), "{broken:?}");
    }
}
