//! Errors as RFC 9457 problem details, with Covia's `error` string added.

use crate::domain::decode::DataError;
use crate::domain::token::TokenError;
use crate::domain::visible::beginning;
use crate::store::{Refusal, StoreError};
use crate::venue::ingress::{SubmissionError, SubmitError};
use crate::venue::operation::OpError;
use crate::venue::policy::RevocationCheckError;
use crate::view;
use crate::view::problem::{MisfitView, ProblemView};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::fmt::Display;

/// Media type of a problem.
pub(super) const PROBLEM_JSON: &str = "application/problem+json";

/// Bytes of a problem's text in JSON; the text occurs twice.
const DETAIL_BYTES: usize = 1024;

/// Bytes of a problem's facts; with text and rest a problem has at most 4 KB.
const FACTS_BYTES: usize = 1700;

/// Text of an answer that is a problem, for protocols that have another form of errors.
#[derive(Debug, Clone)]
pub(super) struct ProblemText {
    pub(super) detail: String,
    pub(super) retry_after: Option<u32>,
}

/// An error as an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) detail: String,
    /// Seconds after which the same request may succeed.
    pub(super) retry_after: Option<u32>,
    /// Code of the error, where its status doesn't say enough.
    code: Option<&'static str>,
    /// `WWW-Authenticate` challenge to a caller without a valid token.
    challenge: Option<String>,
    /// Faults of the data that was sent, with their places.
    faults: Vec<DataError>,
}

impl Problem {
    /// Makes a problem that is described by its status.
    pub(super) fn new(status: StatusCode, detail: impl Display) -> Self {
        Self {
            status,
            detail: beginning(detail.to_string(), DETAIL_BYTES),
            retry_after: None,
            code: None,
            challenge: None,
            faults: Vec::new(),
        }
    }

    /// 400: the request is wrong.
    pub(super) fn bad_request(detail: impl Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// 400, with the fault as a fact.
    pub(super) fn invalid_data(wrong: DataError) -> Self {
        Self { faults: vec![wrong.clone()], ..Self::bad_request(wrong) }
    }

    /// 403: the caller isn't allowed to do this.
    pub(super) fn forbidden(detail: impl Display) -> Self {
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    /// 404: there is nothing of that name.
    pub(super) fn not_found(detail: impl Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// 409: the state doesn't allow it.
    pub(super) fn conflict(detail: impl Display) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    /// 507: the quota of the owner, or the number of users of its tenant, is reached. Not 429, after which clients try
    /// again: that would not help.
    fn quota_reached(over: impl Display) -> Self {
        Self { code: Some("QUOTA_EXCEEDED"), ..Self::new(StatusCode::INSUFFICIENT_STORAGE, over) }
    }

    /// 500, not 502 or 504, after which clients try again: that would repeat the call.
    fn outcome_unknown(error: OpError) -> Self {
        Self { code: Some("OUTCOME_UNKNOWN"), ..Self::new(StatusCode::INTERNAL_SERVER_ERROR, error) }
    }

    /// Adds the number of seconds after which the caller may try again.
    pub(super) const fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}

impl From<TokenError> for Problem {
    /// 401: the token is missing or invalid. RFC 6750 defines the challenge.
    fn from(refused: TokenError) -> Self {
        let text = refused.to_string();
        let plain = |c: char| if (c == ' ' || c.is_ascii_graphic()) && !matches!(c, '"' | '\\') { c } else { '\'' };
        let told: String = text.chars().map(plain).collect();
        let challenge = match refused {
            TokenError::Missing => "Bearer realm=\"trellis\"".to_owned(),
            _ => format!("Bearer realm=\"trellis\", error=\"invalid_token\", error_description=\"{told}\""),
        };
        Self { challenge: Some(challenge), ..Self::new(StatusCode::UNAUTHORIZED, text) }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Unavailable { .. } | StoreError::Contended { .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, error).retry_after(1)
            }
            // Operators free memory; that takes more than a second.
            StoreError::Full { .. } => Self::new(StatusCode::SERVICE_UNAVAILABLE, error).retry_after(30),
            StoreError::Over(over) => Self::quota_reached(over),
            StoreError::TenantFull(full) => Self::quota_reached(full),
            StoreError::Oversized(_) => Self::new(StatusCode::PAYLOAD_TOO_LARGE, error),
            StoreError::Corrupt { .. } => {
                tracing::error!(%error, "request failed");
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, error)
            }
        }
    }
}

impl From<RevocationCheckError> for Problem {
    fn from(error: RevocationCheckError) -> Self {
        match error {
            RevocationCheckError::Token(error) => error.into(),
            RevocationCheckError::Store(error) => error.into(),
        }
    }
}

impl From<OpError> for Problem {
    fn from(error: OpError) -> Self {
        match error {
            OpError::Invalid(text) => Self::bad_request(text),
            OpError::Arguments { ref wrong, .. } => Self { faults: wrong.clone(), ..Self::bad_request(&error) },
            OpError::Denied(text) => Self::forbidden(text),
            OpError::NotFound(text) => Self::not_found(text),
            OpError::Conflict(text) | OpError::Limit(text) => Self::conflict(text),
            OpError::Failed(text) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, format!("Operation failed: {text}")),
            OpError::Upstream(text) => Self::new(StatusCode::BAD_GATEWAY, format!("Operation failed: {text}")),
            OpError::Timeout(text) => Self::new(StatusCode::GATEWAY_TIMEOUT, text),
            OpError::OutcomeUnknown(_) => Self::outcome_unknown(error),
            OpError::Fenced => Self::new(StatusCode::INTERNAL_SERVER_ERROR, error),
            OpError::Store(error) => error.into(),
        }
    }
}

impl From<SubmissionError> for Problem {
    fn from(error: SubmissionError) -> Self {
        let faults = if let SubmissionError::Malformed(wrong) = &error { vec![wrong.clone()] } else { Vec::new() };
        let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
        Self { faults, ..Self::new(status, error) }
    }
}

impl From<SubmitError> for Problem {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Submission(error) => error.into(),
            SubmitError::Store(error) => error.into(),
            SubmitError::Refused { refusal: Refusal::UnknownAgent, agent } => {
                Self::not_found(format!("no agent `{agent}`"))
            }
            SubmitError::Conflict(_) | SubmitError::Refused { refusal: Refusal::Terminated | Refusal::Busy, .. } => {
                Self::conflict(error)
            }
            SubmitError::Refused { refusal: Refusal::Quota(over), .. } => Self::quota_reached(over),
            SubmitError::Refused { refusal: Refusal::MailboxFull { .. }, .. } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, error).retry_after(5)
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut left = FACTS_BYTES;
        let facts = self.faults.iter().map(MisfitView::from).take_while(|fact| {
            let fits = left.checked_sub(view::to_json(fact).to_string().len());
            left = fits.unwrap_or_default();
            fits.is_some()
        });
        let facts: Vec<MisfitView> = facts.collect();
        let text = ProblemText { detail: self.detail.clone(), retry_after: self.retry_after };
        let body = ProblemView {
            // The status says all there is to know, and `title` is its phrase.
            r#type: "about:blank".to_owned(),
            title: self.status.canonical_reason().unwrap_or("Error").to_owned(),
            status: self.status.as_u16(),
            error: self.detail.clone(),
            detail: self.detail,
            errors: (!facts.is_empty()).then_some(facts),
            code: self.code.map(str::to_owned),
        };
        let mut response = (self.status, view::to_json(&body).to_string()).into_response();
        response.extensions_mut().insert(text);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(challenge) = self.challenge.and_then(|text| HeaderValue::from_str(&text).ok()) {
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::quota::{QuotaExceeded, QuotaKind};
    use crate::domain::tenant_users::TenantFull;

    #[test]
    fn every_error_has_its_status_and_says_when_to_try_again() {
        let store = || "s".to_owned();
        let reason = || "r".to_owned();
        let unavailable = StoreError::Unavailable { store: store(), reason: reason() };
        let full = StoreError::Full { store: store(), reason: reason() };
        let corrupt = StoreError::Corrupt { store: store(), record: None, reason: reason() };
        let over = QuotaExceeded { kind: QuotaKind::Jobs, used: 1, adds: 1, allowed: 1 };
        let tenant_full = TenantFull { owner: "a/b".parse().unwrap(), used: 1, allowed: 1 };
        let refused = |refusal| SubmitError::Refused { agent: "a".parse().unwrap(), refusal };
        for (problem, status, retry) in [
            (Problem::from(unavailable), 503, Some(1)),
            (full.into(), 503, Some(30)),
            (StoreError::Contended { what: "agent `a`".to_owned() }.into(), 503, Some(1)),
            (corrupt.into(), 500, None),
            (OpError::Invalid("x".into()).into(), 400, None),
            (OpError::Denied("x".into()).into(), 403, None),
            (OpError::NotFound("x".into()).into(), 404, None),
            (OpError::Conflict("x".into()).into(), 409, None),
            (OpError::Failed("x".into()).into(), 500, None),
            (OpError::Upstream("x".into()).into(), 502, None),
            (OpError::Timeout("x".into()).into(), 504, None),
            (OpError::OutcomeUnknown("x".into()).into(), 500, None),
            (refused(Refusal::UnknownAgent).into(), 404, None),
            (refused(Refusal::Busy).into(), 409, None),
            (refused(Refusal::MailboxFull { limit: 1 }).into(), 429, Some(5)),
            (refused(Refusal::Quota(over)).into(), 507, None),
            (StoreError::Over(over).into(), 507, None),
            (StoreError::TenantFull(tenant_full).into(), 507, None),
            (OpError::Store(StoreError::Over(over)).into(), 507, None),
            (SubmissionError::TooLarge { bytes: 2, limit: 1 }.into(), 413, None),
        ] {
            assert_eq!((problem.status.as_u16(), problem.retry_after), (status, retry), "{problem:?}");
        }
    }
}
