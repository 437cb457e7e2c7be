//! The writer thread: applies requests one after the other, and sends groups of them to the flusher, whose fsync they
//! share.

use super::counts;
use super::flusher::{AnswerSender, Flusher, Group};
use super::head::StoreHead;
use super::health::Health;
use super::index::Index;
use super::tx::{Tx, TxBase};
use super::view::{Db, DurableState, StoreFault};
use super::writes::Writes;
use crate::store::StoreError;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Requests that share one fsync: at 256 the fsync is a small part of the group's cost.
pub(super) const GROUP_REQUESTS: usize = 256;

/// Time for which patient requests wait for the fsync of others; then they get their own.
const PATIENCE: Duration = Duration::from_millis(2);

/// Applies a request; its answer is sent when the group is durable.
type WriterJob = Box<dyn FnOnce(&mut StoreWriter) + Send>;

/// The single thread that decides what is written.
pub(super) struct StoreWriter {
    db: Db,
    index: Index,
    store: Arc<str>,
    /// Writes that are applied and not yet sent to the flusher.
    writes: Writes,
    answers: Vec<AnswerSender>,
    /// Number of answers that a caller waits for.
    urgent: usize,
    flusher: Flusher,
    health: Arc<Health>,
}

impl StoreWriter {
    /// Returns the writer of `db`, which serves `requests`.
    pub(super) fn new(
        db: Db,
        index: Index,
        durable: Arc<RwLock<Arc<DurableState>>>,
        head: StoreHead,
        health: Arc<Health>,
        requests: &Requests,
    ) -> std::io::Result<Self> {
        let store = Arc::clone(&requests.store);
        // Weak, so that the writer ends when every caller is gone.
        let jobs = requests.jobs.downgrade();
        let nudge = move || {
            if let Some(jobs) = jobs.upgrade() {
                // A full channel needs no nudge: the writer is awake.
                let _ = jobs.try_send(Box::new(|_: &mut Self| {}));
            }
        };
        let flusher = Flusher::start(db.clone(), Arc::clone(&store), durable, head, Arc::clone(&health), nudge)?;
        Ok(Self { db, index, store, writes: Writes::default(), answers: Vec::new(), urgent: 0, flusher, health })
    }

    /// Serves requests until every sender is gone.
    pub(super) fn run(mut self, mut jobs: mpsc::Receiver<WriterJob>) {
        let mut waiting = Vec::with_capacity(GROUP_REQUESTS);
        while jobs.blocking_recv_many(&mut waiting, GROUP_REQUESTS) > 0 {
            self.health.measure();
            for job in waiting.drain(..) {
                job(&mut self);
            }
            if self.urgent == 1 && jobs.is_empty() && self.flusher.poll_idle(false) {
                // With one caller at a time, the way over another thread would only cost time.
                let group = self.take_group();
                self.flusher.flush_here(group);
            } else {
                self.flush_group(self.answers.len() >= GROUP_REQUESTS);
            }
        }
        self.urgent += self.answers.len();
        self.flush_group(true);
    }

    /// Sends the group to the flusher; while that is busy and `wait` is false, the group grows.
    fn flush_group(&mut self, wait: bool) {
        if self.urgent > 0 && self.flusher.poll_idle(wait) {
            let group = self.take_group();
            self.flusher.send(group);
        }
    }

    /// Takes what was applied since the last group.
    fn take_group(&mut self) -> Group {
        self.urgent = 0;
        Group { writes: Arc::new(std::mem::take(&mut self.writes)), answers: std::mem::take(&mut self.answers) }
    }

    fn apply<T>(&mut self, request: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreFault>) -> Result<T, StoreError> {
        // Before anything is decided, so that no later request depends on a refused one.
        if let Some(refused) = self.health.write_refusal() {
            return Err(refused);
        }
        let Self { db, index, writes, flusher, .. } = self;
        let mut tx = Tx::new(TxBase::Folder(db), index, [Some(writes), flusher.current_writes()]);
        let done = request(&mut tx).and_then(|value| counts::store_changes(&mut tx).map(|()| value));
        match done {
            Ok(value) => {
                let own = tx.into_writes();
                self.writes.extend(own);
                Ok(value)
            }
            Err(error) => {
                if tx.is_index_touched() {
                    let mut scratch = Index::default();
                    let before = Tx::new(TxBase::Folder(db), &mut scratch, [Some(writes), flusher.current_writes()]);
                    let mut fresh = Index::load(&before).map_err(|e| e.into_store_error(&self.store))?;
                    fresh.copy_sweep_times(index);
                    *index = fresh;
                }
                Err(error.into_store_error(&self.store))
            }
        }
    }
}

/// The sender of requests to the writer.
#[derive(Clone)]
pub(super) struct Requests {
    jobs: mpsc::Sender<WriterJob>,
    store: Arc<str>,
    /// Whether a task will make patient requests durable.
    reminded: Arc<AtomicBool>,
}

impl Requests {
    /// Returns a channel; when it is full, callers wait.
    pub(super) fn channel(store: Arc<str>) -> (Self, mpsc::Receiver<WriterJob>) {
        let (jobs, receiver) = mpsc::channel(4 * GROUP_REQUESTS);
        (Self { jobs, store, reminded: Arc::default() }, receiver)
    }

    /// Returns the name of the store, as in errors.
    pub(super) fn store(&self) -> &str {
        &self.store
    }

    /// Applies `request`; returns when it is durable.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreFault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let answered = self.send(request, true).await?;
        answered.await.map_err(|_| self.stopped_error())?
    }

    /// [`Requests::call`] for changes that are not urgent: for some milliseconds they wait for the fsync of others, then
    /// they get one of their own.
    pub(super) async fn call_deferred<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreFault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let answered = self.send(request, false).await?;
        // Behind the request, so that a task that already sleeps for others covers it, too.
        if !self.reminded.swap(true, Ordering::AcqRel) {
            let (jobs, reminded) = (self.jobs.downgrade(), Arc::clone(&self.reminded));
            tokio::spawn(async move {
                tokio::time::sleep(PATIENCE).await;
                reminded.swap(false, Ordering::AcqRel);
                if let Some(jobs) = jobs.upgrade() {
                    let due: WriterJob = Box::new(|writer| writer.urgent += usize::from(!writer.answers.is_empty()));
                    let _ = jobs.send(due).await;
                }
            });
        }
        answered.await.map_err(|_| self.stopped_error())?
    }

    async fn send<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreFault> + Send + 'static,
        urgent: bool,
    ) -> Result<oneshot::Receiver<Result<T, StoreError>>, StoreError> {
        let (answer, answered) = oneshot::channel();
        let job: WriterJob = Box::new(move |writer| {
            let outcome = writer.apply(request);
            writer.urgent += usize::from(urgent);
            writer.answers.push(Box::new(move |durable| {
                // A caller that left needs no answer.
                let _ = answer.send(durable.and(outcome));
            }));
        });
        self.jobs.send(job).await.map_err(|_| self.stopped_error())?;
        Ok(answered)
    }

    fn stopped_error(&self) -> StoreError {
        StoreError::Unavailable { store: self.store.to_string(), reason: "its writer has stopped".into() }
    }
}
