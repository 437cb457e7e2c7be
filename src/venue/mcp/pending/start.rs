//! The job of a call that goes on, opened by its turn.

use crate::domain::ids::JobId;
use crate::domain::invocation::{self as rules, InvokedOperation};
use crate::domain::job::JobHead;
use crate::domain::mcp::pending::{PENDING_CALL, PendingToolCall};
use crate::venue::child_jobs::{call_id, open_operation, still_running};
use crate::venue::operation::{Invocation, OpError, OpOutput, TurnSite};
use crate::view::mcp_server::McpPendingCallView;
use crate::view::request::StartedRequestView;
use crate::view::to_json;

/// Opens the job as an effect of the running turn, fenced by its lease. What is known of the call is stored before it.
pub(in crate::venue::mcp) async fn start(
    call: &Invocation<'_>,
    site: &TurnSite<'_>,
    pending: PendingToolCall,
) -> Result<OpOutput, OpError> {
    let operation = pending.call.server.operation_path(&pending.call.tool);
    let (head, invoked) = make_job(call, site, pending);
    let bytes = serde_json::to_vec(&invoked).map_or(0, |record| record.len());
    open_operation(call, site, &head, &invoked, bytes).await?;
    Ok(still_running(site, StartedRequestView::of_tool(operation, head.id)))
}

/// Makes the head of the job, and the record by which workers run it.
fn make_job(call: &Invocation<'_>, site: &TurnSite<'_>, pending: PendingToolCall) -> (JobHead, InvokedOperation) {
    let (venue, owner, now) = (call.venue, &call.caller.owner, call.venue.now());
    let event = call_id(venue, site);
    let id = JobId::derive(&venue.key, owner, &event);
    let input = McpPendingCallView { server: pending.call.server.to_string(), tool: pending.call.tool.clone() };
    let invoked = InvokedOperation::new(id.clone(), event.clone(), call.caller.asker(None), now);
    let invoked = InvokedOperation { tool_call: Some(Box::new(pending)), ..invoked };
    let head = JobHead {
        caller: Some(call.caller.name.clone()),
        parent: Some(site.parent.clone()),
        principal: call.caller.principal.mark().map(str::to_owned),
        bound: Some(Box::new(call.caller.authority.clone().without_home())),
        under: call.caller.trail(),
        ..rules::job_head(id, event, PENDING_CALL, to_json(&input), now)
    };
    (head, invoked)
}
