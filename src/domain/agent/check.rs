//! Checks of a configuration beyond its types.

use super::a2a::{A2aSettings, A2aSettingsError};
use super::steps::StepConfigError;
use super::tool::{EntryTarget, ToolEntry};
use super::{AgentConfig, AgentRecord, LoopKind, PromptStyle};
use crate::a2a::remote::{RemoteAgentsError, check_remote_agents};
use crate::agent::budget::ContextBudgetError;
use crate::agent::entry::{ContextEntriesError, check_entries};
use crate::agent::published::PublishedError;
use crate::agent::tool::GOAL_TOOLS;
use crate::agent::tool::configured_tool_names;
use crate::authority::capability::CapabilityError;
use crate::bounds::{AGENT_BYTES, OversizedDocument};
use crate::budget::BudgetError;
use crate::chat::{ModelPlaceError, ModelRequest, ModelSettings, ModelSettingsError};
use crate::declared::DeclarationError;
use crate::decode::DataError;
use crate::limits::{CAPABILITIES, TOOLS};
use crate::mcp::server::{McpServersError, check_servers};
use crate::outputs::{self, OutputsError};
use crate::resource::ResourcesError;
use crate::wire::dialect::{COMPATIBLE, find_dialect};
use crate::wire::schema::{ProjectionError, project};
use crate::wire::{self, EncodeError};
use serde_json::Value;

/// Rule that a configuration breaks; the text begins with the key.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
enum AgentConfigError {
    /// The number is below its least value, 1.
    #[error("`{key}`: expected at least {least}, got 0")]
    Zero {
        /// Key of the number.
        key: &'static str,
        /// Least number, with its unit.
        least: &'static str,
    },
    /// The longest wait between retries is shorter than the first.
    #[error("`retry.max`: expected at least `retry.first` ({first}), got {max}")]
    RetryMax {
        /// Seconds of the first wait.
        first: u64,
        /// Seconds of the longest wait.
        max: u64,
    },
    /// A limit of a task is illegal.
    #[error("`limits`: {0}")]
    Limits(BudgetError),
    /// A limit of a session is illegal.
    #[error("`limits.session`: {0}")]
    SessionLimits(BudgetError),
    /// A setting of a model is illegal for every provider.
    #[error(transparent)]
    Model(#[from] ModelSettingsError),
    /// A setting of a model is illegal for its provider.
    #[error("{0}")]
    Encoding(Box<ModelPlaceError<EncodeError>>),
    /// A limit in money needs a price that is missing.
    #[error(
        "`{key}`: {} needs a `price`, as `{{input, output}}` in dollars per million tokens",
        describe_model(.model.as_deref())
    )]
    NoPrice {
        /// Key of the limit.
        key: &'static str,
        /// Model as `provider/name`, if there are several.
        model: Option<String>,
    },
    /// The key of the entities is empty.
    #[error("`entityIdsKey`: expected a key, got an empty text")]
    EntityIdsKey,
    /// A capability is illegal.
    #[error("`{key}[{at}]`: {error}")]
    Capability {
        /// Key of the list.
        key: &'static str,
        /// Index in the list.
        at: usize,
        /// Rule that the capability breaks.
        error: CapabilityError,
    },
    /// A list has too many capabilities.
    #[error("`{key}`: expected at most {CAPABILITIES} capabilities, got {found}")]
    Capabilities {
        /// Key of the list.
        key: &'static str,
        /// Number of capabilities in it.
        found: usize,
    },
    /// The card of the agent is illegal.
    #[error(transparent)]
    Card(#[from] A2aSettingsError),
    /// A schema of an output is illegal.
    #[error(transparent)]
    Outputs(#[from] OutputsError),
    /// The settings of a published agent are illegal.
    #[error(transparent)]
    Published(#[from] PublishedError),
    /// A server of the Model Context Protocol is illegal.
    #[error(transparent)]
    Mcp(#[from] McpServersError),
    /// An agent elsewhere is illegal.
    #[error(transparent)]
    RemoteAgents(#[from] RemoteAgentsError),
    /// A goal tree has the prompt of a plain loop.
    #[error("`prompt`: expected `full` with `loop = \"goalTree\"`, got `plain`")]
    GoalPrompt,
    /// The list of tools is too long.
    #[error("`tools`: expected at most {TOOLS} entries, got {found}; `more_tools` finds the others")]
    Tools {
        /// Number of entries.
        found: usize,
    },
    /// A plain loop has a tool of a goal tree.
    #[error("`tools[{at}]`: `{name}` needs `loop = \"goalTree\"`")]
    GoalTool {
        /// Index of the tool.
        at: usize,
        /// Name of the tool.
        name: String,
    },
    /// A schema can't be sent to a provider.
    #[error("`{place}` can't be offered to a model of `{provider}`: {error}")]
    Schema {
        /// Place of the schema in the configuration.
        place: String,
        /// Name of the provider.
        provider: String,
        /// Part of the schema that has no equivalent.
        error: Box<ProjectionError>,
    },
    /// A tool is about entities, and requests need not name any.
    #[error("`tools[{at}].entities` needs `entityIdsRequired = true`: else no request names any")]
    Entities {
        /// Index of the tool.
        at: usize,
    },
    /// Sections need approval for a tool that hands none on.
    #[error(
        "`tools[{at}].scopes.approval`: a tool without `operation` and `delegate` hands nothing on; set `approval` of \
         the tool"
    )]
    ScopesApproval {
        /// Index of the tool.
        at: usize,
    },
    /// The declaration of a tool breaks a rule.
    #[error("`tools[{at}]`: {error}")]
    Declaration {
        /// Index of the tool.
        at: usize,
        /// Rule that the declaration breaks.
        error: Box<DeclarationError>,
    },
    /// Two entries declare a tool of the same name.
    #[error("`tools[{at}]`: `{name}` is declared twice, first by `tools[{first}]`")]
    DeclaredTwice {
        /// Index of the second entry.
        at: usize,
        /// Index of the first entry.
        first: usize,
        /// Name of the tool.
        name: String,
    },
    /// A size limit of prompts is out of range.
    #[error(transparent)]
    ContextBudget(#[from] ContextBudgetError),
    /// The list of context entries is illegal.
    #[error(transparent)]
    Context(#[from] ContextEntriesError),
    /// The declaration of a resource is illegal.
    #[error(transparent)]
    Resources(#[from] ResourcesError),
    /// The pipeline, or the input, is illegal.
    #[error(transparent)]
    Steps(#[from] StepConfigError),
}

fn describe_model(id: Option<&str>) -> String {
    id.map_or_else(|| "the model".to_owned(), |id| format!("`{id}`"))
}

/// Checks that the provider of a model takes its settings: a request with them can be encoded. A provider that only the
/// venue's configuration knows is checked as an endpoint of Chat Completions.
fn check_model(model: &ModelSettings) -> Result<(), EncodeError> {
    let dialect = find_dialect(&model.provider).unwrap_or(COMPATIBLE);
    let request = ModelRequest {
        model: model.without_fallback(),
        system: String::new(),
        messages: Vec::new(),
        tools: Vec::new().into(),
        turn: String::new(),
        stable: 0,
        output: None,
    };
    wire::encode(&request, &dialect, "").map(|_| ())
}

impl AgentConfig {
    pub(super) fn check(&self) -> Result<(), DataError> {
        self.check_rules().map_err(|error| error.to_string().into())
    }

    fn check_rules(&self) -> Result<(), AgentConfigError> {
        self.check_numbers()?;
        self.limits.budget().check().map_err(AgentConfigError::Limits)?;
        self.limits.session.check().map_err(AgentConfigError::SessionLimits)?;
        self.model.check()?;
        self.model.check_each(check_model).map_err(|error| AgentConfigError::Encoding(Box::new(error)))?;
        self.check_steps()?;
        self.check_prices()?;
        if self.entity_ids_key.is_empty() {
            return Err(AgentConfigError::EntityIdsKey);
        }
        for (key, list) in [("caps", &self.caps), ("delegable", &self.delegable)] {
            if let Some(found) = list.as_ref().map(Vec::len).filter(|found| *found > CAPABILITIES) {
                return Err(AgentConfigError::Capabilities { key, found });
            }
            for (at, cap) in list.iter().flatten().enumerate() {
                cap.check().map_err(|error| AgentConfigError::Capability { key, at, error })?;
            }
        }
        self.outputs.check()?;
        if let Some(published) = &self.published {
            published.check()?;
        }
        check_servers(&self.mcp)?;
        check_remote_agents(&self.a2a_agents)?;
        if self.tools.len() > TOOLS {
            return Err(AgentConfigError::Tools { found: self.tools.len() });
        }
        self.check_goal_tools()?;
        self.check_declared_tools()?;
        self.check_schemas()?;
        self.check_entities()?;
        self.check_scopes()?;
        self.context_budget.check()?;
        check_entries(&self.context)?;
        self.resources.check(&configured_tool_names(self))?;
        self.a2a.as_deref().map_or(Ok(()), A2aSettings::check)?;
        Ok(())
    }

    /// Checks the declared tools, and that each has a name of its own, also beside those that records below `o/` declare.
    fn check_declared_tools(&self) -> Result<(), AgentConfigError> {
        let declared = |entry: &ToolEntry| match entry {
            ToolEntry::Named(tool) => tool.declaration().map(|declared| declared.name),
            ToolEntry::Path(_) => None,
        };
        for (at, entry) in self.tools.iter().enumerate() {
            if let ToolEntry::Named(tool) = entry
                && let Some(Err(error)) = tool.declaration().map(|declared| declared.check())
            {
                return Err(AgentConfigError::Declaration { at, error: Box::new(error) });
            }
            let Some(name) = declared(entry) else { continue };
            let is_it = |other: &ToolEntry| {
                let is_record = |path: &str| path.strip_prefix("o/").is_some_and(|record| record == name);
                declared(other).is_some_and(|other| other == name) || other.operation().is_some_and(is_record)
            };
            let rival = self.tools.iter().enumerate().position(|(other, entry)| other != at && is_it(entry));
            if let Some(rival) = rival {
                return Err(AgentConfigError::DeclaredTwice { at: at.max(rival), first: at.min(rival), name });
            }
        }
        Ok(())
    }

    /// Checks the numbers that limit the agent's work, and the waits between retries.
    fn check_numbers(&self) -> Result<(), AgentConfigError> {
        let numbers = [
            ("concurrency", "1", self.concurrency == Some(0)),
            ("mailbox", "1", self.mailbox == 0),
            ("limits.turns", "1", self.limits.turns == 0),
            ("limits.toolTimeout", "1 second", self.limits.tool_timeout == Some(0)),
            ("retry.attempts", "1", self.retry.attempts == Some(0)),
            ("retry.first", "1 second", self.retry.first == Some(0)),
        ];
        if let Some((key, least, _)) = numbers.into_iter().find(|(_, _, is_zero)| *is_zero) {
            return Err(AgentConfigError::Zero { key, least });
        }
        match (self.retry.first, self.retry.max) {
            (Some(first), Some(max)) if first > max => Err(AgentConfigError::RetryMax { first, max }),
            _ => Ok(()),
        }
    }

    /// Checks that each model has a price if a limit is in money.
    fn check_prices(&self) -> Result<(), AgentConfigError> {
        // A pipeline asks no model: its limits count what its steps spend.
        let unpriced = self.model.in_order().find(|model| model.price.is_none() && self.pipeline.is_none());
        let (Some(model), Some(key)) = (unpriced, self.limits.in_money()) else { return Ok(()) };
        let model = (!self.model.fallback.is_empty()).then(|| model.id());
        Err(AgentConfigError::NoPrice { key, model })
    }

    fn check_entities(&self) -> Result<(), AgentConfigError> {
        let scoped = self.tools.iter().position(|entry| !entry.entities().is_empty());
        match scoped.filter(|_| !self.entity_ids_required) {
            Some(at) => Err(AgentConfigError::Entities { at }),
            None => Ok(()),
        }
    }

    /// Checks that approvals of sections belong to tools that hand sections on: any other call would ask nobody.
    fn check_scopes(&self) -> Result<(), AgentConfigError> {
        for (at, entry) in self.tools.iter().enumerate() {
            if let ToolEntry::Named(tool) = entry
                && tool.target() == Ok(EntryTarget::Latent)
                && tool.scopes.as_ref().is_some_and(|scopes| !scopes.approval().is_none())
            {
                return Err(AgentConfigError::ScopesApproval { at });
            }
        }
        Ok(())
    }

    /// Checks that the agent's own schemas can be sent to its models. The schemas of outputs are the input of the tools
    /// that end a task.
    fn check_schemas(&self) -> Result<(), AgentConfigError> {
        self.model.in_order().try_for_each(|model| self.check_schemas_for(&model.provider))
    }

    fn check_schemas_for(&self, provider: &str) -> Result<(), AgentConfigError> {
        let subset = find_dialect(provider).unwrap_or(COMPATIBLE).schema;
        let check = |place: String, schema: &Value| match project(schema, subset) {
            Ok(_) => Ok(()),
            Err(error) => {
                Err(AgentConfigError::Schema { place, provider: provider.to_owned(), error: Box::new(error) })
            }
        };
        for (at, entry) in self.tools.iter().enumerate() {
            if let ToolEntry::Named(tool) = entry
                && let Some(input) = &tool.input
            {
                check(format!("tools[{at}].input"), input)?;
            }
        }
        for (key, output) in [("complete", &self.outputs.complete), ("fail", &self.outputs.fail)] {
            if let Some(output) = output {
                check(format!("outputs.{key}.schema"), &outputs::input(&output.schema))?;
            }
        }
        Ok(())
    }

    fn check_goal_tools(&self) -> Result<(), AgentConfigError> {
        if self.looping == LoopKind::GoalTree {
            return match self.prompt {
                Some(PromptStyle::Plain) => Err(AgentConfigError::GoalPrompt),
                Some(PromptStyle::Full) | None => Ok(()),
            };
        }
        for (at, entry) in self.tools.iter().enumerate() {
            if let ToolEntry::Path(name) = entry
                && GOAL_TOOLS.contains(&name.as_str())
            {
                return Err(AgentConfigError::GoalTool { at, name: name.clone() });
            }
        }
        Ok(())
    }
}

impl AgentRecord {
    /// Refuses a record that is larger than [`AGENT_BYTES`]. As a rule its configuration is the cause.
    pub fn check_size(&self) -> Result<(), OversizedDocument> {
        let bytes = serde_json::to_vec(self).map_or(usize::MAX, |text| text.len());
        if bytes <= AGENT_BYTES {
            return Ok(());
        }
        Err(OversizedDocument {
            what: format!("agent `{}`", self.id),
            bytes,
            most: AGENT_BYTES,
            advice: "shorten its `systemPrompt`, `tools` or `context`, or put a long text into a value under `w/` that its \
                     `context` names",
        })
    }
}
