//! `trellis timer set|list|cancel`: tasks and messages at a time, once or repeatedly.

use super::client::{Client, ServerArgs, encode, read_view};
use super::escape::escape_data;
use super::exit::{Exit, Failure};
use super::output::{note, note_empty, note_next};
use super::submit::NO_AGENT;
use super::{CliContext, abilities, input};
use crate::domain::ids::{AgentId, EventId, SessionId};
use crate::domain::priority::Priority;
use crate::domain::timer::TimerId;
use crate::venue::ingress;
use crate::view::timer::{TimerSetView, TimerView};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::Value;

/// Timers of agents.
#[derive(Debug, Subcommand)]
pub(crate) enum TimerCommand {
    /// Give an agent a task, or a message, at a time: once, every so often, or by a cron expression
    #[command(
        after_help = "Examples:\n  trellis timer set reporter 'Write the daily report' --cron '0 9 * * MON-FRI' --timezone Europe/Berlin --name daily\n  trellis timer set watcher 'Look at the queue' --every 5m --overlap skip\n  trellis timer set helper 'Remind me' --after 30m --kind message"
    )]
    Set(Box<SetTimerArgs>),
    /// List timers, the next to fire first
    #[command(
        after_help = "Examples:\n  trellis timer list\n  trellis timer list --agent reporter --all --output ndjson"
    )]
    List {
        /// Only those of this agent
        #[arg(long, value_name = "AGENT")]
        agent: Option<AgentId>,
        /// Those that fire no more, too; they are kept for a day
        #[arg(long)]
        all: bool,
        /// Timers to skip
        #[arg(long, value_name = "N", default_value_t = 0)]
        offset: usize,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Cancel a timer; what it has sent goes on
    #[command(after_help = "Example:\n  trellis timer cancel 0123456789abcdef0123456789abcdef")]
    Cancel {
        /// Id of the timer, as `timer list` prints it
        id: TimerId,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
}

/// Sets a timer.
#[derive(Debug, Args)]
pub(crate) struct SetTimerArgs {
    /// Id of the agent
    agent: AgentId,
    /// What it is given each time: text, JSON, `@file`, or `-` for stdin
    #[arg(allow_hyphen_values = true)]
    input: String,
    /// Take the input as text even if it looks like JSON
    #[arg(long)]
    text: bool,
    #[command(flatten)]
    when: ScheduleArgs,
    /// Time zone of `--cron`, and of `--at` without an offset [default: UTC]
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// Kind of what is sent
    #[arg(long, value_enum, default_value_t = TimerKindArg::Task)]
    kind: TimerKindArg,
    /// What becomes of the times at which nothing ran: one event for all of them, each, or none
    #[arg(long, value_enum, default_value_t = CatchUpArg::One)]
    catch_up: CatchUpArg,
    /// While the last one isn't finished: leave this one out, or let it wait
    #[arg(long, value_enum, default_value_t = OverlapArg::Queue)]
    overlap: OverlapArg,
    /// Setting a timer of this name again replaces it
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Conversation to use
    #[arg(long, value_name = "SESSION")]
    session: Option<SessionId>,
    /// How urgent the task is beside the other tasks of the agent: 1 before them, -1 behind them
    #[arg(long, value_name = "-1|0|1", allow_hyphen_values = true)]
    priority: Option<Priority>,
    /// A grant, as of `trellis submit`. Repeatable
    #[arg(long = "grant", value_name = "GRANT", value_parser = input::grant)]
    grants: Vec<Value>,
    /// Your id of this request: sending it again under the same id sets nothing twice
    #[arg(long, value_name = "KEY")]
    id: Option<EventId>,
    /// Which server, and for whom
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct ScheduleArgs {
    /// Once, at this time, e.g. 2026-03-29T09:00:00Z
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// Once, so long from now, e.g. 30m
    #[arg(long, value_name = "DUR")]
    after: Option<String>,
    /// Again and again, e.g. 1h
    #[arg(long, value_name = "DUR")]
    every: Option<String>,
    /// By the clock: minute, hour, day of month, month, day of week; or `@daily` and the like
    #[arg(long, value_name = "EXPRESSION")]
    cron: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum TimerKindArg {
    Task,
    Message,
}

#[derive(Debug, Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum CatchUpArg {
    One,
    All,
    Skip,
}

#[derive(Debug, Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum OverlapArg {
    Skip,
    Queue,
}

/// Arguments of `v/ops/agent/trigger` for a timer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SetTimerRequest {
    agent_id: AgentId,
    input: Value,
    kind: TimerKindArg,
    catch_up: CatchUpArg,
    overlap: OverlapArg,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timezone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<SessionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<Priority>,
    /// Grants of what is sent; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<Vec<Value>>,
}

impl TimerCommand {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        match self {
            Self::Set(set) => set.run(context).await,
            Self::List { agent, all, offset, server } => {
                let mut query = vec![("all", all.to_string()), ("offset", offset.to_string())];
                query.extend(agent.map(|agent| ("agentId", agent.to_string())));
                let page = Client::new(&server)?.get("timers", &query).await?;
                let headings = ["TIMER", "AGENT", "WHEN", "STATE", "NEXT", "LAST", "FIRED", "SKIPPED", "NAME"];
                context.out.typed_page::<TimerView>(&page, "items", |timers| {
                    context.out.table(&headings, &timers.iter().map(row).collect::<Vec<_>>())
                })?;
                note_empty(&page, "no timers; `trellis timer set` makes one");
                note_next(&page);
                Ok(Exit::Ok)
            }
            Self::Cancel { id, server } => {
                let cancelled = Client::new(&server)?.delete(&format!("timers/{id}")).await?;
                context
                    .out
                    .typed_value::<TimerView>(cancelled, |timer| format!("timer {id} {}", escape_data(&timer.state)))?;
                Ok(Exit::Ok)
            }
        }
    }
}

impl SetTimerArgs {
    async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        abilities::note_unknown("--grant", &self.grants);
        let request = SetTimerRequest {
            agent_id: self.agent,
            input: input::value(&self.input, self.text)?,
            kind: self.kind,
            catch_up: self.catch_up,
            overlap: self.overlap,
            at: self.when.at,
            after: self.when.after,
            every: self.when.every,
            cron: self.when.cron,
            timezone: self.timezone,
            name: self.name,
            session_id: self.session,
            priority: self.priority,
            context: input::grants(&self.grants),
        };
        let key = self.id.unwrap_or_else(ingress::fresh_id);
        let answer = Client::new(&self.server)?.run("v/ops/agent/trigger", &request, Some(&key)).await;
        let answer = answer.map_err(|e| e.with_advice_on("no agent `", NO_AGENT))?;
        let TimerSetView { timer, next, .. } = read_view(answer.clone())?;
        context.out.value(&answer, || timer.to_string())?;
        note(&format!(
            "fires next at {}; `trellis timer cancel {}` takes it back",
            escape_data(next.as_deref().unwrap_or_default()),
            encode(timer.as_str())
        ));
        Ok(Exit::Ok)
    }
}

fn row(timer: &TimerView) -> Vec<String> {
    let when = match (&timer.cron, &timer.every, &timer.at) {
        (Some(cron), _, _) => format!("{cron} {}", timer.timezone.as_deref().unwrap_or_default()),
        (None, Some(every), _) => format!("every {every}"),
        (None, None, at) => format!("at {}", at.as_deref().unwrap_or_default()),
    };
    let state = match &timer.error {
        None => timer.state.clone(),
        Some(error) => format!("{}: {error}", timer.state),
    };
    let or_dash = |text: Option<&str>| text.unwrap_or("-").to_owned();
    vec![
        timer.timer.to_string(),
        timer.agent_id.to_string(),
        when,
        state,
        or_dash(timer.next.as_deref()),
        or_dash(timer.last.as_ref().map(|last| last.at.as_str())),
        timer.fired.to_string(),
        timer.skipped.to_string(),
        or_dash(timer.name.as_deref()),
    ]
}
