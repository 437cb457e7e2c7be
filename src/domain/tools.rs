//! Tool resolution: which operations a model is offered, under which names.

use crate::domain::agent::{AgentConfig, ToolEntry};
use crate::domain::chat::ToolSpec;
use crate::domain::ids::sha256_hex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;

/// The default tool set; those that the catalog has are offered unless `defaultTools` is false.
pub const DEFAULT_TOOLS: [&str; 19] = [
    "v/ops/agent/create",
    "v/ops/agent/message",
    "v/ops/agent/request",
    "v/ops/asset/store",
    "v/ops/asset/get",
    "v/ops/asset/list",
    "v/ops/asset/content",
    "v/ops/asset/pin",
    "v/ops/job/run",
    "v/ops/job/result",
    "v/ops/lattice/read",
    "v/ops/lattice/write",
    "v/ops/lattice/delete",
    "v/ops/lattice/append",
    "v/ops/lattice/slice",
    "v/ops/lattice/list",
    "v/ops/lattice/inspect",
    "v/ops/schema/validate",
    "v/ops/schema/infer",
];

/// Longest tool name that providers accept.
const MAX_NAME: usize = 64;

/// An operation as the catalog describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    /// The path that was asked for: an alias stays an alias in the tool's name.
    pub asked: String,
    /// The operation that it means.
    pub path: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its input.
    pub input: Value,
}

/// A tool that will be offered to a model.
struct Offered {
    spec: ToolSpec,
    target: Target,
}

/// What a tool call does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// Invokes an operation.
    Operation(String),
    /// Completes the open task.
    Complete,
    /// Fails the open task.
    Fail,
}

/// Tools of an agent's turns, and those that could not be offered, with the reason.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolTable {
    /// As the model sees them, in the order in which they are offered.
    pub specs: Arc<[ToolSpec]>,
    /// What a call of each does.
    pub targets: Vec<Target>,
    /// Path and reason.
    pub refused: Vec<(String, String)>,
    /// Their bytes in a prompt.
    pub bytes: usize,
    /// SHA-256 of the specs.
    pub hash: String,
}

#[derive(Default)]
struct Builder {
    offered: Vec<Offered>,
    refused: Vec<(String, String)>,
}

/// Resolves an agent's tools. `find` looks a path up in the catalog.
pub fn resolve(config: &AgentConfig, task_open: bool, find: impl Fn(&str) -> Option<Described>) -> ToolTable {
    let mut table = Builder::default();
    for entry in &config.tools {
        let (path, name, description) = match entry {
            ToolEntry::Path(path) => (path, None, None),
            ToolEntry::Named(tool) => (&tool.operation, tool.name.clone(), tool.description.clone()),
        };
        match find(path) {
            Some(found) => table.offer(&found, name, description),
            None => table.refused.push((path.clone(), "no such operation in the catalog".into())),
        }
    }
    if config.default_tools {
        for path in DEFAULT_TOOLS {
            let known = table.offered.iter().any(|o| o.target == Target::Operation(path.to_owned()));
            if let (false, Some(found)) = (known, find(path)) {
                table.offer(&found, None, None);
            }
        }
    }
    if task_open {
        table.offered.extend([complete_task(), fail_task()]);
    }
    table.build()
}

impl Builder {
    fn build(self) -> ToolTable {
        let (specs, targets): (Vec<_>, Vec<_>) = self.offered.into_iter().map(|o| (o.spec, o.target)).unzip();
        let json = serde_json::to_vec(&specs).unwrap_or_default();
        ToolTable {
            bytes: specs.iter().map(|t| t.name.len() + t.description.len() + t.schema.to_string().len()).sum(),
            hash: sha256_hex(&json),
            specs: specs.into(),
            targets,
            refused: self.refused,
        }
    }

    fn offer(&mut self, found: &Described, name: Option<String>, description: Option<String>) {
        let name = name.unwrap_or_else(|| tool_name(&found.asked));
        if !is_legal(&name) {
            let reason = format!("`{name}` is not a tool name, expected 1 to {MAX_NAME} of `[A-Za-z0-9_-]`");
            self.refused.push((found.asked.clone(), reason));
        } else if let Some(first) = self.offered.iter().find(|o| o.spec.name == name) {
            let reason = format!("the name `{name}` is taken by {:?}", first.target);
            self.refused.push((found.asked.clone(), reason));
        } else {
            let text = description.unwrap_or_else(|| found.description.clone());
            let description = format!("Operation: {}. {text}", found.asked);
            let spec = ToolSpec { name, description, schema: found.input.clone() };
            self.offered.push(Offered { spec, target: Target::Operation(found.path.clone()) });
        }
    }
}

impl ToolTable {
    /// What a call of `name` does.
    pub fn target(&self, name: &str) -> Option<&Target> {
        let at = self.specs.iter().position(|spec| spec.name == name)?;
        self.targets.get(at)
    }

    /// The names offered.
    pub fn names(&self) -> Vec<&str> {
        self.specs.iter().map(|spec| spec.name.as_str()).collect()
    }
}

/// `v/ops/covia/read` → `covia_read`.
pub fn tool_name(path: &str) -> String {
    let short = path.trim_matches('/').trim_start_matches("v/ops/");
    let name: String =
        short.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect();
    name.chars().take(MAX_NAME).collect()
}

fn is_legal(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn complete_task() -> Offered {
    let schema = json!({
        "type": "object",
        "properties": {"result": {"description": "the task's output, any JSON value"}},
        "required": ["result"]
    });
    let description = "Completes the task you are working on with this result.".to_owned();
    Offered { spec: ToolSpec { name: "complete_task".into(), description, schema }, target: Target::Complete }
}

fn fail_task() -> Offered {
    let schema = json!({
        "type": "object",
        "properties": {"error": {"type": "string", "description": "why the task can't be done"}},
        "required": ["error"]
    });
    let description = "Fails the task you are working on, with the reason for the caller.".to_owned();
    Offered { spec: ToolSpec { name: "fail_task".into(), description, schema }, target: Target::Fail }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(path: &str) -> Option<Described> {
        let real = path.replace("covia", "lattice");
        ["v/ops/lattice/read", "v/ops/lattice/write", "v/ops/agent/request"]
            .contains(&real.as_str())
            .then(|| Described { asked: path.into(), path: real, description: "D.".into(), input: json!({}) })
    }

    fn names(config: &Value, task_open: bool) -> Vec<String> {
        let table = resolve(&AgentConfig::parse(config).unwrap(), task_open, find);
        table.names().into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn names_come_from_the_override_or_the_path() {
        let model = json!({"provider": "scripted", "name": "echo"});
        let tools = json!(["v/ops/covia/read", {"operation": "v/ops/agent/request", "name": "ask"}]);
        let config = json!({"model": model, "tools": tools, "defaultTools": false});
        assert_eq!(names(&config, false), ["covia_read", "ask"]);
        assert_eq!(names(&config, true), ["covia_read", "ask", "complete_task", "fail_task"]);
    }

    #[test]
    fn defaults_follow_and_are_not_offered_twice() {
        let model = json!({"provider": "scripted", "name": "echo"});
        let config = json!({"model": model, "tools": ["v/ops/lattice/write"]});
        assert_eq!(names(&config, false), ["lattice_write", "agent_request", "lattice_read"]);
    }

    #[test]
    fn what_could_not_be_offered_says_why() {
        let model = json!({"provider": "scripted", "name": "echo"});
        let tools = json!(["v/ops/no/such", "v/ops/lattice/read",
            {"operation": "v/ops/lattice/write", "name": "lattice_read"},
            {"operation": "v/ops/lattice/write", "name": "a b"}]);
        let config = json!({"model": model, "tools": tools, "defaultTools": false});
        let table = resolve(&AgentConfig::parse(&config).unwrap(), false, find);
        let reasons: Vec<_> = table.refused.iter().map(|(_, reason)| reason.as_str()).collect();
        assert_eq!(reasons.len(), 3);
        assert_eq!(reasons[0], "no such operation in the catalog");
        assert!(reasons[1].starts_with("the name `lattice_read` is taken"));
        assert!(reasons[2].starts_with("`a b` is not a tool name"));
    }
}
