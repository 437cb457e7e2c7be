//! `trellis chat`: sends a message and shows the agent's next reply.

use super::client::{Client, ServerArgs, read_view};
use super::escape::{cell, escape_data};
use super::exit::{Exit, Failure};
use super::output::{Format, remark};
use super::submit::NO_AGENT;
use super::wait::{WAIT_READ_PAUSES, WaitNotes};
use super::{CliContext, input};
use crate::domain::ids::{AgentId, SessionId};
use crate::venue::ingress;
use crate::view::request::ChatReplyView;
use clap::Args;
use serde::Serialize;
use serde_json::Value;
use std::io::{BufRead, IsTerminal};
use std::time::Duration;

/// Arguments of `trellis chat`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  trellis chat helper 'Plan my week.'            # a new conversation, its name is on stderr\n  trellis chat helper 'And Friday?' --session chat-5be1f0a1b2c3d4e5"
)]
pub(crate) struct Chat {
    /// To which agent
    agent: AgentId,
    /// What to say: text, `@file`, or `-` for all of stdin [default: a conversation, line by line]
    #[arg(allow_hyphen_values = true)]
    text: Option<String>,
    /// The conversation to go on with [default: a new one]
    #[arg(long, value_name = "SESSION")]
    session: Option<SessionId>,
    /// Wait at most so long for a reply; the agent goes on
    #[arg(long, value_name = "DUR", value_parser = input::duration, default_value = "5m")]
    timeout: Duration,
    /// Which server, and for whom
    #[command(flatten)]
    server: ServerArgs,
}

/// Arguments of `v/ops/agent/chat`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ChatRequest<'a> {
    agent_id: &'a AgentId,
    message: &'a Value,
    /// Longest wait for the reply, in milliseconds.
    timeout: u64,
    /// Session that goes on; absent for a new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a SessionId>,
}

impl Chat {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let client = Client::new(&self.server)?;
        let mut session = self.session.clone();
        if let Some(text) = &self.text {
            let message = input::value(text, true)?;
            return self.say(context, &client, &message, &mut session).await;
        }
        if std::io::stdin().is_terminal() {
            remark(&format!("talking to `{}`; an empty line or ctrl-d ends it", self.agent));
        }
        let mut end = Exit::Ok;
        while let Some(line) = next_line()? {
            end = self.say(context, &client, &line.into(), &mut session).await?;
            if end != Exit::Ok {
                break;
            }
        }
        Ok(end)
    }

    /// Rewords a failure for this command: the server's text names arguments of an operation.
    fn reword(&self, failure: Failure, session: Option<&SessionId>) -> Failure {
        match session {
            Some(session) if failure.exit == Exit::NotFound && failure.text.contains("has no session") => {
                let agent = &self.agent;
                let text = format!(
                    "agent `{agent}` has no session `{session}`; `trellis session list {agent}` shows which there are, without \
                     `--session` a new one begins"
                );
                Failure::new(Exit::NotFound, text)
            }
            _ => failure.with_advice_on("no agent `", NO_AGENT),
        }
    }

    /// Sends a message and shows its reply, in the given session, else in a new one.
    async fn say(
        &self,
        context: &CliContext,
        client: &Client,
        message: &Value,
        session: &mut Option<SessionId>,
    ) -> Result<Exit, Failure> {
        // The same id finds the same message: a long wait is several requests.
        let id = ingress::fresh_id();
        let start = std::time::Instant::now();
        let (mut reasons, mut look) = (WaitNotes::default(), WAIT_READ_PAUSES.0);
        loop {
            let left = self.timeout.saturating_sub(start.elapsed()).min(look);
            look = (look * 2).min(WAIT_READ_PAUSES.1);
            let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            let request = ChatRequest { agent_id: &self.agent, message, timeout: millis, session_id: session.as_ref() };
            let answer = client.run("v/ops/agent/chat", &request, Some(&id)).await;
            let answer = answer.map_err(|e| self.reword(e, session.as_ref()))?;
            let reply: ChatReplyView = read_view(answer.clone())?;
            if session.is_none() {
                remark(&format!("session {}; `--session` goes on with it", reply.session_id));
                *session = Some(reply.session_id.clone());
            }
            if let Some(error) = &reply.error {
                if context.out.format != Format::Text {
                    context.out.value(&answer, String::new)?;
                }
                let (code, error) = (reply.error_code.as_deref().unwrap_or_default(), cell(error));
                let agent = &self.agent;
                return Err(Failure::new(
                    Exit::JobFailed,
                    format!("agent `{agent}` has not replied ({code}): {error}"),
                ));
            }
            if let Some(response) = &reply.response {
                context.out.value(&answer, || escape_data(response).into_owned())?;
                return Ok(Exit::Ok);
            }
            reasons.show(reply.waiting.as_ref());
            if start.elapsed() >= self.timeout {
                let text = format!(
                    "no reply within {}; the agent goes on, `trellis session show {} {}` shows what it says",
                    humantime::format_duration(self.timeout),
                    self.agent,
                    reply.session_id
                );
                return Err(Failure::new(Exit::TimedOut, text));
            }
        }
    }
}

/// Reads a line of stdin that isn't empty; `None` at its end, and on a terminal at an empty line.
fn next_line() -> Result<Option<String>, Failure> {
    loop {
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        let read = read.map_err(|e| Failure::usage(format!("stdin can't be read: {e}")))?;
        if read == 0 {
            return Ok(None);
        }
        let line = line.trim();
        if !line.is_empty() {
            return Ok(Some(line.to_owned()));
        }
        if std::io::stdin().is_terminal() {
            return Ok(None);
        }
    }
}
