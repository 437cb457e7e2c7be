//! A store whose answers a test sees, and may hold up, before the worker that asked gets them.

use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use trellis::domain::ids::{AgentId, JobId, Owner, SessionKey};
use trellis::domain::quota::Quota;
use trellis::domain::time::Millis;
use trellis::store::{
    Admit, Admitted, After, Amend, Amended, Checkpoint, Commit, Committed, Doc, DocKey, DocWrite, Fill, Finished,
    Forget, Forgotten, Held, JobFinish, Lease, MailboxEntry, NewJob, OutboxEntry, Page, Parked, Recount, Released,
    Seat, Seated, SessionFacts, Setting, Standing, Store, StoreError, Swept, Window, Written,
};

/// What happens between an answer of the store and its arrival.
#[async_trait]
pub trait Watch: Send + Sync + 'static {
    fn read(&self, _keys: &[DocKey]) {}
    async fn renewed(&self, _held: &Held) {}
    async fn checkpointed(&self, _lease: &Lease, _write: &Checkpoint, _held: &Held) {}
    async fn committed(&self, _commit: &Commit, _committed: &Committed) {}
}

/// The watched store.
pub struct Watched<W> {
    pub inner: Arc<dyn Store>,
    pub watch: W,
}

macro_rules! watched {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        #[async_trait]
        impl<W: Watch> Store for Watched<W> {
            $(async fn $name(&self, $($arg: $type),*) -> Result<$out, StoreError> {
                self.inner.$name($($arg),*).await
            })*

            async fn fill(&self, now: Duration) -> Fill {
                self.inner.fill(now).await
            }

            async fn read(&self, owner: &Owner, keys: &[DocKey]) -> Result<Vec<Doc>, StoreError> {
                self.watch.read(keys);
                self.inner.read(owner, keys).await
            }

            async fn renew(&self, now: Millis, lease: &Lease, ttl: Duration) -> Result<Held, StoreError> {
                let held = self.inner.renew(now, lease, ttl).await?;
                self.watch.renewed(&held).await;
                Ok(held)
            }

            async fn checkpoint(&self, now: Millis, lease: &Lease, write: &Checkpoint) -> Result<Held, StoreError> {
                let held = self.inner.checkpoint(now, lease, write).await?;
                self.watch.checkpointed(lease, write, &held).await;
                Ok(held)
            }

            async fn commit(&self, now: Millis, lease: &Lease, commit: &Commit) -> Result<Committed, StoreError> {
                let committed = self.inner.commit(now, lease, commit).await?;
                self.watch.committed(commit, &committed).await;
                Ok(committed)
            }
        }
    };
}

watched! {
    admit(now: Millis, request: &Admit) -> Admitted;
    seat(now: Millis, owner: &Owner, session: &SessionKey, seat: Option<&Seat>) -> Seated;
    amend(now: Millis, owner: &Owner, session: &SessionKey, amend: &Amend) -> Amended;
    release(now: Millis, lease: &Lease, then: After) -> Released;
    published(owner: &Owner, ids: &[String]) -> ();
    scan(owner: &Owner, prefix: &str, after: Option<&str>, reverse: bool, limit: usize) -> Vec<(DocKey, Doc)>;
    page(owner: &Owner, prefix: &str, window: Window) -> Page;
    write(now: Millis, owner: &Owner, writes: &[DocWrite]) -> Written;
    write_within(now: Millis, owner: &Owner, writes: &[DocWrite], quota: &Quota) -> Written;
    finish(now: Millis, owner: &Owner, session: &SessionKey, finish: &JobFinish, open: Option<&NewJob>,
        outbox: &[OutboxEntry]) -> Finished;
    park(now: Millis, owner: &Owner, session: &SessionKey, job: &JobId, pause: bool) -> Parked;
    forget(now: Millis, owner: &Owner, forget: &Forget) -> Forgotten;
    sweep(now: Millis, owner: &Owner, grace: Duration, limit: u32) -> Swept;
    usage(owner: &Owner) -> Standing;
    recount(owner: &Owner, mend: bool) -> Recount;
    owners(after: Option<&Owner>, limit: usize) -> Vec<Owner>;
    sessions(owner: &Owner, agent: Option<&AgentId>, after: Option<&SessionKey>, limit: usize) -> Vec<SessionFacts>;
    mail(owner: &Owner, session: &SessionKey) -> Vec<MailboxEntry>;
    outbox(owner: &Owner) -> Vec<OutboxEntry>;
    settings() -> Vec<Setting>;
}
