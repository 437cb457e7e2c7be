//! The worker of this very process, where it has one: what is submitted here goes straight to a free slot of it, and no
//! message lies between.

use crate::domain::chat::ModelSettings;
use crate::store::{Admit, Intake, StoreError};
use async_trait::async_trait;
use parking_lot::RwLock;
use std::sync::{Arc, Weak};

/// What became of a submission that was brought straight to a worker.
pub enum Brought {
    /// The store was asked, and what it granted runs.
    Asked(Result<Intake, StoreError>),
    /// No slot is free: nothing was done with it.
    Back(Box<Admit>),
}

/// A worker that is there to be asked directly.
#[async_trait]
pub trait DirectWorker: Send + Sync {
    /// Has the store take an event and grant its session to a free slot, and runs what is granted. Whoever asks may go
    /// away: what is granted runs.
    ///
    /// After it: as after [`crate::store::Store::admit`]; the session needs no wake. A crash before it: nothing, or the
    /// event is taken and its session is due when the lease is over.
    async fn admit(&self, admit: Admit) -> Brought;

    /// Why this worker has no API key for a model, where it is the environment that would have to have it.
    fn missing_key(&self, model: &ModelSettings) -> Option<String>;
}

/// The worker of this process, while it takes work.
#[derive(Default)]
pub struct LocalWorker(RwLock<Option<(String, Weak<dyn DirectWorker>)>>);

impl LocalWorker {
    /// From now on this one, of this name, is asked, until it is dropped.
    pub fn is(&self, name: &str, worker: &Arc<dyn DirectWorker>) {
        *self.0.write() = Some((name.to_owned(), Arc::downgrade(worker)));
    }

    /// The name of the worker that this process has, or had.
    pub fn name(&self) -> Option<String> {
        self.0.read().as_ref().map(|(name, _)| name.clone())
    }

    /// Why the worker of this process has no API key for a model; `None` also where there is no worker.
    pub fn missing_key(&self, model: &ModelSettings) -> Option<String> {
        let worker = self.0.read().as_ref().and_then(|(_, worker)| worker.upgrade());
        worker.and_then(|worker| worker.missing_key(model))
    }

    /// Brings an event to the worker.
    pub async fn admit(&self, admit: Admit) -> Brought {
        let worker = self.0.read().as_ref().and_then(|(_, worker)| worker.upgrade());
        match worker {
            Some(worker) => worker.admit(admit).await,
            None => Brought::Back(Box::new(admit)),
        }
    }
}
