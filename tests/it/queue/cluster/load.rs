//! A producer and a consumer that go on whatever happens to the cluster, and what they saw.

use parking_lot::Mutex;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use trellis::bus::nats::NatsBus;
use trellis::bus::{Bus, BusError, WhenEmpty};
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};

/// After a loss: the others find out, elect, and what was under way ends.
const PATIENCE: Duration = Duration::from_mins(2);

/// A task for the inbound stream.
pub fn task(id: &str) -> BusMessage {
    let to = MessageAddress::In {
        owner: "acme/ann".parse().unwrap(),
        agent: "clerk".parse().unwrap(),
        kind: InboundKind::Task,
    };
    BusMessage { to, id: Some(id.to_owned()), body: json!({"input": id}), trace: None }
}

#[derive(Default)]
struct Shared {
    stopped: AtomicBool,
    /// Acknowledged to the producer.
    accepted: Mutex<BTreeSet<String>>,
    /// Given to the consumer, and acknowledged by it.
    taken: Mutex<BTreeSet<String>>,
    errors: Mutex<Vec<String>>,
}

/// Both at work.
pub struct Load {
    bus: Arc<NatsBus>,
    shared: Arc<Shared>,
    producer: JoinHandle<()>,
    consumer: JoinHandle<()>,
}

impl Load {
    pub fn start(bus: NatsBus) -> Self {
        let (bus, shared) = (Arc::new(bus), Arc::<Shared>::default());
        let producer = tokio::spawn(produce(Arc::clone(&bus), Arc::clone(&shared)));
        let consumer = tokio::spawn(consume(Arc::clone(&bus), Arc::clone(&shared)));
        Self { bus, shared, producer, consumer }
    }

    fn counts(&self) -> [usize; 2] {
        [&self.shared.accepted, &self.shared.taken].map(|set| set.lock().len())
    }

    /// Waits until both counts have grown by `more` messages; panics after [`PATIENCE`].
    pub async fn wait_for_progress(&self, more: usize) {
        let (before, end) = (self.counts(), Instant::now() + PATIENCE);
        while self.counts().iter().zip(&before).any(|(now, before)| now - before < more) {
            let errors = self.errors();
            assert!(Instant::now() < end, "no progress: {before:?}, {:?}; {:?}", self.counts(), errors.last());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Why publishes were made again.
    pub fn errors(&self) -> Vec<String> {
        self.shared.errors.lock().clone()
    }

    /// Waits until a publish fails with these words.
    pub async fn fails(&self, words: &[&str]) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let errors = self.errors();
            if let Some(found) = errors.iter().find(|error| words.iter().all(|word| error.contains(word))) {
                return found.clone();
            }
            assert!(Instant::now() < end, "no {words:?} in {errors:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Stops, and fails when something that was acknowledged doesn't come.
    pub async fn ends_whole(self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        self.producer.await.unwrap();
        tokio::time::timeout(PATIENCE, self.consumer).await.expect("all that was accepted comes").unwrap();
        self.bus.close().await;
    }
}

async fn produce(bus: Arc<NatsBus>, shared: Arc<Shared>) {
    let mut next = 0;
    while !shared.stopped.load(Ordering::Relaxed) {
        let id = format!("e{next}");
        match bus.publish(&task(&id)).await {
            Ok(()) => {
                shared.accepted.lock().insert(id);
                next += 1;
            }
            // As an outbox does: again under the same id.
            Err(error) => {
                assert!(matches!(error, BusError::Unavailable { .. }), "{error}");
                shared.errors.lock().push(error.to_string());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn consume(bus: Arc<NatsBus>, shared: Arc<Shared>) {
    let all = || shared.accepted.lock().is_subset(&shared.taken.lock());
    while !shared.stopped.load(Ordering::Relaxed) || !all() {
        match bus.receive(8, WhenEmpty::Wait).await {
            Ok(deliveries) => {
                for delivery in deliveries {
                    shared.taken.lock().insert(delivery.id.clone().unwrap());
                    delivery.settle.ack().await;
                }
            }
            Err(error) => {
                assert!(matches!(error, BusError::Unavailable { .. }), "{error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}
