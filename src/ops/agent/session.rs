//! What is done to a session from outside its turns: `rename-session`, `compact-session`,
//! `reload-context`, `delete-session`; and `context`, what its next turn would see.

use super::sessions::session_key;
use super::{agent_id, no_agent, schema};
use crate::domain::authority::{Authority, ResourcePath};
use crate::domain::chat::{ChatMessage, ModelRequest};
use crate::domain::context::inputs::Inputs;
use crate::domain::context::ledger::{Row, Status};
use crate::domain::decode;
use crate::domain::ids::{AgentId, SessionKey};
use crate::domain::lattice::layout::Scope;
use crate::domain::session::SessionState;
use crate::venue::agents::{self, amend, sessions};
use crate::venue::context::preview::{self, Preview, PreviewError};
use crate::venue::ledger::experiment::run;
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, Output, UntypedOperation as Operation, UntypedSpec as Spec,
};
use crate::venue::policy;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Clone, Copy)]
enum Verb {
    Rename,
    Compact,
    Reload,
    Delete,
    Context,
}

struct Session(Verb);

/// The operations of this group.
pub(super) fn operations() -> impl Iterator<Item = Arc<dyn Operation>> {
    let verbs = [Verb::Rename, Verb::Compact, Verb::Reload, Verb::Delete, Verb::Context];
    verbs.into_iter().map(|verb| Arc::new(Session(verb)) as Arc<dyn Operation>)
}

impl From<PreviewError> for OpError {
    fn from(error: PreviewError) -> Self {
        let text = error.to_string();
        match error {
            PreviewError::NoAgent(_) | PreviewError::NoSession(_) => Self::NotFound(text),
            PreviewError::Grant(_) => Self::Invalid(text),
            PreviewError::Withheld(_) => Self::Denied(text),
            PreviewError::Store(error) => Self::Store(error),
        }
    }
}

#[async_trait]
impl Operation for Session {
    fn spec(&self) -> Spec {
        let text = |about: &str| json!({"type": "string", "description": about});
        let mut properties = json!({"agentId": {"type": "string"}, "sessionId": {"type": "string"}});
        let mut required = vec!["agentId", "sessionId"];
        let (path, description, effect) = match self.0 {
            Verb::Rename => {
                properties["title"] = text("what people call it, at most 200 bytes; absent: nothing any more");
                ("v/ops/agent/rename-session", "Give a session a title. No prompt has it.", Effect::Idempotent)
            }
            Verb::Compact => {
                properties["summary"] = text("what is to be known of the turns so far, at most 16 KiB");
                required.push("summary");
                (
                    "v/ops/agent/compact-session",
                    "Let a summary stand for all turns of a session so far: from its next turn on its prompts have the summary in their stead. The turns stay in the store. A session that serves a task, or waits for a person, is refused.",
                    Effect::Idempotent,
                )
            }
            Verb::Reload => (
                "v/ops/agent/reload-context",
                "Read everything again that a session's context is made of, and say what of it can't be read. Every turn does so by itself: nothing of a context is kept from turn to turn.",
                Effect::Read,
            ),
            Verb::Delete => (
                "v/ops/agent/delete-session",
                "Delete a session with its turns, its mail and its `c/`: its open tasks are cancelled. Its jobs stay until they are deleted.",
                Effect::Idempotent,
            ),
            Verb::Context => {
                properties["task"] = json!({"description": "with this task besides what waits"});
                required.pop();
                (
                    "v/ops/agent/context",
                    "The prompt that the next turn of a session would have, by default the first one of a new session, as text. Nothing is changed by looking.",
                    Effect::Read,
                )
            }
        };
        Spec { path, description, input: schema(&properties, &required), effect }
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError> {
        let ability = match self.0 {
            Verb::Rename | Verb::Compact | Verb::Delete => "agent/session",
            Verb::Reload | Verb::Context => "crud/read",
        };
        Ok(vec![Need { ability, resource: ResourcePath::agent(&agent_id(arguments)?) }])
    }

    async fn invoke(&self, call: &Invocation<'_>, arguments: Value) -> Result<Output, OpError> {
        let agent = agent_id(&arguments)?;
        if agents::get(call.venue, &call.caller.owner, &agent).await?.is_none() {
            return Err(no_agent(&agent));
        }
        if let Verb::Context = self.0 {
            let session = arguments["sessionId"].is_string().then(|| session_key(&arguments)).transpose()?;
            let text = shown(call, &agent, session, &arguments["task"]).await?;
            return Ok(Value::from(text).into());
        }
        let key = session_key(&arguments)?;
        let (venue, owner) = (call.venue, &call.caller.owner);
        let mut answer = json!({"agentId": agent, "sessionId": key.session});
        match self.0 {
            Verb::Rename => {
                let title = arguments["title"].as_str();
                amend::rename(venue, owner, &key, title).await?;
                answer["title"] = title.into();
            }
            Verb::Compact => {
                let summary = arguments["summary"].as_str().unwrap_or_default();
                let archived = amend::compact(venue, owner, &key, summary, under(call, &agent).await?).await?;
                (answer["compacted"], answer["archivedTurns"]) = ((archived > 0).into(), archived.into());
            }
            Verb::Reload => {
                let (frames, unread) = reloaded(call, &key).await?;
                (answer["reloaded"], answer["frames"]) = (true.into(), frames.into());
                answer["unread"] = unread.into();
            }
            Verb::Delete => answer["deleted"] = amend::delete(venue, owner, &key).await?.into(),
            Verb::Context => {}
        }
        Ok(answer.into())
    }
}

/// What a turn of the agent for this caller could see, and so what its summary may stand for.
async fn under(call: &Invocation<'_>, agent: &AgentId) -> Result<(Authority, Authority), OpError> {
    let owner = &call.caller.owner;
    let Some((record, _)) = agents::get(call.venue, owner, agent).await? else { return Err(no_agent(agent)) };
    let (policy, _) = policy::load(&*call.venue.store, owner).await?;
    let envelope = call.caller.request();
    Ok((record.authority(&policy, &envelope, &Scope::default()).nowhere(), envelope.bound))
}

async fn inputs(call: &Invocation<'_>, agent: &AgentId, asked: Preview) -> Result<Inputs, OpError> {
    let caller = Some(call.caller.name.clone());
    let asked = Preview { envelope: call.caller.request(), caller, ..asked };
    Ok(preview::inputs(call.venue, &call.caller.owner, agent, asked).await?)
}

/// The open frames of a session, and the sections of its context that can't be read.
async fn reloaded(call: &Invocation<'_>, key: &SessionKey) -> Result<(usize, Vec<Value>), OpError> {
    let asked = Preview { session: Some(key.session.clone()), ..Preview::default() };
    let inputs = inputs(call, &key.agent, asked).await?;
    let (Ok(ledger) | Err(ledger)) = run(&inputs).map(|made| made.ledger).map_err(|refused| refused.ledger);
    let is_unread = |row: &&Row| matches!(row.status, Status::Missing | Status::Denied | Status::Failed);
    let unread = ledger.rows.iter().filter(is_unread);
    let unread = unread.map(|row| json!({"key": row.key, "status": row.status.as_str(), "reason": row.reason}));
    let unread: Vec<Value> = unread.collect();
    let facts = sessions::find(call.venue, &call.caller.owner, key).await?;
    let state = facts.and_then(|facts| decode::stored::<SessionState>(&facts.state?).ok()).unwrap_or_default();
    Ok((1 + state.goals.frames.len(), unread))
}

async fn shown(
    call: &Invocation<'_>,
    agent: &AgentId,
    session: Option<SessionKey>,
    task: &Value,
) -> Result<String, OpError> {
    let task = Some(task.clone()).filter(|task| !task.is_null());
    let asked = Preview { task, session: session.map(|key| key.session), ..Preview::default() };
    let inputs = inputs(call, agent, asked).await?;
    let made = run(&inputs).map_err(|refused| OpError::Conflict(refused.error.to_string()))?;
    Ok(text(&made.request))
}

/// A prompt as people read it.
fn text(request: &ModelRequest) -> String {
    let mut lines = vec![request.system.clone()];
    lines.extend(request.messages.iter().map(|message| match message {
        ChatMessage::User { text } => format!("[user]\n{text}"),
        ChatMessage::Assistant { text, calls } => {
            let calls = calls.iter().map(|call| format!("\n-> {} {}", call.name, call.arguments.shown()));
            format!("[assistant]\n{text}{}", calls.collect::<String>())
        }
        ChatMessage::Tool { name, text, .. } => format!("[{name}]\n{text}"),
    }));
    let tools: Vec<_> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    lines.push(format!("[tools]\n{}", if tools.is_empty() { "none".to_owned() } else { tools.join(", ") }));
    lines.join("\n\n")
}
