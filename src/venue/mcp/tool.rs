//! One tool of a server as an operation: its call over the wire, and its result.

use super::login::login_tools;
use super::output::ResultReader;
use super::pending;
use crate::domain::call::SentMarks;
use crate::domain::ids::AgentId;
use crate::domain::limits::{MCP_CALL_SECONDS, MCP_MESSAGE_BYTES, OPEN_TASKS, OUTBOUND_DEADLINE};
use crate::domain::mcp::definition::{ToolDefinition, ToolEffect};
use crate::domain::mcp::header::{ParamHeader, header_values, param_headers};
use crate::domain::mcp::message::{ClientOffers, McpRequest};
use crate::domain::mcp::pending::{CallMarks, McpTaskSession, PendingPhase, PendingToolCall, StartedToolCall};
use crate::domain::mcp::revision::ProtocolEra;
use crate::domain::mcp::task::{TaskError, ToolCallProgress};
use crate::domain::secret::Destination;
use crate::venue::child_jobs::check_limits;
use crate::venue::mcp_client::{McpEndpoint, McpFailure, McpPeer, PeerCall, SessionOwner, resolve_headers};
use crate::venue::operation::{Invocation, OpError, OpOutput, RuntimeCall, Site, TurnSite, dispatch};
use crate::venue::operation_jobs::count_open;
use crate::venue::outbound::departure::Departure;
use crate::venue::outbound::endpoint::IDEMPOTENCY_KEY;
use async_trait::async_trait;
use reqwest::header::HeaderMap;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// A tool of a server.
pub(super) struct ServerTool {
    endpoint: Arc<McpEndpoint>,
    definition: ToolDefinition,
    params: Vec<ParamHeader>,
    is_repeatable: bool,
    /// Agent that has declared the server; `None` for one of the venue.
    declared_by: Option<AgentId>,
    /// How its server has changed it since it was approved.
    change: Option<&'static str>,
}

/// What is known of a tool besides its approved definition.
pub(super) struct ToolFacts {
    /// Agent that has declared the server; `None` for one of the venue.
    pub(super) declared_by: Option<AgentId>,
    /// How its server has changed it since it was approved.
    pub(super) change: Option<&'static str>,
}

impl ServerTool {
    /// Makes a tool of an approved definition.
    pub(super) fn new(endpoint: Arc<McpEndpoint>, definition: ToolDefinition, facts: ToolFacts) -> Self {
        // A definition with illegal headers is in no list.
        let params = param_headers(&definition.input_schema).unwrap_or_default();
        let is_repeatable = definition.effect(endpoint.settings()) != ToolEffect::Once;
        let ToolFacts { declared_by, change } = facts;
        Self { endpoint, definition, params, is_repeatable, declared_by, change }
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

    /// Calls the tool. A call of a turn may go on after it, as a task or with a question.
    async fn ask(&self, arguments: Value, call: &Invocation<'_>) -> Result<CallEnd, OpError> {
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
        let key = self.endpoint.place_key(owner, self.declared_by.as_ref());
        let peer = Box::pin(peer.with_login(login_tools(venue), key)).await?;
        let marks = self.note_marks(call, &peer.headers);
        let limit = call.time_limit();
        let patience = Duration::from_secs(self.endpoint.settings().timeout.unwrap_or(MCP_CALL_SECONDS)).min(limit);
        // Tasks and questions may be open for days, and others need room.
        let going_on = match self.site_of_late_call(&arguments, call) {
            Some(site) if count_open(venue, owner).await? < OPEN_TASKS => Some(site),
            Some(_) | None => None,
        };
        let offers = if going_on.is_some() { ClientOffers::TasksAndQuestions } else { ClientOffers::Nothing };
        let asked = PeerCall {
            request: McpRequest::call_tool(self.endpoint.next_id(), &self.definition.name, arguments.clone())
                .with_trace(marks.as_ref().map(|marks| marks.traceparent.clone()))
                .with_offers(offers),
            params: &params,
            marks: marks.as_ref(),
            patience,
            max_bytes: MCP_MESSAGE_BYTES,
            repeatable: self.is_repeatable,
        };
        let departure = Departure::default();
        let late = |_| Err(McpFailure::Silent { seconds: limit.as_secs() });
        let answer = tokio::time::timeout(limit, self.ask_peer(&peer, asked, going_on.is_some(), &departure)).await;
        let may_have_run = !self.is_repeatable && departure.has_left();
        let answer = answer.unwrap_or_else(late).map_err(|failure| peer.op_error(failure, may_have_run))?;
        let Some(site) = going_on else { return Ok(CallEnd::Done(answer.result)) };
        let PeerAnswer { result, session } = answer;
        let era = if session.is_some() { ProtocolEra::Handshake } else { ProtocolEra::Stateless };
        let (phase, rounds) = match ToolCallProgress::read(result, era) {
            Ok(ToolCallProgress::Done(result)) => return Ok(CallEnd::Done(result)),
            Ok(ToolCallProgress::Working(task)) => (PendingPhase::of_task(task), 0),
            Ok(ToolCallProgress::Input(round)) => (PendingPhase::of_round(round, None), 1),
            Err(error) => {
                let (name, shown) = (&self.definition.name, self.endpoint.display_name());
                let text = format!("`{name}` of the {shown} was called; {error}");
                let has_begun = !matches!(error, TaskError::Input(_)) && !self.is_repeatable;
                return Err(if has_begun { OpError::OutcomeUnknown(text) } else { OpError::Upstream(text) });
            }
        };
        let deadline = call.caller.envelope.limit_time(venue.now().plus(OUTBOUND_DEADLINE));
        let call = self.started_call(arguments, marks, call, site);
        Ok(CallEnd::GoesOn(Box::new(PendingToolCall {
            call,
            session,
            phase,
            rounds,
            answered: Vec::new(),
            failures: 0,
            begun: venue.now(),
            deadline,
        })))
    }

    /// Sends the call: as a task in a session of its own, where the server has tasks in a revision with a handshake.
    async fn ask_peer(
        &self,
        peer: &McpPeer<'_>,
        call: PeerCall<'_>,
        may_go_on: bool,
        departure: &Departure,
    ) -> Result<PeerAnswer, McpFailure> {
        let may_begin_task = may_go_on
            && self.endpoint.has_tasks_of(&self.definition.name)
            && self.endpoint.era() == Some(ProtocolEra::Handshake);
        if may_begin_task && let Some(session) = peer.begin_task_session(&call).await? {
            let call = PeerCall { request: call.request.as_task(OUTBOUND_DEADLINE), ..call };
            let asked = peer.ask_in_task_session(&session, &call, departure).await;
            let has_task = asked.as_ref().is_ok_and(|answer| answer.result["task"].is_object());
            if !has_task {
                peer.end_task_session(&session, &call).await;
            }
            return asked.map(|answer| PeerAnswer { result: answer.result, session: has_task.then_some(session) });
        }
        peer.ask(&call, departure).await.map(|answer| PeerAnswer { result: answer.result, session: None })
    }

    /// Returns the turn of a call that may go on after it: its arguments may be stored, and the session may wait for one
    /// more result. A program ends with its process, and its tasks with it.
    fn site_of_late_call<'c>(&self, arguments: &Value, call: &'c Invocation<'_>) -> Option<&'c TurnSite<'c>> {
        let Site::Turn(site) = &call.site else { return None };
        let path = self.endpoint.settings().name.operation_path(&self.definition.name);
        let lineage = call.caller.envelope.lineage.under_agent(&site.lease.session.agent);
        let may_wait = !call.fills_prompt && check_limits(site, &lineage, None).is_ok();
        let may_store = !dispatch::hides(call.catalog, &path, arguments);
        (self.endpoint.destination().is_some() && may_wait && may_store).then_some(site)
    }

    fn started_call(
        &self,
        arguments: Value,
        marks: Option<SentMarks>,
        call: &Invocation<'_>,
        site: &TurnSite<'_>,
    ) -> StartedToolCall {
        let settings = self.endpoint.settings();
        StartedToolCall {
            server: settings.name.clone(),
            declared_by: self.declared_by.clone(),
            place: settings.place_hash(),
            tool: self.definition.name.clone(),
            called: call.named.to_owned(),
            turn: site.turn,
            index: site.call,
            arguments,
            is_repeatable: self.is_repeatable,
            marks: marks.map(|SentMarks { key, traceparent, job }| CallMarks { key, traceparent, job }),
        }
    }
}

/// Has a call go on after its turn. A task that nobody could follow is cancelled, as far as the server lets it.
async fn start_pending(
    call: &Invocation<'_>,
    site: &TurnSite<'_>,
    pending: PendingToolCall,
) -> Result<OpOutput, OpError> {
    let error = match pending::start(call, site, pending.clone()).await {
        Ok(started) => return Ok(started),
        Err(error) => error,
    };
    let is_cancelled = pending::cancel_at_server(call.venue, &call.caller.owner, &pending).await;
    match error {
        OpError::Fenced => Err(OpError::Fenced),
        // The turn is made again, and finds that the call had begun.
        OpError::Store(error) if error.is_transient() => Err(error.into()),
        error if pending.may_have_effect(is_cancelled) => Err(OpError::OutcomeUnknown(error.to_string())),
        error => Err(error),
    }
}

/// What a call has come to in its turn.
enum CallEnd {
    /// The server has answered.
    Done(Value),
    /// The call goes on.
    GoesOn(Box<PendingToolCall>),
}

/// An answer, with the session of its task if it begins one.
struct PeerAnswer {
    result: Value,
    session: Option<McpTaskSession>,
}

#[async_trait]
impl RuntimeCall for ServerTool {
    fn destination(&self, _arguments: &Value) -> Option<Destination> {
        self.endpoint.destination()
    }

    async fn run(&self, arguments: Value, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        self.check_approval()?;
        let shown = self.endpoint.display_name();
        let reader =
            ResultReader { venue: call.venue, caller: call.caller, shown: &shown, definition: &self.definition };
        match (self.ask(arguments, call).await?, &call.site) {
            (CallEnd::GoesOn(pending), Site::Turn(site)) => Box::pin(start_pending(call, site, *pending)).await,
            (CallEnd::GoesOn(_), Site::Api { .. }) => Err(OpError::Upstream(format!("{shown}: the call goes on"))),
            (CallEnd::Done(result), _) => reader.read(result).await,
        }
    }
}
