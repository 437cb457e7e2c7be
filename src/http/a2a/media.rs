//! Versions and media types of requests and answers.

use super::error::{A2aError, A2aErrorKind, JSON};
use crate::venue::a2a::VERSION;
use crate::view::to_json;
use axum::extract::Query;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// Header, and query parameter, with the version of the protocol.
const VERSION_HEADER: HeaderName = HeaderName::from_static("a2a-version");

/// Name of the version in a query.
const VERSION_QUERY: &str = "A2A-Version";

/// Version of a request that names none.
const UNNAMED: &str = "0.3";

/// Media type that 1.0.1 prefers for the HTTP+JSON binding.
const A2A_JSON: &str = "application/a2a+json";

/// Returns the query of a request.
pub(super) fn query(parts: &Parts) -> Result<Vec<(String, String)>, A2aError> {
    Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).map(|Query(pairs)| pairs).map_err(A2aError::invalid)
}

/// Checks that a request is of this version of the protocol. Patch versions don't count, and a request without a version
/// is of 0.3.
pub(super) fn check_version(parts: &Parts) -> Result<(), A2aError> {
    let header = parts.headers.get(VERSION_HEADER).map(|value| value.to_str().unwrap_or("?").trim().to_owned());
    let asked = match header.filter(|text| !text.is_empty()) {
        Some(text) => Some(text),
        None => query(parts)?.into_iter().find(|(name, _)| name == VERSION_QUERY).map(|(_, value)| value),
    };
    let asked = asked.filter(|text| !text.is_empty()).unwrap_or_else(|| UNNAMED.to_owned());
    let mut numbers = asked.split('.');
    let named = [numbers.next(), numbers.next()].map(Option::unwrap_or_default).join(".");
    if named == VERSION {
        return Ok(());
    }
    let asked: String = asked.chars().take(40).collect();
    let text = format!("version `{asked}` of the protocol isn't spoken here; send the header `A2A-Version: {VERSION}`");
    Err(A2aError::new(A2aErrorKind::VersionNotSupported, text))
}

/// Checks that the body of a request is JSON.
pub(super) fn check_content_type(headers: &HeaderMap) -> Result<(), A2aError> {
    let Some(given) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let given = given.to_str().unwrap_or("?");
    let kind = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if [JSON, A2A_JSON].contains(&kind.as_str()) {
        return Ok(());
    }
    let kind: String = kind.chars().take(80).collect();
    let text = format!("the body is `{kind}`, expected `{A2A_JSON}` or `{JSON}`");
    Err(A2aError::new(A2aErrorKind::ContentTypeNotSupported, text))
}

/// Returns the media type of answers of the HTTP+JSON binding: the protocol's own, or plain JSON for a client that
/// accepts JSON and not that.
pub(super) fn answer_type(headers: &HeaderMap) -> &'static str {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
    let kinds: Vec<String> = accepted
        .split(',')
        .map(|kind| kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
        .collect();
    let accepts = |names: &[&str]| kinds.iter().any(|kind| names.contains(&kind.as_str()));
    if accepts(&[JSON]) && !accepts(&[A2A_JSON]) { JSON } else { A2A_JSON }
}

/// Returns an answer of this media type.
pub(super) fn answer(media: &'static str, body: &impl Serialize) -> Response {
    let headers = [(header::CONTENT_TYPE, HeaderValue::from_static(media))];
    (headers, to_json(body).to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn parts(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn only_major_and_minor_version_count() {
        for (uri, header, good) in [
            ("/", Some("1.0"), true),
            ("/", Some("1.0.1"), true),
            ("/?A2A-Version=1.0", None, true),
            ("/?A2A-Version=1.0", Some(""), true),
            ("/?A2A-Version=1.0", Some("0.3"), false),
            ("/", Some(""), false),
            ("/", None, false),
            ("/", Some("0.3"), false),
            ("/", Some("99.0"), false),
            ("/", Some("1"), false),
        ] {
            let headers: Vec<_> = header.iter().map(|value| ("A2A-Version", *value)).collect();
            assert_eq!(check_version(&parts(uri, &headers)).is_ok(), good, "{uri} {header:?}");
        }
    }

    #[test]
    fn a_client_gets_the_json_that_it_accepts() {
        for (accept, expected) in [
            (None, A2A_JSON),
            (Some("*/*"), A2A_JSON),
            (Some("application/json"), JSON),
            (Some("application/json, application/a2a+json"), A2A_JSON),
            (Some("text/event-stream, Application/JSON;q=0.9"), JSON),
        ] {
            let headers: Vec<_> = accept.iter().map(|value| ("accept", *value)).collect();
            assert_eq!(answer_type(&parts("/", &headers).headers), expected, "{accept:?}");
        }
        for (kind, good) in
            [("application/json; charset=utf-8", true), ("application/a2a+json", true), ("text/plain", false)]
        {
            assert_eq!(check_content_type(&parts("/", &[("content-type", kind)]).headers).is_ok(), good, "{kind}");
        }
    }
}
