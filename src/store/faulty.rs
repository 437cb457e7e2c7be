//! A store that fails on purpose: before a call is applied, or after it with the answer lost.

use super::{Layer, Repeat, Store, StoreError, StoreMethod};
use parking_lot::Mutex;
use std::sync::Arc;

/// Where a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultAt {
    /// It never reaches the store.
    Before,
    /// It is applied, and its answer is lost.
    After,
}

/// Which mutating calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultPlan {
    /// None: to count them.
    Never,
    /// The `n`-th, counted from 1, once.
    Nth {
        /// Which.
        n: u64,
        /// Where.
        at: FaultAt,
    },
    /// The `n`-th and all after it, as when the process is gone.
    From {
        /// The first.
        n: u64,
        /// Where it fails; later ones fail before.
        at: FaultAt,
    },
    /// The first call of a method and all calls after it, before they are applied.
    FromMethod(&'static str),
    /// Every call of a method, before it is applied.
    EachOf(&'static str),
}

impl FaultPlan {
    fn fails(self, call: u64, method: &str, has_failed: bool) -> Option<FaultAt> {
        match self {
            Self::EachOf(each) => (method == each).then_some(FaultAt::Before),
            Self::FromMethod(first) => (has_failed || method == first).then_some(FaultAt::Before),
            Self::Never => None,
            Self::Nth { n, at } => (call == n).then_some(at),
            Self::From { n, at } if call == n => Some(at),
            Self::From { n, .. } => (call > n).then_some(FaultAt::Before),
        }
    }
}

/// A mutating call that failed on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// Its number, counted from 1.
    pub call: u64,
    /// Name of the method.
    pub method: &'static str,
    /// Where it failed.
    pub at: FaultAt,
}

struct State {
    plan: FaultPlan,
    calls: Vec<&'static str>,
    hits: Vec<Hit>,
}

/// Passes calls on to another store and fails some of them; reads always pass.
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    state: Mutex<State>,
}

impl FaultyStore {
    /// Fails calls of `inner` as planned.
    pub fn new(inner: Arc<dyn Store>, plan: FaultPlan) -> Arc<Self> {
        Arc::new(Self { inner, state: Mutex::new(State { plan, calls: Vec::new(), hits: Vec::new() }) })
    }

    /// Another plan from now on; counting starts again.
    pub fn plan(&self, plan: FaultPlan) {
        *self.state.lock() = State { plan, calls: Vec::new(), hits: Vec::new() };
    }

    /// Mutating calls so far, failed ones included.
    pub fn count(&self) -> u64 {
        self.state.lock().calls.len() as u64
    }

    /// Names of the mutating calls so far, in order.
    pub fn calls(&self) -> Vec<&'static str> {
        self.state.lock().calls.clone()
    }

    /// The calls that failed on purpose.
    pub fn hits(&self) -> Vec<Hit> {
        self.state.lock().hits.clone()
    }
}

impl Layer for FaultyStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn around<T: Send, F: Future<Output = Result<T, StoreError>> + Send>(
        &self,
        StoreMethod { name: method, repeat }: StoreMethod,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T, StoreError> {
        if repeat == Repeat::Reads {
            return call().await;
        }
        let fails = {
            let mut state = self.state.lock();
            state.calls.push(method);
            let nth = state.calls.len() as u64;
            let fails = state.plan.fails(nth, method, !state.hits.is_empty());
            state.hits.extend(fails.map(|at| Hit { call: nth, method, at }));
            fails
        };
        let lost = |reason: &str| {
            Err(StoreError::Unavailable { store: "faulty".into(), reason: format!("`{method}`: {reason}") })
        };
        match fails {
            None => call().await,
            Some(FaultAt::Before) => lost("failed on purpose before it was applied"),
            Some(FaultAt::After) => {
                call().await?;
                lost("applied, and its answer lost on purpose")
            }
        }
    }
}
