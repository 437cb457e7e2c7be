//! `trellis context`: previews an agent's next turn.

use super::client::{Client, ServerArgs, encode, read_view};
use super::exit::{Exit, Failure};
use super::submit::NO_AGENT;
use super::turn::{ledger_text, prompt_text};
use super::{CliContext, input};
use crate::domain::ids::{AgentId, SessionId};
use crate::view::ledger::ContextPreviewView;
use clap::Args;
use serde_json::{Value, json};

/// Shows what the next turn of a session would see, and changes nothing.
///
/// Without `--session` it is the first turn of a new one. A task stands behind those that wait.
/// What past turns saw is shown by `trellis turn show`.
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
    /// Values of the request, as with `trellis submit`
    #[arg(long = "context", value_name = "KEY=VALUE", value_parser = input::pair)]
    values: Vec<(String, Value)>,
    /// A grant of the request, as with `trellis submit`
    #[arg(long = "grant", value_name = "GRANT", value_parser = input::grant)]
    grants: Vec<Value>,
    /// A shared bucket that the request names, as with `trellis submit`
    #[arg(long = "context-id", value_name = "BUCKET")]
    context_ids: Vec<String>,
    /// The exact prompt instead; with `--output json` the exact model request
    #[arg(long)]
    prompt: bool,
    /// Which server, and for whom
    #[command(flatten)]
    server: ServerArgs,
}

impl PreviewArgs {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let mut body = json!({});
        if let Some(task) = &self.task {
            body["task"] = input::value(task, false)?;
        }
        if let Some(session) = &self.session {
            body["session"] = session.as_str().into();
        }
        if !self.values.is_empty() {
            body["sessionContext"] = self.values.into_iter().collect::<serde_json::Map<_, _>>().into();
        }
        if let Some(grants) = input::grants(&self.grants) {
            body["context"] = grants.into();
        }
        if !self.context_ids.is_empty() {
            body["contextIds"] = json!(self.context_ids);
        }
        let client = Client::new(&self.server)?;
        let answer = client.post(&format!("agents/{}/context", encode(self.agent.as_str())), &body).await;
        let answer = answer.map_err(|e| e.with_advice_on("no agent `", NO_AGENT))?;
        let out = context.out;
        let preview: ContextPreviewView = read_view(&answer)?;
        if let Some(error) = &preview.error {
            super::output::note(&format!("the turn would fail: {error}"));
        }
        if self.prompt {
            let prompt = || preview.request.as_ref().map(prompt_text).unwrap_or_default();
            out.value(&answer["request"], prompt)?;
        } else {
            out.value(&answer, || ledger_text(out, &preview.ledger))?;
        }
        Ok(Exit::Ok)
    }
}
