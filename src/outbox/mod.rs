//! Stage 8: the messages that a commit decided, and the relay that publishes them.

use crate::bus::{Bus, BusError};
use crate::domain::authority::policy::Revocation;
use crate::domain::decode;
use crate::domain::event::{Completion, OUTPUT_OMITTED, OmittedOutput, ResultBody, Submission};
use crate::domain::ids::{AgentId, EventId, IdOf, JobId, Owner};
use crate::domain::job::{JobHead, JobResult};
use crate::domain::message::{Address, InKind, Message};
use crate::domain::seal;
use crate::process::telemetry::Metrics;
use crate::store::policies;
use crate::store::{OutboxEntry, Store, StoreError, keys};
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::{Value, json};

/// Most publishes that wait for their acknowledgement at the same time.
const WINDOW: usize = 64;

/// A decided message, with the id of its entry in an outbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Outgoing {
    /// Id of the [`OutboxEntry`].
    pub id: String,
    /// Body and address of the message.
    pub message: Message,
}

impl Outgoing {
    /// Converts the message to an outbox entry.
    pub fn entry(&self) -> OutboxEntry {
        entry(self.id.clone(), &self.message)
    }
}

/// Converts a message to an outbox entry.
pub fn entry(id: String, message: &Message) -> OutboxEntry {
    let message = serde_json::to_vec(message).expect("messages serialise");
    OutboxEntry { id, message: Bytes::from(message) }
}

/// Returns the entries of those `messages` that stay in an outbox until they are published: the others have no
/// listeners outside this process.
pub fn lasting(bus: &dyn Bus, messages: &[Outgoing]) -> Vec<OutboxEntry> {
    messages.iter().filter(|out| bus.outlives(&out.message.to)).map(Outgoing::entry).collect()
}

/// Returns the message that cancels a job.
pub fn cancel(venue_key: &[u8], owner: &Owner, head: &JobHead, reason: &str) -> OutboxEntry {
    let id = EventId::of_venue(venue_key, IdOf::Cancel(&head.id)).to_string();
    let to = Address::In { owner: owner.clone(), agent: head.agent.clone(), kind: InKind::Cancel };
    entry(id.clone(), &Message { to, id: Some(id), body: json!({"job": head.id, "reason": reason}) })
}

/// Returns everything that the end of a job sends: the completion on `out` and on `replyTo`, and the result to the
/// session that waits for it. The ids depend on the job alone: a job ends once. They are made with the venue's key,
/// since a stream drops a second message with a known id and no one else may know them before.
pub fn completions(venue_key: &[u8], owner: &Owner, head: &JobHead, result: &JobResult) -> Vec<Outgoing> {
    let made = |of: IdOf<'_>, to: Address, body: Value| {
        let id = EventId::of_venue(venue_key, of).to_string();
        Outgoing { id: id.clone(), message: Message { to, id: Some(id), body } }
    };
    let body = completion(head, result);
    let out = Address::Out { owner: owner.clone(), agent: head.agent.clone(), job: head.id.to_string() };
    let mut messages = Vec::with_capacity(2);
    if let Some(subject) = &head.reply_to {
        messages.push(made(IdOf::Reply(&head.id), Address::Reply(subject.clone()), body.clone()));
    }
    messages.push(made(IdOf::Done(&head.id), out, body));
    if let Some(parent) = &head.parent {
        let (session_id, result) = (parent.session.session.clone(), result.clone());
        let body = ResultBody { session_id, job: head.id.clone(), result, output_omitted: None };
        let to = Address::In { owner: owner.clone(), agent: parent.session.agent.clone(), kind: InKind::Result };
        messages.push(made(IdOf::Result(&head.id), to, serde_json::to_value(body).expect("results serialise")));
    }
    messages
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

/// Returns the completion again, for a task that was submitted again after its end. `out` already has it.
pub fn completion_again(venue_key: &[u8], head: &JobHead, result: &JobResult, reply_to: String) -> Message {
    let id = EventId::of_venue(venue_key, IdOf::Reply(&head.id)).to_string();
    Message { to: Address::Reply(reply_to), id: Some(id), body: completion(head, result) }
}

/// Returns the terminal answer to a submission that was refused before it became a job. `place` is the submission's
/// own: each gets an answer, and a redelivery of one gets no second.
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

/// The result of publishing entries.
#[derive(Debug)]
pub struct Relayed {
    /// The last failure; what failed is left for the sweep.
    pub outcome: Result<(), BusError>,
    /// Jobs of external workers among the entries, and jobs whose task fits no message of the queue.
    pub jobs: Vec<RelayedJob>,
    /// Messages to agents that fit no message of the queue.
    pub unsendable: Vec<Unsendable>,
    /// Number of published messages.
    pub sent: u64,
    /// Ids of published messages that are in an outbox: to be [removed](cross_off).
    pub done: Vec<String>,
}

/// A message to an agent that the queue will never take.
#[derive(Debug)]
pub struct Unsendable {
    /// Id of the outbox entry.
    pub entry: String,
    /// The message under the venue's seal.
    pub message: Message,
    /// Error of the queue.
    pub error: BusError,
}

/// The result of publishing the message that hands on a job.
#[derive(Debug)]
pub struct RelayedJob {
    /// Id of the job.
    pub job: JobId,
    /// Id of the outbox entry.
    pub entry: String,
    /// Whether it was published, or why not.
    pub published: Result<(), Unpublished>,
}

/// Why the message that hands on a job was not published.
#[derive(Debug, Clone)]
pub enum Unpublished {
    /// The queue refused it.
    Queue(BusError),
    /// Its authority was revoked while it waited: the text names what, and the revocation.
    Revoked(String),
}

/// Where messages are published, and the key of their seal.
#[derive(Clone, Copy)]
pub struct Outlet<'v> {
    /// The store with the outboxes.
    pub store: &'v dyn Store,
    /// The queue to publish to.
    pub bus: &'v dyn Bus,
    /// Counters of published messages.
    pub metrics: &'v Metrics,
    /// The venue's key, for seals.
    pub key: &'v [u8],
}

/// Publishes outbox entries as [`send`] does. Entries that aren't messages stay there.
pub async fn relay(outlet: Outlet<'_>, owner: &Owner, entries: &[OutboxEntry]) -> Relayed {
    publish_all(outlet, owner, read(outlet.key, owner, entries), |_| true).await
}

/// Publishes messages, several at a time and under the venue's seal; those that [last](lasting) are in the outbox. A
/// message that fails stays there for the sweep and delays none behind it. The message of an external worker's job that
/// has ended, or whose grant was revoked meanwhile, isn't published. All others are: workers check revocations before
/// they start a task, a message or a result, and completions are owed to those who wait for them.
pub async fn send(outlet: Outlet<'_>, owner: &Owner, messages: Vec<Outgoing>) -> Relayed {
    publish_all(outlet, owner, messages, |to| outlet.bus.outlives(to)).await
}

/// Decodes entries of an outbox.
fn read(key: &[u8], owner: &Owner, entries: &[OutboxEntry]) -> Vec<Outgoing> {
    let messages = entries.iter().filter_map(|entry| {
        let message = match decode::stored::<Message>(&entry.message) {
            Ok(message) if decode::is_deeper(&entry.message) => resealed(key, message),
            Ok(message) => message,
            Err(error) => {
                tracing::error!(%owner, id = %entry.id, %error, "outbox entry is not a message; kept for inspection");
                return None;
            }
        };
        Some(Outgoing { id: entry.id.clone(), message })
    });
    messages.collect()
}

async fn publish_all(
    outlet: Outlet<'_>,
    owner: &Owner,
    messages: Vec<Outgoing>,
    lies_there: impl Fn(&Address) -> bool,
) -> Relayed {
    let publishing: Vec<_> = messages
        .into_iter()
        .map(|message| {
            let lies_there = lies_there(&message.message.to);
            publish(outlet, owner, message, lies_there)
        })
        .collect();
    let results: Vec<_> = stream::iter(publishing).buffer_unordered(WINDOW).collect().await;
    let mut relayed = Relayed { outcome: Ok(()), jobs: Vec::new(), unsendable: Vec::new(), done: Vec::new(), sent: 0 };
    for sent in results {
        let (is_revoked, is_of_job) = (sent.revoked.is_some(), sent.job.is_some());
        if let Some(job) = sent.job {
            let published = match sent.revoked {
                Some(why) => Err(Unpublished::Revoked(why)),
                None => sent.result.clone().map_err(Unpublished::Queue),
            };
            relayed.jobs.push(RelayedJob { job, entry: sent.id.clone(), published });
        }
        match sent.result {
            // A revoked one leaves nothing for the sweep when its job has ended.
            Ok(()) if sent.is_kept || is_revoked => {}
            Ok(()) => {
                relayed.sent += 1;
                relayed.done.extend(sent.lies_there.then_some(sent.id));
            }
            // The job ends with it; nothing is left for the sweep.
            Err(BusError::NoStream { .. }) => {}
            Err(BusError::TooLarge { .. }) if is_of_job => {}
            Err(error) => match sent.unsendable {
                Some(message) => relayed.unsendable.push(Unsendable { entry: sent.id, message, error }),
                None => relayed.outcome = Err(error),
            },
        }
    }
    outlet.metrics.outbox_published.inc_by(relayed.sent);
    relayed
}

/// Removes published entries from the outbox.
pub async fn cross_off(store: &dyn Store, owner: &Owner, done: &[String]) {
    if !done.is_empty()
        && let Err(error) = store.published(owner, done).await
    {
        tracing::debug!(%owner, %error, "published entries stay in the outbox; they will be published again under the same ids");
    }
}

/// Whether the message of an external worker's job may be published.
enum JobStanding {
    Open,
    Ended,
    /// Revoked, with the text of [`Unpublished::Revoked`].
    Revoked(String),
}

/// Returns whether a job may still be given to an external worker: it has not ended, and nothing of its authority was
/// revoked.
async fn job_standing(store: &dyn Store, owner: &Owner, job: &JobId) -> Result<JobStanding, StoreError> {
    let docs = [keys::job_status(job), keys::job_head(job)];
    let venue = keys::venue_owner();
    let (found, own, everywhere) = futures::try_join!(
        store.read(owner, &docs),
        policies::read_policy(store, owner),
        policies::read_policy(store, &venue)
    )?;
    let [status, head] = &found[..] else { return Ok(JobStanding::Ended) };
    if status.status().is_none_or(|(status, _)| status.is_terminal()) {
        return Ok(JobStanding::Ended);
    }
    let mut trail = head.decode::<JobHead>(&docs[1])?.map(|head| head.under).unwrap_or_default();
    trail.grants.push(job.to_string());
    let revoked = [own, everywhere].into_iter().map(|[policy, copy]| policies::in_force(policy, copy));
    let revoked = revoked.collect::<Result<Vec<_>, _>>()?;
    let revoked = revoked.iter().find_map(|(policy, _)| policy.find_end(&trail));
    Ok(revoked.map_or(JobStanding::Open, |revocation| JobStanding::Revoked(Revocation::refusal(revocation))))
}

/// The result of publishing one message.
struct Sent {
    id: String,
    /// The job whose message it is.
    job: Option<JobId>,
    /// Whether it stays in the outbox although there is no error.
    is_kept: bool,
    /// Whether it is in an outbox.
    lies_there: bool,
    /// The text of [`Unpublished::Revoked`].
    revoked: Option<String>,
    /// A message to an agent that the queue will never take.
    unsendable: Option<Message>,
    result: Result<(), BusError>,
}

/// Seals a submission again that was too deep to be decoded completely: what is left of it is the venue's own, too.
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

async fn publish(outlet: Outlet<'_>, owner: &Owner, outgoing: Outgoing, lies_there: bool) -> Sent {
    let Outlet { store, bus, key, .. } = outlet;
    let Outgoing { id, message } = outgoing;
    let mut sent = Sent { id, job: None, is_kept: false, lies_there, revoked: None, unsendable: None, result: Ok(()) };
    if let Address::Job { .. } = message.to
        && let Some(job) = message.body["job"].as_str().and_then(|job| JobId::new(job).ok())
    {
        match job_standing(store, owner, &job).await {
            Ok(JobStanding::Open) => sent.job = Some(job),
            Ok(JobStanding::Ended) => return sent,
            Ok(JobStanding::Revoked(why)) => return Sent { job: Some(job), revoked: Some(why), ..sent },
            Err(error) => {
                tracing::debug!(%owner, %job, %error, "job not published yet; the sweep will do it");
                return Sent { is_kept: true, ..sent };
            }
        }
    }
    let message = seal::sealed(key, message);
    sent.result = publish_shortened(bus, key, owner, &message).await;
    if let (Err(BusError::TooLarge { .. }), Address::In { kind, .. }) = (&sent.result, &message.to) {
        match kind {
            InKind::Task => {
                let event = message.id.as_deref().and_then(|id| EventId::kept(id).ok());
                sent.job = event.map(|event| JobId::derive(key, owner, &event));
            }
            InKind::Message => sent.unsendable = Some(message),
            InKind::Result | InKind::Cancel | InKind::Pause | InKind::Resume | InKind::Decide | InKind::Wake => {}
        }
    }
    sent
}

/// Publishes a message; one of a job's end goes without the job's output if it is too large for the queue.
///
/// # Errors
///
/// Those of the queue; [`BusError::TooLarge`] if there is no output to leave out, or the message is too large without
/// it.
pub async fn publish_shortened(bus: &dyn Bus, key: &[u8], owner: &Owner, message: &Message) -> Result<(), BusError> {
    let published = bus.publish(message).await;
    let Err(BusError::TooLarge { .. }) = &published else { return published };
    let Some(shorter) = without_output(owner, message) else { return published };
    tracing::info!(%owner, id = message.id, "an output is too large for the queue: its message goes without it");
    bus.publish(&seal::sealed(key, shorter)).await
}

/// Returns the message of a job's end without the job's output; `None` if it has none.
fn without_output(owner: &Owner, message: &Message) -> Option<Message> {
    let is_result = match &message.to {
        Address::In { kind: InKind::Result, .. } => true,
        Address::Out { .. } | Address::Reply(_) => false,
        Address::In { .. } | Address::Job { .. } => return None,
    };
    let job = message.body["job"].as_str()?.to_owned();
    let holder = if is_result { &message.body["result"] } else { &message.body };
    let bytes = holder.get("output")?.to_string().len();
    let mut body = message.body.clone();
    // The shorter message is sealed again.
    body.as_object_mut()?.shift_remove(seal::SEAL);
    let holder = if is_result { &mut body["result"] } else { &mut body };
    holder.as_object_mut()?.shift_remove("output");
    let omitted = OmittedOutput {
        bytes,
        owner: owner.clone(),
        path: format!("j/{job}/output"),
        url: format!("/api/v1/jobs/{job}"),
    };
    body[OUTPUT_OMITTED] = json!(omitted);
    Some(Message { body, ..message.clone() })
}
