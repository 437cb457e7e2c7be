//! What people should know of an agent's servers before their first use.

use crate::domain::agent::AgentConfig;
use crate::domain::ids::Owner;
use crate::store::{StoreError, keys};
use crate::venue::Venue;
use crate::venue::mcp_client::McpEndpoint;

/// Returns one line for each reason why a server that an agent declares can't be used now: its host isn't allowed, or a
/// secret isn't stored.
///
/// # Errors
/// The store can't be read.
pub async fn server_warnings(venue: &Venue, owner: &Owner, config: &AgentConfig) -> Result<Vec<String>, StoreError> {
    let mut found = Vec::new();
    for (at, server) in config.mcp.iter().enumerate() {
        match McpEndpoint::of_agent(server.clone()) {
            Ok(endpoint) => {
                let refused = venue.catalog.hosts.check(endpoint.url()).err();
                found.extend(refused.map(|error| format!("`mcp[{at}]`: {error}")));
            }
            Err(error) => found.push(format!("`mcp[{at}]`: {error}")),
        }
        for name in server.secrets() {
            if venue.store.doc(owner, &keys::secret(name)).await?.value.is_none() {
                let path = name.path();
                found.push(format!(
                    "`mcp[{at}]`: no secret `{path}`: `trellis secret set {name}` stores it; until then it has no tools"
                ));
            }
        }
    }
    Ok(found)
}
