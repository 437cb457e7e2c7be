//! `trellis message`: sends a one-way message.

use super::client::{Client, ServerArgs, encode, read_view};
use super::exit::{Exit, Failure};
use super::{CliContext, abilities, input, queue, submit};
use crate::domain::event::Submission;
use crate::domain::ids::{AgentId, EventId, SessionId};
use crate::domain::message::InboundKind;
use crate::venue::ingress;
use crate::view::agent::ReceiptView;
use crate::view::request::AgentMessageRequest;
use crate::view::to_json;
use clap::Args;
use serde::Serialize;
use serde_json::Value;

/// Sends an agent a message: it sees it in its next turn and owes no answer.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  trellis message helper 'The meeting moved to 3 pm' --session planning")]
pub(crate) struct MessageArgs {
    /// To which agent
    agent: AgentId,
    /// What to say: text, JSON, `@file`, or `-` for stdin
    #[arg(allow_hyphen_values = true)]
    input: String,
    /// Take the input as text even if it looks like JSON
    #[arg(long)]
    text: bool,
    /// Your id of this message: sending it again under the same id changes nothing
    #[arg(long, value_name = "KEY")]
    id: Option<EventId>,
    /// Conversation to put it into [default: main]
    #[arg(long, value_name = "SESSION")]
    session: Option<SessionId>,
    /// A grant of this request: a resource namespace such as `app/user/u1`, or JSON `{"with": …, "can": …}`; it may
    /// do no more than its grants. Repeatable; without any it may do what you may
    #[arg(long = "grant", value_name = "GRANT", value_parser = input::grant)]
    grants: Vec<Value>,
    /// A value for this request, `KEY=VALUE`; JSON where it parses, else text. Repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = input::pair)]
    context: Vec<(String, Value)>,
    /// A shared bucket that the turns of this message see; no access boundary. Repeatable
    #[arg(long = "context-id", value_name = "BUCKET")]
    context_ids: Vec<String>,
    /// Which server, and for whom
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    queue: queue::QueueArgs,
}

impl MessageArgs {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let input = input::value(&self.input, self.text)?;
        submit::check_size(&input)?;
        abilities::note_unknown("--grant", &self.grants);
        let id = self.id.unwrap_or_else(ingress::fresh_id);
        if self.queue.nats.is_some() || !self.context.is_empty() || !self.grants.is_empty() {
            let session_context = self.context.into_iter().collect();
            let context_grants = input::grants(&self.grants);
            let submission = Submission {
                input,
                session_id: self.session,
                session_context,
                context_ids: self.context_ids,
                context: context_grants,
                ..Submission::default()
            };
            let Some(url) = &self.queue.nats else {
                let path = format!("agents/{}/messages", encode(self.agent.as_str()));
                let sent = Client::new(&self.server)?.submit(&path, &submission, &id).await;
                let sent = sent.map_err(|e| e.with_advice_on("no agent `", submit::NO_AGENT))?;
                // The message is on its way, whatever its receipt says.
                if let Ok(ReceiptView { warnings, .. }) = read_view(sent) {
                    abilities::note_warnings(&warnings, &self.grants);
                }
                return print_delivered(context, &self.agent, &id);
            };
            let bus = context.load(Vec::new())?.config.bus;
            let queue = queue::Publisher::connect(url, bus, &self.server).await?;
            queue.submit(&queue::owner(&self.server), &self.agent, InboundKind::Message, &id, &submission).await?;
        } else {
            let request = AgentMessageRequest {
                agent_id: &self.agent,
                session_id: self.session.as_ref(),
                message: input,
                context_ids: self.context_ids,
            };
            let sent = Client::new(&self.server)?.run("v/ops/agent/message", &request, Some(&id)).await;
            sent.map_err(|e| e.with_advice_on("no agent `", submit::NO_AGENT))?;
        }
        print_delivered(context, &self.agent, &id)
    }
}

/// What is printed of a message that was sent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeliveredMessage<'a> {
    id: &'a EventId,
    agent_id: &'a AgentId,
    delivered: bool,
}

fn print_delivered(context: &CliContext, agent: &AgentId, id: &EventId) -> Result<Exit, Failure> {
    let message = DeliveredMessage { id, agent_id: agent, delivered: true };
    context.out.value(&to_json(&message), || id.to_string())?;
    Ok(Exit::Ok)
}
