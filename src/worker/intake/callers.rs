//! Stage 1: verifies the sender of a delivery, by the venue's seal or by a token.

use crate::bus::{Delivery, JobQuestion};
use crate::domain::authority::Authority;
use crate::domain::authority::ResourcePath;
use crate::domain::event::Submission;
use crate::domain::ids::Owner;
use crate::domain::job::ErrorCode;
use crate::domain::message::InboundKind;
use crate::domain::principal::Principal;
use crate::domain::time::Millis;
use crate::domain::token::TokenError;
use crate::store::StoreError;
use crate::venue::auth::caller::AuthenticatedCaller;
use crate::venue::ingress;
use crate::venue::operation::Caller;
use crate::venue::policy::{self, RevocationCheckError};
use crate::worker::state::Worker;

/// Reason why a delivery is refused.
pub(crate) enum SenderRefusal {
    /// The refusal is final.
    Refused(ErrorCode, String),
    /// The store failed: the check is made again.
    RetryLater(StoreError),
}

/// Verifies the token of a delivery at its time of publication, so that a token doesn't expire while its message waits.
async fn verify_delivery(worker: &Worker, delivery: &Delivery) -> Result<Option<AuthenticatedCaller>, SenderRefusal> {
    verify(worker, &delivery.owner, delivery.authorization.as_deref(), delivery.published).await
}

/// Returns who asks about an owner's work, and whether a token says so; without one it is the owner.
pub(super) async fn verify_asker(worker: &Worker, question: &JobQuestion) -> Result<(Caller, bool), SenderRefusal> {
    let (owner, header) = (&question.owner, question.authorization.as_deref());
    let known = verify(worker, owner, header, worker.venue.now()).await?;
    let is_verified = known.is_some();
    Ok((known.map_or_else(|| full_authority_caller(owner), |known| known.caller), is_verified))
}

/// Returns the owner as caller with full authority, where no tokens are required.
fn full_authority_caller(owner: &Owner) -> Caller {
    Caller::new(owner.clone(), owner.to_string(), Authority::without_limits())
}

/// Verifies the token in a header and applies the owner's revocations. `None` where no tokens are required.
async fn verify(
    worker: &Worker,
    owner: &Owner,
    header: Option<&str>,
    at: Millis,
) -> Result<Option<AuthenticatedCaller>, SenderRefusal> {
    let refused =
        |text: TokenError| SenderRefusal::Refused(ErrorCode::Unauthenticated, format!("UNAUTHENTICATED: {text}"));
    let Some(verified) = worker.options.auth.verify_header(header, at) else { return Ok(None) };
    let known = verified.map_err(refused)?.caller(Some(owner.clone()));
    let known = known.map_err(|error| {
        let text = format!("CAP_DENIED: {error}; publish on the subject of that owner (`--owner {}`)", error.0);
        SenderRefusal::Refused(ErrorCode::CapDenied, text)
    })?;
    policy::apply_revocations(&*worker.venue.store, known).await.map(Some).map_err(|error| match error {
        RevocationCheckError::Token(error) => refused(error),
        RevocationCheckError::Store(error) => SenderRefusal::RetryLater(error),
    })
}

/// Returns the person who sent a decision: the subject of the token, else the owner.
pub(super) async fn verify_person(worker: &Worker, delivery: &Delivery) -> Result<Caller, SenderRefusal> {
    let known = verify_delivery(worker, delivery).await?;
    Ok(known.map_or_else(|| full_authority_caller(&delivery.owner), |known| known.caller))
}

/// Puts the sender's identity into a submission. Returns it, the sender, and whether the sender may set claims that its
/// token has.
pub(super) async fn identify_sender(
    worker: &Worker,
    delivery: &Delivery,
    sealed: bool,
    submission: Submission,
) -> Result<(Submission, Principal, bool), SenderRefusal> {
    let unnamed = |submission| Ok((submission, Principal::ANYBODY, false));
    if sealed {
        return unnamed(submission);
    }
    let Some(known) = verify_delivery(worker, delivery).await? else {
        // Without required tokens, a client that may publish for an owner acts as that owner.
        return unnamed(Submission { caller: Some(delivery.owner.to_string()), ..submission });
    };
    let (ability, on) = match &submission.job {
        _ if delivery.kind == InboundKind::Task => ("agent/request", ResourcePath::agent(&delivery.agent)),
        Some(job) => ("job/message", ResourcePath::job(job)),
        None => ("agent/message", ResourcePath::agent(&delivery.agent)),
    };
    let permitted = known.caller.authority.permits(ability, on);
    permitted.map_err(|error| {
        SenderRefusal::Refused(ErrorCode::CapDenied, format!("CAP_DENIED: {}", error.model_text("this submission")))
    })?;
    if !known.caller.operator {
        let checked = ingress::check_reply(&delivery.owner, &submission);
        checked.map_err(|error| SenderRefusal::Refused(error.code(), error.to_string()))?;
    }
    let (envelope, caller) = (known.caller.request_envelope(), Some(known.caller.name.clone()));
    Ok((Submission { caller, envelope, ..submission }, known.caller.principal, known.may_override))
}
