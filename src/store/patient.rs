//! A store that waits out an outage: what may be called again is, so that a worker in the middle of a turn
//! need not give it up because the server restarts.

use super::{Layer, Repeat, Store, StoreError, StoreMethod};
use crate::process::retry::{AttemptFailure, RetryPolicy, retry};
use std::sync::Arc;

/// Repeats calls that failed for a while, unless only their caller knows what that means ([`Repeat::Once`]).
pub struct PatientStore {
    inner: Arc<dyn Store>,
    policy: RetryPolicy,
}

impl PatientStore {
    /// Waits out outages of `inner` as `policy` says.
    pub fn new(inner: Arc<dyn Store>, policy: RetryPolicy) -> Self {
        Self { inner, policy }
    }
}

impl Layer for PatientStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn around<T: Send, F: Future<Output = Result<T, StoreError>> + Send>(
        &self,
        method: StoreMethod,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T, StoreError> {
        if method.repeat == Repeat::Once {
            return call().await;
        }
        let once = || async {
            call().await.map_err(|error| match error {
                StoreError::Unavailable { .. } => AttemptFailure::Transient(error),
                StoreError::Full { .. }
                | StoreError::Over(_)
                | StoreError::Oversized(_)
                | StoreError::Contended { .. }
                | StoreError::Corrupt { .. } => AttemptFailure::Permanent(error),
            })
        };
        retry(self.policy, "the store", once).await
    }
}
