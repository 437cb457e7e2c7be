//! What Mistral refuses beyond Chat Completions.

use super::{Verdict, ensure, list, openai, text};
use serde_json::Value;

/// All keys of a request (docs.mistral.ai/api); any other: editor-code-assistant/eca #231, Gitlawb/openclaude #739,
/// platform-docs-public #7, avante.nvim #2347.
const KEYS: [&str; 20] = [
    "model",
    "messages",
    "temperature",
    "top_p",
    "max_tokens",
    "stream",
    "stop",
    "random_seed",
    "metadata",
    "response_format",
    "tools",
    "tool_choice",
    "presence_penalty",
    "frequency_penalty",
    "n",
    "prediction",
    "parallel_tool_calls",
    "prompt_mode",
    "reasoning_effort",
    "safe_prompt",
];
const MESSAGE_KEYS: [&str; 6] = ["role", "content", "tool_calls", "tool_call_id", "name", "prefix"];
const CALL_ID_CHARS: usize = 9;

pub fn check(body: &Value) -> Verdict {
    check_keys(body, &KEYS, "")?;
    let messages = list(body, "messages");
    for (at, message) in messages.iter().enumerate() {
        check_keys(message, &MESSAGE_KEYS, &format!(", 'messages', {at}"))?;
    }
    check_ids(messages)?;
    check_order(messages)?;
    openai::check(body)
}

fn check_keys(value: &Value, known: &[&str], place: &str) -> Verdict {
    let found = value.as_object().into_iter().flatten().map(|(key, _)| key);
    match found.into_iter().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!("Extra inputs are not permitted, loc: ['body'{place}, '{key}']")),
        None => Ok(()),
    }
}

/// anomalyco/opencode #1680, jackmpcollins/magentic #276, nearai/ironclaw #1241.
fn check_ids(messages: &[Value]) -> Verdict {
    let calls = messages.iter().flat_map(|message| list(message, "tool_calls")).map(|call| text(call, "id"));
    let results = messages.iter().filter_map(|message| message.get("tool_call_id")?.as_str());
    for id in calls.chain(results) {
        ensure(id.len() == CALL_ID_CHARS && id.chars().all(|c| c.is_ascii_alphanumeric()), || {
            format!("Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of {CALL_ID_CHARS}.")
        })?;
    }
    Ok(())
}

fn check_order(messages: &[Value]) -> Verdict {
    let mut before = "";
    let mut open = 0_usize;
    for message in messages {
        let role = text(message, "role");
        // zed-industries/zed #37021, NousResearch/hermes-agent #20154; users and assistants take turns: charmbracelet/crush
        // #279.
        let fits = match role {
            "user" => matches!(before, "" | "system" | "assistant"),
            "assistant" => matches!(before, "user" | "tool"),
            "tool" => matches!(before, "assistant" | "tool") && open > 0,
            "system" => before.is_empty(),
            _ => false,
        };
        // mistralai/client-ts #106, 567-labs/instructor #724.
        ensure(open == 0 || role == "tool", || "Not the same number of function calls and responses".into())?;
        ensure(fits, || format!("Unexpected role '{role}' after role '{before}'"))?;
        if role == "tool" {
            open -= 1;
        }
        if role == "assistant" {
            open = list(message, "tool_calls").len();
            // OpenHands/OpenHands #8685.
            ensure(
                open > 0 || message.get("content").is_some_and(|content| content != "" && !content.is_null()),
                || "Assistant message must have either content or tool_calls, but not none.".into(),
            )?;
        }
        before = role;
    }
    // langchain-ai/langchain #28846, anomalyco/opencode #19115.
    let is_prefix = messages.last().is_some_and(|message| message.get("prefix") == Some(&Value::Bool(true)));
    ensure(matches!(before, "user" | "tool") || is_prefix, || {
        format!("Expected last role User or Tool (or Assistant with prefix True) for serving but got {before}")
    })?;
    ensure(open == 0, || "Not the same number of function calls and responses".into())
}
