//! A store for tests that fails on purpose: before a call is applied, or behind it with the answer lost.

use super::{Layer, Repeat, Store, StoreError, StoreMethod};
use parking_lot::Mutex;
use std::sync::Arc;

/// Where a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultAt {
    /// The call never reaches the store.
    Before,
    /// The call is applied, and its answer is lost.
    After,
}

/// Which mutating calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultPlan {
    /// No call fails; calls are only counted.
    Never,
    /// The `n`-th call fails, counted from 1, once.
    Nth {
        /// Number of the failing call.
        n: u64,
        /// Where it fails.
        at: FaultAt,
    },
    /// The `n`-th call and all after it fail, as after the death of the process.
    From {
        /// Number of the first failing call.
        n: u64,
        /// Where the first fails; later ones fail before they are applied.
        at: FaultAt,
    },
    /// The first call of a method and all calls behind it fail before they are applied.
    FromMethod(&'static str),
    /// Every call of a method fails before it is applied.
    EachOf(&'static str),
}

impl FaultPlan {
    fn fault_for(self, call: u64, method: &str, has_failed: bool) -> Option<FaultAt> {
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
pub struct InjectedFault {
    /// Number of the call, counted from 1.
    pub call: u64,
    /// Name of the method.
    pub method: &'static str,
    /// Where it failed.
    pub at: FaultAt,
}

struct FaultState {
    plan: FaultPlan,
    calls: Vec<&'static str>,
    hits: Vec<InjectedFault>,
}

/// Passes calls to another store and fails some of them; reads always pass.
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    state: Mutex<FaultState>,
}

impl FaultyStore {
    /// Returns a store that fails calls of `inner` as planned.
    pub fn new(inner: Arc<dyn Store>, plan: FaultPlan) -> Arc<Self> {
        Arc::new(Self { inner, state: Mutex::new(FaultState { plan, calls: Vec::new(), hits: Vec::new() }) })
    }

    /// Replaces the plan; counting starts again.
    pub fn set_plan(&self, plan: FaultPlan) {
        *self.state.lock() = FaultState { plan, calls: Vec::new(), hits: Vec::new() };
    }

    /// Returns the number of mutating calls, failed ones included.
    pub fn count_calls(&self) -> u64 {
        self.state.lock().calls.len() as u64
    }

    /// Returns the names of the mutating calls, in order.
    pub fn calls(&self) -> Vec<&'static str> {
        self.state.lock().calls.clone()
    }

    /// Returns the calls that failed on purpose.
    pub fn injected_faults(&self) -> Vec<InjectedFault> {
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
            let fails = state.plan.fault_for(nth, method, !state.hits.is_empty());
            state.hits.extend(fails.map(|at| InjectedFault { call: nth, method, at }));
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
