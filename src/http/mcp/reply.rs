//! The answer to a request: JSON where it comes at once, else a stream of messages that ends with it.

use crate::http::Api;
use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive};
use axum::response::{IntoResponse, Response, Sse};
use futures::future::BoxFuture;
use futures::{Stream, StreamExt, stream};
use serde_json::Value;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::mpsc;

/// Time in which an answer is plain JSON; after it the client gets a stream, so that no proxy takes it for dead.
const JSON_TIME: Duration = Duration::from_secs(1);

/// Header by which proxies are told not to hold back a stream.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The message that ends a request, with its HTTP status where it is no part of a stream.
pub(super) struct RpcReply {
    pub(super) status: StatusCode,
    pub(super) message: Value,
}

impl IntoResponse for RpcReply {
    fn into_response(self) -> Response {
        (self.status, Json(self.message)).into_response()
    }
}

/// Answers with what `work` returns. A client that reads streams gets the messages of `sent` before it. When the client
/// closes the stream, the work is dropped.
pub(super) async fn respond(
    api: &Api,
    mut work: BoxFuture<'static, RpcReply>,
    mut sent: mpsc::Receiver<Value>,
    reads_streams: bool,
) -> Response {
    if !reads_streams {
        drop(sent);
        return work.await.into_response();
    }
    let mut held = VecDeque::new();
    let work = tokio::select! {
        biased;
        reply = &mut work => {
            while let Ok(message) = sent.try_recv() {
                held.push_back(message);
            }
            if held.is_empty() {
                return reply.into_response();
            }
            held.push_back(reply.message);
            None
        }
        Some(first) = sent.recv() => {
            held.push_back(first);
            Some(work)
        }
        () = tokio::time::sleep(JSON_TIME) => Some(work),
    };
    stream_response(api, ReplyStream { held, work, sent }.messages())
}

/// Returns the answer that sends these messages, and a comment now and then.
pub(super) fn stream_response(api: &Api, messages: impl Stream<Item = Value> + Send + 'static) -> Response {
    let events = messages.map(|message| Ok::<_, Infallible>(Event::default().data(message.to_string())));
    let alive = KeepAlive::new().interval(api.options.heartbeat).text("alive");
    let mut response = Sse::new(events).keep_alive(alive).into_response();
    response.headers_mut().insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// Messages of a request whose answer takes its time.
struct ReplyStream {
    /// Messages that go out next.
    held: VecDeque<Value>,
    /// The rest of the work; `None` once its answer is held.
    work: Option<BoxFuture<'static, RpcReply>>,
    sent: mpsc::Receiver<Value>,
}

impl ReplyStream {
    fn messages(self) -> impl Stream<Item = Value> + Send + 'static {
        stream::unfold(self, |mut reply| async move { reply.next().await.map(|message| (message, reply)) })
    }

    async fn next(&mut self) -> Option<Value> {
        if let Some(message) = self.held.pop_front() {
            return Some(message);
        }
        let work = self.work.as_mut()?;
        tokio::select! {
            biased;
            Some(message) = self.sent.recv() => return Some(message),
            reply = work => {
                while let Ok(message) = self.sent.try_recv() {
                    self.held.push_back(message);
                }
                self.held.push_back(reply.message);
            }
        }
        self.work = None;
        self.held.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use serde_json::json;

    #[tokio::test(start_paused = true)]
    async fn messages_come_before_the_answer_that_ends_the_stream() {
        let (messages, sent) = mpsc::channel(8);
        let work = async move {
            messages.send(json!(1)).await.unwrap();
            tokio::time::sleep(Duration::from_secs(5)).await;
            messages.send(json!(2)).await.unwrap();
            RpcReply { status: StatusCode::OK, message: json!("end") }
        };
        let stream = ReplyStream { held: VecDeque::from([json!(0)]), work: Some(work.boxed()), sent };
        let all: Vec<Value> = stream.messages().collect().await;
        assert_eq!(all, [json!(0), json!(1), json!(2), json!("end")]);
    }
}
