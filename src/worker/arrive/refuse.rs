//! Refusals: the terminal answer, sent where its sender may receive one.

use super::callers::Unknown;
use super::{RETRY, stray};
use crate::bus::Delivery;
use crate::domain::decode::{self, Wrong};
use crate::domain::event::{reply_to_allowed, reply_to_own};
use crate::domain::ids::{EventId, IdOf, Owner};
use crate::domain::job::{ErrorCode, JobResult, JobStatus};
use crate::domain::limits::MESSAGE_DEPTH;
use crate::domain::seal::{self, Sender};
use crate::domain::visible::told;
use crate::outbox;
use crate::worker::Worker;
use crate::worker::lease::outage::pause;
use serde_json::Value;

/// A refusal of a message.
pub(super) struct Refused {
    /// Terminal answer to the sender.
    pub result: Box<JobResult>,
    /// The message has a key or a name that this build doesn't know, and is otherwise readable.
    pub may_be_newer: bool,
}

impl From<Box<JobResult>> for Refused {
    fn from(result: Box<JobResult>) -> Self {
        Self { result, may_be_newer: false }
    }
}

/// Makes a refusal with this code and text.
pub(super) fn refusal(code: ErrorCode, error: impl Into<String>) -> Refused {
    Box::new(JobResult::ended(JobStatus::Rejected, code, told(error.into()))).into()
}

/// Parses a message that only the venue sends, and says who sent it.
pub(super) fn unsealed(worker: &Worker, delivery: &Delivery, what: &str) -> Result<(Value, Sender), Refused> {
    let mut body = body_of(decode::message(&delivery.body, MESSAGE_DEPTH), what)?;
    let Delivery { owner, agent, kind, .. } = delivery;
    let sender = seal::unsealed(&worker.venue.key, owner, agent, *kind, &mut body);
    if sender != Sender::Venue {
        body_of(decode::check(&body), what)?;
    }
    Ok((body, sender))
}

pub(super) fn body_of<T>(parsed: Result<T, Wrong>, what: &str) -> Result<T, Refused> {
    parsed.map_err(|wrong| {
        let refused = refusal(ErrorCode::Refused, format!("malformed {what}: {wrong}"));
        Refused { may_be_newer: wrong.is_of_the_unknown(), ..refused }
    })
}

pub(super) fn forged(what: &str) -> Refused {
    let or = if what == "result" { ", or with the `job` and `token` of a job for an external worker" } else { "" };
    let text = format!("FORGED: a {what} counts only under the seal of the venue that sends it{or}");
    refusal(ErrorCode::Forged, text)
}

/// Refuses a sender, or returns the message to the queue when the sender can't be verified yet.
pub(super) async fn not_known(worker: &Worker, delivery: &Delivery, unknown: Unknown) {
    match unknown {
        Unknown::Refused(code, text) => refuse(worker, delivery, refusal(code, text)).await,
        Unknown::Later(error) => {
            tracing::warn!(%error, "not let in yet");
            delivery.settle.nak(pause(&error)).await;
        }
    }
}

/// Derives the id of a message without one from its place in the stream: the same for each redelivery, different for
/// each publication.
pub(super) fn id_of_place(venue_key: &[u8], delivery: &Delivery) -> EventId {
    let Delivery { published, sequence, .. } = *delivery;
    EventId::of_venue(venue_key, IdOf::Place { published, sequence })
}

/// Returns where the answer to a refused message goes, if its sender may name that subject. An unknown owner gets only
/// a shared inbox, and only where no tokens are required.
pub(super) fn answer_to(worker: &Worker, owner: Option<&Owner>, body: &[u8]) -> Option<String> {
    let allowed = if worker.options.auth.is_required() { reply_to_own } else { reply_to_allowed };
    let (tenant, user) = owner.map(|owner| (owner.tenant().token(), owner.user().token())).unwrap_or_default();
    reply_to(body).filter(|subject| allowed(subject, &tenant, &user))
}

/// Parses `replyTo` of a body, even of one that is refused.
pub(super) fn reply_to(body: &[u8]) -> Option<String> {
    let value = decode::message(body, MESSAGE_DEPTH).ok()?;
    value.get("replyTo")?.as_str().map(str::to_owned)
}

/// Publishes the terminal answer, then acknowledges, so that no refusal is lost and none is retried. A message that may
/// be of a newer build is left to that build.
pub(super) async fn refuse(worker: &Worker, delivery: &Delivery, refused: impl Into<Refused>) {
    let Refused { result, may_be_newer } = refused.into();
    let reason = result.error.as_deref().unwrap_or_default();
    if may_be_newer && stray::is_left(worker, &*delivery.settle, delivery.published, reason).await {
        return;
    }
    let key = &worker.venue.key;
    let place = id_of_place(key, delivery);
    // An id that is reserved isn't used in the answer.
    let named = delivery.id.as_deref().and_then(|id| EventId::new(id).ok());
    let id = named.unwrap_or_else(|| place.clone());
    tracing::info!(
        owner = %delivery.owner, agent = %delivery.agent, %id,
        reason,
        "submission refused"
    );
    let owner: &Owner = &delivery.owner;
    let reply_to = answer_to(worker, Some(owner), &delivery.body);
    let answers = outbox::refusal(key, (owner, &delivery.agent), &id, &place, reply_to.as_deref(), &result);
    for answer in answers {
        if let Err(error) = worker.venue.bus.publish(&answer).await {
            tracing::warn!(%error, "refusal not published yet");
            delivery.settle.nak(RETRY).await;
            return;
        }
    }
    delivery.settle.ack().await;
}
