//! What people should know of an agent's agents elsewhere before their first use.

use crate::domain::agent::AgentConfig;
use crate::domain::ids::Owner;
use crate::store::{StoreError, keys};
use crate::venue::Venue;
use crate::venue::a2a_client::A2aEndpoint;

/// Returns one line for each reason why an agent elsewhere that an agent declares can't be used now: its host isn't
/// allowed, a key is none, or a secret isn't stored.
///
/// # Errors
/// The store can't be read.
pub async fn agent_warnings(venue: &Venue, owner: &Owner, config: &AgentConfig) -> Result<Vec<String>, StoreError> {
    let mut found = Vec::new();
    for (at, agent) in config.a2a_agents.iter().enumerate() {
        match A2aEndpoint::of_agent(agent.clone()) {
            Ok(endpoint) => {
                let refused = venue.catalog.hosts.check(endpoint.card_url()).err();
                found.extend(refused.map(|error| format!("`a2aAgents[{at}]`: {error}")));
            }
            Err(error) => found.push(format!("`a2aAgents[{at}]`: {error}")),
        }
        for name in agent.secrets() {
            if venue.store.doc(owner, &keys::secret(name)).await?.value.is_none() {
                let path = name.path();
                found.push(format!(
                    "`a2aAgents[{at}]`: no secret `{path}`: `trellis secret set {name}` stores it; until then it has no tool"
                ));
            }
        }
    }
    Ok(found)
}
