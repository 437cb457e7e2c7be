//! The suite once more on a store whose callers repeat every call that may be repeated, as one does whose answer
//! was lost: the second changes nothing.

use super::embedded::EmbeddedFixture;
use super::redis::RedisFixture;
use super::{Fixture, conformance};
use std::sync::Arc;
use trellis::store::{Layer, Repeat, Store, StoreError, StoreMethod};

struct Repeating(Arc<dyn Store>);

impl Layer for Repeating {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    async fn around<T: Send, F: Future<Output = Result<T, StoreError>> + Send>(
        &self,
        method: StoreMethod,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T, StoreError> {
        let first = call().await;
        if first.is_ok() && method.repeat == Repeat::Idempotent {
            call().await.unwrap_or_else(|error| panic!("`{}` repeated: {error}", method.name));
        }
        first
    }
}

pub struct Repeated<F>(F);

impl<F: Fixture> Fixture for Repeated<F> {
    async fn new() -> Option<Self> {
        Some(Self(F::new().await?))
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(Repeating(self.0.store()))
    }
}

conformance!(embedded_cases, super::Repeated<super::EmbeddedFixture>);
conformance!(redis_cases, super::Repeated<super::RedisFixture>);
