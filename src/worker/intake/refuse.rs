//! Refusals: the terminal answer, sent where its sender may receive one.

use super::reply_subject::allowed_reply_subject;
use super::settle::REDELIVERY_DELAY;
use super::stray;
use crate::bus::Delivery;
use crate::domain::decode::{self, DataError};
use crate::domain::ids::{EventId, Owner, VenueIdSubject};
use crate::domain::job::{ErrorCode, JobResult, JobStatus};
use crate::domain::limits::MESSAGE_DEPTH;
use crate::domain::seal::{self, SealOrigin};
use crate::domain::visible::cut_error;
use crate::venue::ingress::sender::SenderRefusal;
use crate::venue::outbox::{self, RefusedSubmission};
use crate::worker::lease::outage::pause;
use crate::worker::state::Worker;
use serde_json::Value;

/// A refusal of a message.
pub(super) struct MessageRefusal {
    /// Terminal answer to the sender.
    pub result: Box<JobResult>,
    /// The message has a key or a name that this build doesn't know, and is otherwise readable.
    pub may_be_newer: bool,
}

impl From<Box<JobResult>> for MessageRefusal {
    fn from(result: Box<JobResult>) -> Self {
        Self { result, may_be_newer: false }
    }
}

/// Makes a refusal with this code and text.
pub(super) fn refusal(code: ErrorCode, error: impl Into<String>) -> MessageRefusal {
    Box::new(JobResult::unsuccessful(JobStatus::Rejected, code, cut_error(error.into()))).into()
}

/// Parses a message that only the venue sends, and says who sent it.
pub(super) fn parse_sealed(
    worker: &Worker,
    delivery: &Delivery,
    what: &str,
) -> Result<(Value, SealOrigin), MessageRefusal> {
    let mut body = parse_body(decode::message_json(&delivery.body, MESSAGE_DEPTH), what)?;
    let Delivery { owner, agent, kind, .. } = delivery;
    let sender = seal::take_seal(&worker.venue.key, owner, agent, *kind, &mut body);
    if sender != SealOrigin::Venue {
        parse_body(decode::check(&body), what)?;
    }
    Ok((body, sender))
}

pub(super) fn parse_body<T>(parsed: Result<T, DataError>, what: &str) -> Result<T, MessageRefusal> {
    parsed.map_err(|wrong| {
        let refused = refusal(ErrorCode::Refused, format!("malformed {what}: {wrong}"));
        MessageRefusal { may_be_newer: wrong.is_unknown_name(), ..refused }
    })
}

pub(super) fn forgery_refusal(what: &str) -> MessageRefusal {
    let or = if what == "result" { ", or with the `job` and `token` of a job for an external worker" } else { "" };
    let text = format!("FORGED: a {what} counts only under the seal of the venue that sends it{or}");
    refusal(ErrorCode::Forged, text)
}

/// Refuses a sender, or returns the message to the queue when the sender can't be verified yet.
pub(super) async fn refuse_sender(worker: &Worker, delivery: &Delivery, unknown: SenderRefusal) {
    match unknown {
        SenderRefusal::Refused(code, text) => refuse(worker, delivery, refusal(code, text)).await,
        SenderRefusal::RetryLater(error) => {
            tracing::warn!(%error, "not let in yet");
            delivery.settle.nak(pause(&error)).await;
        }
    }
}

/// Derives the id of a message without one from its place in the stream: the same for each redelivery, different for
/// each publication.
pub(super) fn derive_event_id(venue_key: &[u8], delivery: &Delivery) -> EventId {
    let Delivery { published, sequence, .. } = *delivery;
    EventId::of_venue(venue_key, VenueIdSubject::Place { published, sequence })
}

/// Publishes the terminal answer, then acknowledges, so that no refusal is lost and none is retried. A message that may
/// be of a newer build is left to that build.
pub(super) async fn refuse(worker: &Worker, delivery: &Delivery, refused: impl Into<MessageRefusal>) {
    let MessageRefusal { result, may_be_newer } = refused.into();
    let reason = result.error.as_deref().unwrap_or_default();
    if may_be_newer && stray::leave_to_newer(worker, &*delivery.settle, delivery.published, reason).await {
        return;
    }
    let key = &worker.venue.key;
    let place = derive_event_id(key, delivery);
    // An id that is reserved isn't used in the answer.
    let named = delivery.id.as_deref().and_then(|id| EventId::new(id).ok());
    let id = named.unwrap_or_else(|| place.clone());
    tracing::info!(
        owner = %delivery.owner, agent = %delivery.agent, %id,
        reason,
        "submission refused"
    );
    let owner: &Owner = &delivery.owner;
    let reply_to = allowed_reply_subject(worker, Some(owner), &delivery.body);
    let refused =
        RefusedSubmission { owner, agent: &delivery.agent, id: &id, place: &place, reply_to: reply_to.as_deref() };
    let answers = outbox::refusal_messages(key, refused, &result);
    for answer in answers {
        if let Err(error) = worker.venue.bus.publish(&answer).await {
            tracing::warn!(%error, "refusal not published yet");
            delivery.settle.nak(REDELIVERY_DELAY).await;
            return;
        }
    }
    delivery.settle.ack().await;
}
