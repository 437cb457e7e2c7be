//! Sessions of agents: `sessions`, `session-read`, `session-fork`.

use super::{agent_id, no_agent, number, schema};
use crate::domain::authority::ResourcePath;
use crate::domain::expiry::Ttl;
use crate::domain::ids::{AgentId, SessionId, SessionKey};
use crate::domain::limits::{LIST_BYTES, SESSIONS_PAGE, TURNS_PAGE};
use crate::venue::agents::transcript::{self, TranscriptRange};
use crate::venue::agents::{self, sessions};
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, Output, UntypedOperation as Operation, UntypedSpec as Spec,
};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Clone, Copy)]
enum Verb {
    List,
    Read,
    Fork,
}

struct Sessions(Verb);

/// The operations of this group.
pub(super) fn operations() -> impl Iterator<Item = Arc<dyn Operation>> {
    [Verb::List, Verb::Read, Verb::Fork].into_iter().map(|verb| Arc::new(Sessions(verb)) as Arc<dyn Operation>)
}

fn session_id(arguments: &Value, key: &str) -> Result<Option<SessionId>, OpError> {
    let Some(text) = arguments[key].as_str() else { return Ok(None) };
    SessionId::new(text).map(Some).map_err(|e| OpError::Invalid(format!("`{key}`: {e}")))
}

pub(super) fn session_key(arguments: &Value) -> Result<SessionKey, OpError> {
    let session = session_id(arguments, "sessionId")?;
    let session = session.ok_or_else(|| OpError::Invalid("expected `sessionId`".into()))?;
    Ok(SessionKey { agent: agent_id(arguments)?, session })
}

/// A page's size; at most `most`.
fn limit(arguments: &Value, most: usize) -> usize {
    let asked = arguments["limit"].as_u64().map_or(most, |limit| usize::try_from(limit).unwrap_or(most));
    asked.clamp(1, most)
}

#[async_trait]
impl Operation for Sessions {
    fn spec(&self) -> Spec {
        let text = || json!({"type": "string"});
        let number = |least: u64, about: &str| json!({"type": "integer", "minimum": least, "description": about});
        let (path, description, input, effect) = match self.0 {
            Verb::List => (
                "v/ops/agent/sessions",
                "An agent's sessions by id: status, turns, what waits. `next` of a page is `after` of the page behind it.",
                schema(
                    &json!({
                        "agentId": text(), "after": text(), "limit": number(1, "at most 200"),
                        "offset": number(0, "so many are left out, instead of `after`")
                    }),
                    &["agentId"],
                ),
                Effect::Read,
            ),
            Verb::Read => (
                "v/ops/agent/session-read",
                "The transcript of a session. With `after` or `limit` turn by turn, oldest first: `next` of a page is `after` of the page behind it. Else its `messages`, the newest, by default of the session in which something happened last; where a summary stands for turns it has the summary.",
                schema(
                    &json!({
                        "agentId": text(), "sessionId": text(),
                        "after": number(0, "turns up to this one are left out"), "limit": number(1, "at most 100"),
                        "maxTurns": number(1, "turns whose messages are wanted, at most 100"),
                        "maxChars": number(0, "characters of messages"),
                        "archiveDepth": number(0, "from 1 on: the turns that summaries stand for, not the summaries, and those before the session's time to live was over")
                    }),
                    &["agentId"],
                ),
                Effect::Read,
            ),
            Verb::Fork => (
                "v/ops/agent/session-fork",
                "Branch a conversation: a new session of the same agent with the turns of another up to and with `at`. It has no open task, no pending result and no question to a person.",
                schema(
                    &json!({"agentId": text(), "sessionId": text(), "at": number(1, "a turn"), "to": text()}),
                    &["agentId", "sessionId", "at"],
                ),
                Effect::Once,
            ),
        };
        Spec { path, description, input, effect }
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError> {
        let ability = match self.0 {
            Verb::List | Verb::Read => "crud/read",
            Verb::Fork => "agent/fork",
        };
        Ok(vec![Need { ability, resource: ResourcePath::agent(&agent_id(arguments)?) }])
    }

    async fn invoke(&self, call: &Invocation<'_>, arguments: Value) -> Result<Output, OpError> {
        match self.0 {
            Verb::List => list(call, &arguments).await.map(Into::into),
            Verb::Read => read(call, &arguments).await.map(Into::into),
            Verb::Fork => fork(call, &arguments).await.map(Into::into),
        }
    }
}

/// How long an agent's sessions live, when there is such an agent.
async fn known(call: &Invocation<'_>, agent: &AgentId) -> Result<Option<Ttl>, OpError> {
    let known = agents::get(call.venue, &call.caller.owner, agent).await?;
    known.map(|(record, _)| record.config.session.ttl).ok_or_else(|| no_agent(agent))
}

async fn list(call: &Invocation<'_>, arguments: &Value) -> Result<Value, OpError> {
    let agent = agent_id(arguments)?;
    let ttl = known(call, &agent).await?;
    let of = (&agent, ttl.as_ref());
    let (mut after, limit) = (session_id(arguments, "after")?, limit(arguments, SESSIONS_PAGE));
    let offset = arguments["offset"].as_u64();
    if offset.is_some() && after.is_some() {
        return Err(OpError::Invalid("expected one of `after` and `offset`".into()));
    }
    let mut left = usize::try_from(offset.unwrap_or(0)).unwrap_or(usize::MAX);
    while left > 0 {
        let step = left.min(SESSIONS_PAGE);
        let (passed, next) = sessions::list(call.venue, &call.caller.owner, of, after.as_ref(), step).await?;
        left -= passed.len();
        after = next;
        if after.is_none() {
            return Ok(json!({"agentId": agent, "sessions": [], "count": 0, "offset": offset, "next": null}));
        }
    }
    let (sessions, next) = sessions::list(call.venue, &call.caller.owner, of, after.as_ref(), limit).await?;
    let count = sessions.len();
    Ok(json!({"agentId": agent, "sessions": sessions, "count": count, "offset": offset, "next": next}))
}

/// The messages of a session, the newest, as clients of chats show them.
async fn messages(call: &Invocation<'_>, arguments: &Value) -> Result<Value, OpError> {
    let agent = agent_id(arguments)?;
    let ttl = known(call, &agent).await?;
    let (venue, owner) = (call.venue, &call.caller.owner);
    let session = match session_id(arguments, "sessionId")? {
        Some(session) => Some(session),
        None => transcript::newest(venue, owner, &agent).await?,
    };
    let mut answer = json!({"agentId": agent, "found": false, "sessionId": session, "messages": []});
    let Some(session) = session else { return Ok(answer) };
    let wanted = TranscriptRange {
        ttl: ttl.as_ref(),
        turns: number(arguments, "maxTurns", TURNS_PAGE),
        chars: number(arguments, "maxChars", LIST_BYTES),
        archived: number(arguments, "archiveDepth", 0) > 0,
    };
    let key = SessionKey { agent, session };
    let read = transcript::read(venue, (owner, &call.caller.reads()), &key, wanted).await?;
    if let (Some(Value::Object(read)), Value::Object(answer)) = (read, &mut answer) {
        answer.insert("found".into(), true.into());
        answer.extend(read);
    }
    Ok(answer)
}

async fn read(call: &Invocation<'_>, arguments: &Value) -> Result<Value, OpError> {
    if arguments["after"].is_null() && arguments["limit"].is_null() {
        return messages(call, arguments).await;
    }
    let key = session_key(arguments)?;
    let ttl = known(call, &key.agent).await?;
    let (venue, owner) = (call.venue, &call.caller.owner);
    let (after, limit) = (arguments["after"].as_u64().unwrap_or(0), limit(arguments, TURNS_PAGE));
    let over = if number(arguments, "archiveDepth", 0) > 0 {
        0
    } else {
        sessions::over(venue, owner, &key, ttl.as_ref()).await?
    };
    let after = after.max(over);
    let (turns, next) = sessions::read(venue, (owner, &call.caller.reads()), &key, after, limit).await?;
    if turns.is_empty() && after == 0 && sessions::find(venue, owner, &key).await?.is_none() {
        return Err(OpError::NotFound(format!("no session `{key}`: nothing was ever sent to it")));
    }
    Ok(json!({"agentId": key.agent, "sessionId": key.session, "turns": turns, "next": next}))
}

async fn fork(call: &Invocation<'_>, arguments: &Value) -> Result<Value, OpError> {
    let from = session_key(arguments)?;
    let at = arguments["at"].as_u64().unwrap_or_default();
    let to = session_id(arguments, "to")?;
    let forked = sessions::fork(call.venue, &call.caller.owner, &from, at, to).await?;
    Ok(json!({"agentId": forked.agent, "sessionId": forked.session, "from": from.session, "turns": at}))
}
