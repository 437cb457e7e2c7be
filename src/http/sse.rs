//! `GET jobs/{id}/sse`: sends a job's record at each change and its live text, until it has ended.
//!
//! The `id` of a text event is the sequence number of its piece: a client that reconnects with it in `Last-Event-ID`
//! goes on after it; without it, it gets all text that still exists. The final record is the last event.

use super::Api;
use super::extract::{RequestCaller, StreamCaller};
use super::jobs::{check_sight, job_id};
use super::problem::Problem;
use crate::bus::LivePiece;
use crate::domain::ids::{JobId, Owner};
use crate::domain::job::{Job, JobStatus};
use crate::domain::reader::{JobReader, JobVisibility};
use crate::domain::time::Millis;
use crate::domain::wait::WaitReason;
use crate::store::StoreError;
use crate::venue::{jobs, waits};
use crate::view::job::{JobView, LiveTextView};
use crate::view::to_json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive};
use axum::response::{IntoResponse, Response, Sse};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use serde_json::Value;
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::Instant;

/// First and longest pause between two reads of the job.
const JOB_READ_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Pause between two checks whether the caller's token still counts.
const CALLER_CHECK_PAUSE: Duration = Duration::from_secs(1);

/// Pause between two reads of why a job waits.
const WAIT_READ_PAUSE: Duration = Duration::from_secs(2);

/// Longest wait of the final record for text that the queue has not delivered yet.
const TEXT_DELIVERY_TIME: Duration = Duration::from_secs(2);

/// Opens the event stream of a job.
pub(super) async fn stream(
    State(api): State<Api>,
    who: RequestCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = job_id(&id)?;
    let after = last_event_id(&headers)?;
    let seen = check_sight(&api, &who, &id).await?;
    // The subscription begins before the first read, so that no text is missed between the two.
    let live = match api.venue.bus.live_feed().follow(&id, after).await {
        Ok(live) if seen == JobVisibility::Whole => Some(live),
        // A reader who may not see the output gets no text either.
        Ok(_) => None,
        Err(error) => {
            tracing::debug!(%error, job = %id, "no live text on this stream");
            None
        }
    };
    let has_text = live.is_some();
    let alive = KeepAlive::new().interval(api.options.heartbeat).text("alive");
    let watch = JobStream {
        owner: who.owner().clone(),
        reader: who.caller.reader(),
        job: id,
        live: live.unwrap_or_else(|| stream::pending().boxed()),
        has_text,
        last_sent: after,
        is_new: true,
        held_text: None,
        last: None,
        last_status: None,
        wait: None,
        last_job: None,
        next_wait_check: Instant::now(),
        pause: Duration::ZERO,
        next_check: Instant::now(),
        is_ended: false,
        seen,
        next_caller_check: Instant::now() + CALLER_CHECK_PAUSE,
        headers,
        api,
    };
    Ok(Sse::new(watch.events()).keep_alive(alive).into_response())
}

/// Parses the sequence number after which a client goes on.
fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(given) = headers.get("last-event-id") else { return Ok(None) };
    let number = given.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| Problem::bad_request("header `Last-Event-ID`: expected the `id` of an event"))
}

/// State of an open event stream.
struct JobStream {
    api: Api,
    owner: Owner,
    reader: JobReader,
    job: JobId,
    live: BoxStream<'static, LivePiece>,
    /// False for a reader who may see no text.
    has_text: bool,
    /// Sequence number of the last piece that was sent, at first the one that the client named.
    last_sent: Option<u64>,
    /// Nothing was sent yet after the piece that the client named.
    is_new: bool,
    /// Text to send after the record that precedes it.
    held_text: Option<LivePiece>,
    last: Option<LastRecord>,
    /// Status and time of the last record that was sent.
    last_status: Option<(JobStatus, Millis)>,
    /// Why the job waits, as in the last record.
    wait: Option<WaitReason>,
    /// The job of the last record, without its input.
    last_job: Option<Job>,
    /// Time from which the reason of its wait is read again.
    next_wait_check: Instant,
    pause: Duration,
    next_check: Instant,
    is_ended: bool,
    /// How much of the job the caller might see when the stream began.
    seen: JobVisibility,
    /// Headers of the request, by which the caller is verified again.
    headers: HeaderMap,
    next_caller_check: Instant,
}

/// The final record, while text that was written before it is on its way.
struct LastRecord {
    record: JobView,
    /// Sequence number of the job's last piece; `None`: there is none, or it is unknown.
    last_text: Option<u64>,
    deadline: Instant,
}

impl LastRecord {
    /// Whether all text before it was sent, or its wait is over; `last_sent` is the sequence number of the last piece that
    /// was sent. A new stream whose number is past all text comes from before the queue began anew.
    fn is_due(&self, last_sent: Option<u64>, is_new: bool) -> bool {
        let is_sent = if is_new { last_sent == self.last_text } else { last_sent >= self.last_text };
        self.last_text.is_none() || is_sent || self.deadline <= Instant::now()
    }
}

impl JobStream {
    fn events(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, |mut watch| async move { watch.next().await.map(|event| (Ok(event), watch)) })
    }

    async fn next(&mut self) -> Option<Event> {
        if !self.check_caller().await {
            return None;
        }
        if let Some(text) = self.held_text.take() {
            return Some(self.send(&text));
        }
        while !self.is_ended && self.check_caller().await {
            if let Some(last) = self.last.take_if(|last| last.is_due(self.last_sent, self.is_new)) {
                self.is_ended = true;
                return Some(event("job-update", &to_json(&last.record)));
            }
            let closing = self.api.closing.clone();
            let wake = self.last.as_ref().map_or(self.next_check, |last| last.deadline);
            let wake = wake.min(self.next_caller_check);
            tokio::select! {
                biased;
                () = closing.cancelled() => return None,
                // The first event is the job's record or, if the job has ended, its text.
                Some(text) = self.live.next(), if self.last_status.is_some() => {
                    // The start of the job is sent before its first text.
                    if self.last_status.is_some_and(|(status, _)| status == JobStatus::Pending)
                        && let Some(record) = self.read_record().await
                    {
                        self.held_text = Some(text);
                        return Some(event("job-update", &to_json(&record)));
                    }
                    self.pause = Duration::ZERO;
                    return Some(self.send(&text));
                }
                () = tokio::time::sleep_until(wake) => {
                    if self.last.is_none() && let Some(record) = self.read_record().await {
                        return Some(event("job-update", &to_json(&record)));
                    }
                }
            }
        }
        None
    }

    /// Checks, now and then, that the caller may still see what it might when the stream began; else returns false. A token that
    /// has ended, or was revoked, ends the stream; the next request says why.
    async fn check_caller(&mut self) -> bool {
        if Instant::now() < self.next_caller_check {
            return true;
        }
        self.next_caller_check = Instant::now() + CALLER_CHECK_PAUSE;
        let checked = async {
            let caller = match self.api.verify_again(&self.headers).await? {
                StreamCaller::WithoutToken => return Ok(true),
                StreamCaller::Refused => return Ok(false),
                StreamCaller::Verified(caller) => caller,
            };
            let head = jobs::head(&self.api.venue, &self.owner, &self.job).await?;
            Ok::<_, StoreError>(head.is_none_or(|head| caller.reader().visibility(&head) == self.seen))
        };
        // While the store is away nothing new is read either.
        checked.await.unwrap_or(true)
    }

    fn send(&mut self, text: &LivePiece) -> Event {
        (self.last_sent, self.is_new) = (Some(text.sequence), false);
        text_event(text)
    }

    /// Returns the record if it has changed since the last read; a final record waits in `last`.
    async fn read_record(&mut self) -> Option<JobView> {
        self.pause = (self.pause * 3 / 2).clamp(JOB_READ_PAUSES.0, JOB_READ_PAUSES.1);
        self.next_check = Instant::now() + self.pause;
        let status = jobs::read_status(&self.api.venue, &self.owner, &self.job).await;
        let is_same = status.is_ok_and(|status| status.is_some() && status == self.last_status);
        if is_same && Instant::now() < self.next_wait_check {
            return None;
        }
        self.next_wait_check = Instant::now() + WAIT_READ_PAUSE;
        if is_same
            && let Some(known) = self.last_job.clone()
            && reason_of(&self.api, &self.owner, &self.reader, known).await.is_ok_and(|reason| reason == self.wait)
        {
            return None;
        }
        let mut job: Job = match jobs::read_for_people(&self.api.venue, &self.owner, &self.job).await {
            Ok(Some(job)) => job,
            Ok(None) => {
                self.is_ended = true;
                return None;
            }
            Err(error) => {
                tracing::debug!(%error, job = %self.job, "job not read; the stream tries again");
                return None;
            }
        };
        if let Err(error) = waits::explain(&self.api.venue, &self.owner, &self.reader, &mut job).await {
            tracing::debug!(%error, job = %self.job, "why the job waits isn't known");
        }
        let now = Some((job.status, job.updated));
        if self.last_status == now && self.wait == job.wait {
            return None;
        }
        self.last_status = now;
        self.wait.clone_from(&job.wait);
        self.pause = Duration::ZERO;
        let record = JobView::for_reader(&job, &self.reader);
        if !job.status.is_terminal() {
            job.head.input = Value::Null;
            self.last_job = Some(job);
            return Some(record);
        }
        let behind = if self.has_text { last_sequence(&self.api, &self.job).await } else { None };
        self.last = Some(LastRecord { record, last_text: behind, deadline: Instant::now() + TEXT_DELIVERY_TIME });
        None
    }
}

/// Returns why a job of unchanged status waits, without reading its input and its children.
async fn reason_of(
    api: &Api,
    owner: &Owner,
    reader: &JobReader,
    mut job: Job,
) -> Result<Option<WaitReason>, StoreError> {
    jobs::reload_notes(&api.venue, owner, &mut job).await?;
    waits::explain(&api.venue, owner, reader, &mut job).await?;
    Ok(job.wait)
}

/// Returns the sequence number of the job's last piece; `None`: there is none, or it is unknown.
async fn last_sequence(api: &Api, job: &JobId) -> Option<u64> {
    api.venue.bus.live_feed().last_piece(job).await.unwrap_or_else(|error| {
        tracing::debug!(%error, %job, "the sequence number of the last text isn't known");
        None
    })
}

/// Makes the event of a piece: text or progress.
fn text_event(piece: &LivePiece) -> Event {
    let said = serde_json::from_slice::<Value>(&piece.body).unwrap_or_default();
    let (name, data) = if let Some(progress) = said.get("progress") {
        ("progress", progress.clone())
    } else {
        let text = said["text"].as_str().unwrap_or_default().to_owned();
        ("token", to_json(&LiveTextView { text }))
    };
    event(name, &data).id(piece.sequence.to_string())
}

fn event(name: &str, data: &Value) -> Event {
    Event::default().event(name).data(data.to_string())
}
