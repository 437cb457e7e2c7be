//! What people should know of the places that an agent declares, before their first use.

use super::prepare::PinnedPlace;
use crate::domain::agent::AgentConfig;
use crate::domain::ids::Owner;
use crate::store::{StoreError, keys};
use crate::venue::Venue;

/// Returns one line for each reason why a place that an agent declares can't be used now: its settings are wrong, its host
/// isn't allowed, or a secret isn't stored.
///
/// # Errors
/// The store can't be read.
pub(crate) async fn place_warnings<E: PinnedPlace>(
    venue: &Venue,
    owner: &Owner,
    config: &AgentConfig,
) -> Result<Vec<String>, StoreError> {
    let mut found = Vec::new();
    for (at, settings) in E::list_declared(config).iter().enumerate() {
        let place = format!("`{}[{at}]`", E::SETTING);
        match E::open(settings.clone()) {
            Ok(endpoint) => {
                let refused = venue.catalog.hosts.check(endpoint.place_url()).err();
                found.extend(refused.map(|error| format!("{place}: {error}")));
            }
            Err(error) => found.push(format!("{place}: {error}")),
        }
        for name in E::secrets_of(settings) {
            if venue.store.doc(owner, &keys::secret(name)).await?.value.is_none() {
                let (path, offer) = (name.path(), E::OFFER);
                found.push(format!(
                    "{place}: no secret `{path}`: `trellis secret set {name}` stores it; until then it has no {offer}"
                ));
            }
        }
    }
    Ok(found)
}
