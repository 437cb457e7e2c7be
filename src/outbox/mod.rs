//! Stage 8: what a commit decided to publish, and the relay that does it.

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

/// Publishes that wait for their acknowledgement at the same time.
const WINDOW: usize = 64;

/// A message that was decided, with the id of its entry in an outbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Outgoing {
    /// As of [`OutboxEntry`].
    pub id: String,
    /// What it says, and to whom.
    pub message: Message,
}

impl Outgoing {
    /// As it lies in an outbox.
    pub fn entry(&self) -> OutboxEntry {
        entry(self.id.clone(), &self.message)
    }
}

/// A message as it lies in an outbox.
pub fn entry(id: String, message: &Message) -> OutboxEntry {
    let message = serde_json::to_vec(message).expect("messages serialise");
    OutboxEntry { id, message: Bytes::from(message) }
}

/// Those of `messages` that lie in an outbox until they are published: of the others nobody could hear who isn't in this
/// very process.
pub fn lasting(bus: &dyn Bus, messages: &[Outgoing]) -> Vec<OutboxEntry> {
    messages.iter().filter(|out| bus.outlives(&out.message.to)).map(Outgoing::entry).collect()
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
    /// The jobs of external workers among them, and those of which the task fits no message of the queue.
    pub jobs: Vec<RelayedJob>,
    /// Messages to agents that fit none.
    pub unsendable: Vec<Unsendable>,
    /// How many were published.
    pub sent: u64,
    /// Ids of those among them that lie in an outbox: to be [crossed off](cross_off).
    pub done: Vec<String>,
}

/// A message to an agent that the queue takes neither now nor later.
#[derive(Debug)]
pub struct Unsendable {
    /// The entry's id.
    pub entry: String,
    /// The message under the venue's seal.
    pub message: Message,
    /// What the queue says.
    pub error: BusError,
}

/// What became of the message by which a job is handed on.
#[derive(Debug)]
pub struct RelayedJob {
    /// The job.
    pub job: JobId,
    /// The entry's id.
    pub entry: String,
    /// Whether it was published.
    pub published: Result<(), Unpublished>,
}

/// Why the message by which a job is handed on was not published.
#[derive(Debug, Clone)]
pub enum Unpublished {
    /// The queue didn't take it.
    Queue(BusError),
    /// What it stands under was revoked while it waited: the text says what, and by which revocation.
    Revoked(String),
}

/// Where messages are published, and under whose seal.
#[derive(Clone, Copy)]
pub struct Outlet<'v> {
    /// The outboxes.
    pub store: &'v dyn Store,
    /// The queue.
    pub bus: &'v dyn Bus,
    /// What is published is counted here.
    pub metrics: &'v Metrics,
    /// The venue's.
    pub key: &'v [u8],
}

/// Publishes what lies in an outbox, as [`send`] does. What isn't a message stays there.
pub async fn relay(outlet: Outlet<'_>, owner: &Owner, entries: &[OutboxEntry]) -> Relayed {
    publish_all(outlet, owner, read(outlet.key, owner, entries), |_| true).await
}

/// Publishes messages, several at a time and under the venue's seal; those that [last](lasting) lie in the outbox. What
/// fails stays there for the sweep and holds up nothing behind it. The message of a job of an external worker that has
/// ended, or whose grant was revoked meanwhile, isn't published any more. All other messages are: workers ask what was
/// revoked before they start a task, a message or a result, and completions are owed to those who wait for them.
pub async fn send(outlet: Outlet<'_>, owner: &Owner, messages: Vec<Outgoing>) -> Relayed {
    publish_all(outlet, owner, messages, |to| outlet.bus.outlives(to)).await
}

/// Entries of an outbox as what they are.
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
            // Of a revoked one nothing is left for the sweep when its job has ended.
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

/// Removes entries that were published from the store.
pub async fn cross_off(store: &dyn Store, owner: &Owner, done: &[String]) {
    if !done.is_empty()
        && let Err(error) = store.published(owner, done).await
    {
        tracing::debug!(%owner, %error, "published entries stay in the outbox; they will be published again under the same ids");
    }
}

/// Whether the message of a job of an external worker may be published.
enum JobStanding {
    Open,
    Ended,
    /// As in [`Unpublished::Revoked`].
    Revoked(String),
}

/// Whether a job of an external worker may still be given to one: it has not ended, and nothing that it stands under was
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

/// What became of one message.
struct Sent {
    id: String,
    /// The job of an external worker that was to be published.
    job: Option<JobId>,
    /// It stays in the outbox all the same.
    is_kept: bool,
    /// It lies in an outbox.
    lies_there: bool,
    /// As in [`Unpublished::Revoked`].
    revoked: Option<String>,
    /// A message to an agent that the queue takes neither now nor later.
    unsendable: Option<Message>,
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

/// Publishes a message; that of a job's end without the job's output where it has more bytes than the queue takes.
///
/// # Errors
///
/// As the queue's; [`BusError::TooLarge`] where there is no output to leave out, or its message is too large without it.
pub async fn publish_shortened(bus: &dyn Bus, key: &[u8], owner: &Owner, message: &Message) -> Result<(), BusError> {
    let published = bus.publish(message).await;
    let Err(BusError::TooLarge { .. }) = &published else { return published };
    let Some(shorter) = without_output(owner, message) else { return published };
    tracing::info!(%owner, id = message.id, "an output is too large for the queue: its message goes without it");
    bus.publish(&seal::sealed(key, shorter)).await
}

/// The message of a job's end without the job's output; `None` where there is none to leave out.
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
    // It is sealed anew.
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
