//! Checks names of tools, and paths of operations.

use super::harness;
use crate::agent::AgentConfig;
use crate::agent::tool::{HARNESS_TOOLS, MAX_NAME, ToolEntry};
use crate::lattice::catalog::is_stored_operation;
use crate::visible::quote_foreign;

/// Reason of a tool whose operation the catalogue doesn't have.
pub const NOT_IN_CATALOG: &str = "no such operation in the catalog";

/// Returns why a path of a configuration is no tool.
pub(super) fn missing_reason(path: &str) -> &'static str {
    if is_stored_operation(path) { "no pin of an operation, or none that this agent may read" } else { NOT_IN_CATALOG }
}

/// Returns why a name can't be a tool's name for this agent.
pub(super) fn name_error(config: &AgentConfig, name: &str) -> Option<String> {
    let is_legal = (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if !is_legal {
        let rule = format!("expected 1 to {MAX_NAME} of `[A-Za-z0-9_-]`");
        return Some(format!("`{}` is not a tool name, {rule}", quote_foreign(name)));
    }
    harness::reserved_names(config)
        .any(|own| own == name)
        .then(|| format!("`{name}` is the name of a tool of the harness"))
}

/// Returns a line for each tool of a configuration that can't be offered by its name.
pub(crate) fn naming_errors(config: &AgentConfig) -> Vec<String> {
    let mut named: Vec<(usize, String)> = Vec::new();
    let mut found = Vec::new();
    for (at, entry) in config.tools.iter().enumerate() {
        if matches!(entry, ToolEntry::Path(name) if HARNESS_TOOLS.contains(&name.as_str())) {
            continue;
        }
        let name = entry.tool_name();
        // Tools for certain entities may share a name, because a request has only one of them.
        let rivals =
            named.iter().filter(|(other, _)| entry.entities().is_empty() && config.tools[*other].entities().is_empty());
        let taken = rivals.into_iter().find(|(_, other)| *other == name);
        let taken = || taken.map(|(first, _)| format!("`{name}` is the name of `tools[{first}]` already"));
        if let Some(why) = name_error(config, &name).or_else(taken) {
            found.push(format!("`tools[{at}]`: {why}: it is not offered, give it another `name`"));
        }
        named.push((at, name));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_tool_that_can_not_have_its_name_is_said_with_its_place() {
        let legal = "expected 1 to 64 of `[A-Za-z0-9_-]`: it is not offered, give it another `name`";
        let run = |name: &str| json!({"operation": "v/ops/lattice/read", "name": name});
        let of = |entity: &str| json!({"operation": "v/ops/lattice/read", "name": "x", "entities": [entity]});
        for (tools, looping, expected) in [
            (json!(["v/ops/lattice/read", "subgoal", "complete_task", {"delegate": "kid.x"}]), "goals", vec![]),
            (json!([of("a"), of("b")]), "chat", vec![]),
            (json!([run("complete")]), "chat", vec![]),
            (json!([run("complete")]), "goals", vec!["`tools[0]`: `complete` is the name of a tool of the harness"]),
            (
                json!([run("x"), run("complete_task")]),
                "chat",
                vec!["`tools[1]`: `complete_task` is the name of a tool"],
            ),
            (
                json!(["o/context_load"]),
                "chat",
                vec!["`tools[0]`: `context_load` is the name of a tool of the harness"],
            ),
            (json!([{"delegate": "kid", "name": "fail_task"}]), "chat", vec!["`tools[0]`: `fail_task` is the name"]),
            (json!([run("x"), run("y"), run("x")]), "chat", vec!["`tools[2]`: `x` is the name of `tools[0]` already"]),
            (
                json!(["v/ops/covia/read", "covia:read"]),
                "chat",
                vec!["`tools[1]`: `covia_read` is the name of `tools[0]`"],
            ),
            (json!([run("a b/ü")]), "chat", vec!["`tools[0]`: `a b/ü` is not a tool name"]),
            (json!([run("")]), "chat", vec!["`tools[0]`: `` is not a tool name"]),
            (
                json!([run(&"n".repeat(65))]),
                "chat",
                vec![&*format!("`tools[0]`: `{}` is not a tool name", "n".repeat(65))],
            ),
        ] {
            let mut config = json!({"model": {"provider": "scripted", "name": "echo"}, "tools": tools});
            if config["tools"].to_string().contains("entities") {
                config["entityIdsRequired"] = true.into();
            }
            if looping == "goals" {
                config["loop"] = Value::from("goalTree");
            }
            let found = naming_errors(&AgentConfig::parse(&config).unwrap());
            assert_eq!(found.len(), expected.len(), "{config}: {found:?}");
            for (found, expected) in found.iter().zip(expected) {
                assert!(
                    found.starts_with(expected) && (found.ends_with(legal) || !found.contains("is not a tool name")),
                    "{found}"
                );
            }
        }
    }
}
