//! Stage 1 where callers are recognised: whose a submission is, by the venue's seal or by a token.

use crate::bus::{Delivery, JobQuestion};
use crate::domain::authority::Authority;
use crate::domain::authority::ResourcePath;
use crate::domain::event::Submission;
use crate::domain::ids::Owner;
use crate::domain::job::ErrorCode;
use crate::domain::message::InKind;
use crate::domain::principal::Principal;
use crate::domain::time::Millis;
use crate::domain::token::TokenRefused;
use crate::ingress;
use crate::store::StoreError;
use crate::venue::auth::caller::Recognised;
use crate::venue::operation::Caller;
use crate::venue::policy;
use crate::worker::Worker;

/// Why a delivery is refused.
pub(crate) enum Unknown {
    /// For good.
    Refused(ErrorCode, String),
    /// It can't be said now.
    Later(StoreError),
}

/// Whose token a delivery has. Its time is judged as of the publication: a backlog doesn't expire what was accepted.
async fn recognised(worker: &Worker, delivery: &Delivery) -> Result<Option<Recognised>, Unknown> {
    verify(worker, &delivery.owner, delivery.authorization.as_deref(), delivery.published).await
}

/// Who asks something about an owner's work: with a token who it says, else the owner.
pub(super) async fn asker(worker: &Worker, question: &JobQuestion) -> Result<(Caller, bool), Unknown> {
    let (owner, header) = (&question.owner, question.authorization.as_deref());
    let known = verify(worker, owner, header, worker.venue.now()).await?;
    let is_verified = known.is_some();
    Ok((known.map_or_else(|| whole_owner(owner), |known| known.caller), is_verified))
}

/// The owner himself, where nobody needs a token.
fn whole_owner(owner: &Owner) -> Caller {
    Caller::new(owner.clone(), owner.to_string(), Authority::unlimited())
}

/// The caller whose token a header has, checked against what its owner has revoked by now. `None` where nobody needs one.
async fn verify(
    worker: &Worker,
    owner: &Owner,
    header: Option<&str>,
    at: Millis,
) -> Result<Option<Recognised>, Unknown> {
    let refused = |text: TokenRefused| Unknown::Refused(ErrorCode::Unauthenticated, format!("UNAUTHENTICATED: {text}"));
    let Some(verified) = worker.options.auth.header(header, at) else { return Ok(None) };
    let known = verified.map_err(refused)?.caller(Some(owner.clone()));
    let known = known.map_err(|error| Unknown::Refused(ErrorCode::CapDenied, format!("CAP_DENIED: {error}")))?;
    let held = policy::held(&*worker.venue.store, known).await.map_err(Unknown::Later)?;
    held.map(Some).map_err(refused)
}

/// Who sends what is for people to say: with a token who it says, else the owner.
pub(super) async fn person(worker: &Worker, delivery: &Delivery) -> Result<Caller, Unknown> {
    let known = recognised(worker, delivery).await?;
    Ok(known.map_or_else(|| whole_owner(&delivery.owner), |known| known.caller))
}

/// What is known of a submission's sender, put into it; who he is, and whether he may set what his token
/// claims.
pub(super) async fn identified(
    worker: &Worker,
    delivery: &Delivery,
    sealed: bool,
    submission: Submission,
) -> Result<(Submission, Principal, bool), Unknown> {
    let unnamed = |submission| Ok((submission, Principal::ANYBODY, false));
    if sealed {
        return unnamed(submission);
    }
    let Some(known) = recognised(worker, delivery).await? else {
        // Where nobody needs a token, whoever may publish for an owner speaks as that owner.
        return unnamed(Submission { caller: Some(delivery.owner.to_string()), ..submission });
    };
    let (ability, on) = match &submission.job {
        _ if delivery.kind == InKind::Task => ("agent/request", ResourcePath::agent(&delivery.agent)),
        Some(job) => ("job/message", ResourcePath::job(job)),
        None => ("agent/message", ResourcePath::agent(&delivery.agent)),
    };
    let permitted = known.caller.authority.permits(ability, on);
    permitted.map_err(|error| {
        Unknown::Refused(ErrorCode::CapDenied, format!("CAP_DENIED: {}", error.text("this submission")))
    })?;
    if !known.caller.operator {
        let checked = ingress::check_reply(&delivery.owner, &submission);
        checked.map_err(|error| Unknown::Refused(error.code(), error.to_string()))?;
    }
    let (envelope, caller) = (known.caller.request(), Some(known.caller.name.clone()));
    Ok((Submission { caller, envelope, ..submission }, known.caller.principal, known.may_override))
}
