//! The question of a server to a person, as an approval that the job waits for.

use super::step::PendingStep;
use crate::domain::approval::ApprovalVerdict;
use crate::domain::approval::{Approval, CallPlace, elicited_responses, elicited_subject};
use crate::domain::mcp::input::InputRound;
use crate::domain::mcp::pending::{AskedApproval, PendingPhase, PendingToolCall};
use crate::store::StoreError;
use crate::venue::approvals::{answer_or_close, creation_writes};
use crate::venue::operation_jobs::record_tool_call;
use serde_json::{Map, Value};

/// Stores the question with the state of the call; `None` if another worker has the job.
pub(super) async fn ask(
    step: &PendingStep<'_>,
    pending: PendingToolCall,
) -> Result<Option<PendingToolCall>, StoreError> {
    let PendingPhase::Asking { round, task, .. } = pending.phase.clone() else { return Ok(None) };
    let (venue, owner, head) = (step.venue, step.owner, step.held.head());
    let Some(parent) = &head.parent else { return Ok(None) };
    let call = &pending.call;
    let subject = elicited_subject(&round, &call.server, &call.tool, pending.rounds);
    let place = CallPlace {
        owner,
        session: &parent.session,
        turn: call.turn,
        call: call.index,
        // A session that begins anew counts its turns from 1 again.
        start: Some(head.created),
    };
    let now = venue.now();
    let expires = step.caller.envelope.limit_time(now.plus(step.approval_time));
    let mut approval = Approval::new(&venue.key, place, &call.called, subject, now, expires);
    approval.job.clone_from(&parent.job);
    approval.asked_by = Some(head.id.clone());
    approval.under = step.caller.authority.clone().without_home();
    let asked = AskedApproval { id: approval.id.clone(), expires: approval.expires };
    let asking = pending.in_phase(PendingPhase::Asking { round, task, approval: Some(asked) });
    let writes = creation_writes(venue, owner, &approval);
    Ok(record_tool_call(venue, owner, step.held, &asking, &writes).await?.then_some(asking))
}

/// Returns the responses to the server once the question is answered or expired.
pub(super) async fn responses(
    step: &PendingStep<'_>,
    round: &InputRound,
    asked: &AskedApproval,
) -> Result<Option<Map<String, Value>>, StoreError> {
    let close = (step.venue.now() >= asked.expires).then_some(ApprovalVerdict::Expired);
    let answer = answer_or_close(step.venue, step.owner, &asked.id, close).await?;
    Ok(answer.map(|answer| elicited_responses(round, &answer.verdict)))
}
