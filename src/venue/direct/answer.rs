//! Answers to direct submissions, in the form in which `JetStream` answers a publish.

use crate::domain::job::ErrorCode;
use crate::domain::visible::cut_error;
use crate::store::{Refusal, StoreError};
use crate::venue::ingress::{SubmissionError, SubmitError, SubmitReceipt};
use crate::view::queue::{DirectErrorView, DirectReceiptView, DirectRefusalView};

/// Name in the place of a stream's: clients of `JetStream` require one.
const STREAM: &str = "TRELLIS_DO";

/// Added to the status code, as the number of an error of `JetStream`: the server's own end below.
const FIRST_NUMBER: u32 = 20_000;

/// A refusal of a direct submission, with a status code of HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DirectRefusal {
    status: u16,
    text: String,
}

impl DirectRefusal {
    fn new(status: u16, text: impl Into<String>) -> Self {
        Self { status, text: cut_error(text.into()) }
    }

    /// 400: the message can't be understood.
    pub(super) fn bad_request(text: impl Into<String>) -> Self {
        Self::new(400, text)
    }

    /// 429: more waits for admission than the queue takes.
    pub(super) fn busy(text: impl Into<String>) -> Self {
        Self::new(429, text)
    }

    /// 401 or 403: the sender isn't known, or may not submit this.
    pub(super) fn of_sender(code: ErrorCode, text: impl Into<String>) -> Self {
        let status = match code {
            ErrorCode::Unauthenticated => 401,
            ErrorCode::CapDenied => 403,
            _ => 400,
        };
        Self::new(status, text)
    }

    /// Returns what the sender is told.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the refusal as the body of an answer.
    pub(super) fn view(&self) -> DirectRefusalView {
        let err_code = FIRST_NUMBER + u32::from(self.status);
        DirectRefusalView { error: DirectErrorView { code: self.status, err_code, description: self.text.clone() } }
    }
}

impl From<SubmissionError> for DirectRefusal {
    fn from(error: SubmissionError) -> Self {
        Self::new(error.status(), error.to_string())
    }
}

impl From<StoreError> for DirectRefusal {
    fn from(error: StoreError) -> Self {
        let status = match &error {
            StoreError::Unavailable { .. } | StoreError::Contended { .. } | StoreError::Full { .. } => 503,
            StoreError::Over(_) | StoreError::TenantFull(_) => 507,
            StoreError::Oversized(_) => 413,
            StoreError::Corrupt { .. } => 500,
        };
        Self::new(status, error.to_string())
    }
}

impl From<SubmitError> for DirectRefusal {
    fn from(error: SubmitError) -> Self {
        let status = match error {
            SubmitError::Submission(error) => return error.into(),
            SubmitError::Store(error) => return error.into(),
            SubmitError::Refused { refusal: Refusal::UnknownAgent, .. } => 404,
            SubmitError::Refused { refusal: Refusal::Terminated | Refusal::Busy, .. } | SubmitError::Conflict(_) => 409,
            SubmitError::Refused { refusal: Refusal::Quota(_), .. } => 507,
            SubmitError::Refused { refusal: Refusal::MailboxFull { .. }, .. } => 429,
        };
        Self::new(status, error.to_string())
    }
}

/// Returns the acknowledgement of the submission that this process took as number `seq`.
pub(super) fn ack(seq: u64, receipt: SubmitReceipt) -> DirectReceiptView {
    let SubmitReceipt { job, session, id, duplicate, ignored, warnings } = receipt;
    DirectReceiptView {
        stream: STREAM.to_owned(),
        seq,
        duplicate,
        id: id.to_string(),
        job,
        session: session.session,
        ignored,
        warnings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{EventId, JobId, SessionKey};
    use crate::view::to_json;
    use serde_json::json;

    #[test]
    fn an_ack_is_one_of_jetstream_with_the_job() {
        let job = JobId::derive(b"key", &"t/u".parse().unwrap(), &EventId::new("e").unwrap());
        let receipt = SubmitReceipt {
            job: Some(job.clone()),
            session: SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() },
            id: EventId::new("e").unwrap(),
            duplicate: true,
            ignored: Vec::new(),
            warnings: Vec::new(),
        };
        let expected =
            json!({"stream": "TRELLIS_DO", "seq": 7, "duplicate": true, "id": "e", "job": job, "session": "s"});
        assert_eq!(to_json(&ack(7, receipt)), expected);
    }

    #[test]
    fn a_refusal_is_an_error_of_jetstream() {
        let agent = || "a".parse().unwrap();
        for (refusal, status) in [
            (SubmitError::Refused { agent: agent(), refusal: Refusal::UnknownAgent }.into(), 404),
            (SubmitError::Refused { agent: agent(), refusal: Refusal::Busy }.into(), 409),
            (SubmitError::Conflict(EventId::new("e").unwrap()).into(), 409),
            (SubmissionError::TooLarge { bytes: 2, limit: 1 }.into(), 413),
            (SubmissionError::Priority.into(), 400),
            (DirectRefusal::of_sender(ErrorCode::CapDenied, "no"), 403),
            (DirectRefusal::busy("later"), 429),
        ] {
            let told = to_json(&refusal.view());
            assert_eq!((&told["error"]["code"], &told["error"]["err_code"]), (&json!(status), &json!(20_000 + status)));
            assert_eq!(told["error"]["description"], refusal.text());
        }
    }
}
