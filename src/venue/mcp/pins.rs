//! The approved definitions of a server, compared with a later list.

use crate::domain::limits::MCP_PIN_BYTES;
use crate::domain::mcp::pin::McpPin;
use crate::domain::mcp::revision::ProtocolEra;
use crate::domain::place_pin::PlacePin;
use crate::store::{DocWrite, Edit};
use crate::venue::Venue;
use crate::venue::failure::OpError;
use crate::venue::mcp_client::{McpEndpoint, ToolListing};
use crate::venue::pinned::PinnedPlace;
use crate::venue::places::{KnownPlace, PlaceKey};

/// Compares a list with the approved definitions, and stores what has changed. The first list is approved as it is.
pub(super) async fn compare(
    venue: &Venue,
    key: &PlaceKey,
    known: &KnownPlace<McpEndpoint>,
    listing: &ToolListing,
) -> Result<McpPin, OpError> {
    let settings = known.endpoint.settings();
    let (owner, place, quota) = (key.keeper(), McpEndpoint::doc_key(key), venue.quota().await);
    let handshake = known.endpoint.era() == Some(ProtocolEra::Handshake);
    let had_tools = known.state().published.is_some();
    let attempt = || async {
        let (before, version) = venue.store.get_versioned::<McpPin>(&owner, &place).await?;
        if !before.as_ref().map_or(!had_tools, |pin| pin.is_of(settings)) {
            let why = before.as_ref().map_or("is lost", |_| "was of another place");
            tracing::warn!(server = %key.name, "what was approved of an MCP server {why}: it counts as it is now");
        }
        let (now, tools, skipped) = (venue.now(), listing.tools.clone(), listing.skipped.clone());
        let pin = match before.clone().filter(|pin| pin.is_of(settings)) {
            Some(pin) => pin.with_list(settings, tools, skipped, now),
            None => McpPin::pin_first(settings, tools, skipped, now),
        };
        let pin = McpPin { handshake, with_tasks: listing.with_tasks.clone(), ..pin };
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
    venue.store.edit(venue.now(), &owner, McpEndpoint::WHAT, &key.name, attempt).await
}
