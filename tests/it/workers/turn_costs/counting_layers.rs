//! A store and a bus that count what they are asked for, and the bytes that they are given to keep or to send.

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use trellis::bus::{
    Acknowledge, Alarm, Alarms, Bus, BusError, Delivery, LiveFeed, LiveSubject, RingingAlarm, Signal, UndecodedMessage,
    WhenEmpty, Witness,
};
use trellis::domain::ids::{JobId, Owner};
use trellis::domain::message::{BusMessage, MessageAddress};
use trellis::domain::quota::Quota;
use trellis::domain::time::Millis;
use trellis::domain::timer::TimerId;
use trellis::store::{
    AdmissionOutcome, Admit, BackendSetting, Checkpoint, Commit, CommitOutcome, DocEffect, DocWrite, JobFinish, Layer,
    Lease, LeaseCheck, METHODS, NewJob, OutboxEntry, Store, StoreError, StoreMethod, WriteOutcome,
};

/// Bytes are told in steps of so many: the digits of a time don't show.
const STEP: usize = 256;

/// What an agent is sent comes so late: the turn that asks it is over by then, however slow the machine. What that turn
/// sees of the job depends on whether somebody has taken it.
const LATE: (&str, Duration) = ("child", Duration::from_secs(1));

/// What was asked for.
#[derive(Debug, Default, PartialEq)]
pub struct Tally {
    calls: BTreeMap<&'static str, u32>,
    /// As they were handed over.
    pub bytes: usize,
}

impl Tally {
    fn add(&mut self, call: &'static str, bytes: usize) {
        *self.calls.entry(call).or_default() += 1;
        self.bytes += bytes;
    }

    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, times) in &self.calls {
            write!(f, "{name} {times}, ")?;
        }
        write!(f, "{} bytes", self.bytes.next_multiple_of(STEP))
    }
}

/// Counts the calls of a store, and keys and values that are written.
pub struct CountedStore {
    inner: Arc<dyn Store>,
    tally: Mutex<Tally>,
}

impl CountedStore {
    pub fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { inner, tally: Mutex::default() })
    }

    /// What was asked for since the last look.
    pub fn take(&self) -> Tally {
        std::mem::take(&mut self.tally.lock())
    }

    async fn given<T: Send, F: Future<Output = Result<T, StoreError>> + Send>(
        &self,
        name: &str,
        bytes: usize,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T, StoreError> {
        self.tally.lock().bytes += bytes;
        self.around(*METHODS.iter().find(|method| method.name == name).unwrap(), call).await
    }
}

fn documents(writes: &[DocWrite]) -> usize {
    let one = |write: &DocWrite| match &write.change {
        DocEffect::Put(value) => write.key.len() + value.len(),
        DocEffect::Delete => write.key.len(),
        DocEffect::Check => 0,
    };
    writes.iter().map(one).sum()
}

fn messages(outbox: &[OutboxEntry]) -> usize {
    outbox.iter().map(|entry| entry.id.len() + entry.message.len()).sum()
}

fn results<'f>(finish: impl IntoIterator<Item = &'f JobFinish>) -> usize {
    finish.into_iter().map(|finish| finish.result.len()).sum()
}

fn heads<'j>(open: impl IntoIterator<Item = &'j NewJob>) -> usize {
    open.into_iter().map(|job| job.head.len()).sum()
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
        // How full the store is, is known without asking it.
        if method.name != "fill" {
            self.tally.lock().add(method.name, 0);
        }
        call().await
    }

    async fn admit(&self, now: Millis, request: &Admit) -> Result<AdmissionOutcome, StoreError> {
        let event = request.event.as_ref();
        let bytes = event.map_or(0, |event| {
            event.body.len() + heads(&event.open) + results(&event.finish) + messages(&event.outbox)
        });
        self.given("admit", bytes, || self.inner.admit(now, request)).await
    }

    async fn checkpoint(&self, now: Millis, lease: &Lease, write: &Checkpoint) -> Result<LeaseCheck, StoreError> {
        let calls: usize = write.calls.iter().map(|(_, call)| call.len()).sum();
        let reply = write.reply.as_ref().map_or(0, Bytes::len);
        let bytes = reply + calls + heads(&write.open) + messages(&write.outbox);
        self.given("checkpoint", bytes, || self.inner.checkpoint(now, lease, write)).await
    }

    async fn commit(&self, now: Millis, lease: &Lease, commit: &Commit) -> Result<CommitOutcome, StoreError> {
        let written = documents(&commit.writes) + commit.state.len();
        let bytes = written + results(&commit.finish) + messages(&commit.outbox);
        self.given("commit", bytes, || self.inner.commit(now, lease, commit)).await
    }

    async fn write(&self, now: Millis, owner: &Owner, writes: &[DocWrite]) -> Result<WriteOutcome, StoreError> {
        self.given("write", documents(writes), || self.inner.write(now, owner, writes)).await
    }

    async fn write_within(
        &self,
        now: Millis,
        owner: &Owner,
        writes: &[DocWrite],
        quota: &Quota,
    ) -> Result<WriteOutcome, StoreError> {
        self.given("write_within", documents(writes), || self.inner.write_within(now, owner, writes, quota)).await
    }
}

/// Counts the calls of a bus, and the bodies that are sent. Left out is what depends on time and not on what is done:
/// `receive` and what came with it, `progress` of a delivery, and what a worker listens to from its start.
pub struct CountedBus {
    inner: Arc<dyn Bus>,
    count: Arc<BusCount>,
}

#[derive(Default)]
struct BusCount {
    tally: Mutex<Tally>,
    /// Messages to workers, and alarms that ring, that nobody has acknowledged.
    open: AtomicI64,
}

impl BusCount {
    fn add(&self, call: &'static str, bytes: usize) {
        self.tally.lock().add(call, bytes);
    }

    fn open(&self) {
        self.open.fetch_add(1, Ordering::SeqCst);
    }
}

impl CountedBus {
    pub fn new(inner: Arc<dyn Bus>) -> Arc<Self> {
        Arc::new(Self { inner, count: Arc::default() })
    }

    /// What was asked for since the last look.
    pub fn take(&self) -> Tally {
        std::mem::take(&mut self.count.tally.lock())
    }

    /// Calls so far.
    pub fn calls(&self) -> u32 {
        self.count.tally.lock().calls.values().sum()
    }

    /// Everything that was sent to a worker is acknowledged.
    pub fn is_settled(&self) -> bool {
        self.count.open.load(Ordering::SeqCst) == 0
    }

    fn counted(&self, settle: Arc<dyn Acknowledge>, names: [&'static str; 2]) -> Arc<dyn Acknowledge> {
        Arc::new(CountedSettle { inner: settle, count: Arc::clone(&self.count), names })
    }
}

struct CountedSettle {
    inner: Arc<dyn Acknowledge>,
    count: Arc<BusCount>,
    /// Of an acknowledgement, and of a refusal.
    names: [&'static str; 2],
}

#[async_trait]
impl Acknowledge for CountedSettle {
    async fn ack(&self) {
        self.count.add(self.names[0], 0);
        self.inner.ack().await;
        self.count.open.fetch_sub(1, Ordering::SeqCst);
    }

    async fn nak(&self, delay: Duration) {
        self.count.add(self.names[1], 0);
        self.inner.nak(delay).await;
    }

    async fn progress(&self) {
        self.inner.progress().await;
    }
}

impl trellis::bus::QueueWatch for CountedBus {}

#[async_trait]
impl Bus for CountedBus {
    async fn receive(&self, max: usize, when_empty: WhenEmpty) -> Result<Vec<Delivery>, BusError> {
        let mut taken = self.inner.receive(max, when_empty).await?;
        if taken.iter().any(|delivery| delivery.agent.as_str() == LATE.0) {
            tokio::time::sleep(LATE.1).await;
        }
        for delivery in &mut taken {
            delivery.settle = self.counted(Arc::clone(&delivery.settle), ["ack", "nak"]);
        }
        Ok(taken)
    }

    fn take_unreadable(&self) -> Vec<UndecodedMessage> {
        self.inner.take_unreadable()
    }

    async fn publish(&self, message: &BusMessage) -> Result<(), BusError> {
        if matches!(message.to, MessageAddress::In { .. }) {
            self.count.open();
        }
        self.count.add("publish", serde_json::to_vec(&message.body).unwrap().len());
        self.inner.publish(message).await
    }

    fn has_outside_listeners(&self, to: &MessageAddress) -> bool {
        self.inner.has_outside_listeners(to)
    }

    async fn signal(&self, to: &LiveSubject, body: Bytes) -> Result<(), BusError> {
        self.count.add("signal", body.len());
        self.inner.signal(to, body).await
    }

    async fn listen(&self, from: &LiveSubject) -> Result<BoxStream<'static, Bytes>, BusError> {
        self.count.add("listen", 0);
        self.inner.listen(from).await
    }

    async fn job_end(&self, owner: &Owner, job: &JobId) -> Result<BoxFuture<'static, ()>, BusError> {
        self.count.add("ended", 0);
        self.inner.job_end(owner, job).await
    }

    async fn listen_control(&self) -> Result<BoxStream<'static, Signal>, BusError> {
        self.inner.listen_control().await
    }

    fn live_feed(&self) -> &dyn LiveFeed {
        self.count.add("live", 0);
        self.inner.live_feed()
    }

    async fn in_transit(&self) -> Result<Vec<String>, BusError> {
        self.count.add("in_transit", 0);
        self.inner.in_transit().await
    }

    async fn settings(&self) -> Result<Vec<BackendSetting>, BusError> {
        self.count.add("settings", 0);
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
        self.inner.alarms().unwrap()
    }
}

#[async_trait]
impl Alarms for CountedBus {
    async fn set(&self, alarm: &Alarm) -> Result<(), BusError> {
        self.count.add("alarm set", 0);
        self.inner_alarms().set(alarm).await
    }

    async fn clear(&self, owner: &Owner, timer: &TimerId) -> Result<(), BusError> {
        self.count.add("alarm cleared", 0);
        self.inner_alarms().clear(owner, timer).await
    }

    async fn listen_ringing(&self) -> Result<BoxStream<'static, RingingAlarm>, BusError> {
        let (stream, count) = (self.inner_alarms().listen_ringing().await?, Arc::clone(&self.count));
        let counted = stream.map(move |RingingAlarm { alarm, settle }| {
            count.open();
            let names = ["alarm ack", "alarm nak"];
            RingingAlarm { alarm, settle: Arc::new(CountedSettle { inner: settle, count: Arc::clone(&count), names }) }
        });
        Ok(counted.boxed())
    }
}
