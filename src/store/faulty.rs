//! A store that fails on purpose: before a call is applied, or after it with the answer lost.

use super::{
    Admit, Admitted, After, Amend, Amended, Checkpoint, Commit, Committed, Doc, DocKey, DocWrite, Fill, Finished,
    Forget, Forgotten, Held, JobFinish, Lease, MailboxEntry, NewJob, OutboxEntry, Page, Parked, Recount, Released,
    Seat, Seated, SessionFacts, Setting, Standing, Store, StoreError, Swept, Window, Written,
};
use crate::domain::ids::{AgentId, JobId, Owner, SessionKey};
use crate::domain::quota::Quota;
use crate::domain::time::Millis;
use async_trait::async_trait;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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
}

impl FaultPlan {
    fn fails(self, call: u64) -> Option<FaultAt> {
        match self {
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

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another plan from now on; counting starts again.
    pub fn plan(&self, plan: FaultPlan) {
        *self.state() = State { plan, calls: Vec::new(), hits: Vec::new() };
    }

    /// Mutating calls so far, failed ones included.
    pub fn count(&self) -> u64 {
        self.state().calls.len() as u64
    }

    /// Names of the mutating calls so far, in order.
    pub fn calls(&self) -> Vec<&'static str> {
        self.state().calls.clone()
    }

    /// The calls that failed on purpose.
    pub fn hits(&self) -> Vec<Hit> {
        self.state().hits.clone()
    }

    async fn call<T>(
        &self,
        method: &'static str,
        inner: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let fails = {
            let mut state = self.state();
            state.calls.push(method);
            let call = state.calls.len() as u64;
            let fails = state.plan.fails(call);
            state.hits.extend(fails.map(|at| Hit { call, method, at }));
            fails
        };
        let lost = |reason: &str| {
            Err(StoreError::Unavailable { store: "faulty".into(), reason: format!("`{method}`: {reason}") })
        };
        match fails {
            None => inner.await,
            Some(FaultAt::Before) => lost("failed on purpose before it was applied"),
            Some(FaultAt::After) => {
                inner.await?;
                lost("applied, and its answer lost on purpose")
            }
        }
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn admit(&self, now: Millis, request: &Admit) -> Result<Admitted, StoreError> {
        self.call("admit", self.inner.admit(now, request)).await
    }

    async fn renew(&self, now: Millis, lease: &Lease, ttl: Duration) -> Result<Held, StoreError> {
        self.call("renew", self.inner.renew(now, lease, ttl)).await
    }

    async fn checkpoint(&self, now: Millis, lease: &Lease, write: &Checkpoint) -> Result<Held, StoreError> {
        self.call("checkpoint", self.inner.checkpoint(now, lease, write)).await
    }

    async fn commit(&self, now: Millis, lease: &Lease, commit: &Commit) -> Result<Committed, StoreError> {
        self.call("commit", self.inner.commit(now, lease, commit)).await
    }

    async fn release(&self, now: Millis, lease: &Lease, then: After) -> Result<Released, StoreError> {
        self.call("release", self.inner.release(now, lease, then)).await
    }

    async fn published(&self, owner: &Owner, ids: &[String]) -> Result<(), StoreError> {
        self.call("published", self.inner.published(owner, ids)).await
    }

    async fn read(&self, owner: &Owner, keys: &[DocKey]) -> Result<Vec<Doc>, StoreError> {
        self.inner.read(owner, keys).await
    }

    async fn scan(
        &self,
        owner: &Owner,
        prefix: &str,
        after: Option<&str>,
        reverse: bool,
        limit: usize,
    ) -> Result<Vec<(DocKey, Doc)>, StoreError> {
        self.inner.scan(owner, prefix, after, reverse, limit).await
    }

    async fn page(&self, owner: &Owner, prefix: &str, window: Window) -> Result<Page, StoreError> {
        self.inner.page(owner, prefix, window).await
    }

    async fn write(&self, now: Millis, owner: &Owner, writes: &[DocWrite]) -> Result<Written, StoreError> {
        self.call("write", self.inner.write(now, owner, writes)).await
    }

    async fn write_within(
        &self,
        now: Millis,
        owner: &Owner,
        writes: &[DocWrite],
        quota: &Quota,
    ) -> Result<Written, StoreError> {
        self.call("write", self.inner.write_within(now, owner, writes, quota)).await
    }

    async fn finish(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        finish: &JobFinish,
        open: Option<&NewJob>,
        outbox: &[OutboxEntry],
    ) -> Result<Finished, StoreError> {
        self.call("finish", self.inner.finish(now, owner, session, finish, open, outbox)).await
    }

    async fn park(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        job: &JobId,
        pause: bool,
    ) -> Result<Parked, StoreError> {
        self.call("park", self.inner.park(now, owner, session, job, pause)).await
    }

    async fn seat(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        seat: Option<&Seat>,
    ) -> Result<Seated, StoreError> {
        self.call("seat", self.inner.seat(now, owner, session, seat)).await
    }

    async fn amend(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        amend: &Amend,
    ) -> Result<Amended, StoreError> {
        self.call("amend", self.inner.amend(now, owner, session, amend)).await
    }

    async fn forget(&self, now: Millis, owner: &Owner, forget: &Forget) -> Result<Forgotten, StoreError> {
        self.call("forget", self.inner.forget(now, owner, forget)).await
    }

    async fn sweep(&self, now: Millis, owner: &Owner, grace: Duration, limit: u32) -> Result<Swept, StoreError> {
        self.call("sweep", self.inner.sweep(now, owner, grace, limit)).await
    }

    async fn usage(&self, owner: &Owner) -> Result<Standing, StoreError> {
        self.inner.usage(owner).await
    }

    async fn recount(&self, owner: &Owner, mend: bool) -> Result<Recount, StoreError> {
        self.call("recount", self.inner.recount(owner, mend)).await
    }

    async fn owners(&self, after: Option<&Owner>, limit: usize) -> Result<Vec<Owner>, StoreError> {
        self.inner.owners(after, limit).await
    }

    async fn sessions(
        &self,
        owner: &Owner,
        agent: Option<&AgentId>,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<SessionFacts>, StoreError> {
        self.inner.sessions(owner, agent, after, limit).await
    }

    async fn mail(&self, owner: &Owner, session: &SessionKey) -> Result<Vec<MailboxEntry>, StoreError> {
        self.inner.mail(owner, session).await
    }

    async fn outbox(&self, owner: &Owner) -> Result<Vec<OutboxEntry>, StoreError> {
        self.inner.outbox(owner).await
    }

    async fn fill(&self, now: Duration) -> Fill {
        self.inner.fill(now).await
    }

    async fn settings(&self) -> Result<Vec<Setting>, StoreError> {
        self.inner.settings().await
    }
}
