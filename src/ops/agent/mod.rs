//! `v/ops/agent/*`: create agents, send them requests and messages, read their state.

mod checks;
pub(crate) mod requests;
mod layers;
mod lifecycle;
pub(crate) mod send;
mod session;
mod sessions;
pub(crate) mod task;

use crate::domain::agent::{AgentConfig, AgentRecord, AgentStatus, addresses};
use crate::domain::authority::ResourcePath;
use crate::domain::ids::AgentId;
use crate::domain::lattice::Namespace;
use crate::domain::limits::LIST_PAGE;
use crate::venue::agents;
use crate::venue::agents::keys_needed;
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, Site, operation,
};
use crate::venue::waits;
use crate::view::agent::{AgentDryRunView, AgentPage, AgentRowView, AgentView, CreatedAgentView};
use crate::view::job::WaitView;
use crate::view::to_json;
use checks::{check_hides_nothing, no_agent};
use layers::AgentConfigLayers;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    let mut all = vec![operation::<CreateAgent>(), operation::<DescribeAgent>(), operation::<ListAgents>()];
    all.extend(requests::operations());
    all.extend(lifecycle::operations());
    all.extend(sessions::operations());
    all.extend(session::operations());
    all.extend(task::operations());
    all
}

/// What an agent is and does: status, configuration, open tasks.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DescribeAgent {
    agent_id: AgentId,
}

impl Operation for DescribeAgent {
    const PATH: &'static str = "v/ops/agent/info";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("crud/read", ResourcePath::agent(&self.agent_id))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let info = agents::info(call.venue, &call.caller.owner, &self.agent_id).await?;
        let agent = info.ok_or_else(|| no_agent(&self.agent_id))?;
        let reader = call.caller.reader();
        let waiting = waits::agent_reason(call.venue, &call.caller.owner, &reader, &self.agent_id).await?;
        Ok(OpOutput::of(&AgentView {
            waiting: waiting.reason.as_ref().map(WaitView::from),
            waiting_partial: waiting.is_partial.then_some(true),
            agent,
        }))
    }
}

/// The owner's agents.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ListAgents {
    /// `next` of the page before
    after: Option<AgentId>,
    #[schemars(range(min = 1))]
    limit: Option<usize>,
    /// false leaves out those that have ended
    include_terminated: Option<bool>,
}

impl Operation for ListAgents {
    const PATH: &'static str = "v/ops/agent/list";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("crud/read", ResourcePath::whole_namespace(Namespace::Agents))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let limit = self.limit.unwrap_or(LIST_PAGE).clamp(1, LIST_PAGE);
        let agents = agents::list(call.venue, &call.caller.owner, self.after.as_ref(), limit).await?;
        let statuses = agents::statuses(call.venue, &call.caller.owner, &agents).await?;
        let next = agents.last().filter(|_| agents.len() == limit).map(|agent| agent.id.clone());
        let shown = agents
            .into_iter()
            .zip(statuses)
            .filter(|(agent, _)| self.include_terminated != Some(false) || agent.status != AgentStatus::Terminated)
            .map(|(agent, status)| AgentRowView { agent_id: agent.id, status, description: agent.description });
        Ok(OpOutput::of(&AgentPage { agents: shown.collect(), next }))
    }
}

/// Create an agent; when it exists nothing changes unless `overwrite` is true. A terminated one is replaced then, and active
/// again.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CreateAgent {
    agent_id: AgentId,
    #[schemars(with = "Option<Map<String, Value>>")]
    state: Option<Value>,
    /// What it is to be: a map, the path or asset of one, or a list of these, of which later ones count
    #[serde(default)]
    #[schemars(with = "Value", extend("type" = ["object", "string", "array"]))]
    config: AgentConfigLayers,
    /// What it is as long as `config` doesn't say otherwise: a map, the path or asset of one, or a list of these, of which
    /// later ones count
    #[serde(default)]
    #[schemars(with = "Value", extend("type" = ["object", "string", "array"]))]
    definition: AgentConfigLayers,
    #[serde(default)]
    overwrite: bool,
    /// Refuse what is otherwise a warning: names that the venue doesn't know
    #[serde(default)]
    strict: bool,
    /// Say what would be warned of, and change nothing
    #[serde(default)]
    dry_run: bool,
}

impl Operation for CreateAgent {
    const PATH: &'static str = "v/ops/agent/create";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        let mut needs = vec![Need::new("agent/create", ResourcePath::agent(&self.agent_id))];
        needs.extend(layers::layer_needs(&[&self.definition, &self.config])?);
        Ok(needs)
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        check_hides_nothing(call)?;
        let Self { agent_id: id, state, config, definition, overwrite, strict, dry_run } = self;
        let config = layers::merge_layers(call, [definition, config]).await?;
        call.reads.note_copies(&[format!("g/{id}/config")]);
        if !overwrite && !dry_run && !names_model(config.as_ref(), state.as_ref()) {
            // Without a model, such a call only asks that the agent exists.
            if let Some((record, _)) = agents::get(call.venue, &call.caller.owner, &id).await? {
                return unchanged_answer(call, &record).await;
            }
        }
        let config = parse_config(call, config, state)?;
        let warnings = agents::config_warnings::check(call.venue, &call.caller.owner, &config, strict);
        let mut warnings = warnings.map_err(|error| OpError::Invalid(format!("`config`: {error}")))?;
        warnings.extend(agents::config_warnings::missing_keys(call.venue, &call.caller.owner, &config).await?);
        if dry_run {
            let config = to_json(&config);
            return Ok(OpOutput::of(&AgentDryRunView { agent_id: id, dry_run: true, config, warnings }));
        }
        if overwrite && matches!(call.site, Site::Turn(_)) {
            // Otherwise an agent could remove an approval that people require.
            let known = agents::get(call.venue, &call.caller.owner, &id).await?;
            if known.is_some_and(|(record, _)| record.config.asks_people() && record.config != config) {
                return Err(OpError::Denied(format!(
                    "agent `{id}` asks people before it calls some of its tools: only people change its configuration"
                )));
            }
        }
        let (record, applied) =
            agents::apply(call.venue, &call.caller.owner, &id, &config, overwrite, call.caller).await?;
        let status = agents::current_status(call.venue, &call.caller.owner, &id, record.status).await?;
        Ok(OpOutput::of(&CreatedAgentView {
            agent_id: id,
            status,
            created: applied == agents::ApplyOutcome::Created,
            updated: applied == agents::ApplyOutcome::Updated,
            config_version: record.config_version,
            warnings,
        }))
    }
}

/// Whether a configuration names a model or a pipeline, without which no agent is made.
fn names_model(config: Option<&Map<String, Value>>, state: Option<&Value>) -> bool {
    let inside = state.and_then(|state| state["config"].as_object());
    let keys = ["model", "llmOperation", "state", "pipeline"];
    let names = |map: &Map<String, Value>| keys.iter().any(|key| map.contains_key(*key));
    config.is_some_and(names) || inside.is_some_and(names)
}

/// Returns the answer about an agent that stays as it is. Nothing is applied: if the agent is gone meanwhile, it isn't
/// made anew with a configuration that its caller may not use.
async fn unchanged_answer(call: &Invocation<'_>, record: &AgentRecord) -> Result<OpOutput, OpError> {
    let (venue, owner) = (call.venue, &call.caller.owner);
    let status = agents::current_status(venue, owner, &record.id, record.status).await?;
    Ok(OpOutput::of(&CreatedAgentView {
        agent_id: record.id.clone(),
        status,
        created: false,
        updated: false,
        config_version: record.config_version,
        warnings: Vec::new(),
    }))
}

/// Returns the requested configuration, if its caller may use the keys that it names.
fn parse_config(
    call: &Invocation<'_>,
    config: Option<Map<String, Value>>,
    state: Option<Value>,
) -> Result<AgentConfig, OpError> {
    if config.is_none() && state.is_none() {
        return Err(OpError::Invalid("expected `config` with at least `model`".into()));
    }
    let mut given = config.unwrap_or_default();
    layers::check_one_state(&given, state.as_ref())?;
    if let Some(state) = state {
        given.insert("state".into(), state);
    }
    let mut given = Value::Object(given);
    addresses::localise(Some(&call.caller.owner), &mut given).map_err(|error| OpError::Denied(error.to_string()))?;
    let config = AgentConfig::parse(&given).map_err(|e| OpError::Invalid(format!("`config`: {e}")))?;
    let resources = call.venue.catalog.resources.check(&config);
    resources.map_err(|error| OpError::Invalid(format!("`config`: {error}")))?;
    for need in keys_needed(&to_json(&config)) {
        // Stored layers name their keys only after they are read.
        call.permit(need.ability, &need.resource)?;
    }
    Ok(config)
}
