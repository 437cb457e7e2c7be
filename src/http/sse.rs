//! `GET jobs/{id}/sse`: a job's record at each change and its live text, until it has ended.

use super::Api;
use super::extract::Who;
use super::jobs::{job_id, unknown};
use super::problem::Problem;
use crate::bus::Live;
use crate::domain::ids::{JobId, Owner};
use crate::domain::job::{Job, JobStatus};
use crate::domain::time::Millis;
use crate::jobs;
use axum::extract::{Path, State};
use axum::response::sse::{Event, KeepAlive};
use axum::response::{IntoResponse, Response, Sse};
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::Instant;

/// First and longest pause between two looks at the job.
const POLL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// The handler.
pub(super) async fn stream(State(api): State<Api>, who: Who, Path(id): Path<String>) -> Result<Response, Problem> {
    let id = job_id(&id)?;
    // Listening begins before the first look, so that no text falls between the two.
    let live = match api.venue.bus.listen(&Live::Job(id.clone())).await {
        Ok(live) => live,
        Err(error) => {
            tracing::debug!(%error, job = %id, "no live text on this stream");
            stream::pending().boxed()
        }
    };
    if jobs::get(&api.venue, who.owner(), &id).await?.is_none() {
        return Err(unknown(&id));
    }
    let alive = KeepAlive::new().interval(api.options.heartbeat).text("alive");
    let watch = Watch {
        owner: who.owner().clone(),
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

/// A stream that is being read.
struct Watch {
    api: Api,
    owner: Owner,
    job: JobId,
    live: BoxStream<'static, Bytes>,
    /// Text that waits for the record that goes before it.
    held: Option<Bytes>,
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
            return Some(event("token", &token(&text)));
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
                    return Some(event("token", &token(&text)));
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
        let job: Job = match jobs::get(&self.api.venue, &self.owner, &self.job).await {
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
        Some(job.to_json())
    }
}

/// Live text, in JSON so that a line break in it is no line break of the stream.
fn token(text: &[u8]) -> Value {
    json!({"text": String::from_utf8_lossy(text)})
}

fn event(name: &str, data: &Value) -> Event {
    Event::default().event(name).data(data.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_text_stays_text_whatever_it_looks_like() {
        assert_eq!(token(b"42"), json!({"text": "42"}));
        assert_eq!(token(b"two\r\nlines"), json!({"text": "two\r\nlines"}));
        assert_eq!(token(b"\xff"), json!({"text": "\u{fffd}"}));
    }
}
