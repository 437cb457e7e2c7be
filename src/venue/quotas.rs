//! Quota of an owner and what is used of it, for people; and the limits that operators set.

use crate::domain::ids::Owner;
use crate::domain::quota::{OwnLimits, QuotaKind};
use crate::store::{DocWrite, Edit, OwnerUsage, StoreError, keys};
use crate::venue::Venue;
use serde_json::{Value, json};

/// Returns what is used of each limit. `limit` is absent if any number may be kept; `own` says that operators have set
/// it.
pub async fn usage_json(venue: &Venue, owner: &Owner) -> Result<Value, StoreError> {
    let OwnerUsage { used, operator_quota: own } = venue.store.usage(owner).await?;
    let quota = venue.quota().await.with_own(own);
    let mut shown = json!({"owner": owner.to_string()});
    for kind in QuotaKind::ALL {
        let mut one = json!({"used": used.get(kind), "own": own.get(kind).is_some()});
        if quota.get(kind) > 0 {
            one["limit"] = quota.get(kind).into();
        }
        shown[kind.as_str()] = one;
    }
    Ok(shown)
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
    venue.store.edit(venue.now(), owner, ("the quota of", owner), attempt).await
}
