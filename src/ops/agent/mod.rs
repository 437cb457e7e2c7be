//! `v/ops/agent/*`: create agents, ask them, tell them, look at them.

pub(crate) mod ask;
mod layers;
mod life;
mod session;
mod sessions;
pub(crate) mod task;

use crate::domain::agent::AgentConfig;
use crate::domain::authority::ResourcePath;
use crate::domain::ids::AgentId;
use crate::domain::lattice::Namespace;
use crate::domain::limits::LIST_PAGE;
use crate::domain::turn::options;
use crate::venue::agents;
use crate::venue::agents::key_needed;
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, Output, Site, UntypedOperation as Operation, UntypedSpec as Spec,
};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Clone, Copy)]
enum Verb {
    Create,
    Request,
    Message,
    Chat,
    Info,
    List,
}

struct Agent(Verb);

/// The operations of this group.
pub fn operations() -> Vec<Arc<dyn Operation>> {
    let verbs = [Verb::Create, Verb::Request, Verb::Message, Verb::Chat, Verb::Info, Verb::List];
    let verbs = verbs.into_iter().map(|verb| Arc::new(Agent(verb)) as Arc<dyn Operation>);
    verbs
        .chain(life::operations())
        .chain(sessions::operations())
        .chain(session::operations())
        .chain(task::operations())
        .collect()
}

pub(super) fn number(arguments: &Value, key: &str, default: usize) -> usize {
    arguments[key].as_u64().map_or(default, |n| usize::try_from(n).unwrap_or(usize::MAX))
}

fn schema(properties: &Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn strict_schema() -> Value {
    json!({"type": "boolean", "description": "Refuse what is otherwise a warning: names that the venue doesn't know"})
}

fn page_schema() -> Value {
    json!({
        "after": {"type": "string", "description": "`next` of the page before"},
        "limit": {"type": "integer", "minimum": 1}
    })
}

fn budget_schema() -> Value {
    let about = "What the task and everything under it may use at most; it can only tighten what is left.";
    json!({
        "type": "object", "description": about, "additionalProperties": false,
        "properties": {
            "tokens": {"type": "integer", "minimum": 1}, "cost": {"type": "number", "description": "US dollars"},
            "turns": {"type": "integer", "minimum": 1},
            "wallClock": {"type": "integer", "minimum": 1, "description": "seconds"}
        }
    })
}

fn agent_id(arguments: &Value) -> Result<AgentId, OpError> {
    AgentId::new(arguments["agentId"].as_str().unwrap_or_default()).map_err(|e| OpError::Invalid(e.to_string()))
}

/// The input of an operation that sends `content` to an agent: what every request takes, and more.
fn asking(content: &str, more: Value) -> Value {
    let trusted = |kind: &str, about: &str| json!({"type": kind, "description": format!("{about} Trusted code says it."), "x-trusted": true});
    let mut buckets = trusted("array", "Shared buckets that the request shows and may fill.");
    buckets["items"] = json!({"type": "string"});
    let mut properties = json!({
        "agentId": {"type": "string"}, content: {}, "sessionId": {"type": "string"},
        "context": narrowed(),
        "contextIds": buckets,
        "loads": {"type": "object", "description": "Paths that the session shows from now on, each with null or {label, budget}"},
        "sessionContext": trusted(
            "object",
            "Values of the request, such as the entities that it is about; who asks is said by the token."
        ),
    });
    if let (Value::Object(properties), Value::Object(more)) = (&mut properties, more) {
        properties.extend(more);
    }
    schema(&properties, &["agentId", content])
}

/// What a request may do at most. A model may name it too: it hands on the same or less, or the call is refused.
pub(crate) fn narrowed() -> Value {
    let about = "What the request may do at most, no more than you: namespaces of resources, or {with, can}; absent: what you may hand on.";
    json!({"type": "array", "description": about})
}

/// How urgent a task is.
pub(crate) fn priority_schema() -> Value {
    json!({"enum": [-1, 0, 1], "description": "1 goes before the other tasks of the agent, -1 behind them; 0 by default"})
}

impl Verb {
    fn spec(self) -> Spec {
        let text = || json!({"type": "string"});
        let millis = || json!({"type": "integer", "minimum": 0});
        let (path, description, input, effect) = match self {
            Self::Create => (
                "v/ops/agent/create",
                "Create an agent; when it exists nothing changes unless `overwrite` is true. A terminated one is replaced then, and active again.",
                schema(
                    &json!({
                        "agentId": text(), "state": {"type": "object"},
                        "config": layers::input("What it is to be"),
                        "definition": layers::input("What it is as long as `config` doesn't say otherwise"),
                        "overwrite": {"type": "boolean"}, "strict": strict_schema(),
                        "dryRun": {"type": "boolean", "description": "Say what would be warned of, and change nothing"}
                    }),
                    &["agentId"],
                ),
                Effect::Idempotent,
            ),
            Self::Request => (
                "v/ops/agent/request",
                "Give a task to an agent. A fast answer comes back at once; otherwise status is STARTED and the result arrives later as a pending job result.",
                asking(
                    "input",
                    json!({
                        "wait": millis(), "timeout": millis(), "budget": budget_schema(),
                        "responseSchema": {"type": "object", "description": "JSON Schema of the output"},
                        "strict": {"type": "boolean", "description": "an output that isn't what `responseSchema` says fails the task, which is always so"},
                        "priority": priority_schema(),
                        "outputPath": {"type": "string", "description": "where the output is written with the commit that completes the task, below w/ or o/"}
                    }),
                ),
                Effect::Idempotent,
            ),
            Self::Message => (
                "v/ops/agent/message",
                "Send a one-way message to an agent; no answer is awaited.",
                asking("message", json!({})),
                Effect::Idempotent,
            ),
            Self::Chat => (
                "v/ops/agent/chat",
                "Send a message to an agent and wait for its next reply: in a new session, whose id is in the answer, or in one that there is.",
                asking("message", json!({"timeout": millis()})),
                Effect::Idempotent,
            ),
            Self::Info => (
                "v/ops/agent/info",
                "What an agent is and does: status, configuration, open tasks.",
                schema(&json!({"agentId": text()}), &["agentId"]),
                Effect::Read,
            ),
            Self::List => ("v/ops/agent/list", "The owner's agents.", schema(&page_schema(), &[]), Effect::Read),
        };
        Spec { path, description, input, effect }
    }

    const fn ability(self) -> &'static str {
        match self {
            Self::Create => "agent/create",
            Self::Request => "agent/request",
            Self::Message | Self::Chat => "agent/message",
            Self::Info | Self::List => "crud/read",
        }
    }
}

#[async_trait]
impl Operation for Agent {
    fn spec(&self) -> Spec {
        self.0.spec()
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError> {
        let resource = match self.0 {
            Verb::List => ResourcePath::all(Namespace::Agents),
            Verb::Create | Verb::Request | Verb::Message | Verb::Chat | Verb::Info => {
                ResourcePath::agent(&agent_id(arguments)?)
            }
        };
        let mut needs = vec![Need { ability: self.0.ability(), resource }];
        if let (Verb::Request, Some(path)) = (self.0, arguments["outputPath"].as_str()) {
            let path = options::output_path(path).map_err(|e| OpError::Invalid(format!("`outputPath`: {e}")))?;
            needs.push(Need { ability: "crud/write", resource: (&path).into() });
        }
        if let Verb::Create = self.0 {
            needs.extend(layers::needs(&[&arguments["definition"], &arguments["config"]])?);
        }
        Ok(needs)
    }

    async fn invoke(&self, call: &Invocation<'_>, arguments: Value) -> Result<Output, OpError> {
        match self.0 {
            Verb::Create => create(call, &arguments).await.map(Into::into),
            Verb::Request => ask::request(call, &arguments).await,
            Verb::Message => ask::message(call, &arguments).await.map(Into::into),
            Verb::Chat => ask::chat(call, &arguments).await.map(Into::into),
            Verb::Info => {
                let id = agent_id(&arguments)?;
                let info = agents::info(call.venue, &call.caller.owner, &id).await?;
                info.map(Into::into).ok_or_else(|| no_agent(&id))
            }
            Verb::List => {
                let after = arguments["after"].as_str().map(AgentId::new).transpose();
                let after = after.map_err(|error| OpError::Invalid(format!("`after`: {error}")))?;
                let limit = number(&arguments, "limit", LIST_PAGE).clamp(1, LIST_PAGE);
                let agents = agents::list(call.venue, &call.caller.owner, after.as_ref(), limit).await?;
                let statuses = agents::statuses(call.venue, &call.caller.owner, &agents).await?;
                let next = agents.last().filter(|_| agents.len() == limit).map(|agent| agent.id.clone());
                let shown: Vec<_> = agents
                    .iter()
                    .zip(statuses)
                    .map(|(a, status)| json!({"agentId": a.id, "status": status, "description": a.description}))
                    .collect();
                Ok(json!({"agents": shown, "next": next}).into())
            }
        }
    }
}

fn no_agent(id: &AgentId) -> OpError {
    OpError::NotFound(format!("no agent `{id}`"))
}

async fn create(call: &Invocation<'_>, arguments: &Value) -> Result<Value, OpError> {
    let id = agent_id(arguments)?;
    let config = layers::resolved(call, &[&arguments["definition"], &arguments["config"]]).await?;
    call.reads.went(&[format!("g/{id}")]);
    let config = config.map_or(Value::Null, Value::Object);
    let state = &arguments["state"];
    let given = match (config.is_null(), state.is_null()) {
        (true, true) => return Err(OpError::Invalid("expected `config` with at least `model`".into())),
        (false, true) => config.clone(),
        (true, false) => json!({"state": state}),
        (false, false) => {
            let mut given = config.clone();
            if let Some(map) = given.as_object_mut() {
                map.insert("state".into(), state.clone());
            }
            given
        }
    };
    let config = AgentConfig::parse(&given).map_err(|e| OpError::Invalid(format!("`config`: {e}")))?;
    let resources = call.venue.catalog.resources.check(&config);
    resources.map_err(|error| OpError::Invalid(format!("`config`: {error}")))?;
    if let Some(need) = key_needed(&json!(config)) {
        // Of what is stored nobody knows before it is read.
        let permitted = call.caller.authority.permits(need.ability, &need.resource);
        permitted.map_err(|denied| OpError::Denied(denied.text(call.named)))?;
    }
    let warnings = agents::names::checked(call.venue, &call.caller.owner, &config, arguments["strict"] == true);
    let warnings = warnings.map_err(|error| OpError::Invalid(format!("`config`: {error}")))?;
    if arguments["dryRun"] == true {
        return Ok(json!({"agentId": id, "dryRun": true, "warnings": warnings}));
    }
    let overwrite = arguments["overwrite"].as_bool().unwrap_or(false);
    if overwrite && matches!(call.site, Site::Turn(_)) {
        // Else an agent could take away the question that people want to be asked.
        let known = agents::get(call.venue, &call.caller.owner, &id).await?;
        if known.is_some_and(|(record, _)| record.config.asks_people() && record.config != config) {
            return Err(OpError::Denied(format!(
                "agent `{id}` asks people before it calls some of its tools: only people change its configuration"
            )));
        }
    }
    let (record, applied) = agents::apply(call.venue, &call.caller.owner, &id, &config, overwrite, call.caller).await?;
    Ok(json!({
        "agentId": id,
        "status": agents::doing(call.venue, &call.caller.owner, (&id, record.status)).await?,
        "created": applied == agents::Applied::Created,
        "updated": applied == agents::Applied::Updated,
        "configVersion": record.config_version,
        "warnings": warnings,
    }))
}
