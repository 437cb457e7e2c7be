//! What people should know of the places that an agent declares, before their first use.

use super::prepare::PinnedPlace;
use crate::domain::agent::AgentConfig;
use crate::domain::ids::Owner;
use crate::store::StoreError;
use crate::venue::{Venue, secrets};

/// Returns one line for each place of a configuration whose settings are wrong, or whose host the venue doesn't allow.
pub(crate) fn refused_places<E: PinnedPlace>(venue: &Venue, config: &AgentConfig) -> Vec<String> {
    let places = E::list_declared(config).iter().enumerate();
    let fault = |settings: &E::Settings| match E::open(settings.clone()) {
        Ok(endpoint) => venue.catalog.hosts.check(endpoint.place_url()).err().map(|error| error.to_string()),
        Err(error) => Some(error.to_string()),
    };
    places.filter_map(|(at, settings)| Some(format!("`{}[{at}]`: {}", E::SETTING, fault(settings)?))).collect()
}

/// Returns one line for each secret of a place that isn't stored.
///
/// # Errors
/// The store can't be read.
pub(crate) async fn missing_place_secrets<E: PinnedPlace>(
    venue: &Venue,
    owner: &Owner,
    config: &AgentConfig,
) -> Result<Vec<String>, StoreError> {
    let mut found = Vec::new();
    for (at, settings) in E::list_declared(config).iter().enumerate() {
        for name in E::secrets_of(settings) {
            let missing = secrets::describe_missing(&*venue.store, owner, name).await?;
            found
                .extend(missing.map(|why| format!("`{}[{at}]`: {why}; until then it has no {}", E::SETTING, E::OFFER)));
        }
    }
    Ok(found)
}
