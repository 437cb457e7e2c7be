//! Messages are taken from the queue. Those whose owner has a slot run in it; the others are admitted behind them, a few
//! at a time.

use super::due;
use super::handle;
use super::seats::{AHEAD, Seat};
use crate::bus::{Delivery, WhenEmpty};
use crate::domain::message::InKind;
use crate::process::retry::LogPace;
use crate::worker::{RECEIVE_PAUSE, Worker};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Messages without a slot that are seen to at the same time: each is a call of the store, and turns wait behind it.
const ADMISSIONS: usize = 32;

/// Bytes of all messages that wait here to be seen to; one that is larger waits alone.
const BYTES: u32 = 16 << 20;

/// What waits to be seen to, with its part of those bytes.
type Later = (Delivery, OwnedSemaphorePermit);

/// Takes messages until the worker stops.
pub(in crate::worker) async fn run(worker: &Arc<Worker>) {
    let (later, behind) = mpsc::channel(AHEAD);
    let later = Queue { later, bytes: Arc::new(Semaphore::new(BYTES as usize)) };
    worker.shutdown.spawn_service("admissions", admit_behind(Arc::clone(worker), behind));
    worker.spawn_rounds("waiting messages", due::keep_messages);
    let stop = worker.shutdown.stopping();
    let (mut pace, mut more) = (LogPace::default(), false);
    loop {
        let ask = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            ask = worker.seats.ask(more) => ask,
        };
        if worker.venue.clock.is_wrong() {
            // What waits is for workers whose clock is right.
            due::call_elsewhere(worker).await;
            tokio::time::sleep(RECEIVE_PAUSE).await;
            continue;
        }
        let received = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            received = worker.venue.bus.receive(ask.most, ask.when_empty) => received,
        };
        match received {
            Err(error) => {
                if pace.is_due() {
                    tracing::warn!(%error, "no messages received");
                }
                tokio::time::sleep(RECEIVE_PAUSE).await;
            }
            Ok(deliveries) => {
                super::stray::collect(worker);
                more = !deliveries.is_empty();
                serve(worker, deliveries, &later).await;
                // Slots may be held long by now, and make room for owners that hold none.
                due::call(worker).await;
            }
        }
    }
    tokio::join!(hand_back(worker), due::call_elsewhere(worker));
}

/// What comes without a slot.
struct Queue {
    later: mpsc::Sender<Later>,
    bytes: Arc<Semaphore>,
}

impl Queue {
    /// Waits until there is place for it; gives it back when the worker stops.
    async fn put(&self, delivery: Delivery) -> Result<(), Delivery> {
        let bytes = u32::try_from(delivery.body.len()).unwrap_or(BYTES).clamp(1, BYTES);
        match Arc::clone(&self.bytes).acquire_many_owned(bytes).await {
            Ok(permit) => self.later.send((delivery, permit)).await.map_err(|mpsc::error::SendError((back, _))| back),
            Err(_) => Err(delivery),
        }
    }
}

/// Those that have a slot first.
async fn serve(worker: &Arc<Worker>, deliveries: Vec<Delivery>, later: &Queue) {
    let mut seatless = Vec::new();
    for delivery in deliveries {
        match seat(worker, &delivery) {
            Some(seat) => {
                let own = Arc::clone(worker);
                worker.shutdown.spawn_turn("session", async move { handle(&own, delivery, Some(seat)).await });
            }
            None => seatless.push(delivery),
        }
    }
    for delivery in seatless {
        if let Err(delivery) = later.put(delivery).await {
            delivery.settle.nak(Duration::ZERO).await;
        }
    }
}

/// A slot for the session that a message may be for.
fn seat(worker: &Worker, delivery: &Delivery) -> Option<Seat> {
    if worker.venue.clock.is_wrong() {
        return None;
    }
    match delivery.kind {
        InKind::Task | InKind::Message | InKind::Result | InKind::Wake => worker.seats.take(&delivery.owner),
        InKind::Cancel | InKind::Pause | InKind::Resume | InKind::Decide => None,
    }
}

/// Sees to what has no slot, in order. What the worker doesn't get to before it stops, another does.
async fn admit_behind(worker: Arc<Worker>, mut behind: mpsc::Receiver<Later>) {
    let admissions = Arc::new(Semaphore::new(ADMISSIONS));
    while let Some((delivery, bytes)) = behind.recv().await {
        let Ok(admission) = Arc::clone(&admissions).acquire_owned().await else { return };
        if worker.shutdown.stopping().is_cancelled() {
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

/// What the queue still sends for the last requests is for another worker, at once. As long as turns run here it would
/// else lie in this process until the connection closes; then the queue forgets the requests, too.
async fn hand_back(worker: &Worker) {
    let receive = || worker.venue.bus.receive(0, WhenEmpty::Return);
    while let Some(Ok(deliveries)) = worker.shutdown.ending().run_until_cancelled(receive()).await
        && !deliveries.is_empty()
    {
        for delivery in deliveries {
            delivery.settle.nak(Duration::ZERO).await;
        }
    }
}
