//! Stage 8: the messages that a commit decided, and the relay that publishes them.

use crate::bus::{Bus, BusError};
use crate::domain::authority::policy::Revocation;
use crate::domain::decode;
use crate::domain::event::{Completion, OUTPUT_OMITTED, OmittedOutput, ResultBody, Submission};
use crate::domain::ids::{AgentId, EventId, JobId, Owner, VenueIdSubject};
use crate::domain::job::{JobHead, JobResult};
use crate::domain::message::{BusMessage, InboundKind, MessageAddress};
use crate::domain::seal::{self, SubmissionAddress};
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
    pub message: BusMessage,
}

impl Outgoing {
    /// Converts the message to an outbox entry.
    pub fn entry(&self) -> OutboxEntry {
        make_entry(self.id.clone(), &self.message)
    }
}

/// Converts a message to an outbox entry.
pub fn make_entry(id: String, message: &BusMessage) -> OutboxEntry {
    let message = serde_json::to_vec(message).expect("messages serialise");
    OutboxEntry { id, message: Bytes::from(message) }
}

/// Returns the entries of those `messages` that stay in an outbox until they are published: the others have no
/// listeners outside this process.
pub fn durable_entries(bus: &dyn Bus, messages: &[Outgoing]) -> Vec<OutboxEntry> {
    messages.iter().filter(|out| bus.has_outside_listeners(&out.message.to)).map(Outgoing::entry).collect()
}

/// Returns the message that cancels a job.
pub fn cancel_entry(venue_key: &[u8], owner: &Owner, head: &JobHead, reason: &str) -> OutboxEntry {
    let id = EventId::of_venue(venue_key, VenueIdSubject::Cancel(&head.id)).to_string();
    let to = MessageAddress::In { owner: owner.clone(), agent: head.agent.clone(), kind: InboundKind::Cancel };
    make_entry(
        id.clone(),
        &BusMessage { to, id: Some(id), body: json!({"job": head.id, "reason": reason}), trace: None },
    )
}

/// Returns everything that the end of a job sends: the completion on `out` and on `replyTo`, and the result to the
/// session that waits for it. The ids depend on the job alone: a job ends once. They are made with the venue's key,
/// since a stream drops a second message with a known id and no one else may know them before.
pub fn completions(venue_key: &[u8], owner: &Owner, head: &JobHead, result: &JobResult) -> Vec<Outgoing> {
    let made = |of: VenueIdSubject<'_>, to: MessageAddress, body: Value| {
        let id = EventId::of_venue(venue_key, of).to_string();
        Outgoing { id: id.clone(), message: BusMessage { to, id: Some(id), body, trace: None } }
    };
    let body = completion_body(head, result);
    let out = MessageAddress::Out { owner: owner.clone(), agent: head.agent.clone(), job: head.id.to_string() };
    let mut messages = Vec::with_capacity(2);
    if let Some(subject) = &head.reply_to {
        messages.push(made(VenueIdSubject::Reply(&head.id), MessageAddress::Reply(subject.clone()), body.clone()));
    }
    messages.push(made(VenueIdSubject::Done(&head.id), out, body));
    if let Some(parent) = &head.parent {
        let (session_id, result) = (parent.session.session.clone(), result.clone());
        let body = ResultBody { session_id, job: head.id.clone(), result, output_omitted: None };
        let to =
            MessageAddress::In { owner: owner.clone(), agent: parent.session.agent.clone(), kind: InboundKind::Result };
        messages.push(made(
            VenueIdSubject::Result(&head.id),
            to,
            serde_json::to_value(body).expect("results serialise"),
        ));
    }
    messages
}

fn completion_body(head: &JobHead, result: &JobResult) -> Value {
    let completion = Completion {
        id: head.event.clone(),
        job: Some(head.id.clone()),
        agent: head.agent.clone(),
        session: Some(head.session.clone()),
        output_omitted: None,
        result: result.clone(),
    };
    serde_json::to_value(completion).expect("completions serialise")
}

/// Returns the completion again, for a task that was submitted again after its end. `out` already has it.
pub fn repeat_completion(venue_key: &[u8], head: &JobHead, result: &JobResult, reply_to: String) -> BusMessage {
    let id = EventId::of_venue(venue_key, VenueIdSubject::Reply(&head.id)).to_string();
    BusMessage { to: MessageAddress::Reply(reply_to), id: Some(id), body: completion_body(head, result), trace: None }
}

/// A submission that was refused before it became a job.
#[derive(Debug, Clone, Copy)]
pub struct RefusedSubmission<'a> {
    /// Owner of the agent.
    pub owner: &'a Owner,
    /// Agent that it was sent to.
    pub agent: &'a AgentId,
    /// Id that the answer names.
    pub id: &'a EventId,
    /// Id of its place in the stream. Each place gets one answer, whatever the id of the submission.
    pub place: &'a EventId,
    /// Subject that the submission names for its answer; `None` without one that its sender may name.
    pub reply_to: Option<&'a str>,
}

/// Returns the terminal answer to a refused submission; a redelivery of it gets no second one.
pub fn refusal_messages(venue_key: &[u8], refused: RefusedSubmission<'_>, result: &JobResult) -> Vec<BusMessage> {
    let RefusedSubmission { owner, agent, id, place, reply_to } = refused;
    let completion = Completion {
        id: id.clone(),
        job: None,
        agent: agent.clone(),
        session: None,
        output_omitted: None,
        result: result.clone(),
    };
    let body = serde_json::to_value(&completion).expect("completions serialise");
    let out = MessageAddress::Out { owner: owner.clone(), agent: agent.clone(), job: id.to_string() };
    let dedupe = Some(EventId::of_venue(venue_key, VenueIdSubject::Refused { owner, agent, place }).to_string());
    let mut messages = vec![BusMessage { to: out, id: dedupe, body: body.clone(), trace: None }];
    if let Some(subject) = reply_to {
        messages.push(BusMessage { to: MessageAddress::Reply(subject.to_owned()), id: None, body, trace: None });
    }
    messages
}

/// The result of publishing entries.
#[derive(Debug)]
pub struct RelayReport {
    /// The last failure; what failed is left for the sweep.
    pub outcome: Result<(), BusError>,
    /// Jobs of external workers among the entries, and jobs whose task fits no message of the queue.
    pub jobs: Vec<RelayedJob>,
    /// Messages to agents that fit no message of the queue.
    pub unsendable: Vec<Unsendable>,
    /// Number of published messages.
    pub sent: u64,
    /// Ids of published messages that are in an outbox: to be [removed](remove_published).
    pub done: Vec<String>,
}

/// A message to an agent that the queue will never take.
#[derive(Debug)]
pub struct Unsendable {
    /// Id of the outbox entry.
    pub entry: String,
    /// The message under the venue's seal.
    pub message: BusMessage,
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
    pub published: Result<(), PublishFailure>,
}

/// Why the message that hands on a job was not published.
#[derive(Debug, Clone)]
pub enum PublishFailure {
    /// The queue refused it.
    Queue(BusError),
    /// Its authority was revoked while it waited: the text names what, and the revocation.
    Revoked(String),
}

/// Where messages are published, and the key of their seal.
#[derive(Clone, Copy)]
pub struct PublishTarget<'v> {
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
pub async fn relay(outlet: PublishTarget<'_>, owner: &Owner, entries: &[OutboxEntry]) -> RelayReport {
    publish_all(outlet, owner, decode_entries(outlet.key, owner, entries), |_| true).await
}

/// Publishes messages, several at a time and under the venue's seal; those that [last](durable_entries) are in the outbox. A
/// message that fails stays there for the sweep and delays none behind it. The message of an external worker's job that
/// has ended, or whose grant was revoked meanwhile, isn't published. All others are: workers check revocations before
/// they start a task, a message or a result, and completions are owed to those who wait for them.
pub async fn send(outlet: PublishTarget<'_>, owner: &Owner, messages: Vec<Outgoing>) -> RelayReport {
    publish_all(outlet, owner, messages, |to| outlet.bus.has_outside_listeners(to)).await
}

/// Decodes entries of an outbox.
fn decode_entries(key: &[u8], owner: &Owner, entries: &[OutboxEntry]) -> Vec<Outgoing> {
    let messages = entries.iter().filter_map(|entry| {
        let message = match decode::read_stored::<BusMessage>(&entry.message) {
            Ok(message) if decode::is_deeper(&entry.message) => reseal(key, message),
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
    outlet: PublishTarget<'_>,
    owner: &Owner,
    messages: Vec<Outgoing>,
    lies_there: impl Fn(&MessageAddress) -> bool,
) -> RelayReport {
    let publishing: Vec<_> = messages
        .into_iter()
        .map(|message| {
            let lies_there = lies_there(&message.message.to);
            publish(outlet, owner, message, lies_there)
        })
        .collect();
    let results: Vec<_> = stream::iter(publishing).buffer_unordered(WINDOW).collect().await;
    let mut relayed =
        RelayReport { outcome: Ok(()), jobs: Vec::new(), unsendable: Vec::new(), done: Vec::new(), sent: 0 };
    for sent in results {
        let (is_revoked, is_of_job) = (sent.revoked.is_some(), sent.job.is_some());
        if let Some(job) = sent.job {
            let published = match sent.revoked {
                Some(why) => Err(PublishFailure::Revoked(why)),
                None => sent.result.clone().map_err(PublishFailure::Queue),
            };
            relayed.jobs.push(RelayedJob { job, entry: sent.id.clone(), published });
        }
        match sent.result {
            // A revoked one leaves nothing for the sweep when its job has ended.
            Ok(()) if sent.is_kept || is_revoked => {}
            Ok(()) => {
                relayed.sent += 1;
                relayed.done.extend(sent.is_in_outbox.then_some(sent.id));
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
pub async fn remove_published(store: &dyn Store, owner: &Owner, done: &[String]) {
    if !done.is_empty()
        && let Err(error) = store.remove_published(owner, done).await
    {
        tracing::debug!(%owner, %error, "published entries stay in the outbox; they will be published again under the same ids");
    }
}

/// Whether the message of an external worker's job may be published.
enum JobPublishState {
    Open,
    Ended,
    /// Revoked, with the text of [`PublishFailure::Revoked`].
    Revoked(String),
}

/// Returns whether a job may still be given to an external worker: it has not ended, and nothing of its authority was
/// revoked.
async fn job_standing(store: &dyn Store, owner: &Owner, job: &JobId) -> Result<JobPublishState, StoreError> {
    let docs = [keys::job_status(job), keys::job_head(job)];
    let venue = keys::venue_owner();
    let (found, own, everywhere) = futures::try_join!(
        store.read(owner, &docs),
        policies::read_policy(store, owner),
        policies::read_policy(store, &venue)
    )?;
    let [status, head] = &found[..] else { return Ok(JobPublishState::Ended) };
    if status.status().is_none_or(|(status, _)| status.is_terminal()) {
        return Ok(JobPublishState::Ended);
    }
    let mut trail = head.decode::<JobHead>(&docs[1])?.map(|head| head.under).unwrap_or_default();
    trail.grants.push(job.to_string());
    let revoked = [own, everywhere].into_iter().map(|[policy, copy]| policies::select_effective(policy, copy));
    let revoked = revoked.collect::<Result<Vec<_>, _>>()?;
    let revoked = revoked.iter().find_map(|(policy, _)| policy.trail_revocation(&trail));
    Ok(revoked.map_or(JobPublishState::Open, |revocation| JobPublishState::Revoked(Revocation::refusal(revocation))))
}

/// The result of publishing one message.
struct PublishResult {
    id: String,
    /// The job whose message it is.
    job: Option<JobId>,
    /// Whether it stays in the outbox although there is no error.
    is_kept: bool,
    /// Whether it is in an outbox.
    is_in_outbox: bool,
    /// The text of [`PublishFailure::Revoked`].
    revoked: Option<String>,
    /// A message to an agent that the queue will never take.
    unsendable: Option<BusMessage>,
    result: Result<(), BusError>,
}

/// Seals a submission again that was too deep to be decoded completely: what is left of it is the venue's own, too.
fn reseal(key: &[u8], mut message: BusMessage) -> BusMessage {
    if let MessageAddress::In { owner, agent, kind: kind @ (InboundKind::Task | InboundKind::Message) } = &message.to
        && let Some(id) = message.id.as_deref().and_then(|id| EventId::from_stored(id).ok())
        && let Ok(submission) = decode::into_type::<Submission>(message.body.clone())
    {
        let to = SubmissionAddress { owner, agent, kind: *kind };
        let submission = seal::seal_submission(key, to, &id, Submission { seal: None, ..submission });
        message.body = serde_json::to_value(submission).expect("submissions serialise");
    }
    message
}

async fn publish(outlet: PublishTarget<'_>, owner: &Owner, outgoing: Outgoing, lies_there: bool) -> PublishResult {
    let PublishTarget { store, bus, key, .. } = outlet;
    let Outgoing { id, message } = outgoing;
    let mut sent = PublishResult {
        id,
        job: None,
        is_kept: false,
        is_in_outbox: lies_there,
        revoked: None,
        unsendable: None,
        result: Ok(()),
    };
    if let MessageAddress::Job { .. } = message.to
        && let Some(job) = message.body["job"].as_str().and_then(|job| JobId::new(job).ok())
    {
        match job_standing(store, owner, &job).await {
            Ok(JobPublishState::Open) => sent.job = Some(job),
            Ok(JobPublishState::Ended) => return sent,
            Ok(JobPublishState::Revoked(why)) => return PublishResult { job: Some(job), revoked: Some(why), ..sent },
            Err(error) => {
                tracing::debug!(%owner, %job, %error, "job not published yet; the sweep will do it");
                return PublishResult { is_kept: true, ..sent };
            }
        }
    }
    let message = seal::seal_message(key, message);
    sent.result = publish_shortened(bus, key, owner, &message).await;
    if let (Err(BusError::TooLarge { .. }), MessageAddress::In { kind, .. }) = (&sent.result, &message.to) {
        match kind {
            InboundKind::Task => {
                let event = message.id.as_deref().and_then(|id| EventId::from_stored(id).ok());
                sent.job = event.map(|event| JobId::derive(key, owner, &event));
            }
            InboundKind::Message => sent.unsendable = Some(message),
            InboundKind::Result
            | InboundKind::Cancel
            | InboundKind::Pause
            | InboundKind::Resume
            | InboundKind::Decide
            | InboundKind::Wake => {}
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
pub async fn publish_shortened(bus: &dyn Bus, key: &[u8], owner: &Owner, message: &BusMessage) -> Result<(), BusError> {
    let published = bus.publish(message).await;
    let Err(BusError::TooLarge { .. }) = &published else { return published };
    let Some(shorter) = without_output(owner, message) else { return published };
    tracing::info!(%owner, id = message.id, "an output is too large for the queue: its message goes without it");
    bus.publish(&seal::seal_message(key, shorter)).await
}

/// Returns the message of a job's end without the job's output; `None` if it has none.
fn without_output(owner: &Owner, message: &BusMessage) -> Option<BusMessage> {
    let is_result = match &message.to {
        MessageAddress::In { kind: InboundKind::Result, .. } => true,
        MessageAddress::Out { .. } | MessageAddress::Reply(_) => false,
        MessageAddress::In { .. } | MessageAddress::Event { .. } | MessageAddress::Job { .. } => return None,
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
    Some(BusMessage { body, ..message.clone() })
}
