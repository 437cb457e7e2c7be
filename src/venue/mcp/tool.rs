//! One tool of a server as an operation: its call over the wire, and its result.

use crate::domain::asset::AssetForm;
use crate::domain::authority::ResourcePath;
use crate::domain::lattice::Namespace;
use crate::domain::limits::{MCP_CALL_SECONDS, MCP_MESSAGE_BYTES};
use crate::domain::mcp::definition::{ToolDefinition, ToolEffect};
use crate::domain::mcp::header::{ParamHeader, header_values, param_headers};
use crate::domain::mcp::message::McpRequest;
use crate::domain::mcp::result::{MediaContent, ToolAnswer, read_answer};
use crate::domain::secret::Destination;
use crate::venue::assets;
use crate::venue::mcp_client::{McpEndpoint, McpFailure, PeerCall, SessionOwner, resolve_headers};
use crate::venue::operation::{Invocation, OpError, OpOutput, RuntimeCall, Site, mask_result};
use crate::venue::outbound::departure::Departure;
use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// A tool of a server.
pub(super) struct ServerTool {
    endpoint: Arc<McpEndpoint>,
    definition: ToolDefinition,
    params: Vec<ParamHeader>,
    is_repeatable: bool,
    /// How its server has changed it since it was approved.
    change: Option<&'static str>,
}

impl ServerTool {
    /// Makes a tool of an approved definition.
    pub(super) fn new(endpoint: Arc<McpEndpoint>, definition: ToolDefinition, change: Option<&'static str>) -> Self {
        // A definition with illegal headers is in no list.
        let params = param_headers(&definition.input_schema).unwrap_or_default();
        let is_repeatable = definition.effect(endpoint.settings()) != ToolEffect::Once;
        Self { endpoint, definition, params, is_repeatable, change }
    }

    /// Refuses a call of a tool that its server has changed.
    fn check_approval(&self) -> Result<(), OpError> {
        let Some(kind) = self.change else { return Ok(()) };
        let server = &self.endpoint.settings().name;
        Err(OpError::Conflict(format!(
            "the MCP server `{server}` has {kind} its tool `{}` since it was approved, so the call was not made: a person \
             looks at the change with `trellis mcp server {server}` and approves it",
            self.definition.name
        )))
    }

    async fn ask(&self, arguments: Value, call: &Invocation<'_>) -> Result<Value, OpError> {
        let params = header_values(&self.params, &arguments).map_err(|error| OpError::Invalid(error.to_string()))?;
        let (venue, owner) = (call.venue, &call.caller.owner);
        let headers = resolve_headers(&self.endpoint, &*venue.store, &venue.secrets, owner).await?;
        let turn = match &call.site {
            Site::Turn(site) => {
                let (owner, session) = (site.lease.owner.clone(), site.lease.session.clone());
                Some(SessionOwner { owner, session, turn: site.turn })
            }
            Site::Api { .. } => None,
        };
        let peer = venue.catalog.mcp.peer(&self.endpoint, &venue.catalog.hosts, headers, turn);
        let limit = call.time_limit();
        let patience = Duration::from_secs(self.endpoint.settings().timeout.unwrap_or(MCP_CALL_SECONDS)).min(limit);
        let asked = PeerCall {
            request: McpRequest::call_tool(self.endpoint.next_id(), &self.definition.name, arguments),
            params: &params,
            patience,
            max_bytes: MCP_MESSAGE_BYTES,
            repeatable: self.is_repeatable,
        };
        let departure = Departure::default();
        let late = |_| Err(McpFailure::Silent { seconds: limit.as_secs() });
        let answer = tokio::time::timeout(limit, peer.ask(&asked, &departure)).await.unwrap_or_else(late);
        let may_have_run = !self.is_repeatable && departure.has_left();
        answer
            .map(|answer| answer.result)
            .map_err(|failure| failure.into_op_error(&self.endpoint.display_name(), may_have_run))
    }

    async fn output(&self, result: Value, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let shown = self.endpoint.display_name();
        let name = &self.definition.name;
        match read_answer(result, &self.definition) {
            Ok(ToolAnswer::Value { mut value, media }) => {
                for found in media {
                    keep_media(call, &mut value, found).await?;
                }
                Ok(value.into())
            }
            Ok(ToolAnswer::Failure(text)) => Err(OpError::Failed(format!("`{name}` of the {shown} failed: {text}"))),
            Err(error) => Err(OpError::Upstream(format!("`{name}` of the {shown} was called; {error}"))),
        }
    }
}

/// Stores the bytes of an item of the content as an asset, if the caller may store assets, and writes into the item where
/// they are.
async fn keep_media(call: &Invocation<'_>, value: &mut Value, found: MediaContent) -> Result<(), OpError> {
    let MediaContent { item, mime_type, base64 } = found;
    let Some(Value::Object(shown)) = value["content"].get_mut(item) else { return Ok(()) };
    shown.insert("base64Bytes".to_owned(), base64.len().into());
    if call.permit("asset/store", ResourcePath::whole_namespace(Namespace::Assets)).is_err() {
        return Ok(());
    }
    let form = AssetForm { content_base64: Some(base64), content_type: Some(mime_type), ..AssetForm::default() };
    let draft = match form.draft(call.venue.now()) {
        Ok(draft) => draft,
        Err(error) => {
            shown.insert("notKept".to_owned(), error.to_string().into());
            return Ok(());
        }
    };
    match assets::put(call.venue, &call.caller.owner, &draft).await {
        Ok((id, ..)) => drop(shown.insert("asset".to_owned(), format!("a/{id}").into())),
        // The call was made: an owner without room gets the rest of its result.
        Err(error) => drop(shown.insert("notKept".to_owned(), error.to_string().into())),
    }
    Ok(())
}

#[async_trait]
impl RuntimeCall for ServerTool {
    fn destination(&self, _arguments: &Value) -> Option<Destination> {
        self.endpoint.destination()
    }

    async fn run(&self, arguments: Value, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        self.check_approval()?;
        let output = match self.ask(arguments, call).await {
            Ok(result) => self.output(result, call).await,
            Err(error) => Err(error),
        };
        mask_result(self.endpoint.mask(), output)
    }
}
