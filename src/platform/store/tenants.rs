//! A store in which a tenant has at most so many users: whatever would register another owner is refused before it is
//! written.
//!
//! Registered owners go on. A quota that operators set for an owner is always written: so they can add a user to a full
//! tenant.

use super::{
    DocEffect, DocWrite, FinishOutcome, JobFinish, Layer, NewJob, OutboxEntry, OwnerRegistration, SessionSnapshot,
    SetSessionOutcome, Store, StoreError, WriteOutcome, keys,
};
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::quota::Quota;
use crate::domain::tenant_users::{TenantFull, TenantUserLimits};
use crate::domain::time::Millis;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;

/// Owners remembered as registered; above it all are looked up again.
const REMEMBERED: usize = 100_000;

/// Limits the users of tenants.
pub struct TenantStore {
    inner: Arc<dyn Store>,
    limits: TenantUserLimits,
    /// Owners that were found registered.
    known: Mutex<HashSet<Owner>>,
}

impl TenantStore {
    /// Returns a store that keeps to the limits of users around `inner`.
    pub fn new(inner: Arc<dyn Store>, limits: TenantUserLimits) -> Self {
        Self { inner, limits, known: Mutex::default() }
    }

    /// Registers an owner before its first write, or refuses it with [`StoreError::TenantFull`].
    async fn register(&self, owner: &Owner) -> Result<(), StoreError> {
        let Some(most) = self.limits.get(owner.tenant()) else { return Ok(()) };
        if keys::is_reserved(owner) || self.known.lock().contains(owner) {
            return Ok(());
        }
        match self.inner.register_owner(owner, most).await? {
            OwnerRegistration::Listed => {
                let mut known = self.known.lock();
                if known.len() >= REMEMBERED {
                    known.clear();
                }
                known.insert(owner.clone());
                Ok(())
            }
            OwnerRegistration::Full { users } => {
                Err(StoreError::TenantFull(TenantFull { owner: owner.clone(), used: users, allowed: most }))
            }
        }
    }

    /// Registers the owner of these writes, if they put a document of a user.
    async fn register_writer(&self, owner: &Owner, writes: &[DocWrite]) -> Result<(), StoreError> {
        let puts = |write: &DocWrite| matches!(write.change, DocEffect::Put(_)) && write.key != keys::QUOTA;
        if writes.iter().any(puts) { self.register(owner).await } else { Ok(()) }
    }
}

impl Layer for TenantStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn finish(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        finish: &JobFinish,
        open: Option<&NewJob>,
        outbox: &[OutboxEntry],
    ) -> Result<FinishOutcome, StoreError> {
        if open.is_some() {
            self.register(owner).await?;
        }
        self.inner.finish(now, owner, session, finish, open, outbox).await
    }

    async fn set_session(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        snapshot: Option<&SessionSnapshot>,
        checks: &[DocWrite],
    ) -> Result<SetSessionOutcome, StoreError> {
        if snapshot.is_some() {
            self.register(owner).await?;
        }
        self.inner.set_session(now, owner, session, snapshot, checks).await
    }

    async fn write(&self, now: Millis, owner: &Owner, writes: &[DocWrite]) -> Result<WriteOutcome, StoreError> {
        self.register_writer(owner, writes).await?;
        self.inner.write(now, owner, writes).await
    }

    async fn write_within(
        &self,
        now: Millis,
        owner: &Owner,
        writes: &[DocWrite],
        quota: &Quota,
    ) -> Result<WriteOutcome, StoreError> {
        self.register_writer(owner, writes).await?;
        self.inner.write_within(now, owner, writes, quota).await
    }
}
