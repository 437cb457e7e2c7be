//! Writes of documents outside turns.

use super::RedisStore;
use super::usage;
use crate::domain::ids::Owner;
use crate::domain::quota::Quota;
use crate::domain::time::Millis;
use crate::store::{DocEffect, DocWrite, StoreError, WriteOutcome, keys};

impl RedisStore {
    /// Writes documents, within a quota if there is one.
    pub(super) async fn put(
        &self,
        now: Millis,
        owner: &Owner,
        writes: &[DocWrite],
        quota: Option<&Quota>,
    ) -> Result<WriteOutcome, StoreError> {
        let args = |method: &str, known: bool| {
            let mut args = self.timed_args(method, owner, now);
            args.flag(known).writes(writes).quota(quota);
            args
        };
        let puts = writes.iter().any(|write| matches!(write.change, DocEffect::Put(_)));
        let goes_on = || quota.is_none() && writes.iter().all(|write| keys::is_needed_by_work(&write.key));
        let at_limit = !puts || goes_on();
        let method = if at_limit { "write_at_limit" } else { "write" };
        let (outcome, mut answer) = self.call_registered(owner, puts, |known| args(method, known)).await?;
        match outcome.as_str() {
            "done" => Ok(WriteOutcome::Done),
            "conflict" => Ok(WriteOutcome::Conflict(answer.conflicts()?)),
            "over" => Err(StoreError::Over(usage::read_over(&mut answer)?)),
            other => Err(answer.unexpected_error("`done` or `conflict`", other)),
        }
    }
}
