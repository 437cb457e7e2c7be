//! The steps of a call that goes on.

use super::question;
use super::server::{OpenedServer, SentParts, ask_peer};
use super::stop::{cancel_task, leave_session, stop};
use crate::domain::asset::AssetForm;
use crate::domain::call::SentMarks;
use crate::domain::decode;
use crate::domain::ids::Owner;
use crate::domain::job::{ErrorCode, JobHead, JobResult};
use crate::domain::limits::{
    A2A_SEND_TRIES, MCP_LATE_RESULT_BYTES, MCP_POLL, MCP_POLL_RANGE, MCP_ROUNDS, OUTBOUND_DEADLINE,
};
use crate::domain::mcp::header::{header_values, param_headers};
use crate::domain::mcp::message::{ClientOffers, McpRequest, RpcError, TaskMethod};
use crate::domain::mcp::pending::{PENDING_CALL, PendingPhase, PendingToolCall, StartedToolCall};
use crate::domain::mcp::task::{TaskHandle, TaskState, ToolCallProgress};
use crate::domain::secret::Mask;
use crate::domain::time::Millis;
use crate::domain::visible::{cut_at, cut_error};
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::failure::OpError;
use crate::venue::mcp::output::{KeptBytes, ResultReader};
use crate::venue::mcp_client::{McpFailure, McpPeer};
use crate::venue::operation::{Caller, OpOutput};
use crate::venue::operation_jobs::{LeasedOperation, RunCaller, RunOutcome, read_caller, record_tool_call, result_of};
use crate::venue::outbound::departure::Departure;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};
use std::time::Duration;

/// Code of JSON-RPC for wrong parameters: a server says so of a task that it doesn't know.
const INVALID_PARAMS: i64 = -32602;

/// Bytes of the beginning of a result that is too large.
const HEAD_BYTES: usize = 64 * 1024;

/// Whether a job stands for a call that goes on.
pub fn is_pending_call(head: &JobHead) -> bool {
    head.op.as_deref() == Some(PENDING_CALL)
}

/// Runs the next steps of a job until it waits or has ended. A person has `approval_time` for an answer.
pub async fn run(
    venue: &Venue,
    owner: &Owner,
    held: &LeasedOperation,
    approval_time: Duration,
) -> Result<RunOutcome, StoreError> {
    let Some(pending) = held.tool_call().cloned() else {
        return Ok(failure(ErrorCode::Internal, "the call of the job can't be read".to_owned()));
    };
    let caller = match read_caller(venue, owner, held).await? {
        RunCaller::Permitted(caller) => caller,
        RunCaller::Revoked(result) => return stop(venue, owner, &pending, result).await,
    };
    let server = match OpenedServer::open(venue, owner, &caller, &pending.call).await {
        Ok(server) => server,
        Err(OpError::Store(error)) if error.is_transient() => return Ok(RunOutcome::Retry),
        Err(error) => return stop(venue, owner, &pending, result_of(Err(error))).await,
    };
    let peer = match server.peer(venue, owner).await {
        Ok(peer) => peer,
        Err(OpError::Store(error)) if error.is_transient() => return Ok(RunOutcome::Retry),
        Err(error) => return stop(venue, owner, &pending, result_of(Err(error))).await,
    };
    let step = PendingStep { venue, owner, caller: &caller, held, server: &server, peer: &peer, approval_time };
    let outcome = Box::pin(step.take(pending)).await?;
    Ok(mask_outcome(&peer.mask(), outcome))
}

pub(super) fn failure(code: ErrorCode, text: String) -> RunOutcome {
    RunOutcome::Ended(JobResult::failure(code, cut_error(text)))
}

/// Returns the end of a call that may have had its effect.
pub(super) fn unknown_end(shown: &str, why: &str) -> RunOutcome {
    let text = format!("outcome unknown: {shown}: {why}; the call may or may not have had its effect, look there");
    failure(ErrorCode::OutcomeUnknown, text)
}

/// Masks the secrets that went out with a request in the end of a job.
fn mask_outcome(mask: &Mask, outcome: RunOutcome) -> RunOutcome {
    match outcome {
        RunOutcome::Ended(result) => {
            let error = result.error.map(|text| mask.text(&text).into_owned());
            let output = result.output.map(|output| mask.value(output));
            RunOutcome::Ended(JobResult { output, error, ..result })
        }
        other @ (RunOutcome::Retry | RunOutcome::Later(_)) => other,
    }
}

/// A job whose next step is made.
pub(super) struct PendingStep<'a> {
    pub(super) venue: &'a Venue,
    pub(super) owner: &'a Owner,
    pub(super) caller: &'a Caller,
    pub(super) held: &'a LeasedOperation,
    server: &'a OpenedServer,
    peer: &'a McpPeer<'a>,
    pub(super) approval_time: Duration,
}

impl PendingStep<'_> {
    /// Makes the steps that can be made now.
    async fn take(&self, pending: PendingToolCall) -> Result<RunOutcome, StoreError> {
        match pending.phase.clone() {
            PendingPhase::Working { task, .. } => self.look(pending, &task).await,
            PendingPhase::Answering { task: Some(task), responses, .. } => self.update(pending, &task, responses).await,
            PendingPhase::Answering { task: None, .. } => self.call_again(pending).await,
            PendingPhase::Asking { approval: None, .. } => match question::ask(self, pending).await? {
                Some(asked) => Ok(RunOutcome::Later(self.until_expiry(&asked))),
                None => Ok(RunOutcome::Retry),
            },
            PendingPhase::Asking { round, task, approval: Some(approval) } => {
                let Some(responses) = question::responses(self, &round, &approval).await? else {
                    return Ok(RunOutcome::Later(self.until_expiry(&pending)));
                };
                let deadline = self.new_deadline();
                let phase = PendingPhase::Answering { responses, state: round.state, task, sending: None };
                let answered = PendingToolCall { deadline, ..pending.in_phase(phase) };
                if !self.record(&answered).await? {
                    return Ok(RunOutcome::Retry);
                }
                Box::pin(self.take(answered)).await
            }
        }
    }

    fn until_expiry(&self, pending: &PendingToolCall) -> Duration {
        pending.approval().map_or(MCP_POLL, |asked| asked.expires.elapsed_since(self.venue.now()))
    }

    fn new_deadline(&self) -> Millis {
        let usual = self.venue.now().plus(OUTBOUND_DEADLINE);
        self.caller.envelope.deadline.map_or(usual, |ends| ends.min(usual))
    }

    /// Stores the call as it stands; `false` if another worker has it.
    async fn record(&self, pending: &PendingToolCall) -> Result<bool, StoreError> {
        record_tool_call(self.venue, self.owner, self.held, pending, &[]).await
    }

    /// Stores the call as it stands, and has it looked at after a pause.
    async fn wait(&self, pending: &PendingToolCall, pause: Duration) -> Result<RunOutcome, StoreError> {
        let is_new = self.held.tool_call() != Some(pending);
        if is_new && !self.record(pending).await? {
            return Ok(RunOutcome::Retry);
        }
        let left = pending.deadline.elapsed_since(self.venue.now());
        Ok(RunOutcome::Later(pause.min(left.max(Duration::from_millis(1)))))
    }

    /// Asks for the task.
    async fn look(&self, pending: PendingToolCall, task: &str) -> Result<RunOutcome, StoreError> {
        if self.venue.now() >= pending.deadline {
            return Ok(self.give_up(&pending).await);
        }
        let request = McpRequest::of_task(self.peer.endpoint.next_id(), TaskMethod::Get, task);
        let asked = ask_peer(self.peer, &pending, request, SentParts::NONE, &Departure::default()).await;
        let state = match asked {
            Ok(answer) => TaskState::read(&answer, pending.era()),
            Err(error) => return self.after_failure(pending, error).await,
        };
        match state {
            Ok(TaskState::Working(poll)) => {
                let phase = PendingPhase::of_task(TaskHandle { id: task.to_owned(), poll });
                self.wait(&pending.in_phase(phase), poll).await
            }
            Ok(TaskState::Done(result)) => self.end(&pending, result).await,
            Ok(TaskState::ResultDue) => self.fetch_result(pending, task).await,
            Ok(TaskState::Failed(text)) => self.end_failed(&pending, &text).await,
            Ok(TaskState::Input(round)) => {
                let round = pending.open_questions(round);
                if round.requests.is_empty() {
                    return self.wait(&pending, MCP_POLL).await;
                }
                let phase = PendingPhase::of_round(round, Some(task.to_owned()));
                self.next_round(pending, phase).await
            }
            Err(error) => {
                cancel_task(self.peer, &pending).await;
                self.end_failed(&pending, &error.to_string()).await
            }
        }
    }

    /// Asks for the result of a task that has ended, in a revision with a handshake.
    async fn fetch_result(&self, pending: PendingToolCall, task: &str) -> Result<RunOutcome, StoreError> {
        let request = McpRequest::of_task(self.peer.endpoint.next_id(), TaskMethod::Result, task);
        match ask_peer(self.peer, &pending, request, SentParts::NONE, &Departure::default()).await {
            Ok(result) => self.end(&pending, result).await,
            Err(McpFailure::Rpc { status: 200, error: RpcError { code, message, .. } }) => {
                self.end_failed(&pending, &format!("error {code}: {message}")).await
            }
            Err(error) => self.after_failure(pending, error).await,
        }
    }

    /// Brings a task the answers that it has asked for.
    async fn update(
        &self,
        pending: PendingToolCall,
        task: &str,
        responses: Map<String, Value>,
    ) -> Result<RunOutcome, StoreError> {
        if self.venue.now() >= pending.deadline {
            return Ok(self.give_up(&pending).await);
        }
        let request = McpRequest::of_task(self.peer.endpoint.next_id(), TaskMethod::Update, task);
        let request = request.with_responses(responses.clone(), None);
        match ask_peer(self.peer, &pending, request, SentParts::NONE, &Departure::default()).await {
            Ok(_) => {
                let phase = PendingPhase::of_task(TaskHandle { id: task.to_owned(), poll: MCP_POLL });
                let pending = pending.with_answered(&responses).in_phase(phase);
                self.wait(&pending, *MCP_POLL_RANGE.start()).await
            }
            Err(error) => self.after_failure(pending, error).await,
        }
    }

    /// Takes a request about a task that has failed: the task is lost, or is asked for again.
    async fn after_failure(&self, pending: PendingToolCall, error: McpFailure) -> Result<RunOutcome, StoreError> {
        let is_lost = match &error {
            McpFailure::SessionOver | McpFailure::Status { status: 404, .. } => true,
            McpFailure::Rpc { status, error } => *status == 404 || error.code == INVALID_PARAMS,
            _ => false,
        };
        let is_refused = match &error {
            McpFailure::Transport(error) => matches!(error, OpError::Denied(_) | OpError::Invalid(_)),
            McpFailure::Status { status, .. } => matches!(status, 401 | 403),
            _ => false,
        };
        if is_lost || is_refused {
            let why = format!("its task is lost: {error}");
            return Ok(if pending.call.is_repeatable {
                failure(ErrorCode::TaskFailed, format!("{}: {why}", self.server.display_name()))
            } else {
                unknown_end(&self.server.display_name(), &why)
            });
        }
        let pending = pending.after_failure();
        tracing::debug!(owner = %self.owner, server = %pending.call.server, %error, "an MCP server doesn't tell of its task yet");
        self.wait(&pending, pending.retry_pause()).await
    }

    /// Makes the call again with the answers. That it may leave is stored before it does.
    async fn call_again(&self, pending: PendingToolCall) -> Result<RunOutcome, StoreError> {
        let shown = self.server.display_name();
        if pending.is_in_doubt() {
            return Ok(unknown_end(&shown, "the process that made the call with the answers ended before its answer"));
        }
        if self.server.is_changed {
            let text = format!(
                "{shown} has changed its tool `{}` since it was approved, so the call was not made again",
                pending.call.tool
            );
            return Ok(failure(ErrorCode::Refused, text));
        }
        let PendingPhase::Answering { responses, state, sending: earlier, .. } = pending.phase.clone() else {
            return Ok(RunOutcome::Retry);
        };
        let sending = |sending| PendingPhase::Answering {
            responses: responses.clone(),
            state: state.clone(),
            task: None,
            sending,
        };
        let leaving = PendingToolCall { phase: sending(Some(self.venue.now())), ..pending.clone() };
        if !self.record(&leaving).await? {
            return Ok(RunOutcome::Retry);
        }
        let departure = Departure::default();
        let error = match self.send_again(&leaving, responses.clone(), state.as_deref(), &departure).await {
            Ok(answer) => return self.after_answer(leaving, answer).await,
            Err(error) => error,
        };
        let has_left = departure.has_left();
        let is_refused = matches!(&error, McpFailure::Transport(OpError::Denied(_) | OpError::Invalid(_))) && !has_left;
        let may_repeat = !has_left || pending.call.is_repeatable;
        let failed =
            PendingToolCall { phase: sending(if has_left { Some(self.venue.now()) } else { earlier }), ..leaving };
        let failed = failed.after_failure();
        let is_final = matches!(&error, McpFailure::Rpc { status: 200..500, .. });
        if is_refused || is_final || !may_repeat || failed.failures >= A2A_SEND_TRIES {
            let may_have_run = has_left && !pending.call.is_repeatable;
            return Ok(RunOutcome::Ended(result_of(Err(self.peer.op_error(error, may_have_run)))));
        }
        tracing::debug!(owner = %self.owner, server = %failed.call.server, %error, "a call with answers not made yet");
        self.wait(&failed, failed.retry_pause()).await
    }

    async fn send_again(
        &self,
        pending: &PendingToolCall,
        responses: Map<String, Value>,
        state: Option<&str>,
        departure: &Departure,
    ) -> Result<Value, McpFailure> {
        let StartedToolCall { tool, arguments, is_repeatable, marks, .. } = &pending.call;
        let headers = param_headers(&self.server.definition.input_schema).unwrap_or_default();
        let params = header_values(&headers, arguments).map_err(|error| OpError::Invalid(error.to_string()))?;
        let marks = marks.clone().map(|marks| SentMarks {
            key: pending.key_of_round(),
            traceparent: marks.traceparent,
            job: marks.job,
        });
        let request = McpRequest::call_tool(self.peer.endpoint.next_id(), tool, arguments.clone())
            .with_trace(marks.as_ref().map(|marks| marks.traceparent.clone()))
            .with_offers(ClientOffers::TasksAndQuestions)
            .with_responses(responses, state);
        let sent = SentParts { params: &params, marks: marks.as_ref(), repeatable: *is_repeatable };
        ask_peer(self.peer, pending, request, sent, departure).await
    }

    /// Takes the answer to a call that was made again.
    async fn after_answer(&self, pending: PendingToolCall, answer: Value) -> Result<RunOutcome, StoreError> {
        match ToolCallProgress::read(answer, pending.era()) {
            Ok(ToolCallProgress::Done(result)) => self.end(&pending, result).await,
            Ok(ToolCallProgress::Working(task)) => {
                let poll = task.poll;
                self.wait(&pending.in_phase(PendingPhase::of_task(task)), poll).await
            }
            Ok(ToolCallProgress::Input(round)) => self.next_round(pending, PendingPhase::of_round(round, None)).await,
            Err(error) => self.end_failed(&pending, &error.to_string()).await,
        }
    }

    /// Begins one more round of questions, of which a call has a limit.
    async fn next_round(&self, pending: PendingToolCall, phase: PendingPhase) -> Result<RunOutcome, StoreError> {
        let rounds = pending.rounds.saturating_add(1);
        if rounds > MCP_ROUNDS {
            cancel_task(self.peer, &pending).await;
            let text = format!("{} asked more than {MCP_ROUNDS} times in one call", self.server.display_name());
            return Ok(failure(ErrorCode::LimitReached, text));
        }
        let asks = matches!(phase, PendingPhase::Asking { .. });
        let asking = PendingToolCall { rounds, ..pending.in_phase(phase) };
        if !asks {
            return self.wait(&asking, asking.retry_pause()).await;
        }
        if !self.record(&asking).await? {
            return Ok(RunOutcome::Retry);
        }
        Box::pin(self.take(asking)).await
    }

    /// Ends the job with the result of the call.
    async fn end(&self, pending: &PendingToolCall, result: Value) -> Result<RunOutcome, StoreError> {
        leave_session(self.peer, pending).await;
        let shown = self.server.display_name();
        let reader =
            ResultReader { venue: self.venue, caller: self.caller, shown: &shown, definition: &self.server.definition };
        let read = reader.read(result).await;
        if let Err(OpError::Store(error)) = read {
            return if error.is_transient() { Ok(RunOutcome::Retry) } else { Err(error) };
        }
        let ended = match read {
            Ok(output) => Ok(fit_output(&reader, &self.peer.mask(), output).await),
            Err(error) => Err(error),
        };
        Ok(RunOutcome::Ended(result_of(ended)))
    }

    async fn end_failed(&self, pending: &PendingToolCall, why: &str) -> Result<RunOutcome, StoreError> {
        leave_session(self.peer, pending).await;
        let (tool, shown) = (&pending.call.tool, self.server.display_name());
        Ok(failure(ErrorCode::TaskFailed, format!("`{tool}` of the {shown} failed: {why}")))
    }

    /// Ends a job whose time is over.
    async fn give_up(&self, pending: &PendingToolCall) -> RunOutcome {
        let told = if cancel_task(self.peer, pending).await {
            "the server was asked to cancel it"
        } else {
            "the server could not be asked to cancel it, so it may go on"
        };
        let text = format!("{}: its task did not end in time; {told}", self.server.display_name());
        failure(ErrorCode::Timeout, text)
    }
}

/// Returns a result that fits in a message: of a larger one the beginning, and the whole as an asset where that may be.
async fn fit_output(reader: &ResultReader<'_>, mask: &Mask, output: OpOutput) -> OpOutput {
    let whole = mask.value(output.value).to_string();
    if whole.len() <= MCP_LATE_RESULT_BYTES {
        return decode::json(whole.as_bytes()).map_or_else(|_| Value::String(whole).into(), OpOutput::from);
    }
    let form = AssetForm {
        content_base64: Some(BASE64_STANDARD.encode(&whole)),
        content_type: Some("application/json".to_owned()),
        ..AssetForm::default()
    };
    let (whole_at, rest) = match reader.store(form).await {
        KeptBytes::Asset(path) => (Some(path), "`whole` has the rest".to_owned()),
        KeptBytes::Lost(why) => (None, format!("the rest is lost: {why}")),
    };
    let cut = format!("the result has {} bytes, and has at most {MCP_LATE_RESULT_BYTES} here; {rest}", whole.len());
    let mut shown = Map::new();
    shown.insert("content".to_owned(), cut_at(&whole, HEAD_BYTES).into());
    shown.insert("cut".to_owned(), cut.into());
    shown.extend(whole_at.map(|path| ("whole".to_owned(), path.into())));
    Value::Object(shown).into()
}
