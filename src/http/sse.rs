//! `GET jobs/{id}/sse`: a job's record at each change and its live text, until it has ended.
//!
//! Live text has the place of its piece as the event's `id`: a client that comes back with it in
//! `Last-Event-ID` goes on behind it.

use super::Api;
use super::extract::Who;
use super::jobs::{job_id, sight};
use super::problem::Problem;
use crate::bus::Piece;
use crate::domain::ids::{JobId, Owner};
use crate::domain::job::{Job, JobStatus};
use crate::domain::reader::{JobSight, Reader};
use crate::domain::time::Millis;
use crate::venue::jobs;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive};
use axum::response::{IntoResponse, Response, Sse};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::Instant;

/// First and longest pause between two looks at the job.
const POLL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// The handler.
pub(super) async fn stream(
    State(api): State<Api>,
    who: Who,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = job_id(&id)?;
    let after = after(&headers)?;
    let seen = sight(&api, &who, &id).await?;
    // Listening begins before the first look, so that no text falls between the two.
    let live = match api.venue.bus.follow(&id, after).await {
        Ok(live) if seen == JobSight::Whole => live,
        // What is said while it works is what comes out.
        Ok(_) => stream::pending().boxed(),
        Err(error) => {
            tracing::debug!(%error, job = %id, "no live text on this stream");
            stream::pending().boxed()
        }
    };
    let alive = KeepAlive::new().interval(api.options.heartbeat).text("alive");
    let watch = Watch {
        owner: who.owner().clone(),
        reader: who.caller.reader(),
        job: id,
        live,
        held: None,
        seen: None,
        pause: Duration::ZERO,
        look: Instant::now(),
        ended: false,
        api,
    };
    Ok(Sse::new(watch.events()).keep_alive(alive).into_response())
}

/// The place behind which a client goes on.
fn after(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(given) = headers.get("last-event-id") else { return Ok(None) };
    let number = given.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| Problem::bad_request("header `Last-Event-ID`: expected the `id` of an event"))
}

/// A stream that is being read.
struct Watch {
    api: Api,
    owner: Owner,
    reader: Reader,
    job: JobId,
    live: BoxStream<'static, Piece>,
    /// Text that waits for the record that goes before it.
    held: Option<Piece>,
    /// Status and time of the last record that was sent.
    seen: Option<(JobStatus, Millis)>,
    pause: Duration,
    look: Instant,
    ended: bool,
}

impl Watch {
    fn events(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, |mut watch| async move { watch.next().await.map(|event| (Ok(event), watch)) })
    }

    async fn next(&mut self) -> Option<Event> {
        if let Some(text) = self.held.take() {
            return Some(live(&text));
        }
        while !self.ended {
            let closing = self.api.closing.clone();
            // Text that has arrived goes out before the record that ends the stream.
            tokio::select! {
                biased;
                () = closing.cancelled() => return None,
                Some(text) = self.live.next() => {
                    // That the job has started is said before its first text.
                    if self.seen.is_some_and(|(status, _)| status == JobStatus::Pending)
                        && let Some(record) = self.look().await
                    {
                        self.held = Some(text);
                        return Some(event("job-update", &record));
                    }
                    self.pause = Duration::ZERO;
                    return Some(live(&text));
                }
                () = tokio::time::sleep_until(self.look) => {
                    if let Some(record) = self.look().await {
                        return Some(event("job-update", &record));
                    }
                }
            }
        }
        None
    }

    /// The record when it has changed since the last look.
    async fn look(&mut self) -> Option<Value> {
        self.pause = (self.pause * 3 / 2).clamp(POLL.0, POLL.1);
        self.look = Instant::now() + self.pause;
        let state = jobs::state(&self.api.venue, &self.owner, &self.job).await;
        if state.is_ok_and(|state| state.is_some() && state == self.seen) {
            return None;
        }
        let job: Job = match jobs::shown(&self.api.venue, &self.owner, &self.job).await {
            Ok(Some(job)) => job,
            Ok(None) => {
                self.ended = true;
                return None;
            }
            Err(error) => {
                tracing::debug!(%error, job = %self.job, "job not read; the stream tries again");
                return None;
            }
        };
        let now = Some((job.status, job.updated));
        if self.seen == now {
            return None;
        }
        self.seen = now;
        self.pause = Duration::ZERO;
        self.ended = job.status.is_terminal();
        Some(self.reader.record(&job))
    }
}

/// A piece with its place: text, or what is done.
fn live(piece: &Piece) -> Event {
    let said = serde_json::from_slice::<Value>(&piece.body).unwrap_or_default();
    let (name, data) = match said.get("progress") {
        Some(progress) => ("progress", progress.clone()),
        None => ("token", json!({"text": said["text"].as_str().unwrap_or_default()})),
    };
    event(name, &data).id(piece.sequence.to_string())
}

fn event(name: &str, data: &Value) -> Event {
    Event::default().event(name).data(data.to_string())
}
