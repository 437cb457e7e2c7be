//! Waiting for the end of a job, and reporting it.

use super::client::Client;
use super::escape;
use super::exit::{Exit, Failure};
use super::output::{CommandOutput, Format, field, format_plain, note, remark, time, write_line};
use crate::domain::event::OUTPUT_OMITTED;
use crate::domain::ids::JobId;
use crate::domain::job::JobStatus;
use crate::process::retry::RetryPolicy;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// First and longest pause between two reads of why a job waits.
pub(crate) const WAIT_READ_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

/// Retries while the server of an awaited job is away: long enough for a restart.
pub(crate) const RECONNECT_RETRIES: RetryPolicy = RetryPolicy {
    first: Duration::from_millis(100),
    max: Duration::from_secs(2),
    total: Some(Duration::from_secs(30)),
    ..RetryPolicy::CONNECT
};

/// Returns the record of a job when it has ended, or as it is after `limit` (`None`: no limit).
pub(crate) async fn wait_until_ended(client: &Client, job: &JobId, limit: Option<Duration>) -> Result<Value, Failure> {
    let deadline = limit.map(|limit| Instant::now() + limit);
    let mut away = RECONNECT_RETRIES.wait_times();
    let (mut reasons, mut look) = (WaitNotes::default(), WAIT_READ_PAUSES.0);
    loop {
        let left = deadline.map_or(look, |at| at.saturating_duration_since(Instant::now()).min(look));
        look = (look * 2).min(WAIT_READ_PAUSES.1);
        let millis = u64::try_from(left.as_millis()).unwrap_or_default();
        match client.run("v/ops/job/result", &json!({"id": job, "wait": millis}), None).await {
            Ok(record) => {
                away = RECONNECT_RETRIES.wait_times();
                reasons.show(&record);
                if is_ended(&record) || deadline.is_some_and(|at| Instant::now() >= at) {
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

/// Notes on stderr why something waits, once for each change of the reason.
#[derive(Debug, Default)]
pub(crate) struct WaitNotes(Option<String>);

impl WaitNotes {
    /// Notes the reason in a record, unless it was the last one or ends within moments.
    pub(crate) fn show(&mut self, record: &Value) {
        if is_ended(record) || record["waiting"]["kind"] == "due" {
            return;
        }
        let Some(text) = text(record) else { return };
        if self.0.as_ref() != Some(&text) {
            note(&format!("waits: {text}"));
            self.0 = Some(text);
        }
    }
}

fn reason(record: &Value) -> Option<String> {
    record["waiting"]["reason"].as_str().map(str::to_owned)
}

/// Formats why a job, a session or an agent waits, until when, and what can be done.
pub(crate) fn text(record: &Value) -> Option<String> {
    let waiting = &record["waiting"];
    let until = (!waiting["until"].is_null()).then(|| format!("; it goes on at {}", time(&waiting["until"])));
    let advice = waiting["advice"].as_str().map(|advice| format!("; {advice}"));
    let text = reason(record)? + &until.unwrap_or_default() + &advice.unwrap_or_default();
    // The text may contain words of a provider, or of a person who suspended an agent.
    Some(escape::cell(&text).into_owned())
}

/// Whether a job has ended.
pub(crate) fn is_ended(record: &Value) -> bool {
    record["status"].as_str().and_then(JobStatus::parse).is_some_and(JobStatus::is_terminal)
}

/// Prints the output of a completed job, else why there is none; the exit code distinguishes them.
pub(crate) fn report(out: CommandOutput, record: &Value, limit: Option<Duration>) -> Result<Exit, Failure> {
    if out.format != Format::Text {
        out.value(record, String::new)?;
    }
    let id = if record["job"].is_null() { field(record, "id") } else { field(record, "job") };
    match record["status"].as_str().and_then(JobStatus::parse) {
        Some(JobStatus::Complete) => {
            if out.format == Format::Text && record[OUTPUT_OMITTED].is_null() {
                write_line(&format_plain(&record["output"]))?;
            }
            Ok(Exit::Ok)
        }
        Some(status) if status.is_terminal() => {
            let exit = if record["errorCode"] == "CONFLICT" { Exit::Conflict } else { Exit::JobFailed };
            Err(Failure::new(exit, format!("job `{id}` {status_text}", status_text = describe_failure(status, record))))
        }
        Some(_) | None => {
            if out.format == Format::Text {
                write_line(&id)?;
            }
            let status = field(record, "status");
            let why = reason(record).map(|why| format!(" ({why})")).unwrap_or_default();
            let after = format_limit(limit);
            let text = format!("job `{id}` is still {status}{why} after {after}; it goes on: `trellis job wait {id}`");
            Err(Failure::new(Exit::TimedOut, text))
        }
    }
}

fn describe_failure(status: JobStatus, record: &Value) -> String {
    let error = field(record, "error");
    let error = if error.is_empty() { String::new() } else { format!(": {error}") };
    let advice = record["advice"].as_str().map(|advice| format!("; {advice}")).unwrap_or_default();
    let again = record["redrivenAs"].as_str().map(|job| format!("; it was driven again as job `{job}`"));
    let again = again.unwrap_or_default();
    match record["errorCode"].as_str() {
        Some(code) => format!("{} ({code}){error}{advice}{again}", status.as_str()),
        None => format!("{}{error}{advice}{again}", status.as_str()),
    }
}

/// Formats a limit in words.
pub(crate) fn format_limit(limit: Option<Duration>) -> String {
    limit.map_or_else(|| "a while".to_owned(), |limit| humantime::format_duration(limit).to_string())
}
