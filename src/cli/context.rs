//! `trellis context`: previews an agent's next turn.

use super::client::{Client, ServerArgs, encode, read_view};
use super::exit::{Exit, Failure};
use super::submit::NO_AGENT;
use super::turn::{ledger_text, prompt_text};
use super::{CliContext, abilities, input};
use crate::domain::ids::{AgentId, SessionId};
use crate::view::ledger::ContextPreviewView;
use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};

/// Arguments of `trellis context`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  trellis context helper --task '\"Say hello\"' --prompt\n  trellis context helper --session main"
)]
pub(crate) struct PreviewArgs {
    /// Id of the agent
    agent: AgentId,
    /// Of this session: with its loads, its transcript and what is pending
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    /// With this task: JSON, text, `@FILE` or `-` for stdin
    #[arg(long, value_name = "INPUT")]
    task: Option<String>,
    /// Values of the task's request, as with `trellis submit`
    #[arg(long = "context", requires = "task", value_name = "KEY=VALUE", value_parser = input::pair)]
    values: Vec<(String, Value)>,
    /// A grant of the task's request, as with `trellis submit`
    #[arg(long = "grant", requires = "task", value_name = "GRANT", value_parser = input::grant)]
    grants: Vec<Value>,
    /// A shared bucket that the task's request names, as with `trellis submit`
    #[arg(long = "context-id", requires = "task", value_name = "BUCKET")]
    context_ids: Vec<String>,
    /// The exact prompt instead; with `--output json` the exact model request
    #[arg(long)]
    prompt: bool,
    /// Which server, and for whom
    #[command(flatten)]
    server: ServerArgs,
}

/// Body of `POST agents/{id}/context`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PreviewBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<SessionId>,
    /// Values of the request by name.
    #[serde(skip_serializing_if = "Map::is_empty")]
    session_context: Map<String, Value>,
    /// Grants of the request; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<Vec<Value>>,
    /// Shared buckets of the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    context_ids: Vec<String>,
}

impl PreviewArgs {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        abilities::note_unknown("--grant", &self.grants);
        let body = PreviewBody {
            task: self.task.as_deref().map(input::json_or_text).transpose()?,
            session: self.session,
            session_context: self.values.into_iter().collect(),
            context: input::grants(&self.grants),
            context_ids: self.context_ids,
        };
        let client = Client::new(&self.server)?;
        let answer = client.post(&format!("agents/{}/context", encode(self.agent.as_str())), &body).await;
        let answer = answer.map_err(|e| e.with_advice_on("no agent `", NO_AGENT))?;
        let out = context.out;
        let preview: ContextPreviewView = read_view(answer.clone())?;
        if let Some(error) = &preview.error {
            super::output::note(&format!("the turn would fail: {error}"));
        }
        if self.prompt {
            let prompt = || preview.request.as_ref().map(prompt_text).unwrap_or_default();
            out.value(answer.get("request").unwrap_or(&Value::Null), prompt)?;
        } else {
            out.value(&answer, || ledger_text(out, &preview.ledger))?;
        }
        Ok(Exit::Ok)
    }
}
