//! Stage 1: verifies the sender of a delivery, by the venue's seal or by a token.

use crate::bus::{Delivery, JobQuestion};
use crate::domain::event::Submission;
use crate::venue::ingress::sender::{
    self, IdentifiedSubmission, MessageEnvelope, SenderRefusal, full_authority_caller,
};
use crate::venue::operation::Caller;
use crate::worker::state::Worker;

/// Returns who asks about an owner's work, and whether a token says so; without one it is the owner.
pub(super) async fn verify_asker(worker: &Worker, question: &JobQuestion) -> Result<(Caller, bool), SenderRefusal> {
    let (venue, owner, header) = (&worker.venue, &question.owner, question.authorization.as_deref());
    let known = sender::verify(venue, &worker.options.auth, owner, header, venue.now()).await?;
    let is_verified = known.is_some();
    Ok((known.map_or_else(|| full_authority_caller(owner), |known| known.caller), is_verified))
}

/// Returns the person who sent a decision: the subject of the token, else the owner. The token counts at the time of
/// publication, so that it doesn't expire while its message waits.
pub(super) async fn verify_person(worker: &Worker, delivery: &Delivery) -> Result<Caller, SenderRefusal> {
    let Delivery { owner, authorization, published, .. } = delivery;
    let known =
        sender::verify(&worker.venue, &worker.options.auth, owner, authorization.as_deref(), *published).await?;
    Ok(known.map_or_else(|| full_authority_caller(owner), |known| known.caller))
}

/// Puts the sender's identity into a submission.
pub(super) async fn identify_sender(
    worker: &Worker,
    delivery: &Delivery,
    sealed: bool,
    submission: Submission,
) -> Result<IdentifiedSubmission, SenderRefusal> {
    let Delivery { owner, agent, kind, authorization, published, .. } = delivery;
    let envelope =
        MessageEnvelope { owner, agent, kind: *kind, authorization: authorization.as_deref(), published: *published };
    sender::identify(&worker.venue, &worker.options.auth, envelope, sealed, submission).await
}
