//! Stage 1 where callers are recognised: whose a submission is, by the venue's seal or by a token.

use super::Worker;
use crate::bus::{Delivery, InKind};
use crate::domain::authority::Authority;
use crate::domain::event::Submission;
use crate::domain::job::ErrorCode;
use crate::ops::Caller;

/// Who sends what is for people to say: with a token who it says, else the owner.
pub(super) fn person(worker: &Worker, delivery: &Delivery) -> Result<Caller, (ErrorCode, String)> {
    let header = delivery.authorization.as_deref();
    let Some(verified) = worker.options.auth.header(header, delivery.published) else {
        return Ok(Caller::new(delivery.owner.clone(), delivery.owner.to_string(), Authority::unlimited()));
    };
    let verified = verified.map_err(|refused| (ErrorCode::Unauthenticated, format!("UNAUTHENTICATED: {refused}")))?;
    let known = verified.caller(Some(delivery.owner.clone()));
    known.map(|known| known.caller).map_err(|error| (ErrorCode::CapDenied, format!("CAP_DENIED: {error}")))
}

/// What is known of a submission's sender, put into it, and whether he may set what his token
/// claims. Time is judged as of the publication: a backlog doesn't expire what was accepted.
pub(super) fn identified(
    worker: &Worker,
    delivery: &Delivery,
    sealed: bool,
    submission: Submission,
) -> Result<(Submission, bool), (ErrorCode, String)> {
    if sealed {
        return Ok((submission, false));
    }
    let header = delivery.authorization.as_deref();
    let Some(verified) = worker.options.auth.header(header, delivery.published) else {
        return Ok((submission, false));
    };
    let verified = verified.map_err(|refused| (ErrorCode::Unauthenticated, format!("UNAUTHENTICATED: {refused}")))?;
    let denied = |text: String| (ErrorCode::CapDenied, format!("CAP_DENIED: {text}"));
    let known = verified.caller(Some(delivery.owner.clone())).map_err(|error| denied(error.to_string()))?;
    let ability = if delivery.kind == InKind::Task { "agent/request" } else { "agent/message" };
    let permitted = known.caller.authority.permits(ability, &format!("g/{}", delivery.agent));
    permitted.map_err(|error| denied(error.text("this submission")))?;
    Ok((Submission { envelope: known.caller.request(), ..submission }, known.may_override))
}
