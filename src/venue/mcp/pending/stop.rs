//! The end of a call that may not go on: its task is cancelled, and its question is withdrawn.

use super::server::{OpenedServer, SentParts, ask_peer};
use super::step::failure;
use crate::domain::approval::ApprovalVerdict;
use crate::domain::ids::Owner;
use crate::domain::job::{ErrorCode, JobResult};
use crate::domain::limits::MCP_MESSAGE_BYTES;
use crate::domain::mcp::message::{McpRequest, TaskMethod};
use crate::domain::mcp::pending::PendingToolCall;
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::approvals::answer_or_close;
use crate::venue::failure::OpError;
use crate::venue::mcp_client::{McpPeer, PeerCall};
use crate::venue::operation_jobs::{CancelledRemote, RunOutcome};
use crate::venue::outbound::departure::Departure;
use std::time::Duration;

/// Longest time for the end of a session.
const END_TIME: Duration = Duration::from_secs(5);

/// Stops the call of a job that was cancelled. After a crash in the middle this is done again.
///
/// `true` if the server has taken the cancellation of its task.
pub async fn stop_cancelled(venue: &Venue, owner: &Owner, cancelled: &CancelledRemote) -> Result<bool, StoreError> {
    match &cancelled.invoked.tool_call {
        Some(pending) => stop_call(venue, owner, pending).await,
        None => Ok(false),
    }
}

/// Returns the end of a call that may have had its effect.
pub(super) fn unknown_end(why: &str) -> RunOutcome {
    let text = format!("outcome unknown: {why}; the call may or may not have had its effect, look there");
    failure(ErrorCode::OutcomeUnknown, text)
}

/// Returns the end of a job whose call has no answer: with `result`, unless the call may have had its effect all the same.
pub(super) fn end_without_answer(pending: &PendingToolCall, is_cancelled: bool, result: JobResult) -> RunOutcome {
    if pending.may_have_effect(is_cancelled) {
        return unknown_end(&result.error.unwrap_or_default());
    }
    RunOutcome::Ended(result)
}

/// Ends a job whose call may not go on, for this reason.
pub(super) async fn stop(
    venue: &Venue,
    owner: &Owner,
    pending: &PendingToolCall,
    result: JobResult,
) -> Result<RunOutcome, StoreError> {
    let is_cancelled = stop_call(venue, owner, pending).await?;
    Ok(end_without_answer(pending, is_cancelled, result))
}

/// Withdraws the question of a call, and has its task cancelled; `true` if the server has taken that.
async fn stop_call(venue: &Venue, owner: &Owner, pending: &PendingToolCall) -> Result<bool, StoreError> {
    if let Some(asked) = pending.approval() {
        answer_or_close(venue, owner, &asked.id, Some(ApprovalVerdict::Withdrawn)).await?;
    }
    Ok(cancel_at_server(venue, owner, pending).await)
}

/// Has the task of a call cancelled; `true` if the server has taken that.
pub(in crate::venue::mcp) async fn cancel_at_server(venue: &Venue, owner: &Owner, pending: &PendingToolCall) -> bool {
    if pending.task().is_none() {
        return false;
    }
    let asked = async {
        let server = OpenedServer::find(venue, owner, &pending.call).await?;
        let peer = server.peer(venue, owner).await?;
        Ok::<_, OpError>(cancel_task(&peer, pending).await)
    };
    asked.await.unwrap_or_else(|error| {
        tracing::warn!(%owner, server = %pending.call.server, %error, "an MCP server did not cancel a task; it may go on");
        false
    })
}

/// Asks the server to cancel the task of a call; `false` if it could not be asked or has refused.
pub(super) async fn cancel_task(peer: &McpPeer<'_>, pending: &PendingToolCall) -> bool {
    let Some(task) = pending.task() else { return false };
    let request = McpRequest::of_task(peer.endpoint.next_id(), TaskMethod::Cancel, task);
    let asked = ask_peer(peer, pending, request, SentParts::NONE, &Departure::default()).await;
    leave_session(peer, pending).await;
    match asked {
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(server = %pending.call.server, %error, "an MCP server did not cancel a task; it may go on");
            false
        }
    }
}

/// Ends the session of a task, as far as the server lets it.
pub(super) async fn leave_session(peer: &McpPeer<'_>, pending: &PendingToolCall) {
    let Some(session) = &pending.session else { return };
    let call = PeerCall {
        request: McpRequest::of_task(0, TaskMethod::Cancel, ""),
        params: &[],
        marks: None,
        patience: END_TIME,
        max_bytes: MCP_MESSAGE_BYTES,
        repeatable: true,
    };
    peer.end_task_session(session, &call).await;
}
