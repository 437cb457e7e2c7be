//! The steps of a call that goes on: who may go on with it, and what a person is asked.

use super::agent::{AgentStanding, check_agent};
use super::question;
use super::server::OpenedServer;
use super::server_step::ServerStep;
use super::stop::{stop, unknown_end};
use crate::domain::ids::Owner;
use crate::domain::job::{ErrorCode, JobHead, JobResult};
use crate::domain::limits::{MCP_POLL, MCP_POLL_RANGE, OUTBOUND_DEADLINE};
use crate::domain::mcp::pending::{PENDING_CALL, PendingPhase, PendingToolCall};
use crate::domain::time::Millis;
use crate::domain::visible::cut_error;
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::failure::OpError;
use crate::venue::operation::Caller;
use crate::venue::operation_jobs::{LeasedOperation, RunCaller, RunOutcome, read_caller, record_tool_call, result_of};
use std::time::Duration;

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
    if let Some(result) = held.given_up() {
        return stop(venue, owner, &pending, result.clone()).await;
    }
    let caller = match read_caller(venue, owner, held).await? {
        RunCaller::Permitted(caller) => caller,
        RunCaller::Revoked(result) => return stop(venue, owner, &pending, result).await,
    };
    match check_agent(venue, owner, held.head(), &caller, &pending.call).await? {
        AgentStanding::Permitted => {}
        AgentStanding::Suspended if pending.is_late(venue.now()) => {}
        AgentStanding::Suspended => return Ok(RunOutcome::Later(*MCP_POLL_RANGE.end())),
        AgentStanding::Stopped(error) => return stop(venue, owner, &pending, result_of(Err(error))).await,
    }
    let server = match OpenedServer::open(venue, owner, &caller, &pending.call).await {
        Ok(server) => server,
        Err(error) => return after_obstacle(venue, owner, held, pending, error).await,
    };
    let step = PendingStep { venue, owner, caller: &caller, held, server: &server, approval_time };
    Box::pin(step.take(pending)).await
}

/// Returns the end of a job that fails.
pub(super) fn failure(code: ErrorCode, text: String) -> RunOutcome {
    RunOutcome::Ended(JobResult::failure(code, cut_error(text)))
}

/// Takes an error that keeps a step from being made. A login server that fails may answer later: neither a task nor the
/// answer of a person is given up for it.
async fn after_obstacle(
    venue: &Venue,
    owner: &Owner,
    held: &LeasedOperation,
    pending: PendingToolCall,
    error: OpError,
) -> Result<RunOutcome, StoreError> {
    match error {
        OpError::Store(error) if error.is_transient() => Ok(RunOutcome::Retry),
        error @ (OpError::Upstream(_) | OpError::Timeout(_)) if !pending.is_late(venue.now()) => {
            let pending = pending.after_failure();
            tracing::debug!(%owner, server = %pending.call.server, %error, "an MCP server can't be asked yet");
            let pause = pending.retry_pause();
            wait(venue, owner, held, &pending, pause).await
        }
        error => stop(venue, owner, &pending, result_of(Err(error))).await,
    }
}

/// Stores the call as it stands, and has it looked at after a pause.
async fn wait(
    venue: &Venue,
    owner: &Owner,
    held: &LeasedOperation,
    pending: &PendingToolCall,
    pause: Duration,
) -> Result<RunOutcome, StoreError> {
    let is_new = held.tool_call() != Some(pending);
    if is_new && !record_tool_call(venue, owner, held, pending, &[]).await? {
        return Ok(RunOutcome::Retry);
    }
    Ok(RunOutcome::Later(pending.limit_pause(venue.now(), pause)))
}

/// A job whose next step is made.
pub(super) struct PendingStep<'a> {
    pub(super) venue: &'a Venue,
    pub(super) owner: &'a Owner,
    pub(super) caller: &'a Caller,
    pub(super) held: &'a LeasedOperation,
    pub(super) server: &'a OpenedServer,
    pub(super) approval_time: Duration,
}

impl PendingStep<'_> {
    /// Makes steps until the job has ended, or waits for the server or a person.
    pub(super) async fn take(&self, pending: PendingToolCall) -> Result<RunOutcome, StoreError> {
        match pending.phase.clone() {
            PendingPhase::Working { .. } | PendingPhase::Answering { .. } => self.ask_server(pending).await,
            PendingPhase::Asking { approval: None, .. } => match question::ask(self, pending.clone()).await {
                Ok(Some(asked)) => Ok(RunOutcome::Later(self.until_expiry(&asked))),
                Ok(None) => Ok(RunOutcome::Retry),
                Err(StoreError::Over(over)) => {
                    let full = JobResult::failure(ErrorCode::QuotaExceeded, over.to_string());
                    stop(self.venue, self.owner, &pending, full).await
                }
                Err(error) => Err(error),
            },
            PendingPhase::Asking { round, task, approval: Some(approval) } => {
                let Some(responses) = question::responses(self, &round, &approval).await? else {
                    return Ok(RunOutcome::Later(self.until_expiry(&pending)));
                };
                let deadline = self.new_deadline();
                let phase = PendingPhase::Answering { responses, state: round.state, task, sending: None };
                let answered = PendingToolCall { deadline, begun: self.venue.now(), ..pending.in_phase(phase) };
                if !self.record(&answered).await? {
                    return Ok(RunOutcome::Retry);
                }
                Box::pin(self.take(answered)).await
            }
        }
    }

    /// Makes a step for which the server is asked.
    async fn ask_server(&self, pending: PendingToolCall) -> Result<RunOutcome, StoreError> {
        if pending.is_in_doubt() {
            let why = "the process that made the call with the answers ended before its answer";
            return Ok(unknown_end(&format!("{}: {why}", self.server.display_name())));
        }
        match self.server.peer(self.venue, self.owner).await {
            Ok(peer) => Box::pin(ServerStep { step: self, peer: &peer }.take(pending)).await,
            Err(error) => after_obstacle(self.venue, self.owner, self.held, pending, error).await,
        }
    }

    fn until_expiry(&self, pending: &PendingToolCall) -> Duration {
        pending.approval().map_or(MCP_POLL, |asked| asked.expires.elapsed_since(self.venue.now()))
    }

    fn new_deadline(&self) -> Millis {
        self.caller.envelope.limit_time(self.venue.now().plus(OUTBOUND_DEADLINE))
    }

    /// Stores the call as it stands; `false` if another worker has it.
    pub(super) async fn record(&self, pending: &PendingToolCall) -> Result<bool, StoreError> {
        record_tool_call(self.venue, self.owner, self.held, pending, &[]).await
    }

    /// Stores the call as it stands, and has it looked at after a pause.
    pub(super) async fn wait(&self, pending: &PendingToolCall, pause: Duration) -> Result<RunOutcome, StoreError> {
        wait(self.venue, self.owner, self.held, pending, pause).await
    }
}
