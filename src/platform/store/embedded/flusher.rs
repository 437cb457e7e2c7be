//! The thread that makes groups durable while the writer applies the next one.

use super::head::StoreHead;
use super::health::Health;
use super::view::{Db, DurableState, StoreFault};
use super::writes::Writes;
use crate::store::StoreError;
use fjall::PersistMode;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

/// Sends a caller the outcome of its request, once it is known whether its group is durable.
pub(super) type AnswerSender = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Requests that become durable together.
#[derive(Default)]
pub(super) struct Group {
    /// The writes of the requests.
    pub(super) writes: Arc<Writes>,
    /// The callers' answers, sent when the group is durable.
    pub(super) answers: Vec<AnswerSender>,
}

/// The disk and the state that readers see.
struct FlushTarget {
    db: Db,
    store: Arc<str>,
    durable: Arc<RwLock<Arc<DurableState>>>,
    head: Mutex<StoreHead>,
    health: Arc<Health>,
}

/// The handle of the flusher thread, which has one group at a time.
pub(super) struct Flusher {
    disk: Arc<FlushTarget>,
    groups: Option<Sender<Group>>,
    landed: Receiver<()>,
    busy: Option<Arc<Writes>>,
    thread: Option<JoinHandle<()>>,
}

impl FlushTarget {
    fn flush(&self, writes: &Writes) -> Result<(), StoreError> {
        if let Some(error) = self.health.first_failure() {
            return Err(error);
        }
        self.write(writes).map_err(|fault| {
            let error = fault.into_store_error(&self.store);
            tracing::error!(%error, "the store can't be written; mend the disk and start again, nothing is lost");
            self.health.record_failure(error)
        })
    }

    /// Writes a group; readers see it only when it can't be lost any more.
    fn write(&self, writes: &Writes) -> Result<(), StoreFault> {
        if writes.is_empty() {
            return Ok(());
        }
        let mut head = self.head.lock();
        let mut batch = writes.batch(&self.db);
        head.add_group(&mut batch, &self.db);
        batch.commit()?;
        self.db.database.persist(PersistMode::SyncAll)?;
        head.write();
        self.db.fsyncs.fetch_add(1, Ordering::Relaxed);
        let now = Arc::new(DurableState::snapshot(&self.db));
        *self.durable.write() = now;
        Ok(())
    }
}

impl Flusher {
    /// Starts the thread, which calls `landed` after each group.
    pub(super) fn start(
        db: Db,
        store: Arc<str>,
        durable: Arc<RwLock<Arc<DurableState>>>,
        head: StoreHead,
        health: Arc<Health>,
        landed: impl Fn() + Send + 'static,
    ) -> std::io::Result<Self> {
        let (groups, received) = channel::<Group>();
        let (done, done_received) = channel();
        let disk = Arc::new(FlushTarget { db, store, durable, head: Mutex::new(head), health });
        let own = Arc::clone(&disk);
        let run = move || {
            while let Ok(group) = received.recv() {
                let outcome = own.flush(&group.writes);
                // Before the answers: callers that send the next request find the flusher free.
                let _ = done.send(());
                landed();
                for answer in group.answers {
                    answer(outcome.clone());
                }
            }
        };
        let thread = std::thread::Builder::new().name("trellis-flush".into()).spawn(run)?;
        Ok(Self { disk, groups: Some(groups), landed: done_received, busy: None, thread: Some(thread) })
    }

    /// Makes a group durable on this thread, while no other work waits. The flusher must be free.
    pub(super) fn flush_here(&self, group: Group) {
        let outcome = self.disk.flush(&group.writes);
        for answer in group.answers {
            answer(outcome.clone());
        }
    }

    /// Returns the writes that the flusher is writing; they must be read before the database.
    pub(super) fn current_writes(&self) -> Option<&Writes> {
        self.busy.as_deref()
    }

    /// Whether the flusher can take a group; with `wait`, after the current one is written.
    pub(super) fn poll_idle(&mut self, wait: bool) -> bool {
        if self.busy.is_some() {
            let landed = if wait { self.landed.recv().map_err(Into::into) } else { self.landed.try_recv() };
            // A flusher that stopped isn't waited for: the next send to it fails.
            if landed != Err(TryRecvError::Empty) {
                self.busy = None;
            }
        }
        self.busy.is_none()
    }

    /// Sends a group to the flusher, which must be free.
    pub(super) fn send(&mut self, group: Group) {
        self.busy = Some(Arc::clone(&group.writes));
        // A flusher that stopped drops the answers: their callers get the error that the writer has stopped.
        let _ = self.groups.as_ref().expect("taken only when dropped").send(group);
    }
}

impl Drop for Flusher {
    /// Waits until everything is durable and answered.
    fn drop(&mut self) {
        self.groups = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
