//! Receives messages from the queue. Those whose owner has a slot run in it; the others are admitted behind them, a few
//! at a time.

use super::deliveries::handle;
use super::{due_sessions, stray};
use crate::bus::{Delivery, WhenEmpty};
use crate::domain::message::InboundKind;
use crate::process::retry::LogPace;
use crate::worker::state::slots::{AdmissionSlot, READ_AHEAD};
use crate::worker::state::{RECEIVE_PAUSE, Worker};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Messages without a slot that are handled at once: each is a call of the store, which turns need too.
const ADMISSIONS_AT_ONCE: usize = 32;

/// Bytes of all messages that wait here for admission; a larger message waits alone.
const QUEUED_BYTES_MAX: u32 = 16 << 20;

/// A waiting message, with its part of those bytes.
type UnadmittedMessage = (Delivery, OwnedSemaphorePermit);

/// Receives messages until the worker stops.
pub(in crate::worker) async fn run(worker: &Arc<Worker>) {
    let (later, behind) = mpsc::channel(READ_AHEAD);
    let later = AdmissionQueue { later, bytes: Arc::new(Semaphore::new(QUEUED_BYTES_MAX as usize)) };
    worker.shutdown.spawn_service("admissions", admit_behind(Arc::clone(worker), behind));
    worker.spawn_rounds("waiting messages", due_sessions::keep_messages);
    let stop = worker.shutdown.stop_token();
    let (mut pace, mut more) = (LogPace::default(), false);
    loop {
        let ask = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            ask = worker.slots.next_queue_request(more) => ask,
        };
        if worker.venue.clock.is_wrong() {
            // The messages are for workers whose clock is right.
            due_sessions::wake_elsewhere(worker).await;
            tokio::time::sleep(RECEIVE_PAUSE).await;
            continue;
        }
        let received = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            received = worker.venue.bus.receive(ask.limit, ask.when_empty) => received,
        };
        match received {
            Err(error) => {
                if pace.claim_due() {
                    tracing::warn!(%error, "no messages received");
                }
                tokio::time::sleep(RECEIVE_PAUSE).await;
            }
            Ok(deliveries) => {
                stray::collect(worker);
                more = !deliveries.is_empty();
                serve(worker, deliveries, &later).await;
                // Long-held slots may make room for owners that hold none.
                due_sessions::call(worker).await;
            }
        }
    }
    tokio::join!(return_deliveries(worker), due_sessions::wake_elsewhere(worker));
}

/// Messages without a slot.
struct AdmissionQueue {
    later: mpsc::Sender<UnadmittedMessage>,
    bytes: Arc<Semaphore>,
}

impl AdmissionQueue {
    /// Waits for room and queues the message; returns it as an error when the worker stops.
    async fn enqueue(&self, delivery: Delivery) -> Result<(), Delivery> {
        let bytes = u32::try_from(delivery.body.len()).unwrap_or(QUEUED_BYTES_MAX).clamp(1, QUEUED_BYTES_MAX);
        match Arc::clone(&self.bytes).acquire_many_owned(bytes).await {
            Ok(permit) => self.later.send((delivery, permit)).await.map_err(|mpsc::error::SendError((back, _))| back),
            Err(_) => Err(delivery),
        }
    }
}

/// Starts the messages that get a slot, then queues the others.
async fn serve(worker: &Arc<Worker>, deliveries: Vec<Delivery>, later: &AdmissionQueue) {
    let mut without_slot = Vec::new();
    for delivery in deliveries {
        match take_slot(worker, &delivery) {
            Some(slot) => {
                let own = Arc::clone(worker);
                worker.shutdown.spawn_turn("session", async move { handle(&own, delivery, Some(slot)).await });
            }
            None => without_slot.push(delivery),
        }
    }
    for delivery in without_slot {
        if let Err(delivery) = later.enqueue(delivery).await {
            delivery.settle.nak(Duration::ZERO).await;
        }
    }
}

/// Takes a slot for the session of a message; `None` for orders, which need none.
fn take_slot(worker: &Worker, delivery: &Delivery) -> Option<AdmissionSlot> {
    if worker.venue.clock.is_wrong() {
        return None;
    }
    match delivery.kind {
        InboundKind::Task | InboundKind::Message | InboundKind::Result | InboundKind::Wake => {
            worker.slots.take(&delivery.owner)
        }
        InboundKind::Cancel | InboundKind::Pause | InboundKind::Resume | InboundKind::Decide => None,
    }
}

/// Handles messages without a slot, in order; when the worker stops, returns them to the queue.
async fn admit_behind(worker: Arc<Worker>, mut behind: mpsc::Receiver<UnadmittedMessage>) {
    let admissions = Arc::new(Semaphore::new(ADMISSIONS_AT_ONCE));
    while let Some((delivery, bytes)) = behind.recv().await {
        let Ok(admission) = Arc::clone(&admissions).acquire_owned().await else { return };
        if worker.shutdown.stop_token().is_cancelled() {
            delivery.settle.nak(Duration::ZERO).await;
            continue;
        }
        let own = Arc::clone(&worker);
        worker.shutdown.spawn_turn("admission", async move {
            handle(&own, delivery, None).await;
            drop((admission, bytes));
        });
    }
}

/// Returns at once what the queue still delivers for the last requests. Else it would stay in this process until the
/// connection closes, while turns run; after that the queue forgets the requests.
async fn return_deliveries(worker: &Worker) {
    let receive = || worker.venue.bus.receive(0, WhenEmpty::Return);
    while let Some(Ok(deliveries)) = worker.shutdown.end_token().run_until_cancelled(receive()).await
        && !deliveries.is_empty()
    {
        for delivery in deliveries {
            delivery.settle.nak(Duration::ZERO).await;
        }
    }
}
