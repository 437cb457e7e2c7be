//! Quota for what a turn writes.
//!
//! The commit of a turn checks no quota: a write that a call reported as made is made. Writes of others between a call
//! and the commit can exceed a quota by as much as turns had pending.

use super::overlay::Overlay;
use super::{PendingState, Workspace};
use crate::domain::quota::{QuotaCounts, QuotaUsage};
use crate::store::StoreError;

/// Checks that the quota has room for what the turn has written, with one more call. A call that adds nothing is always
/// possible.
pub(super) async fn check_quota(tree: &Workspace, state: &mut PendingState, next: &Overlay) -> Result<(), StoreError> {
    let Some(quota) = tree.quota else { return Ok(()) };
    let standing = match state.standing {
        Some(standing) => standing,
        None => *state.standing.insert(tree.store.usage(&tree.owner).await?),
    };
    let quota = quota.with_own(standing.operator_quota);
    if quota.check_room(&standing.used, &next.max_growth()).is_ok() {
        return Ok(());
    }
    let (before, after) = (state.overlay.growth(tree).await?, next.growth(tree).await?);
    let adds = |kind| if after.get(kind) > before.get(kind) { u64::try_from(after.get(kind)).unwrap_or(0) } else { 0 };
    quota.check_room(&standing.used, &QuotaUsage::from_fn(adds)).map_err(StoreError::Over)
}

impl Overlay {
    /// Returns the most that the pending writes can add.
    fn max_growth(&self) -> QuotaUsage {
        self.puts().fold(QuotaUsage::default(), |sum, (key, bytes)| QuotaUsage {
            documents: sum.documents + 1,
            bytes: sum.bytes + (key.len() + bytes.len()) as u64,
            ..sum
        })
    }

    /// Returns what the pending writes add.
    async fn growth(&self, tree: &Workspace) -> Result<QuotaCounts<i64>, StoreError> {
        let keys = self.changed_keys();
        let mut sum = QuotaCounts::<i64>::default();
        if keys.is_empty() {
            return Ok(sum);
        }
        let weight = |key: &str, value: usize| i64::try_from(key.len() + value).unwrap_or(i64::MAX);
        for (key, bytes) in self.puts() {
            sum.documents += 1;
            sum.bytes += weight(key, bytes.len());
        }
        for (key, doc) in keys.iter().zip(tree.store.read(&tree.owner, &keys).await?) {
            if let Some(old) = doc.value {
                sum.documents -= 1;
                sum.bytes -= weight(key, old.len());
            }
        }
        Ok(sum)
    }
}
