//! Errors that the API itself answers below `/a2a`, in the form of the protocol: no token, too many requests, a body
//! that is too long.

use super::error::{A2aError, A2aErrorKind};
use super::media::answer_type;
use crate::http::problem::ProblemText;
use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;
use serde_json::Value;

/// Beginning of the paths of the protocol.
const PREFIX: &str = "/a2a/";

/// Segments of the path of an agent, behind which the HTTP+JSON binding has its own.
const AGENT_SEGMENTS: usize = 3;

/// Whether a path is that of an agent itself, which speaks JSON-RPC.
fn is_rpc(path: &str) -> bool {
    let place = path.strip_prefix(PREFIX).unwrap_or_default();
    place.trim_end_matches('/').split('/').count() == AGENT_SEGMENTS
}

/// The middleware around all routes: below `/a2a` a problem gets the form of the protocol. Its status and its headers
/// stay.
pub(in crate::http) async fn adapt_errors(request: Request, next: Next) -> Response {
    if !request.uri().path().starts_with(PREFIX) {
        return next.run(request).await;
    }
    let (is_rpc, media) = (is_rpc(request.uri().path()), answer_type(request.headers()));
    let response = next.run(request).await;
    let Some(ProblemText { detail, retry_after }) = response.extensions().get::<ProblemText>().cloned() else {
        return response;
    };
    let error = A2aError::new(A2aErrorKind::Http(response.status()), detail);
    let mut adapted = if is_rpc { error.rpc_response(Value::Null) } else { error.rest_response(media) };
    for (name, value) in response.headers() {
        let is_of_body = [header::CONTENT_TYPE, header::CONTENT_LENGTH].contains(name);
        if !is_of_body {
            adapted.headers_mut().insert(name.clone(), value.clone());
        }
    }
    if let Some(seconds) = retry_after {
        adapted.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    adapted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_address_of_an_agent_speaks_json_rpc() {
        for (path, expected) in [
            ("/a2a/local/me/clerk", true),
            ("/a2a/local/me/clerk/", true),
            ("/a2a/local/me/clerk/tasks", false),
            ("/a2a/local/me/clerk/message:send", false),
            ("/a2a/local/me", false),
        ] {
            assert_eq!(is_rpc(path), expected, "{path}");
        }
    }
}
