//! Tool resolution: which operations a model is offered, under which names.

use crate::domain::agent::{AgentConfig, ToolEntry};
use crate::domain::chat::ToolSpec;
use crate::domain::ids::sha256_hex;
use crate::domain::values::entities;
use crate::domain::values::inject::Injection;
use crate::domain::values::resolver::Resolver;
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

/// Name by which a configuration asks for the tool that finds tools.
pub const MORE_TOOLS: &str = "more_tools";

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
    /// The entities that it is about; empty: none in particular.
    pub entities: Vec<String>,
}

/// A tool that will be offered to a model.
struct Offered {
    spec: ToolSpec,
    target: Target,
    injection: Injection,
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
    /// Shows a path from the next turn on.
    Load,
    /// Shows it no longer.
    Unload,
    /// Finds operations that are not offered yet.
    MoreTools,
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
    /// What the runtime fills into calls of each.
    pub injections: Vec<Injection>,
    /// Tool, and what `_auto` could not decide or what looks like a mistake in a binding.
    pub reports: Vec<(String, String)>,
    /// Their bytes in a prompt.
    pub bytes: usize,
    /// SHA-256 of the specs.
    pub hash: String,
}

struct Builder<'a> {
    config: &'a AgentConfig,
    values: &'a Resolver,
    /// The entities that the request is about, where the agent asks for them.
    entities: Option<Vec<String>>,
    /// What a binding may name: tools and operations, offered or not.
    names: Vec<String>,
    offered: Vec<Offered>,
    refused: Vec<(String, String)>,
    reports: Vec<(String, String)>,
}

/// Resolves an agent's tools, with the values of a turn: those of its configuration, the default
/// ones, those that its session `found`, then those of the harness. `find` looks a path up in the
/// catalog.
pub fn resolve(
    config: &AgentConfig,
    found: &[String],
    task_open: bool,
    values: &Resolver,
    find: impl Fn(&str) -> Option<Described>,
) -> ToolTable {
    let session = &values.tiers.session;
    let entities =
        config.entity_ids_required.then(|| entities::ids(&config.entity_ids_key, session).unwrap_or_default());
    let (names, offered, refused, reports) = Default::default();
    let mut table = Builder { config, values, entities, names, offered, refused, reports };
    for entry in &config.tools {
        if matches!(entry, ToolEntry::Path(path) if path == MORE_TOOLS) {
            continue;
        }
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
    for path in found {
        if let Some(found) = find(path) {
            table.offer(&found, None, None);
        }
    }
    if task_open {
        table.offered.extend([complete_task(), fail_task()]);
    }
    table.offered.extend([context_load(), context_unload()]);
    if config.tools.iter().any(|entry| matches!(entry, ToolEntry::Path(path) if path == MORE_TOOLS)) {
        table.offered.push(more_tools());
    }
    table.build()
}

impl Builder<'_> {
    fn build(mut self) -> ToolTable {
        let known: Vec<&str> = self.names.iter().map(String::as_str).collect();
        self.reports.extend(self.config.tool_arg_injection.strangers(&known));
        let mut specs = Vec::with_capacity(self.offered.len());
        let (mut targets, mut injections) = (Vec::new(), Vec::new());
        for Offered { spec, target, injection } in self.offered {
            specs.push(spec);
            targets.push(target);
            injections.push(injection);
        }
        ToolTable { injections, reports: self.reports, ..ToolTable::new(specs, targets, self.refused) }
    }

    fn offer(&mut self, found: &Described, name: Option<String>, description: Option<String>) {
        let name = name.unwrap_or_else(|| tool_name(&found.asked));
        self.names.extend([name.clone(), found.asked.clone(), found.path.clone()]);
        if !is_legal(&name) {
            let reason = format!("`{name}` is not a tool name, expected 1 to {MAX_NAME} of `[A-Za-z0-9_-]`");
            self.refused.push((found.asked.clone(), reason));
        } else if let Some(first) = self.offered.iter().find(|o| o.spec.name == name) {
            let reason = format!("the name `{name}` is taken by {:?}", first.target);
            self.refused.push((found.asked.clone(), reason));
        } else if let Some(ids) = &self.entities
            && !entities::allows(&found.entities, ids)
        {
            self.refused.push((found.asked.clone(), "it carries none of the entities of this request".into()));
        } else {
            let names = [name.as_str(), found.asked.as_str(), found.path.as_str()];
            match self.config.tool_arg_injection.plan(&names, &found.input, self.values) {
                Err(reason) => self.refused.push((found.asked.clone(), reason)),
                Ok(planned) => {
                    self.reports.extend(planned.reports.into_iter().map(|report| (name.clone(), report)));
                    let injection = planned.injection;
                    let schema =
                        if injection.is_empty() { found.input.clone() } else { injection.reduce(&found.input) };
                    let text = description.unwrap_or_else(|| found.description.clone());
                    let description = format!("Operation: {}. {text}", found.asked);
                    let spec = ToolSpec { name, description, schema };
                    self.offered.push(Offered { spec, target: Target::Operation(found.path.clone()), injection });
                }
            }
        }
    }
}

impl ToolTable {
    /// Tools with what follows from them, and nothing to fill in.
    pub fn new(specs: Vec<ToolSpec>, targets: Vec<Target>, refused: Vec<(String, String)>) -> Self {
        let json = serde_json::to_vec(&specs).unwrap_or_default();
        Self {
            bytes: specs.iter().map(|t| t.name.len() + t.description.len() + t.schema.to_string().len()).sum(),
            hash: sha256_hex(&json),
            injections: vec![Injection::default(); specs.len()],
            specs: specs.into(),
            targets,
            refused,
            reports: Vec::new(),
        }
    }

    /// What a call of `name` does.
    pub fn target(&self, name: &str) -> Option<&Target> {
        let at = self.specs.iter().position(|spec| spec.name == name)?;
        self.targets.get(at)
    }

    /// What the runtime fills into a call of `name`.
    pub fn injection(&self, name: &str) -> Option<&Injection> {
        let at = self.specs.iter().position(|spec| spec.name == name)?;
        self.injections.get(at)
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
    let description = "Completes the task you are working on with this result.";
    Offered::harness("complete_task", description, schema, Target::Complete)
}

fn fail_task() -> Offered {
    let schema = json!({
        "type": "object",
        "properties": {"error": {"type": "string", "description": "why the task can't be done"}},
        "required": ["error"]
    });
    let description = "Fails the task you are working on, with the reason for the caller.";
    Offered::harness("fail_task", description, schema, Target::Fail)
}

fn context_load() -> Offered {
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

fn context_unload() -> Offered {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    Offered::harness("context_unload", "Takes a loaded path out of your context.", schema, Target::Unload)
}

fn more_tools() -> Offered {
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(path: &str) -> Option<Described> {
        let real = path.replace("covia", "lattice");
        ["v/ops/lattice/read", "v/ops/lattice/write", "v/ops/agent/request"].contains(&real.as_str()).then(|| {
            let (description, input) = ("D.".to_owned(), json!({}));
            Described { asked: path.into(), path: real, description, input, entities: Vec::new() }
        })
    }

    fn names(config: &Value, task_open: bool) -> Vec<String> {
        let table = resolve(&AgentConfig::parse(config).unwrap(), &[], task_open, &Resolver::default(), find);
        table.names().into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn names_come_from_the_override_or_the_path() {
        let model = json!({"provider": "scripted", "name": "echo"});
        let tools = json!(["v/ops/covia/read", {"operation": "v/ops/agent/request", "name": "ask"}]);
        let config = json!({"model": model, "tools": tools, "defaultTools": false});
        let harness = ["context_load", "context_unload"];
        assert_eq!(names(&config, false), [&["covia_read", "ask"][..], &harness].concat());
        assert_eq!(names(&config, true), [&["covia_read", "ask", "complete_task", "fail_task"][..], &harness].concat());
    }

    #[test]
    fn defaults_follow_and_are_not_offered_twice() {
        let model = json!({"provider": "scripted", "name": "echo"});
        let config = json!({"model": model, "tools": ["v/ops/lattice/write"]});
        assert_eq!(names(&config, false)[..3], ["lattice_write", "agent_request", "lattice_read"]);
    }

    #[test]
    fn what_could_not_be_offered_says_why() {
        let model = json!({"provider": "scripted", "name": "echo"});
        let tools = json!(["v/ops/no/such", "v/ops/lattice/read",
            {"operation": "v/ops/lattice/write", "name": "lattice_read"},
            {"operation": "v/ops/lattice/write", "name": "a b"}]);
        let config = json!({"model": model, "tools": tools, "defaultTools": false});
        let table = resolve(&AgentConfig::parse(&config).unwrap(), &[], false, &Resolver::default(), find);
        let reasons: Vec<_> = table.refused.iter().map(|(_, reason)| reason.as_str()).collect();
        assert_eq!(reasons.len(), 3);
        assert_eq!(reasons[0], "no such operation in the catalog");
        assert!(reasons[1].starts_with("the name `lattice_read` is taken"));
        assert!(reasons[2].starts_with("`a b` is not a tool name"));
    }

    fn send(path: &str) -> Option<Described> {
        let input = json!({
            "type": "object", "required": ["from", "to"], "additionalProperties": false,
            "properties": {"from": {"type": "string"}, "to": {"type": "string"}, "user_id": {"type": "string"}},
        });
        let entities = match path {
            "v/ops/mail/send" => Vec::new(),
            "v/ops/shop/order" => vec!["shop-1".to_owned(), "shop-2".to_owned()],
            _ => return None,
        };
        Some(Described { asked: path.into(), path: path.into(), description: "D.".into(), input, entities })
    }

    fn with_values(config: Value, session: Value) -> ToolTable {
        let mut config = config;
        config["model"] = json!({"provider": "scripted", "name": "echo"});
        config["defaultTools"] = false.into();
        config["tools"] = json!([{"operation": "v/ops/mail/send", "name": "send_email"}, "v/ops/shop/order"]);
        let config = AgentConfig::parse(&config).unwrap();
        let Value::Object(session) = session else { panic!("expected a map") };
        let none = || serde_json::Map::new();
        let values = Resolver::new(session, none(), none(), config.context_mapping.clone());
        resolve(&config, &[], true, &values, send)
    }

    #[test]
    fn injected_arguments_are_in_no_schema_and_no_hash_depends_on_their_values() {
        for name in ["send_email", "v/ops/mail/send"] {
            let config = json!({"toolArgInjection": {name: {"from": "user_email"}}});
            let table = with_values(config.clone(), json!({"user_email": "ada@x"}));
            assert_eq!(table.specs[0].schema["required"], json!(["to"]));
            assert!(!json!(table.specs[0]).to_string().contains("from"), "{name}");
            assert_eq!(table.injection("send_email").unwrap().values["from"], "ada@x");
            assert_eq!(table.injection("shop_order"), Some(&Injection::default()));
            assert_eq!(table.hash, with_values(config, json!({"user_email": "bob@x"})).hash);
        }
    }

    #[test]
    fn mistakes_in_bindings_are_reported_and_tools_that_can_t_be_bound_are_not_offered() {
        let table = with_values(json!({"toolArgInjection": {"send_emial": {"from": "k"}}}), json!({}));
        assert_eq!(table.reports[0].1, "no tool `send_emial` is offered, did you mean `send_email`");
        let table = with_values(json!({"toolArgInjection": {"send_email": {"frm": "k"}}}), json!({}));
        assert!(table.refused[0].1.contains("did you mean `from`"), "{:?}", table.refused);
        assert_eq!(table.reports, []);
        let auto = json!({"contextMapping": {"user_id": "_auto", "uid": "_auto"}});
        let table = with_values(auto, json!({"user_id": 1, "uid": 2}));
        assert!(table.reports[0].1.starts_with("`_auto` leaves argument `user_id` to the model"));
    }

    #[test]
    fn entity_ids_narrow_the_tools_to_those_that_carry_one_of_them() {
        let offered = |required: bool, ids: Value| {
            let table = with_values(json!({"entityIdsRequired": required}), json!({"entity_ids": ids}));
            table.target("shop_order").is_some() && table.target("send_email").is_some()
        };
        assert!(offered(true, json!(["shop-2", "x"])));
        assert!(!offered(true, json!(["shop-3"])));
        assert!(offered(false, json!(["shop-3"])), "without the mandate the value is any value");
        let table = with_values(json!({"entityIdsRequired": true}), json!({"entity_ids": ["shop-3"]}));
        assert_eq!(
            table.refused,
            [("v/ops/shop/order".into(), "it carries none of the entities of this request".into())]
        );
        assert!(table.target("send_email").is_some(), "an operation without entities is not affected");
    }
}
