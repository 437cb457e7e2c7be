//! Records of the venue and of tenants that can't be read: they are reset, because the work of many owners depends on
//! them.

use crate::domain::ids::Owner;
use crate::domain::losses::{Loss, Losses};
use crate::store::{DocKey, DocWrite, StoreError, keys};
use crate::venue::{Venue, venue_owner};
use serde::de::DeserializeOwned;

/// Changes these documents of the venue's or a tenant's own owner. If some can't be read, they are deleted and the change
/// is made again.
pub async fn change_or_reset<D: DeserializeOwned, T, F: Future<Output = Result<T, StoreError>> + Send>(
    venue: &Venue,
    owner: &Owner,
    documents: &[DocKey],
    change: impl Fn() -> F + Send + Sync,
) -> Result<T, StoreError> {
    match change().await {
        Err(StoreError::Corrupt { .. }) if reset_damaged::<D>(venue, owner, documents).await? => change().await,
        outcome => outcome,
    }
}

/// Deletes those of these documents that can't be read, and reports the loss to operators. Returns whether there were
/// any.
async fn reset_damaged<T: DeserializeOwned>(
    venue: &Venue,
    owner: &Owner,
    documents: &[DocKey],
) -> Result<bool, StoreError> {
    let now = venue.now();
    let mut is_any = false;
    for key in documents {
        let error = match venue.store.get::<T>(owner, key).await {
            Ok(_) => continue,
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => error,
        };
        tracing::error!(%owner, "`{key}` can't be read; it begins anew: {error}");
        let loss = Loss {
            owner: owner.clone(),
            acknowledged: now,
            kind: "records of limits".to_owned(),
            what: format!("what was counted in `{key}`"),
            lost: Some("it could not be read, and counts from nothing again".to_owned()),
            change: None,
        };
        let told = Losses::split(now, key, vec![loss], Vec::new());
        let told = told.iter().map(|part| DocWrite::json(keys::losses(now, &key.replace('/', "-")), part));
        let told: Vec<_> = told.collect();
        // After a crash in between it is reported once more.
        venue.store.write(now, &venue_owner(), &told).await?;
        venue.store.write(now, owner, &[DocWrite::delete(key.clone())]).await?;
        is_any = true;
    }
    Ok(is_any)
}
