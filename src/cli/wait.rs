//! Waiting for the end of a job, and reporting it.

use super::client::{Client, read_view};
use super::escape;
use super::exit::{Exit, Failure};
use super::output::{CommandOutput, Format, format_plain, note, remark, write_line};
use crate::domain::event::{Completion, OmittedOutput};
use crate::domain::ids::JobId;
use crate::domain::job::{ErrorCode, JobStatus};
use crate::domain::wait::WaitReason;
use crate::process::retry::RetryPolicy;
use crate::view::job::{JobView, WaitView, error_code_name};
use serde::Serialize;
use serde_json::Value;
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

/// A job that a command waits for, read from its record or from its completion over the queue.
#[derive(Debug)]
pub(crate) struct AwaitedJob {
    /// The record or the completion as it came.
    json: Value,
    /// Id of the job, or of a submission that became none.
    id: String,
    /// What the id names: `job` or `submission`.
    kind: &'static str,
    status: JobStatus,
    result: ReportedResult,
    /// Reason why it waits.
    waiting: Option<WaitView>,
    /// What can be done about a job that was cancelled.
    advice: Option<String>,
    /// Job as which it was driven again.
    redriven_as: Option<JobId>,
}

/// Result of an awaited job, as far as there is one.
#[derive(Debug)]
struct ReportedResult {
    output: Option<Value>,
    /// The output is a text that the model's limit of tokens cut off.
    is_truncated: bool,
    /// Reference to an output that the completion doesn't hold.
    omitted: Option<OmittedOutput>,
    error: Option<String>,
    error_code: Option<String>,
}

impl AwaitedJob {
    /// Reads a job's record.
    pub fn from_record(json: Value) -> Result<Self, Failure> {
        let record: JobView = read_view(json.clone())?;
        Ok(Self {
            json,
            kind: "job",
            id: record.id.to_string(),
            status: record.status,
            result: ReportedResult {
                output: record.output,
                is_truncated: record.truncated == Some(true),
                omitted: None,
                error: record.error,
                error_code: record.error_code,
            },
            waiting: record.waiting,
            advice: record.advice,
            redriven_as: record.redriven_as,
        })
    }

    /// Reads a completion.
    pub fn from_completion(json: Value) -> Result<Self, Failure> {
        let Completion { id, job, output_omitted, result, .. } = read_view(json.clone())?;
        Ok(Self {
            json,
            kind: if job.is_some() { "job" } else { "submission" },
            id: job.map_or_else(|| id.as_str().to_owned(), |job| job.to_string()),
            status: result.status,
            result: ReportedResult {
                output: result.output,
                is_truncated: result.truncated,
                omitted: output_omitted,
                error: result.error,
                error_code: result.error_code.and_then(error_code_name),
            },
            waiting: None,
            advice: None,
            redriven_as: None,
        })
    }

    /// Returns the status of the job.
    pub const fn status(&self) -> JobStatus {
        self.status
    }

    /// Prints the output of a completed job, else why there is none; the exit code distinguishes them.
    pub fn print(&self, out: CommandOutput, limit: Option<Duration>) -> Result<Exit, Failure> {
        if out.format != Format::Text {
            out.value(&self.json, String::new)?;
        }
        let (id, result) = (&self.id, &self.result);
        if self.status == JobStatus::Complete {
            if let Some(OmittedOutput { bytes, .. }) = &result.omitted {
                note(&format!("the output has {bytes} bytes, more than NATS takes; `trellis job get {id}` shows it"));
            } else if out.format == Format::Text {
                write_line(&format_plain(result.output.as_ref().unwrap_or(&Value::Null)))?;
            }
            if result.is_truncated {
                note(
                    "warning: the model's limit of tokens cut this text off; `maxTokens` in the agent's file raises it",
                );
            }
            return Ok(Exit::Ok);
        }
        if self.status.is_terminal() {
            let is_conflict = result.error_code.as_deref().and_then(ErrorCode::parse) == Some(ErrorCode::Conflict);
            let exit = if is_conflict { Exit::Conflict } else { Exit::JobFailed };
            return Err(Failure::new(exit, format!("{} `{id}` {}", self.kind, self.describe_failure())));
        }
        if out.format == Format::Text {
            write_line(id)?;
        }
        let status = self.status.as_str();
        let why = self.waiting.as_ref().map(|wait| format!(" ({})", wait.reason)).unwrap_or_default();
        let after = format_limit(limit);
        let text = format!("job `{id}` is still {status}{why} after {after}; it goes on: `trellis job wait {id}`");
        Err(Failure::new(Exit::TimedOut, text))
    }

    fn describe_failure(&self) -> String {
        let result = &self.result;
        let code = result.error_code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
        let error = result.error.as_deref().filter(|error| !error.is_empty());
        // The text of some errors begins with their code.
        let named = result.error_code.as_deref();
        let error =
            error.map(|error| named.and_then(|code| error.strip_prefix(code)?.strip_prefix(": ")).unwrap_or(error));
        let error = error.map(|error| format!(": {}", escape::cell(error))).unwrap_or_default();
        let advice = self.advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
        let again = self.redriven_as.as_ref().map(|job| format!("; it was driven again as job `{job}`"));
        format!("{}{code}{error}{advice}{}", self.status.as_str(), again.unwrap_or_default())
    }
}

/// Arguments of `v/ops/job/result`.
#[derive(Serialize)]
struct JobResultRequest<'a> {
    id: &'a JobId,
    /// Longest wait for the end of the job, in milliseconds.
    wait: u64,
}

/// Returns a job when it has ended, or as it is after `limit` (`None`: no limit).
pub(crate) async fn wait_until_ended(
    client: &Client,
    job: &JobId,
    limit: Option<Duration>,
) -> Result<AwaitedJob, Failure> {
    let deadline = limit.map(|limit| Instant::now() + limit);
    let mut away = RECONNECT_RETRIES.wait_times();
    let (mut reasons, mut look) = (WaitNotes::default(), WAIT_READ_PAUSES.0);
    loop {
        let left = deadline.map_or(look, |at| at.saturating_duration_since(Instant::now()).min(look));
        look = (look * 2).min(WAIT_READ_PAUSES.1);
        let millis = u64::try_from(left.as_millis()).unwrap_or_default();
        match client.run("v/ops/job/result", &JobResultRequest { id: job, wait: millis }, None).await {
            Ok(record) => {
                away = RECONNECT_RETRIES.wait_times();
                let awaited = AwaitedJob::from_record(record)?;
                reasons.show(awaited.waiting.as_ref());
                if awaited.status.is_terminal() || deadline.is_some_and(|at| Instant::now() >= at) {
                    return Ok(awaited);
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
    /// Notes a reason, unless it was the last one or ends within moments.
    pub(crate) fn show(&mut self, waiting: Option<&WaitView>) {
        let Some(waiting) = waiting.filter(|waiting| waiting.kind != WaitReason::Due.kind()) else { return };
        let text = text(waiting);
        if self.0.as_ref() != Some(&text) {
            note(&format!("waits: {text}"));
            self.0 = Some(text);
        }
    }
}

/// Formats why a job, a session or an agent waits, until when, and what can be done.
pub(crate) fn text(waiting: &WaitView) -> String {
    let until = waiting.until.map(|until| format!("; it goes on at {}", until.rfc3339())).unwrap_or_default();
    let advice = waiting.advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
    // The text may contain words of a provider, or of a person who suspended an agent.
    escape::cell(&format!("{}{until}{advice}", waiting.reason)).into_owned()
}

/// Formats a limit in words.
pub(crate) fn format_limit(limit: Option<Duration>) -> String {
    limit.map_or_else(|| "a while".to_owned(), |limit| humantime::format_duration(limit).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_refused_submission_is_no_job_and_its_code_is_told_once() {
        let job = "1".repeat(32);
        for (job, error, expected) in [
            (None, "CAP_DENIED: no", "submission `e1` REJECTED (CAP_DENIED): no".to_owned()),
            (None, "no: CAP_DENIED: no", "submission `e1` REJECTED (CAP_DENIED): no: CAP_DENIED: no".to_owned()),
            (Some(&job), "CAP_DENIED", format!("job `{job}` REJECTED (CAP_DENIED): CAP_DENIED")),
        ] {
            let completion = json!({"id": "e1", "job": job, "agent": "a", "status": "REJECTED", "errorCode": "CAP_DENIED", "error": error});
            let awaited = AwaitedJob::from_completion(completion).unwrap();
            assert_eq!(format!("{} `{}` {}", awaited.kind, awaited.id, awaited.describe_failure()), expected);
        }
    }
}
