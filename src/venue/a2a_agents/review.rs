//! What people see of agents elsewhere: their approved cards, a change that waits, and its approval.

use crate::domain::a2a::card::RemoteCard;
use crate::domain::a2a::name::operation_path;
use crate::domain::a2a::pin::CardPin;
use crate::domain::ids::{AgentId, Owner};
use crate::domain::mcp::name::ServerName;
use crate::domain::place_pin::PlacePin;
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::a2a_client::A2aEndpoint;
use crate::venue::failure::OpError;
use crate::venue::pinned::{self, NamedPlace, WantedPlace};
use crate::view::remote_agent::{
    CardChangeView, CardDifferenceView, CardSkillView, RemoteAgentDetailView, RemoteAgentView, RemoteAgentsView,
};

/// An agent elsewhere that somebody names: of an agent, or of the venue.
pub(crate) type NamedRemoteAgent = NamedPlace<A2aEndpoint>;

type WantedAgent = WantedPlace<A2aEndpoint>;

/// Returns the approved card of an agent elsewhere, and asks the agent for it if nothing is stored.
pub(crate) async fn approved_card(venue: &Venue, named: &NamedRemoteAgent) -> Result<CardPin, OpError> {
    let WantedPlace { key, settings, .. } = &named.0;
    if let Some(pin) = pinned::load::<A2aEndpoint>(venue, key, settings).await? {
        return Ok(pin);
    }
    pinned::refresh(venue, key, &*named.find_known(venue)?).await
}

/// Finds an agent elsewhere: one that an agent declares if the agent is named, else one of the venue.
pub(crate) async fn find_remote_agent(
    venue: &Venue,
    owner: &Owner,
    agent: Option<&AgentId>,
    name: &ServerName,
) -> Result<NamedRemoteAgent, OpError> {
    pinned::find_place(venue, owner, agent, name).await
}

/// Lists the agents elsewhere of the venue, and with an agent those that it declares.
pub(crate) async fn list_remote_agents(
    venue: &Venue,
    owner: &Owner,
    agent: Option<&AgentId>,
) -> Result<RemoteAgentsView, OpError> {
    let listed = pinned::list_places::<A2aEndpoint>(venue, owner, agent).await?;
    let items = listed.iter().map(|(agent, pin)| summary(venue, agent, pin.as_ref())).collect();
    Ok(RemoteAgentsView { items })
}

/// Shows an agent elsewhere with its card and the change that waits.
pub(crate) async fn show_remote_agent(
    venue: &Venue,
    named: &NamedRemoteAgent,
) -> Result<RemoteAgentDetailView, StoreError> {
    let pin = pinned::load::<A2aEndpoint>(venue, &named.0.key, &named.0.settings).await?;
    Ok(detail(venue, &named.0, pin.as_ref()))
}

/// Asks an agent for its card now, and shows what was found.
pub(crate) async fn refresh(venue: &Venue, named: &NamedRemoteAgent) -> Result<RemoteAgentDetailView, OpError> {
    let known = named.find_known(venue)?;
    let pin = pinned::refresh(venue, &named.0.key, &known).await?;
    Ok(detail(venue, &named.0, Some(&pin)))
}

/// Approves the card of an agent that waits and has this hash.
pub(crate) async fn approve(
    venue: &Venue,
    named: &NamedRemoteAgent,
    change: &str,
    by: &str,
) -> Result<RemoteAgentDetailView, OpError> {
    let WantedAgent { key, settings, .. } = &named.0;
    let Some(pin) = pinned::approve::<A2aEndpoint>(venue, key, settings, change, by).await? else {
        return Err(pinned::no_change::<A2aEndpoint>(key, change));
    };
    if let Ok(known) = named.find_known(venue) {
        pinned::publish(venue, key, &known, &pin);
    }
    Ok(detail(venue, &named.0, Some(&pin)))
}

fn summary(venue: &Venue, agent: &WantedAgent, pin: Option<&CardPin>) -> RemoteAgentView {
    let known = venue.catalog.a2a.find_known(&agent.key);
    RemoteAgentView {
        name: agent.key.name.to_string(),
        agent: agent.key.agent.as_ref().map(ToString::to_string),
        url: agent.shown_url(),
        operation: operation_path(&agent.key.name),
        approved: pin.map(|pin| pin.approved),
        approved_by: pin.map(|pin| pin.by.clone()),
        changed: pin.is_some_and(|pin| pin.change.is_some()),
        failure: known.and_then(|known| known.state().failure).map(|(_, reason)| reason),
    }
}

fn detail(venue: &Venue, agent: &WantedAgent, pin: Option<&CardPin>) -> RemoteAgentDetailView {
    let card = pin.and_then(|pin| RemoteCard::read(&pin.card).ok());
    let skills = card.as_ref().map(|card| card.skills.as_slice()).unwrap_or_default().iter();
    let skills = skills.filter(|skill| agent.settings.shows(&skill.id));
    let addresses = card.as_ref().map(|card| card.interfaces.as_slice()).unwrap_or_default().iter();
    RemoteAgentDetailView {
        agent: summary(venue, agent, pin),
        title: card.as_ref().map(|card| card.name.clone()),
        description: card.as_ref().map(|card| card.description.clone()),
        skills: skills
            .map(|skill| CardSkillView { id: skill.id.clone(), description: skill.description.clone() })
            .collect(),
        addresses: addresses.map(|address| address.url.clone()).collect(),
        change: pin.and_then(change_view),
    }
}

fn change_view(pin: &CardPin) -> Option<CardChangeView> {
    let (hash, change) = (pin.change_hash()?, pin.change.as_ref()?);
    let differences = pin.differences().into_iter();
    let differences =
        differences.map(|one| CardDifferenceView { key: one.key, before: one.before, after: one.after }).collect();
    Some(CardChangeView { hash, found: change.found, differences })
}
