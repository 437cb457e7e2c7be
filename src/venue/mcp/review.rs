//! What people see of servers: their approved tools, a change that waits, and its approval.

use super::pins;
use super::prepare::{WantedServer, publish, refresh as ask_server};
use crate::domain::agent::AgentRecord;
use crate::domain::ids::{AgentId, Owner};
use crate::domain::mcp::definition::ToolEffect;
use crate::domain::mcp::name::ServerName;
use crate::domain::mcp::pin::McpPin;
use crate::domain::visible::quote_foreign;
use crate::store::keys;
use crate::venue::Venue;
use crate::venue::failure::OpError;
use crate::view::mcp_server::{
    McpChangeView, McpDifferenceView, McpListedToolView, McpListedToolsView, McpServerDetailView, McpServerToolView,
    McpServerView, McpServersView, McpSkippedToolView,
};

/// A server that somebody names: of an agent, or of the venue.
pub struct NamedServer(WantedServer);

impl NamedServer {
    /// Whether all owners share the server's approved tools.
    pub const fn is_shared(&self) -> bool {
        self.0.key.owner.is_none()
    }
}

/// Finds a server: one that an agent declares if the agent is named, else one of the venue.
pub async fn find_server(
    venue: &Venue,
    owner: &Owner,
    agent: Option<&AgentId>,
    name: &ServerName,
) -> Result<NamedServer, OpError> {
    let Some(id) = agent else {
        let found = venue.catalog.mcp.find(name).map(|server| NamedServer(WantedServer::of_venue(owner, server)));
        return found.ok_or_else(|| {
            OpError::NotFound(format!("the venue names no MCP server `{name}`; name the `agent` whose server is meant"))
        });
    };
    let record = load_agent(venue, owner, id).await?;
    let settings = record.config.mcp.iter().find(|server| server.name == *name);
    let found = settings.map(|settings| NamedServer(WantedServer::of_agent(owner, &record, settings)));
    found.ok_or_else(|| OpError::NotFound(format!("agent `{id}` declares no MCP server `{name}`")))
}

async fn load_agent(venue: &Venue, owner: &Owner, id: &AgentId) -> Result<AgentRecord, OpError> {
    let record = venue.store.get::<AgentRecord>(owner, &keys::agent(id)).await?;
    record.ok_or_else(|| OpError::NotFound(format!("there is no agent `{id}`")))
}

/// Lists the servers of the venue, and with an agent those that it declares.
pub async fn list_servers(venue: &Venue, owner: &Owner, agent: Option<&AgentId>) -> Result<McpServersView, OpError> {
    let of_venue = venue.catalog.mcp.of_venue();
    let mut wanted: Vec<_> = of_venue.map(|server| WantedServer::of_venue(owner, server)).collect();
    if let Some(id) = agent {
        let record = load_agent(venue, owner, id).await?;
        wanted.extend(record.config.mcp.iter().map(|settings| WantedServer::of_agent(owner, &record, settings)));
    }
    let mut items = Vec::with_capacity(wanted.len());
    for server in &wanted {
        let pin = pins::load(venue, &server.key, &server.settings).await?;
        items.push(summary(venue, server, pin.as_ref()));
    }
    Ok(McpServersView { items })
}

/// Shows a server with its tools and the change that waits.
pub async fn show_server(venue: &Venue, named: &NamedServer) -> Result<McpServerDetailView, OpError> {
    let pin = pins::load(venue, &named.0.key, &named.0.settings).await?;
    Ok(detail(venue, &named.0, pin.as_ref()))
}

/// Lists the approved tools of a server with their schemas.
pub async fn list_tools(venue: &Venue, named: &NamedServer) -> Result<McpListedToolsView, OpError> {
    let pin = pins::load(venue, &named.0.key, &named.0.settings).await?;
    let tools = pin.map(|pin| pin.tools).unwrap_or_default().into_iter().map(|tool| McpListedToolView {
        name: tool.name,
        description: tool.description,
        input_schema: tool.input_schema,
    });
    let tools: Vec<_> = tools.collect();
    Ok(McpListedToolsView { total: tools.len(), tools })
}

/// Asks a server for its tools now, and shows what was found.
pub async fn refresh(venue: &Venue, named: &NamedServer) -> Result<McpServerDetailView, OpError> {
    let known = named.0.find_known(venue).map_err(|error| OpError::Invalid(error.to_string()))?;
    let pin = ask_server(venue, &named.0.key, &known).await?;
    Ok(detail(venue, &named.0, Some(&pin)))
}

/// Approves the change of a server that has this hash.
pub async fn approve(
    venue: &Venue,
    named: &NamedServer,
    change: &str,
    by: &str,
) -> Result<McpServerDetailView, OpError> {
    let WantedServer { key, settings, .. } = &named.0;
    let Some(pin) = pins::approve(venue, key, settings, change, by).await? else {
        return Err(OpError::Conflict(format!(
            "the MCP server `{}` has no change `{}` that waits for approval; look at it again",
            key.server,
            quote_foreign(change)
        )));
    };
    if let Ok(known) = named.0.find_known(venue) {
        publish(venue, key, &known, &pin);
    }
    Ok(detail(venue, &named.0, Some(&pin)))
}

fn summary(venue: &Venue, server: &WantedServer, pin: Option<&McpPin>) -> McpServerView {
    let known = venue.catalog.mcp.find_known(&server.key);
    McpServerView {
        name: server.key.server.to_string(),
        agent: server.key.agent.as_ref().map(ToString::to_string),
        url: shown_place(server),
        tools: pin.map_or(0, |pin| pin.tools.len()),
        approved: pin.map(|pin| pin.approved),
        approved_by: pin.map(|pin| pin.by.clone()),
        changed: pin.map_or(0, |pin| pin.pending_changes().len()),
        failure: known.and_then(|known| known.state().failure).map(|(_, reason)| reason),
    }
}

/// Returns the place of a server as owners see it. The URL of a venue's server may hold a key of the venue, and so may the
/// arguments of its program: of those only the host or the program is shown.
fn shown_place(server: &WantedServer) -> String {
    let url = &server.settings.url;
    if server.key.agent.is_some() {
        return url.clone();
    }
    let place = url.split(' ').next().unwrap_or_default();
    let Some((scheme, rest)) = place.split_once("://") else { return place.to_owned() };
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    format!("{scheme}://{host}")
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
    let unpublished = venue.catalog.mcp.find_known(&server.key).map(|known| known.state().skipped).unwrap_or_default();
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
