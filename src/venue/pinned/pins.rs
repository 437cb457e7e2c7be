//! What is approved of places, in the store.

use super::prepare::PinnedPlace;
use crate::domain::place_pin::PlacePin;
use crate::domain::visible::quote_foreign;
use crate::store::{DocWrite, Edit, StoreError};
use crate::venue::Venue;
use crate::venue::failure::OpError;
use crate::venue::places::PlaceKey;

/// Returns what is approved of a place, as long as it is of the place that the settings name.
///
/// # Errors
/// The store can't be read.
pub(crate) async fn load<E: PinnedPlace>(
    venue: &Venue,
    key: &PlaceKey,
    settings: &E::Settings,
) -> Result<Option<E::Pin>, StoreError> {
    let found = venue.store.get::<E::Pin>(&key.keeper(), &E::doc_key(key)).await?;
    Ok(found.filter(|pin| pin.is_of(settings)))
}

/// Approves the change that waits and has this hash; `None` if there is no such one.
///
/// # Errors
/// The store can't be changed.
pub(crate) async fn approve<E: PinnedPlace>(
    venue: &Venue,
    key: &PlaceKey,
    settings: &E::Settings,
    change: &str,
    by: &str,
) -> Result<Option<E::Pin>, StoreError> {
    let (owner, place) = (key.keeper(), E::doc_key(key));
    let attempt = || async {
        let (before, version) = venue.store.get_versioned::<E::Pin>(&owner, &place).await?;
        let waiting = before.filter(|pin| pin.is_of(settings) && pin.change_hash().as_deref() == Some(change));
        let Some(pin) = waiting else { return Ok(Edit::without_writes(None)) };
        let pin = pin.approve(by, venue.now());
        let write = DocWrite::json(place.as_str(), &pin).at_version(version);
        Ok::<_, StoreError>(Edit::write([write], Some(pin)))
    };
    venue.store.edit(venue.now(), &owner, E::WHAT, &key.name, attempt).await
}

/// Returns the error for a change that doesn't wait.
pub(crate) fn no_change<E: PinnedPlace>(key: &PlaceKey, change: &str) -> OpError {
    OpError::Conflict(format!(
        "the {} `{}` has no change `{}` that waits for approval; look at it again",
        E::WHAT,
        key.name,
        quote_foreign(change)
    ))
}
