//! The end of a call that may not go on: its task is cancelled, and its question is withdrawn.

use super::server::{OpenedServer, SentParts, ask_peer};
use super::step::unknown_end;
use crate::domain::approval::ApprovalVerdict;
use crate::domain::ids::Owner;
use crate::domain::job::JobResult;
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
pub async fn stop_cancelled(venue: &Venue, owner: &Owner, cancelled: &CancelledRemote) -> Result<(), StoreError> {
    match &cancelled.invoked.tool_call {
        Some(pending) => stop_call(venue, owner, pending).await,
        None => Ok(()),
    }
}

/// Ends a job whose call may not go on, for this reason. Whatever it is, a call that has left may have had its effect.
pub(super) async fn stop(
    venue: &Venue,
    owner: &Owner,
    pending: &PendingToolCall,
    result: JobResult,
) -> Result<RunOutcome, StoreError> {
    stop_call(venue, owner, pending).await?;
    if !pending.is_in_doubt() {
        return Ok(RunOutcome::Ended(result));
    }
    Ok(unknown_end(&format!("MCP server `{}`", pending.call.server), &result.error.unwrap_or_default()))
}

/// Withdraws the question of a call, and has its task cancelled, as far as the server lets it.
async fn stop_call(venue: &Venue, owner: &Owner, pending: &PendingToolCall) -> Result<(), StoreError> {
    if let Some(asked) = pending.approval() {
        answer_or_close(venue, owner, &asked.id, Some(ApprovalVerdict::Withdrawn)).await?;
    }
    if let Err(error) = cancel_at_server(venue, owner, pending).await {
        tracing::warn!(%owner, server = %pending.call.server, %error, "an MCP server did not cancel a task; it may go on");
    }
    Ok(())
}

pub(in crate::venue::mcp) async fn cancel_at_server(
    venue: &Venue,
    owner: &Owner,
    pending: &PendingToolCall,
) -> Result<(), OpError> {
    if pending.task().is_none() {
        return Ok(());
    }
    let server = OpenedServer::find(venue, owner, &pending.call).await?;
    let peer = server.peer(venue, owner).await?;
    cancel_task(&peer, pending).await;
    Ok(())
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
