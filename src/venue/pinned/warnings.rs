//! What people should know of the places that an agent declares, before their first use.

use super::prepare::PinnedPlace;
use crate::domain::agent::AgentConfig;
use crate::domain::ids::Owner;
use crate::store::{StoreError, keys};
use crate::venue::Venue;

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
            if venue.store.doc(owner, &keys::secret(name)).await?.value.is_none() {
                let (setting, path, offer) = (E::SETTING, name.path(), E::OFFER);
                found.push(format!(
                    "`{setting}[{at}]`: no secret `{path}`: `trellis secret set {name}` stores it; until then it has no \
                     {offer}"
                ));
            }
        }
    }
    Ok(found)
}
