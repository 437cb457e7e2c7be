//! Scripted models as an HTTP endpoint, so that code for real providers runs without a key.
//!
//! | route | protocol |
//! |---|---|
//! | `POST /v1/chat/completions`, `GET /v1/models` | OpenAI Chat Completions |
//! | `POST /v1/responses` | OpenAI Responses |
//! | `POST /v1/messages` | Anthropic |
//! | `POST /v1beta/models/MODEL:streamGenerateContent` | Gemini |
//! | `POST /api/chat` | Ollama |
//!
//! Faults are real: 429 with `Retry-After`, 503, 400, a connection cut in the middle of a reply, arguments that are not
//! JSON, a request that is never answered. `agent` and `{{turn}}` of a rule have no value here: no provider's protocol
//! carries the agent.

mod anthropic;
mod error;
mod gemini;
mod ollama;
mod openai;
mod parts;
mod responses;

use crate::model::rules::{RuleAnswer, ScriptFault};
use crate::model::scripted::{Script, ScriptCall};
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use error::MockRequestError;
use futures::Stream;
use parts::MockRequest;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Longest request in bytes: a long conversation with its tools.
const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Serves a script until `shutdown`; then connections that hang are cut.
pub async fn serve(
    listener: TcpListener,
    script: Arc<Script>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let closing = CancellationToken::new();
    let state = MockState { script, closing: closing.clone() };
    let routes = Router::new()
        .route("/v1/chat/completions", post(|state, body| answer(Protocol::OpenAi, state, body)))
        .route("/v1/responses", post(|state, body| answer(Protocol::Responses, state, body)))
        .route("/v1/messages", post(|state, body| answer(Protocol::Anthropic, state, body)))
        .route("/api/chat", post(|state, body| answer(Protocol::Ollama, state, body)))
        .route("/v1beta/models/{call}", post(gemini_answer))
        .route("/v1/models", get(models))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(state);
    axum::serve(listener, routes)
        .with_graceful_shutdown(async move {
            shutdown.await;
            closing.cancel();
        })
        .await
}

#[derive(Clone)]
struct MockState {
    script: Arc<Script>,
    closing: CancellationToken,
}

/// Protocol of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    OpenAi,
    Responses,
    Anthropic,
    Gemini,
    Ollama,
}

/// A piece of a streamed reply.
#[derive(Debug, Clone, PartialEq)]
enum MockFrame {
    Bytes(String),
    Wait(Duration),
    /// Closes the connection.
    Cut,
}

impl Protocol {
    fn read(self, body: &Value) -> Result<MockRequest, MockRequestError> {
        match self {
            Protocol::OpenAi => openai::read(body),
            Protocol::Responses => responses::read(body),
            Protocol::Anthropic => anthropic::read(body),
            Protocol::Gemini => gemini::read(body),
            Protocol::Ollama => ollama::read(body),
        }
    }

    fn full_reply(self, model: &str, answer: &RuleAnswer) -> Value {
        match self {
            Protocol::OpenAi => openai::full_reply(model, &answer.reply),
            Protocol::Responses => responses::full_reply(model, &answer.reply),
            Protocol::Anthropic => anthropic::full_reply(model, &answer.reply),
            Protocol::Gemini => gemini::full_reply(model, &answer.reply),
            Protocol::Ollama => ollama::full_reply(model, &answer.reply),
        }
    }

    fn frames(self, asked: &MockRequest, answer: &RuleAnswer) -> Vec<MockFrame> {
        let model = &asked.request.model.name;
        let events = match self {
            Protocol::OpenAi => openai::events(model, &answer.reply, asked.stream_usage),
            Protocol::Responses => responses::events(model, &answer.reply),
            Protocol::Anthropic => anthropic::events(model, &answer.reply),
            Protocol::Gemini => gemini::events(model, &answer.reply),
            Protocol::Ollama => ollama::events(model, &answer.reply),
        };
        let kept = if answer.fault == Some(ScriptFault::CutStream) { events.len() / 2 } else { events.len() };
        let mut frames = Vec::with_capacity(kept * 2 + 1);
        for (at, event) in events.into_iter().take(kept).enumerate() {
            if at > 0 && !answer.chunk_delay.is_zero() {
                frames.push(MockFrame::Wait(answer.chunk_delay));
            }
            frames.push(MockFrame::Bytes(event));
        }
        if answer.fault == Some(ScriptFault::CutStream) {
            frames.push(MockFrame::Cut);
        }
        frames
    }

    fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Protocol::OpenAi | Protocol::Responses | Protocol::Anthropic | Protocol::Gemini => "text/event-stream",
            Protocol::Ollama => "application/x-ndjson",
        })
    }

    fn overload_status(self) -> StatusCode {
        match self {
            Protocol::Anthropic => StatusCode::from_u16(529).unwrap_or(StatusCode::SERVICE_UNAVAILABLE),
            Protocol::OpenAi | Protocol::Responses | Protocol::Gemini | Protocol::Ollama => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    fn refusal(self, status: StatusCode, kind: &str, message: &str) -> Response {
        let body = match self {
            Protocol::OpenAi | Protocol::Responses => {
                json!({"error": {"message": message, "type": kind, "param": null, "code": null}})
            }
            Protocol::Anthropic => json!({"type": "error", "error": {"type": kind, "message": message}}),
            Protocol::Gemini => json!({"error": {"code": status.as_u16(), "message": message, "status": kind}}),
            Protocol::Ollama => json!({"error": message}),
        };
        (status, Json(body)).into_response()
    }
}

async fn models(State(served): State<MockState>) -> Json<Value> {
    let models = served.script.models();
    let models: Vec<Value> =
        models.iter().map(|id| json!({"id": id, "object": "model", "owned_by": "trellis"})).collect();
    Json(json!({"object": "list", "data": models}))
}

async fn gemini_answer(Path(call): Path<String>, served: State<MockState>, body: Bytes) -> Response {
    let body = parse_body(&body).and_then(|mut body| gemini::complete(&mut body, &call).map(|()| body));
    answer_parsed(Protocol::Gemini, served, body).await
}

async fn answer(protocol: Protocol, served: State<MockState>, body: Bytes) -> Response {
    answer_parsed(protocol, served, parse_body(&body)).await
}

fn parse_body(body: &Bytes) -> Result<Value, MockRequestError> {
    serde_json::from_slice(body).map_err(|error| MockRequestError::NotJson { reason: error.to_string() })
}

async fn answer_parsed(
    protocol: Protocol,
    State(served): State<MockState>,
    body: Result<Value, MockRequestError>,
) -> Response {
    let invalid = |message: &str| protocol.refusal(StatusCode::BAD_REQUEST, "invalid_request_error", message);
    let asked = match body.and_then(|body| protocol.read(&body)) {
        Ok(asked) => asked,
        Err(error) => return invalid(&error.to_string()),
    };
    let taken = match served.script.take(&asked.request).await {
        Ok(taken) => taken,
        Err(error) => return invalid(&error.to_string()),
    };
    tokio::time::sleep(taken.answer.delay).await;
    match taken.answer.fault {
        None | Some(ScriptFault::BadJson | ScriptFault::CutStream) => reply(protocol, &asked, taken, served.closing),
        Some(fault) => {
            if fault == ScriptFault::Hang {
                served.closing.cancelled().await;
            }
            let response = refuse(protocol, fault, taken.answer.retry_after);
            match taken.finish(false).await {
                Ok(()) => response,
                Err(error) => protocol.refusal(StatusCode::INTERNAL_SERVER_ERROR, "server_error", &error.to_string()),
            }
        }
    }
}

fn reply(protocol: Protocol, asked: &MockRequest, taken: ScriptCall, closing: CancellationToken) -> Response {
    let (frames, content_type) = if asked.stream {
        (protocol.frames(asked, &taken.answer), protocol.content_type())
    } else {
        let whole = protocol.full_reply(&asked.request.model.name, &taken.answer).to_string();
        let frames = match taken.answer.fault {
            Some(ScriptFault::CutStream) => {
                vec![MockFrame::Bytes(whole.chars().take(whole.chars().count() / 2).collect()), MockFrame::Cut]
            }
            _ => vec![MockFrame::Bytes(whole)],
        };
        (frames, HeaderValue::from_static("application/json"))
    };
    let body = Body::from_stream(stream_frames(frames.into(), taken, closing));
    ([(header::CONTENT_TYPE, content_type)], body).into_response()
}

fn refuse(protocol: Protocol, fault: ScriptFault, retry_after: Option<Duration>) -> Response {
    let (status, kind, message) = match fault {
        ScriptFault::RateLimit => (StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", "too many requests"),
        ScriptFault::Unauthorized => (StatusCode::UNAUTHORIZED, "authentication_error", "no such key"),
        ScriptFault::BadRequest => (StatusCode::BAD_REQUEST, "invalid_request_error", "bad request"),
        ScriptFault::Overloaded | ScriptFault::Hang | ScriptFault::CutStream | ScriptFault::BadJson => {
            (protocol.overload_status(), "overloaded_error", "overloaded")
        }
    };
    let mut response = protocol.refusal(status, kind, message);
    if let Some(wait) = retry_after {
        // The standard header has whole seconds; they are rounded up.
        let seconds = u64::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        response.headers_mut().insert("retry-after-ms", HeaderValue::from(millis));
    }
    response
}

struct ReplyPlayback {
    frames: VecDeque<MockFrame>,
    call: ScriptCall,
    closing: CancellationToken,
    is_ended: bool,
}

/// Sends the frames in time. The call is logged as `replied` once the client has taken the last one; for a client that
/// leaves earlier it stays `started`.
fn stream_frames(
    frames: VecDeque<MockFrame>,
    taken: ScriptCall,
    closing: CancellationToken,
) -> impl Stream<Item = io::Result<Bytes>> {
    let playing = ReplyPlayback { frames, call: taken, closing, is_ended: false };
    futures::stream::unfold(playing, |mut playing| async move {
        if playing.is_ended {
            return None;
        }
        loop {
            let outcome = match playing.frames.pop_front() {
                Some(MockFrame::Bytes(text)) => return Some((Ok(Bytes::from(text)), playing)),
                Some(MockFrame::Wait(delay)) => tokio::select! {
                    () = tokio::time::sleep(delay) => continue,
                    () = playing.closing.cancelled() => Err(io::Error::other("shutting down")),
                },
                // Earlier frames must be sent before the connection is closed.
                Some(MockFrame::Cut) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    Err(io::Error::other("cut"))
                }
                None => Ok(()),
            };
            let logged = playing.call.finish(outcome.is_ok()).await.map_err(io::Error::other);
            playing.is_ended = true;
            return match outcome.and(logged) {
                Ok(()) => None,
                Err(error) => Some((Err(error), playing)),
            };
        }
    })
}
