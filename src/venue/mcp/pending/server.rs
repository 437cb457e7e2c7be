//! The server of a call that goes on, as it is configured now, and requests to it.

use crate::domain::authority::ResourcePath;
use crate::domain::authority::ability::INVOKE;
use crate::domain::call::SentMarks;
use crate::domain::ids::Owner;
use crate::domain::lattice::Namespace;
use crate::domain::limits::{MCP_CALL_SECONDS, MCP_MESSAGE_BYTES, MCP_TASK_TIMES, OPERATION_TIME};
use crate::domain::mcp::definition::ToolDefinition;
use crate::domain::mcp::message::McpRequest;
use crate::domain::mcp::name::GROUP;
use crate::domain::mcp::pending::{PendingToolCall, StartedToolCall};
use crate::venue::Venue;
use crate::venue::failure::OpError;
use crate::venue::mcp::login::login_tools;
use crate::venue::mcp::review::find_server;
use crate::venue::mcp_client::{McpEndpoint, McpFailure, McpPeer, PeerCall, resolve_headers};
use crate::venue::operation::Caller;
use crate::venue::outbound::departure::Departure;
use crate::venue::pinned;
use crate::venue::places::{KnownPlace, PlaceKey};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// A server as a call that goes on may ask it.
pub(super) struct OpenedServer {
    known: Arc<KnownPlace<McpEndpoint>>,
    key: PlaceKey,
    /// Approved definition of the tool.
    pub(super) definition: ToolDefinition,
    /// Whether the server has changed the tool since it was approved.
    pub(super) is_changed: bool,
}

impl OpenedServer {
    /// Finds the server of a call, as it is configured now. The place must be that of the call.
    pub(super) async fn find(venue: &Venue, owner: &Owner, call: &StartedToolCall) -> Result<Self, OpError> {
        let named = find_server(venue, owner, call.declared_by.as_ref(), &call.server).await?;
        if named.settings().place_hash() != call.place {
            return Err(OpError::Conflict(format!(
                "the MCP server `{}` has another `url` or other `headers` since the call was made, so it is not asked any \
                 more",
                call.server
            )));
        }
        let known = named.find_known(venue)?;
        let pin = pinned::load::<McpEndpoint>(venue, &named.0.key, &named.0.settings).await?;
        let is_changed =
            pin.as_ref().is_some_and(|pin| pin.pending_changes().iter().any(|change| change.name() == call.tool));
        let definition = pin.and_then(|pin| pin.tools.into_iter().find(|tool| tool.name == call.tool));
        let definition = definition.ok_or_else(|| {
            OpError::Conflict(format!("the tool `{}` of the MCP server `{}` is not approved", call.tool, call.server))
        })?;
        Ok(Self { known, key: named.0.key.clone(), definition, is_changed })
    }

    /// Finds the server for a caller, who must still be permitted to call the tool.
    pub(super) async fn open(
        venue: &Venue,
        owner: &Owner,
        caller: &Caller,
        call: &StartedToolCall,
    ) -> Result<Self, OpError> {
        let operation = call.server.operation_path(&call.tool);
        let permitted = caller.authority.permits(INVOKE, place_of_call(call));
        permitted.map_err(|denied| OpError::Denied(denied.model_text(&operation)))?;
        let server = Self::find(venue, owner, call).await?;
        if !server.known.endpoint.settings().allows(&call.tool) {
            return Err(OpError::Denied(format!("`{operation}` is not in the `tools` of its MCP server any more")));
        }
        Ok(server)
    }

    /// Returns the server as it is asked for an owner.
    pub(super) async fn peer<'a>(&'a self, venue: &'a Venue, owner: &Owner) -> Result<McpPeer<'a>, OpError> {
        let endpoint = &self.known.endpoint;
        let headers = resolve_headers(endpoint, &*venue.store, &venue.secrets, owner).await?;
        let peer = venue.catalog.mcp.peer(endpoint, &venue.catalog.hosts, headers, None);
        Box::pin(peer.with_login(login_tools(venue), self.key.clone())).await
    }

    /// Returns the name of the server for errors.
    pub(super) fn display_name(&self) -> String {
        self.known.endpoint.display_name()
    }
}

/// Returns the place of the tool of a call in the catalogue.
pub(super) fn place_of_call(call: &StartedToolCall) -> ResourcePath {
    let keys = ["ops", GROUP, call.server.as_str(), &call.server.operation_name(&call.tool)];
    ResourcePath::at_keys(Namespace::Venue, keys)
}

/// Sends a request about a call that goes on. One about its task is short, whatever the server says of its progress.
pub(super) async fn ask_peer(
    peer: &McpPeer<'_>,
    pending: &PendingToolCall,
    request: McpRequest,
    sent: SentParts<'_>,
    departure: &Departure,
) -> Result<Value, McpFailure> {
    let patience = Duration::from_secs(peer.endpoint.settings().timeout.unwrap_or(MCP_CALL_SECONDS));
    let (patience, limit) = match request.method {
        "tools/call" => (patience, OPERATION_TIME),
        _ => (patience.min(MCP_TASK_TIMES.0), MCP_TASK_TIMES.1),
    };
    let SentParts { params, marks, repeatable } = sent;
    let call = PeerCall { request, params, marks, patience, max_bytes: MCP_MESSAGE_BYTES, repeatable };
    let asked = async {
        match &pending.session {
            Some(session) => peer.ask_in_task_session(session, &call, departure).await,
            None => peer.ask_stateless(&call, departure).await,
        }
    };
    let late = |_| Err(McpFailure::Silent { seconds: limit.as_secs() });
    tokio::time::timeout(limit, asked).await.unwrap_or_else(late).map(|answer| answer.result)
}

/// What goes with a request besides its message.
#[derive(Clone, Copy)]
pub(super) struct SentParts<'a> {
    /// Headers of arguments.
    pub(super) params: &'a [(String, String)],
    /// Marks of a call with an effect.
    pub(super) marks: Option<&'a SentMarks>,
    /// Whether the request may be sent again.
    pub(super) repeatable: bool,
}

impl SentParts<'_> {
    /// Parts of a request that changes nothing.
    pub(super) const NONE: Self = Self { params: &[], marks: None, repeatable: true };
}
