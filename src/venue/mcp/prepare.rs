//! Publishes the tools of the servers that a turn may use, before it begins. The approved definitions come from the store:
//! only the first use of a server waits for the server itself, and later lists are asked for in the background.

use super::pins;
use super::tool::ServerTool;
use crate::domain::agent::AgentRecord;
use crate::domain::agent::entry::ContextEntry;
use crate::domain::agent::tool::ToolEntry;
use crate::domain::ids::Owner;
use crate::domain::lattice::catalog::SourceName;
use crate::domain::limits::{MCP_LIST_RETRY, MCP_PIN_AGE, MCP_PUBLISHED, PUBLISHED_PER_SOURCE};
use crate::domain::mcp::definition::{SkippedTool, ToolDefinition, ToolEffect};
use crate::domain::mcp::name::{GROUP, split_path};
use crate::domain::mcp::pin::McpPin;
use crate::domain::mcp::revision::ProtocolEra;
use crate::domain::mcp::server::McpServer;
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::failure::OpError;
use crate::venue::mcp_client::{
    KnownServer, McpEndpoint, McpEndpointError, ServerKey, VenueServer, list_tools, resolve_headers,
};
use crate::venue::operation::{
    Effect, Publication, PublicationError, PublicationKey, RuntimeOperation, check_runtime_operation,
};
use crate::venue::venue_owner;
use futures::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Version of the publication of a server whose tools aren't known.
const NOTHING: &str = "nothing";

/// Pause between two looks at the servers that all owners share.
const WATCH_PAUSE: Duration = Duration::from_secs(30);

/// A server that a turn may use, with its settings and, if the venue names it, its endpoint.
#[derive(Clone)]
pub(super) struct WantedServer {
    pub(super) key: ServerKey,
    pub(super) settings: McpServer,
    endpoint: Option<Arc<McpEndpoint>>,
}

impl WantedServer {
    /// Returns a server that an agent has declared.
    pub(super) fn of_agent(owner: &Owner, agent: &AgentRecord, settings: &McpServer) -> Self {
        let key =
            ServerKey { owner: Some(owner.clone()), agent: Some(agent.id.clone()), server: settings.name.clone() };
        Self { key, settings: settings.clone(), endpoint: None }
    }

    /// Returns a server that the venue names, as an owner uses it.
    pub(super) fn of_venue(owner: &Owner, server: &VenueServer) -> Self {
        let settings = server.endpoint.settings().clone();
        let owner = (!server.is_shared).then(|| owner.clone());
        let key = ServerKey { owner, agent: None, server: settings.name.clone() };
        Self { key, settings, endpoint: Some(Arc::clone(&server.endpoint)) }
    }

    /// Returns what this process knows of the server.
    pub(super) fn find_known(&self, venue: &Venue) -> Result<Arc<KnownServer>, McpEndpointError> {
        venue.catalog.mcp.open_known(&self.key, &self.settings, || match &self.endpoint {
            Some(endpoint) => Ok(Arc::clone(endpoint)),
            None => McpEndpoint::of_agent(self.settings.clone()).map(Arc::new),
        })
    }
}

/// When a server itself is asked for its tools.
#[derive(Clone, Copy)]
enum Asking<'v> {
    /// Never: what is stored counts.
    Never,
    /// When nothing is stored.
    FirstUse,
    /// When nothing is stored, and in the background when the stored list is old.
    WhenOld(&'v Arc<Venue>),
}

/// Publishes the tools that a turn of an agent may use: those of the servers that it declares, and of the venue's servers
/// that its configuration, or its session by `found`, names. A server that fails costs the turn its own tools alone.
///
/// # Errors
/// The store can't be read.
pub async fn prepare_turn(
    venue: &Arc<Venue>,
    owner: &Owner,
    agent: &AgentRecord,
    found: &[String],
) -> Result<(), StoreError> {
    prepare_servers(venue, &wanted_servers(venue, owner, agent, found), Asking::WhenOld(venue)).await
}

/// Publishes the same tools for somebody who only looks: no server is asked.
///
/// # Errors
/// The store can't be read.
pub async fn prepare_preview(
    venue: &Venue,
    owner: &Owner,
    agent: &AgentRecord,
    found: &[String],
) -> Result<(), StoreError> {
    prepare_servers(venue, &wanted_servers(venue, owner, agent, found), Asking::Never).await
}

fn wanted_servers(venue: &Venue, owner: &Owner, agent: &AgentRecord, found: &[String]) -> Vec<WantedServer> {
    let config = &agent.config;
    let mut wanted: Vec<_> = config.mcp.iter().map(|server| WantedServer::of_agent(owner, agent, server)).collect();
    let entries = config.context.iter().filter_map(|entry| match entry {
        ContextEntry::Full(full) => full.op.as_deref(),
        ContextEntry::Short(_) => None,
    });
    let tools = config.tools.iter().filter_map(ToolEntry::operation);
    let named: BTreeSet<_> = tools
        .chain(entries)
        .chain(found.iter().map(String::as_str))
        .filter_map(split_path)
        .map(|(name, _)| name)
        .collect();
    let of_venue = named.iter().filter(|name| config.mcp.iter().all(|own| own.name != **name));
    let of_venue = of_venue.filter_map(|name| venue.catalog.mcp.find(name));
    wanted.extend(of_venue.map(|server| WantedServer::of_venue(owner, server)));
    wanted
}

async fn prepare_servers(venue: &Venue, wanted: &[WantedServer], asking: Asking<'_>) -> Result<(), StoreError> {
    join_all(wanted.iter().map(|server| prepare_server(venue, server, asking))).await.into_iter().collect()
}

/// Publishes the tools of the venue's server that a path names, for a caller outside turns.
///
/// # Errors
/// The store can't be read.
pub async fn prepare_path(venue: &Venue, owner: &Owner, path: &str) -> Result<(), StoreError> {
    let server = split_path(path).and_then(|(name, _)| venue.catalog.mcp.find(&name));
    match server {
        Some(server) => prepare_server(venue, &WantedServer::of_venue(owner, server), Asking::FirstUse).await,
        None => Ok(()),
    }
}

/// Publishes the stored tools of the venue's server that a path names, for a caller outside turns: a server is asked by
/// those who may call it. Returns whether there is such a server.
///
/// # Errors
/// The store can't be read.
pub async fn prepare_stored(venue: &Venue, owner: &Owner, path: &str) -> Result<bool, StoreError> {
    let server = split_path(path).and_then(|(name, _)| venue.catalog.mcp.find(&name));
    let Some(server) = server else { return Ok(false) };
    prepare_server(venue, &WantedServer::of_venue(owner, server), Asking::Never).await?;
    Ok(true)
}

/// Keeps the tools of the servers that all owners share published, until the process ends.
pub async fn watch(venue: Arc<Venue>, ending: CancellationToken) {
    let shared: Vec<_> = venue.catalog.mcp.of_venue().filter(|server| server.is_shared).collect();
    let wanted: Vec<_> = shared.into_iter().map(|server| WantedServer::of_venue(&venue_owner(), server)).collect();
    if wanted.is_empty() {
        return;
    }
    loop {
        if let Err(error) = prepare_servers(&venue, &wanted, Asking::WhenOld(&venue)).await {
            tracing::debug!(%error, "tools of MCP servers aren't read yet");
        }
        let pause = venue.clock.wait_until(venue.clock.steady() + WATCH_PAUSE);
        if ending.run_until_cancelled(pause).await.is_none() {
            return;
        }
    }
}

/// Publishes the approved tools of a server.
async fn prepare_server(venue: &Venue, wanted: &WantedServer, asking: Asking<'_>) -> Result<(), StoreError> {
    let WantedServer { key, settings, .. } = wanted;
    let known = match wanted.find_known(venue) {
        Ok(known) => known,
        Err(error) => {
            tracing::warn!(server = %key.server, %error, "MCP server can't be used");
            publish_nothing(venue, key);
            return Ok(());
        }
    };
    let asking = if known.endpoint.may_be_asked() { asking } else { Asking::Never };
    let (now, state) = (venue.clock.steady(), known.state());
    let is_newer_than = |at: Option<Duration>, age: Duration| at.is_some_and(|at| now.saturating_sub(at) < age);
    if is_newer_than(state.read, MCP_PIN_AGE) {
        return Ok(());
    }
    match pins::load(venue, key, settings).await?.filter(|pin| !pin.needs_list(settings)) {
        Some(pin) => {
            publish(venue, key, &known, &pin);
            let is_due = state.list_due.is_none_or(|due| now >= due);
            let has_failed = is_newer_than(state.failure.as_ref().map(|(at, _)| *at), MCP_LIST_RETRY);
            if let Asking::WhenOld(venue) = asking
                && is_due
                && !has_failed
                && known.claim_list()
            {
                refresh_in_background(venue, key, &known);
            }
        }
        None if matches!(asking, Asking::Never) => {
            publish_nothing(venue, key);
            return Ok(());
        }
        None if is_newer_than(state.failure.as_ref().map(|(at, _)| *at), MCP_LIST_RETRY) => {
            publish_nothing(venue, key);
        }
        None => match refresh(venue, key, &known).await {
            Ok(_) => {}
            Err(OpError::Store(error)) if error.is_transient() => return Err(error),
            Err(error) => {
                note_failure(venue, key, &known, &error);
                publish_nothing(venue, key);
            }
        },
    }
    known.change(|state| state.read = Some(venue.clock.steady()));
    Ok(())
}

fn note_failure(venue: &Venue, key: &ServerKey, known: &KnownServer, error: &OpError) {
    tracing::warn!(server = %key.server, %error, "the tools of an MCP server aren't known");
    known.change(|state| state.failure = Some((venue.clock.steady(), error.to_string())));
}

/// Asks for the list without making anybody wait. The caller has claimed it.
fn refresh_in_background(venue: &Arc<Venue>, key: &ServerKey, known: &Arc<KnownServer>) {
    let (venue, key, known) = (Arc::clone(venue), key.clone(), Arc::clone(known));
    tokio::spawn(async move {
        if let Err(error) = refresh(&venue, &key, &known).await {
            note_failure(&venue, &key, &known, &error);
        }
        known.release_list();
    });
}

/// Asks a server for its tools, compares them with the approved ones, and publishes those.
pub(super) async fn refresh(venue: &Venue, key: &ServerKey, known: &KnownServer) -> Result<McpPin, OpError> {
    let owner = key.owner.clone().unwrap_or_else(venue_owner);
    let headers = resolve_headers(&known.endpoint, &*venue.store, &venue.secrets, &owner).await?;
    let peer = venue.catalog.mcp.peer(&known.endpoint, &venue.catalog.hosts, headers, None);
    let listing = list_tools(&peer).await?;
    let pin = pins::compare(venue, key, known, &listing).await?;
    for change in pin.pending_changes() {
        tracing::warn!(
            server = %key.server, tool = change.name(), change = change.kind(),
            "a tool of an MCP server differs from what was approved, and isn't used until it is approved"
        );
    }
    known.note_list(venue.clock.steady(), Some(listing.fresh));
    publish(venue, key, known, &pin);
    Ok(pin)
}

/// Publishes the approved tools of a server. Those that can't be published are left out.
pub(super) fn publish(venue: &Venue, key: &ServerKey, known: &KnownServer, pin: &McpPin) {
    if pin.handshake && known.endpoint.era().is_none() {
        known.endpoint.set_era(ProtocolEra::Handshake);
    }
    if let Err(error) = try_publish(venue, key, known, pin) {
        tracing::warn!(server = %key.server, %error, "the tools of an MCP server aren't offered");
        known.change(|state| state.failure = Some((venue.clock.steady(), error.to_string())));
        publish_nothing(venue, key);
    }
}

/// Publishes that a server of an agent has no tools for now. Neither those that it had under other settings, nor those of
/// a server of the venue that has its name, may be taken for them.
fn publish_nothing(venue: &Venue, key: &ServerKey) {
    let Ok(source) = SourceName::in_group(GROUP, key.server.as_str()) else { return };
    if key.agent.is_none() {
        return;
    }
    let (now, version) = (venue.now(), NOTHING.to_owned());
    let expires = Some(now.plus(MCP_PUBLISHED));
    let place = PublicationKey { owner: key.owner.as_ref(), agent: key.agent.as_ref(), source: &source };
    if venue.catalog.renew(place, NOTHING, expires, now) {
        return;
    }
    venue.catalog.withdraw_at(place);
    let (owner, agent, source) = (key.owner.clone(), key.agent.clone(), source.clone());
    let nothing = Publication { source, owner, agent, version, expires, operations: Vec::new() };
    if let Err(error) = venue.catalog.publish(nothing, now) {
        tracing::warn!(server = %key.server, %error, "the name of an MCP server isn't kept for its agent");
    }
}

fn try_publish(venue: &Venue, key: &ServerKey, known: &KnownServer, pin: &McpPin) -> Result<(), PublicationError> {
    let (settings, now) = (known.endpoint.settings(), venue.now());
    let Ok(source) = SourceName::in_group(GROUP, key.server.as_str()) else { return Ok(()) };
    let version = pin.version(settings);
    let (shown, expires) = ((version.clone(), pin.change_hash()), Some(now.plus(MCP_PUBLISHED)));
    let place = PublicationKey { owner: key.owner.as_ref(), agent: key.agent.as_ref(), source: &source };
    if known.state().published.as_ref() == Some(&shown) && venue.catalog.renew(place, &version, expires, now) {
        return Ok(());
    }
    let (operations, skipped) = operations(&source, known, pin);
    let (owner, agent) = (key.owner.clone(), key.agent.clone());
    venue.catalog.publish(Publication { source, owner, agent, version, expires, operations }, now)?;
    known.change(|state| {
        state.published = Some(shown);
        state.skipped = skipped;
    });
    Ok(())
}

/// Returns the operations of a server's approved tools, and the tools that can't be operations.
fn operations(source: &SourceName, known: &KnownServer, pin: &McpPin) -> (Vec<RuntimeOperation>, Vec<SkippedTool>) {
    let settings = known.endpoint.settings();
    let changed: BTreeMap<String, &'static str> =
        pin.pending_changes().iter().map(|change| (change.name().to_owned(), change.kind())).collect();
    let (mut found, mut skipped, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
    for definition in pin.tools.iter().filter(|tool| settings.allows(&tool.name)) {
        let operation = operation(known, definition, changed.get(&definition.name).copied());
        if found.len() == PUBLISHED_PER_SOURCE {
            skipped.push(SkippedTool::new(&definition.name, &format!("expected at most {PUBLISHED_PER_SOURCE} tools")));
        } else if let Err(rule) = check_runtime_operation(source, &operation) {
            skipped.push(SkippedTool::new(&definition.name, &rule));
        } else if names.insert(operation.name.clone()) {
            found.push(operation);
        } else {
            skipped
                .push(SkippedTool::new(&definition.name, &"another tool of the server has this name in the catalogue"));
        }
    }
    (found, skipped)
}

fn operation(known: &KnownServer, definition: &ToolDefinition, change: Option<&'static str>) -> RuntimeOperation {
    let settings = known.endpoint.settings();
    let effect = match definition.effect(settings) {
        ToolEffect::Read => Effect::Read,
        ToolEffect::Repeatable => Effect::Idempotent,
        ToolEffect::Once => Effect::Once,
    };
    let tool = ServerTool::new(Arc::clone(&known.endpoint), definition.clone(), change);
    RuntimeOperation {
        name: settings.name.operation_name(&definition.name),
        description: definition.description.clone().or_else(|| definition.title.clone()).unwrap_or_default(),
        input: definition.input_schema.clone(),
        effect,
        run: Arc::new(tool),
    }
}
