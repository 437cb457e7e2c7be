//! Tools of the harness: how a task ends, and what an agent does to its own context.

use super::{MORE_TOOLS, Offered, Target};
use crate::domain::chat::ToolSpec;
use crate::domain::scope::Reach;
use crate::domain::values::inject::Injection;
use serde_json::{Value, json};

pub(super) fn complete_task() -> Offered {
    let schema = json!({
        "type": "object",
        "properties": {"result": {"description": "the task's output, any JSON value"}},
        "required": ["result"]
    });
    let description = "Completes the task you are working on with this result.";
    Offered::harness("complete_task", description, schema, Target::Complete)
}

pub(super) fn fail_task() -> Offered {
    let schema = json!({
        "type": "object",
        "properties": {"error": {"type": "string", "description": "why the task can't be done"}},
        "required": ["error"]
    });
    let description = "Fails the task you are working on, with the reason for the caller.";
    Offered::harness("fail_task", description, schema, Target::Fail)
}

pub(super) fn context_load() -> Offered {
    let schema = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "lattice path, e.g. w/reports/Q1"},
            "label": {"type": "string", "description": "heading in your context"},
            "budget": {"type": "integer", "description": "bytes to show, 256 to 10000; 500 when absent"},
            "level": {"enum": ["session", "agent"], "description": "for this session (default) or for all of yours"}
        },
        "required": ["path"]
    });
    let description = "Shows the value at a path in your context, read afresh in every turn from the next one on.";
    Offered::harness("context_load", description, schema, Target::Load)
}

pub(super) fn context_unload() -> Offered {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    Offered::harness("context_unload", "Takes a loaded path out of your context.", schema, Target::Unload)
}

pub(super) fn more_tools() -> Offered {
    let schema = json!({
        "type": "object",
        "properties": {"query": {"type": "string", "description": "words of what you want to do; all when absent"}}
    });
    let description = "Finds operations that you are not offered yet and adds them to your tools for this session.";
    Offered::harness(MORE_TOOLS, description, schema, Target::MoreTools)
}

impl Offered {
    fn harness(name: &str, description: &str, schema: Value, target: Target) -> Self {
        Self {
            spec: ToolSpec { name: name.to_owned(), description: description.to_owned(), schema },
            target,
            injection: Injection::default(),
            reach: Reach::default(),
        }
    }
}
