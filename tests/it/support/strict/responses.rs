//! What the Responses API refuses.

use super::{Verdict, ensure, is_word, list, media, openai_schema, repeated, text};
use serde_json::Value;

/// Of `call_id` and `id`: decolua/9router #393, mweinbach/open-grok #23.
const ID_CHARS_MAX: usize = 64;
const NAME_CHARS_MAX: usize = 64;

pub fn check(body: &Value) -> Verdict {
    match body.get("input") {
        Some(Value::String(input)) => ensure(!input.is_empty(), || "Invalid 'input': empty string.".into())?,
        Some(Value::Array(items)) if !items.is_empty() => {
            check_items(items)?;
            check_pairs(items, body.get("previous_response_id").is_some())?;
            check_reasoning(items)?;
        }
        _ => {
            return Err(
                "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided."
                    .into(),
            );
        }
    }
    check_tools(list(body, "tools"))?;
    check_settings(body)
}

fn kind(item: &Value) -> &str {
    match text(item, "type") {
        "" if item.get("role").is_some() => "message",
        kind => kind,
    }
}

fn check_items(items: &[Value]) -> Verdict {
    for (at, item) in items.iter().enumerate() {
        let prefix = match kind(item) {
            "message" => {
                check_message(item, at)?;
                "msg"
            }
            "function_call" => {
                check_call(item, at)?;
                "fc"
            }
            "function_call_output" => {
                check_output(item, at)?;
                "fc"
            }
            "reasoning" => "rs",
            "item_reference" => continue,
            other => return Err(format!("Invalid value: '{other}' at input[{at}].type")),
        };
        check_item_id(item, at, prefix)?;
    }
    Ok(())
}

/// BigPizzaV3/CodexPlusPlus #1796, openai/codex #33176 #9360, jlcodes99/cockpit-tools #2090.
fn check_item_id(item: &Value, at: usize, prefix: &str) -> Verdict {
    let Some(id) = item.get("id").and_then(Value::as_str) else { return Ok(()) };
    ensure(is_word(id, usize::MAX, ""), || {
        format!(
            "Invalid 'input[{at}].id': '{id}'. Expected an ID that contains letters, numbers, underscores, or dashes, but this value contained additional characters."
        )
    })?;
    check_length(id, &format!("input[{at}].id"))?;
    ensure(id.starts_with(prefix), || {
        format!("Invalid 'input[{at}].id': '{id}'. Expected an ID that begins with '{prefix}'.")
    })
}

fn check_length(id: &str, place: &str) -> Verdict {
    let length = id.chars().count();
    // BigPizzaV3/CodexPlusPlus #315.
    ensure(length > 0, || {
        format!(
            "Invalid '{place}': empty string. Expected a string with minimum length 1, but got an empty string instead."
        )
    })?;
    ensure(length <= ID_CHARS_MAX, || {
        format!(
            "Invalid '{place}': string too long. Expected a string with maximum length {ID_CHARS_MAX}, but got a string with length {length} instead."
        )
    })
}

fn check_message(item: &Value, at: usize) -> Verdict {
    let role = text(item, "role");
    ensure(matches!(role, "user" | "assistant" | "system" | "developer"), || {
        format!(
            "Invalid value: '{role}' at input[{at}].role. Supported values are: 'assistant', 'system', 'developer', and 'user'."
        )
    })?;
    let expected = if role == "assistant" { "output_text" } else { "input_text" };
    for (n, part) in list(item, "content").iter().enumerate() {
        // Parts of the wrong side: the types of the official SDK, and a widely quoted text of the API.
        let wrong = if role == "assistant" { "input_text" } else { "output_text" };
        ensure(text(part, "type") != wrong, || {
            format!("Invalid value: '{wrong}' at input[{at}].content[{n}].type. Supported values are: '{expected}'.")
        })?;
        media::check_responses(part, &format!("input[{at}].content[{n}]"))?;
    }
    let is_content = match item.get("content") {
        Some(Value::String(_)) => true,
        Some(Value::Array(parts)) => !parts.is_empty(),
        _ => false,
    };
    ensure(is_content, || format!("Missing required parameter: 'input[{at}].content'."))
}

fn check_call(item: &Value, at: usize) -> Verdict {
    check_length(text(item, "call_id"), &format!("input[{at}].call_id"))?;
    ensure(is_word(text(item, "name"), NAME_CHARS_MAX, ""), || {
        format!(
            "Invalid 'input[{at}].name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
        )
    })?;
    ensure(item.get("arguments").is_some_and(Value::is_string), || {
        format!("Invalid type for 'input[{at}].arguments': expected a string.")
    })
}

fn check_output(item: &Value, at: usize) -> Verdict {
    check_length(text(item, "call_id"), &format!("input[{at}].call_id"))?;
    let is_output = item.get("output").is_some_and(|output| output.is_string() || output.is_array());
    ensure(is_output, || format!("Missing required parameter: 'input[{at}].output'."))
}

fn call_ids<'a>(items: &'a [Value], wanted: &'a str) -> impl Iterator<Item = &'a str> + Clone {
    items.iter().filter(move |item| kind(item) == wanted).map(|item| text(item, "call_id"))
}

/// Every call has its output behind it, every output its call before it, none comes twice.
fn check_pairs(items: &[Value], goes_on: bool) -> Verdict {
    for (at, item) in items.iter().enumerate() {
        let id = text(item, "call_id");
        if kind(item) == "function_call" {
            // router-for-me/CLIProxyAPI #2368, RooCodeInc/Roo-Code #12248.
            ensure(call_ids(&items[at..], "function_call_output").any(|output| output == id), || {
                format!("No tool output found for function call {id}.")
            })?;
        }
        // microsoft/vscode #320060, continuedev/continue #10092; earlier calls may lie in the earlier response.
        if kind(item) == "function_call_output" && !goes_on {
            ensure(call_ids(&items[..at], "function_call").any(|call| call == id), || {
                format!("No tool call found for function call output with call_id {id}.")
            })?;
        }
    }
    // vercel/ai #7883, continuedev/continue #10200, earendil-works/pi #5165.
    for wanted in ["function_call", "function_call_output"] {
        if let Some(id) = repeated(call_ids(items, wanted)) {
            return Err(format!(
                "Duplicate item found with call_id {id}. Remove duplicate items from your input and try again."
            ));
        }
    }
    let ids = items.iter().filter_map(|item| item.get("id")?.as_str());
    match repeated(ids) {
        Some(id) => {
            Err(format!("Duplicate item found with id {id}. Remove duplicate items from your input and try again."))
        }
        None => Ok(()),
    }
}

/// vercel/ai #7099 #8379, openai/openai-node #1567, continuedev/continue #8933.
fn check_reasoning(items: &[Value]) -> Verdict {
    for (at, item) in items.iter().enumerate().filter(|(_, item)| kind(item) == "reasoning") {
        let next = items[at + 1..].iter().find(|next| kind(next) != "reasoning");
        let follows = next.is_some_and(|next| {
            kind(next) == "function_call" || (kind(next) == "message" && text(next, "role") == "assistant")
        });
        ensure(follows, || {
            format!("Item '{}' of type 'reasoning' was provided without its required following item.", text(item, "id"))
        })?;
        ensure(item.get("summary").is_some_and(Value::is_array), || {
            format!("Missing required parameter: 'input[{at}].summary'.")
        })?;
    }
    Ok(())
}

fn check_tools(tools: &[Value]) -> Verdict {
    for (at, tool) in tools.iter().enumerate().filter(|(_, tool)| text(tool, "type") == "function") {
        let name = text(tool, "name");
        // The form of Chat Completions, `{type, function: {…}}`, has no name here.
        ensure(tool.get("name").is_some(), || format!("Missing required parameter: 'tools[{at}].name'."))?;
        ensure(is_word(name, NAME_CHARS_MAX, ""), || {
            format!(
                "Invalid 'tools[{at}].name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
            )
        })?;
        let strict = tool.get("strict");
        openai_schema::check_parameters(name, tool.get("parameters"), strict == Some(&Value::Bool(true)))?;
        if strict != Some(&Value::Bool(false)) {
            openai_schema::check_no_one_of(name, tool.get("parameters").unwrap_or(&Value::Null))?;
        }
    }
    match repeated(tools.iter().filter_map(|tool| tool.get("name")?.as_str())) {
        Some(name) => Err(format!("Invalid 'tools': the name '{name}' is given twice. Tool names must be unique.")),
        None => Ok(()),
    }
}

fn check_settings(body: &Value) -> Verdict {
    // Settings of Chat Completions that have another name here.
    for (key, instead) in [
        ("max_tokens", "max_output_tokens"),
        ("max_completion_tokens", "max_output_tokens"),
        ("response_format", "text.format"),
        ("messages", "input"),
    ] {
        ensure(body.get(key).is_none(), || {
            format!("Unsupported parameter: '{key}'. In the Responses API, this parameter has moved to '{instead}'.")
        })?;
    }
    // The API's reference: at least 16.
    let limit = body.get("max_output_tokens").and_then(Value::as_u64);
    ensure(limit.is_none_or(|limit| limit >= 16), || {
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16.".into()
    })?;
    let Some(format) = body.pointer("/text/format").filter(|format| text(format, "type") == "json_schema") else {
        return Ok(());
    };
    let name = text(format, "name");
    ensure(is_word(name, NAME_CHARS_MAX, ""), || "Missing required parameter: 'text.format.name'.".into())?;
    let is_strict = format.get("strict") == Some(&Value::Bool(true));
    openai_schema::check_format(name, format.get("schema").unwrap_or(&Value::Null), is_strict)
}
