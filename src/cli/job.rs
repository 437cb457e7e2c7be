//! `trellis job …`: jobs and unknown outcomes.

use super::bulk::{BulkAction, BulkArgs};
use super::client::{Client, ServerArgs, read_view};
use super::escape::escape_data;
use super::exit::{Exit, Failure};
use super::filter::{JobFilterArgs, append_next, read_filtered};
use super::output::{CommandOutput, format_plain};
use super::{CliContext, input, outcome, spend, wait, watch};
use crate::domain::ids::{EventId, JobId};
use crate::venue::ingress;
use crate::view::job::{JobView, RunningTurnView};
use crate::view::job_list::JobListPage;
use crate::view::request::{JobMessageRequest, JobMessageView};
use clap::Subcommand;
use serde::Serialize;
use serde_json::{Map, Value};
use std::time::Duration;

/// Characters of an input or output in a list.
const SUMMARY_CHARS: usize = 40;

const NO_JOB: &str = "`trellis job list` shows which there are, `--owner` whose they are";

/// Jobs: the handles of tasks.
#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Show a job
    #[command(after_help = "Example:\n  trellis job get 0123456789abcdef0123456789abcdef --output json")]
    Get {
        /// Id of the job
        id: JobId,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// List jobs, newest first
    ///
    /// A filtered list is looked through until `--limit` jobs are found, or its end. Tokens and cost are those of a job
    /// with all jobs under it.
    #[command(
        after_help = "Examples:\n  trellis job list --state failed --agent helper --since 2h --output ndjson\n  trellis job list --outcome unknown"
    )]
    List {
        /// Calls of which nobody knows whether they happened, instead of jobs; `job settle` settles them
        #[arg(long, value_name = "OUTCOME", value_parser = ["unknown"])]
        outcome: Option<String>,
        /// With `--outcome`: those that are settled, too
        #[arg(long, requires = "outcome")]
        all: bool,
        /// Filter of the jobs
        #[command(flatten)]
        filter: JobFilterArgs,
        /// Jobs to skip, of the whole list
        #[arg(long, value_name = "N", default_value_t = 0)]
        offset: usize,
        /// Jobs to show
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = input::list_limit())]
        limit: usize,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Wait for the end of a job and print its output
    #[command(after_help = "Example:\n  trellis job wait 0123456789abcdef0123456789abcdef --timeout 2m")]
    Wait {
        /// Id of the job
        id: JobId,
        /// At most so long [default: until it has ended]
        #[arg(long, value_name = "DUR", value_parser = input::duration)]
        timeout: Option<Duration>,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Cancel a job, or all open ones that a filter takes; a running model call is dropped
    ///
    /// Of several the number is told first, and asked whether that is meant. Exits with 1 when some could not be
    /// cancelled, with 7 when the caller may not cancel some.
    #[command(
        after_help = "Examples:\n  trellis job cancel 0123456789abcdef0123456789abcdef --reason 'not needed any more'\n  trellis job cancel --agent helper --state pending --since 2h\n  trellis job cancel --agent helper --yes"
    )]
    Cancel {
        /// Id of the job
        id: Option<JobId>,
        /// Filter of the jobs, in the place of an id
        #[command(flatten)]
        many: Box<BulkArgs>,
        /// Why, for the record
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Pause a job, or all open ones of agents that a filter takes: running turns commit, and none begins until `job resume`
    ///
    /// Children, timers and approvals go on, and so do deadlines. Of several jobs the exit codes are those of
    /// `job cancel`.
    #[command(
        after_help = "Examples:\n  trellis job pause 0123456789abcdef0123456789abcdef\n  trellis job pause --agent helper --yes"
    )]
    Pause {
        /// Id of the job
        id: Option<JobId>,
        /// Filter of the jobs, in the place of an id
        #[command(flatten)]
        many: Box<BulkArgs>,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Let a paused job go on, or all paused ones that a filter takes
    ///
    /// Of several jobs the exit codes are those of `job cancel`.
    #[command(
        after_help = "Examples:\n  trellis job resume 0123456789abcdef0123456789abcdef\n  trellis job resume --agent helper --yes"
    )]
    Resume {
        /// Id of the job
        id: Option<JobId>,
        /// Filter of the jobs, in the place of an id
        #[command(flatten)]
        many: Box<BulkArgs>,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Say something to an open job: its next turn reads it
    #[command(after_help = "Example:\n  trellis job message 0123456789abcdef0123456789abcdef 'only invoices of 2026'")]
    Message {
        /// Id of the job
        id: JobId,
        /// What to say: text, JSON, `@file`, or `-` for stdin
        #[arg(allow_hyphen_values = true)]
        input: String,
        /// Take the input as text even if it looks like JSON
        #[arg(long)]
        text: bool,
        /// Your id of this message: sending it again under the same id changes nothing
        #[arg(long = "id", value_name = "KEY")]
        key: Option<EventId>,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Say whether a call of unknown outcome has happened
    ///
    /// It counts once, and changes neither the job nor the turn. Without --tell the agent doesn't learn of it.
    #[command(
        after_help = "Examples:\n  trellis job settle 0123456789abcdef0123456789abcdef --done '{\"refund\": \"re_1\"}'\n  trellis job settle 0123456789abcdef0123456789abcdef --not-done --note 'no such refund in the bank' --tell"
    )]
    Settle(outcome::SettleArgs),
    /// Follow a job: status changes, and the text as it is written
    #[command(after_help = "Example:\n  trellis job watch 0123456789abcdef0123456789abcdef")]
    Watch {
        /// Id of the job
        id: JobId,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
}

impl JobCommand {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let out = context.out;
        let done = match self {
            Self::Get { id, server } => show(&Client::new(&server)?, out, &id).await,
            Self::List { outcome: Some(_), all, filter, offset, limit, server } => {
                if !filter.is_empty() {
                    return Err(Failure::usage("`--outcome` goes with `--all`, `--offset` and `--limit` alone"));
                }
                outcome::list(&Client::new(&server)?, out, all, offset, limit).await
            }
            Self::List { filter, offset, limit, server, .. } => {
                list(&Client::new(&server)?, out, filter.query(), offset, limit).await
            }
            Self::Wait { id, timeout, server } => {
                let report = wait::wait_until_ended(&Client::new(&server)?, &id, timeout).await;
                report.and_then(|report| report.print(out, timeout))
            }
            Self::Cancel { id, many, reason, server } => {
                many.check(id.is_some())?;
                let client = Client::new(&server)?;
                match id {
                    Some(id) => cancel(&client, out, &id, reason).await,
                    None => many.run(&client, out, BulkAction::CANCEL, reason).await,
                }
            }
            Self::Pause { id, many, server } => {
                pause_or_resume(&Client::new(&server)?, out, id, &many, BulkAction::PAUSE).await
            }
            Self::Resume { id, many, server } => {
                pause_or_resume(&Client::new(&server)?, out, id, &many, BulkAction::RESUME).await
            }
            Self::Message { id, input, text, key, server } => {
                let request = JobMessageRequest { id: &id, message: input::value(&input, text)? };
                let key = key.unwrap_or_else(ingress::fresh_id);
                let answer = Client::new(&server)?.run("v/ops/job/message", &request, Some(&key)).await?;
                out.typed_value(answer, |sent: &JobMessageView| format!("{id} {}", escape_data(&sent.status)))?;
                Ok(Exit::Ok)
            }
            Self::Settle(settle) => settle.run(out).await,
            Self::Watch { id, server } => watch::follow(&Client::new(&server)?, out, &id).await,
        };
        done.map_err(|e| e.with_advice_on("no job `", NO_JOB))
    }
}

async fn show(client: &Client, out: CommandOutput, id: &JobId) -> Result<Exit, Failure> {
    let record = client.get(&format!("jobs/{id}"), &[]).await?;
    out.typed_value(record.clone(), |job: &JobView| details(out, &record, job))?;
    Ok(Exit::Ok)
}

async fn list(
    client: &Client,
    out: CommandOutput,
    mut query: Vec<(&'static str, String)>,
    offset: usize,
    limit: usize,
) -> Result<Exit, Failure> {
    let filtered = !query.is_empty();
    query.push(("details", "true".to_owned()));
    let page = if offset > 0 || !filtered {
        query.extend([("limit", limit.to_string()), ("offset", offset.to_string())]);
        client.get("jobs", &query).await?
    } else {
        read_filtered(client, "jobs", "items", query, limit).await?
    };
    let JobListPage { total, next, .. } = read_view(page.clone())?;
    out.typed_page(&page, "items", |jobs: &[JobView]| {
        let rows: Vec<Vec<String>> = jobs.iter().map(row).collect();
        let headings = ["JOB", "STATUS", "AGENT", "PRIORITY", "CREATED", "TOKENS", "COST", "INPUT", "OUTPUT"];
        let table = out.table(&headings, &rows);
        if filtered {
            return append_next(table, jobs.len(), next.as_ref().and_then(Value::as_str));
        }
        let (total, shown) = (total.unwrap_or(0), offset + jobs.len());
        if total > shown { format!("{table}\n… {total} in all; `--offset {shown}` shows the next") } else { table }
    })?;
    Ok(Exit::Ok)
}

fn row(job: &JobView) -> Vec<String> {
    let end = match &job.error {
        Some(error) => summarize_text(error),
        None => summary(job.output.as_ref()),
    };
    vec![
        job.id.to_string(),
        job.status.as_str().to_owned(),
        server(job),
        i64::from(job.priority.unwrap_or_default()).to_string(),
        job.created.rfc3339(),
        spend::tokens(job.spend.as_ref()),
        spend::cost(job.spend.as_ref()),
        summary(job.input.as_ref()),
        end,
    ]
}

/// Body of `PUT jobs/{id}/cancel`.
#[derive(Serialize)]
pub(crate) struct CancelJobBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

async fn cancel(client: &Client, out: CommandOutput, id: &JobId, reason: Option<String>) -> Result<Exit, Failure> {
    let record = client.put(&format!("jobs/{id}/cancel"), &CancelJobBody { reason }).await?;
    out.typed_value(record, |job: &JobView| format!("{id} {}", job.status.as_str()))?;
    Ok(Exit::Ok)
}

async fn pause_or_resume(
    client: &Client,
    out: CommandOutput,
    id: Option<JobId>,
    many: &BulkArgs,
    action: BulkAction,
) -> Result<Exit, Failure> {
    many.check(id.is_some())?;
    let Some(id) = id else { return many.run(client, out, action, None).await };
    let record = client.put(&format!("jobs/{id}/{}", action.name), &Map::new()).await?;
    out.typed_value(record, |job: &JobView| format!("{id} {}", job.status.as_str()))?;
    Ok(Exit::Ok)
}

/// Returns the agent, or the queue of external workers, that serves a job.
fn server(job: &JobView) -> String {
    let agent = || job.agent.as_ref().map(ToString::to_string).unwrap_or_default();
    job.outbound.as_ref().map_or_else(agent, |outbound| format!("queue {}", outbound.queue))
}

/// Formats a job, one line per field; fields that this build doesn't know are shown as they came.
fn details(out: CommandOutput, record: &Value, job: &JobView) -> String {
    let Some(map) = record.as_object() else { return format_plain(record) };
    let width = map.keys().map(String::len).max().unwrap_or(0);
    let line = |(key, value): (&String, &Value)| {
        let text = match key.as_str() {
            "created" => job.created.rfc3339(),
            "updated" => job.updated.rfc3339(),
            "spend" => job.spend.as_ref().map(spend::format_spend).unwrap_or_default(),
            "waiting" => job.waiting.as_ref().map(wait::text).unwrap_or_default(),
            "running" => job.running.as_ref().map(format_running).unwrap_or_default(),
            "status" => out.status(job.status.as_str(), job.status.as_str()),
            _ => format_plain(value),
        };
        format!("{key:<width$}  {}", text.replace('\n', &format!("\n{:width$}  ", "")))
    };
    map.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn format_running(running: &RunningTurnView) -> String {
    let RunningTurnView { turn, worker, since } = running;
    format!("turn {turn} on worker {} since {}", escape_data(worker), since.rfc3339())
}

/// Returns the beginning of a value, in one line.
fn summary(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => summarize_text(text),
        Some(other) => summarize_text(&other.to_string()),
    }
}

/// Returns the beginning of a text, in one line.
fn summarize_text(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SUMMARY_CHARS) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn summaries_are_one_short_line() {
        assert_eq!(summary(Some(&json!("a\n b"))), "a b");
        assert_eq!(summary(Some(&json!({"a": 1}))), r#"{"a":1}"#);
        assert_eq!(summary(Some(&json!("ü".repeat(50)))), format!("{}…", "ü".repeat(40)));
        assert_eq!((summary(Some(&Value::Null)), summary(None)), (String::new(), String::new()));
    }
}
