//! Servers as places that a person approves: what they list, and the operations of their approved tools.

use super::login::login_tools;
use super::pins;
use super::tool::{ServerTool, ToolFacts};
use crate::domain::agent::AgentConfig;
use crate::domain::ids::secret::SecretName;
use crate::domain::lattice::catalog::SourceName;
use crate::domain::limits::PUBLISHED_PER_SOURCE;
use crate::domain::mcp::definition::{SkippedTool, ToolDefinition, ToolEffect};
use crate::domain::mcp::name::{GROUP, ServerName, split_path};
use crate::domain::mcp::pin::McpPin;
use crate::domain::mcp::revision::ProtocolEra;
use crate::domain::mcp::server::McpServer;
use crate::store::keys;
use crate::venue::Venue;
use crate::venue::failure::OpError;
use crate::venue::mcp_client::{McpEndpoint, list_tools, resolve_headers};
use crate::venue::operation::{Effect, RuntimeOperation, check_runtime_operation};
use crate::venue::pinned::PinnedPlace;
use crate::venue::places::{KnownPlace, PlaceKey, Places};
use reqwest::Url;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl PinnedPlace for McpEndpoint {
    type Pin = McpPin;

    const WHAT: &'static str = "MCP server";
    const GROUP: &'static str = GROUP;
    const SETTING: &'static str = "mcp";
    const OFFER: &'static str = "tools";

    fn places(venue: &Venue) -> &Places<Self> {
        &venue.catalog.mcp.places
    }

    fn list_declared(config: &AgentConfig) -> &[McpServer] {
        &config.mcp
    }

    fn name_in(path: &str) -> Option<ServerName> {
        split_path(path).map(|(name, _)| name)
    }

    fn doc_key(key: &PlaceKey) -> String {
        keys::mcp_pin(key.agent.as_ref(), &key.name)
    }

    fn secrets_of(settings: &McpServer) -> Vec<&SecretName> {
        settings.secrets().collect()
    }

    fn url_of(settings: &McpServer) -> &str {
        &settings.url
    }

    fn place_url(&self) -> &Url {
        self.url()
    }

    fn may_ask(&self) -> bool {
        self.may_be_asked()
    }

    fn announced_changes(&self) -> u64 {
        self.list_changes()
    }

    fn learn(&self, pin: &McpPin) {
        if pin.handshake && self.era().is_none() {
            self.set_era(ProtocolEra::Handshake);
        }
        self.set_task_tools(&pin.with_tasks);
    }

    fn is_enough(pin: &McpPin, settings: &McpServer) -> bool {
        !pin.needs_list(settings)
    }

    async fn ask(venue: &Venue, key: &PlaceKey, known: &KnownPlace<Self>) -> Result<McpPin, OpError> {
        let headers = resolve_headers(&known.endpoint, &*venue.store, &venue.secrets, &key.keeper()).await?;
        let peer = venue.catalog.mcp.peer(&known.endpoint, &venue.catalog.hosts, headers, None);
        let peer = Box::pin(peer.with_login(login_tools(venue), key.clone())).await?;
        let listing = list_tools(&peer).await?;
        let pin = pins::compare(venue, key, known, &listing).await?;
        for change in pin.pending_changes() {
            tracing::warn!(
                server = %key.name, tool = change.name(), change = change.kind(),
                "a tool of an MCP server differs from what was approved, and isn't used until it is approved"
            );
        }
        known.note_answer(venue.clock.steady() + listing.fresh);
        Ok(pin)
    }

    fn operations(
        _venue: &Venue,
        source: &SourceName,
        key: &PlaceKey,
        known: &KnownPlace<Self>,
        pin: &McpPin,
    ) -> Option<(Vec<RuntimeOperation>, Vec<SkippedTool>)> {
        Some(operations(source, key, &known.endpoint, pin))
    }
}

/// Returns the operations of a server's approved tools, and the tools that can't be operations.
fn operations(
    source: &SourceName,
    key: &PlaceKey,
    endpoint: &Arc<McpEndpoint>,
    pin: &McpPin,
) -> (Vec<RuntimeOperation>, Vec<SkippedTool>) {
    let settings = endpoint.settings();
    let changed: BTreeMap<String, &'static str> =
        pin.pending_changes().iter().map(|change| (change.name().to_owned(), change.kind())).collect();
    let (mut found, mut skipped, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
    for definition in pin.tools.iter().filter(|tool| settings.allows(&tool.name)) {
        let change = changed.get(&definition.name).copied();
        let operation = operation(endpoint, definition, ToolFacts { declared_by: key.agent.clone(), change });
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

fn operation(endpoint: &Arc<McpEndpoint>, definition: &ToolDefinition, facts: ToolFacts) -> RuntimeOperation {
    let settings = endpoint.settings();
    let effect = match definition.effect(settings) {
        ToolEffect::Read => Effect::Read,
        ToolEffect::Repeatable => Effect::Idempotent,
        ToolEffect::Once => Effect::Once,
    };
    let tool = ServerTool::new(Arc::clone(endpoint), definition.clone(), facts);
    RuntimeOperation {
        name: settings.name.operation_name(&definition.name),
        description: definition.description.clone().or_else(|| definition.title.clone()).unwrap_or_default(),
        input: definition.input_schema.clone(),
        effect,
        run: Arc::new(tool),
    }
}
