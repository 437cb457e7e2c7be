//! Checks of a configuration beyond its types.

use super::tool::{EntryTarget, ToolEntry};
use super::{AgentConfig, AgentRecord, LoopKind, PromptStyle};
use crate::agent::entry::check_entries;
use crate::agent::tool::GOAL_TOOLS;
use crate::agent::tool::configured_tool_names;
use crate::bounds::{AGENT_BYTES, OversizedDocument};
use crate::chat::{ModelRequest, ModelSettings};
use crate::decode::DataError;
use crate::outputs;
use crate::wire;
use crate::wire::dialect::{COMPATIBLE, find_dialect};
use crate::wire::schema::project;
use serde_json::Value;

/// Checks that the provider of a model takes its settings: a request with them can be encoded. A provider that only the
/// venue's configuration knows is checked as an endpoint of Chat Completions.
fn check_model(model: &ModelSettings) -> Result<(), String> {
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
    wire::encode(&request, &dialect, "").map(|_| ()).map_err(|error| error.to_string())
}

impl AgentConfig {
    pub(super) fn check(&self) -> Result<(), DataError> {
        let bad = |text: String| Err(text.into());
        if self.concurrency == Some(0) {
            return bad("`concurrency`: expected at least 1, got 0".into());
        }
        if self.mailbox == 0 {
            return bad("`mailbox`: expected at least 1, got 0".into());
        }
        if self.limits.turns == 0 {
            return bad("`limits.turns`: expected at least 1, got 0".into());
        }
        if self.limits.tool_timeout == Some(0) {
            return bad("`limits.toolTimeout`: expected at least 1 second, got 0".into());
        }
        if self.retry.attempts == Some(0) {
            return bad("`retry.attempts`: expected at least 1, got 0".into());
        }
        if self.retry.first == Some(0) {
            return bad("`retry.first`: expected at least 1 second, got 0".into());
        }
        if let (Some(first), Some(max)) = (self.retry.first, self.retry.max)
            && first > max
        {
            return bad(format!("`retry.max`: expected at least `retry.first` ({first}), got {max}"));
        }
        let budget = self.limits.budget();
        budget.check().or_else(|error| bad(format!("`limits`: {error}")))?;
        self.limits.session.check().or_else(|error| bad(format!("`limits.session`: {error}")))?;
        self.model.check().or_else(bad)?;
        self.model.check_each(check_model).or_else(bad)?;
        let unpriced = self.model.in_order().find(|model| model.price.is_none());
        if let (Some(model), Some(key)) = (unpriced, self.limits.in_money()) {
            let which =
                if self.model.fallback.is_empty() { "the model".to_owned() } else { format!("`{}`", model.id()) };
            return bad(format!(
                "`{key}`: {which} needs a `price`, as `{{input, output}}` in dollars per million tokens"
            ));
        }
        if self.entity_ids_key.is_empty() {
            return bad("`entityIdsKey`: expected a key, got an empty text".into());
        }
        for (key, list) in [("caps", &self.caps), ("delegable", &self.delegable)] {
            for (at, cap) in list.iter().flatten().enumerate() {
                cap.check().or_else(|rule| bad(format!("`{key}[{at}]`: {rule}")))?;
            }
        }
        self.outputs.check().or_else(bad)?;
        self.check_goal_tools().or_else(bad)?;
        self.check_schemas().or_else(bad)?;
        self.check_entities().or_else(bad)?;
        self.check_scopes().or_else(bad)?;
        self.context_budget.check().or_else(bad)?;
        check_entries(&self.context).or_else(bad)?;
        self.resources.check(&configured_tool_names(self)).or_else(bad)?;
        Ok(())
    }

    fn check_entities(&self) -> Result<(), String> {
        let scoped = self.tools.iter().position(|entry| !entry.entities().is_empty());
        match scoped.filter(|_| !self.entity_ids_required) {
            Some(at) => {
                Err(format!("`tools[{at}].entities` needs `entityIdsRequired = true`: else no request names any"))
            }
            None => Ok(()),
        }
    }

    /// Checks that approvals of sections belong to tools that hand sections on: any other call would ask nobody.
    fn check_scopes(&self) -> Result<(), String> {
        for (at, entry) in self.tools.iter().enumerate() {
            if let ToolEntry::Named(tool) = entry
                && tool.target() == Ok(EntryTarget::Latent)
                && tool.scopes.as_ref().is_some_and(|scopes| !scopes.approval().is_none())
            {
                return Err(format!(
                    "`tools[{at}].scopes.approval`: a tool without `operation` and `delegate` hands nothing on; set \
                     `approval` of the tool"
                ));
            }
        }
        Ok(())
    }

    /// Checks that the agent's own schemas can be sent to its models. The schemas of outputs are the input of the tools
    /// that end a task.
    fn check_schemas(&self) -> Result<(), String> {
        self.model.in_order().try_for_each(|model| self.check_schemas_for(&model.provider))
    }

    fn check_schemas_for(&self, provider: &str) -> Result<(), String> {
        let subset = find_dialect(provider).unwrap_or(COMPATIBLE).schema;
        let check = |place: String, schema: &Value| match project(schema, subset) {
            Ok(_) => Ok(()),
            Err(reason) => Err(format!("`{place}` can't be offered to a model of `{provider}`: {reason}")),
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

    fn check_goal_tools(&self) -> Result<(), String> {
        if self.looping == LoopKind::GoalTree {
            return match self.prompt {
                Some(PromptStyle::Plain) => {
                    Err("`prompt`: expected `full` with `loop = \"goalTree\"`, got `plain`".into())
                }
                Some(PromptStyle::Full) | None => Ok(()),
            };
        }
        for (at, entry) in self.tools.iter().enumerate() {
            if let ToolEntry::Path(name) = entry
                && GOAL_TOOLS.contains(&name.as_str())
            {
                return Err(format!("`tools[{at}]`: `{name}` needs `loop = \"goalTree\"`"));
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
