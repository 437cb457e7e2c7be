//! Completions in atomic batches: what waits while a batch is on its way makes the next one, and the server syncs once
//! for each batch. Only while several come at once does the next batch wait a moment for more: a completion alone goes
//! at once.

use super::super::BusError;
use super::NatsBus;
use super::publish_errors;
use async_nats::HeaderMap;
use async_nats::jetstream::ErrorCode;
use bytes::Bytes;
use futures::future::join_all;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

/// Longest completion that goes with others; a longer one goes alone.
const MEMBER_BYTES: usize = 64 << 10;
/// Most bytes of a batch: a server holds it in memory until its end.
const BATCH_BYTES: usize = 512 << 10;
/// Most completions of a batch; a server takes 1,000.
const BATCH_MESSAGES: usize = 256;
/// Batches of one process on their way at the same time; a server takes 50 for each stream.
const BATCHES_AT_ONCE: usize = 2;

/// Time from the begin of a batch of several to that of the next. A batch costs a server four syncs, whatever its size.
const BATCH_EVERY: Duration = Duration::from_millis(10);

/// Headers of a batch, see ADR-50 of NATS.
const BATCH_ID: &str = "Nats-Batch-Id";
const BATCH_SEQUENCE: &str = "Nats-Batch-Sequence";
const BATCH_COMMIT: &str = "Nats-Batch-Commit";

/// Errors after which no batch is tried any more: the stream is set otherwise, or the server takes no ids in batches
/// (2.12.0).
const NO_BATCHES: [ErrorCode; 2] = [ErrorCode::ATOMIC_PUBLISH_DISABLED, ErrorCode::ATOMIC_PUBLISH_UNSUPPORTED_HEADER];

/// A completion as it goes to the server.
pub(super) struct OutMessage {
    pub(super) subject: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

struct WaitingCompletion {
    message: Arc<OutMessage>,
    stored: oneshot::Sender<Result<(), BusError>>,
}

/// Completions that wait for the next batch.
pub(super) struct OutBatches {
    waiting: Mutex<VecDeque<WaitingCompletion>>,
    lanes: Semaphore,
    /// Earliest begin of the next batch.
    next_begin: Mutex<Option<Instant>>,
    /// The stream takes no batches: an operator or an older build has set it back.
    are_off: AtomicBool,
}

impl Default for OutBatches {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            lanes: Semaphore::new(BATCHES_AT_ONCE),
            next_begin: Mutex::default(),
            are_off: AtomicBool::new(false),
        }
    }
}

impl OutBatches {
    /// Waits until a batch may begin again after one of several completions.
    async fn wait_for_begin(&self) {
        let begin = *self.next_begin.lock();
        if let Some(begin) = begin {
            tokio::time::sleep_until(begin).await;
        }
    }

    /// Removes the next batch, oldest first, and sets the begin of the one after it.
    fn take(&self) -> Vec<WaitingCompletion> {
        let mut waiting = self.waiting.lock();
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while let Some(next) = waiting.front() {
            bytes += next.message.body.len();
            if taken.len() == BATCH_MESSAGES || (bytes > BATCH_BYTES && !taken.is_empty()) {
                break;
            }
            taken.extend(waiting.pop_front());
        }
        if !taken.is_empty() {
            *self.next_begin.lock() = (taken.len() > 1).then(|| Instant::now() + BATCH_EVERY);
        }
        taken
    }
}

/// How a batch ended that the server didn't store.
enum BatchFailure {
    /// It is unknown whether it is stored.
    Unknown(BusError),
    /// None of it is stored.
    Refused,
}

impl NatsBus {
    /// Publishes a completion, with those that wait, and returns when it is stored.
    pub(super) async fn publish_out(&self, message: OutMessage) -> Result<(), BusError> {
        if message.body.len() > MEMBER_BYTES || self.out.are_off.load(Ordering::Relaxed) {
            return self.publish_alone(&message).await;
        }
        let message = Arc::new(message);
        let (stored, mut told) = oneshot::channel();
        self.out.waiting.lock().push_back(WaitingCompletion { message: Arc::clone(&message), stored });
        loop {
            let lane = tokio::select! {
                biased;
                told = &mut told => match told {
                    Ok(result) => return result,
                    // Whoever had taken it was cancelled: the same id again is stored once.
                    Err(_) => return self.publish_alone(&message).await,
                },
                lane = self.out.lanes.acquire() => lane,
            };
            self.out.wait_for_begin().await;
            let batch = self.out.take();
            if batch.is_empty() {
                // Another lane has it already: to take a lane again would only spin until that one ends.
                drop(lane);
                return match told.await {
                    Ok(result) => result,
                    Err(_) => self.publish_alone(&message).await,
                };
            }
            self.publish_batch(batch).await;
            drop(lane);
        }
    }

    async fn publish_alone(&self, message: &OutMessage) -> Result<(), BusError> {
        let OutMessage { subject, headers, body } = message;
        self.publish_stored(subject.clone(), headers.clone(), body.clone(), false).await
    }

    /// Publishes a batch and tells each of its senders. A refused batch, e.g. with a completion that is stored already,
    /// goes once more message by message.
    async fn publish_batch(&self, batch: Vec<WaitingCompletion>) {
        let end = match &batch[..] {
            [_] => Err(BatchFailure::Refused),
            messages => self.try_batch(messages).await,
        };
        match end {
            Ok(()) => tell_all(batch, &Ok(())),
            Err(BatchFailure::Unknown(error)) => tell_all(batch, &Err(error)),
            Err(BatchFailure::Refused) => {
                let alone = batch.into_iter().map(async |WaitingCompletion { message, stored }| {
                    let _ = stored.send(self.publish_alone(&message).await);
                });
                join_all(alone).await;
            }
        }
    }

    /// Publishes messages as one atomic batch: all are stored, or none.
    async fn try_batch(&self, messages: &[WaitingCompletion]) -> Result<(), BatchFailure> {
        let line = self.working_line().await.map_err(BatchFailure::Unknown)?;
        let mut lost = line.fresh_link();
        let id = uuid::Uuid::now_v7().simple().to_string();
        let mut committed = None;
        for (place, WaitingCompletion { message, .. }) in messages.iter().enumerate() {
            let mut headers = message.headers.clone();
            headers.insert(BATCH_ID, id.as_str());
            headers.insert(BATCH_SEQUENCE, (place + 1).to_string());
            let (subject, body) = (message.subject.clone(), message.body.clone());
            if place + 1 < messages.len() {
                let sent = line.client.publish_with_headers(subject, headers, body).await;
                sent.map_err(|_| BatchFailure::Refused)?;
            } else {
                headers.insert(BATCH_COMMIT, "1");
                let sent = line.context.publish_with_headers(subject, headers, body).await;
                committed = Some(sent.map_err(|_| BatchFailure::Refused)?);
            }
        }
        let Some(committed) = committed else { return Ok(()) };
        let acked = tokio::select! {
            acked = committed.into_future() => acked,
            _ = lost.changed() => {
                return Err(BatchFailure::Unknown(self.lost_acknowledgement()));
            }
        };
        match acked {
            Ok(_) => Ok(()),
            Err(error) => match publish_errors::server_answer(&error) {
                Some(answer) => {
                    if NO_BATCHES.contains(&answer.error_code()) && !self.out.are_off.swap(true, Ordering::Relaxed) {
                        let stream = super::streams::outbound_name(self.prefix());
                        tracing::warn!(
                            "NATS at `{}`: stream `{stream}` takes no atomic batches (`allow_atomic`, NATS 2.12.1), so completions go one by one until the next start",
                            self.name
                        );
                    }
                    tracing::debug!(error = %answer, messages = messages.len(), "a batch of completions goes one by one");
                    Err(BatchFailure::Refused)
                }
                None => {
                    Err(match publish_errors::publish_error(&self.name, &error, &messages[0].message.subject, false) {
                        // Nobody takes messages on the subject: alone, they wait until the stream has a leader again.
                        _ if publish_errors::is_not_taken(&error) => BatchFailure::Refused,
                        BusError::Unavailable { reason, .. } => BatchFailure::Unknown(self.unavailable_reason(reason)),
                        other => BatchFailure::Unknown(other),
                    })
                }
            },
        }
    }
}

fn tell_all(batch: Vec<WaitingCompletion>, result: &Result<(), BusError>) {
    for WaitingCompletion { stored, .. } in batch {
        let _ = stored.send(result.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(bytes: usize) -> WaitingCompletion {
        let message =
            OutMessage { subject: String::new(), headers: HeaderMap::new(), body: Bytes::from(vec![0; bytes]) };
        WaitingCompletion { message: Arc::new(message), stored: oneshot::channel().0 }
    }

    #[test]
    fn an_empty_take_leaves_the_begin_of_the_next_batch() {
        let batches = OutBatches::default();
        batches.waiting.lock().extend((0..2).map(|_| waiting(1)));
        assert_eq!((batches.take().len(), batches.take().len()), (2, 0));
        assert!(batches.next_begin.lock().is_some(), "what comes next still waits for more");
    }

    #[test]
    fn a_batch_is_bounded_in_messages_and_bytes() {
        for (bytes, count, expected) in [(1, 300, [256, 44]), (MEMBER_BYTES, 10, [8, 2]), (BATCH_BYTES + 1, 2, [1, 1])]
        {
            let batches = OutBatches::default();
            batches.waiting.lock().extend((0..count).map(|_| waiting(bytes)));
            assert_eq!([batches.take().len(), batches.take().len()], expected, "{bytes} bytes");
            assert!(batches.take().is_empty());
        }
    }
}
