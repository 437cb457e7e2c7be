//! `trellis session list|show|fork`: sessions of an agent.

use super::client::{Client, ServerArgs, encode};
use super::exit::{Exit, Failure};
use super::output::time;
use super::output::{CommandOutput, field, format_plain};
use super::{CliContext, wait};
use crate::domain::ids::{AgentId, SessionId};
use clap::Subcommand;
use serde_json::{Value, json};

const NO_SESSION: &str = "`trellis agent list` shows the agents, `trellis session list AGENT` their sessions";

/// Sessions: the conversations of an agent.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List an agent's sessions
    #[command(after_help = "Example:\n  trellis session list helper --limit 20")]
    List {
        /// The agent
        agent: AgentId,
        /// Those behind this one
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
        /// The agent
        agent: AgentId,
        /// The session
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
        /// The agent
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
                let mut body = json!({"at": at});
                if let Some(to) = to {
                    body["to"] = to.as_str().into();
                }
                fork(&Client::new(&server)?, out, &path, &body).await
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
    out.page(&page, "sessions", |sessions| {
        let columns = ["sessionId", "status", "turns", "tasks", "messages", "results"];
        let rows: Vec<Vec<String>> =
            sessions.iter().map(|session| columns.iter().map(|key| field(session, key)).collect()).collect();
        let table = out.table(&["SESSION", "STATUS", "TURNS", "TASKS", "MESSAGES", "RESULTS"], &rows);
        append_next(table, &page)
    })?;
    Ok(Exit::Ok)
}

/// Appends a line that says how the list goes on.
fn append_next(text: String, page: &Value) -> String {
    match &page["next"] {
        Value::Null => text,
        next => format!("{text}\n… `--after {}` shows the next", format_plain(next)),
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
    out.page(&page, "turns", |turns| {
        let waits = wait::text(&page).map(|text| out.dim(&format!("waits: {text}")));
        let text: Vec<String> = turns.iter().map(|turn| transcript(out, turn)).chain(waits).collect();
        append_next(text.join("\n\n"), &page)
    })?;
    Ok(Exit::Ok)
}

/// Formats a turn for people.
fn transcript(out: CommandOutput, turn: &Value) -> String {
    let head = format!("turn {}, {}, {}", turn["turn"], time(&turn["start"]), field(turn, "model"));
    let mut lines = vec![out.dim(&head)];
    let mut say = |who: &str, text: &str| {
        lines.push(format!("{}: {}", out.bold(who), text.replace('\n', "\n  ")));
    };
    for heard in turn["heard"].as_array().into_iter().flatten() {
        say(if heard["job"].is_null() { "message" } else { "task" }, &field(heard, "text"));
    }
    for said in turn["said"].as_array().into_iter().flatten() {
        let text = field(said, "text");
        match said["role"].as_str() {
            Some("assistant") => {
                if !text.is_empty() {
                    say("agent", &text);
                }
                for call in said["calls"].as_array().into_iter().flatten() {
                    say("calls", &format!("{} {}", field(call, "name"), field(call, "arguments")));
                }
            }
            Some("tool") => say("result", &text),
            Some(_) | None => say("said", &text),
        }
    }
    for ended in turn["ended"].as_array().into_iter().flatten() {
        say("ended", &format!("{} {}", format_plain(&ended[0]), format_plain(&ended[1])));
    }
    lines.join("\n")
}

async fn fork(client: &Client, out: CommandOutput, path: &str, body: &Value) -> Result<Exit, Failure> {
    let answer = client.post(path, body).await?;
    out.value(&answer, || field(&answer, "sessionId"))?;
    Ok(Exit::Ok)
}
