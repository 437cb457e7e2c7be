//! The steps of a call that goes on for which its server is asked.

use super::server::{SentParts, ask_peer};
use super::step::{PendingStep, failure};
use super::stop::{cancel_task, end_without_answer, leave_session};
use crate::domain::asset::AssetForm;
use crate::domain::call::SentMarks;
use crate::domain::job::{ErrorCode, JobResult};
use crate::domain::limits::{A2A_SEND_TRIES, MCP_LATE_RESULT_BYTES, MCP_POLL, MCP_POLL_RANGE, MCP_ROUNDS};
use crate::domain::mcp::header::{header_values, param_headers};
use crate::domain::mcp::message::{ClientOffers, McpRequest, RpcError, TaskMethod};
use crate::domain::mcp::pending::{PendingPhase, PendingToolCall, StartedToolCall};
use crate::domain::mcp::task::{TaskError, TaskHandle, TaskState, ToolCallProgress};
use crate::domain::visible::{cut_at, cut_error};
use crate::store::StoreError;
use crate::venue::failure::OpError;
use crate::venue::mcp::output::{KeptBytes, ResultReader};
use crate::venue::mcp_client::{FailureMeaning, McpFailure, McpPeer};
use crate::venue::operation::OpOutput;
use crate::venue::operation_jobs::{RunOutcome, keep_trying, result_of};
use crate::venue::outbound::departure::Departure;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};

/// Bytes of the beginning of a result that is too large.
const HEAD_BYTES: usize = 64 * 1024;

/// A step with the server that is asked.
pub(super) struct ServerStep<'a> {
    pub(super) step: &'a PendingStep<'a>,
    pub(super) peer: &'a McpPeer<'a>,
}

impl ServerStep<'_> {
    /// Makes the step that is due.
    pub(super) async fn take(&self, pending: PendingToolCall) -> Result<RunOutcome, StoreError> {
        if pending.is_late(self.step.venue.now()) {
            return Ok(self.give_up(&pending).await);
        }
        match pending.phase.clone() {
            PendingPhase::Working { task, .. } => self.look(pending, &task).await,
            PendingPhase::Answering { task: Some(task), responses, sending, .. } => match sending {
                None => self.update(pending, &task, responses).await,
                Some(_) => self.update_again(pending, &task, responses).await,
            },
            PendingPhase::Answering { task: None, .. } => self.call_again(pending).await,
            PendingPhase::Asking { .. } => Ok(RunOutcome::Retry),
        }
    }

    /// Sends a request about the task of a call.
    async fn ask(&self, pending: &PendingToolCall, request: McpRequest) -> Result<Value, McpFailure> {
        ask_peer(self.peer, pending, request, SentParts::NONE, &Departure::default()).await
    }

    async fn ask_for_task(&self, pending: &PendingToolCall, task: &str) -> Result<Value, McpFailure> {
        self.ask(pending, McpRequest::of_task(self.peer.endpoint.next_id(), TaskMethod::Get, task)).await
    }

    /// Asks for the task.
    async fn look(&self, pending: PendingToolCall, task: &str) -> Result<RunOutcome, StoreError> {
        match self.ask_for_task(&pending, task).await {
            Ok(answer) => self.settle(pending, task, &answer).await,
            Err(error) => self.after_failure(pending, error).await,
        }
    }

    /// Takes the state of the task.
    async fn settle(&self, pending: PendingToolCall, task: &str, answer: &Value) -> Result<RunOutcome, StoreError> {
        match TaskState::read(answer, pending.era()) {
            Ok(TaskState::Working(poll)) => {
                let pause = pending.poll_pause(self.step.venue.now(), poll);
                let phase = PendingPhase::of_task(TaskHandle { id: task.to_owned(), poll });
                self.step.wait(&pending.in_phase(phase), pause).await
            }
            Ok(TaskState::Done(result)) => self.end(&pending, result).await,
            Ok(TaskState::ResultDue) => self.fetch_result(pending, task).await,
            Ok(TaskState::Failed(text)) => self.end_failed(&pending, &text).await,
            Ok(TaskState::Input(round)) => {
                let round = pending.open_questions(round);
                if round.requests.is_empty() {
                    let pause = pending.poll_pause(self.step.venue.now(), MCP_POLL);
                    return self.step.wait(&pending, pause).await;
                }
                let phase = PendingPhase::of_round(round, Some(task.to_owned()));
                self.next_round(pending, phase).await
            }
            Err(error) => Ok(self.cancel(&pending, ErrorCode::TaskFailed, &error.to_string()).await),
        }
    }

    /// Asks for the result of a task that has ended, in a revision with a handshake.
    async fn fetch_result(&self, pending: PendingToolCall, task: &str) -> Result<RunOutcome, StoreError> {
        let request = McpRequest::of_task(self.peer.endpoint.next_id(), TaskMethod::Result, task);
        match self.ask(&pending, request).await {
            Ok(result) => self.end(&pending, result).await,
            Err(McpFailure::Rpc { status: 200, error: RpcError { code, message, .. } }) => {
                self.end_failed(&pending, &format!("error {code}: {message}")).await
            }
            Err(error) => self.after_failure(pending, error).await,
        }
    }

    /// Brings a task the answers that it has asked for. That they may leave is stored before they do.
    async fn update(
        &self,
        pending: PendingToolCall,
        task: &str,
        responses: Map<String, Value>,
    ) -> Result<RunOutcome, StoreError> {
        let leaving = pending.mark_as_sent(self.step.venue.now());
        if !self.step.record(&leaving).await? {
            return Ok(RunOutcome::Retry);
        }
        let request = McpRequest::of_task(self.peer.endpoint.next_id(), TaskMethod::Update, task);
        match self.ask(&leaving, request.with_responses(responses.clone(), None)).await {
            Ok(_) => {
                let phase = PendingPhase::of_task(TaskHandle { id: task.to_owned(), poll: MCP_POLL });
                let pending = leaving.with_answered(&responses).in_phase(phase);
                self.step.wait(&pending, *MCP_POLL_RANGE.start()).await
            }
            Err(error) => self.after_failure(leaving, error).await,
        }
    }

    /// Brings a task its answers once more only if it still asks for them: the next question may have come meanwhile.
    async fn update_again(
        &self,
        pending: PendingToolCall,
        task: &str,
        responses: Map<String, Value>,
    ) -> Result<RunOutcome, StoreError> {
        let answer = match self.ask_for_task(&pending, task).await {
            Ok(answer) => answer,
            Err(error) => return self.after_failure(pending, error).await,
        };
        let still_asks = match TaskState::read(&answer, pending.era()) {
            Ok(TaskState::Input(round)) => round.requests.iter().any(|request| responses.contains_key(&request.key)),
            _ => false,
        };
        if still_asks {
            return self.update(pending, task, responses).await;
        }
        self.settle(pending.with_answered(&responses), task, &answer).await
    }

    /// Takes a request about a task that has failed: the task is lost, or is asked for again.
    async fn after_failure(&self, pending: PendingToolCall, error: McpFailure) -> Result<RunOutcome, StoreError> {
        if error.is_of_lost_task() {
            return Ok(self.end_unanswered(
                &pending,
                false,
                ErrorCode::TaskFailed,
                &format!("its task is lost: {error}"),
            ));
        }
        let pending = pending.after_failure();
        tracing::debug!(owner = %self.step.owner, server = %pending.call.server, %error, "an MCP server doesn't tell of its task yet");
        self.step.wait(&pending, pending.retry_pause()).await
    }

    /// Makes the call again with the answers. That it may leave is stored before it does.
    async fn call_again(&self, pending: PendingToolCall) -> Result<RunOutcome, StoreError> {
        let shown = self.step.server.display_name();
        if self.step.server.is_changed {
            let text = format!(
                "{shown} has changed its tool `{}` since it was approved, so the call was not made again",
                pending.call.tool
            );
            return Ok(failure(ErrorCode::Refused, text));
        }
        let PendingPhase::Answering { responses, state, .. } = pending.phase.clone() else {
            return Ok(RunOutcome::Retry);
        };
        let leaving = pending.clone().mark_as_sent(self.step.venue.now());
        if !self.step.record(&leaving).await? {
            return Ok(RunOutcome::Retry);
        }
        let departure = Departure::default();
        let error = match self.send_again(&leaving, responses, state.as_deref(), &departure).await {
            Ok(answer) => return self.after_answer(leaving, answer).await,
            Err(error) => error,
        };
        let has_left = departure.has_left();
        let is_unknown = has_left && error.meaning() == FailureMeaning::Unknown;
        let is_refused = match &error {
            McpFailure::Transport(OpError::Denied(_) | OpError::Invalid(_)) if !has_left => true,
            error => error.meaning() == FailureMeaning::Refused,
        };
        // Of a try that has surely done nothing, nothing is stored.
        let failed = if is_unknown { leaving } else { pending }.after_failure();
        let must_end = is_unknown && !failed.call.is_repeatable;
        if is_refused || must_end || failed.failures >= A2A_SEND_TRIES {
            return Ok(RunOutcome::Ended(result_of(Err(self.peer.op_error(error, must_end)))));
        }
        tracing::debug!(owner = %self.step.owner, server = %failed.call.server, %error, "a call with answers not made yet");
        self.step.wait(&failed, failed.retry_pause()).await
    }

    async fn send_again(
        &self,
        pending: &PendingToolCall,
        responses: Map<String, Value>,
        state: Option<&str>,
        departure: &Departure,
    ) -> Result<Value, McpFailure> {
        let StartedToolCall { tool, arguments, is_repeatable, marks, .. } = &pending.call;
        let headers = param_headers(&self.step.server.definition.input_schema).unwrap_or_default();
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
                let phase = PendingPhase::of_task(task);
                let working = PendingToolCall { begun: self.step.venue.now(), ..pending.in_phase(phase) };
                if !self.keep(&working).await? {
                    return Ok(RunOutcome::Retry);
                }
                Ok(RunOutcome::Later(working.limit_pause(self.step.venue.now(), poll)))
            }
            Ok(ToolCallProgress::Input(round)) => self.next_round(pending, PendingPhase::of_round(round, None)).await,
            // It asks for what nobody is asked: nothing was done.
            Err(error @ TaskError::Input(_)) => self.end_failed(&pending, &error.to_string()).await,
            Err(error) => Ok(self.end_unanswered(&pending, false, ErrorCode::TaskFailed, &error.to_string())),
        }
    }

    /// Stores what an answer has brought, with retries: only this worker knows it.
    async fn keep(&self, pending: &PendingToolCall) -> Result<bool, StoreError> {
        keep_trying(|| self.step.record(pending)).await
    }

    /// Begins one more round of questions, of which a call has a limit.
    async fn next_round(&self, pending: PendingToolCall, phase: PendingPhase) -> Result<RunOutcome, StoreError> {
        let rounds = pending.rounds.saturating_add(1);
        if rounds > MCP_ROUNDS {
            let why = format!("asked more than {MCP_ROUNDS} times in one call");
            // A call that asks has done nothing; a task may go on.
            return Ok(match pending.task() {
                Some(_) => self.cancel(&pending, ErrorCode::LimitReached, &why).await,
                None => failure(ErrorCode::LimitReached, format!("{}: {why}", self.step.server.display_name())),
            });
        }
        let asks = matches!(phase, PendingPhase::Asking { .. });
        let asking = PendingToolCall { rounds, ..pending.in_phase(phase) };
        if !self.keep(&asking).await? {
            return Ok(RunOutcome::Retry);
        }
        if !asks {
            return Ok(RunOutcome::Later(asking.limit_pause(self.step.venue.now(), asking.retry_pause())));
        }
        Box::pin(self.step.take(asking)).await
    }

    /// Ends the job with the result of the call.
    async fn end(&self, pending: &PendingToolCall, result: Value) -> Result<RunOutcome, StoreError> {
        leave_session(self.peer, pending).await;
        let shown = self.step.server.display_name();
        let PendingStep { venue, caller, server, .. } = self.step;
        let reader = ResultReader { venue, caller, shown: &shown, definition: &server.definition };
        let read = reader.read(result).await;
        if let Err(OpError::Store(error)) = read {
            return if error.is_transient() { Ok(RunOutcome::Retry) } else { Err(error) };
        }
        let ended = match read {
            Ok(output) => Ok(fit_output(&reader, output).await),
            Err(error) => Err(error),
        };
        Ok(RunOutcome::Ended(result_of(ended)))
    }

    async fn end_failed(&self, pending: &PendingToolCall, why: &str) -> Result<RunOutcome, StoreError> {
        leave_session(self.peer, pending).await;
        let (tool, shown) = (&pending.call.tool, self.step.server.display_name());
        Ok(failure(ErrorCode::TaskFailed, format!("`{tool}` of the {shown} failed: {why}")))
    }

    fn end_unanswered(&self, pending: &PendingToolCall, is_cancelled: bool, code: ErrorCode, why: &str) -> RunOutcome {
        let text = cut_error(format!("{}: {why}", self.step.server.display_name()));
        end_without_answer(pending, is_cancelled, JobResult::failure(code, text))
    }

    /// Ends a job whose task may not go on.
    async fn cancel(&self, pending: &PendingToolCall, code: ErrorCode, why: &str) -> RunOutcome {
        let is_cancelled = cancel_task(self.peer, pending).await;
        let told = if is_cancelled {
            "the server was asked to cancel it"
        } else {
            "the server could not be asked to cancel it, so it may go on"
        };
        self.end_unanswered(pending, is_cancelled, code, &format!("{why}; {told}"))
    }

    /// Ends a job whose time is over.
    async fn give_up(&self, pending: &PendingToolCall) -> RunOutcome {
        if pending.task().is_some() {
            return self.cancel(pending, ErrorCode::Timeout, "its task did not end in time").await;
        }
        self.end_unanswered(
            pending,
            false,
            ErrorCode::Timeout,
            "the time for the call was over before it was made again",
        )
    }
}

/// Returns a result that fits in a message: of a larger one the beginning, and the whole as an asset where that may be.
async fn fit_output(reader: &ResultReader<'_>, output: OpOutput) -> OpOutput {
    let whole = output.value.to_string();
    if whole.len() <= MCP_LATE_RESULT_BYTES {
        return output;
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
