//! A queue that has external workers and outlives the process, over the embedded one; what goes out can be held up.

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use trellis::bus::embedded::EmbeddedBus;
use trellis::bus::{
    Alarms, Bus, BusError, Delivery, LiveFeed, LiveSubject, QueueWatch, Signal, UndecodedMessage, WhenEmpty,
};
use trellis::domain::ids::{JobId, Owner};
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::process::clock::Clock;
use trellis::store::BackendSetting;
use trellis::store::embedded::EmbeddedStore;

/// A queue over the embedded one.
pub struct LoadingQueue {
    inner: Arc<EmbeddedBus>,
    is_held: AtomicBool,
}

impl LoadingQueue {
    pub fn new(store: Arc<EmbeddedStore>, clock: Clock) -> Arc<Self> {
        let inner = Arc::new(EmbeddedBus::new(store, Duration::from_secs(2), clock).unwrap());
        Arc::new(Self { inner, is_held: AtomicBool::new(false) })
    }

    /// From now on nothing but wakes is published.
    pub fn hold(&self) {
        self.is_held.store(true, Ordering::SeqCst);
    }
}

#[async_trait]
impl QueueWatch for LoadingQueue {}

#[async_trait]
impl Bus for LoadingQueue {
    async fn receive(&self, max: usize, when_empty: WhenEmpty) -> Result<Vec<Delivery>, BusError> {
        self.inner.receive(max, when_empty).await
    }

    fn take_unreadable(&self) -> Vec<UndecodedMessage> {
        self.inner.take_unreadable()
    }

    async fn publish(&self, message: &BusMessage) -> Result<(), BusError> {
        let is_wake = matches!(message.to, MessageAddress::In { kind: InboundKind::Wake, .. });
        if self.is_held.load(Ordering::SeqCst) && !is_wake {
            return Err(BusError::Unavailable { bus: "held".into(), reason: "held".into() });
        }
        match message.to {
            MessageAddress::Job { .. } => Ok(()),
            MessageAddress::In { .. }
            | MessageAddress::Out { .. }
            | MessageAddress::Event { .. }
            | MessageAddress::Reply(_) => self.inner.publish(message).await,
        }
    }

    fn has_outside_listeners(&self, _to: &MessageAddress) -> bool {
        true
    }

    async fn signal(&self, to: &LiveSubject, body: Bytes) -> Result<(), BusError> {
        self.inner.signal(to, body).await
    }

    async fn listen(&self, from: &LiveSubject) -> Result<BoxStream<'static, Bytes>, BusError> {
        self.inner.listen(from).await
    }

    async fn job_end(&self, owner: &Owner, job: &JobId) -> Result<BoxFuture<'static, ()>, BusError> {
        self.inner.job_end(owner, job).await
    }

    async fn listen_control(&self) -> Result<BoxStream<'static, Signal>, BusError> {
        self.inner.listen_control().await
    }

    fn live_feed(&self) -> &dyn LiveFeed {
        self.inner.live_feed()
    }

    async fn in_transit(&self) -> Result<Vec<String>, BusError> {
        self.inner.in_transit().await
    }

    async fn settings(&self) -> Result<Vec<BackendSetting>, BusError> {
        self.inner.settings().await
    }

    fn alarms(&self) -> Option<&dyn Alarms> {
        self.inner.alarms()
    }
}
