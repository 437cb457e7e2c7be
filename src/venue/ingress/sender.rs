//! Verifies the sender of a message of the queue, by its token.

use super::check_reply;
use crate::domain::authority::{Authority, ResourcePath};
use crate::domain::event::Submission;
use crate::domain::ids::{AgentId, Owner};
use crate::domain::job::ErrorCode;
use crate::domain::message::InboundKind;
use crate::domain::principal::Principal;
use crate::domain::time::Millis;
use crate::domain::token::TokenError;
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::auth::Auth;
use crate::venue::auth::caller::AuthenticatedCaller;
use crate::venue::operation::Caller;
use crate::venue::policy::{self, RevocationCheckError};

/// Reason why a message is refused.
pub enum SenderRefusal {
    /// The refusal is final.
    Refused(ErrorCode, String),
    /// The store failed: the check is made again.
    RetryLater(StoreError),
}

/// What a message of the queue says of its sender, and where it goes.
#[derive(Debug, Clone, Copy)]
pub struct MessageEnvelope<'m> {
    /// Owner in its subject.
    pub owner: &'m Owner,
    /// Agent in its subject.
    pub agent: &'m AgentId,
    /// Kind in its subject.
    pub kind: InboundKind,
    /// The header `Authorization`.
    pub authorization: Option<&'m str>,
    /// When it was published.
    pub published: Millis,
}

/// A submission with its sender's identity.
pub struct IdentifiedSubmission {
    /// The submission, with caller and authority.
    pub submission: Submission,
    /// Principal whose id it is.
    pub by: Principal,
    /// Whether the sender may set claims that its token has.
    pub may_override: bool,
}

/// Returns the owner as caller with full authority, where no tokens are required.
pub fn full_authority_caller(owner: &Owner) -> Caller {
    Caller::new(owner.clone(), owner.to_string(), Authority::without_limits())
}

/// Verifies the token in a header at a time and applies the owner's revocations. `None` where no tokens are required.
///
/// # Errors
///
/// The refusal.
pub async fn verify(
    venue: &Venue,
    auth: &Auth,
    owner: &Owner,
    header: Option<&str>,
    at: Millis,
) -> Result<Option<AuthenticatedCaller>, SenderRefusal> {
    let refused =
        |text: TokenError| SenderRefusal::Refused(ErrorCode::Unauthenticated, format!("UNAUTHENTICATED: {text}"));
    let Some(verified) = auth.verify_header(header, at) else { return Ok(None) };
    let known = verified.map_err(refused)?.caller(Some(owner.clone()));
    let known = known.map_err(|error| {
        let text = format!("CAP_DENIED: {error}; publish on the subject of that owner (`--owner {}`)", error.0);
        SenderRefusal::Refused(ErrorCode::CapDenied, text)
    })?;
    policy::apply_revocations(&*venue.store, known).await.map(Some).map_err(|error| match error {
        RevocationCheckError::Token(error) => refused(error),
        RevocationCheckError::Store(error) => SenderRefusal::RetryLater(error),
    })
}

/// Puts the sender's identity into a submission, and checks that the sender may submit it. One under the venue's seal
/// has its identity.
///
/// # Errors
///
/// The refusal.
pub async fn identify(
    venue: &Venue,
    auth: &Auth,
    envelope: MessageEnvelope<'_>,
    sealed: bool,
    submission: Submission,
) -> Result<IdentifiedSubmission, SenderRefusal> {
    let unnamed = |submission| Ok(IdentifiedSubmission { submission, by: Principal::ANYBODY, may_override: false });
    if sealed {
        return unnamed(submission);
    }
    let MessageEnvelope { owner, agent, kind, authorization, published } = envelope;
    let Some(known) = verify(venue, auth, owner, authorization, published).await? else {
        // Without required tokens, a client that may publish for an owner acts as that owner.
        return unnamed(Submission { caller: Some(owner.to_string()), ..submission });
    };
    let (ability, on) = match &submission.job {
        _ if kind == InboundKind::Task => ("agent/request", ResourcePath::agent(agent)),
        Some(job) => ("job/message", ResourcePath::job(job)),
        None => ("agent/message", ResourcePath::agent(agent)),
    };
    let permitted = known.caller.authority.permits(ability, on);
    permitted.map_err(|error| {
        SenderRefusal::Refused(ErrorCode::CapDenied, format!("CAP_DENIED: {}", error.model_text("this submission")))
    })?;
    if !known.caller.operator {
        let checked = check_reply(owner, &submission);
        checked.map_err(|error| SenderRefusal::Refused(error.code(), error.to_string()))?;
    }
    let (envelope, caller) = (known.caller.request_envelope(), Some(known.caller.name.clone()));
    let submission = Submission { caller, envelope, ..submission };
    Ok(IdentifiedSubmission { submission, by: known.caller.principal, may_override: known.may_override })
}
