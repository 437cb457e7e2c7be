//! What `DeepSeek` and Kimi refuse beyond Chat Completions.

use super::{Verdict, ensure, list, media, openai, text};
use serde_json::Value;

pub fn check(body: &Value) -> Verdict {
    openai::check(body)?;
    let messages = list(body, "messages");
    media::check_text_only(messages)?;
    for (at, message) in messages.iter().enumerate() {
        // earendil-works/pi #1048, eclipse-theia/theia #15144.
        ensure(text(message, "role") != "developer", || {
            format!(
                "Failed to deserialize the JSON body into the target type: messages[{at}].role: unknown variant `developer`, expected one of `system`, `user`, `assistant`, `tool`"
            )
        })?;
    }
    // The API's guide "JSON Output": `json_object` alone.
    ensure(body.pointer("/response_format/type").is_none_or(|kind| kind != "json_schema"), || {
        "This response_format type is unavailable now".into()
    })?;
    if !thinks(body, &["reasoner"]) {
        return Ok(());
    }
    // GitNexus #43, openai-agents-python #2155, eino-ext #700: with calls always; opencode #17523: and in the current
    // turn, where an empty text will do.
    let begin = messages.iter().rposition(|message| text(message, "role") == "user").unwrap_or_default();
    for (at, message) in messages.iter().enumerate().filter(|(_, message)| text(message, "role") == "assistant") {
        let is_wanted = at > begin || !list(message, "tool_calls").is_empty();
        ensure(!is_wanted || message.get("reasoning_content").is_some_and(Value::is_string), || {
            format!(
                "Missing `reasoning_content` field in the assistant message at message index {at}. For more information, please refer to https://api-docs.deepseek.com/guides/thinking_mode#tool-calls"
            )
        })?;
    }
    Ok(())
}

/// Whether the model thinks: it was told to, or its name says so.
fn thinks(body: &Value, names: &[&str]) -> bool {
    match body.pointer("/thinking/type").and_then(Value::as_str) {
        Some(mode) => mode == "enabled",
        None => names.iter().any(|name| text(body, "model").contains(name)),
    }
}

/// mastra-ai/mastra #12592, continuedev/continue #11600; HKUDS/nanobot #3939.
pub fn check_kimi(body: &Value) -> Verdict {
    openai::check(body)?;
    ensure(body.get("thinking").is_none() || body.get("reasoning_effort").is_none(), || {
        "cannot specify both 'thinking' and 'reasoning_effort'".into()
    })?;
    if !thinks(body, &["thinking", "k2.5", "k2.6"]) {
        return Ok(());
    }
    let with_calls = list(body, "messages").iter().enumerate().filter(|(_, m)| !list(m, "tool_calls").is_empty());
    for (at, message) in with_calls {
        ensure(!text(message, "reasoning_content").is_empty(), || {
            format!("thinking is enabled but reasoning_content is missing in assistant tool call message at index {at}")
        })?;
    }
    Ok(())
}
