//! Writes of documents outside turns.

use super::RedisStore;
use super::usage;
use crate::domain::ids::Owner;
use crate::domain::quota::Quota;
use crate::domain::time::Millis;
use crate::store::{Change, DocWrite, OutsideWrite, StoreError, keys};

impl RedisStore {
    /// Writes documents, within a quota if there is one.
    pub(super) async fn put(
        &self,
        now: Millis,
        owner: &Owner,
        writes: &[DocWrite],
        quota: Option<&Quota>,
    ) -> Result<OutsideWrite, StoreError> {
        let args = |method: &str, known: bool| {
            let mut args = self.timed(method, owner, now);
            args.flag(known).writes(writes).quota(quota);
            args
        };
        let puts = writes.iter().any(|write| matches!(write.change, Change::Put(_)));
        let goes_on = || quota.is_none() && writes.iter().all(|write| keys::keeps_work_going(&write.key));
        let at_limit = !puts || goes_on();
        let method = if at_limit { "write_at_limit" } else { "write" };
        let (outcome, mut answer) = self.call_registered(owner, puts, |known| args(method, known)).await?;
        match outcome.as_str() {
            "done" => Ok(OutsideWrite::Done),
            "conflict" => Ok(OutsideWrite::Conflict(answer.conflicts()?)),
            "over" => Err(StoreError::Over(usage::over(&mut answer)?)),
            other => Err(answer.unexpected("`done` or `conflict`", other)),
        }
    }
}
