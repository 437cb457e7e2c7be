//! Waiting for a job's end, and telling how it ended.

use super::client::Client;
use super::exit::{Exit, Failure};
use super::output::{Format, Out, field, note, plain, remark, write_line};
use crate::domain::ids::JobId;
use crate::domain::job::JobStatus;
use crate::outbox::OMITTED;
use crate::process::retry::RetryPolicy;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// Longest wait of one request: common proxies hang up after 30 s.
const LONG_POLL: Duration = Duration::from_secs(20);

/// How long a server may be away while its job is waited for: a restart.
pub(crate) const AWAY: RetryPolicy = RetryPolicy {
    first: Duration::from_millis(100),
    max: Duration::from_secs(2),
    total: Some(Duration::from_secs(30)),
    ..RetryPolicy::CONNECT
};

/// The record of a job when it has ended, or as it is after `limit` (`None`: no limit).
pub(crate) async fn until_ended(client: &Client, job: &JobId, limit: Option<Duration>) -> Result<Value, Failure> {
    let deadline = limit.map(|limit| Instant::now() + limit);
    let mut away = AWAY.waits();
    let mut told = false;
    loop {
        let left = deadline.map_or(LONG_POLL, |at| at.saturating_duration_since(Instant::now()).min(LONG_POLL));
        let millis = u64::try_from(left.as_millis()).unwrap_or_default();
        match client.run("v/ops/job/result", &json!({"id": job, "wait": millis}), None).await {
            Ok(record) => {
                away = AWAY.waits();
                if record["status"] == JobStatus::InputRequired.as_str() && !std::mem::replace(&mut told, true) {
                    note("the job waits for a person: `trellis approvals` shows what is asked");
                }
                if ended(&record) || deadline.is_some_and(|at| Instant::now() >= at) {
                    return Ok(record);
                }
            }
            Err(failure) if failure.exit == Exit::Unreachable => {
                let Some(pause) = away.next_wait() else { return Err(failure) };
                if deadline.is_some_and(|at| Instant::now() + pause >= at) {
                    return Err(failure);
                }
                remark(&format!("waiting for the server: {failure}"));
                tokio::time::sleep(pause).await;
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Whether nothing changes a job any more.
pub(crate) fn ended(record: &Value) -> bool {
    record["status"].as_str().and_then(JobStatus::parse).is_some_and(JobStatus::is_terminal)
}

/// Prints the output of a job that completed, else why there is none; the exit code says which.
pub(crate) fn report(out: Out, record: &Value, limit: Option<Duration>) -> Result<Exit, Failure> {
    if out.format != Format::Text {
        out.value(record, String::new)?;
    }
    let id = if record["job"].is_null() { field(record, "id") } else { field(record, "job") };
    match record["status"].as_str().and_then(JobStatus::parse) {
        Some(JobStatus::Complete) => {
            if out.format == Format::Text && record[OMITTED].is_null() {
                write_line(&plain(&record["output"]))?;
            }
            Ok(Exit::Ok)
        }
        Some(status) if status.is_terminal() => {
            note(&format!("error: job `{id}` {status_text}", status_text = why(status, record)));
            Ok(if record["errorCode"] == "CONFLICT" { Exit::Conflict } else { Exit::JobFailed })
        }
        Some(_) | None => {
            if out.format == Format::Text {
                write_line(&id)?;
            }
            let status = field(record, "status");
            note(&format!("job `{id}` is still {status} after {}; it goes on: `trellis job wait {id}`", shown(limit)));
            Ok(Exit::TimedOut)
        }
    }
}

fn why(status: JobStatus, record: &Value) -> String {
    let error = field(record, "error");
    let error = if error.is_empty() { String::new() } else { format!(": {error}") };
    match record["errorCode"].as_str() {
        Some(code) => format!("{} ({code}){error}", status.as_str()),
        None => format!("{}{error}", status.as_str()),
    }
}

/// A limit in words.
pub(crate) fn shown(limit: Option<Duration>) -> String {
    limit.map_or_else(|| "a while".to_owned(), |limit| humantime::format_duration(limit).to_string())
}
