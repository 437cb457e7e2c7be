//! `trellis session list|show|fork`: sessions of an agent.

use super::client::{Client, ServerArgs, encode, read_view};
use super::escape::escape_data;
use super::exit::{Exit, Failure};
use super::output::{CommandOutput, format_line};
use super::{CliContext, wait};
use crate::domain::ids::{AgentId, SessionId};
use crate::view::ledger::{TurnMessageView, TurnRecordView};
use crate::view::session::{ForkedSessionView, SessionPage, SessionRowView, SessionTurnsPage};
use clap::Subcommand;
use serde::Serialize;
use std::fmt::Display;

const NO_SESSION: &str = "`trellis agent list` shows the agents, `trellis session list AGENT` their sessions";

/// Sessions: the conversations of an agent.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List an agent's sessions
    #[command(after_help = "Example:\n  trellis session list helper --limit 20")]
    List {
        /// Id of the agent
        agent: AgentId,
        /// Sessions behind this one
        #[arg(long, value_name = "SESSION")]
        after: Option<SessionId>,
        /// Sessions to show, at most 200
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: u64,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show the transcript of a session
    #[command(after_help = "Example:\n  trellis session show helper main")]
    Show {
        /// Id of the agent
        agent: AgentId,
        /// Id of the session
        session: SessionId,
        /// Turns behind this one
        #[arg(long, value_name = "TURN", default_value_t = 0)]
        after: u64,
        /// Turns to show, at most 100
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: u64,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Branch a conversation: a new session with the turns of another up to and with one
    ///
    /// It has no open task, no pending result and no question to a person. What the old session has
    /// loaded by now it has loaded too. Prints the new session's id.
    #[command(after_help = "Example:\n  trellis session fork helper main --at 3 --to what-if")]
    Fork {
        /// Id of the agent
        agent: AgentId,
        /// The session that is copied
        session: SessionId,
        /// Its last turn in the new one
        #[arg(long, value_name = "TURN")]
        at: u64,
        /// Id of the new session [default: a fresh one]
        #[arg(long, value_name = "NAME")]
        to: Option<SessionId>,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
}

impl SessionCommand {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let out = context.out;
        let done = match self {
            Self::List { agent, after, limit, server } => {
                list(&Client::new(&server)?, out, &agent, after.as_ref(), limit).await
            }
            Self::Show { agent, session, after, limit, server } => {
                show(&Client::new(&server)?, out, &agent, &session, after, limit).await
            }
            Self::Fork { agent, session, at, to, server } => {
                let path = format!("agents/{}/sessions/{}/fork", encode(agent.as_str()), encode(session.as_str()));
                fork(&Client::new(&server)?, out, &path, &ForkSessionBody { at, to }).await
            }
        };
        done.map_err(|e| e.with_advice(Exit::NotFound, NO_SESSION))
    }
}

async fn list(
    client: &Client,
    out: CommandOutput,
    agent: &AgentId,
    after: Option<&SessionId>,
    limit: u64,
) -> Result<Exit, Failure> {
    let mut query = vec![("limit", limit.to_string())];
    query.extend(after.map(|after| ("after", after.to_string())));
    let page = client.get(&format!("agents/{}/sessions", encode(agent.as_str())), &query).await?;
    let SessionPage { sessions, next, .. } = read_view(page.clone())?;
    out.page(&page, "sessions", |_| {
        let rows: Vec<_> = sessions.iter().map(row).collect();
        let table = out.table(&["SESSION", "STATUS", "TURNS", "TASKS", "MESSAGES", "RESULTS"], &rows);
        append_next(table, next.as_ref())
    })?;
    Ok(Exit::Ok)
}

fn row(session: &SessionRowView) -> Vec<String> {
    let counts = [session.tasks, session.messages, session.results].map(|count| count.to_string());
    let mut cells = vec![session.session_id.to_string(), session.status.clone(), session.turns.to_string()];
    cells.extend(counts);
    cells
}

/// Appends a line that says how the list goes on.
fn append_next(text: String, next: Option<&impl Display>) -> String {
    match next {
        None => text,
        Some(next) => format!("{text}\n… `--after {next}` shows the next"),
    }
}

async fn show(
    client: &Client,
    out: CommandOutput,
    agent: &AgentId,
    session: &SessionId,
    after: u64,
    limit: u64,
) -> Result<Exit, Failure> {
    let path = format!("agents/{}/sessions/{}", encode(agent.as_str()), encode(session.as_str()));
    let page = client.get(&path, &[("after", after.to_string()), ("limit", limit.to_string())]).await?;
    let SessionTurnsPage { turns, next, waiting, .. } = read_view(page.clone())?;
    out.page(&page, "turns", |_| {
        let waits = waiting.map(|waiting| out.dim(&format!("waits: {}", wait::text(&waiting))));
        let text: Vec<String> = turns.iter().map(|turn| transcript(out, turn)).chain(waits).collect();
        append_next(text.join("\n\n"), next.as_ref())
    })?;
    Ok(Exit::Ok)
}

/// Formats a turn for people.
fn transcript(out: CommandOutput, turn: &TurnRecordView) -> String {
    let head = format!("turn {}, {}, {}", turn.turn, turn.start.rfc3339(), escape_data(&turn.model));
    let mut lines = vec![out.dim(&head)];
    let mut say = |who: &str, text: &str| {
        lines.push(format!("{}: {}", out.bold(who), text.replace('\n', "\n  ")));
    };
    for heard in &turn.heard {
        say(if heard.job.is_none() { "message" } else { "task" }, &escape_data(&heard.text));
    }
    for said in &turn.said {
        match said {
            TurnMessageView::Assistant { text, calls, .. } => {
                if !text.is_empty() {
                    say("agent", &escape_data(text));
                }
                for call in calls {
                    say("calls", &format!("{} {}", escape_data(&call.name), format_line(&call.arguments)));
                }
            }
            TurnMessageView::Tool { text, .. } => say("result", &escape_data(text)),
            TurnMessageView::User { text, .. } => say("said", &escape_data(text)),
        }
    }
    for (job, status) in &turn.ended {
        say("ended", &format!("{job} {}", status.as_str()));
    }
    lines.join("\n")
}

/// Body of `POST agents/{id}/sessions/{session}/fork`.
#[derive(Serialize)]
struct ForkSessionBody {
    /// Number of the last turn in the new session.
    at: u64,
    /// Id of the new session; absent for a fresh one.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<SessionId>,
}

async fn fork(client: &Client, out: CommandOutput, path: &str, body: &ForkSessionBody) -> Result<Exit, Failure> {
    let answer = client.post(path, body).await?;
    out.typed_value(answer, |forked: &ForkedSessionView| forked.session_id.to_string())?;
    Ok(Exit::Ok)
}
