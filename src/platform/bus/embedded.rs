//! Bus over the embedded store's own queue.
//!
//! Messages to workers are in the store's keyspace `queue` until they are acknowledged, written by the store's writer
//! with the same fsync as everything else; wakes are in memory only, since the store knows what is due. Which messages
//! are ready and which are delivered is in memory: after a restart all stored ones are ready again, in order.
//! Completions and replies go only to listeners of this process: there are no others, and later requests read the job.

mod job_ends;
mod live_pieces;
mod queue;
mod queued_message;
mod topics;

use self::job_ends::JobEnds;
use self::live_pieces::LivePieces;
use self::queue::MessageQueue;
use self::queued_message::{QueuedHead, QueuedMessage};
use self::topics::TopicListeners;
use super::{
    Acknowledge, Alarms, Backlog, Bus, BusError, BusMessage, Delivery, InboundKind, LiveFeed, LiveSubject,
    MessageAddress, QueueWatch, Signal, WaitingMessage, WhenEmpty,
};
use crate::domain::ids::{AgentId, JobId, Owner};
use crate::process::clock::Clock;
use crate::store::embedded::EmbeddedStore;
use crate::store::embedded::layout::{Space, prefix_end, split_number};
use crate::store::embedded::tx::Tx;
use crate::store::embedded::view::{DurableState, StoreFault, View};
use crate::store::{BackendSetting, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use serde::Serialize;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Longest wait of [`Bus::receive`] for a first message.
const POLL: Duration = Duration::from_secs(2);

/// Messages that a listener may be behind before it loses the oldest.
const LISTENER_BEHIND: usize = 1024;

fn key(sequence: u64) -> Vec<u8> {
    let mut key = vec![b'q'];
    key.extend_from_slice(&sequence.to_be_bytes());
    key
}

struct EmbeddedQueue {
    store: Arc<EmbeddedStore>,
    ack_wait: Duration,
    clock: Clock,
    queue: Mutex<MessageQueue>,
    /// Notified when a message becomes ready, or will at another time than expected.
    changed: Notify,
    live: TopicListeners<LiveSubject, Bytes>,
    control: TopicListeners<(), Signal>,
    pieces: LivePieces,
    ends: JobEnds,
    /// Completions for listeners, each as JSON.
    out: TopicListeners<(), Bytes>,
}

/// The queue of one process, over its embedded store.
#[derive(Clone)]
pub struct EmbeddedBus(Arc<EmbeddedQueue>);

impl EmbeddedBus {
    /// Returns the queue in `store`. A delivery that isn't settled within `ack_wait` is delivered again. There must be
    /// one per store: two would each deliver everything. `clock` gives publication times and ends ack waits.
    pub fn new(store: Arc<EmbeddedStore>, ack_wait: Duration, clock: Clock) -> Result<Self, BusError> {
        Self::with_limit(store, ack_wait, clock, u64::MAX)
    }

    /// [`EmbeddedBus::new`] with a queue of at most `max_bytes`: a message without room is refused, and nothing of it
    /// stored.
    pub fn with_limit(
        store: Arc<EmbeddedStore>,
        ack_wait: Duration,
        clock: Clock,
        max_bytes: u64,
    ) -> Result<Self, BusError> {
        let queue = store.query_now(|state| load(state, max_bytes)).map_err(bus_error)?;
        let started = clock.now();
        Ok(Self(Arc::new(EmbeddedQueue {
            store,
            ack_wait,
            clock,
            queue: Mutex::new(queue),
            changed: Notify::new(),
            live: TopicListeners::new(LISTENER_BEHIND),
            control: TopicListeners::new(LISTENER_BEHIND),
            pieces: LivePieces::starting_at(started),
            ends: JobEnds::default(),
            out: TopicListeners::new(LISTENER_BEHIND),
        })))
    }

    /// Listens to completions from now on, each as the JSON of a [`BusMessage`].
    pub fn listen_outbound(&self) -> BoxStream<'static, Bytes> {
        self.0.out.listen(&())
    }
}

fn load(state: &DurableState, max_bytes: u64) -> Result<MessageQueue, StoreFault> {
    let mut queue = MessageQueue::with_limit(max_bytes);
    state.walk(Space::Queue, b"q", &prefix_end(b"q"), &mut |key, value| {
        let (sequence, _) =
            split_number(&key[1..]).ok_or_else(|| StoreFault::Record("key of a queued message".into()))?;
        queue.load(sequence, value.len() as u64);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(queue)
}

fn bus_error(e: StoreError) -> BusError {
    match e {
        StoreError::Unavailable { store, reason } | StoreError::Corrupt { store, reason, .. } => {
            BusError::Unavailable { bus: store, reason }
        }
        StoreError::Full { store, reason } => BusError::Refused { bus: store, reason },
        error @ StoreError::Contended { .. } => {
            BusError::Unavailable { bus: "embedded".into(), reason: error.to_string() }
        }
        error @ (StoreError::Over(_) | StoreError::TenantFull(_) | StoreError::Oversized(_)) => {
            BusError::Refused { bus: "embedded".into(), reason: error.to_string() }
        }
    }
}

fn json(value: &impl Serialize) -> Result<Bytes, StoreFault> {
    serde_json::to_vec(value).map(Bytes::from).map_err(|e| StoreFault::Record(e.to_string()))
}

impl EmbeddedQueue {
    /// Sends a message to listeners of this process; returns owner, agent and kind of a message for a worker instead.
    fn notify_listeners(&self, message: &BusMessage) -> Result<Option<(Owner, AgentId, InboundKind)>, PublishError> {
        match &message.to {
            MessageAddress::In { owner, agent, kind } => return Ok(Some((owner.clone(), agent.clone(), *kind))),
            MessageAddress::Out { owner, job, .. } => {
                if let Ok(job) = JobId::new(job) {
                    self.ends.announce(owner, &job);
                }
                self.out.publish_with(&(), || json(message))?;
            }
            // Nobody outside this process can listen.
            MessageAddress::Event { .. } => {}
            MessageAddress::Reply(subject) => {
                self.live.publish_with(&LiveSubject::Reply(subject.clone()), || json(&message.body))?;
            }
            MessageAddress::Job { .. } => return Err(PublishError::NoWorkers),
        }
        Ok(None)
    }

    async fn publish(self: Arc<Self>, message: &BusMessage) -> Result<(), PublishError> {
        let Some((owner, agent, kind)) = self.notify_listeners(message)? else { return Ok(()) };
        let (id, published, trace) = (message.id.clone(), self.clock.now(), message.trace);
        let head = QueuedHead { owner, agent, kind, id, published, trace };
        let queued = QueuedMessage { head, body: json(&message.body)? };
        if kind == InboundKind::Wake {
            self.queue.lock().add_wake(queued);
            self.changed.notify_one();
            return Ok(());
        }
        // In a task of its own: a caller that drops the future must not leave a stored message out of the queue.
        let enqueued = tokio::spawn(async move { self.enqueue(queued).await }).await;
        enqueued.unwrap_or_else(|gone| Err(PublishError::Gone(gone)))
    }

    async fn enqueue(&self, queued: QueuedMessage) -> Result<(), PublishError> {
        let value = queued.encode()?;
        let bytes = value.len() as u64;
        let sequence = self.queue.lock().reserve(bytes)?;
        if let Err(error) = self.write(move |tx| tx.put(Space::Queue, key(sequence), value)).await {
            self.queue.lock().release(bytes);
            return Err(error.into());
        }
        self.queue.lock().add(sequence, bytes);
        self.changed.notify_one();
        Ok(())
    }

    async fn write(&self, change: impl FnOnce(&mut Tx<'_>) + Send + 'static) -> Result<(), StoreError> {
        self.store
            .call(move |tx| {
                change(tx);
                Ok(())
            })
            .await
    }

    fn take(self: &Arc<Self>, max: usize) -> Result<Vec<Delivery>, StoreError> {
        let taken = self.queue.lock().take(self.clock.steady(), max, self.ack_wait);
        let read = |state: &DurableState| {
            let (mut found, mut damaged) = (Vec::with_capacity(taken.len()), Vec::new());
            for (sequence, delivered, wake) in taken {
                let queued = match wake {
                    Some(wake) => Some(Ok(wake)),
                    None => state.get(Space::Queue, &key(sequence))?.map(|stored| QueuedMessage::decode(&stored)),
                };
                match queued {
                    Some(Ok(queued)) => found.push((sequence, delivered, queued)),
                    Some(Err(error)) => damaged.push((sequence, error)),
                    None => {}
                }
            }
            Ok((found, damaged))
        };
        let (found, damaged) = self.store.query_now(read)?;
        for (sequence, error) in damaged {
            // It must not block the others of its batch, again and again.
            tracing::error!(sequence, %error, "a queued message can't be read; it is kept in the store and not delivered");
            self.queue.lock().remove(sequence);
        }
        Ok(found.into_iter().map(|(sequence, delivered, queued)| self.delivery(sequence, delivered, queued)).collect())
    }

    fn delivery(self: &Arc<Self>, sequence: u64, delivered: u64, queued: QueuedMessage) -> Delivery {
        let QueuedMessage { head: QueuedHead { owner, agent, kind, id, published, trace }, body } = queued;
        let durable = kind != InboundKind::Wake;
        let settle = Arc::new(EmbeddedAck { bus: self.clone(), sequence, delivered, durable });
        // Only this process publishes here, and seals what it publishes for others.
        let authorization = None;
        Delivery { owner, agent, kind, id, authorization, trace, body, sequence, delivered, published, settle }
    }
}

/// A failure of the store or the queue while publishing.
#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Record(#[from] StoreFault),
    #[error(transparent)]
    Full(#[from] queue::QueueFull),
    #[error(transparent)]
    Gone(tokio::task::JoinError),
    #[error(
        "the embedded queue is for this process alone; run on NATS for external workers: `bus.url = \"nats://…\"`, `store.url = \"redis://…\"`"
    )]
    NoWorkers,
}

struct EmbeddedAck {
    bus: Arc<EmbeddedQueue>,
    sequence: u64,
    delivered: u64,
    durable: bool,
}

impl EmbeddedAck {
    fn redeliver_at(&self, at: Duration) {
        self.bus.queue.lock().delay(self.sequence, self.delivered, at);
        self.bus.changed.notify_one();
    }
}

#[async_trait]
impl Acknowledge for EmbeddedAck {
    async fn ack(&self) {
        if self.durable {
            let sequence = self.sequence;
            let forget = move |tx: &mut Tx<'_>| {
                tx.remove(Space::Queue, key(sequence));
                Ok(())
            };
            // Until the removal is durable, a kill delivers the message again, and the store knows it.
            if let Err(e) = self.bus.store.call_deferred(forget).await {
                tracing::warn!(error = %e, sequence, "a message was not acknowledged; it will come again");
                return;
            }
        }
        self.bus.queue.lock().remove(self.sequence);
    }

    async fn nak(&self, delay: Duration) {
        self.redeliver_at(self.bus.clock.steady() + delay);
    }

    async fn progress(&self) {
        self.redeliver_at(self.bus.clock.steady() + self.bus.ack_wait);
    }
}

impl EmbeddedBus {
    /// Returns all stored messages without their bodies, in order.
    async fn heads(&self) -> Result<Vec<QueuedHead>, BusError> {
        let read = |state: &DurableState| {
            let mut heads = Vec::new();
            state.walk(Space::Queue, b"q", &prefix_end(b"q"), &mut |_, value| {
                // A damaged message is never delivered, so it isn't counted.
                heads.extend(QueuedMessage::decode(value).ok().map(|queued| queued.head));
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(heads)
        };
        self.0.store.query(read).await.map_err(bus_error)
    }
}

#[async_trait]
impl QueueWatch for EmbeddedBus {
    async fn backlog(&self) -> Result<Backlog, BusError> {
        let mut backlog = Backlog::default();
        for head in self.heads().await? {
            backlog.oldest = backlog.oldest.into_iter().chain(Some(head.published)).min();
            backlog.count(Some(head.owner), Some(head.kind), 1);
        }
        Ok(backlog)
    }

    async fn waiting_messages(&self, owner: &Owner, limit: usize) -> Result<Vec<WaitingMessage>, BusError> {
        let own = self.heads().await?.into_iter().filter(|head| head.owner == *owner);
        let waiting =
            own.map(|QueuedHead { id, agent, kind, published, .. }| WaitingMessage { id, agent, kind, published });
        Ok(waiting.take(limit).collect())
    }
}

#[async_trait]
impl Bus for EmbeddedBus {
    async fn receive(&self, max: usize, when_empty: WhenEmpty) -> Result<Vec<Delivery>, BusError> {
        let mut end = std::pin::pin!(tokio::time::sleep(POLL));
        loop {
            let taken = self.0.take(max).map_err(bus_error)?;
            if !taken.is_empty() || max == 0 || when_empty == WhenEmpty::Return || end.is_elapsed() {
                if taken.len() == max {
                    // There may be more: another receiver should look.
                    self.0.changed.notify_one();
                }
                return Ok(taken);
            }
            let next = self.0.queue.lock().delayed.first().map_or(Duration::MAX, |(at, _)| *at);
            tokio::select! {
                biased;
                () = self.0.changed.notified() => {}
                () = self.0.clock.wait_until(next) => {}
                () = &mut end => {}
            }
        }
    }

    async fn publish(&self, message: &BusMessage) -> Result<(), BusError> {
        let name = || self.0.store.name().to_owned();
        match Arc::clone(&self.0).publish(message).await {
            Ok(()) => Ok(()),
            Err(PublishError::Store(e)) => Err(bus_error(e)),
            Err(e @ PublishError::NoWorkers) => Err(BusError::NoStream { bus: name(), reason: e.to_string() }),
            Err(e @ (PublishError::Record(_) | PublishError::Full(_))) => {
                Err(BusError::Refused { bus: name(), reason: e.to_string() })
            }
            Err(e @ PublishError::Gone(_)) => Err(BusError::Unavailable { bus: name(), reason: e.to_string() }),
        }
    }

    /// Completions and replies have no listeners outside this process.
    fn has_outside_listeners(&self, to: &MessageAddress) -> bool {
        match to {
            MessageAddress::In { .. } | MessageAddress::Job { .. } => true,
            MessageAddress::Out { .. } | MessageAddress::Event { .. } | MessageAddress::Reply(_) => false,
        }
    }

    async fn signal(&self, to: &LiveSubject, body: Bytes) -> Result<(), BusError> {
        if let LiveSubject::Job(job) = to {
            self.0.pieces.send(job, &body);
        }
        if let LiveSubject::Control(owner) = to {
            self.0.control.publish(&(), Signal { owner: owner.clone(), body: body.clone() });
        }
        self.0.live.publish(to, body);
        Ok(())
    }

    async fn listen(&self, from: &LiveSubject) -> Result<BoxStream<'static, Bytes>, BusError> {
        Ok(self.0.live.listen(from))
    }

    async fn job_end(&self, owner: &Owner, job: &JobId) -> Result<BoxFuture<'static, ()>, BusError> {
        Ok(self.0.ends.wait(owner, job))
    }

    async fn listen_control(&self) -> Result<BoxStream<'static, Signal>, BusError> {
        Ok(self.0.control.listen(&()))
    }

    fn live_feed(&self) -> &dyn LiveFeed {
        &self.0.pieces
    }

    async fn in_transit(&self) -> Result<Vec<String>, BusError> {
        Ok(self.heads().await?.into_iter().filter_map(|head| head.id).collect())
    }

    async fn settings(&self) -> Result<Vec<BackendSetting>, BusError> {
        let setting = |name: &str, value: String| BackendSetting { name: name.to_owned(), value, problem: None };
        let (size, problem) = self.0.queue.lock().size();
        Ok(vec![
            setting("bus", format!("queue of {}", self.0.store.name())),
            BackendSetting { name: "queue size".to_owned(), value: size, problem },
            setting("embedded ack wait", format!("{}ms", self.0.ack_wait.as_millis())),
        ])
    }

    /// The one worker reads from the store when the next timer is due.
    fn alarms(&self) -> Option<&dyn Alarms> {
        None
    }
}
