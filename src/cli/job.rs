//! `trellis job …`: jobs and unknown outcomes.

use super::bulk::BulkArgs;
use super::client::{Client, ServerArgs};
use super::exit::{Exit, Failure};
use super::filter::{JobFilterArgs, append_next, read_filtered};
use super::output::{CommandOutput, field, format_plain, time};
use super::{CliContext, input, outcome, spend, wait, watch};
use crate::domain::ids::{EventId, JobId};
use crate::ingress;
use clap::Subcommand;
use serde_json::{Value, json};
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
        /// Its id
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
        /// Which ones
        #[command(flatten)]
        filter: JobFilterArgs,
        /// Jobs to skip, of the whole list
        #[arg(long, value_name = "N", default_value_t = 0)]
        offset: usize,
        /// Jobs to show
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Wait for the end of a job and print its output
    #[command(after_help = "Example:\n  trellis job wait 0123456789abcdef0123456789abcdef --timeout 2m")]
    Wait {
        /// Its id
        id: JobId,
        /// At most so long [default: until it has ended]
        #[arg(long, value_name = "DUR", value_parser = humantime::parse_duration)]
        timeout: Option<Duration>,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Cancel a job, or all open ones that a filter takes; a running model call is dropped
    ///
    /// Of several the number is told first, and asked whether that is meant.
    #[command(
        after_help = "Examples:\n  trellis job cancel 0123456789abcdef0123456789abcdef --reason 'not needed any more'\n  trellis job cancel --agent helper --state pending --since 2h\n  trellis job cancel --agent helper --yes"
    )]
    Cancel {
        /// Its id
        id: Option<JobId>,
        /// Which ones
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
    /// Children, timers and approvals go on, and so do deadlines.
    #[command(
        after_help = "Examples:\n  trellis job pause 0123456789abcdef0123456789abcdef\n  trellis job pause --agent helper --yes"
    )]
    Pause {
        /// Its id
        id: Option<JobId>,
        /// Which ones
        #[command(flatten)]
        many: Box<BulkArgs>,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Let a paused job go on, or all paused ones that a filter takes
    #[command(
        after_help = "Examples:\n  trellis job resume 0123456789abcdef0123456789abcdef\n  trellis job resume --agent helper --yes"
    )]
    Resume {
        /// Its id
        id: Option<JobId>,
        /// Which ones
        #[command(flatten)]
        many: Box<BulkArgs>,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Say something to an open job: its next turn reads it
    #[command(after_help = "Example:\n  trellis job message 0123456789abcdef0123456789abcdef 'only invoices of 2026'")]
    Message {
        /// Its id
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
        /// Its id
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
                outcome::list(&Client::new(&server)?, out, all, (offset, limit)).await
            }
            Self::List { filter, offset, limit, server, .. } => {
                list(&Client::new(&server)?, out, filter.query(), offset, limit).await
            }
            Self::Wait { id, timeout, server } => {
                let record = wait::wait_until_ended(&Client::new(&server)?, &id, timeout).await;
                record.and_then(|record| wait::report(out, &record, timeout))
            }
            Self::Cancel { id, many, reason, server } => {
                many.check(id.is_some())?;
                let client = Client::new(&server)?;
                let more = reason.as_ref().map_or_else(|| json!({}), |reason| json!({"reason": reason}));
                match id {
                    Some(id) => cancel(&client, out, &id, reason).await,
                    None => many.run(&client, out, ("cancel", "cancelled"), more).await,
                }
            }
            Self::Pause { id, many, server } => {
                hold(&Client::new(&server)?, out, (id, &many), ["pause", "paused"]).await
            }
            Self::Resume { id, many, server } => {
                hold(&Client::new(&server)?, out, (id, &many), ["resume", "resumed"]).await
            }
            Self::Message { id, input, text, key, server } => {
                let said = json!({"id": id, "message": input::value(&input, text)?});
                let key = key.unwrap_or_else(ingress::fresh_id);
                let answer = Client::new(&server)?.run("v/ops/job/message", &said, Some(&key)).await?;
                out.value(&answer, || format!("{id} {}", field(&answer, "status")))?;
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
    out.value(&record, || details(out, &record))?;
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
    out.page(&page, "items", |items| {
        let rows: Vec<Vec<String>> = items
            .iter()
            .map(|job| {
                let end = if job["error"].is_null() { &job["output"] } else { &job["error"] };
                vec![
                    field(job, "id"),
                    field(job, "status"),
                    server(job),
                    job["priority"].as_i64().unwrap_or(0).to_string(),
                    time(&job["created"]),
                    spend::tokens(&job["spend"]),
                    spend::cost(&job["spend"]),
                    summary(&job["input"]),
                    summary(end),
                ]
            })
            .collect();
        let headings = ["JOB", "STATUS", "AGENT", "PRIORITY", "CREATED", "TOKENS", "COST", "INPUT", "OUTPUT"];
        let table = out.table(&headings, &rows);
        if filtered {
            return append_next(table, items.len(), &page["next"]);
        }
        let total = page["total"].as_u64().unwrap_or(0);
        let shown = offset + items.len();
        let more = usize::try_from(total).unwrap_or(usize::MAX) > shown;
        if more { format!("{table}\n… {total} in all; `--offset {shown}` shows the next") } else { table }
    })?;
    Ok(Exit::Ok)
}

async fn cancel(client: &Client, out: CommandOutput, id: &JobId, reason: Option<String>) -> Result<Exit, Failure> {
    let body = reason.map_or_else(|| json!({}), |reason| json!({"reason": reason}));
    let record = client.put(&format!("jobs/{id}/cancel"), &body).await?;
    out.value(&record, || format!("{id} {}", field(&record, "status")))?;
    Ok(Exit::Ok)
}

async fn hold(
    client: &Client,
    out: CommandOutput,
    (id, many): (Option<JobId>, &BulkArgs),
    [verb, done]: [&str; 2],
) -> Result<Exit, Failure> {
    many.check(id.is_some())?;
    let Some(id) = id else { return many.run(client, out, (verb, done), json!({})).await };
    let record = client.put(&format!("jobs/{id}/{verb}"), &json!({})).await?;
    out.value(&record, || format!("{id} {}", field(&record, "status")))?;
    Ok(Exit::Ok)
}

/// Returns the agent, or the queue of external workers, that serves a job.
fn server(job: &Value) -> String {
    let queue = job["outbound"]["queue"].as_str();
    queue.map_or_else(|| field(job, "agent"), |queue| format!("queue {queue}"))
}

/// Formats a job, one line per field.
fn details(out: CommandOutput, record: &Value) -> String {
    let Some(map) = record.as_object() else { return format_plain(record) };
    let width = map.keys().map(String::len).max().unwrap_or(0);
    let line = |(key, value): (&String, &Value)| {
        let text = match key.as_str() {
            "created" | "updated" => time(value),
            "spend" => spend::format_spend(value),
            "waiting" => wait::text(record).unwrap_or_default(),
            "running" => {
                format!("turn {} on worker {} since {}", value["turn"], field(value, "worker"), time(&value["since"]))
            }
            "status" => out.status(&field(record, "status"), &field(record, "status")),
            _ => format_plain(value),
        };
        format!("{key:<width$}  {}", text.replace('\n', &format!("\n{:width$}  ", "")))
    };
    map.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the beginning of a value, in one line.
fn summary(value: &Value) -> String {
    let text = match value {
        Value::Null => return String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SUMMARY_CHARS) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_one_short_line() {
        assert_eq!(summary(&json!("a\n b")), "a b");
        assert_eq!(summary(&json!({"a": 1})), r#"{"a":1}"#);
        assert_eq!(summary(&json!("ü".repeat(50))), format!("{}…", "ü".repeat(40)));
        assert_eq!(summary(&Value::Null), "");
    }
}
