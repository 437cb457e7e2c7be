//! What people see of agents elsewhere: their approved cards, a change that waits, and its approval.

use super::pins;
use super::prepare::{WantedAgent, publish, refresh as ask_agent};
use crate::domain::a2a::card::RemoteCard;
use crate::domain::a2a::name::operation_path;
use crate::domain::a2a::pin::CardPin;
use crate::domain::a2a::remote::RemoteAgent;
use crate::domain::agent::AgentRecord;
use crate::domain::ids::{AgentId, Owner};
use crate::domain::mcp::name::ServerName;
use crate::domain::visible::quote_foreign;
use crate::store::{StoreError, keys};
use crate::venue::Venue;
use crate::venue::a2a_client::KnownRemoteAgent;
use crate::venue::failure::OpError;
use crate::view::remote_agent::{
    CardChangeView, CardDifferenceView, CardSkillView, RemoteAgentDetailView, RemoteAgentView, RemoteAgentsView,
};
use std::sync::Arc;

/// An agent elsewhere that somebody names: of an agent, or of the venue.
pub struct NamedRemoteAgent(WantedAgent);

impl NamedRemoteAgent {
    /// Whether all owners share the approved card.
    pub const fn is_shared(&self) -> bool {
        self.0.key.owner.is_none()
    }

    /// Returns its settings.
    pub const fn settings(&self) -> &RemoteAgent {
        &self.0.settings
    }

    /// Returns its approved card, and asks the agent for it if nothing is stored.
    pub async fn approved_card(&self, venue: &Venue) -> Result<CardPin, OpError> {
        if let Some(pin) = pins::load(venue, &self.0.key, &self.0.settings).await? {
            return Ok(pin);
        }
        let known = self.find_known(venue)?;
        ask_agent(venue, &self.0.key, &known).await
    }

    /// Returns what this process knows of the agent.
    pub(crate) fn find_known(&self, venue: &Venue) -> Result<Arc<KnownRemoteAgent>, OpError> {
        self.0.find_known(venue).map_err(|error| OpError::Invalid(error.to_string()))
    }
}

/// Finds an agent elsewhere: one that an agent declares if the agent is named, else one of the venue.
pub async fn find_remote_agent(
    venue: &Venue,
    owner: &Owner,
    agent: Option<&AgentId>,
    name: &ServerName,
) -> Result<NamedRemoteAgent, OpError> {
    let Some(id) = agent else {
        let found = venue.catalog.a2a.find(name).map(|found| NamedRemoteAgent(WantedAgent::of_venue(owner, found)));
        return found.ok_or_else(|| {
            OpError::NotFound(format!("the venue names no A2A agent `{name}`; name the `agent` that declares it"))
        });
    };
    let record = load_agent(venue, owner, id).await?;
    let settings = record.config.a2a_agents.iter().find(|declared| declared.name == *name);
    let found = settings.map(|settings| NamedRemoteAgent(WantedAgent::of_agent(owner, &record, settings)));
    found.ok_or_else(|| OpError::NotFound(format!("agent `{id}` declares no A2A agent `{name}`")))
}

async fn load_agent(venue: &Venue, owner: &Owner, id: &AgentId) -> Result<AgentRecord, OpError> {
    let record = venue.store.get::<AgentRecord>(owner, &keys::agent(id)).await?;
    record.ok_or_else(|| OpError::NotFound(format!("there is no agent `{id}`")))
}

/// Lists the agents elsewhere of the venue, and with an agent those that it declares.
pub async fn list_remote_agents(
    venue: &Venue,
    owner: &Owner,
    agent: Option<&AgentId>,
) -> Result<RemoteAgentsView, OpError> {
    let of_venue = venue.catalog.a2a.of_venue();
    let mut wanted: Vec<_> = of_venue.map(|found| WantedAgent::of_venue(owner, found)).collect();
    if let Some(id) = agent {
        let record = load_agent(venue, owner, id).await?;
        wanted.extend(record.config.a2a_agents.iter().map(|own| WantedAgent::of_agent(owner, &record, own)));
    }
    let mut items = Vec::with_capacity(wanted.len());
    for agent in &wanted {
        let pin = pins::load(venue, &agent.key, &agent.settings).await?;
        items.push(summary(venue, agent, pin.as_ref()));
    }
    Ok(RemoteAgentsView { items })
}

/// Shows an agent elsewhere with its card and the change that waits.
pub async fn show_remote_agent(venue: &Venue, named: &NamedRemoteAgent) -> Result<RemoteAgentDetailView, StoreError> {
    let pin = pins::load(venue, &named.0.key, &named.0.settings).await?;
    Ok(detail(venue, &named.0, pin.as_ref()))
}

/// Asks an agent for its card now, and shows what was found.
pub async fn refresh(venue: &Venue, named: &NamedRemoteAgent) -> Result<RemoteAgentDetailView, OpError> {
    let known = named.find_known(venue)?;
    let pin = ask_agent(venue, &named.0.key, &known).await?;
    Ok(detail(venue, &named.0, Some(&pin)))
}

/// Approves the card of an agent that waits and has this hash.
pub async fn approve(
    venue: &Venue,
    named: &NamedRemoteAgent,
    change: &str,
    by: &str,
) -> Result<RemoteAgentDetailView, OpError> {
    let WantedAgent { key, settings, .. } = &named.0;
    let Some(pin) = pins::approve(venue, key, settings, change, by).await? else {
        return Err(OpError::Conflict(format!(
            "the A2A agent `{}` has no change `{}` that waits for approval; look at it again",
            key.name,
            quote_foreign(change)
        )));
    };
    if let Ok(known) = named.find_known(venue) {
        publish(venue, key, &known, &pin);
    }
    Ok(detail(venue, &named.0, Some(&pin)))
}

fn summary(venue: &Venue, agent: &WantedAgent, pin: Option<&CardPin>) -> RemoteAgentView {
    let known = venue.catalog.a2a.find_known(&agent.key);
    RemoteAgentView {
        name: agent.key.name.to_string(),
        agent: agent.key.agent.as_ref().map(ToString::to_string),
        url: agent.settings.url.clone(),
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
