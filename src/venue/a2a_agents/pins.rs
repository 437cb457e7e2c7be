//! The approved card of an agent elsewhere, compared with a later one.

use crate::domain::a2a::pin::CardPin;
use crate::domain::a2a::remote::RemoteAgent;
use crate::domain::place_pin::PlacePin;
use crate::store::{DocWrite, Edit, StoreError};
use crate::venue::Venue;
use crate::venue::a2a_client::A2aEndpoint;
use crate::venue::pinned::PinnedPlace;
use crate::venue::places::PlaceKey;
use serde_json::Value;

/// Compares a card with the approved one, and stores what has changed. The first card is approved as it is.
pub(super) async fn compare(
    venue: &Venue,
    key: &PlaceKey,
    settings: &RemoteAgent,
    card: &Value,
) -> Result<CardPin, StoreError> {
    let (owner, place, quota) = (key.keeper(), A2aEndpoint::doc_key(key), venue.quota().await);
    let attempt = || async {
        let (before, version) = venue.store.get_versioned::<CardPin>(&owner, &place).await?;
        let now = venue.now();
        let pin = match before.clone().filter(|pin| pin.is_of(settings)) {
            Some(pin) => pin.with_card(card, now),
            None => CardPin::pin_first(settings, card, now),
        };
        if before.as_ref() == Some(&pin) {
            return Ok(Edit::without_writes(pin));
        }
        let write = DocWrite::json(place.as_str(), &pin).at_version(version);
        Ok::<_, StoreError>(Edit::write([write], pin).with_quota(quota))
    };
    venue.store.edit(venue.now(), &owner, A2aEndpoint::WHAT, &key.name, attempt).await
}
