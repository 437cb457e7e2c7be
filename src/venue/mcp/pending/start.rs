//! The job of a call that goes on, opened by its turn.

use crate::domain::ids::{JobId, SessionKey};
use crate::domain::invocation::{self as rules, InvokedOperation};
use crate::domain::job::JobHead;
use crate::domain::limits::OUTBOUND_ORPHAN;
use crate::domain::mcp::pending::{PENDING_CALL, PendingToolCall};
use crate::domain::priority::Priority;
use crate::domain::quota::QuotaUsage;
use crate::store::{Checkpoint, LeaseCheck};
use crate::venue::child_jobs::{call_id, check_room, still_running};
use crate::venue::ingress;
use crate::venue::operation::{Invocation, OpError, OpOutput, TurnSite};
use crate::venue::operation_jobs::keep_child;
use crate::view::mcp_server::McpPendingCallView;
use crate::view::request::StartedRequestView;
use crate::view::to_json;

/// Opens the job as an effect of the running turn, fenced by its lease. What is known of the call is stored before it.
pub(in crate::venue::mcp) async fn start(
    call: &Invocation<'_>,
    site: &TurnSite<'_>,
    pending: PendingToolCall,
) -> Result<OpOutput, OpError> {
    let (venue, owner) = (call.venue, &call.caller.owner);
    let operation = pending.call.server.operation_path(&pending.call.tool);
    let (head, invoked) = make_job(call, site, pending);
    let open = [ingress::new_job(&head)];
    let bytes = serde_json::to_vec(&invoked).map_or(0, |record| record.len()) as u64;
    // The job has a head, a status and an entry in the list; its record has a document and an entry by time.
    let adds = QuotaUsage { documents: 5, bytes: 2 * open[0].head.len() as u64 + bytes, sessions: 0, jobs: 1 };
    check_room(call, adds, &open, None).await?;
    keep_child(venue, owner, &invoked, venue.now().plus(OUTBOUND_ORPHAN)).await?;
    let write = Checkpoint { turn: site.turn, open: open.to_vec(), ..Checkpoint::default() };
    match venue.store.checkpoint(venue.now(), site.lease, &write).await? {
        LeaseCheck::Fenced => return Err(OpError::Fenced),
        LeaseCheck::Held { .. } => {}
    }
    // The job is open: its record is due anyway, if later.
    if let Err(error) = keep_child(venue, owner, &invoked, venue.now()).await {
        tracing::warn!(%owner, job = %head.id, %error, "a call that goes on is looked at late");
    }
    venue.wake(owner, &rules::session(&head.id)).await;
    Ok(still_running(site, StartedRequestView::of_tool(operation, head.id)))
}

/// Makes the head of the job, and the record by which workers run it.
fn make_job(call: &Invocation<'_>, site: &TurnSite<'_>, pending: PendingToolCall) -> (JobHead, InvokedOperation) {
    let (venue, owner, now) = (call.venue, &call.caller.owner, call.venue.now());
    let event = call_id(venue, site);
    let id = JobId::derive(&venue.key, owner, &event);
    let SessionKey { agent, session } = rules::session(&id);
    let input = McpPendingCallView { server: pending.call.server.to_string(), tool: pending.call.tool.clone() };
    let invoked = InvokedOperation::new(id.clone(), event.clone(), call.caller.asker(None), now);
    let invoked = InvokedOperation { tool_call: Some(Box::new(pending)), ..invoked };
    let head = JobHead {
        id,
        event,
        op: Some(PENDING_CALL.to_owned()),
        agent,
        session,
        caller: Some(call.caller.name.clone()),
        input: to_json(&input),
        hidden: None,
        created: now,
        parent: Some(site.parent.clone()),
        reply_to: None,
        redrive_of: None,
        priority: Priority::Normal,
        principal: call.caller.principal.mark().map(str::to_owned),
        request: None,
        bound: Some(Box::new(call.caller.authority.clone().without_home())),
        ignored: Vec::new(),
        under: call.caller.trail(),
    };
    (head, invoked)
}
