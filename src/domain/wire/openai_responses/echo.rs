//! Writes a model's message as it goes back: with its encrypted reasoning and the ids it belongs to, or without both.

use super::super::conversation::SentCall;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Returns the input items of a model's message. The provider refuses reasoning without the items that followed it, so
/// reasoning goes back only if everything recorded fits. Each item goes back once: `sent` has the ids of earlier items.
pub(super) fn items(
    text: Option<&str>,
    calls: &[SentCall<'_>],
    recorded: Option<&[Value]>,
    sent: &mut BTreeSet<String>,
) -> Vec<Value> {
    let text = text.unwrap_or_default();
    let found = recorded.and_then(|recorded| items_with_reasoning(text, calls, recorded));
    let mut ids: Vec<&str> = found.iter().flatten().filter_map(|item| item.get("id")?.as_str()).collect();
    ids.sort_unstable();
    let is_new = ids.windows(2).all(|two| two[0] != two[1]) && ids.iter().all(|id| !sent.contains(*id));
    if is_new {
        sent.extend(ids.into_iter().map(str::to_owned));
    }
    found.filter(|_| is_new).unwrap_or_else(|| {
        let message = (!text.is_empty()).then(|| message(text, &Value::Null));
        message.into_iter().chain(calls.iter().map(|call| self::call(call, None).into())).collect()
    })
}

/// Returns the items in their recorded order; `None` if text and calls differ from the recorded ones.
fn items_with_reasoning(text: &str, calls: &[SentCall<'_>], recorded: &[Value]) -> Option<Vec<Value>> {
    let mut found = Vec::with_capacity(recorded.len());
    let (mut rest, mut calls) = (text, calls.iter());
    for item in recorded {
        match item.get("type").and_then(Value::as_str)? {
            "reasoning" => found.push(item.clone()),
            "message" => {
                let length = usize::try_from(item.get("length")?.as_u64()?).ok()?;
                let (words, behind) = rest.split_at_checked(length)?;
                rest = behind;
                if !words.trim().is_empty() {
                    found.push(message(words, item));
                }
            }
            "function_call" => found.push(call(calls.next()?, item.get("id")).into()),
            _ => return None,
        }
    }
    if !rest.is_empty() || calls.next().is_some() {
        return None;
    }
    // Reasoning at the end belongs to no item, and the provider refuses it.
    while found.last().is_some_and(|item| item["type"] == "reasoning") {
        found.pop();
    }
    Some(found)
}

fn message(text: &str, recorded: &Value) -> Value {
    let mut message = Map::new();
    message.insert("type".into(), json!("message"));
    message.insert("role".into(), json!("assistant"));
    match recorded.get("id") {
        Some(id) => {
            message.insert("id".into(), id.clone());
            message.insert("status".into(), json!("completed"));
            message.insert("content".into(), json!([{"type": "output_text", "text": text, "annotations": []}]));
        }
        None => drop(message.insert("content".into(), json!(text))),
    }
    if let Some(phase) = recorded.get("phase") {
        message.insert("phase".into(), phase.clone());
    }
    message.into()
}

fn call(call: &SentCall<'_>, id: Option<&Value>) -> Map<String, Value> {
    let mut sent = Map::new();
    sent.insert("type".into(), json!("function_call"));
    if let Some(id) = id {
        sent.insert("id".into(), id.clone());
    }
    sent.insert("call_id".into(), json!(call.id));
    sent.insert("name".into(), json!(call.name));
    sent.insert("arguments".into(), json!(json!(call.arguments).to_string()));
    sent
}
