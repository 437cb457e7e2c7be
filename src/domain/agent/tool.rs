//! Entries of `tools`: operations by their path, other agents, and latent tools whose arguments are their result.

use super::AgentConfig;
use crate::a2a::name as a2a_name;
use crate::consent::Consent;
use crate::declared::{HttpDeclaration, JobsDeclaration, ToolDeclaration};
use crate::decode::{self, DataError};
use crate::ids::{AgentId, IdError};
use crate::lattice::catalog::{DECLARED, DECLARED_JOBS, is_stored_operation};
use crate::lattice::{OutputPathError, Path};
use crate::mcp::name::tool_name_of_path;
use crate::schema::{SchemaError, find_misfits};
use crate::scope::{Delegate, Scopes};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Characters of a tool name that providers accept at most.
pub const MAX_NAME: usize = 64;

/// Paths of the default tools; those that the catalogue has are offered unless `defaultTools` is false.
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

/// Returns Covia's path of a default tool and the tool's name in prompts, if Covia has the tool.
pub fn covia_name(path: &str) -> Option<(String, String)> {
    let alias = match path {
        "v/ops/job/run" => "v/ops/grid/run".to_owned(),
        "v/ops/job/result" => return Some(("v/ops/grid/job-result".to_owned(), "grid_job_result".to_owned())),
        _ => format!("v/ops/covia/{}", path.strip_prefix("v/ops/lattice/")?),
    };
    let name = tool_name(&alias);
    Some((alias, name))
}

/// Names by which a configuration asks for tools of the runtime. The tools of tasks and loads are offered without being
/// named.
pub const HARNESS_TOOLS: [&str; 9] = [
    "complete_task",
    "fail_task",
    "context_load",
    "context_unload",
    "more_tools",
    "subgoal",
    "complete",
    "fail",
    "compact",
];

/// Names of the tools that only a goal tree has.
pub const GOAL_TOOLS: [&str; 4] = ["subgoal", "complete", "fail", "compact"];

/// Name of the delegate that is no agent of the owner.
pub const ANONYMOUS: &str = "anonymous";

/// One entry of `tools`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, try_from = "Value")]
pub enum ToolEntry {
    /// A path of the catalogue.
    Path(String),
    /// A tool with options.
    Named(Box<NamedTool>),
}

/// A tool with options: an operation, a delegate, or neither; then the model's own arguments are the result of its
/// call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedTool {
    /// Path in the catalogue.
    #[serde(default, alias = "_activity", skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Agent that runs the call as a child job, or `anonymous`.
    #[serde(default, alias = "_delegate", skip_serializing_if = "Option::is_none")]
    pub delegate: Option<String>,
    /// Name that the model sees.
    #[serde(default, alias = "_tool", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Description that the model sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the arguments of a tool without an operation, or of a declared one; in a turn also of a pin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Call of a service that the tool is declared as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<Box<HttpDeclaration>>,
    /// Job for an external worker that the tool is declared as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Box<JobsDeclaration>>,
    /// Sections of the caller's context that go with a call.
    #[serde(default, alias = "_scopes", skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Scopes>,
    /// Entities that the tool is about: requests that name others don't have the tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entities: Vec<String>,
    /// Whether calls wait for a person's approval.
    #[serde(default, skip_serializing_if = "Consent::is_none")]
    pub approval: Consent,
    /// Milliseconds in which a fast delegate answers inside the turn; 5,000 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<u64>,
    /// Path at which the output of a delegate is written, below `w/` or `o/`.
    #[serde(rename = "outputPath", alias = "_outputPath", default, skip_serializing_if = "Option::is_none")]
    pub output_path: Option<String>,
}

/// Target of a tool's calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryTarget {
    /// An operation, by its path in the catalogue.
    Operation(String),
    /// A child job of another agent.
    Delegate(Delegate),
    /// No target: the arguments are the result.
    Latent,
}

/// Reason why an entry of `tools` is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolEntryError {
    /// The value has another form than an entry.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The entry names an operation and a delegate.
    #[error("expected one of `operation` and `delegate`, got both")]
    TwoTargets,
    /// The name of the delegate is illegal.
    #[error("`delegate`: {0}")]
    Delegate(IdError),
    /// An operation has a schema of its own.
    #[error("`input` belongs to a tool without an operation; an operation has its own")]
    Input,
    /// The schema of the arguments is illegal.
    #[error("`input`: {0}")]
    Schema(SchemaError),
    /// A text is missing that nothing else gives.
    #[error("`{key}`: {tool} needs one")]
    Missing {
        /// Key of the text.
        key: &'static str,
        /// Kind of the tool, in words.
        tool: &'static str,
    },
    /// A tool without a delegate waits for one.
    #[error("`wait` belongs to `delegate`")]
    Wait,
    /// A tool without a delegate has a path for its output.
    #[error("`outputPath` belongs to `delegate`")]
    OutputPathOwner,
    /// The path of the output is illegal.
    #[error("`outputPath`: {0}")]
    OutputPath(OutputPathError),
    /// A tool without an operation is about entities.
    #[error("`entities` belongs to an `operation`; an agent asks for its own by `entityIdsRequired`")]
    EntitiesOwner,
    /// The name of an entity is blank.
    #[error("`entities`: expected non-empty strings")]
    BlankEntity,
    /// A declared tool names another operation.
    #[error("`operation`: a tool with `http` or `jobs` is one itself, `{path}`")]
    DeclaredOperation {
        /// Path of the declared tool's operation.
        path: String,
    },
}

impl TryFrom<Value> for ToolEntry {
    type Error = ToolEntryError;

    fn try_from(value: Value) -> Result<Self, ToolEntryError> {
        match value {
            Value::String(path) => Ok(Self::Path(path)),
            other => {
                let mut tool: NamedTool = decode::into_type(other)?;
                tool.resolve_declaration()?;
                tool.check()?;
                Ok(Self::Named(Box::new(tool)))
            }
        }
    }
}

impl ToolEntry {
    /// Returns the entities that the tool is about; empty = the tool is for every request.
    pub fn entities(&self) -> &[String] {
        match self {
            Self::Path(_) => &[],
            Self::Named(tool) => &tool.entities,
        }
    }

    /// Returns the path in the catalogue that the entry names.
    pub fn operation(&self) -> Option<&str> {
        match self {
            Self::Path(path) => Some(path),
            Self::Named(tool) => tool.operation.as_deref(),
        }
    }
}

impl NamedTool {
    /// Returns the declaration of the tool, if its author wrote one.
    pub fn declaration(&self) -> Option<ToolDeclaration> {
        if self.http.is_none() && self.jobs.is_none() {
            return None;
        }
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (name, description) = (text(&self.name), text(&self.description));
        let (input, http, jobs) = (self.input.clone(), self.http.clone(), self.jobs.clone());
        Some(ToolDeclaration { name, description, input, http, jobs })
    }

    /// Names the operation that the declaration of the tool makes. The declaration itself is checked with the whole
    /// configuration: stored ones are read often.
    fn resolve_declaration(&mut self) -> Result<(), ToolEntryError> {
        let Some(declared) = self.declaration() else { return Ok(()) };
        let path = declared.own_path();
        if self.delegate.is_some() {
            return Err(ToolEntryError::TwoTargets);
        }
        // A stored configuration has the path; its author may have renamed the tool.
        let is_own = |path: &String| [DECLARED, DECLARED_JOBS].iter().any(|group| path.starts_with(group));
        if self.operation.as_ref().is_some_and(|operation| !is_own(operation)) {
            return Err(ToolEntryError::DeclaredOperation { path });
        }
        self.operation = Some(path);
        Ok(())
    }

    fn check(&self) -> Result<(), ToolEntryError> {
        let runs = self.target()?;
        let is_declared = self.http.is_some() || self.jobs.is_some();
        let what = match &runs {
            EntryTarget::Operation(_) => {
                if self.input.is_some() && !is_declared {
                    return Err(ToolEntryError::Input);
                }
                None
            }
            EntryTarget::Delegate(Delegate { agent: Some(_), .. }) => None,
            EntryTarget::Delegate(_) => Some("an anonymous delegate"),
            EntryTarget::Latent => Some("a tool without `operation` and `delegate`"),
        };
        if let Some(tool) = what {
            for (key, given) in [("name", &self.name), ("description", &self.description)] {
                if given.as_ref().is_none_or(String::is_empty) {
                    return Err(ToolEntryError::Missing { key, tool });
                }
            }
        }
        if self.wait.is_some() && !matches!(runs, EntryTarget::Delegate(_)) {
            return Err(ToolEntryError::Wait);
        }
        if let Some(path) = &self.output_path {
            if !matches!(runs, EntryTarget::Delegate(_)) {
                return Err(ToolEntryError::OutputPathOwner);
            }
            Path::parse_output(path).map_err(ToolEntryError::OutputPath)?;
        }
        if !self.entities.is_empty() && !matches!(runs, EntryTarget::Operation(_)) {
            return Err(ToolEntryError::EntitiesOwner);
        }
        if self.entities.iter().any(|entity| entity.trim().is_empty()) {
            return Err(ToolEntryError::BlankEntity);
        }
        if let Some(schema) = &self.input {
            find_misfits(schema, &Value::Null, 0).map_err(ToolEntryError::Schema)?;
        }
        Ok(())
    }

    /// Returns the target of the calls, or why the entry makes no sense.
    pub fn target(&self) -> Result<EntryTarget, ToolEntryError> {
        match (&self.operation, self.delegate.as_deref()) {
            (Some(_), Some(_)) => Err(ToolEntryError::TwoTargets),
            (Some(path), None) => Ok(EntryTarget::Operation(path.clone())),
            (None, None) => Ok(EntryTarget::Latent),
            (None, Some(who)) => {
                let agent = match who {
                    ANONYMOUS => None,
                    who => Some(AgentId::new(who).map_err(ToolEntryError::Delegate)?),
                };
                let prompt = self.description.clone().filter(|_| agent.is_none()).unwrap_or_default();
                Ok(EntryTarget::Delegate(Delegate {
                    agent,
                    prompt,
                    wait: self.wait,
                    output_path: self.output_path.clone(),
                    step: None,
                    upstream: false,
                }))
            }
        }
    }
}

/// Returns the name of a path's tool: `v/ops/covia/read` → `covia_read`, `o/look` → `look`; those of `grid/` as Covia
/// names them, `grid_job_result`; those of other servers with the server's name, `v/ops/mcp/github/search` →
/// `github__search`; those of agents elsewhere with the agent's name, `v/ops/a2a/weather/send` → `a2a__weather`. Cut to [`MAX_NAME`] characters.
pub fn tool_name(path: &str) -> String {
    if let Some(name) = tool_name_of_path(path).or_else(|| a2a_name::tool_name_of_path(path)) {
        return name;
    }
    let plain = path.trim_matches('/');
    let short = match plain.rsplit_once('/') {
        Some((_, pin)) if is_stored_operation(path) => pin,
        Some(_) | None => plain.trim_start_matches("v/ops/"),
    };
    let is_grid = short.starts_with("grid/") || short.starts_with("grid:");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' && !is_grid;
    short.chars().take(MAX_NAME).map(|c| if is_plain(c) { c } else { '_' }).collect()
}

impl ToolEntry {
    /// Returns the name of the tool; empty for an entry without a name.
    pub fn tool_name(&self) -> String {
        match self {
            Self::Path(path) => tool_name(path),
            Self::Named(tool) => tool.name.clone().unwrap_or_else(|| match tool.target() {
                Ok(EntryTarget::Operation(path)) => tool_name(&path),
                Ok(EntryTarget::Delegate(delegate)) => {
                    delegate.agent.map(|agent| tool_name(agent.as_str())).unwrap_or_default()
                }
                Ok(EntryTarget::Latent) | Err(_) => String::new(),
            }),
        }
    }
}

/// Returns the names of the tools that a configuration has besides those of its resources.
pub fn configured_tool_names(config: &AgentConfig) -> Vec<String> {
    let defaults = if config.default_tools { &DEFAULT_TOOLS[..] } else { &[] };
    let default = |path: &&str| {
        let covia = covia_name(path).filter(|_| config.uses_aliases());
        covia.map_or_else(|| tool_name(path), |(_, name)| name)
    };
    let harness = HARNESS_TOOLS.iter().map(|name| (*name).to_owned());
    config.tools.iter().map(ToolEntry::tool_name).chain(defaults.iter().map(default)).chain(harness).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(value: &Value) -> Result<ToolEntry, String> {
        serde_json::from_value(value.clone()).map_err(|error| error.to_string())
    }

    #[test]
    fn tool_entries_are_read_alike_in_both_spellings() {
        let agent = |name: &str| Delegate { agent: Some(name.parse().unwrap()), ..Delegate::default() };
        let writer = Delegate { output_path: Some("w/sum".into()), ..agent("helper") };
        let nobody = Delegate { prompt: "Sum up.".into(), wait: Some(10), ..Delegate::default() };
        for (value, runs, kept) in [
            (
                json!({"operation": "v/ops/a/b", "_scopes": {"const": ["input"]}}),
                EntryTarget::Operation("v/ops/a/b".into()),
                json!({"operation": "v/ops/a/b", "scopes": {"const": ["input"]}}),
            ),
            (
                json!({"_activity": "mail:send", "name": "log"}),
                EntryTarget::Operation("mail:send".into()),
                json!({"operation": "mail:send", "name": "log"}),
            ),
            (json!({"_delegate": "helper"}), EntryTarget::Delegate(agent("helper")), json!({"delegate": "helper"})),
            (
                json!({"_delegate": "helper", "_outputPath": "w/sum"}),
                EntryTarget::Delegate(writer),
                json!({"delegate": "helper", "outputPath": "w/sum"}),
            ),
            (
                json!({"delegate": "anonymous", "name": "sum", "description": "Sum up.", "wait": 10}),
                EntryTarget::Delegate(nobody),
                json!({"delegate": "anonymous", "name": "sum", "description": "Sum up.", "wait": 10}),
            ),
            (
                json!({"name": "note", "description": "d", "input": {"type": "object"}}),
                EntryTarget::Latent,
                json!({"name": "note", "description": "d", "input": {"type": "object"}}),
            ),
        ] {
            let read = entry(&value).unwrap();
            let ToolEntry::Named(tool) = &read else { panic!("expected options, got {read:?}") };
            assert_eq!((tool.target(), json!(read)), (Ok(runs), kept.clone()), "{value}");
            assert_eq!(entry(&kept).unwrap(), read);
        }
        assert_eq!(entry(&json!("v/ops/a/b")), Ok(ToolEntry::Path("v/ops/a/b".into())));
    }

    #[test]
    fn contradictory_tool_entries_are_named() {
        for (value, expected) in [
            (
                json!({"operation": "v/ops/a/b", "delegate": "x"}),
                "expected one of `operation` and `delegate`, got both",
            ),
            (json!({"operation": "v/ops/a/b", "input": {}}), "`input` belongs to a tool without an operation"),
            (json!({"operation": "v/ops/a/b", "wait": 1}), "`wait` belongs to `delegate`"),
            (json!({"operation": "v/ops/a/b", "outputPath": "w/x"}), "`outputPath` belongs to `delegate`"),
            (json!({"delegate": "a", "outputPath": "n/x"}), "`outputPath`: expected a path below `w/` or `o/`"),
            (json!({"delegate": "a", "entities": ["e"]}), "`entities` belongs to an `operation`"),
            (json!({"operation": "o", "entities": [" "]}), "`entities`: expected non-empty strings"),
            (json!({"name": "n"}), "`description`: a tool without `operation` and `delegate` needs one"),
            (json!({"description": "d"}), "`name`: a tool without `operation` and `delegate` needs one"),
            (json!({"delegate": "anonymous", "name": "n"}), "`description`: an anonymous delegate needs one"),
            (json!({"delegate": "no agent"}), "`delegate`: "),
            (json!({"name": "n", "description": "d", "input": {"type": 7}}), "`input`: not a JSON Schema"),
            (json!({"operation": "v/ops/a/b", "scopes": {"const": ["system"]}}), "section `system` can't be handed on"),
            (json!({"operation": "v/ops/a/b", "scope": {}}), "unknown field `scope`"),
        ] {
            let error = entry(&value).unwrap_err();
            assert!(error.contains(expected), "{value}: {error}");
        }
    }

    #[test]
    fn operations_and_pins_have_names_of_tools() {
        for (path, name, pin) in [
            ("v/ops/covia/read", "covia_read", false),
            ("covia:read", "covia_read", false),
            ("v/ops/grid/job-result", "grid_job_result", false),
            ("grid:job-status", "grid_job_status", false),
            ("v/ops/agent/cancel-task", "agent_cancel-task", false),
            ("o/look", "look", true),
            ("/o/look/", "look", true),
            ("did:key:z6Mk/o/look it up", "look_it_up", true),
            ("/acme/ann/o/look", "look", true),
            ("v/ops/o/x", "o_x", false),
            ("v/ops/mcp/github/search", "github__search", false),
            ("mcp:github:search", "github__search", false),
            ("mcp:tools:call", "mcp_tools_call", false),
            ("a2a:weather:send", "a2a__weather", false),
            ("v/ops/a2a/agents", "a2a_agents", false),
        ] {
            assert_eq!((tool_name(path).as_str(), is_stored_operation(path)), (name, pin), "{path}");
        }
    }
}
