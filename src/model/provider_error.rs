//! Which failures of a provider may go away by asking again, and when.

use crate::model::ModelError;
use crate::model::bounded::TooMuch;
use genai::Error;
use reqwest::StatusCode;
use reqwest::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};
use serde_json::Value;
use std::time::Duration;

/// Milliseconds, which some providers send besides.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
/// Longest provider's text kept.
const REASON_CHARS_MAX: usize = 1_000;
/// Types of error events that no repetition of the request mends.
const PERMANENT_TYPES: [&str; 2] = ["invalid_request_error", "request_too_large"];
/// Types of errors that no other request mends either.
const UNUSABLE_TYPES: [&str; 5] =
    ["authentication_error", "permission_error", "not_found_error", "billing_error", "insufficient_quota"];

/// The error of a call to `model` (`provider/name`).
pub fn map(error: &Error, model: &str) -> ModelError {
    let cause = root(error);
    if let (Some(status), body) = (cause.status(), body_of(cause)) {
        let reason = format!("{}: {}", status.as_u16(), said(body));
        return if is_unusable(status) || says_unusable(body) {
            unusable(model, reason)
        } else if is_transient(status) {
            transient(model, reason, cause.headers().and_then(retry_after))
        } else {
            permanent(model, reason)
        };
    }
    match cause {
        Error::ChatResponse { body, .. } => event(body, model),
        Error::WebStream { error, .. } => match error.downcast_ref::<reqwest::Error>() {
            Some(error) => network(error, model),
            None => transient(model, short(&error.to_string()), None),
        },
        Error::WebModelCall { webc_error, .. } => match webc_error {
            genai::webc::Error::Reqwest(error) => network(error, model),
            other => transient(model, short(&other.to_string()), None),
        },
        // The library gives the whole request with it: only the cause is told.
        Error::ChatResponseGeneration { cause, .. } => {
            transient(model, format!("the reply can't be read: {}", short(cause)), None)
        }
        Error::StreamParse { serde_error, .. } => {
            transient(model, format!("the reply can't be read: {serde_error}"), None)
        }
        // Sampled again, the model may write a reply that can be read.
        Error::NoChatResponse { .. }
        | Error::InvalidJsonResponseElement { .. }
        | Error::JsonValueExt(_)
        | Error::SerdeJson(_) => {
            transient(model, format!("the reply can't be read: {}", short(&cause.to_string())), None)
        }
        other => permanent(model, short(&other.to_string())),
    }
}

/// The stream ended before the provider said that it was finished.
pub fn cut(model: &str) -> ModelError {
    transient(model, "the reply ended in the middle".into(), None)
}

/// The stream ended before the provider said that it was finished, and it was none: `what` it was.
pub fn no_stream(model: &str, what: &str) -> ModelError {
    transient(model, format!("its answer is no stream of events ({what}): is the URL of the endpoint right?"), None)
}

/// It says why it doesn't answer.
pub fn refused(model: &str, words: &str) -> ModelError {
    permanent(model, format!("it says: {}", short(words)))
}

/// What it has said isn't all that it was to say.
pub fn unfinished(model: &str, reason: String) -> ModelError {
    ModelError::Unbounded { model: model.to_owned(), reason }
}

/// This machine can't make the call now.
pub fn here(model: &str, error: &std::io::Error) -> ModelError {
    transient(model, format!("the call can't be made here: {error}"), None)
}

/// It goes on for longer than it may.
pub fn too_much(model: &str, limit: &TooMuch) -> ModelError {
    ModelError::Unbounded { model: model.to_owned(), reason: limit.to_string() }
}

/// The call took longer than it may.
pub fn too_long(model: &str, limit: Duration) -> ModelError {
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

/// The key or the name of the model is wrong: every request would be refused. Gateways answer 402 and
/// 403 to single requests as well, for what stands in them.
fn is_unusable(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND)
}

/// The body of the answer says so.
fn says_unusable(body: &str) -> bool {
    let json: Value = serde_json::from_str(body).unwrap_or_default();
    let inner = json.get("error").unwrap_or(&json);
    ["type", "code"].iter().filter_map(|key| inner.get(*key)?.as_str()).any(|kind| UNUSABLE_TYPES.contains(&kind))
}

/// A streamed call wraps the library's own error once more.
fn root(error: &Error) -> &Error {
    match error {
        Error::WebStream { error: inner, .. } => inner.downcast_ref::<Error>().unwrap_or(error),
        other => other,
    }
}

fn is_transient(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS)
        // Redirects are not followed, for they would take the key along; a gateway's detour may end.
        || status.is_redirection()
}

/// There is no whole answer.
pub fn network(error: &reqwest::Error, model: &str) -> ModelError {
    // The chain says more than the error: `connection refused` is its last link.
    // Where a venue's endpoints are is nothing for those who read a job.
    let place = error.url().map(|url| format!(" for url ({url})")).unwrap_or_default();
    let mut reason = error.to_string();
    if !place.is_empty() {
        reason = reason.replace(&place, "");
    }
    let mut cause = std::error::Error::source(error);
    while let Some(link) = cause {
        reason = format!("{reason}: {link}");
        cause = link.source();
    }
    if error.is_builder() { permanent(model, short(&reason)) } else { transient(model, short(&reason), None) }
}

/// An error that came inside a reply that began well.
fn event(body: &Value, model: &str) -> ModelError {
    let inner = body.get("error").unwrap_or(body);
    let reason = short(inner.get("message").and_then(Value::as_str).unwrap_or(&inner.to_string()));
    let code =
        inner.get("code").and_then(Value::as_u64).and_then(|code| StatusCode::from_u16(u16::try_from(code).ok()?).ok());
    let is_of = |types: &[&str]| {
        ["type", "code"].iter().filter_map(|key| inner.get(*key)?.as_str()).any(|kind| types.contains(&kind))
    };
    if is_of(&UNUSABLE_TYPES) || code.is_some_and(is_unusable) {
        unusable(model, reason)
    } else if is_of(&PERMANENT_TYPES) || code.is_some_and(|code| !is_transient(code)) {
        permanent(model, reason)
    } else {
        transient(model, reason, None)
    }
}

fn body_of(error: &Error) -> &str {
    match error {
        Error::HttpError { body, .. }
        | Error::WebModelCall { webc_error: genai::webc::Error::ResponseFailedStatus { body, .. }, .. } => body,
        _ => "",
    }
}

/// The provider's message inside an error body, else the body.
fn said(body: &str) -> String {
    let json: Option<Value> = serde_json::from_str(body).ok();
    let message = json.as_ref().and_then(|json| {
        ["/error/message", "/message", "/error", "/0/error/message"]
            .iter()
            .find_map(|path| json.pointer(path)?.as_str())
    });
    match short(message.unwrap_or(body)) {
        empty if empty.is_empty() => "no reason given".into(),
        text => text,
    }
}

fn short(text: &str) -> String {
    text.trim().chars().take(REASON_CHARS_MAX).collect()
}

/// What `retry-after-ms` or `Retry-After` ask for; a date is taken relative to the response's own.
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
    let date = |text: &str| jiff::fmt::rfc2822::parse(text).ok().map(|date| date.timestamp());
    let until = date(asked)?.as_second() - date(text(&DATE)?)?.as_second();
    u64::try_from(until).ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;
    use serde_json::json;

    #[test]
    fn retry_after_is_read_in_all_its_forms() {
        type Given<'t> = &'t [(HeaderName, &'t str)];
        let table: [(Given, Option<u64>); 7] = [
            (&[], None),
            (&[(RETRY_AFTER, "2")], Some(2_000)),
            (&[(RETRY_AFTER, "1.5")], Some(1_500)),
            (&[(RETRY_AFTER, "2"), (RETRY_AFTER_MS, "120")], Some(120)),
            (&[(RETRY_AFTER, "-1")], None),
            (&[(RETRY_AFTER, "Wed, 21 Oct 2015 07:28:10 GMT"), (DATE, "Wed, 21 Oct 2015 07:28:00 GMT")], Some(10_000)),
            (&[(RETRY_AFTER, "soon")], None),
        ];
        for (given, expected) in table {
            let headers = given.iter().map(|(name, text)| (name.clone(), HeaderValue::from_str(text).unwrap()));
            assert_eq!(retry_after(&headers.collect()), expected.map(Duration::from_millis), "{given:?}");
        }
    }

    #[test]
    fn a_status_decides_whether_to_ask_again() {
        let check = |status: u16| {
            let error = Error::HttpError {
                status: StatusCode::from_u16(status).unwrap(),
                canonical_reason: String::new(),
                body: r#"{"error": {"message": "why"}}"#.into(),
                headers: Box::default(),
            };
            match map(&error, "openai/m") {
                ModelError::Transient { reason, .. } => ("again", reason),
                ModelError::Permanent { reason, .. } => ("not this", reason),
                ModelError::Unusable { reason, .. } => ("none", reason),
                ModelError::Unbounded { reason, .. } => ("no end", reason),
            }
        };
        assert!(says_unusable(r#"{"error": {"type": "permission_error", "message": "no"}}"#));
        assert!(says_unusable(r#"{"error": {"code": "insufficient_quota"}}"#) && !says_unusable("<html>"));
        for (class, statuses) in [
            ("again", &[408, 425, 429, 500, 502, 503, 504, 529, 307][..]),
            ("not this", &[400, 402, 403, 413, 422][..]),
            ("none", &[401, 404][..]),
        ] {
            for status in statuses {
                assert_eq!(check(*status), (class, format!("{status}: why")));
            }
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
            (json!("odd"), "again", "\"odd\""),
        ];
        for (body, class, reason) in table {
            let found = match event(&body, "m") {
                ModelError::Transient { reason, .. } => ("again", reason),
                ModelError::Permanent { reason, .. } => ("not this", reason),
                ModelError::Unusable { reason, .. } => ("none", reason),
                ModelError::Unbounded { reason, .. } => ("no end", reason),
            };
            assert_eq!(found, (class, reason.to_owned()), "{body}");
        }
    }
}
