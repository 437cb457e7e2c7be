//! Jobs of external workers: their times, and the answers of their workers.

use crate::a2a::name::name_of_server;
use crate::event::new_session_id;
use crate::ids::{AgentId, JobId, QueueName, SessionId};
use crate::job::{ErrorCode, JobResult, JobStatus};
use crate::limits::{OUTBOUND_BYTES, OUTBOUND_NOTE_BYTES};
use crate::mcp::name::name_of_tool_server;
use crate::schema::veiled_misfits;
use serde_json::Value;

/// Catalogue path of the operation that makes such a job.
pub const PUBLISH: &str = "v/ops/queue/publish";

/// Misfits of an output that an error names.
const MISFITS_SHOWN: usize = 3;

/// Prefix of a queue's name where the id of an agent is expected.
const PREFIX: &str = "queue:";

/// Returns the id that stands for the workers of a queue where the id of an agent is expected.
pub fn server_id(queue: &QueueName) -> AgentId {
    let fallback = || AgentId::new("queue").expect("a legal id");
    AgentId::new(format!("{PREFIX}{queue}")).unwrap_or_else(|_| fallback())
}

/// Returns the server of a job in words for people and models: a queue (see [`server_id`]), an agent elsewhere, a
/// server of tools, or an agent.
pub fn server_name(server: &AgentId) -> String {
    if let Some(name) = name_of_tool_server(server) {
        return format!("MCP server {name}");
    }
    match (server.as_str().strip_prefix(PREFIX), name_of_server(server)) {
        (Some(queue), _) => format!("queue {queue}"),
        (None, Some(name)) => format!("agent {name} of another venue"),
        (None, None) => format!("agent {server}"),
    }
}

/// Returns the session in the head of an external worker's job; no session serves it.
pub fn session(job: &JobId) -> SessionId {
    new_session_id(job)
}

/// An answer of a worker about its job, with the token that permits it.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerAnswer {
    /// Id of the job.
    pub job: JobId,
    /// Token of the job.
    pub token: String,
    /// Content of the answer, or why it is invalid.
    pub report: Result<WorkerReport, WorkerAnswerError>,
}

/// Reason why a worker's answer is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct WorkerAnswerError {
    /// Reason in words.
    pub reason: String,
    /// Whether the fault is a status that this build doesn't know.
    pub is_of_status: bool,
}

impl From<String> for WorkerAnswerError {
    fn from(reason: String) -> Self {
        Self { reason, is_of_status: false }
    }
}

/// Content of a worker's answer.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerReport {
    /// The worker has begun, or is still at work.
    Started {
        /// Progress for those who watch the job.
        progress: Option<Value>,
    },
    /// The worker has ended the job.
    Ended(JobResult),
}

impl WorkerAnswer {
    /// Reads an answer from a body; `None` if the body is no answer of an external worker.
    pub fn parse(body: &Value) -> Option<Self> {
        let token = body.get("token")?.as_str()?.to_owned();
        let job = JobId::new(body.get("job")?.as_str()?).ok()?;
        Some(Self { job, token, report: parse_content(body) })
    }
}

fn parse_content(body: &Value) -> Result<WorkerReport, WorkerAnswerError> {
    let bytes = |value: &Value| value.to_string().len();
    match body.get("status").and_then(Value::as_str) {
        Some("STARTED") => {
            let progress = body.get("progress").filter(|progress| !progress.is_null());
            match progress.map(bytes) {
                Some(bytes) if bytes > OUTBOUND_NOTE_BYTES => {
                    Err(format!("`progress` has {bytes} bytes, expected at most {OUTBOUND_NOTE_BYTES}").into())
                }
                Some(_) | None => Ok(WorkerReport::Started { progress: progress.cloned() }),
            }
        }
        Some("COMPLETE") => match body.get("output") {
            None => Err("expected `output` with the status `COMPLETE`; it may be null".to_owned().into()),
            Some(output) => Ok(WorkerReport::Ended(complete_result(output, bytes(output)))),
        },
        Some("FAILED") => {
            let error = match body.get("error") {
                None | Some(Value::Null) => "the worker failed and said no more".to_owned(),
                Some(Value::String(text)) => cut_note(text),
                Some(other) => cut_note(&other.to_string()),
            };
            Ok(WorkerReport::Ended(JobResult::failure(ErrorCode::TaskFailed, error)))
        }
        Some(other) => {
            let reason = format!("`status`: expected `STARTED`, `COMPLETE` or `FAILED`, got `{}`", cut_note(other));
            Err(WorkerAnswerError { reason, is_of_status: true })
        }
        None => Err("expected `status`: `STARTED`, `COMPLETE` or `FAILED`".to_owned().into()),
    }
}

/// Returns the result of an output; one that is too large makes a failure, and no other output is awaited.
fn complete_result(output: &Value, bytes: usize) -> JobResult {
    if bytes <= OUTBOUND_BYTES {
        return JobResult::complete(output.clone());
    }
    let error = format!(
        "the worker's output has {bytes} bytes, expected at most {OUTBOUND_BYTES}; it should keep large values elsewhere and say where"
    );
    JobResult::failure(ErrorCode::OutputInvalid, error)
}

/// Returns the result of a worker as it counts: a failure if its output doesn't fit the declared schema.
pub fn check_output(schema: Option<&Value>, result: JobResult) -> JobResult {
    let Some(schema) = schema.filter(|_| result.status == JobStatus::Complete) else { return result };
    let output = result.output.clone().unwrap_or_default();
    let reason = match veiled_misfits(schema, &output, MISFITS_SHOWN) {
        Ok(misfits) if misfits.is_empty() => return result,
        Ok(misfits) => misfits.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        Err(error) => error.to_string(),
    };
    JobResult::failure(ErrorCode::OutputInvalid, cut_note(&format!("the worker's output isn't as declared: {reason}")))
}

fn cut_note(text: &str) -> String {
    if text.len() <= OUTBOUND_NOTE_BYTES {
        return text.to_owned();
    }
    let end = (0..=OUTBOUND_NOTE_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}…", &text[..end])
}

/// Returns why a second end of a job is ignored; `None` if it equals the first one.
pub fn second_end_error(known: Option<&JobResult>, status: JobStatus, again: &JobResult) -> Option<String> {
    // Stored results don't distinguish null from an absent output.
    let said = |result: &JobResult| {
        let output = result.output.clone().filter(|output| !output.is_null());
        JobResult { output, ..result.clone() }
    };
    if known.map(said) == Some(said(again)) {
        return None;
    }
    Some(format!("`{}` came after the job had ended: it is {}", again.status.as_str(), status.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::OUTBOUND_BYTES;
    use serde_json::json;

    fn job() -> JobId {
        JobId::new(&"0f".repeat(16)).unwrap()
    }

    #[test]
    fn answers_are_parsed_and_mistakes_named() {
        let parse = |mut body: Value| {
            body["job"] = json!(job());
            body["token"] = json!("t");
            WorkerAnswer::parse(&body).unwrap().report
        };
        assert_eq!(parse(json!({"status": "STARTED"})), Ok(WorkerReport::Started { progress: None }));
        let progress = parse(json!({"status": "STARTED", "progress": {"page": 3}, "extra": 1}));
        assert_eq!(progress, Ok(WorkerReport::Started { progress: Some(json!({"page": 3})) }));
        let done = |output| Ok(WorkerReport::Ended(JobResult::complete(output)));
        assert_eq!(parse(json!({"status": "COMPLETE", "output": {"n": 1}})), done(json!({"n": 1})));
        assert_eq!(parse(json!({"status": "COMPLETE", "output": null})), done(json!(null)));
        for (body, text) in [
            (json!({"status": "FAILED", "error": "no such file"}), "no such file"),
            (json!({"status": "FAILED", "error": {"code": 7}}), "{\"code\":7}"),
            (json!({"status": "FAILED"}), "the worker failed and said no more"),
        ] {
            assert_eq!(parse(body), Ok(WorkerReport::Ended(JobResult::failure(ErrorCode::TaskFailed, text))));
        }
        for (body, part) in [
            (json!({}), "expected `status`"),
            (json!({"status": "DONE"}), "got `DONE`"),
            (json!({"status": "COMPLETE", "outputs": 1}), "expected `output`"),
            (json!({"status": "STARTED", "progress": "x".repeat(9_000)}), "`progress` has 9002 bytes"),
        ] {
            let error = parse(body).unwrap_err();
            assert!(error.reason.contains(part), "{error}");
        }
        let Ok(WorkerReport::Ended(large)) = parse(json!({"status": "COMPLETE", "output": "x".repeat(OUTBOUND_BYTES)}))
        else {
            panic!("it is an end")
        };
        assert_eq!((large.error_code, large.output), (Some(ErrorCode::OutputInvalid), None));
        let Ok(WorkerReport::Ended(long)) = parse(json!({"status": "FAILED", "error": "ü".repeat(9_000)})) else {
            panic!("it is an end")
        };
        assert_eq!(long.error.unwrap().len(), OUTBOUND_NOTE_BYTES + '…'.len_utf8());
    }

    #[test]
    fn an_output_that_is_not_as_declared_fails_its_job() {
        let schema = json!({"type": "object", "required": ["text"]});
        let (fits, misfits) =
            (JobResult::complete(json!({"text": "x"})), JobResult::complete(json!({"txt": "s3cret"})));
        assert_eq!(check_output(Some(&schema), fits.clone()), fits);
        assert_eq!(check_output(None, misfits.clone()), misfits);
        let failed = JobResult::failure(ErrorCode::TaskFailed, "no such file");
        assert_eq!(check_output(Some(&schema), failed.clone()), failed);
        let refused = check_output(Some(&schema), misfits);
        let error = refused.error.unwrap();
        assert_eq!(refused.error_code, Some(ErrorCode::OutputInvalid));
        assert!(error.starts_with("the worker's output isn't as declared: ") && !error.contains("s3cret"), "{error}");
    }

    #[test]
    fn a_body_without_job_and_token_is_no_answer() {
        for body in
            [json!({}), json!([1]), json!({"token": "t"}), json!({"job": job()}), json!({"job": 1, "token": "t"})]
        {
            assert_eq!(WorkerAnswer::parse(&body), None, "{body}");
        }
    }

    #[test]
    fn a_repeated_end_is_ignored_and_a_different_one_reported() {
        let done = JobResult::complete(json!(1));
        assert_eq!(second_end_error(Some(&done), JobStatus::Complete, &done), None);
        let nothing = JobResult { output: None, ..done.clone() };
        assert_eq!(second_end_error(Some(&nothing), JobStatus::Complete, &JobResult::complete(json!(null))), None);
        let other = second_end_error(Some(&done), JobStatus::Complete, &JobResult::complete(json!(2))).unwrap();
        assert_eq!(other, "`COMPLETE` came after the job had ended: it is COMPLETE");
        assert!(second_end_error(None, JobStatus::Cancelled, &done).unwrap().contains("CANCELLED"));
    }

    #[test]
    fn who_serves_a_queue_has_a_name_among_agents() {
        assert_eq!(server_id(&"ocr".parse().unwrap()).as_str(), "queue:ocr");
        assert_eq!(server_name(&server_id(&"ocr".parse().unwrap())), "queue ocr");
        assert_eq!(server_name(&"clerk".parse().unwrap()), "agent clerk");
        assert_eq!(server_id(&"q".repeat(128).parse().unwrap()).as_str(), "queue");
    }
}
