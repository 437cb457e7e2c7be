//! Errors of providers: whether a repetition may succeed, and when.

use crate::domain::decode;
use crate::domain::secret::Mask;
use crate::domain::wire::frames::ReplyLimitError;
use crate::domain::wire::{DecodeError, ProviderReport};
use crate::model::ModelError;
use crate::venue::outbound::error_causes;
use crate::venue::outbound::proxy::ProxyFailure;
use reqwest::StatusCode;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, DATE, HeaderMap, HeaderName, RETRY_AFTER};
use serde_json::Value;
use std::time::Duration;

/// Header of some providers with the pause in milliseconds.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
/// Characters of a provider's message that are kept.
const REASON_CHARS_MAX: usize = 1_000;
/// Characters of a header's value that an error shows.
const HEADER_CHARS: usize = 80;
/// Types of errors that a repetition of the request can't change.
const PERMANENT_TYPES: [&str; 3] = ["invalid_request_error", "request_too_large", "INVALID_ARGUMENT"];
/// Types of errors that no other request can change either.
const UNUSABLE_TYPES: [&str; 8] = [
    "authentication_error",
    "permission_error",
    "not_found_error",
    "billing_error",
    "insufficient_quota",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "NOT_FOUND",
];

/// Begins of messages of an empty account, for providers whose type of error doesn't say it: Anthropic answers 400 with
/// `invalid_request_error`, DeepSeek and OpenRouter 402.
const UNUSABLE_BEGINNINGS: [&str; 3] =
    ["your credit balance is too low", "insufficient balance", "insufficient credits"];

/// Status and headers of an answer.
#[derive(Debug, Clone)]
pub struct AnswerHead {
    status: StatusCode,
    headers: HeaderMap,
}

impl AnswerHead {
    /// Copies the head of an answer whose body is still to be read.
    pub fn from_answer(answer: &reqwest::Response) -> Self {
        Self { status: answer.status(), headers: answer.headers().clone() }
    }

    /// Describes status, content type and encoding, which show a wrong URL.
    fn describe(&self, mask: &Mask) -> String {
        let text = |name: &HeaderName| {
            let text = mask.text(self.headers.get(name)?.to_str().ok()?);
            Some(text.chars().take(HEADER_CHARS).collect::<String>())
        };
        let kind =
            text(&CONTENT_TYPE).map_or_else(|| "no content-type".into(), |kind| format!("content-type `{kind}`"));
        let encoding = text(&CONTENT_ENCODING).map(|encoding| format!(", content-encoding `{encoding}`"));
        format!("{}, {kind}{}", self.status.as_u16(), encoding.unwrap_or_default())
    }
}

/// Makes the error of an unsuccessful status. `body` may be cut; `mask` removes the key that it repeats.
pub fn refusal(head: &AnswerHead, body: &str, model: &str, mask: &Mask) -> ModelError {
    let body = &mask.cut_text(body);
    let report = ProviderReport::from_body(
        &decode::lenient_json(body.as_bytes()).unwrap_or_else(|_| Value::String(body.to_owned())),
    );
    let said = if report.message.is_empty() { "no reason given" } else { &report.message };
    let reason = format!("{}: {said}", head.status.as_u16());
    if is_unusable(head.status) || reports_unusable(&report) {
        unusable(model, reason)
    } else if is_transient(head.status) {
        transient(model, reason, retry_after(&head.headers))
    } else {
        permanent(model, reason)
    }
}

/// Makes the error of a body that is no reply. `mask` removes the key that it repeats, before anything is cut.
pub fn decoding(error: DecodeError, head: &AnswerHead, model: &str, mask: &Mask) -> ModelError {
    let error = error.map_words(|words| shorten(&mask.cut_text(words)));
    match &error {
        DecodeError::Reported(report) => reported_error(report, head, model),
        // Sampled again, the model may write a valid reply.
        DecodeError::Incomplete | DecodeError::Unfinished(_) => transient(model, error.to_string(), None),
        DecodeError::Foreign(beginning) => {
            let begin =
                if beginning.trim().is_empty() { String::new() } else { format!(", it begins `{}`", beginning.trim()) };
            let reason = format!(
                "its answer is no stream of events ({}{begin}): is the URL of the endpoint right?",
                head.describe(mask)
            );
            transient(model, shorten(&reason), None)
        }
        DecodeError::Refused(words) => ModelError::Declined { model: model.to_owned(), reason: words.clone() },
        DecodeError::Filtered { .. } | DecodeError::Limit(_) => {
            ModelError::Unbounded { model: model.to_owned(), reason: error.to_string() }
        }
    }
}

/// Makes the error of an event inside a reply that began well.
fn reported_error(report: &ProviderReport, head: &AnswerHead, model: &str) -> ModelError {
    let reason = report.message.clone();
    let status = report.status.and_then(|status| StatusCode::from_u16(status).ok());
    if reports_unusable(report) || status.is_some_and(is_unusable) {
        unusable(model, reason)
    } else if has_type(report, &PERMANENT_TYPES) || status.is_some_and(|status| !is_transient(status)) {
        permanent(model, reason)
    } else {
        transient(model, reason, retry_after(&head.headers))
    }
}

fn reports_unusable(report: &ProviderReport) -> bool {
    // Only at the beginning: further on, providers may quote the request.
    let message = report.message.trim_start().to_lowercase();
    has_type(report, &UNUSABLE_TYPES) || UNUSABLE_BEGINNINGS.iter().any(|words| message.starts_with(words))
}

fn has_type(report: &ProviderReport, types: &[&str]) -> bool {
    report.kinds.iter().any(|kind| types.contains(&kind.as_str()))
}

/// Makes the error of a reply over a limit of bytes or tokens.
pub fn unbounded_error(model: &str, limit: &ReplyLimitError) -> ModelError {
    ModelError::Unbounded { model: model.to_owned(), reason: limit.to_string() }
}

/// Makes the error of a call over its time limit.
pub fn timeout_error(model: &str, limit: Duration) -> ModelError {
    transient(model, format!("no complete reply within {} s", limit.as_secs_f64()), None)
}

fn transient(model: &str, reason: String, retry_after: Option<Duration>) -> ModelError {
    ModelError::Transient { model: model.to_owned(), reason, retry_after }
}

fn permanent(model: &str, reason: String) -> ModelError {
    ModelError::Permanent { model: model.to_owned(), reason }
}

fn unusable(model: &str, reason: String) -> ModelError {
    ModelError::Unusable { model: model.to_owned(), reason }
}

/// Whether the key or the name of the model is wrong, so that every request would be refused. Gateways answer 402 and
/// 403 to single requests as well, for their content.
fn is_unusable(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND)
}

fn is_transient(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS)
        // Redirects are not followed, because they would get the key; a gateway's detour may end.
        || status.is_redirection()
}

/// Makes the error of an answer that did not arrive whole.
pub fn network(error: &reqwest::Error, model: &str) -> ModelError {
    // The chain has more than the outermost error: `connection refused` is its last link. The URL is removed: readers
    // of a job must not see where a venue's endpoints are.
    let place = error.url().map(|url| format!(" for url ({url})")).unwrap_or_default();
    let mut links = error_causes(error);
    if let (Some(outermost), false) = (links.first_mut(), place.is_empty()) {
        *outermost = outermost.replace(&place, "");
    }
    let reason = links.join(": ");
    if error.is_builder() { permanent(model, shorten(&reason)) } else { transient(model, shorten(&reason), None) }
}

/// Makes the error of a call that the proxy did not carry.
pub fn proxy_error(failure: &ProxyFailure, model: &str) -> ModelError {
    let reason = shorten(&failure.to_string());
    match failure {
        ProxyFailure::Login { .. } => unusable(model, reason),
        ProxyFailure::Unreachable { .. } | ProxyFailure::NoConnection { .. } | ProxyFailure::Beyond { .. } => {
            transient(model, reason, None)
        }
    }
}

fn shorten(text: &str) -> String {
    text.trim().chars().take(REASON_CHARS_MAX).collect()
}

/// Parses `retry-after-ms` or `Retry-After`; a date is relative to that of the response.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
    let seconds = |text: &str| text.parse::<f64>().ok().and_then(|number| Duration::try_from_secs_f64(number).ok());
    if let Some(wait) = text(&RETRY_AFTER_MS).and_then(seconds) {
        return Some(wait / 1_000);
    }
    let asked = text(&RETRY_AFTER)?;
    if let Some(wait) = seconds(asked) {
        return Some(wait);
    }
    let date = |text: &str| httpdate::parse_http_date(text).ok();
    date(asked)?.duration_since(date(text(&DATE)?)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;
    use serde_json::json;

    #[test]
    fn retry_after_is_read_in_all_its_forms() {
        type Given<'t> = &'t [(HeaderName, &'t str)];
        let table: [(Given, Option<u64>); 10] = [
            (&[], None),
            (&[(RETRY_AFTER, "2")], Some(2_000)),
            (&[(RETRY_AFTER, "1.5")], Some(1_500)),
            (&[(RETRY_AFTER, "2"), (RETRY_AFTER_MS, "120")], Some(120)),
            (&[(RETRY_AFTER, "-1")], None),
            (&[(RETRY_AFTER, "Wed, 21 Oct 2015 07:28:10 GMT"), (DATE, "Wed, 21 Oct 2015 07:28:00 GMT")], Some(10_000)),
            (
                &[(RETRY_AFTER, "Wednesday, 21-Oct-15 07:28:10 GMT"), (DATE, "Wed, 21 Oct 2015 07:28:00 GMT")],
                Some(10_000),
            ),
            (&[(RETRY_AFTER, "Wed Oct 21 07:28:10 2015"), (DATE, "Wed, 21 Oct 2015 07:28:00 GMT")], Some(10_000)),
            (&[(RETRY_AFTER, "Wed, 21 Oct 2015 07:28:00 GMT"), (DATE, "Wed, 21 Oct 2015 07:28:10 GMT")], None),
            (&[(RETRY_AFTER, "soon")], None),
        ];
        for (given, expected) in table {
            let headers = given.iter().map(|(name, text)| (name.clone(), HeaderValue::from_str(text).unwrap()));
            assert_eq!(retry_after(&headers.collect()), expected.map(Duration::from_millis), "{given:?}");
        }
    }

    fn class(error: ModelError) -> (&'static str, String) {
        match error {
            ModelError::Transient { reason, .. } => ("again", reason),
            ModelError::Permanent { reason, .. } => ("not this", reason),
            ModelError::Declined { reason, .. } => ("no", reason),
            ModelError::Unusable { reason, .. } => ("none", reason),
            ModelError::Unbounded { reason, .. } => ("no end", reason),
        }
    }

    fn head(status: u16) -> AnswerHead {
        AnswerHead { status: StatusCode::from_u16(status).unwrap(), headers: HeaderMap::new() }
    }

    #[test]
    fn a_status_decides_whether_to_ask_again() {
        for (expected, statuses) in [
            ("again", &[408, 425, 429, 500, 502, 503, 504, 529, 307][..]),
            ("not this", &[400, 402, 403, 413, 422][..]),
            ("none", &[401, 404][..]),
        ] {
            for status in statuses {
                let error = refusal(&head(*status), r#"{"error": {"message": "why"}}"#, "openai/m", &Mask::default());
                assert_eq!(class(error), (expected, format!("{status}: why")));
            }
        }
    }

    #[test]
    fn the_words_of_a_refusal_are_found_in_every_form() {
        for (body, expected, reason) in [
            (r#"{"error": {"type": "permission_error", "message": "no"}}"#, "none", "403: no"),
            (r#"{"error": {"code": "insufficient_quota", "message": "paid?"}}"#, "none", "403: paid?"),
            (r#"[{"error": {"status": "PERMISSION_DENIED", "message": "no"}}]"#, "none", "403: no"),
            (
                r#"{"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing."}}"#,
                "none",
                "403: Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing.",
            ),
            (r#"{"error": {"message": "Insufficient Balance"}}"#, "none", "403: Insufficient Balance"),
            (r#"{"error": "a text"}"#, "not this", "403: a text"),
            (r#"{"message": "a text"}"#, "not this", "403: a text"),
            (r#"{"detail": "a text"}"#, "not this", "403: a text"),
            ("<html>", "not this", "403: <html>"),
            (" ", "not this", "403: no reason given"),
        ] {
            assert_eq!(
                class(refusal(&head(403), body, "m", &Mask::default())),
                (expected, reason.to_owned()),
                "{body}"
            );
        }
    }

    #[test]
    fn error_events_are_told_apart() {
        let table = [
            (json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}), "again", "busy"),
            (json!({"message": "boom", "type": "server_error"}), "again", "boom"),
            (json!({"message": "slow", "code": 429}), "again", "slow"),
            (json!({"message": "no", "code": 400}), "not this", "no"),
            (json!({"message": "who", "code": 401}), "none", "who"),
            (json!({"error": {"type": "invalid_request_error", "message": "bad"}}), "not this", "bad"),
            (json!({"error": {"type": "authentication_error", "message": "key"}}), "none", "key"),
            (json!({"message": "paid?", "code": "insufficient_quota"}), "none", "paid?"),
            (json!("odd"), "again", "odd"),
        ];
        for (body, expected, reason) in table {
            let error =
                decoding(DecodeError::Reported(ProviderReport::from_body(&body)), &head(200), "m", &Mask::default());
            assert_eq!(class(error), (expected, reason.to_owned()), "{body}");
        }
    }
}
