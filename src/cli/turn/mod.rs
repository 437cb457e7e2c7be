//! `trellis turn list|show|diff|replay`: turns and their prompts.

mod diff;
mod replay;
mod table;

use super::client::{Client, ServerArgs, encode, read_view};
use super::escape::escape_data;
use super::exit::{Exit, Failure};
use super::filter::{Filter, FilteredPageEnd, append_next, read_filtered};
use super::output::CommandOutput;
use super::submit::NO_AGENT;
use super::{CliContext, input};
use crate::domain::ids::{AgentId, IdError};
use crate::view::ledger::{TurnListPage, TurnRowView, TurnView};
use clap::Subcommand;
use serde_json::Value;
use std::fmt;
use std::str::FromStr;

pub(crate) use table::{call_arguments, format_short, format_version, ledger_text, prompt as prompt_text};

/// Turns that are searched for the session of a turn without one.
const SEARCHED_TURNS: &str = "1000";

/// Turns: one context, one model call, its tool calls, one commit.
#[derive(Debug, Subcommand)]
pub(crate) enum TurnCommand {
    /// List an agent's turns, newest first
    ///
    /// One call looks at no more than 1,000 turns, and says where to go on. `--state` asks for turns
    /// that ended a job so.
    #[command(after_help = "Example:\n  trellis turn list helper --since 2h --text invoice")]
    List {
        /// Id of the agent
        agent: AgentId,
        /// Of this session only
        #[arg(long, value_name = "ID")]
        session: Option<String>,
        /// Filter of the turns
        #[command(flatten)]
        filter: Filter,
        /// Turns to show
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = input::list_limit())]
        limit: usize,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show what a turn's model saw, part by part: where it came from and why it was cut
    #[command(after_help = "Example:\n  trellis turn show helper/main/3 --prompt")]
    Show {
        /// `AGENT/SESSION/TURN`; `AGENT/TURN` when one session has that turn
        turn: TurnName,
        /// The exact prompt instead; with `--output json` the exact model request
        #[arg(long)]
        prompt: bool,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show what changed between the prompts of two turns
    #[command(after_help = "Example:\n  trellis turn diff helper/main/2 helper/main/3")]
    Diff {
        /// The earlier turn
        before: TurnName,
        /// The later one
        after: TurnName,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Build past prompts again from their records and compare the hashes
    ///
    /// With `--without`, `--with`, `--model` or `--agent-config` it is an experiment: it shows what the model would
    /// have seen, and what is different. Nothing is committed. Exits with 1 when a prompt without
    /// changes comes out otherwise.
    #[command(
        after_help = "Example:\n  trellis turn replay helper/main/3 --without w/notes\n  trellis turn replay helper --all"
    )]
    Replay {
        /// Turns, or with `--all` an agent
        #[arg(required = true, value_name = "TURN")]
        turns: Vec<String>,
        /// The newest 1000 turns of the agent
        #[arg(long)]
        all: bool,
        /// What the experiment changes
        #[command(flatten)]
        change: replay::ExperimentArgs,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
}

/// Name of a turn on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TurnName {
    agent: AgentId,
    session: Option<String>,
    turn: u64,
}

/// Reason why a text names no turn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TurnNameError {
    /// The text has other parts.
    #[error("expected `AGENT/SESSION/TURN`, e.g. `helper/main/3`, got `{found}`")]
    Form {
        /// Text as it was given.
        found: String,
    },
    /// The id of the agent breaks a rule.
    #[error(transparent)]
    Agent(#[from] IdError),
}

impl FromStr for TurnName {
    type Err = TurnNameError;

    fn from_str(text: &str) -> Result<Self, TurnNameError> {
        let bad = || TurnNameError::Form { found: text.to_owned() };
        let (rest, turn) = text.rsplit_once('/').ok_or_else(bad)?;
        let turn = turn.parse().ok().filter(|turn| *turn > 0).ok_or_else(bad)?;
        let (agent, session) = match rest.split_once('/') {
            Some((agent, session)) if !session.is_empty() && !session.contains('/') => {
                (agent, Some(session.to_owned()))
            }
            Some(_) => return Err(bad()),
            None => (rest, None),
        };
        Ok(Self { agent: AgentId::new(agent)?, session, turn })
    }
}

impl fmt::Display for TurnName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.session {
            Some(session) => write!(f, "{}/{session}/{}", self.agent, self.turn),
            None => write!(f, "{}/{}", self.agent, self.turn),
        }
    }
}

impl TurnName {
    /// Returns the API path of the turn; finds the session if none is named.
    async fn address(&self, client: &Client) -> Result<String, Failure> {
        let agent = encode(self.agent.as_str());
        if let Some(session) = &self.session {
            return Ok(format!("agents/{agent}/turns/{}/{}", encode(session), self.turn));
        }
        let turns = newest_turns(client, &self.agent).await?;
        let found: Vec<_> = turns.iter().filter(|turn| turn.record.turn == self.turn).collect();
        match found.as_slice() {
            [one] => Ok(format!("agents/{agent}/turns/{}/{}", encode(one.session.as_str()), self.turn)),
            [] => Err(Failure::new(
                Exit::NotFound,
                format!(
                    "agent `{}` has no turn {}; `trellis turn list {}` shows which there are",
                    self.agent, self.turn, self.agent
                ),
            )),
            many => {
                let listed: Vec<_> = many.iter().take(5).map(|turn| format!("`{}`", escape_data(&turn.name))).collect();
                Err(Failure::usage(format!(
                    "several sessions have a turn {}: name one of {}",
                    self.turn,
                    listed.join(", ")
                )))
            }
        }
    }

    async fn get(&self, client: &Client, prompt: bool) -> Result<Value, Failure> {
        let query = if prompt { vec![("prompt", "true".to_owned())] } else { Vec::new() };
        client.get(&self.address(client).await?, &query).await
    }
}

/// Returns the newest turns of an agent, at most [`SEARCHED_TURNS`].
async fn newest_turns(client: &Client, agent: &AgentId) -> Result<Vec<TurnRowView>, Failure> {
    let path = format!("agents/{}/turns", encode(agent.as_str()));
    let page: TurnListPage = read_view(client.get(&path, &[("limit", SEARCHED_TURNS.to_owned())]).await?)?;
    Ok(page.turns)
}

impl TurnCommand {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let out = context.out;
        let done = match self {
            Self::List { agent, session, filter, limit, server } => {
                let mut query = filter.query();
                query.extend(session.map(|session| ("session", session)));
                list(&Client::new(&server)?, out, &agent, query, limit).await
            }
            Self::Show { turn, prompt, server } => show(&Client::new(&server)?, out, &turn, prompt).await,
            Self::Diff { before, after, server } => {
                let client = Client::new(&server)?;
                let (before, after) = (before.get(&client, true).await?, after.get(&client, true).await?);
                diff::show(out, before, after)
            }
            Self::Replay { turns, all, change, server } => {
                replay::run(context, &Client::new(&server)?, &turns, all, change).await
            }
        };
        done.map_err(|e| e.with_advice_on("no agent `", NO_AGENT))
    }
}

async fn list(
    client: &Client,
    out: CommandOutput,
    agent: &AgentId,
    query: Vec<(&'static str, String)>,
    limit: usize,
) -> Result<Exit, Failure> {
    let page =
        read_filtered(client, &format!("agents/{}/turns", encode(agent.as_str())), "turns", query, limit).await?;
    let FilteredPageEnd { next, .. } = read_view(page.clone())?;
    out.typed_page::<TurnRowView>(&page, "turns", |turns| {
        let rows: Vec<_> = turns.iter().map(row).collect();
        let table = out.table(&["TURN", "BEGAN", "MODEL", "TOKENS IN", "OUT", "CALLS", "ENDED"], &rows);
        append_next(table, turns.len(), next.as_deref())
    })?;
    Ok(Exit::Ok)
}

fn row(turn: &TurnRowView) -> Vec<String> {
    let record = &turn.record;
    let calls: Vec<_> = record.calls.iter().map(|call| call.tool.as_str()).collect();
    let ended: Vec<_> = record.ended.iter().map(|(_, status)| status.as_str()).collect();
    vec![
        turn.name.clone(),
        record.start.rfc3339(),
        record.model.clone(),
        record.usage.input.to_string(),
        record.usage.output.to_string(),
        calls.join(", "),
        ended.join(", "),
    ]
}

async fn show(client: &Client, out: CommandOutput, name: &TurnName, prompt: bool) -> Result<Exit, Failure> {
    let turn = name.get(client, prompt).await?;
    if !prompt {
        out.typed_value(turn, |turn: &TurnView| table::turn(out, turn))?;
        return Ok(Exit::Ok);
    }
    let view: TurnView = read_view(turn.clone())?;
    let Some(request) = view.request() else {
        let gone = view.erased.unwrap_or_default();
        let why = if gone.is_empty() { "it had none".to_owned() } else { format!("erased: {}", gone.join(", ")) };
        return Err(Failure::new(Exit::Conflict, format!("the prompt of turn `{name}` can't be shown: {why}")));
    };
    out.value(turn.get("request").unwrap_or(&Value::Null), || table::prompt(request))?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_have_names() {
        for text in ["helper/main/3", "helper/3", "a.b/s-1/12"] {
            assert_eq!(text.parse::<TurnName>().map(|name| name.to_string()), Ok(text.to_owned()));
        }
        for text in ["helper", "helper/main", "helper/main/0", "a/b/c/1", "helper//1", ""] {
            let error = text.parse::<TurnName>().unwrap_err().to_string();
            assert!(error.contains("expected `AGENT/SESSION/TURN`"), "{text}: {error}");
        }
    }
}
