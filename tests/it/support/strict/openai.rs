//! What Chat Completions refuse.

use super::{Verdict, ensure, is_word, list, media, openai_schema, repeated, text};
use serde_json::Value;

/// Documented in the API's reference.
const TOOLS_MAX: usize = 128;
/// vercel/ai #5171, agno-agi/agno #5382; some hosts allow 64.
const CALL_ID_CHARS_MAX: usize = 40;
const NAME_CHARS_MAX: usize = 64;

pub fn check(body: &Value) -> Verdict {
    check_messages(list(body, "messages"))?;
    check_tools(list(body, "tools"))?;
    check_settings(body)?;
    check_response_format(body)
}

fn check_messages(messages: &[Value]) -> Verdict {
    ensure(!messages.is_empty(), || "Invalid 'messages': empty array. Expected an array with minimum length 1".into())?;
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = text(message, "role");
        // langgraphjs #2751, openclaw #4723.
        ensure(role == "tool" || open.is_empty(), || unanswered(&open))?;
        match role {
            "tool" => {
                let id = text(message, "tool_call_id");
                let Some(answered) = open.iter().position(|call| *call == id) else {
                    return Err(format!(
                        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls' (messages[{at}], '{id}')."
                    ));
                };
                open.remove(answered);
                check_content(message, at)?;
            }
            "assistant" => open.extend(check_assistant(message, at)?),
            "user" | "system" | "developer" => {
                check_content(message, at)?;
                for (n, part) in list(message, "content").iter().enumerate() {
                    media::check_openai(part, &format!("messages[{at}].content[{n}]"))?;
                }
            }
            other => return Err(format!("Invalid value: '{other}' at messages[{at}].role")),
        }
    }
    ensure(open.is_empty(), || unanswered(&open))
}

fn unanswered(open: &[&str]) -> String {
    format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
        open.join(", ")
    )
}

/// A content is a text or a list of parts that isn't empty.
fn check_content(message: &Value, at: usize) -> Verdict {
    let content = message.get("content");
    let is_content =
        content.is_some_and(|content| content.is_string() || content.as_array().is_some_and(|l| !l.is_empty()));
    ensure(is_content, || {
        let found = content.map_or("nothing", |content| if content.is_null() { "null" } else { "something else" });
        format!("Invalid value for 'content': expected a string, got {found}. (messages[{at}].content)")
    })
}

/// The ids of a message's calls.
fn check_assistant(message: &Value, at: usize) -> Result<Vec<&str>, String> {
    let calls = list(message, "tool_calls");
    // A widely quoted text of the API.
    ensure(!calls.is_empty() || message.get("tool_calls").is_none_or(Value::is_null), || {
        format!(
            "Invalid 'messages[{at}].tool_calls': empty array. Expected an array with minimum length 1, but got an empty array instead."
        )
    })?;
    let is_said = match message.get("content") {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(parts)) => !parts.is_empty(),
        _ => message.get("refusal").is_some_and(Value::is_string),
    };
    ensure(!calls.is_empty() || is_said, || {
        format!("Invalid value for 'content': expected a string, got null. (messages[{at}].content)")
    })?;
    for (n, call) in calls.iter().enumerate() {
        let place = format!("messages[{at}].tool_calls[{n}]");
        let function = call.get("function").unwrap_or(&Value::Null);
        // earendil-works/pi #1643, claude-code #94799.
        let name = text(function, "name");
        ensure(is_word(name, NAME_CHARS_MAX, ""), || pattern(&format!("{place}.function.name")))?;
        ensure(function.get("arguments").is_some_and(Value::is_string), || {
            format!("Invalid type for '{place}.function.arguments': expected a string.")
        })?;
        let id = text(call, "id");
        ensure(!id.is_empty(), || format!("Invalid '{place}.id': empty string."))?;
        let length = id.chars().count();
        ensure(length <= CALL_ID_CHARS_MAX, || {
            format!(
                "Invalid '{place}.id': string too long. Expected a string with maximum length {CALL_ID_CHARS_MAX}, but got a string with length {length} instead."
            )
        })?;
    }
    let ids = calls.iter().map(|call| text(call, "id"));
    // claux #40.
    if let Some(id) = repeated(ids.clone()) {
        return Err(format!("Duplicate value for 'tool_call_id' of '{id}' in message[{at}]"));
    }
    Ok(ids.collect())
}

fn pattern(place: &str) -> String {
    format!(
        "Invalid '{place}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
    )
}

fn check_tools(tools: &[Value]) -> Verdict {
    ensure(tools.len() <= TOOLS_MAX, || {
        format!(
            "Invalid 'tools': array too long. Expected an array with maximum length {TOOLS_MAX}, but got an array with length {} instead.",
            tools.len()
        )
    })?;
    for (at, tool) in tools.iter().enumerate() {
        let function = tool.get("function").unwrap_or(&Value::Null);
        let name = text(function, "name");
        ensure(is_word(name, NAME_CHARS_MAX, ""), || pattern(&format!("tools[{at}].function.name")))?;
        let is_strict = function.get("strict") == Some(&Value::Bool(true));
        openai_schema::check_parameters(name, function.get("parameters"), is_strict)?;
    }
    match repeated(tools.iter().filter_map(|tool| tool.pointer("/function/name")?.as_str())) {
        Some(name) => Err(format!("Invalid 'tools': the name '{name}' is given twice. Tool names must be unique.")),
        None => Ok(()),
    }
}

/// Whether a model reasons by its name; such models refuse the older settings.
pub fn is_reasoning_model(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or_default();
    ["o1", "o3", "o4", "gpt-5", "gpt-6"].iter().any(|family| name.starts_with(family))
}

fn check_settings(body: &Value) -> Verdict {
    // decolua/9router #560, FoundationAgents/OpenManus #555.
    ensure(body.get("max_tokens").is_none() || !is_reasoning_model(text(body, "model")), || {
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
            .into()
    })?;
    let no_tools = list(body, "tools").is_empty();
    // Widely quoted texts of the API, as the two below.
    ensure(body.get("tools").is_none() || !no_tools, || {
        "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.".into()
    })?;
    ensure(body.get("tool_choice").is_none() || !no_tools, || {
        "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.".into()
    })?;
    ensure(body.get("parallel_tool_calls").is_none() || !no_tools, || {
        "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are specified."
            .into()
    })?;
    ensure(body.get("stream_options").is_none() || body.get("stream") == Some(&Value::Bool(true)), || {
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.".into()
    })
}

fn check_response_format(body: &Value) -> Verdict {
    let Some(format) = body.pointer("/response_format/json_schema") else { return Ok(()) };
    let name = text(format, "name");
    ensure(is_word(name, NAME_CHARS_MAX, ""), || pattern("response_format.json_schema.name"))?;
    let is_strict = format.get("strict") == Some(&Value::Bool(true));
    openai_schema::check_format(name, format.get("schema").unwrap_or(&Value::Null), is_strict)
}
