//! A store that waits out an outage: it repeats calls that may be repeated, so that a worker need not give up its turn
//! because the server restarts.

use super::{Layer, Repeat, Store, StoreError, StoreMethod};
use crate::process::retry::{AttemptFailure, RetryPolicy, retry};
use std::sync::Arc;

/// Repeats calls that failed, until its policy gives up; never those with [`Repeat::Once`].
pub struct PatientStore {
    inner: Arc<dyn Store>,
    policy: RetryPolicy,
}

impl PatientStore {
    /// Returns a store that repeats calls of `inner` under `policy`.
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
                | StoreError::TenantFull(_)
                | StoreError::Oversized(_)
                | StoreError::Contended { .. }
                | StoreError::Corrupt { .. } => AttemptFailure::Permanent(error),
            })
        };
        retry(self.policy, "the store", once).await
    }
}
