//! The clock of the simulated server: it counts, whatever time the caller's shows, as Redis' own does.

use super::world::{START, World};
use std::sync::Arc;
use std::time::Duration;
use trellis::domain::ids::{JobId, Owner, SessionKey};
use trellis::domain::quota::Quota;
use trellis::domain::time::Millis;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::{
    AdmissionOutcome, Admit, Amend, AmendOutcome, Checkpoint, Commit, CommitOutcome, DocWrite, DocumentStore,
    DueOwners, FinishOutcome, ForgetOutcome, ForgetRequest, JobFinish, Layer, Lease, LeaseCheck, LeaseUse, NewJob,
    OutboxEntry, ParkOutcome, ReleaseOutcome, SessionSnapshot, SetSessionOutcome, Store, StoreError, SweepResult,
    WriteOutcome,
};

/// A store that asks no caller for the time.
pub struct OwnClock {
    pub store: Arc<EmbeddedStore>,
    pub world: Arc<World>,
}

impl OwnClock {
    /// A conformance suite says itself what time it is.
    fn now(&self, given: Millis) -> Millis {
        if self.world.is_instant { given } else { START.plus(self.world.now()) }
    }
}

macro_rules! by_own_clock {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {$(
        async fn $name(&self, now: Millis, $($arg: $type),*) -> Result<$out, StoreError> {
            self.store.$name(self.now(now), $($arg),*).await
        }
    )*};
}

impl Layer for OwnClock {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    by_own_clock! {
        admit(request: &Admit) -> AdmissionOutcome;
        renew(lease: &Lease, ttl: Duration) -> LeaseCheck;
        checkpoint(lease: &Lease, write: &Checkpoint) -> LeaseCheck;
        commit(lease: &Lease, commit: &Commit) -> CommitOutcome;
        release(lease: &Lease, then: LeaseUse) -> ReleaseOutcome;
        finish(
            owner: &Owner, session: &SessionKey, finish: &JobFinish, open: Option<&NewJob>, outbox: &[OutboxEntry]
        ) -> FinishOutcome;
        set_job_paused(owner: &Owner, session: &SessionKey, job: &JobId, pause: bool) -> ParkOutcome;
        set_session(owner: &Owner, session: &SessionKey, snapshot: Option<&SessionSnapshot>, checks: &[DocWrite]) -> SetSessionOutcome;
        amend(owner: &Owner, session: &SessionKey, amend: &Amend) -> AmendOutcome;
        forget(owner: &Owner, forget: &ForgetRequest) -> ForgetOutcome;
        sweep(owner: &Owner, grace: Duration, limit: u32) -> SweepResult;
        due_owners(worker: &str, horizon: Duration, limit: u32) -> DueOwners;
        write(owner: &Owner, writes: &[DocWrite]) -> WriteOutcome;
        write_within(owner: &Owner, writes: &[DocWrite], quota: &Quota) -> WriteOutcome;
    }
}
