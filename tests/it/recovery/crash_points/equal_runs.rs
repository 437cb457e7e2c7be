//! Whether two runs have ended alike.

use super::Ended;
use super::scenarios::Scenario;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Whether a run with a fault ended as one without it.
pub(super) fn same(scenario: &Scenario, expected: &Value, ended: &Ended) -> Result<(), String> {
    let [expected, got] = [expected, &ended.state].map(with_undated_ids);
    let differ = |part: &str| expected[part] != got[part] && !(scenario.racing && part == "turns");
    if !["turns", "jobs", "tree", "mailbox", "outbox"].into_iter().any(differ) {
        return Ok(());
    }
    Err(format!("expected {expected:#}, got {got:#} after {:?}", ended.hit))
}

/// A state in which ids say nothing of the time: those of calls have the start of their turn in them. What has the same
/// name then stands in a list.
fn with_undated_ids(state: &Value) -> Value {
    let pair = |child: &Value| Some((child[0].as_str()?.to_owned(), child[1].as_str()?.to_owned()));
    let children: Vec<_> = state["children"].as_array().into_iter().flatten().filter_map(pair).collect();
    undated(state, &children)
}

fn undated(value: &Value, children: &[(String, String)]) -> Value {
    match value {
        Value::String(text) => json!(undated_text(text, children)),
        Value::Array(items) => items.iter().map(|item| undated(item, children)).collect(),
        Value::Object(fields) => {
            let mut named: BTreeMap<String, Vec<Value>> = BTreeMap::new();
            for (name, field) in fields {
                named.entry(undated_text(name, children)).or_default().push(undated(field, children));
            }
            for same in named.values_mut() {
                same.sort_by_key(Value::to_string);
            }
            json!(named)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn undated_text(text: &str, children: &[(String, String)]) -> String {
    let mut text = text.to_owned();
    for (call, job) in children {
        text = text.replace(call, "CALL").replace(job, "JOB").replace(&job[..16], "SESSION");
    }
    // The event of its result is named by it.
    match text.strip_prefix("venue:result-JOB-") {
        Some(_) => "venue:result-JOB".to_owned(),
        None => text,
    }
}
