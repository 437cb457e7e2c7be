//! One tool of a server as an operation: its call over the wire, and its result.

use crate::domain::asset::AssetForm;
use crate::domain::authority::ResourcePath;
use crate::domain::call::SentMarks;
use crate::domain::lattice::Namespace;
use crate::domain::limits::{MCP_CALL_SECONDS, MCP_MEDIA, MCP_MESSAGE_BYTES};
use crate::domain::mcp::definition::{ToolDefinition, ToolEffect};
use crate::domain::mcp::header::{ParamHeader, header_values, param_headers};
use crate::domain::mcp::message::McpRequest;
use crate::domain::mcp::result::{MediaContent, ToolAnswer, read_answer};
use crate::domain::secret::Destination;
use crate::venue::assets;
use crate::venue::mcp_client::{McpEndpoint, McpFailure, PeerCall, SessionOwner, resolve_headers};
use crate::venue::operation::{Invocation, OpError, OpOutput, RuntimeCall, Site};
use crate::venue::outbound::departure::Departure;
use crate::venue::outbound::endpoint::IDEMPOTENCY_KEY;
use async_trait::async_trait;
use reqwest::header::HeaderMap;
use serde_json::{Map, Value};
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

    /// Returns the marks of a call with an effect, and notes them for the ledger.
    fn note_marks(&self, call: &Invocation<'_>, headers: &HeaderMap) -> Option<SentMarks> {
        if self.definition.effect(self.endpoint.settings()) == ToolEffect::Read {
            return None;
        }
        let mut marks = call.sent_marks();
        if self.endpoint.destination().is_none() {
            // A message to a program has no headers, and of the marks the trace alone.
            (marks.key, marks.job) = (None, None);
        } else if headers.contains_key(&IDEMPOTENCY_KEY) {
            marks.key = None;
        }
        call.reads.note_sent(marks.clone());
        Some(marks)
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
        let marks = self.note_marks(call, &peer.headers);
        let limit = call.time_limit();
        let patience = Duration::from_secs(self.endpoint.settings().timeout.unwrap_or(MCP_CALL_SECONDS)).min(limit);
        let asked = PeerCall {
            request: McpRequest::call_tool(self.endpoint.next_id(), &self.definition.name, arguments)
                .with_trace(marks.as_ref().map(|marks| marks.traceparent.clone())),
            params: &params,
            marks: marks.as_ref(),
            patience,
            max_bytes: MCP_MESSAGE_BYTES,
            repeatable: self.is_repeatable,
        };
        let departure = Departure::default();
        let late = |_| Err(McpFailure::Silent { seconds: limit.as_secs() });
        let answer = tokio::time::timeout(limit, peer.ask(&asked, &departure)).await.unwrap_or_else(late);
        let may_have_run = !self.is_repeatable && departure.has_left();
        answer.map(|answer| answer.result).map_err(|failure| peer.op_error(failure, may_have_run))
    }

    async fn output(&self, result: Value, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let shown = self.endpoint.display_name();
        let name = &self.definition.name;
        match read_answer(result, &self.definition) {
            Ok(ToolAnswer::Value { mut value, media }) => {
                let assets = ResourcePath::whole_namespace(Namespace::Assets);
                let may_store = !media.is_empty() && call.permit("asset/store", assets).is_ok();
                for (at, found) in media.into_iter().enumerate() {
                    if let Some(shown) = show_media(&mut value, &found).filter(|_| may_store) {
                        keep_media(call, shown, found, at).await;
                    }
                }
                Ok(value.into())
            }
            Ok(ToolAnswer::Failure(text)) => Err(OpError::Failed(format!("`{name}` of the {shown} failed: {text}"))),
            Err(error) => Err(OpError::Upstream(format!("`{name}` of the {shown} was called; {error}"))),
        }
    }
}

/// Writes the size of bytes into their item of the content, and returns the item.
fn show_media<'v>(value: &'v mut Value, found: &MediaContent) -> Option<&'v mut Map<String, Value>> {
    let shown = value.get_mut("content")?.get_mut(found.item)?.as_object_mut()?;
    shown.insert("base64Bytes".to_owned(), found.base64.len().into());
    Some(shown)
}

/// Stores bytes of the content as an asset, and writes into their item where they are. Each takes a write, so that only
/// the first ones of a result are stored: `at` counts them.
async fn keep_media(call: &Invocation<'_>, shown: &mut Map<String, Value>, found: MediaContent, at: usize) {
    if at >= MCP_MEDIA {
        shown.insert("notKept".to_owned(), format!("expected at most {MCP_MEDIA} of a result").into());
        return;
    }
    let MediaContent { mime_type, base64, .. } = found;
    let form = AssetForm { content_base64: Some(base64), content_type: Some(mime_type), ..AssetForm::default() };
    let draft = match form.draft(call.venue.now()) {
        Ok(draft) => draft,
        Err(error) => {
            shown.insert("notKept".to_owned(), error.to_string().into());
            return;
        }
    };
    match assets::put(call.venue, &call.caller.owner, &draft).await {
        Ok((id, ..)) => drop(shown.insert("asset".to_owned(), format!("a/{id}").into())),
        // The call was made: an owner without room gets the rest of its result.
        Err(error) => drop(shown.insert("notKept".to_owned(), error.to_string().into())),
    }
}

#[async_trait]
impl RuntimeCall for ServerTool {
    fn destination(&self, _arguments: &Value) -> Option<Destination> {
        self.endpoint.destination()
    }

    async fn run(&self, arguments: Value, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        self.check_approval()?;
        let result = self.ask(arguments, call).await?;
        self.output(result, call).await
    }
}
