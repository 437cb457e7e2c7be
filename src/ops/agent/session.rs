//! Changes of a session from outside its turns: `rename-session`, `compact-session`, `reload-context`,
//! `delete-session`; and `context`, a preview of its next turn.

use super::checks::{check_fills_no_prompt, check_hides_nothing, find_existing};
use crate::domain::agent::AgentRecord;
use crate::domain::authority::ResourcePath;
use crate::domain::chat::{ChatMessage, ModelRequest};
use crate::domain::context::inputs::Inputs;
use crate::domain::context::ledger::{PromptLedger, Row, RowStatus};
use crate::domain::decode;
use crate::domain::goal::SummaryAuthority;
use crate::domain::ids::{AgentId, SessionId, SessionKey};
use crate::domain::lattice::layout::Scope;
use crate::domain::lines;
use crate::domain::origin::full_path;
use crate::domain::session::SessionState;
use crate::venue::agents::{amend, sessions};
use crate::venue::context::preview::{self, Preview, PreviewError};
use crate::venue::ledger::experiment::assemble_prompt;
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, operation};
use crate::venue::policy;
use crate::view::session::{
    CompactedSessionView, DeletedSessionView, ReloadedContextView, RenamedSessionView, UnreadSectionView,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// Returns the operations of this group.
pub(super) fn operations() -> Vec<RegisteredOperation> {
    vec![
        operation::<RenameSession>(),
        operation::<CompactSession>(),
        operation::<ReloadContext>(),
        operation::<DeleteSession>(),
        operation::<PreviewContext>(),
    ]
}

impl From<PreviewError> for OpError {
    fn from(error: PreviewError) -> Self {
        let text = error.to_string();
        match error {
            PreviewError::NoAgent(_) | PreviewError::NoSession(_) => Self::NotFound(text),
            PreviewError::NoTask(_) | PreviewError::Pipeline(_) | PreviewError::Grant(_) => Self::Invalid(text),
            PreviewError::Withheld(_) => Self::Denied(text),
            PreviewError::Store(error) => Self::Store(error),
        }
    }
}

/// Returns the key of a session whose agent exists; whether the session does isn't checked.
async fn session_of(call: &Invocation<'_>, agent: AgentId, session: SessionId) -> Result<SessionKey, OpError> {
    find_existing(call, &agent).await?;
    Ok(SessionKey { agent, session })
}

/// Give a session a title. No prompt has it.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RenameSession {
    agent_id: AgentId,
    session_id: SessionId,
    /// what people call it, at most 200 bytes; absent: nothing any more
    title: Option<String>,
}

impl Operation for RenameSession {
    const PATH: &'static str = "v/ops/agent/rename-session";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("agent/session", ResourcePath::agent(&self.agent_id))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let key = session_of(call, self.agent_id, self.session_id).await?;
        amend::rename(call.venue, &call.caller.owner, &key, self.title.as_deref()).await?;
        let SessionKey { agent: agent_id, session: session_id } = key;
        Ok(OpOutput::of(&RenamedSessionView { agent_id, session_id, title: self.title }))
    }
}

/// Let a summary stand for all turns of a session so far: from its next turn on its prompts have the summary in their
/// stead. The turns stay in the store. A session that serves a task, or waits for a person, is refused.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CompactSession {
    agent_id: AgentId,
    session_id: SessionId,
    /// what is to be known of the turns so far, at most 16 KiB
    summary: String,
}

impl Operation for CompactSession {
    const PATH: &'static str = "v/ops/agent/compact-session";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("agent/session", ResourcePath::agent(&self.agent_id))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let under = summary_authority(call, &find_existing(call, &self.agent_id).await?).await?;
        let key = SessionKey { agent: self.agent_id, session: self.session_id };
        let archived_turns = amend::compact(call.venue, &call.caller.owner, &key, &self.summary, under).await?;
        let SessionKey { agent: agent_id, session: session_id } = key;
        let compacted = archived_turns > 0;
        Ok(OpOutput::of(&CompactedSessionView { agent_id, session_id, compacted, archived_turns }))
    }
}

/// Read everything again that a session's context is made of, and say what of it can't be read. Every turn does so by
/// itself: nothing of a context is kept from turn to turn.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ReloadContext {
    agent_id: AgentId,
    session_id: SessionId,
}

impl Operation for ReloadContext {
    const PATH: &'static str = "v/ops/agent/reload-context";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("crud/read", ResourcePath::agent(&self.agent_id))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        check_fills_no_prompt::<Self>(call)?;
        let key = session_of(call, self.agent_id, self.session_id).await?;
        let (frames, unread) = reload_context(call, &key).await?;
        let SessionKey { agent: agent_id, session: session_id } = key;
        Ok(OpOutput::of(&ReloadedContextView { agent_id, session_id, reloaded: true, frames, unread }))
    }
}

/// Delete a session with its turns, its mail and its `c/`: its open tasks are cancelled. Its jobs stay until they are
/// deleted.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DeleteSession {
    agent_id: AgentId,
    session_id: SessionId,
}

impl Operation for DeleteSession {
    const PATH: &'static str = "v/ops/agent/delete-session";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("agent/session", ResourcePath::agent(&self.agent_id))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let key = session_of(call, self.agent_id, self.session_id).await?;
        let deleted = amend::delete(call.venue, &call.caller.owner, &key).await?;
        let SessionKey { agent: agent_id, session: session_id } = key;
        Ok(OpOutput::of(&DeletedSessionView { agent_id, session_id, deleted }))
    }
}

/// The prompt that the next turn of a session would have, by default the first one of a new session, as text. Nothing is
/// changed by looking.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PreviewContext {
    agent_id: AgentId,
    session_id: Option<SessionId>,
    /// with this task besides what waits
    task: Option<Value>,
}

impl Operation for PreviewContext {
    const PATH: &'static str = "v/ops/agent/context";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("crud/read", ResourcePath::agent(&self.agent_id))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        check_fills_no_prompt::<Self>(call)?;
        check_hides_nothing(call)?;
        find_existing(call, &self.agent_id).await?;
        let asked = Preview { task: self.task, session: self.session_id, ..Preview::default() };
        let inputs = preview_inputs(call, &self.agent_id, asked).await?;
        let made = assemble_prompt(&inputs).map_err(|refused| OpError::Conflict(refused.error.to_string()))?;
        note_prompt(call, &self.agent_id, &inputs, &made.ledger);
        Ok(Value::from(prompt_text(&made.request)).into())
    }
}

/// Notes what a prompt shows that was read: its sources, and the conversation before it.
fn note_prompt(call: &Invocation<'_>, agent: &AgentId, inputs: &Inputs, ledger: &PromptLedger) {
    // The name of the turn is `owner/agent/session/turn`.
    let session = inputs.moment.turn.rsplit('/').nth(1).unwrap_or_default();
    let note = |path: &str| call.reads.note_kept(ResourcePath::agent(agent), full_path(path, agent.as_str(), session));
    let shown = ledger.rows.iter().filter(|row| row.rendered > 0 && row.key != "transcript");
    for row in shown {
        row.source.iter().flat_map(|source| source.split(", ")).for_each(note);
        row.origin.reads.iter().for_each(|seen| note(&seen.path));
    }
    if !inputs.transcript.is_empty() {
        note(&format!("g/{agent}/sessions/{session}"));
    }
    let user = call.caller.owner.user().as_str();
    ledger.values.iter().filter_map(|used| used.path(user)).for_each(|path| note(&path));
}

/// Returns what a turn of the agent for this caller could see, and so what its summary may stand for.
async fn summary_authority(call: &Invocation<'_>, agent: &AgentRecord) -> Result<SummaryAuthority, OpError> {
    let (policy, _) = policy::load(&*call.venue.store, &call.caller.owner).await?;
    let envelope = call.caller.request_envelope();
    let authority = agent.authority(&policy, &envelope, &Scope::default()).without_home();
    Ok(SummaryAuthority { authority, bound: envelope.bound })
}

/// Returns the inputs of a previewed prompt, under the caller's name and authority.
async fn preview_inputs(call: &Invocation<'_>, agent: &AgentId, asked: Preview) -> Result<Inputs, OpError> {
    let caller = Some(call.caller.name.clone());
    let asked = Preview { envelope: call.caller.request_envelope(), caller, ..asked };
    Ok(preview::inputs(call.venue, &call.caller.owner, agent, asked).await?)
}

/// Returns the number of open goals of a session, with the conversation itself as the outermost, and the sections of its
/// context that can't be read.
async fn reload_context(call: &Invocation<'_>, key: &SessionKey) -> Result<(usize, Vec<UnreadSectionView>), OpError> {
    let asked = Preview { session: Some(key.session.clone()), ..Preview::default() };
    let inputs = preview_inputs(call, &key.agent, asked).await?;
    let (Ok(ledger) | Err(ledger)) = assemble_prompt(&inputs).map(|made| made.ledger).map_err(|refused| refused.ledger);
    let is_unread = |row: &&Row| matches!(row.status, RowStatus::Missing | RowStatus::Denied | RowStatus::Failed);
    let unread = ledger.rows.iter().filter(is_unread).map(|row| UnreadSectionView {
        key: row.key.clone(),
        status: row.status.as_str().to_owned(),
        reason: row.reason.clone(),
    });
    let unread: Vec<_> = unread.collect();
    let facts = sessions::find(call.venue, &call.caller.owner, key).await?;
    let state = facts.and_then(|facts| decode::read_stored::<SessionState>(&facts.state?).ok()).unwrap_or_default();
    Ok((1 + state.goals.frames.len(), unread))
}

/// Returns a prompt as a text for people.
fn prompt_text(request: &ModelRequest) -> String {
    let mut lines = vec![request.system.clone()];
    lines.extend(request.messages.iter().map(|message| match message {
        ChatMessage::User { text, .. } => format!("{}\n{text}", lines::USER),
        ChatMessage::Assistant { text, calls, .. } => {
            let calls = calls.iter().map(|call| format!("\n-> {} {}", call.name, call.arguments.to_value()));
            format!("{}\n{text}{}", lines::ASSISTANT, calls.collect::<String>())
        }
        ChatMessage::Tool { name, text, .. } => format!("{}{name}]\n{text}", lines::RESULT_OF),
    }));
    let tools: Vec<_> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    lines.push(format!("{}\n{}", lines::TOOLS, if tools.is_empty() { "none".to_owned() } else { tools.join(", ") }));
    lines.join("\n\n")
}
