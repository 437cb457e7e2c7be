//! `streamGenerateContent` of Gemini.

use super::{Ending, Plan};
use crate::support::dice::Dice;
use serde_json::{Value, json};

pub(super) fn events(plan: &Plan, dice: &mut Dice) -> Vec<Value> {
    let signed = |mut part: Value, dice: &mut Dice| {
        if dice.one_in(3) {
            part["thoughtSignature"] = "c2ln".into();
        }
        part
    };
    let mut parts: Vec<Value> = plan.thoughts.iter().map(|text| json!({"text": text, "thought": true})).collect();
    for text in &plan.texts {
        parts.push(signed(json!({"text": text}), dice));
    }
    for call in &plan.calls {
        let args: Value = serde_json::from_str(&call.arguments).unwrap();
        let mut function = json!({"name": call.name, "args": args});
        if dice.one_in(2) {
            function["id"] = call.id.as_str().into();
        }
        parts.push(signed(json!({"functionCall": function}), dice));
    }
    let reason = match plan.ending {
        Ending::Whole => "STOP",
        Ending::Limit => "MAX_TOKENS",
        Ending::Filter => *dice.pick(&["SAFETY", "RECITATION", "PROHIBITED_CONTENT"]),
    };
    let mut chunks: Vec<Vec<Value>> = Vec::new();
    for part in parts {
        match chunks.last_mut() {
            Some(chunk) if dice.one_in(3) => chunk.push(part),
            Some(_) | None => chunks.push(vec![part]),
        }
    }
    let last = chunks.len().saturating_sub(1);
    let [input, cached, output, thoughts] = plan.tokens.unwrap_or_default();
    let chunk = |(at, parts): (usize, Vec<Value>)| {
        let mut candidate = json!({"index": 0, "content": {"role": "model", "parts": parts}});
        let mut usage = json!({"promptTokenCount": input, "totalTokenCount": input});
        if at == last {
            candidate["finishReason"] = reason.into();
            usage = json!({"promptTokenCount": input, "cachedContentTokenCount": cached,
                "candidatesTokenCount": output - thoughts, "thoughtsTokenCount": thoughts,
                "totalTokenCount": input + output});
        }
        json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "r"})
    };
    chunks.into_iter().enumerate().map(chunk).collect()
}
