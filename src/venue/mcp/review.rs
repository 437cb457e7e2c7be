//! What people see of servers: their approved tools, a change that waits, and its approval.

use super::login::find_login;
use crate::domain::ids::{AgentId, Owner};
use crate::domain::mcp::definition::ToolEffect;
use crate::domain::mcp::name::ServerName;
use crate::domain::mcp::pin::McpPin;
use crate::domain::place_pin::PlacePin;
use crate::venue::Venue;
use crate::venue::failure::OpError;
use crate::venue::mcp_client::McpEndpoint;
use crate::venue::pinned::{self, NamedPlace, WantedPlace};
use crate::view::mcp_server::{
    McpChangeView, McpDifferenceView, McpListedToolView, McpListedToolsView, McpServerDetailView, McpServerToolView,
    McpServerView, McpServersView, McpSkippedToolView,
};

/// A server that somebody names: of an agent, or of the venue.
pub(crate) type NamedServer = NamedPlace<McpEndpoint>;

type WantedServer = WantedPlace<McpEndpoint>;

/// Finds a server: one that an agent declares if the agent is named, else one of the venue.
pub(crate) async fn find_server(
    venue: &Venue,
    owner: &Owner,
    agent: Option<&AgentId>,
    name: &ServerName,
) -> Result<NamedServer, OpError> {
    pinned::find_place(venue, owner, agent, name).await
}

/// Lists the servers of the venue, and with an agent those that it declares.
pub(crate) async fn list_servers(
    venue: &Venue,
    owner: &Owner,
    agent: Option<&AgentId>,
) -> Result<McpServersView, OpError> {
    let listed = pinned::list_places::<McpEndpoint>(venue, owner, agent).await?;
    let mut items = Vec::with_capacity(listed.len());
    for (server, pin) in &listed {
        let login = find_login(venue, server).await?;
        items.push(McpServerView { login, ..summary(venue, server, pin.as_ref()) });
    }
    Ok(McpServersView { items })
}

/// Shows a server with its tools and the change that waits.
pub(crate) async fn show_server(venue: &Venue, named: &NamedServer) -> Result<McpServerDetailView, OpError> {
    let pin = pinned::load::<McpEndpoint>(venue, &named.0.key, &named.0.settings).await?;
    let mut shown = detail(venue, &named.0, pin.as_ref());
    shown.server.login = find_login(venue, &named.0).await?;
    Ok(shown)
}

/// Lists the approved tools of a server with their schemas.
pub(crate) async fn list_tools(venue: &Venue, named: &NamedServer) -> Result<McpListedToolsView, OpError> {
    let pin = pinned::load::<McpEndpoint>(venue, &named.0.key, &named.0.settings).await?;
    let tools = pin.map(|pin| pin.tools).unwrap_or_default().into_iter().map(|tool| McpListedToolView {
        name: tool.name,
        description: tool.description,
        input_schema: tool.input_schema,
    });
    let tools: Vec<_> = tools.collect();
    Ok(McpListedToolsView { total: tools.len(), tools })
}

/// Asks a server for its tools now, and shows what was found.
pub(crate) async fn refresh(venue: &Venue, named: &NamedServer) -> Result<McpServerDetailView, OpError> {
    let known = named.find_known(venue)?;
    let pin = pinned::refresh(venue, &named.0.key, &known).await?;
    Ok(detail(venue, &named.0, Some(&pin)))
}

/// Approves the change of a server that has this hash.
pub(crate) async fn approve(
    venue: &Venue,
    named: &NamedServer,
    change: &str,
    by: &str,
) -> Result<McpServerDetailView, OpError> {
    let WantedServer { key, settings, .. } = &named.0;
    let Some(pin) = pinned::approve::<McpEndpoint>(venue, key, settings, change, by).await? else {
        return Err(pinned::no_change::<McpEndpoint>(key, change));
    };
    if let Ok(known) = named.find_known(venue) {
        pinned::publish(venue, key, &known, &pin);
    }
    Ok(detail(venue, &named.0, Some(&pin)))
}

fn summary(venue: &Venue, server: &WantedServer, pin: Option<&McpPin>) -> McpServerView {
    let known = venue.catalog.mcp.places.find_known(&server.key);
    McpServerView {
        name: server.key.name.to_string(),
        agent: server.key.agent.as_ref().map(ToString::to_string),
        url: server.shown_url(),
        tools: pin.map_or(0, |pin| pin.tools.len()),
        approved: pin.map(|pin| pin.approved),
        approved_by: pin.map(|pin| pin.by.clone()),
        changed: pin.map_or(0, |pin| pin.pending_changes().len()),
        failure: known.and_then(|known| known.state().failure).map(|(_, reason)| reason),
        login: None,
    }
}

fn detail(venue: &Venue, server: &WantedServer, pin: Option<&McpPin>) -> McpServerDetailView {
    let effect = |effect: ToolEffect| match effect {
        ToolEffect::Read => "read",
        ToolEffect::Repeatable => "repeatable",
        ToolEffect::Once => "once",
    };
    let tools = pin.into_iter().flat_map(|pin| &pin.tools).map(|tool| McpServerToolView {
        name: tool.name.clone(),
        operation: server.settings.name.operation_path(&tool.name),
        effect: effect(tool.effect(&server.settings)).to_owned(),
        description: tool.description.clone(),
    });
    let unpublished =
        venue.catalog.mcp.places.find_known(&server.key).map(|known| known.state().facts).unwrap_or_default();
    let skipped = pin.into_iter().flat_map(|pin| pin.skipped.clone()).chain(unpublished);
    let skipped = skipped.map(|tool| McpSkippedToolView { name: tool.name, reason: tool.reason });
    McpServerDetailView {
        server: summary(venue, server, pin),
        tools: tools.collect(),
        skipped: skipped.collect(),
        change: pin.and_then(change_view),
    }
}

fn change_view(pin: &McpPin) -> Option<McpChangeView> {
    let (hash, change) = (pin.change_hash()?, pin.change.as_ref()?);
    let mut differences = Vec::new();
    for change in pin.pending_changes() {
        let one = |(key, before, after)| McpDifferenceView {
            tool: change.name().to_owned(),
            kind: change.kind().to_owned(),
            key,
            before,
            after,
        };
        differences.extend(change.differences().into_iter().map(one));
    }
    Some(McpChangeView { hash, found: change.found, differences })
}
