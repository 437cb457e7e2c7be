//! Event streams of tasks: the task as it is, then what its log has behind a place, until its end.
//!
//! The log follows from the store: any process serves a stream, also of a task that waits, and a client that comes back
//! with `Last-Event-ID` misses nothing. Live text isn't told: it has no place in the log, and of two streams each would
//! have another.

use super::caller::A2aCaller;
use super::error::{A2aError, JSON_RPC};
use crate::domain::ids::Owner;
use crate::domain::job::JobHead;
use crate::domain::reader::JobVisibility;
use crate::http::Api;
use crate::http::extract::{StreamCaller, headers_for_owner};
use crate::store::StoreError;
use crate::venue::a2a;
use crate::venue::a2a::log::{LogEvent, begin_event};
use crate::venue::a2a::place::LogPlace;
use crate::venue::jobs;
use crate::view::a2a::{A2aRpcResult, A2aStreamEvent, A2aTask, A2aTaskState};
use crate::view::to_json;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::sse::{Event, KeepAlive};
use axum::response::{IntoResponse, Response, Sse};
use futures::future::{BoxFuture, pending};
use futures::{FutureExt, Stream, stream};
use serde_json::Value;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

/// First and longest pause between two reads of the log.
const READ_PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Pause between two checks whether the caller's token still counts.
const CALLER_CHECK_PAUSE: Duration = Duration::from_secs(1);

/// Longest wait for the queue to promise that it announces the end of the task.
const SIGNAL_TIME: Duration = Duration::from_millis(500);

/// An open stream of a task.
pub(super) struct TaskStream {
    api: Api,
    /// Headers of the request with its owner, by which the caller is verified again.
    headers: HeaderMap,
    caller: A2aCaller,
    owner: Owner,
    head: JobHead,
    /// Place behind which the log is read.
    from: LogPlace,
    /// Events to send.
    waiting: VecDeque<(Option<LogPlace>, A2aStreamEvent)>,
    /// Whether the client knows that a worker has taken the task.
    is_begun: bool,
    /// Whether the stream ends when the task asks for something.
    ends_at_question: bool,
    is_over: bool,
    /// How much of the task the caller might see when the stream began.
    seen: JobVisibility,
    pause: Duration,
    next_caller_check: Duration,
    /// Completes when the end of the task is announced.
    end: BoxFuture<'static, ()>,
    /// Id of the request of JSON-RPC; `None` in the HTTP+JSON binding.
    rpc_id: Option<Value>,
}

impl TaskStream {
    pub(super) async fn new(
        api: &Api,
        parts: &Parts,
        caller: A2aCaller,
        head: JobHead,
        from: LogPlace,
    ) -> Result<Self, A2aError> {
        let owner = caller.who.owner().clone();
        // Without the promise the end is found by reading.
        let end = jobs::end_signal(&api.venue, &owner, &head.id, SIGNAL_TIME).await;
        Ok(Self {
            headers: headers_for_owner(&parts.headers, &owner)?,
            seen: caller.who.caller.reader().visibility(&head),
            caller,
            owner,
            head,
            from,
            waiting: VecDeque::new(),
            is_begun: false,
            ends_at_question: false,
            is_over: false,
            pause: READ_PAUSES.0,
            next_caller_check: api.venue.clock.steady() + CALLER_CHECK_PAUSE,
            end,
            rpc_id: None,
            api: api.clone(),
        })
    }

    /// Begins with the task as it is.
    pub(super) fn begin_with(mut self, task: A2aTask) -> Self {
        self.is_begun = task.status.state != A2aTaskState::Submitted;
        self.waiting.push_back((None, A2aStreamEvent::Task(task)));
        self
    }

    /// Ends the stream when the task asks for something: its client answers by another message.
    pub(super) fn end_at_question(self) -> Self {
        Self { ends_at_question: true, ..self }
    }

    /// Returns the answer with the stream; in the JSON-RPC binding each event is an answer to the request.
    pub(super) fn into_response(self, rpc_id: Option<Value>) -> Response {
        self.caller.who.release_memory();
        let alive = KeepAlive::new().interval(self.api.options.heartbeat).text("alive");
        let opened = Self { rpc_id, ..self };
        Sse::new(opened.events()).keep_alive(alive).into_response()
    }

    fn events(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, |mut opened| async move { opened.next().await.map(|event| (Ok(event), opened)) })
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((place, event)) = self.waiting.pop_front() {
                return Some(self.encode(place, &event));
            }
            if self.is_over || !self.check_caller().await {
                return None;
            }
            if self.read().await {
                self.pause = READ_PAUSES.0;
                continue;
            }
            let closing = self.api.closing.clone();
            tokio::select! {
                biased;
                () = closing.cancelled() => return None,
                () = &mut self.end => self.end = pending().boxed(),
                () = tokio::time::sleep(self.pause) => {}
            }
            self.pause = (self.pause * 3 / 2).min(READ_PAUSES.1);
        }
    }

    /// Reads the log on; returns whether there is something to send, or the stream is over.
    async fn read(&mut self) -> bool {
        let page = match self.caller.reader(&self.api).read_log(&self.head, self.from).await {
            Ok(Some(page)) => page,
            Ok(None) => {
                self.is_over = true;
                return true;
            }
            Err(error) => {
                tracing::debug!(%error, job = %self.head.id, "the log of a task isn't read yet");
                return false;
            }
        };
        if page.is_begun && !self.is_begun {
            self.is_begun = true;
            self.waiting.push_back((None, begin_event(&self.head)));
        }
        self.is_over = page.is_over || (self.ends_at_question && asks_last(&page.events));
        self.from = page.read_to.map_or(self.from, |read_to| read_to.max(self.from));
        for LogEvent { place, event } in page.events {
            self.from = self.from.max(place);
            self.waiting.push_back((Some(place), event));
        }
        self.is_over || !self.waiting.is_empty()
    }

    /// Checks, now and then, that the agent is still published, and that the caller may still see what it might when the
    /// stream began.
    async fn check_caller(&mut self) -> bool {
        let now = self.api.venue.clock.steady();
        if now < self.next_caller_check {
            return true;
        }
        self.next_caller_check = now + CALLER_CHECK_PAUSE;
        let checked = async {
            if a2a::find_agent(&self.api.venue, &self.owner, &self.head.agent).await?.is_none() {
                return Ok(false);
            }
            Ok::<_, StoreError>(match self.api.verify_again(&self.headers).await? {
                StreamCaller::WithoutToken => true,
                StreamCaller::Refused => false,
                StreamCaller::Verified(caller) => caller.reader().visibility(&self.head) == self.seen,
            })
        };
        // While the store is away nothing new is read either.
        checked.await.unwrap_or(true)
    }

    fn encode(&self, place: Option<LogPlace>, event: &A2aStreamEvent) -> Event {
        let result = to_json(event);
        let data = match &self.rpc_id {
            None => result,
            Some(id) => to_json(&A2aRpcResult { jsonrpc: JSON_RPC.to_owned(), id: id.clone(), result }),
        };
        let encoded = Event::default().data(data.to_string());
        match place {
            Some(place) => encoded.id(place.to_string()),
            None => encoded,
        }
    }
}

/// Whether the last of these events is a question.
fn asks_last(events: &[LogEvent]) -> bool {
    match events.last().map(|last| &last.event) {
        Some(A2aStreamEvent::StatusUpdate(update)) => update.status.state.is_interrupted(),
        Some(A2aStreamEvent::Task(_) | A2aStreamEvent::ArtifactUpdate(_)) | None => false,
    }
}
