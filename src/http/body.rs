//! The body of a request, read whole within its limits of size and time before the request is handled.
//!
//! It is read on every route, even where it is not used: the rest of a body would be parsed as the next request of the
//! connection.

use super::HttpOptions;
use super::problem::Problem;
use crate::domain::limits::HTTP_DISCARD_TIME;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use futures::StreamExt;

/// Error of a body that was not read.
pub(super) struct BodyError {
    pub(super) problem: Problem,
    /// The whole body has arrived, so the connection can be used again.
    pub(super) is_received: bool,
}

/// Makes the answer of a refusal. The connection ends with it, and says so, if the rest of the body may still arrive.
impl IntoResponse for BodyError {
    fn into_response(self) -> Response {
        let mut response = self.problem.into_response();
        if !self.is_received {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Refuses a request whose body nobody has read. `kept_back`: the client waits before it sends the body.
pub(super) async fn refuse_unread(options: &HttpOptions, kept_back: bool, body: Body, problem: Problem) -> Response {
    let is_received = !kept_back && discard(body, options.body_limit).await;
    BodyError { problem, is_received }.into_response()
}

/// Reads a body of at most `limit` bytes.
pub(super) async fn read(body: Body, options: &HttpOptions, limit: usize) -> Result<Bytes, BodyError> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let stated = body.size_hint().lower();
    let mut stream = body.into_data_stream();
    let mut kept = BytesMut::new();
    let arriving = async {
        if stated > limit as u64 {
            return Ok(false);
        }
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|e| Problem::bad_request(format!("the body didn't arrive: {e}")))?;
            if kept.len() + chunk.len() > limit {
                return Ok(false);
            }
            kept.extend_from_slice(&chunk);
        }
        Ok(true)
    };
    let seconds = options.body_time.as_secs_f32();
    let late = || Problem::new(StatusCode::REQUEST_TIMEOUT, format!("the body took longer than {seconds} s to arrive"));
    match tokio::time::timeout(options.body_time, arriving).await {
        Ok(Ok(true)) => Ok(kept.freeze()),
        Ok(Ok(false)) => {
            // A client that is still sending reads the answer only after its body was read.
            let arrived = discard(Body::from_stream(stream), limit).await;
            let text = format!("the body has more than {limit} bytes; put large values into `w/` piece by piece");
            Err(BodyError { problem: Problem::new(StatusCode::PAYLOAD_TOO_LARGE, text), is_received: arrived })
        }
        Ok(Err(problem)) => Err(BodyError { problem, is_received: false }),
        Err(_) => Err(BodyError { problem: late(), is_received: false }),
    }
}

/// Reads and drops at most twice `limit` bytes of a body. Returns whether that was all of it.
pub(super) async fn discard(body: Body, limit: usize) -> bool {
    if body.is_end_stream() {
        return true;
    }
    let mut stream = body.into_data_stream();
    let passing = async {
        let mut passed = 0;
        while let Some(chunk) = stream.next().await {
            match chunk {
                Ok(chunk) if passed + chunk.len() <= limit * 2 => passed += chunk.len(),
                Ok(_) | Err(_) => return false,
            }
        }
        true
    };
    tokio::time::timeout(HTTP_DISCARD_TIME, passing).await.unwrap_or(false)
}
