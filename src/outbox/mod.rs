//! Stage 8: what a commit decided to publish, and the relay that does it.

use crate::bus::{Bus, BusError};
use crate::domain::decode;
use crate::domain::event::{Completion, ResultBody, Submission};
use crate::domain::ids::{AgentId, EventId, IdOf, JobId, Owner};
use crate::domain::job::{JobHead, JobResult};
use crate::domain::message::{Address, InKind, Message};
use crate::domain::seal;
use crate::process::telemetry::Metrics;
use crate::store::{OutboxEntry, Store, StoreError, keys};
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::{Value, json};

/// Publishes that wait for their acknowledgement at the same time.
const WINDOW: usize = 64;

/// A message as it lies in an outbox.
pub fn entry(id: String, message: &Message) -> OutboxEntry {
    let message = serde_json::to_vec(message).expect("messages serialise");
    OutboxEntry { id, message: Bytes::from(message) }
}

/// The cancellation of a job.
pub fn cancel(venue_key: &[u8], owner: &Owner, head: &JobHead, reason: &str) -> OutboxEntry {
    let id = EventId::of_venue(venue_key, IdOf::Cancel(&head.id)).to_string();
    let to = Address::In { owner: owner.clone(), agent: head.agent.clone(), kind: InKind::Cancel };
    entry(id.clone(), &Message { to, id: Some(id), body: json!({"job": head.id, "reason": reason}) })
}

/// Everything that the end of a job sends: the completion on `out` and on `replyTo`, and the
/// result to the session that waits for it. The ids depend on the job alone: a job ends once. A stream
/// drops a second message with an id that it knows, so that nobody else may know these before.
pub fn completions(venue_key: &[u8], owner: &Owner, head: &JobHead, result: &JobResult) -> Vec<OutboxEntry> {
    let made = |of: IdOf<'_>| EventId::of_venue(venue_key, of).to_string();
    let body = completion(head, result);
    let out = Address::Out { owner: owner.clone(), agent: head.agent.clone(), job: head.id.to_string() };
    let id = made(IdOf::Done(&head.id));
    let mut entries = vec![entry(id.clone(), &Message { to: out, id: Some(id), body: body.clone() })];
    if let Some(subject) = &head.reply_to {
        let id = made(IdOf::Reply(&head.id));
        entries.push(entry(id.clone(), &Message { to: Address::Reply(subject.clone()), id: Some(id), body }));
    }
    if let Some(parent) = &head.parent {
        let id = made(IdOf::Result(&head.id));
        let body =
            ResultBody { session_id: parent.session.session.clone(), job: head.id.clone(), result: result.clone() };
        let to = Address::In { owner: owner.clone(), agent: parent.session.agent.clone(), kind: InKind::Result };
        let body = serde_json::to_value(body).expect("results serialise");
        entries.push(entry(id.clone(), &Message { to, id: Some(id), body }));
    }
    entries
}

fn completion(head: &JobHead, result: &JobResult) -> Value {
    let completion = Completion {
        id: head.event.clone(),
        job: Some(head.id.clone()),
        agent: head.agent.clone(),
        session: Some(head.session.clone()),
        result: result.clone(),
    };
    serde_json::to_value(completion).expect("completions serialise")
}

/// The completion once more, for who submits a task again after it has ended. `out` has had it.
pub fn completion_again(venue_key: &[u8], head: &JobHead, result: &JobResult, reply_to: String) -> Message {
    let id = EventId::of_venue(venue_key, IdOf::Reply(&head.id)).to_string();
    Message { to: Address::Reply(reply_to), id: Some(id), body: completion(head, result) }
}

/// The terminal answer to a submission that was refused before it became a job. `place` is the
/// submission's own: each has an answer, and a redelivery of one has no second.
pub fn refusal(
    venue_key: &[u8],
    (owner, agent): (&Owner, &AgentId),
    id: &EventId,
    place: &EventId,
    reply_to: Option<&str>,
    result: &JobResult,
) -> Vec<Message> {
    let completion =
        Completion { id: id.clone(), job: None, agent: agent.clone(), session: None, result: result.clone() };
    let body = serde_json::to_value(&completion).expect("completions serialise");
    let out = Address::Out { owner: owner.clone(), agent: agent.clone(), job: id.to_string() };
    let dedupe = Some(EventId::of_venue(venue_key, IdOf::Refused { owner, agent, place }).to_string());
    let mut messages = vec![Message { to: out, id: dedupe, body: body.clone() }];
    if let Some(subject) = reply_to {
        messages.push(Message { to: Address::Reply(subject.to_owned()), id: None, body });
    }
    messages
}

/// What became of entries.
#[derive(Debug)]
pub struct Relayed {
    /// The last failure: something is left for the sweep.
    pub outcome: Result<(), BusError>,
    /// The jobs of external workers among them.
    pub jobs: Vec<RelayedJob>,
    /// Ids of those that were published: to be [crossed off](cross_off).
    pub done: Vec<String>,
}

/// What became of the message of a job of an external worker.
#[derive(Debug)]
pub struct RelayedJob {
    /// The job.
    pub job: JobId,
    /// The entry's id.
    pub entry: String,
    /// Whether it was published.
    pub published: Result<(), BusError>,
}

/// Publishes entries, several at a time and under the venue's seal (of `key`). What fails stays for the sweep and
/// holds up nothing behind it. The message of a job of an external worker that has ended
/// isn't published any more.
pub async fn relay(
    store: &dyn Store,
    bus: &dyn Bus,
    metrics: &Metrics,
    key: &[u8],
    owner: &Owner,
    entries: &[OutboxEntry],
) -> Relayed {
    let publishing: Vec<_> = entries.iter().map(|entry| publish(store, bus, key, owner, entry)).collect();
    let results: Vec<_> = stream::iter(publishing).buffer_unordered(WINDOW).collect().await;
    let mut relayed = Relayed { outcome: Ok(()), jobs: Vec::new(), done: Vec::with_capacity(results.len()) };
    for sent in results {
        if let Some(job) = sent.job {
            relayed.jobs.push(RelayedJob { job, entry: sent.entry.id.clone(), published: sent.result.clone() });
        }
        match sent.result {
            Ok(()) => relayed.done.extend((!sent.is_kept).then(|| sent.entry.id.clone())),
            // The job ends with it; nothing is left for the sweep.
            Err(BusError::NoStream { .. }) => {}
            Err(error) => relayed.outcome = Err(error),
        }
    }
    metrics.outbox_published.inc_by(relayed.done.len() as u64);
    relayed
}

/// Removes entries that were published from the store.
pub async fn cross_off(store: &dyn Store, owner: &Owner, done: &[String]) {
    if !done.is_empty()
        && let Err(error) = store.published(owner, done).await
    {
        tracing::debug!(%owner, %error, "published entries stay in the outbox; they will be published again under the same ids");
    }
}

/// Whether a job has not ended: the message of one that has isn't published any more.
async fn is_open(store: &dyn Store, owner: &Owner, job: &JobId) -> Result<bool, StoreError> {
    let status = store.doc(owner, &keys::job_status(job)).await?.status();
    Ok(status.is_some_and(|(status, _)| !status.is_terminal()))
}

/// What became of one entry.
struct Sent<'e> {
    entry: &'e OutboxEntry,
    /// The job of an external worker that was to be published.
    job: Option<JobId>,
    /// It stays in the outbox all the same.
    is_kept: bool,
    result: Result<(), BusError>,
}

/// A submission that was too deep to be read whole: what is left of it is the venue's own, too.
fn resealed(key: &[u8], mut message: Message) -> Message {
    if let Address::In { owner, agent, kind: kind @ (InKind::Task | InKind::Message) } = &message.to
        && let Some(id) = message.id.as_deref().and_then(|id| EventId::kept(id).ok())
        && let Ok(submission) = decode::typed::<Submission>(message.body.clone())
    {
        let submission =
            seal::seal_submission(key, (owner, agent, *kind), &id, Submission { seal: None, ..submission });
        message.body = serde_json::to_value(submission).expect("submissions serialise");
    }
    message
}

async fn publish<'e>(store: &dyn Store, bus: &dyn Bus, key: &[u8], owner: &Owner, entry: &'e OutboxEntry) -> Sent<'e> {
    let mut sent = Sent { entry, job: None, is_kept: false, result: Ok(()) };
    let message = match decode::stored::<Message>(&entry.message) {
        Ok(message) if decode::is_deeper(&entry.message) => resealed(key, message),
        Ok(message) => message,
        Err(error) => {
            tracing::error!(%owner, id = %entry.id, %error, "outbox entry is not a message; kept for inspection");
            return Sent { is_kept: true, ..sent };
        }
    };
    if let Address::Job { .. } = message.to
        && let Some(job) = message.body["job"].as_str().and_then(|job| JobId::new(job).ok())
    {
        match is_open(store, owner, &job).await {
            Ok(true) => sent.job = Some(job),
            Ok(false) => return sent,
            Err(error) => {
                tracing::debug!(%owner, %job, %error, "job not published yet; the sweep will do it");
                return Sent { is_kept: true, ..sent };
            }
        }
    }
    sent.result = bus.publish(&seal::sealed(key, message)).await;
    sent
}
