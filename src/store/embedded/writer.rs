//! The writer thread: drains its channel, applies each request in order, one fsync, all answers.

use super::index::Index;
use super::tx::{Db, Durable, Fault, Tx};
use crate::store::StoreError;
use fjall::PersistMode;
use std::sync::{Arc, RwLock};
use tokio::sync::{mpsc, oneshot};

/// Requests that share one fsync: at 256 the fsync is a small part of the group's cost.
pub(super) const GROUP_REQUESTS: usize = 256;

/// Applies a request; its answer waits for the group to be durable.
type Job = Box<dyn FnOnce(&mut Writer) -> Answer + Send>;
type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// The only one who writes.
pub(super) struct Writer {
    db: Db,
    index: Index,
    store: Arc<str>,
    durable: Arc<RwLock<Arc<Durable>>>,
    dirty: bool,
}

impl Writer {
    /// The writer of `db`.
    pub(super) const fn new(db: Db, index: Index, store: Arc<str>, durable: Arc<RwLock<Arc<Durable>>>) -> Self {
        Self { db, index, store, durable, dirty: false }
    }

    /// Serves until every sender is gone.
    pub(super) fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut group = Vec::with_capacity(GROUP_REQUESTS);
        while jobs.blocking_recv_many(&mut group, GROUP_REQUESTS) > 0 {
            let answers: Vec<Answer> = group.drain(..).map(|job| job(&mut self)).collect();
            let durable = self.persist();
            for answer in answers {
                answer(durable.clone());
            }
        }
    }

    fn apply<T>(&mut self, request: impl FnOnce(&mut Tx<'_>) -> Result<T, Fault>) -> Result<T, StoreError> {
        let mut tx = Tx::new(&self.db, &mut self.index);
        let outcome = request(&mut tx);
        let touched = tx.touched();
        let outcome = match outcome {
            Ok(value) => tx.apply().map(|wrote| {
                self.dirty |= wrote;
                value
            }),
            Err(e) => Err(e),
        };
        if outcome.is_err() && touched {
            self.index = Index::load(&self.db).map_err(|e| e.at(&self.store))?;
        }
        outcome.map_err(|e| e.at(&self.store))
    }

    /// Readers see a group only when it can't be lost any more.
    fn persist(&mut self) -> Result<(), StoreError> {
        if !self.dirty {
            return Ok(());
        }
        self.db.database.persist(PersistMode::SyncAll).map_err(|e| Fault::from(e).at(&self.store))?;
        self.dirty = false;
        let now = Arc::new(Durable { db: self.db.clone(), snapshot: self.db.database.snapshot() });
        *self.durable.write().unwrap_or_else(std::sync::PoisonError::into_inner) = now;
        Ok(())
    }
}

/// The way to the writer.
#[derive(Clone)]
pub(super) struct Requests {
    jobs: mpsc::Sender<Job>,
    store: Arc<str>,
}

impl Requests {
    /// A channel; when it is full, callers wait.
    pub(super) fn channel(store: Arc<str>) -> (Self, mpsc::Receiver<Job>) {
        let (jobs, receiver) = mpsc::channel(4 * GROUP_REQUESTS);
        (Self { jobs, store }, receiver)
    }

    /// Has `request` applied; answers when it is durable.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Tx<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |writer| {
            let outcome = writer.apply(request);
            Box::new(move |durable| {
                // A caller that went away needs no answer.
                let _ = answer.send(durable.and(outcome));
            })
        });
        let gone =
            || StoreError::Unavailable { store: self.store.to_string(), reason: "its writer has stopped".into() };
        self.jobs.send(job).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}
