//! A store that waits out an outage: every method may be called again with the same arguments,
//! so a worker in the middle of a turn need not give it up because the server restarts.

use super::{
    Admit, Admitted, After, Amend, Amended, Checkpoint, Commit, Committed, Doc, DocKey, DocWrite, Fill, Finished,
    Forget, Forgotten, Held, JobFinish, Lease, MailboxEntry, NewJob, OutboxEntry, Page, Parked, Recount, Released,
    Seat, Seated, SessionFacts, Setting, Standing, Store, StoreError, Swept, Window, Written,
};
use crate::domain::ids::{AgentId, JobId, Owner, SessionKey};
use crate::domain::quota::Quota;
use crate::domain::time::Millis;
use crate::process::retry::{Failure, Policy, retry};
use async_trait::async_trait;
use std::{future::Future, sync::Arc, time::Duration};

/// Repeats calls that failed for a while.
pub struct PatientStore {
    inner: Arc<dyn Store>,
    policy: Policy,
}

impl PatientStore {
    /// Waits out outages of `inner` as `policy` says.
    pub fn new(inner: Arc<dyn Store>, policy: Policy) -> Self {
        Self { inner, policy }
    }

    async fn again<T, F>(&self, call: impl Fn() -> F + Send + Sync) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>> + Send,
        T: Send,
    {
        let once = || {
            let attempt = call();
            async move {
                attempt.await.map_err(|error| match error {
                    StoreError::Unavailable { .. } => Failure::Transient(error),
                    StoreError::Full { .. }
                    | StoreError::Over(_)
                    | StoreError::Contended { .. }
                    | StoreError::Corrupt { .. } => Failure::Permanent(error),
                })
            }
        };
        retry(self.policy, "the store", once).await
    }
}

#[async_trait]
impl Store for PatientStore {
    async fn admit(&self, now: Millis, request: &Admit) -> Result<Admitted, StoreError> {
        self.again(|| self.inner.admit(now, request)).await
    }

    async fn renew(&self, now: Millis, lease: &Lease, ttl: Duration) -> Result<Held, StoreError> {
        self.again(|| self.inner.renew(now, lease, ttl)).await
    }

    async fn checkpoint(&self, now: Millis, lease: &Lease, write: &Checkpoint) -> Result<Held, StoreError> {
        self.again(|| self.inner.checkpoint(now, lease, write)).await
    }

    async fn commit(&self, now: Millis, lease: &Lease, commit: &Commit) -> Result<Committed, StoreError> {
        self.again(|| self.inner.commit(now, lease, commit)).await
    }

    async fn release(&self, now: Millis, lease: &Lease, then: After) -> Result<Released, StoreError> {
        self.again(|| self.inner.release(now, lease, then)).await
    }

    async fn published(&self, owner: &Owner, ids: &[String]) -> Result<(), StoreError> {
        self.again(|| self.inner.published(owner, ids)).await
    }

    async fn read(&self, owner: &Owner, keys: &[DocKey]) -> Result<Vec<Doc>, StoreError> {
        self.again(|| self.inner.read(owner, keys)).await
    }

    async fn scan(
        &self,
        owner: &Owner,
        prefix: &str,
        after: Option<&str>,
        reverse: bool,
        limit: usize,
    ) -> Result<Vec<(DocKey, Doc)>, StoreError> {
        self.again(|| self.inner.scan(owner, prefix, after, reverse, limit)).await
    }

    async fn page(&self, owner: &Owner, prefix: &str, window: Window) -> Result<Page, StoreError> {
        self.again(|| self.inner.page(owner, prefix, window)).await
    }

    async fn write(&self, now: Millis, owner: &Owner, writes: &[DocWrite]) -> Result<Written, StoreError> {
        // Not repeated: a repetition of a write that was applied would see its own new versions
        // as a conflict, and only the caller knows what that means.
        self.inner.write(now, owner, writes).await
    }

    async fn write_within(
        &self,
        now: Millis,
        owner: &Owner,
        writes: &[DocWrite],
        quota: &Quota,
    ) -> Result<Written, StoreError> {
        // As a write without a quota.
        self.inner.write_within(now, owner, writes, quota).await
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
        self.again(|| self.inner.finish(now, owner, session, finish, open, outbox)).await
    }

    async fn park(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        job: &JobId,
        pause: bool,
    ) -> Result<Parked, StoreError> {
        self.again(|| self.inner.park(now, owner, session, job, pause)).await
    }

    async fn seat(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        seat: Option<&Seat>,
    ) -> Result<Seated, StoreError> {
        self.again(|| self.inner.seat(now, owner, session, seat)).await
    }

    async fn amend(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        amend: &Amend,
    ) -> Result<Amended, StoreError> {
        self.again(|| self.inner.amend(now, owner, session, amend)).await
    }

    async fn forget(&self, now: Millis, owner: &Owner, forget: &Forget) -> Result<Forgotten, StoreError> {
        // Not repeated: whoever tidies up comes again by itself.
        self.inner.forget(now, owner, forget).await
    }

    async fn sweep(&self, now: Millis, owner: &Owner, grace: Duration, limit: u32) -> Result<Swept, StoreError> {
        // Not repeated: the sweep loop comes again by itself.
        self.inner.sweep(now, owner, grace, limit).await
    }

    async fn usage(&self, owner: &Owner) -> Result<Standing, StoreError> {
        self.again(|| self.inner.usage(owner)).await
    }

    async fn recount(&self, owner: &Owner, mend: bool) -> Result<Recount, StoreError> {
        self.again(|| self.inner.recount(owner, mend)).await
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
        self.again(|| self.inner.sessions(owner, agent, after, limit)).await
    }

    async fn mail(&self, owner: &Owner, session: &SessionKey) -> Result<Vec<MailboxEntry>, StoreError> {
        self.again(|| self.inner.mail(owner, session)).await
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
