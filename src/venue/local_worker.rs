//! The worker of this process, if it has one. What is submitted in the process goes straight to a free slot of it,
//! without a message.

use crate::domain::chat::ModelSettings;
use crate::store::{Admit, Intake, StoreError};
use async_trait::async_trait;
use parking_lot::RwLock;
use std::sync::{Arc, OnceLock, Weak};

/// Result of handing a submission directly to a worker.
pub enum HandoverOutcome {
    /// The store was asked, and the session runs if it granted the lease.
    Stored(Result<Intake, StoreError>),
    /// The worker takes no work, and nothing was done.
    Returned(Box<Admit>),
}

/// A worker that takes submissions directly.
#[async_trait]
pub trait DirectWorker: Send + Sync {
    /// Admits an event with a lease of its session for a free slot, and runs the session if the lease is granted, even
    /// if the caller is dropped. Without a free slot the session waits for one.
    ///
    /// After it: as after [`crate::store::Store::admit`]; the session needs no wake. A crash before it: nothing, or the
    /// event is admitted and its session is due when the lease expires.
    async fn admit(&self, admit: Admit) -> HandoverOutcome;

    /// Returns why this worker has no API key for a model, if the key would have to come from its environment, or no
    /// rules for a scripted one.
    fn missing_key(&self, model: &ModelSettings) -> Option<String>;
}

/// Returns whether the process sees what a scripted model answers by; other models have no rules, so that nothing is
/// missing.
pub type RulesCheck = Box<dyn Fn(&ModelSettings) -> bool + Send + Sync>;

/// The worker of this process, while it takes work; or that it has none.
#[derive(Default)]
pub struct LocalWorker {
    worker: RwLock<Option<(String, Weak<dyn DirectWorker>)>>,
    /// Set in a process without a worker.
    rules: OnceLock<RulesCheck>,
}

impl LocalWorker {
    /// Registers the worker under this name, until it is dropped.
    pub fn register(&self, name: &str, worker: &Arc<dyn DirectWorker>) {
        *self.worker.write() = Some((name.to_owned(), Arc::downgrade(worker)));
    }

    /// Returns the name of the worker that this process has or had.
    pub fn name(&self) -> Option<String> {
        self.worker.read().as_ref().map(|(name, _)| name.clone())
    }

    /// Returns why the worker of this process has no API key, or no rules, for a model; `None` also if there is no
    /// worker.
    pub fn missing_key(&self, model: &ModelSettings) -> Option<String> {
        let worker = self.worker.read().as_ref().and_then(|(_, worker)| worker.upgrade());
        worker.and_then(|worker| worker.missing_key(model))
    }

    /// Notes that this process has no worker, and how it finds out whether it sees the rules of a model. The first call
    /// counts.
    pub fn set_absent(&self, rules: RulesCheck) {
        let _ = self.rules.set(rules);
    }

    /// Whether this process has no worker and doesn't see the rules of a scripted model.
    pub fn lacks_rules(&self, model: &ModelSettings) -> bool {
        self.rules.get().is_some_and(|sees_rules| !sees_rules(model))
    }

    /// Hands an event to the worker; without one the event comes back.
    pub async fn admit(&self, admit: Admit) -> HandoverOutcome {
        let worker = self.worker.read().as_ref().and_then(|(_, worker)| worker.upgrade());
        match worker {
            Some(worker) => worker.admit(admit).await,
            None => HandoverOutcome::Returned(Box::new(admit)),
        }
    }
}
