//! The parameters of a path, by the segment that stands before them.

use super::queries::VALUES;
use crate::domain::event::NAME;
use serde_json::{Value, json};

/// The parameters in a path.
pub(super) fn parameters(path: &str) -> Vec<Value> {
    let mut before = "";
    let mut found = Vec::new();
    for segment in path.split('/') {
        match segment.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            None => before = segment,
            Some(name) => {
                let name = name.trim_start_matches('*');
                let (about, schema) = parameter(before, name);
                found.push(
                    json!({"name": name, "in": "path", "required": true, "description": about, "schema": schema}),
                );
            }
        }
    }
    found
}

fn parameter(before: &str, name: &str) -> (&'static str, Value) {
    let text = |pattern: &str| json!({"type": "string", "pattern": pattern});
    match (before, name) {
        ("agents", "id") => ("Agent id.", text(NAME)),
        (_, "session") => ("Session id.", text(NAME)),
        (_, "turn") => ("Number of the turn.", json!({"type": "integer", "minimum": 1, "maximum": super::MOST})),
        ("jobs", _) => ("Job id: 32 hexadecimal digits, a leading `0x` is dropped.", text("^(0x)?[0-9a-fA-F]{32}$")),
        ("timers" | "approvals" | "outcomes", _) => ("Its id, 32 hexadecimal digits.", text("^[0-9a-f]{32}$")),
        ("values", _) => ("What to do.", json!({"enum": VALUES})),
        ("operations", _) => {
            ("Catalog path; its slashes are not escaped.", text("^[A-Za-z0-9:_-]+(/[A-Za-z0-9:_-]+)*$"))
        }
        ("adapters", _) => ("Group, e.g. `lattice`.", json!({"type": "string", "minLength": 1})),
        ("assets", _) => (
            "SHA-256 of an asset in hex, or `<sha-256>/content`; slashes are not escaped.",
            text("^(0x)?[0-9a-fA-F]{64}(/content)?$"),
        ),
        _ => ("Name of the secret.", text("^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")),
    }
}
