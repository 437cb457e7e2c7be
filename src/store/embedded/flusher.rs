//! The thread that makes groups durable, while the writer applies the next one.

use super::head::Head;
use super::health::Health;
use super::tx::{Db, Durable, Fault};
use super::writes::Writes;
use crate::store::StoreError;
use fjall::PersistMode;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

/// Tells a caller the outcome of its request, once it is known whether its group is durable.
pub(super) type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Requests that become durable together.
#[derive(Default)]
pub(super) struct Group {
    /// What they wrote.
    pub(super) writes: Arc<Writes>,
    /// Who waits for it.
    pub(super) answers: Vec<Answer>,
}

/// The disk, with the answers that depend on it.
struct Disk {
    db: Db,
    store: Arc<str>,
    durable: Arc<RwLock<Arc<Durable>>>,
    head: Mutex<Head>,
    health: Arc<Health>,
}

/// The way to the flusher; it has one group at a time.
pub(super) struct Flusher {
    disk: Arc<Disk>,
    groups: Option<Sender<Group>>,
    landed: Receiver<()>,
    busy: Option<Arc<Writes>>,
    thread: Option<JoinHandle<()>>,
}

impl Disk {
    fn flush(&self, writes: &Writes) -> Result<(), StoreError> {
        if let Some(error) = self.health.broken() {
            return Err(error);
        }
        self.write(writes).map_err(|fault| {
            let error = fault.at(&self.store);
            tracing::error!(%error, "the store can't be written; mend the disk and start again, nothing is lost");
            self.health.fail(error)
        })
    }

    /// Readers see a group only when it can't be lost any more.
    fn write(&self, writes: &Writes) -> Result<(), Fault> {
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
        let now = Arc::new(Durable::of(&self.db));
        *self.durable.write() = now;
        Ok(())
    }
}

impl Flusher {
    /// Starts it. `landed` is called after each group.
    pub(super) fn start(
        db: Db,
        store: Arc<str>,
        durable: Arc<RwLock<Arc<Durable>>>,
        (head, health): (Head, Arc<Health>),
        landed: impl Fn() + Send + 'static,
    ) -> std::io::Result<Self> {
        let (groups, received) = channel::<Group>();
        let (done, done_received) = channel();
        let disk = Arc::new(Disk { db, store, durable, head: Mutex::new(head), health });
        let own = Arc::clone(&disk);
        let run = move || {
            while let Ok(group) = received.recv() {
                let outcome = own.flush(&group.writes);
                // Before the answers: what callers send next finds the flusher free.
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

    /// Makes a group durable on this very thread: nobody else has anything to do meanwhile. It must
    /// be free.
    pub(super) fn flush_here(&self, group: Group) {
        let outcome = self.disk.flush(&group.writes);
        for answer in group.answers {
            answer(outcome.clone());
        }
    }

    /// What it is writing: to be read before the database.
    pub(super) fn writing(&self) -> Option<&Writes> {
        self.busy.as_deref()
    }

    /// Whether it can take a group now; with `wait`, after it is done with the one that it has.
    pub(super) fn is_free(&mut self, wait: bool) -> bool {
        if self.busy.is_some() {
            let landed = if wait { self.landed.recv().map_err(Into::into) } else { self.landed.try_recv() };
            // A flusher that is gone isn't waited for: whoever sends to it learns that.
            if landed != Err(TryRecvError::Empty) {
                self.busy = None;
            }
        }
        self.busy.is_none()
    }

    /// Gives it a group. It must be free.
    pub(super) fn take(&mut self, group: Group) {
        self.busy = Some(Arc::clone(&group.writes));
        // A flusher that is gone drops the answers: their callers learn that the writer has stopped.
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
