//! Places that somebody wants to use: of an agent, or of the venue.

use super::prepare::PinnedPlace;
use crate::domain::agent::AgentRecord;
use crate::domain::ids::{AgentId, Owner};
use crate::domain::mcp::name::ServerName;
use crate::store::{keys, skip_damaged};
use crate::venue::Venue;
use crate::venue::failure::OpError;
use crate::venue::places::{KnownPlace, PlaceKey, VenuePlace};
use std::sync::Arc;

/// A place that somebody wants to use, with its settings and, if the venue names it, its endpoint.
pub(crate) struct WantedPlace<E: PinnedPlace> {
    pub(crate) key: PlaceKey,
    pub(crate) settings: E::Settings,
    endpoint: Option<Arc<E>>,
}

impl<E: PinnedPlace> WantedPlace<E> {
    /// Returns a place that an agent has declared.
    pub(crate) fn of_agent(owner: &Owner, agent: &AgentRecord, settings: &E::Settings) -> Self {
        let name = E::name_of(settings).clone();
        let key = PlaceKey { owner: Some(owner.clone()), agent: Some(agent.id.clone()), name };
        Self { key, settings: settings.clone(), endpoint: None }
    }

    /// Returns a place that the venue names, as an owner uses it.
    pub(crate) fn of_venue(owner: &Owner, place: &VenuePlace<E>) -> Self {
        let settings = place.endpoint.place_settings().clone();
        let owner = (!place.is_shared).then(|| owner.clone());
        let key = PlaceKey { owner, agent: None, name: E::name_of(&settings).clone() };
        Self { key, settings, endpoint: Some(Arc::clone(&place.endpoint)) }
    }

    /// Returns the URL of the place as owners see it. That of a place of the venue may hold a key of the venue, and so may
    /// the arguments of a program: of those only the host or the program is shown.
    pub(crate) fn shown_url(&self) -> String {
        let url = E::url_of(&self.settings);
        if self.key.agent.is_some() {
            return url.to_owned();
        }
        let place = url.split(' ').next().unwrap_or_default();
        let Some((scheme, rest)) = place.split_once("://") else { return place.to_owned() };
        let host = rest.split(['/', '?']).next().unwrap_or_default();
        format!("{scheme}://{host}")
    }

    /// Returns what this process knows of the place.
    pub(crate) fn find_known(&self, venue: &Venue) -> Result<Arc<KnownPlace<E>>, E::Error> {
        E::places(venue).open_known(&self.key, &self.settings, || match &self.endpoint {
            Some(endpoint) => Ok(Arc::clone(endpoint)),
            None => E::open(self.settings.clone()).map(Arc::new),
        })
    }
}

/// A place that somebody names.
pub(crate) struct NamedPlace<E: PinnedPlace>(pub(crate) WantedPlace<E>);

impl<E: PinnedPlace> NamedPlace<E> {
    /// Whether all owners share what is approved.
    pub const fn is_shared(&self) -> bool {
        self.0.key.owner.is_none()
    }

    /// Returns its settings.
    pub const fn settings(&self) -> &E::Settings {
        &self.0.settings
    }

    /// Returns what this process knows of the place.
    pub(crate) fn find_known(&self, venue: &Venue) -> Result<Arc<KnownPlace<E>>, OpError> {
        self.0.find_known(venue).map_err(|error| OpError::Invalid(error.to_string()))
    }
}

/// Finds a place: one that an agent declares if the agent is named, else one of the venue.
///
/// # Errors
/// There is none of the name; the store can't be read.
pub(crate) async fn find_place<E: PinnedPlace>(
    venue: &Venue,
    owner: &Owner,
    agent: Option<&AgentId>,
    name: &ServerName,
) -> Result<NamedPlace<E>, OpError> {
    let what = E::WHAT;
    let Some(id) = agent else {
        let found = E::places(venue).find(name).map(|place| NamedPlace(WantedPlace::of_venue(owner, place)));
        return found.ok_or_else(|| {
            OpError::NotFound(format!("the venue names no {what} `{name}`; name the `agent` that declares it"))
        });
    };
    let record = load_agent(venue, owner, id).await?;
    let settings = E::list_declared(&record.config).iter().find(|declared| E::name_of(declared) == name);
    let found = settings.map(|settings| NamedPlace(WantedPlace::of_agent(owner, &record, settings)));
    found.ok_or_else(|| OpError::NotFound(format!("agent `{id}` declares no {what} `{name}`")))
}

/// Lists the places of the venue, and with an agent those that it declares, each with what is approved of it. One whose
/// approvals are damaged is left out.
///
/// # Errors
/// There is no such agent; the store can't be read.
pub(crate) async fn list_places<E: PinnedPlace>(
    venue: &Venue,
    owner: &Owner,
    agent: Option<&AgentId>,
) -> Result<Vec<(WantedPlace<E>, Option<E::Pin>)>, OpError> {
    let mut wanted: Vec<_> =
        E::places(venue).of_venue().map(|place| WantedPlace::<E>::of_venue(owner, place)).collect();
    if let Some(id) = agent {
        let record = load_agent(venue, owner, id).await?;
        let declared = E::list_declared(&record.config).iter();
        wanted.extend(declared.map(|settings| WantedPlace::of_agent(owner, &record, settings)));
    }
    let mut listed = Vec::with_capacity(wanted.len());
    for place in wanted {
        let pin = super::pins::load::<E>(venue, &place.key, &place.settings).await;
        let pin = skip_damaged(&place.key.keeper(), &E::doc_key(&place.key), pin)?;
        listed.extend(pin.map(|pin| (place, pin)));
    }
    Ok(listed)
}

async fn load_agent(venue: &Venue, owner: &Owner, id: &AgentId) -> Result<AgentRecord, OpError> {
    let record = venue.store.get::<AgentRecord>(owner, &keys::agent(id)).await?;
    record.ok_or_else(|| OpError::NotFound(format!("there is no agent `{id}`")))
}
