//! What the Messages API refuses.

use super::{Verdict, ensure, is_word, list, media, members, openai_schema, repeated, text};
use serde_json::Value;
use std::collections::HashSet;

/// Wei-Shaw/sub2api #176, tghamm/Anthropic.SDK #50.
const CACHE_MARKS_MAX: usize = 4;
const CALL_NAME_CHARS_MAX: usize = 200;
const TOOL_NAME_CHARS_MAX: usize = 128;
const PROPERTY_CHARS_MAX: usize = 64;
/// themaximalist/llm.js #30.
const THINKING_TOKENS_MIN: u64 = 1_024;

pub fn check(body: &Value) -> Verdict {
    check_settings(body)?;
    check_system(body.get("system"))?;
    check_messages(list(body, "messages"))?;
    media::check_anthropic_count(list(body, "messages"))?;
    check_tools(list(body, "tools"))?;
    check_thinking(body)?;
    check_cache_marks(body)?;
    check_output_format(body)
}

fn check_settings(body: &Value) -> Verdict {
    let limit = body.get("max_tokens").ok_or("max_tokens: Field required")?;
    ensure(limit.as_u64().is_some_and(|limit| limit > 0), || {
        "max_tokens: Input should be greater than or equal to 1".into()
    })?;
    ensure(!text(body, "model").is_empty(), || "model: String should have at least 1 character".into())
}

/// Rules of text blocks anywhere: opencode #31259, claude-code #23440, continue #9605; the mark: claude-code #54039.
fn check_text(block: &Value, place: &str) -> Verdict {
    let said = text(block, "text");
    ensure(!said.is_empty() || block.get("cache_control").is_none(), || {
        format!("{place}.text: cache_control cannot be set for empty text blocks")
    })?;
    let whose = place.split('.').next().unwrap_or_default();
    ensure(!said.is_empty(), || format!("{whose}: text content blocks must be non-empty"))?;
    ensure(!said.trim().is_empty(), || format!("{whose}: text content blocks must contain non-whitespace text"))
}

fn check_system(system: Option<&Value>) -> Verdict {
    match system {
        None | Some(Value::String(_)) => Ok(()),
        Some(Value::Array(blocks)) => {
            blocks.iter().enumerate().try_for_each(|(at, block)| check_text(block, &format!("system.{at}")))
        }
        Some(_) => Err("system: Input should be a valid string or list".into()),
    }
}

/// The blocks of a message; a text is one block.
fn blocks(message: &Value) -> Vec<Value> {
    match message.get("content") {
        Some(Value::String(said)) => vec![serde_json::json!({"type": "text", "text": said})],
        Some(Value::Array(blocks)) => blocks.clone(),
        _ => Vec::new(),
    }
}

fn check_messages(messages: &[Value]) -> Verdict {
    ensure(!messages.is_empty(), || "messages: at least one message is required".into())?;
    ensure(text(&messages[0], "role") == "user", || "messages: first message must use the \"user\" role".into())?;
    let mut ids = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = text(message, "role");
        ensure(matches!(role, "user" | "assistant"), || {
            format!("messages.{at}.role: Input should be 'user' or 'assistant'")
        })?;
        let blocks = blocks(message);
        ensure(!blocks.is_empty(), || {
            format!(
                "messages.{at}: all messages must have non-empty content except for the optional final assistant message"
            )
        })?;
        check_results(&blocks, at, &open)?;
        open.clear();
        for (n, block) in blocks.iter().enumerate() {
            let place = format!("messages.{at}.content.{n}");
            match text(block, "type") {
                "text" => check_text(block, &place)?,
                "tool_use" => {
                    check_call(block, &place, role)?;
                    let id = text(block, "id");
                    // claude-code #28515, Switchyard #502.
                    ensure(ids.insert(id.to_owned()), || format!("{place}: `tool_use` ids must be unique"))?;
                    open.push(id.to_owned());
                }
                "tool_result" => check_result(block, &place, role)?,
                "image" | "document" => media::check_anthropic(block, &place)?,
                "thinking" => ensure(!text(block, "signature").is_empty(), || {
                    format!("{place}.thinking.signature: Field required")
                })?,
                _ => {}
            }
        }
    }
    let last = messages.len() - 1;
    ensure(open.is_empty(), || unanswered(last, &open))?;
    // earendil-works/pi #8943.
    ensure(text(&messages[last], "role") == "user", || {
        "This model does not support assistant message prefill. The conversation must end with a user message.".into()
    })
}

fn unanswered(at: usize, open: &[String]) -> String {
    format!(
        "messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
        open.join(", ")
    )
}

/// Results answer the calls of the message before, all of them, each once, and stand in front of any text:
/// langgraphjs #2751, earendil-works/pi #4570.
fn check_results(blocks: &[Value], at: usize, open: &[String]) -> Verdict {
    let results: Vec<&Value> = blocks.iter().filter(|block| text(block, "type") == "tool_result").collect();
    for result in &results {
        let id = text(result, "tool_use_id");
        ensure(open.iter().any(|call| call == id), || {
            format!(
                "messages.{at}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        })?;
    }
    if let Some(id) = repeated(results.iter().map(|result| text(result, "tool_use_id"))) {
        return Err(format!(
            "messages.{at}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}"
        ));
    }
    let in_front = blocks.iter().take_while(|block| text(block, "type") == "tool_result").count();
    let left: Vec<String> = open
        .iter()
        .filter(|call| {
            !results[..in_front.min(results.len())].iter().any(|result| text(result, "tool_use_id") == *call)
        })
        .cloned()
        .collect();
    ensure(left.is_empty(), || unanswered(at.saturating_sub(1), &left))
}

fn check_call(block: &Value, place: &str, role: &str) -> Verdict {
    ensure(role == "assistant", || format!("{place}: `tool_use` blocks can only be in `assistant` messages"))?;
    // claux #40, Switchyard #502.
    ensure(is_word(text(block, "id"), usize::MAX, ""), || {
        format!("{place}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    })?;
    // earendil-works/pi #1643, claude-code #94799.
    ensure(is_word(text(block, "name"), CALL_NAME_CHARS_MAX, ""), || {
        format!("{place}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,{CALL_NAME_CHARS_MAX}}}$'")
    })?;
    ensure(block.get("input").is_some_and(Value::is_object), || {
        format!("{place}.tool_use.input: Input should be a valid dictionary")
    })
}

fn check_result(block: &Value, place: &str, role: &str) -> Verdict {
    ensure(role == "user", || format!("{place}: `tool_result` blocks can only be in `user` messages"))?;
    let parts = list(block, "content").iter().filter(|part| text(part, "type") == "text");
    parts.enumerate().try_for_each(|(n, part)| check_text(part, &format!("{place}.tool_result.content.{n}")))
}

fn check_tools(tools: &[Value]) -> Verdict {
    // Tools of the server have a type and no schema.
    for (at, tool) in tools.iter().enumerate().filter(|(_, tool)| matches!(text(tool, "type"), "" | "custom")) {
        let place = format!("tools.{at}.custom");
        let name = text(tool, "name");
        ensure(is_word(name, TOOL_NAME_CHARS_MAX, ""), || {
            format!("{place}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,{TOOL_NAME_CHARS_MAX}}}$'")
        })?;
        let schema = tool.get("input_schema").ok_or_else(|| format!("{place}.input_schema: Field required"))?;
        ensure(text(schema, "type") == "object", || {
            format!("{place}.input_schema.type: Input should be 'object' ({name})")
        })?;
        // mcp-use #90.
        ensure(["oneOf", "anyOf", "allOf"].iter().all(|key| schema.get(*key).is_none()), || {
            format!("{place}.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level")
        })?;
        // docker-agent #3974.
        for (key, _) in members(schema, "properties") {
            ensure(is_word(key, PROPERTY_CHARS_MAX, "."), || {
                format!(
                    "{place}.input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{{1,64}}$' ({key})"
                )
            })?;
        }
        if tool.get("strict") == Some(&Value::Bool(true)) {
            check_closed(schema, &place)?;
        }
    }
    match repeated(tools.iter().map(|tool| text(tool, "name"))) {
        Some(_) => Err("tools: Tool names must be unique.".into()),
        None => Ok(()),
    }
}

/// Objects of an enforced schema are closed: lfnovo/esperanto #273.
fn check_closed(schema: &Value, place: &str) -> Verdict {
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    ensure(text(schema, "type") != "object" || is_closed, || {
        format!("{place}: For 'object' type, 'additionalProperties' must be explicitly set to false")
    })?;
    openai_schema::children(schema).into_iter().try_for_each(|(_, inner)| check_closed(inner, place))
}

fn check_output_format(body: &Value) -> Verdict {
    let format = body.pointer("/output_config/format").or_else(|| body.get("output_format"));
    let Some(schema) = format.and_then(|format| format.get("schema")) else { return Ok(()) };
    check_closed(schema, "output_config.format.schema")
}

/// Where the turn begins that the last message belongs to: behind the last message of a person.
fn turn_begin(messages: &[Value]) -> usize {
    let is_person = |message: &&Value| {
        text(message, "role") == "user" && !blocks(message).iter().any(|block| text(block, "type") == "tool_result")
    };
    messages.iter().rposition(|message| is_person(&message)).unwrap_or_default()
}

fn check_thinking(body: &Value) -> Verdict {
    let Some(thinking) = body.get("thinking") else { return Ok(()) };
    let mode = text(thinking, "type");
    if !matches!(mode, "enabled" | "adaptive") {
        return Ok(());
    }
    if mode == "enabled" {
        let tokens = thinking.get("budget_tokens").and_then(Value::as_u64).unwrap_or_default();
        ensure(tokens >= THINKING_TOKENS_MIN, || {
            format!("thinking.enabled.budget_tokens: Input should be greater than or equal to {THINKING_TOKENS_MIN}")
        })?;
        // Smart-AI-Memory/attune-ai #730, takahirom/arbigent #412.
        ensure(body.get("max_tokens").and_then(Value::as_u64) > Some(tokens), || {
            "`max_tokens` must be greater than `thinking.budget_tokens`.".into()
        })?;
    }
    // Smart-AI-Memory/attune-ai #730.
    ensure(body.get("temperature").is_none_or(|value| value.as_f64() == Some(1.0)), || {
        "`temperature` may only be set to 1 when thinking is enabled.".into()
    })?;
    // mastra-ai/mastra #7507, can1357/oh-my-pi #341.
    let choice = body.pointer("/tool_choice/type").and_then(Value::as_str).unwrap_or("auto");
    ensure(!matches!(choice, "any" | "tool"), || {
        "Thinking may not be enabled when tool_choice forces tool use.".into()
    })?;
    let messages = list(body, "messages");
    for (at, message) in messages.iter().enumerate().skip(turn_begin(messages)) {
        let blocks = blocks(message);
        let calls = blocks.iter().any(|block| text(block, "type") == "tool_use");
        let first = blocks.first().map(|block| text(block, "type")).unwrap_or_default().to_owned();
        // anomalyco/opencode #3077, pydantic/pydantic-ai #2075.
        ensure(mode == "adaptive" || !calls || matches!(first.as_str(), "thinking" | "redacted_thinking"), || {
            format!(
                "messages.{at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{first}`. When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks)."
            )
        })?;
    }
    Ok(())
}

fn cache_marks(value: &Value) -> usize {
    match value {
        Value::Object(members) => {
            members.iter().map(|(key, inner)| usize::from(key == "cache_control") + cache_marks(inner)).sum()
        }
        Value::Array(values) => values.iter().map(cache_marks).sum(),
        _ => 0,
    }
}

fn check_cache_marks(body: &Value) -> Verdict {
    let found = ["system", "messages"].iter().filter_map(|key| body.get(*key)).map(cache_marks).sum::<usize>();
    // A schema may have a property of that name.
    let of_tools = list(body, "tools").iter().filter(|tool| tool.get("cache_control").is_some()).count();
    ensure(found + of_tools <= CACHE_MARKS_MAX, || {
        format!("A maximum of {CACHE_MARKS_MAX} blocks with cache_control may be provided. Found {}.", found + of_tools)
    })
}
