//! What places elsewhere offer, of all kinds: tools of servers, and agents. It is published before a turn or a call that
//! may name it.

use crate::domain::agent::{AgentConfig, AgentRecord};
use crate::domain::ids::Owner;
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::a2a_client::A2aEndpoint;
use crate::venue::mcp_client::McpEndpoint;
use crate::venue::pinned::{self, PinnedPlace, missing_place_secrets, refused_places};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Whether a path names an operation of a place elsewhere.
pub fn is_outside(path: &str) -> bool {
    McpEndpoint::name_in(path).is_some() || A2aEndpoint::name_in(path).is_some()
}

/// Publishes what a turn of an agent may use: of the places that it declares, and of those of the venue that its
/// configuration, or its session by `found`, names. A place that fails costs the turn its own tools alone.
///
/// # Errors
/// The store can't be read.
pub async fn prepare_turn(
    venue: &Arc<Venue>,
    owner: &Owner,
    agent: &AgentRecord,
    found: &[String],
) -> Result<(), StoreError> {
    pinned::prepare_turn::<McpEndpoint>(venue, owner, agent, found).await?;
    pinned::prepare_turn::<A2aEndpoint>(venue, owner, agent, found).await
}

/// Publishes the same for somebody who only looks: no place is asked.
///
/// # Errors
/// The store can't be read.
pub async fn prepare_preview(
    venue: &Venue,
    owner: &Owner,
    agent: &AgentRecord,
    found: &[String],
) -> Result<(), StoreError> {
    pinned::prepare_preview::<McpEndpoint>(venue, owner, agent, found).await?;
    pinned::prepare_preview::<A2aEndpoint>(venue, owner, agent, found).await
}

/// Publishes what the venue's place offers that a path names, for a caller outside turns.
///
/// # Errors
/// The store can't be read.
pub async fn prepare_path(venue: &Venue, owner: &Owner, path: &str) -> Result<(), StoreError> {
    pinned::prepare_path::<McpEndpoint>(venue, owner, path).await?;
    pinned::prepare_path::<A2aEndpoint>(venue, owner, path).await
}

/// Publishes what is stored of the venue's place that a path names, for a caller outside turns: a place is asked by those
/// who may call it. Returns whether there is such a place.
///
/// # Errors
/// The store can't be read.
pub async fn prepare_stored(venue: &Venue, owner: &Owner, path: &str) -> Result<bool, StoreError> {
    Ok(pinned::prepare_stored::<McpEndpoint>(venue, owner, path).await?
        || pinned::prepare_stored::<A2aEndpoint>(venue, owner, path).await?)
}

/// Returns one line for each place that an agent declares and the venue doesn't call.
pub fn refused_peers(venue: &Venue, config: &AgentConfig) -> Vec<String> {
    let mut found = refused_places::<McpEndpoint>(venue, config);
    found.extend(refused_places::<A2aEndpoint>(venue, config));
    found
}

/// Returns one line for each secret of such a place that isn't stored.
///
/// # Errors
/// The store can't be read.
pub async fn missing_secrets(venue: &Venue, owner: &Owner, config: &AgentConfig) -> Result<Vec<String>, StoreError> {
    let mut found = missing_place_secrets::<McpEndpoint>(venue, owner, config).await?;
    found.extend(missing_place_secrets::<A2aEndpoint>(venue, owner, config).await?);
    Ok(found)
}

/// Keeps what the places offer that all owners share published, until the process ends.
pub async fn watch(venue: Arc<Venue>, ending: CancellationToken) {
    let agents = pinned::watch::<A2aEndpoint>(Arc::clone(&venue), ending.clone());
    tokio::join!(pinned::watch::<McpEndpoint>(venue, ending), agents);
}
