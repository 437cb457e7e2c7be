//! Life cycle of agents: `update`, `suspend`, `resume`, `delete`, `fork`, `cancel-task`.

use super::checks::check_hides_nothing;
use super::layers::{self, AgentConfigLayers};
use crate::domain::agent::{AgentRecord, seed};
use crate::domain::authority::ResourcePath;
use crate::domain::authority::trail::Trail;
use crate::domain::decode::DataError;
use crate::domain::ids::{AgentId, JobId};
use crate::venue::agents::keys_needed;
use crate::venue::agents::lifecycle::{self, AgentEditor, Fork, LifecycleError, Patch};
use crate::venue::agents::{config_warnings, current_status, deletion};
use crate::venue::jobs::{self, CancelOutcome};
use crate::venue::notifications;
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, Site, operation,
};
use crate::view::agent::{
    AgentActivity, AgentEndView, AgentSwitchView, CancelledTaskView, ForkedAgentView, UpdatedAgentView,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Returns the operations of this group.
pub(super) fn operations() -> Vec<RegisteredOperation> {
    vec![
        operation::<Update>(),
        operation::<Suspend>(),
        operation::<Resume>(),
        operation::<DeleteAgent>(),
        operation::<ForkAgent>(),
        operation::<CancelTask>(),
    ]
}

impl From<LifecycleError> for OpError {
    fn from(error: LifecycleError) -> Self {
        let text = error.to_string();
        match error {
            LifecycleError::Unknown(_) | LifecycleError::NoSession(_) | LifecycleError::NoTurn { .. } => {
                Self::NotFound(text)
            }
            LifecycleError::Terminated(_)
            | LifecycleError::Version { .. }
            | LifecycleError::Exists(_)
            | LifecycleError::Busy(_)
            | LifecycleError::AtWork(..)
            | LifecycleError::Taken(_)
            | LifecycleError::TooMany(_) => Self::Conflict(text),
            LifecycleError::Config(_) => Self::Invalid(text),
            LifecycleError::AsksPeople(..) | LifecycleError::Denied(_) => Self::Denied(text),
            LifecycleError::Store(error) => Self::Store(error),
        }
    }
}

/// Returns the acting party of a call, with this provenance.
fn editor_of<'a>(call: &'a Invocation<'_>, trail: &'a Trail) -> AgentEditor<'a> {
    AgentEditor { authority: &call.caller.authority, trail, turn: matches!(call.site, Site::Turn(_)) }
}

/// Change keys of an agent's configuration: each key of `config` replaces the one that is there, null removes it;
/// `state.config` is merged deeply, the entries of `state.context` come after those of `context`. Applies from the next turn.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Update {
    agent_id: AgentId,
    /// Keys that are to be others: a map, the path or asset of one, or a list of these, of which later ones count
    #[serde(default)]
    #[schemars(with = "Value", extend("type" = ["object", "string", "array"]))]
    config: AgentConfigLayers,
    #[schemars(with = "Option<Map<String, Value>>")]
    state: Option<Value>,
    /// Refuse what is otherwise a warning: names that the venue doesn't know
    #[serde(default)]
    strict: bool,
    /// The version that the configuration must have
    #[schemars(range(min = 1))]
    expect: Option<u64>,
}

impl Operation for Update {
    const PATH: &'static str = "v/ops/agent/update";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        let mut needs = vec![Need::new("agent/update", ResourcePath::agent(&self.agent_id))];
        needs.extend(self.state.iter().flat_map(|state| keys_needed(&state["config"])));
        needs.extend(layers::layer_needs(&[&self.config])?);
        Ok(needs)
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        check_hides_nothing(call)?;
        let (venue, owner, id) = (call.venue, &call.caller.owner, &self.agent_id);
        let wrong = |error: DataError| OpError::Invalid(error.to_string());
        let state = self.state.as_ref();
        let state_config = state.map(seed::state_config).transpose().map_err(wrong)?.unwrap_or_default();
        let state_context = state.map(seed::state_context).transpose().map_err(wrong)?.unwrap_or_default();
        let config = layers::merge_layers(call, [self.config]).await?.unwrap_or_default();
        layers::check_one_state(&config, state)?;
        if config.is_empty() && state_config.is_empty() && state_context.is_empty() {
            let why = if state.is_some_and(|state| state.get("context").is_some()) {
                "`state.context`: an empty list adds nothing to `context`, and takes nothing away: `config.context` \
                 replaces the list, with null by none"
            } else {
                "expected `config`, `state.config` or `state.context` with what is to be other"
            };
            return Err(OpError::Invalid(why.into()));
        }
        let patch = Patch { config, state_config, state_context, expect: self.expect, strict: self.strict };
        call.reads.note_copies(&[format!("g/{id}/config")]);
        let (record, updated) =
            lifecycle::update(venue, owner, id, &patch, editor_of(call, &call.caller.trail())).await?;
        let status = status_of(call, &record).await?;
        let mut warnings = config_warnings::warnings(venue, owner, &record.config);
        warnings.extend(config_warnings::missing_keys(venue, owner, &record.config).await?);
        let AgentRecord { id: agent_id, config_version, error, .. } = record;
        Ok(OpOutput::of(&UpdatedAgentView { agent_id, status, config_version, updated, error, warnings }))
    }
}

/// Stop an agent from running. It takes work; nothing that waits is lost.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Suspend {
    agent_id: AgentId,
    reason: Option<String>,
}

impl Operation for Suspend {
    const PATH: &'static str = "v/ops/agent/suspend";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("agent/suspend", ResourcePath::agent(&self.agent_id))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let reason = self.reason.unwrap_or_else(|| format!("suspended by {}", call.caller.name));
        let (record, changed) = lifecycle::suspend(call.venue, &call.caller.owner, &self.agent_id, &reason).await?;
        if changed {
            notifications::send_soon(call.venue, &call.caller.owner).await;
        }
        switch_answer(call, record, changed).await
    }
}

/// Let a suspended agent run again, with everything that has waited.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Resume {
    agent_id: AgentId,
    /// what has waited always goes on with the agent
    #[serde(default, rename = "autoWake")]
    #[schemars(with = "Value", extend("const" = true))]
    _auto_wake: bool,
}

impl Operation for Resume {
    const PATH: &'static str = "v/ops/agent/resume";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("agent/resume", ResourcePath::agent(&self.agent_id))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let trail = call.caller.trail();
        let by = editor_of(call, &trail);
        let (record, changed) = lifecycle::resume(call.venue, &call.caller.owner, &self.agent_id, by).await?;
        switch_answer(call, record, changed).await
    }
}

/// End an agent: unfinished tasks are cancelled and new work is refused. The name is kept, unless `remove` is true: then its
/// sessions and documents are deleted and the name is free.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DeleteAgent {
    agent_id: AgentId,
    #[serde(default)]
    remove: bool,
}

impl Operation for DeleteAgent {
    const PATH: &'static str = "v/ops/agent/delete";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("agent/delete", ResourcePath::agent(&self.agent_id))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let (venue, owner, id) = (call.venue, &call.caller.owner, &self.agent_id);
        if self.remove {
            let cancelled = deletion::remove(venue, owner, id, editor_of(call, &call.caller.trail())).await?;
            return Ok(OpOutput::of(&AgentEndView {
                agent_id: self.agent_id,
                status: AgentActivity::Terminated,
                config_version: None,
                removed: Some(true),
                cancelled,
                error: None,
            }));
        }
        let (record, cancelled) = deletion::terminate(venue, owner, id).await?;
        let status = status_of(call, &record).await?;
        let AgentRecord { id: agent_id, config_version, error, .. } = record;
        let config_version = Some(config_version);
        Ok(OpOutput::of(&AgentEndView { agent_id, status, config_version, removed: None, cancelled, error }))
    }
}

/// Make a new agent with the configuration and state of another, and nothing that waits for it; with `timeline` also its
/// sessions.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ForkAgent {
    agent_id: AgentId,
    to: Option<AgentId>,
    #[serde(default)]
    timeline: bool,
    #[serde(default)]
    overwrite: bool,
    /// Keys that are others in the new agent: a map, the path or asset of one, or a list of these, of which later ones count
    #[serde(default)]
    #[schemars(with = "Value", extend("type" = ["object", "string", "array"]))]
    config: AgentConfigLayers,
    /// the agent that is forked; then `agentId` is the new one
    source_id: Option<AgentId>,
    #[serde(default)]
    include_timeline: bool,
}

impl ForkAgent {
    /// Returns the forked agent and the new name: `agentId` and `to`, or in Covia's form `sourceId` and `agentId`.
    fn fork_names(&self) -> Result<(&AgentId, &AgentId), OpError> {
        match (&self.to, &self.source_id) {
            (Some(to), None) => Ok((&self.agent_id, to)),
            (None, Some(from)) => Ok((from, &self.agent_id)),
            (None, None) | (Some(_), Some(_)) => Err(OpError::Invalid("expected one of `to` and `sourceId`".into())),
        }
    }
}

impl Operation for ForkAgent {
    const PATH: &'static str = "v/ops/agent/fork";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        let (from, to) = self.fork_names()?;
        let mut needs = vec![
            Need::new("agent/fork", ResourcePath::agent(from)),
            Need::new("agent/create", ResourcePath::agent(to)),
        ];
        needs.extend(layers::layer_needs(&[&self.config])?);
        Ok(needs)
    }

    async fn run(mut self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        check_hides_nothing(call)?;
        let config = layers::merge_layers(call, [std::mem::take(&mut self.config)]).await?.unwrap_or_default();
        let (from, to) = self.fork_names()?;
        call.reads.note_kept(ResourcePath::agent(from), format!("g/{from}/config"));
        call.reads.note_copies(&[format!("g/{to}/config")]);
        let trail = call.caller.trail();
        let by = editor_of(call, &trail);
        let timeline = self.timeline || self.include_timeline;
        let how = Fork { config: &config, timeline, overwrite: self.overwrite };
        let (record, created) = lifecycle::fork(call.venue, &call.caller.owner, from, to, how, by).await?;
        let status = status_of(call, &record).await?;
        Ok(OpOutput::of(&ForkedAgentView {
            agent_id: record.id,
            status,
            config_version: record.config_version,
            from: from.clone(),
            error: record.error,
            forked_from: from.clone(),
            created,
        }))
    }
}

/// Cancel a task of an agent, and what it has started.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CancelTask {
    agent_id: AgentId,
    task_id: JobId,
    reason: Option<String>,
}

impl Operation for CancelTask {
    const PATH: &'static str = "v/ops/agent/cancel-task";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("job/cancel", ResourcePath::job(&self.task_id))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let (venue, owner, agent, id) = (call.venue, &call.caller.owner, self.agent_id, self.task_id);
        let missing = || OpError::NotFound(format!("agent `{agent}` has no task `{id}`"));
        let known = jobs::get(venue, owner, &id).await?.filter(|job| job.head.op.is_none() && job.head.agent == agent);
        known.ok_or_else(missing)?;
        let (job, cancelled) = match jobs::cancel(venue, owner, &id, self.reason.as_deref()).await? {
            CancelOutcome::Done(job) => (job, true),
            CancelOutcome::Already(job) => (job, false),
            CancelOutcome::Unknown => return Err(missing()),
        };
        Ok(OpOutput::of(&CancelledTaskView { agent_id: agent, task_id: id, status: job.status, cancelled }))
    }
}

async fn status_of(call: &Invocation<'_>, record: &AgentRecord) -> Result<AgentActivity, OpError> {
    Ok(current_status(call.venue, &call.caller.owner, &record.id, record.status).await?)
}

/// Returns the answer about an agent that was suspended or resumed.
async fn switch_answer(call: &Invocation<'_>, record: AgentRecord, changed: bool) -> Result<OpOutput, OpError> {
    let status = status_of(call, &record).await?;
    let AgentRecord { id: agent_id, config_version, error, .. } = record;
    Ok(OpOutput::of(&AgentSwitchView { agent_id, status, config_version, changed, error }))
}
