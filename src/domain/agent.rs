//! Agent records and their configuration.

pub mod a2a;
pub mod budget;
mod check;
pub mod entry;
mod keys;
pub mod published;
pub mod merge;
pub mod addresses;
pub mod schema;
mod steps;
mod style;
pub mod seed;
pub mod tool;
mod task_limits;

use crate::a2a::remote::RemoteAgent;
use crate::agent::a2a::A2aSettings;
use crate::agent::budget::ContextBudget;
use crate::agent::entry::ContextEntry;
use crate::agent::keys::{KEYS, UNSUPPORTED_KEYS};
use crate::agent::published::PublishedSettings;
pub use crate::agent::steps::ServedAgent;
pub use crate::agent::task_limits::AgentLimits;
pub use crate::agent::tool::{NamedTool, ToolEntry};
use crate::authority::envelope::Envelope;
use crate::authority::policy::{Actor, Policy, Revocation};
use crate::authority::trail::Trail;
use crate::authority::{Authority, Capability, ResourcePath};
use crate::chat::ModelSettings;
use crate::decode::{self, Code, DataError};
use crate::expiry::SessionSettings;
use crate::gate::{BusyPolicy, Gate, GateStatus};
use crate::ids::AgentId;
use crate::lattice::layout::Scope;
use crate::limits;
use crate::load::Load;
use crate::mcp::server::McpServer;
use crate::nearest::did_you_mean;
use crate::outputs::Outputs;
use crate::pipeline::Pipeline;
use crate::resource::Resources;
use crate::time::Millis;
use crate::unknown_fields::UnknownFields;
use crate::values::inject::Bindings;
use crate::values::mapping::ContextMapping;
use crate::values::{Values, config_forms, entities, placeholder};
use crate::visible::{quote_foreign, quote_names};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A durable agent under an owner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentRecord {
    /// Name of the agent, unique within its owner.
    pub id: AgentId,
    /// Whether the agent takes and runs work.
    pub status: AgentStatus,
    /// Configuration as it was last stored.
    pub config: AgentConfig,
    /// Number of changes of `config`.
    pub config_version: u64,
    /// State that the agent keeps from turn to turn, in all of its sessions.
    #[serde(default, skip_serializing_if = "is_default")]
    pub state: AgentState,
    /// Authority of the one who configured the agent: the agent can do no more.
    #[serde(default, skip_serializing_if = "Authority::is_unlimited")]
    pub creator: Authority,
    /// Holders and grants under which the agent was made: a revocation of one of them applies to the agent.
    #[serde(default, skip_serializing_if = "Trail::is_empty")]
    pub made_under: Trail,
    /// Reason of a suspension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Time of creation.
    pub created: Millis,
    /// Time of the last change.
    pub updated: Millis,
    /// Fields that a newer build wrote.
    #[serde(flatten)]
    pub kept: UnknownFields,
}

/// State that an agent keeps from turn to turn, in all of its sessions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentState {
    /// Context entries besides those of the configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<ContextEntry>,
    /// Paths that the agent loaded for all of its sessions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<Load>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Whether an agent takes and runs work. `SLEEPING` and `RUNNING`, which callers see, are `Active` combined with the
/// agent's leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AgentStatus {
    /// The agent takes and runs work.
    Active,
    /// The agent takes work and doesn't run it.
    Suspended,
    /// The agent refuses work; its name stays taken.
    Terminated,
}

impl AgentStatus {
    /// Whether the agent takes work.
    pub const fn takes_work(self) -> bool {
        match self {
            Self::Active | Self::Suspended => true,
            Self::Terminated => false,
        }
    }
}

/// Configuration of an agent: the content of an agent file.
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the file")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentConfig {
    /// Purpose of the agent, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Text that begins each prompt: the role of the agent and its instructions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub system_prompt: String,
    /// Model that the agent calls, and its settings.
    pub model: ModelSettings,
    /// Operations offered to the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolEntry>,
    /// Whether the default tools are offered too.
    #[serde(default = "yes")]
    pub default_tools: bool,
    /// Names under which the default tools are offered.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tool_names: DefaultToolNames,
    /// Entries that are shown in every turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<ContextEntry>,
    /// Bytes and tokens of a prompt at most.
    #[serde(default, skip_serializing_if = "is_default")]
    pub context_budget: ContextBudget,
    /// Capabilities of the agent; absent = no limit of its own, empty = nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caps: Option<Vec<Capability>>,
    /// Capabilities that the agent may hand on at most; absent = all that it holds itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegable: Option<Vec<Capability>>,
    /// Memory, files and their like; access to them comes from the grants of a request.
    #[serde(default, skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    /// Whether the output of a task is written into the buckets that its request names by `contextIds`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub context_write: bool,
    /// Sessions that run at once; absent = no limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Pending events per session at most.
    #[serde(default = "default_mailbox")]
    pub mailbox: u32,
    /// Treatment of a task that arrives at a busy session.
    #[serde(default)]
    pub busy: BusyPolicy,
    /// Event that completes a task.
    #[serde(default)]
    pub completion: CompletionRule,
    /// Relation of the turns to each other: one conversation, or a tree of goals.
    #[serde(default, rename = "loop", skip_serializing_if = "is_default")]
    pub looping: LoopKind,
    /// Schemas of the results of tasks.
    #[serde(default, skip_serializing_if = "Outputs::is_empty")]
    pub outputs: Outputs,
    /// Time after which idle sessions expire.
    #[serde(default, skip_serializing_if = "is_default")]
    pub session: SessionSettings,
    /// Repetition of a model call that fails.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retry: Retry,
    /// Limits of one task.
    #[serde(default)]
    pub limits: AgentLimits,
    /// Values by key, and their sources.
    #[serde(default, skip_serializing_if = "ContextMapping::is_empty")]
    pub context_mapping: ContextMapping,
    /// Tool arguments that the runtime fills in and the model doesn't see.
    #[serde(default, skip_serializing_if = "Bindings::is_empty")]
    pub tool_arg_injection: Bindings,
    /// Whether every request must name the entities that it is about.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub entity_ids_required: bool,
    /// Key of the session value that holds the entity ids.
    #[serde(default = "default_entity_ids_key", skip_serializing_if = "is_default_entity_ids_key")]
    pub entity_ids_key: String,
    /// Whether a placeholder without a value fails the turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict_placeholders: bool,
    /// Style of the prompts; [`AgentConfig::prompt_style`] decides when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<PromptStyle>,
    /// How other programs see the agent, which call it by the Model Context Protocol; absent = not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Box<PublishedSettings>>,
    /// Publication by the Agent2Agent protocol; absent = the agent isn't reachable by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a2a: Option<Box<A2aSettings>>,
    /// Servers of the Model Context Protocol whose tools the agent may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp: Vec<McpServer>,
    /// Steps that run in the place of a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<Box<Pipeline>>,
    /// JSON Schema of a task's input, which is a map; its values stand in the texts under their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// Template of the text that the model gets as its task; the input itself when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_prompt: Option<String>,
    /// Agents elsewhere that the agent may give work to by the Agent2Agent protocol.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub a2a_agents: Vec<RemoteAgent>,
}

/// Names under which the default tools are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DefaultToolNames {
    /// Names of this venue's catalogue: `lattice_read`, `job_run`.
    #[default]
    Own,
    /// Names of Covia: `covia_read`, `grid_run`.
    Covia,
}

/// Sections of a prompt besides those that the author, the caller and the model have written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PromptStyle {
    /// The prompt holds identity, lattice reference, capabilities, date, context map, and how a task ends.
    #[default]
    Full,
    /// The prompt holds the date; the system prompt and a task's input stand as they were written. Small models take
    /// every other name and number for a part of the task.
    Plain,
}

/// Event that completes a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompletionRule {
    /// A reply with text and without a tool call completes a task.
    #[default]
    Implicit,
    /// Only the tool `complete_task` completes a task.
    Explicit,
}

/// Relation of the turns of an agent to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum LoopKind {
    /// All turns belong to one conversation.
    #[default]
    #[serde(rename = "chat")]
    Chat,
    /// Turns work on a stack of goals, each with a conversation of its own, see `domain::goal`.
    #[serde(rename = "goalTree")]
    GoalTree,
}

/// Repetition of calls to a model that is unavailable; the venue's configuration decides what is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// Number of calls at most, the first one included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// Seconds before the second call; each further wait is twice the one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
    /// Seconds of the longest wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
    /// Seconds of all calls together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
}

const fn yes() -> bool {
    true
}

const fn default_mailbox() -> u32 {
    limits::MAILBOX_EVENTS
}

fn default_entity_ids_key() -> String {
    entities::DEFAULT_KEY.to_owned()
}

fn is_default_entity_ids_key(key: &str) -> bool {
    key == entities::DEFAULT_KEY
}

impl AgentConfig {
    /// Whether a configuration may have this key.
    pub fn has_key(key: &str) -> bool {
        KEYS.contains(&key)
    }

    /// Reads a configuration from JSON, or from TOML that was turned into JSON.
    pub fn parse(value: &Value) -> Result<Self, DataError> {
        let Value::Object(map) = value else {
            let found = crate::lattice::value::type_name(value);
            return Err(format!("expected an agent configuration as a map, got {found}").into());
        };
        decode::check(value)?;
        let mut map = seed::to_agent_file(map)?;
        Self::normalise_steps(&mut map)?;
        for key in map.keys() {
            if UNSUPPORTED_KEYS.contains(&key.as_str()) {
                return Err(DataError::root(Code::Unknown, format!("key `{key}` is not supported by this version")));
            }
            if !KEYS.contains(&key.as_str()) {
                let all = || format!("; known are {}", quote_names(&KEYS));
                let near = Some(did_you_mean(key, &KEYS)).filter(|near| !near.is_empty());
                let hint = near.unwrap_or_else(all);
                return Err(DataError::root(Code::Unknown, format!("unknown key `{}`{hint}", quote_foreign(key))));
            }
        }
        if !map.contains_key("model") && map.get("toolNames").is_some_and(|names| names == "covia") {
            let why = "missing field `model`: there is no default here; Covia's is `llmOperation: \
                       \"v/ops/langchain/openai\"`";
            return Err(DataError::root(Code::Missing, why));
        }
        config_forms::normalise(&mut map, &KEYS).map_err(|error| error.to_string())?;
        published::expand_flag(&mut map);
        let mut config: Self = decode::typed_with_hint(&Value::Object(map))?;
        config.check()?;
        if config.model.provider == "scripted" && config.model.name.is_empty() {
            "echo".clone_into(&mut config.model.name);
        }
        Ok(config)
    }

    /// Whether some of its tools, or of those of its pipeline's steps, need a person's approval.
    pub fn asks_people(&self) -> bool {
        let asks = |tool: &NamedTool| {
            !tool.approval.is_none() || tool.scopes.as_ref().is_some_and(|scopes| !scopes.approval().is_none())
        };
        let any =
            |config: &Self| config.tools.iter().any(|entry| matches!(entry, ToolEntry::Named(tool) if asks(tool)));
        any(self) || self.inline_agents().iter().any(|(_, inline)| any(inline))
    }

    /// Whether the agent uses Covia's paths of the catalogue, `v/ops/covia/…`.
    pub fn uses_aliases(&self) -> bool {
        let has_defaults = self.default_tools && self.tool_names == DefaultToolNames::Covia;
        has_defaults || self.tools.iter().filter_map(ToolEntry::operation).any(|path| path.contains("covia"))
    }

    /// Whether turns depend on values: only then they are read.
    pub fn uses_values(&self) -> bool {
        let texts = || [self.system_prompt.clone(), serde_json::to_string(&self.context).unwrap_or_default()];
        !self.context_mapping.is_empty()
            || !self.tool_arg_injection.is_empty()
            || texts().iter().any(|text| placeholder::has_any(text))
    }

    /// Whether the runtime fills in tool arguments that the model doesn't see.
    pub fn hides_values(&self) -> bool {
        !self.tool_arg_injection.is_empty() || self.context_mapping.auto_keys().next().is_some()
    }

    /// Whether the tools depend on values, and so on the turn.
    pub fn has_turn_tools(&self) -> bool {
        self.entity_ids_required || self.hides_values()
    }

    /// Returns the ids of the entities that a request is about; `None` if the agent requires none.
    pub fn entities(&self, session: &Values) -> Option<Vec<String>> {
        self.entity_ids_required.then(|| entities::ids(&self.entity_ids_key, session).unwrap_or_default())
    }
}

impl AgentRecord {
    /// Returns what the agent may do for a request in a session, under the current policy of its owner.
    pub fn authority(&self, policy: &Policy, envelope: &Envelope, home: &Scope) -> Authority {
        let held = policy.effective(self.actor(&format!("agent:{}", self.id), home), envelope);
        let is_closed = policy.agent_revocation(&ResourcePath::agent(&self.id), envelope).is_some();
        if is_closed { held.intersect(&Authority::new(Some(Vec::new()))) } else { held }
    }

    /// Returns why the agent may start nothing for a request, if a revocation forbids it.
    pub fn stop_reason(&self, policy: &Policy, envelope: &Envelope, home: &Scope) -> Option<String> {
        let holder = format!("agent:{}", self.id);
        let stopped = policy.start_revocation(self.actor(&holder, home), envelope);
        stopped.or_else(|| policy.agent_revocation(&ResourcePath::agent(&self.id), envelope)).map(Revocation::refusal)
    }

    fn actor<'a>(&'a self, holder: &'a str, home: &'a Scope) -> Actor<'a> {
        Actor { holder, caps: self.config.caps.as_deref(), creator: &self.creator, made: &self.made_under, home }
    }

    /// Returns the agent of a job that names none: this agent's model and authority, with `prompt` as the whole system
    /// prompt.
    #[must_use]
    pub fn as_anonymous(&self, prompt: &str) -> Self {
        let config = AgentConfig {
            description: None,
            system_prompt: prompt.to_owned(),
            tools: Vec::new(),
            default_tools: false,
            context: Vec::new(),
            context_mapping: ContextMapping::default(),
            tool_arg_injection: Bindings::default(),
            entity_ids_required: false,
            strict_placeholders: false,
            prompt: None,
            published: None,
            a2a: None,
            mcp: Vec::new(),
            pipeline: None,
            input_schema: None,
            task_prompt: None,
            a2a_agents: Vec::new(),
            ..self.config.clone()
        };
        Self { config, state: AgentState::default(), ..self.clone() }
    }

    /// Returns the record from which the store decides whether work is admitted and run.
    pub fn gate(&self) -> Gate {
        let status = match self.status {
            AgentStatus::Active => GateStatus::Active,
            AgentStatus::Suspended => GateStatus::Suspended,
            AgentStatus::Terminated => GateStatus::Terminated,
        };
        let concurrency = self.config.concurrency.unwrap_or(Gate::UNLIMITED);
        Gate { status, concurrency, mailbox: self.config.mailbox, busy: self.config.busy }
    }
}

#[cfg(test)]
mod tests;
