//! What an owner keeps and may keep, as people look at it, and what operators set.

use crate::domain::ids::Owner;
use crate::domain::quota::{Kind, Own};
use crate::store::{Change, DocWrite, Expect, Standing, StoreError, Written, keys};
use crate::venue::Venue;
use serde_json::{Value, json};

/// Tries of a change that others contend.
const TRIES: u32 = 16;

/// What is used of what is allowed. `limit` is absent where any number may be kept; `own`: operators have set it.
pub async fn shown(venue: &Venue, owner: &Owner) -> Result<Value, StoreError> {
    let Standing { used, own } = venue.store.usage(owner).await?;
    let quota = venue.quota().await.of_owner(own);
    let mut shown = json!({"owner": owner.to_string()});
    for kind in Kind::ALL {
        let mut one = json!({"used": used.get(kind), "own": own.get(kind).is_some()});
        if quota.get(kind) > 0 {
            one["limit"] = quota.get(kind).into();
        }
        shown[kind.as_str()] = one;
    }
    Ok(shown)
}

/// Sets limits of an owner; `None` = as the venue says of all.
pub async fn set(venue: &Venue, owner: &Owner, limits: &[(Kind, Option<u64>)]) -> Result<(), StoreError> {
    for _ in 0..TRIES {
        let doc = venue.store.read(owner, &[keys::QUOTA.to_owned()]).await?.pop().unwrap_or_default();
        let mut own = doc.value.and_then(|line| Own::decode(&line)).unwrap_or_default();
        for (kind, limit) in limits {
            *own.at(*kind) = *limit;
        }
        let change = if own == Own::default() { Change::Delete } else { Change::Put(own.encode().into()) };
        let write = DocWrite { key: keys::QUOTA.to_owned(), expect: Expect::Version(doc.version), change };
        if venue.store.write(venue.now(), owner, &[write]).await? == Written::Done {
            return Ok(());
        }
    }
    let reason = format!("the quota of `{owner}` is being changed by others");
    Err(StoreError::Unavailable { store: "documents".into(), reason })
}
