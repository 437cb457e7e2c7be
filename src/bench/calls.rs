//! Counts calls of a store and of a bus during a measurement, by a layer around each.

use crate::bus::{
    Acknowledge, Alarm, Alarms, Bus, BusError, Delivery, LiveFeed, LiveSubject, RingingAlarm, Signal, UndecodedMessage,
    WhenEmpty, Witness,
};
use crate::domain::ids::{JobId, Owner};
use crate::domain::message::{BusMessage, MessageAddress};
use crate::domain::timer::TimerId;
use crate::store::{BackendSetting, Layer, METHODS, Store, StoreError, StoreMethod};
use crate::venue::Venue;
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Methods of the bus that are counted, those of acknowledgements and alarms included.
const BUS_CALLS: [&str; 14] = [
    "receive",
    "publish",
    "signal",
    "listen",
    "ended",
    "control",
    "follow",
    "in_transit",
    "settings",
    "ack",
    "nak",
    "progress",
    "alarm_set",
    "alarm_cleared",
];

/// Number of calls by method.
pub(super) type CallsByMethod = BTreeMap<&'static str, u64>;

/// Counts of calls since the layers were added.
pub(super) struct CallCounts {
    store: Vec<AtomicU64>,
    bus: [AtomicU64; BUS_CALLS.len()],
}

impl CallCounts {
    /// Adds a counting layer to the store and the bus of a venue that nothing else uses yet.
    pub(super) fn count_calls_of(venue: &mut Venue) -> Arc<Self> {
        let counts = Arc::new(Self {
            store: METHODS.iter().map(|_| AtomicU64::new(0)).collect(),
            bus: std::array::from_fn(|_| AtomicU64::new(0)),
        });
        venue.store = Arc::new(CountedStore { inner: Arc::clone(&venue.store), counts: Arc::clone(&counts) });
        venue.bus = Arc::new(CountedBus { inner: Arc::clone(&venue.bus), counts: Arc::clone(&counts) });
        counts
    }

    /// Returns the calls of the store so far.
    pub(super) fn store(&self) -> CallsByMethod {
        let counted = METHODS.iter().zip(&self.store);
        // The fill of the store is mostly known without a call.
        let counted = counted.filter(|(method, _)| method.name != "fill");
        counted.map(|(method, count)| (method.name, count.load(Ordering::Relaxed))).collect()
    }

    /// Returns the calls of the bus so far.
    pub(super) fn bus(&self) -> CallsByMethod {
        BUS_CALLS.iter().zip(&self.bus).map(|(name, count)| (*name, count.load(Ordering::Relaxed))).collect()
    }

    fn bus_call(&self, name: &str) {
        if let Some(at) = BUS_CALLS.iter().position(|known| *known == name) {
            self.bus[at].fetch_add(1, Ordering::Relaxed);
        }
    }
}

struct CountedStore {
    inner: Arc<dyn Store>,
    counts: Arc<CallCounts>,
}

impl Layer for CountedStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn around<T: Send, F: Future<Output = Result<T, StoreError>> + Send>(
        &self,
        method: StoreMethod,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T, StoreError> {
        if let Some(at) = METHODS.iter().position(|known| *known == method) {
            self.counts.store[at].fetch_add(1, Ordering::Relaxed);
        }
        call().await
    }
}

struct CountedBus {
    inner: Arc<dyn Bus>,
    counts: Arc<CallCounts>,
}

struct CountedSettle {
    inner: Arc<dyn Acknowledge>,
    counts: Arc<CallCounts>,
}

#[async_trait]
impl Acknowledge for CountedSettle {
    async fn ack(&self) {
        self.counts.bus_call("ack");
        self.inner.ack().await;
    }

    async fn nak(&self, delay: Duration) {
        self.counts.bus_call("nak");
        self.inner.nak(delay).await;
    }

    async fn progress(&self) {
        self.counts.bus_call("progress");
        self.inner.progress().await;
    }
}

impl crate::bus::QueueWatch for CountedBus {}

#[async_trait]
impl Bus for CountedBus {
    async fn receive(&self, max: usize, when_empty: WhenEmpty) -> Result<Vec<Delivery>, BusError> {
        self.counts.bus_call("receive");
        let mut taken = self.inner.receive(max, when_empty).await?;
        for delivery in &mut taken {
            let (inner, counts) = (Arc::clone(&delivery.settle), Arc::clone(&self.counts));
            delivery.settle = Arc::new(CountedSettle { inner, counts });
        }
        Ok(taken)
    }

    fn take_unreadable(&self) -> Vec<UndecodedMessage> {
        self.inner.take_unreadable()
    }

    async fn publish(&self, message: &BusMessage) -> Result<(), BusError> {
        self.counts.bus_call("publish");
        self.inner.publish(message).await
    }

    fn has_outside_listeners(&self, to: &MessageAddress) -> bool {
        self.inner.has_outside_listeners(to)
    }

    async fn signal(&self, to: &LiveSubject, body: Bytes) -> Result<(), BusError> {
        self.counts.bus_call("signal");
        self.inner.signal(to, body).await
    }

    async fn listen(&self, from: &LiveSubject) -> Result<BoxStream<'static, Bytes>, BusError> {
        self.counts.bus_call("listen");
        self.inner.listen(from).await
    }

    async fn job_end(&self, owner: &Owner, job: &JobId) -> Result<BoxFuture<'static, ()>, BusError> {
        self.counts.bus_call("ended");
        self.inner.job_end(owner, job).await
    }

    async fn listen_control(&self) -> Result<BoxStream<'static, Signal>, BusError> {
        self.counts.bus_call("control");
        self.inner.listen_control().await
    }

    fn live_feed(&self) -> &dyn LiveFeed {
        self.counts.bus_call("live");
        self.inner.live_feed()
    }

    async fn in_transit(&self) -> Result<Vec<String>, BusError> {
        self.counts.bus_call("in_transit");
        self.inner.in_transit().await
    }

    async fn settings(&self) -> Result<Vec<BackendSetting>, BusError> {
        self.counts.bus_call("settings");
        self.inner.settings().await
    }

    fn witness(&self) -> Option<&dyn Witness> {
        self.inner.witness()
    }

    fn alarms(&self) -> Option<&dyn Alarms> {
        self.inner.alarms().map(|_| self as &dyn Alarms)
    }
}

impl CountedBus {
    fn inner_alarms(&self) -> &dyn Alarms {
        self.inner.alarms().expect("it is asked for its alarms only where it has some")
    }
}

#[async_trait]
impl Alarms for CountedBus {
    async fn set(&self, alarm: &Alarm) -> Result<(), BusError> {
        self.counts.bus_call("alarm_set");
        self.inner_alarms().set(alarm).await
    }

    async fn clear(&self, owner: &Owner, timer: &TimerId) -> Result<(), BusError> {
        self.counts.bus_call("alarm_cleared");
        self.inner_alarms().clear(owner, timer).await
    }

    async fn listen_ringing(&self) -> Result<BoxStream<'static, RingingAlarm>, BusError> {
        let (stream, counts) = (self.inner_alarms().listen_ringing().await?, Arc::clone(&self.counts));
        let counted = stream.map(move |RingingAlarm { alarm, settle }| {
            let settle = Arc::new(CountedSettle { inner: settle, counts: Arc::clone(&counts) });
            RingingAlarm { alarm, settle }
        });
        Ok(counted.boxed())
    }
}
