//! `assemble`: the inputs of a turn become its prompt. Pure: the same inputs give the same bytes.

use super::text;
use crate::domain::agent::AgentConfig;
use crate::domain::capability::Authority;
use crate::domain::chat::{ChatMessage, ModelRequest};
use crate::domain::event::{Event, Payload};
use crate::domain::ids::{AgentId, JobId, sha256_hex};
use crate::domain::limits::CONTEXT_BYTES;
use crate::domain::session::{PendingJob, TurnRecord};
use crate::domain::tools::ToolTable;
use std::sync::Arc;

/// Everything that a prompt is made of, as fetched for one turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Inputs {
    /// `YYYY-MM-DD`.
    pub date: String,
    /// Name of the venue.
    pub venue: String,
    /// What the turn may do.
    pub authority: Authority,
    /// Context entries in the order of the configuration.
    pub entries: Vec<Entry>,
    /// Turns of the session, oldest first.
    pub transcript: Vec<TurnRecord>,
    /// Tools of this turn.
    pub tools: Arc<ToolTable>,
}

/// A fetched context entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Heading; literal text may have none.
    pub label: Option<String>,
    /// The turn fails without it.
    pub required: bool,
    /// What is shown, or why nothing can be.
    pub content: Result<String, String>,
}

/// What the turn serves.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Served {
    /// The open task.
    pub task: Option<Event>,
    /// Completions of child jobs.
    pub results: Vec<Event>,
    /// Notifications.
    pub messages: Vec<Event>,
    /// Children that are still running.
    pub pending: Vec<(JobId, PendingJob)>,
    /// The agent has said something without completing its task, in `explicit` mode.
    pub remind: bool,
}

/// Why there is no prompt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContextError {
    /// What must be in the prompt doesn't fit.
    #[error("the required context has {required} bytes, expected at most {budget} ({sizes})")]
    Overflow {
        /// Bytes needed.
        required: usize,
        /// Bytes allowed.
        budget: usize,
        /// Bytes by section.
        sizes: String,
    },
    /// A required entry isn't there.
    #[error("required context `{label}` is unavailable: {reason}")]
    RequiredMissing {
        /// Its label.
        label: String,
        /// Why.
        reason: String,
    },
}

/// Builds the prompt of a turn.
pub fn assemble(
    agent: &AgentId,
    config: &AgentConfig,
    turn: &str,
    inputs: &Inputs,
    served: &Served,
) -> Result<ModelRequest, ContextError> {
    let system = text::system(agent, config, &inputs.venue, &inputs.authority);
    let context = text::entries(&inputs.entries)?;
    let tail = tail(config, inputs, served);
    let sizes = [
        ("system", system.len()),
        ("tools", inputs.tools.bytes),
        ("context", context.as_ref().map_or(0, String::len)),
        ("input", text::message_bytes(&tail)),
    ];
    let required: usize = sizes.iter().map(|(_, bytes)| bytes).sum();
    if required > CONTEXT_BYTES {
        let sizes: Vec<_> = sizes.iter().map(|(name, bytes)| format!("{name} {bytes}")).collect();
        return Err(ContextError::Overflow { required, budget: CONTEXT_BYTES, sizes: sizes.join(", ") });
    }
    let open = served.task.as_ref().and_then(Event::job);
    let mut messages: Vec<ChatMessage> = context.into_iter().map(|text| ChatMessage::User { text }).collect();
    messages.extend(text::transcript(&inputs.transcript, open, CONTEXT_BYTES - required));
    messages.push(tail);
    let tools = Arc::clone(&inputs.tools.specs);
    Ok(ModelRequest { model: config.model.clone(), system, messages, tools, turn: turn.to_owned() })
}

/// The volatile end of the prompt: date, pending results, inbox, and last the task. One message,
/// so that no provider reorders or merges its parts.
fn tail(config: &AgentConfig, inputs: &Inputs, served: &Served) -> ChatMessage {
    let mut parts = vec![text::date(&inputs.date, &inputs.venue)];
    parts.extend(text::pending(&served.results, &served.pending));
    parts.extend(served.messages.iter().map(text::message));
    match &served.task {
        Some(Event { payload: Payload::Task { job, input }, caller, .. }) => {
            parts.push(text::task(job, caller.as_deref(), input, config.completion, served.remind));
        }
        Some(_) | None if served.messages.is_empty() && served.results.is_empty() => {
            parts.push(text::NOTHING.to_owned());
        }
        Some(_) | None => {}
    }
    ChatMessage::User { text: parts.join("\n\n") }
}

/// Hash of a whole prompt: model, system prompt, messages, and the tools by their own hash.
pub fn prompt_hash(request: &ModelRequest, tools: &ToolTable) -> String {
    let parts = (&request.model, &request.system, &request.messages, &tools.hash);
    sha256_hex(&serde_json::to_vec(&parts).unwrap_or_default())
}
