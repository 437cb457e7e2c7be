//! Strays: messages that can't be delivered. Each is answered if it names an address, and kept as a dead letter.

use super::reply_subject::allowed_reply_subject;
use super::settle::REDELIVERY_DELAY;
use crate::bus::{Acknowledge, Delivery, UndecodedMessage};
use crate::domain::dead::UnreadableMessage;
use crate::domain::decode;
use crate::domain::event::Completion;
use crate::domain::ids::{AgentId, EventId, Owner, VenueIdSubject};
use crate::domain::job::{ErrorCode, JobResult, JobStatus};
use crate::domain::limits::{MESSAGE_DEPTH, UNREADABLE_BYTES};
use crate::domain::message::{BusMessage, MessageAddress};
use crate::domain::secret::hide::HIDDEN;
use crate::domain::time::Millis;
use crate::venue::outbox::{self, RefusedSubmission};
use crate::venue::{store_format, strays};
use crate::worker::state::Worker;
use bytes::Bytes;
use std::sync::Arc;

/// Handles the unreadable messages of the last receive.
pub(crate) fn collect(worker: &Arc<Worker>) {
    for unreadable in worker.venue.bus.take_unreadable() {
        let worker = Arc::clone(worker);
        let handled = Arc::clone(&worker);
        worker.shutdown.spawn_turn("stray", async move { handle(&handled, unreadable).await });
    }
}

/// Handles a readable delivery that no redelivery would help.
///
/// An unreadable wake is not left to a newer build: due sessions are found without it.
pub(super) async fn keep_unusable(worker: &Worker, delivery: &Delivery, reason: String) {
    let Delivery { owner, agent, kind, id, sequence, published, .. } = delivery;
    let to = MessageAddress::In { owner: owner.clone(), agent: agent.clone(), kind: *kind };
    let unreadable = UndecodedMessage {
        subject: strays::subject_below_prefix(&to),
        reason,
        has_unknown_kind: false,
        owner: Some(owner.clone()),
        id: id.clone(),
        body: mask_secrets(&delivery.body),
        sequence: *sequence,
        published: *published,
        settle: Arc::clone(&delivery.settle),
    };
    handle(worker, unreadable).await;
}

/// Leaves a message with unknown content in the queue for a newer build, for at most a day. Returns whether it did.
pub(super) async fn leave_to_newer(worker: &Worker, settle: &dyn Acknowledge, published: Millis, reason: &str) -> bool {
    if worker.venue.now().elapsed_since(published) >= store_format::NEWER_MESSAGE_AGE {
        return false;
    }
    match worker.venue.is_behind().await {
        Ok(false) => return false,
        Ok(true) => tracing::warn!(reason, "a message that this build can't read is left to a newer one"),
        Err(error) => tracing::warn!(%error, reason, "a message that can't be read is looked at again"),
    }
    settle.nak(store_format::NEWER_MESSAGE_DELAY).await;
    true
}

/// Replaces secrets in a body by which a reader could act for another.
fn mask_secrets(body: &Bytes) -> Bytes {
    let Ok(mut value) = decode::message_json(body, MESSAGE_DEPTH) else { return body.clone() };
    for key in ["token", "seal"] {
        if let Some(found) = value.get_mut(key) {
            *found = HIDDEN.into();
        }
    }
    value.to_string().into()
}

/// Answers and stores a stray before it is acknowledged: after a crash in between, both are done again.
async fn handle(worker: &Worker, unreadable: UndecodedMessage) {
    let UndecodedMessage { subject, reason, has_unknown_kind, owner, id, body, sequence, published, settle } =
        unreadable;
    let may_be_newer = has_unknown_kind && decode::message_json(&body, MESSAGE_DEPTH).is_ok();
    if may_be_newer && leave_to_newer(worker, &*settle, published, &reason).await {
        return;
    }
    let answers = answers(
        &worker.venue.key,
        allowed_reply_subject(worker, owner.as_ref(), &body),
        &StrayFacts { subject: &subject, reason: &reason, id: id.as_deref(), place: (published, sequence) },
        owner.as_ref(),
    );
    let mut told = Vec::new();
    for answer in answers {
        match worker.venue.bus.publish(&answer).await {
            Ok(()) => told.push(match answer.to {
                MessageAddress::Reply(subject) => subject,
                MessageAddress::Out { .. }
                | MessageAddress::Event { .. }
                | MessageAddress::In { .. }
                | MessageAddress::Job { .. } => "completions".to_owned(),
            }),
            Err(error) => tracing::warn!(subject, %error, "the sender of an unreadable message isn't told"),
        }
    }
    let text = String::from_utf8_lossy(&body[..body.len().min(UNREADABLE_BYTES)]).into_owned();
    tracing::warn!(subject, reason, bytes = body.len(), "a message that nobody can get is kept for `dead list`");
    let stray =
        UnreadableMessage { subject, reason, owner, id, received: published, bytes: body.len(), body: text, told };
    match strays::keep(&worker.venue, &stray, sequence).await {
        Ok(()) => settle.ack().await,
        Err(error) => {
            tracing::warn!(%error, "an unreadable message isn't kept yet");
            settle.nak(REDELIVERY_DELAY).await;
        }
    }
}

/// Known facts of a stray.
struct StrayFacts<'a> {
    subject: &'a str,
    reason: &'a str,
    id: Option<&'a str>,
    /// Time of publication, and sequence number in the stream.
    place: (Millis, u64),
}

/// Returns the terminal answers: to the completions of the owner, and to the inbox that it names.
fn answers(key: &[u8], reply_to: Option<String>, unread: &StrayFacts<'_>, owner: Option<&Owner>) -> Vec<BusMessage> {
    let result = JobResult::unsuccessful(JobStatus::Rejected, ErrorCode::Refused, unread.reason);
    let (published, sequence) = unread.place;
    let place = EventId::of_venue(key, VenueIdSubject::Place { published, sequence });
    let id = unread.id.and_then(|id| EventId::new(id).ok()).unwrap_or_else(|| place.clone());
    let named = unread.subject.rsplit('.').nth(1).and_then(|token| AgentId::new(token).ok());
    let agent = named.unwrap_or_else(|| AgentId::new("unknown").expect("a legal id"));
    if let Some(owner) = owner {
        let reply_to = reply_to.as_deref();
        let refused = RefusedSubmission { owner, agent: &agent, id: &id, place: &place, reply_to };
        return outbox::refusal_messages(key, refused, &result);
    }
    let completion = Completion { id, job: None, agent, session: None, output_omitted: None, result };
    let body = serde_json::to_value(&completion).expect("completions serialise");
    reply_to
        .into_iter()
        .map(|subject| BusMessage { to: MessageAddress::Reply(subject), id: None, body: body.clone(), trace: None })
        .collect()
}
