//! The approved cards of agents elsewhere in the store.

use crate::domain::a2a::pin::CardPin;
use crate::domain::a2a::remote::RemoteAgent;
use crate::domain::ids::Owner;
use crate::store::{DocWrite, Edit, StoreError, keys};
use crate::venue::a2a_client::RemoteAgentKey;
use crate::venue::{Venue, venue_owner};
use serde_json::Value;

/// Returns the owner in whose documents an approved card is.
fn keeper(key: &RemoteAgentKey) -> Owner {
    key.owner.clone().unwrap_or_else(venue_owner)
}

fn doc_key(key: &RemoteAgentKey) -> String {
    keys::card_pin(key.agent.as_ref(), &key.name)
}

/// Returns the approved card of an agent, as long as it is of the place that the settings name.
pub(super) async fn load(
    venue: &Venue,
    key: &RemoteAgentKey,
    settings: &RemoteAgent,
) -> Result<Option<CardPin>, StoreError> {
    let found = venue.store.get::<CardPin>(&keeper(key), &doc_key(key)).await?;
    Ok(found.filter(|pin| pin.is_of(settings)))
}

/// Compares a card with the approved one, and stores what has changed. The first card is approved as it is.
pub(super) async fn compare(
    venue: &Venue,
    key: &RemoteAgentKey,
    settings: &RemoteAgent,
    card: &Value,
) -> Result<CardPin, StoreError> {
    let (owner, place, quota) = (keeper(key), doc_key(key), venue.quota().await);
    let attempt = || async {
        let (before, version) = venue.store.get_versioned::<CardPin>(&owner, &place).await?;
        let now = venue.now();
        let pin = match before.clone().filter(|pin| pin.is_of(settings)) {
            Some(pin) => pin.with_card(card, now),
            None => CardPin::first(settings, card, now),
        };
        if before.as_ref() == Some(&pin) {
            return Ok(Edit::without_writes(pin));
        }
        let write = DocWrite::json(place.as_str(), &pin).at_version(version);
        Ok::<_, StoreError>(Edit::write([write], pin).with_quota(quota))
    };
    venue.store.edit(venue.now(), &owner, "A2A agent", &key.name, attempt).await
}

/// Approves the card that waits and has this hash; `None` if there is no such one.
pub(super) async fn approve(
    venue: &Venue,
    key: &RemoteAgentKey,
    settings: &RemoteAgent,
    change: &str,
    by: &str,
) -> Result<Option<CardPin>, StoreError> {
    let (owner, place) = (keeper(key), doc_key(key));
    let attempt = || async {
        let (before, version) = venue.store.get_versioned::<CardPin>(&owner, &place).await?;
        let waiting = before.filter(|pin| pin.is_of(settings) && pin.change_hash().as_deref() == Some(change));
        let Some(pin) = waiting else { return Ok(Edit::without_writes(None)) };
        let pin = pin.approve(by, venue.now());
        let write = DocWrite::json(place.as_str(), &pin).at_version(version);
        Ok::<_, StoreError>(Edit::write([write], Some(pin)))
    };
    venue.store.edit(venue.now(), &owner, "A2A agent", &key.name, attempt).await
}
