//! Sessions of agents: `sessions`, `session-read`, `session-fork`.

use super::checks::find_existing;
use crate::domain::authority::ResourcePath;
use crate::domain::expiry::Ttl;
use crate::domain::ids::{AgentId, SessionId, SessionKey};
use crate::domain::limits::{LIST_BYTES, SESSIONS_PAGE, TURNS_PAGE};
use crate::venue::agents::sessions;
use crate::venue::agents::transcript::{self, TranscriptRange};
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, operation};
use crate::venue::waits;
use crate::view::job::WaitView;
use crate::view::session::{ForkedSessionView, MissingConversationView, SessionPage, SessionTurnsPage};
use schemars::JsonSchema;
use serde::Deserialize;

/// Returns the operations of this group.
pub(super) fn operations() -> Vec<RegisteredOperation> {
    vec![operation::<ListSessions>(), operation::<ReadSession>(), operation::<ForkSession>()]
}

/// Returns how long the sessions of an existing agent live.
async fn session_ttl(call: &Invocation<'_>, agent: &AgentId) -> Result<Option<Ttl>, OpError> {
    Ok(find_existing(call, agent).await?.config.session.ttl)
}

/// An agent's sessions by id: status, turns, what waits. `next` of a page is `after` of the page behind it.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ListSessions {
    agent_id: AgentId,
    after: Option<SessionId>,
    /// at most 200
    #[schemars(range(min = 1))]
    limit: Option<usize>,
    /// so many are left out, instead of `after`
    offset: Option<usize>,
}

impl Operation for ListSessions {
    const PATH: &'static str = "v/ops/agent/sessions";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("crud/read", ResourcePath::agent(&self.agent_id))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let Self { agent_id: agent, mut after, limit, offset } = self;
        let ttl = session_ttl(call, &agent).await?;
        let (owner, ttl) = (&call.caller.owner, ttl.as_ref());
        if offset.is_some() && after.is_some() {
            return Err(OpError::Invalid("expected one of `after` and `offset`".into()));
        }
        let mut left = offset.unwrap_or(0);
        while left > 0 {
            let step = left.min(SESSIONS_PAGE);
            let (passed, next) = sessions::list(call.venue, owner, &agent, ttl, after.as_ref(), step).await?;
            left -= passed.len();
            after = next;
            if after.is_none() {
                let none = SessionPage { agent_id: agent, sessions: Vec::new(), count: 0, offset, next: None };
                return Ok(OpOutput::of(&none));
            }
        }
        let limit = limit.unwrap_or(SESSIONS_PAGE).clamp(1, SESSIONS_PAGE);
        let (sessions, next) = sessions::list(call.venue, owner, &agent, ttl, after.as_ref(), limit).await?;
        let count = sessions.len();
        Ok(OpOutput::of(&SessionPage { agent_id: agent, sessions, count, offset, next }))
    }
}

/// The transcript of a session. With `after` or `limit` turn by turn, oldest first: `next` of a page is `after` of the page
/// behind it. Else its `messages`, the newest, by default of the session in which something happened last; where a summary
/// stands for turns it has the summary.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ReadSession {
    agent_id: AgentId,
    session_id: Option<SessionId>,
    /// turns up to this one are left out
    after: Option<u64>,
    /// at most 100
    #[schemars(range(min = 1))]
    limit: Option<usize>,
    /// turns whose messages are wanted, at most 100
    #[schemars(range(min = 1))]
    max_turns: Option<usize>,
    /// characters of messages
    max_chars: Option<usize>,
    /// from 1 on: the turns that summaries stand for, not the summaries, and those before the session's time to live was over
    #[serde(default)]
    archive_depth: usize,
}

impl Operation for ReadSession {
    const PATH: &'static str = "v/ops/agent/session-read";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("crud/read", ResourcePath::agent(&self.agent_id))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let by_turns = self.after.is_some() || self.limit.is_some();
        if by_turns { self.read_turns(call).await } else { self.read_messages(call).await }
    }
}

/// Notes that a conversation was read, because it contains what its models have seen.
fn note_read(call: &Invocation<'_>, key: &SessionKey) {
    call.reads.note_kept(ResourcePath::agent(&key.agent), format!("g/{}/sessions/{}", key.agent, key.session));
}

impl ReadSession {
    /// Returns the newest messages of a session, as chat clients show them.
    async fn read_messages(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let agent = self.agent_id;
        let ttl = session_ttl(call, &agent).await?;
        let (venue, owner) = (call.venue, &call.caller.owner);
        let session = match self.session_id {
            Some(session) => Some(session),
            None => transcript::newest_session(venue, owner, &agent).await?,
        };
        let missing = |agent_id, session_id| {
            OpOutput::of(&MissingConversationView { agent_id, found: false, session_id, messages: Vec::new() })
        };
        let Some(session) = session else { return Ok(missing(agent, None)) };
        let wanted = TranscriptRange {
            ttl: ttl.as_ref(),
            turns: self.max_turns.unwrap_or(TURNS_PAGE),
            chars: self.max_chars.unwrap_or(LIST_BYTES),
            archived: self.archive_depth > 0,
        };
        let key = SessionKey { agent, session };
        note_read(call, &key);
        let read = transcript::read(venue, owner, &call.caller.reading_authority(), &key, wanted).await?;
        Ok(read.map_or_else(|| missing(key.agent, Some(key.session)), |read| OpOutput::of(&read)))
    }

    async fn read_turns(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let session = self.session_id.ok_or_else(|| OpError::Invalid("expected `sessionId`".into()))?;
        let key = SessionKey { agent: self.agent_id, session };
        let ttl = session_ttl(call, &key.agent).await?;
        let (venue, owner) = (call.venue, &call.caller.owner);
        let limit = self.limit.unwrap_or(TURNS_PAGE).clamp(1, TURNS_PAGE);
        let over = if self.archive_depth > 0 {
            0
        } else {
            sessions::last_expired_turn(venue, owner, &key, ttl.as_ref()).await?
        };
        let after = self.after.unwrap_or(0).max(over);
        note_read(call, &key);
        let (turns, next) = sessions::read(venue, owner, &call.caller.reading_authority(), &key, after, limit).await?;
        if turns.is_empty() && after == 0 && sessions::find(venue, owner, &key).await?.is_none() {
            return Err(OpError::NotFound(format!("no session `{key}`: nothing was ever sent to it")));
        }
        let waiting = waits::session_reason(venue, owner, &call.caller.reader(), &key).await?;
        let waiting = waiting.as_ref().map(WaitView::from);
        let SessionKey { agent: agent_id, session: session_id } = key;
        Ok(OpOutput::of(&SessionTurnsPage { agent_id, session_id, turns, next, waiting }))
    }
}

/// Branch a conversation: a new session of the same agent with the turns of another up to and with `at`. It has no open
/// task, no pending result and no question to a person.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ForkSession {
    agent_id: AgentId,
    session_id: SessionId,
    /// number of the last turn that is copied
    #[schemars(range(min = 1))]
    at: u64,
    to: Option<SessionId>,
}

impl Operation for ForkSession {
    const PATH: &'static str = "v/ops/agent/session-fork";
    const EFFECT: Effect = Effect::Once;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("agent/fork", ResourcePath::agent(&self.agent_id))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let from = SessionKey { agent: self.agent_id, session: self.session_id };
        let forked = sessions::fork(call.venue, &call.caller.owner, &from, self.at, self.to).await?;
        Ok(OpOutput::of(&ForkedSessionView {
            agent_id: forked.agent,
            session_id: forked.session,
            from: from.session,
            turns: self.at,
        }))
    }
}
