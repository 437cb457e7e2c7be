//! Quota of an owner and what is used of it, for people; and the limits that operators set.

use crate::domain::ids::Owner;
use crate::domain::quota::{OwnLimits, QuotaKind};
use crate::store::{DocWrite, Edit, OwnerUsage, StoreError, keys};
use crate::venue::Venue;
use crate::view::quota::{QuotaUseView, QuotaView, TenantUsersView};

/// Returns what is used of each limit, and how many users the owner's tenant has if they are limited.
pub async fn usage(venue: &Venue, owner: &Owner) -> Result<QuotaView, StoreError> {
    let OwnerUsage { used, operator_quota: own } = venue.store.usage(owner).await?;
    let quota = venue.quota().await.with_own(own);
    let of = |kind: QuotaKind| {
        // A limit of 0 means any number.
        let limit = Some(quota.get(kind)).filter(|limit| *limit > 0);
        QuotaUseView { used: used.get(kind), own: own.get(kind).is_some(), limit }
    };
    let tenant_users = match venue.quota.tenant_users.get(owner.tenant()) {
        Some(limit) => Some(TenantUsersView { used: venue.store.tenant_users(owner.tenant()).await?, limit }),
        None => None,
    };
    Ok(QuotaView {
        owner: owner.to_string(),
        documents: of(QuotaKind::Documents),
        bytes: of(QuotaKind::Bytes),
        sessions: of(QuotaKind::Sessions),
        jobs: of(QuotaKind::Jobs),
        tenant_users,
    })
}

/// Sets limits of an owner; `None` restores the venue's.
pub async fn set_limits(venue: &Venue, owner: &Owner, limits: &[(QuotaKind, Option<u64>)]) -> Result<(), StoreError> {
    let attempt = || async {
        let doc = venue.store.doc(owner, keys::QUOTA).await?;
        let mut own = doc.value.and_then(|line| OwnLimits::decode(&line)).unwrap_or_default();
        for (kind, limit) in limits {
            *own.get_mut(*kind) = *limit;
        }
        let is_default = own == OwnLimits::default();
        let write = if is_default { DocWrite::delete(keys::QUOTA) } else { DocWrite::put(keys::QUOTA, own.encode()) };
        Ok(Edit::write([write.at_version(doc.version)], ()))
    };
    venue.store.edit(venue.now(), owner, "the quota of", owner, attempt).await
}
