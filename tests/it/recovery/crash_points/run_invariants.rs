//! What must be true of the course of a run.

use super::dying_worker::Trace;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};

/// What must be true of the course of a run, whatever died in it.
pub(super) fn check_course(log: &[Trace], state: &Value) -> Result<(), String> {
    let mut recorded = BTreeSet::new();
    let mut published: HashMap<&str, &Value> = HashMap::new();
    for trace in log {
        match trace {
            Trace::Recorded(turn) => {
                recorded.insert(turn);
            }
            Trace::Asked(turn) if recorded.contains(turn) => {
                return Err(format!("the model was asked again for turn `{turn}`, whose reply was recorded"));
            }
            Trace::Asked(_) => {}
            Trace::Published { id, body } => {
                let before = *published.entry(id).or_insert(body);
                if before != body {
                    return Err(format!("`{id}` was published as {before} and as {body}"));
                }
            }
        }
    }
    let ended = state["jobs"].as_object().unwrap();
    let completions = published.iter().filter(|(id, _)| id.starts_with("venue:done-")).count();
    if completions != ended.len() {
        return Err(format!("expected a completion for each of {} jobs, got {completions}", ended.len()));
    }
    for (id, body) in published.iter().filter(|(id, _)| id.starts_with("venue:done-")) {
        let event = body["body"]["id"].as_str().unwrap_or_default();
        let (said, is) = (&body["body"]["status"], &ended[event]["status"]);
        if said != is {
            return Err(format!("`{id}` says {said}, and the job is {is}"));
        }
    }
    Ok(())
}
