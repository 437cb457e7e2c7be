//! The approved definitions of servers in the store.

use crate::domain::ids::Owner;
use crate::domain::limits::MCP_PIN_BYTES;
use crate::domain::mcp::pin::McpPin;
use crate::domain::mcp::revision::ProtocolEra;
use crate::domain::mcp::server::McpServer;
use crate::store::{DocWrite, Edit, StoreError, keys};
use crate::venue::failure::OpError;
use crate::venue::mcp_client::{KnownServer, ServerKey, ToolListing};
use crate::venue::{Venue, venue_owner};

/// Returns the owner in whose documents a server's approved definitions are.
fn keeper(key: &ServerKey) -> Owner {
    key.owner.clone().unwrap_or_else(venue_owner)
}

fn doc_key(key: &ServerKey) -> String {
    keys::mcp_pin(key.agent.as_ref(), &key.server)
}

/// Returns the approved definitions of a server, as long as they are of the place that the settings name.
pub(super) async fn load(venue: &Venue, key: &ServerKey, settings: &McpServer) -> Result<Option<McpPin>, StoreError> {
    let found = venue.store.get::<McpPin>(&keeper(key), &doc_key(key)).await?;
    Ok(found.filter(|pin| pin.is_of(settings)))
}

/// Compares a list with the approved definitions, and stores what has changed. The first list is approved as it is.
pub(super) async fn compare(
    venue: &Venue,
    key: &ServerKey,
    known: &KnownServer,
    listing: &ToolListing,
) -> Result<McpPin, OpError> {
    let settings = known.endpoint.settings();
    let (owner, place, quota) = (keeper(key), doc_key(key), venue.quota().await);
    let handshake = known.endpoint.era() == Some(ProtocolEra::Handshake);
    let had_tools = known.state().published.is_some();
    let attempt = || async {
        let (before, version) = venue.store.get_versioned::<McpPin>(&owner, &place).await?;
        if !before.as_ref().map_or(!had_tools, |pin| pin.is_of(settings)) {
            let why = before.as_ref().map_or("is lost", |_| "was of another place");
            tracing::warn!(server = %key.server, "what was approved of an MCP server {why}: it counts as it is now");
        }
        let (now, tools, skipped) = (venue.now(), listing.tools.clone(), listing.skipped.clone());
        let pin = match before.clone().filter(|pin| pin.is_of(settings)) {
            Some(pin) => pin.with_list(settings, tools, skipped, now),
            None => McpPin::first(settings, tools, skipped, now),
        };
        let pin = McpPin { handshake, ..pin };
        if before.as_ref() == Some(&pin) {
            return Ok(Edit::without_writes(pin));
        }
        let write = DocWrite::json(place.as_str(), &pin);
        let bytes = write.bytes();
        if bytes > MCP_PIN_BYTES {
            return Err(OpError::Limit(format!(
                "the definitions of its tools take {bytes} bytes, expected at most {MCP_PIN_BYTES}; name those that are \
                 used in its `tools`"
            )));
        }
        Ok(Edit::write([write.at_version(version)], pin).with_quota(quota))
    };
    venue.store.edit(venue.now(), &owner, "MCP server", &key.server, attempt).await
}

/// Approves the change of a server that has this hash; `None` if there is no such change.
pub(super) async fn approve(
    venue: &Venue,
    key: &ServerKey,
    settings: &McpServer,
    change: &str,
    by: &str,
) -> Result<Option<McpPin>, StoreError> {
    let (owner, place) = (keeper(key), doc_key(key));
    let attempt = || async {
        let (before, version) = venue.store.get_versioned::<McpPin>(&owner, &place).await?;
        let meant = before.filter(|pin| pin.is_of(settings) && pin.change_hash().as_deref() == Some(change));
        let Some(pin) = meant else { return Ok(Edit::without_writes(None)) };
        let pin = pin.approve(by, venue.now());
        let write = DocWrite::json(place.as_str(), &pin).at_version(version);
        Ok::<_, StoreError>(Edit::write([write], Some(pin)))
    };
    venue.store.edit(venue.now(), &owner, "MCP server", &key.server, attempt).await
}
