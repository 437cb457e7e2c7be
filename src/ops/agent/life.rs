//! The life of agents: `update`, `suspend`, `resume`, `delete`, `fork`, `cancel-task`.

use super::{agent_id, layers, schema, strict_schema};
use crate::domain::agent::{AgentRecord, seed};
use crate::domain::authority::ResourcePath;
use crate::domain::ids::{AgentId, JobId};
use crate::venue::agents::key_needed;
use crate::venue::agents::lifecycle::{self, By, Fork, LifeError, Patch};
use crate::venue::agents::{doing, ending, names};
use crate::venue::jobs::{self, Cancelled};
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, Output, Site, UntypedOperation as Operation, UntypedSpec as Spec,
};
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use std::sync::Arc;

#[derive(Clone, Copy)]
enum Verb {
    Update,
    Suspend,
    Resume,
    Delete,
    Fork,
    CancelTask,
}

struct Life(Verb);

/// The operations of this group.
pub(super) fn operations() -> impl Iterator<Item = Arc<dyn Operation>> {
    let verbs = [Verb::Update, Verb::Suspend, Verb::Resume, Verb::Delete, Verb::Fork, Verb::CancelTask];
    verbs.into_iter().map(|verb| Arc::new(Life(verb)) as Arc<dyn Operation>)
}

impl From<LifeError> for OpError {
    fn from(error: LifeError) -> Self {
        let text = error.to_string();
        match error {
            LifeError::Unknown(_) | LifeError::NoSession(_) | LifeError::NoTurn { .. } => Self::NotFound(text),
            LifeError::Terminated(_)
            | LifeError::Version { .. }
            | LifeError::Exists(_)
            | LifeError::Busy(_)
            | LifeError::AtWork(..)
            | LifeError::Taken(_)
            | LifeError::TooMany(_) => Self::Conflict(text),
            LifeError::Config(_) => Self::Invalid(text),
            LifeError::AsksPeople(..) | LifeError::Denied(_) => Self::Denied(text),
            LifeError::Store(error) => Self::Store(error),
        }
    }
}

impl Verb {
    const fn path(self) -> &'static str {
        match self {
            Self::Update => "v/ops/agent/update",
            Self::Suspend => "v/ops/agent/suspend",
            Self::Resume => "v/ops/agent/resume",
            Self::Delete => "v/ops/agent/delete",
            Self::Fork => "v/ops/agent/fork",
            Self::CancelTask => "v/ops/agent/cancel-task",
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::Update => {
                "Change keys of an agent's configuration: each key of `config` replaces the one that is there, null removes it; `state.config` is merged deeply. Applies from the next turn."
            }
            Self::Suspend => "Stop an agent from running. It takes work; nothing that waits is lost.",
            Self::Resume => "Let a suspended agent run again, with everything that has waited.",
            Self::Delete => {
                "End an agent: unfinished tasks are cancelled and new work is refused. The name is kept, unless `remove` is true: then its sessions and documents are deleted and the name is free."
            }
            Self::Fork => {
                "Make a new agent with the configuration and state of another, and nothing that waits for it; with `timeline` also its sessions."
            }
            Self::CancelTask => "Cancel a task of an agent, and what it has started.",
        }
    }

    fn input(self) -> Value {
        let text = || json!({"type": "string"});
        let flag = || json!({"type": "boolean"});
        match self {
            Self::Update => schema(
                &json!({
                    "agentId": text(), "config": layers::input("Keys that are to be others"), "state": {"type": "object"},
                    "strict": strict_schema(),
                    "expect": {"type": "integer", "minimum": 1, "description": "The version that the configuration must have"}
                }),
                &["agentId"],
            ),
            Self::Suspend => schema(&json!({"agentId": text(), "reason": text()}), &["agentId"]),
            Self::Resume => schema(
                &json!({"agentId": text(), "autoWake": {"const": true, "description": "what has waited always goes on with the agent"}}),
                &["agentId"],
            ),
            Self::Delete => schema(&json!({"agentId": text(), "remove": flag()}), &["agentId"]),
            Self::Fork => schema(
                &json!({
                    "agentId": text(), "to": text(), "timeline": flag(), "overwrite": flag(),
                    "config": layers::input("Keys that are others in the new agent"),
                    "sourceId": {"type": "string", "description": "the agent that is forked; then `agentId` is the new one"},
                    "includeTimeline": flag()
                }),
                &["agentId"],
            ),
            Self::CancelTask => {
                schema(&json!({"agentId": text(), "taskId": text(), "reason": text()}), &["agentId", "taskId"])
            }
        }
    }
}

/// What is forked, and the name of what it becomes: `agentId` and `to`, or as Covia says it `sourceId` and
/// `agentId`.
fn ends(arguments: &Value) -> Result<(AgentId, AgentId), OpError> {
    let named = |key: &str| {
        AgentId::new(arguments[key].as_str().unwrap_or_default())
            .map_err(|error| OpError::Invalid(format!("`{key}`: {error}")))
    };
    match (arguments["to"].is_null(), arguments["sourceId"].is_null()) {
        (false, true) => Ok((named("agentId")?, named("to")?)),
        (true, false) => Ok((named("sourceId")?, named("agentId")?)),
        (true, true) | (false, false) => Err(OpError::Invalid("expected one of `to` and `sourceId`".into())),
    }
}

fn task_id(arguments: &Value) -> Result<JobId, OpError> {
    let text = arguments["taskId"].as_str().unwrap_or_default();
    JobId::new(text).map_err(|e| OpError::Invalid(format!("`taskId`: {e}")))
}

#[async_trait]
impl Operation for Life {
    fn spec(&self) -> Spec {
        let verb = self.0;
        Spec { path: verb.path(), description: verb.description(), input: verb.input(), effect: Effect::Idempotent }
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError> {
        let own = |ability| -> Result<Need, OpError> {
            Ok(Need { ability, resource: ResourcePath::agent(&agent_id(arguments)?) })
        };
        Ok(match self.0 {
            Verb::Update => {
                let keys = [&arguments["config"], &arguments["state"]["config"]].into_iter().filter_map(key_needed);
                let named = layers::needs(&[&arguments["config"]])?;
                std::iter::once(own("agent/update")?).chain(keys).chain(named).collect()
            }
            Verb::Suspend => vec![own("agent/suspend")?],
            Verb::Resume => vec![own("agent/resume")?],
            Verb::Delete => vec![own("agent/delete")?],
            Verb::Fork => {
                let (from, to) = ends(arguments)?;
                let on = |ability, agent: &AgentId| Need { ability, resource: ResourcePath::agent(agent) };
                let mut needs = vec![on("agent/fork", &from), on("agent/create", &to)];
                needs.extend(layers::needs(&[&arguments["config"]])?);
                needs
            }
            Verb::CancelTask => {
                vec![Need { ability: "job/cancel", resource: ResourcePath::job(&task_id(arguments)?) }]
            }
        })
    }

    async fn invoke(&self, call: &Invocation<'_>, arguments: Value) -> Result<Output, OpError> {
        let id = agent_id(&arguments)?;
        let trail = call.caller.trail();
        let by = By { authority: &call.caller.authority, trail: &trail, turn: matches!(call.site, Site::Turn(_)) };
        let (venue, owner) = (call.venue, &call.caller.owner);
        let answer = match self.0 {
            Verb::Update => {
                let patch = patch(call, &arguments).await?;
                call.reads.went(&[format!("g/{id}")]);
                let (record, updated) = lifecycle::update(venue, owner, &id, &patch, by).await?;
                let mut answer = shown(call, &record, "updated", updated).await?;
                answer["warnings"] = names::warnings(venue, owner, &record.config).into();
                answer
            }
            Verb::Suspend => {
                let reason = arguments["reason"].as_str();
                let reason = reason.map_or_else(|| format!("suspended by {}", call.caller.name), str::to_owned);
                let (record, changed) = lifecycle::suspend(venue, owner, &id, &reason).await?;
                shown(call, &record, "changed", changed).await?
            }
            Verb::Resume => {
                let (record, changed) = lifecycle::resume(venue, owner, &id, by).await?;
                shown(call, &record, "changed", changed).await?
            }
            Verb::Delete if arguments["remove"] == true => {
                let cancelled = ending::remove(venue, owner, &id, by).await?;
                json!({"agentId": id, "status": "TERMINATED", "removed": true, "cancelled": cancelled})
            }
            Verb::Delete => {
                let (record, cancelled) = ending::terminate(venue, owner, &id).await?;
                shown(call, &record, "cancelled", cancelled).await?
            }
            Verb::Fork => {
                let (from, to) = ends(&arguments)?;
                let flag = |key: &str| arguments[key] == true;
                let how = Fork { timeline: flag("timeline") || flag("includeTimeline"), overwrite: flag("overwrite") };
                let config = layers::resolved(call, &[&arguments["config"]]).await?.unwrap_or_default();
                call.reads.kept(ResourcePath::agent(&from), format!("g/{from}"));
                call.reads.went(&[format!("g/{to}")]);
                let (record, created) = lifecycle::fork(venue, owner, (&from, &to), &config, how, by).await?;
                let mut answer = shown(call, &record, "from", &from).await?;
                (answer["forkedFrom"], answer["created"]) = (from.as_str().into(), created.into());
                answer
            }
            Verb::CancelTask => cancel_task(call, &id, &arguments).await?,
        };
        Ok(answer.into())
    }
}

async fn patch(call: &Invocation<'_>, arguments: &Value) -> Result<Patch, OpError> {
    let state = &arguments["state"];
    let state_config = if state.is_null() {
        Map::new()
    } else {
        seed::state_config(state).map_err(|error| OpError::Invalid(error.to_string()))?
    };
    let config = layers::resolved(call, &[&arguments["config"]]).await?.unwrap_or_default();
    if config.is_empty() && state_config.is_empty() {
        return Err(OpError::Invalid("expected `config` or `state.config` with the keys to change".into()));
    }
    let strict = arguments["strict"] == true;
    Ok(Patch { config, state_config, expect: arguments["expect"].as_u64(), strict })
}

async fn shown(
    call: &Invocation<'_>,
    record: &AgentRecord,
    key: &str,
    value: impl serde::Serialize + Send,
) -> Result<Value, OpError> {
    let mut answer = json!({
        "agentId": record.id,
        "status": doing(call.venue, &call.caller.owner, (&record.id, record.status)).await?,
        "configVersion": record.config_version,
    });
    answer[key] = json!(value);
    if let Some(error) = &record.error {
        answer["error"] = error.as_str().into();
    }
    Ok(answer)
}

async fn cancel_task(call: &Invocation<'_>, agent: &AgentId, arguments: &Value) -> Result<Value, OpError> {
    let (venue, owner, id) = (call.venue, &call.caller.owner, task_id(arguments)?);
    let known = jobs::get(venue, owner, &id).await?.filter(|job| job.head.op.is_none() && job.head.agent == *agent);
    if known.is_none() {
        return Err(OpError::NotFound(format!("agent `{agent}` has no task `{id}`")));
    }
    let (job, cancelled) = match jobs::cancel(venue, owner, &id, arguments["reason"].as_str()).await? {
        Cancelled::Done(job) => (job, true),
        Cancelled::Already(job) => (job, false),
        Cancelled::Unknown => return Err(OpError::NotFound(format!("agent `{agent}` has no task `{id}`"))),
    };
    Ok(json!({"agentId": agent, "taskId": id, "status": job.status.as_str(), "cancelled": cancelled}))
}
