//! Stages 1 and 2: a submission from the queue or a direct one becomes an admission.

mod admit;
mod admit_span;
mod job_messages;
mod error;
pub mod redrive;
mod repeat_answer;
mod replace;
pub mod sender;
mod submit;
pub mod timers;

use crate::domain::authority::envelope::Envelope;
use crate::domain::authority::grant;
use crate::domain::decode::{self, DataError};
use crate::domain::event::mailbox_key;
use crate::domain::event::{
    DEFAULT_SESSION, Event, Payload, ResultBody, Submission, asked_hash, body_hash, is_own_reply_subject,
    is_reply_allowed, new_session_id,
};
use crate::domain::ids::{AgentId, EventId, JobId, Owner, SessionId, SessionKey, VenueIdSubject, sha256_hex};
use crate::domain::job::{JobHead, TaskRequest};
use crate::domain::limits::{MESSAGE_DEPTH, SESSION_CONTEXT_BYTES, SUBMISSION_BYTES};
use crate::domain::outputs;
use crate::domain::principal::Principal;
use crate::domain::priority::Priority;
use crate::domain::resource::scratchpad;
use crate::domain::seal::{self, SubmissionAddress};
use crate::domain::time::Millis;
use crate::domain::trace::TraceParent;
use crate::domain::turn::options;
use crate::domain::values::entities;
use crate::domain::values::{Values, protected_keys};
use crate::store::{Admit, EventKind, NewEvent, NewJob, StoreError};
use crate::venue::Venue;
use crate::venue::agents;

pub use admit::admit;
pub use admit_span::{AdmittedEvent, end_admit_span};
use bytes::Bytes;
pub use error::{PreparationError, SubmissionError};
pub use job_messages::check_accepts_message;
pub use repeat_answer::repeat_answer;
pub use submit::{SubmitError, SubmitReceipt, submit};

/// A submission with its sender, its target and its time.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrival {
    /// Owner of the agent.
    pub owner: Owner,
    /// Agent that it is for.
    pub agent: AgentId,
    /// Whether it is a task; otherwise it is a message.
    pub task: bool,
    /// Event id that the producer chose.
    pub id: EventId,
    /// Content of the submission.
    pub submission: Submission,
    /// When it was published or received.
    pub received: Millis,
    /// Sequence number in the stream; 0 over HTTP.
    pub sequence: u64,
    /// Principal whose id it is.
    pub by: Principal,
    /// Whether the sender holds `context/override`, and may give values to keys that a token has claimed.
    pub may_override: bool,
    /// Span that sent it.
    pub trace: Option<TraceParent>,
}

/// Returns the values of a submission that its caller may set. Values about his identity are left out if a token has
/// claimed them.
fn session_context(arrival: &Arrival) -> Result<Values, SubmissionError> {
    let mut context = arrival.submission.session_context.clone();
    if context.is_empty() {
        return Ok(context);
    }
    let bytes = serde_json::to_vec(&context).map_or(0, |bytes| bytes.len());
    if bytes > SESSION_CONTEXT_BYTES {
        return Err(SubmissionError::ContextTooLarge(bytes));
    }
    if !arrival.may_override {
        if is_identified(arrival) {
            protected_keys::take_identity(&mut context);
        }
        protected_keys::check(&context, arrival.submission.envelope.claims.keys().map(String::as_str))?;
    }
    Ok(context)
}

/// Whether a token has claimed the identity of the sender.
fn is_identified(arrival: &Arrival) -> bool {
    arrival.submission.envelope.claims.contains_key(protected_keys::USER_ID)
}

/// Returns the ignored keys of the `sessionContext` of a submission.
pub fn ignored_keys(arrival: &Arrival) -> Vec<String> {
    if arrival.may_override || !is_identified(arrival) {
        return Vec::new();
    }
    protected_keys::take_identity(&mut arrival.submission.session_context.clone())
}

/// Checks that a message names entities, if its agent requires them. For a task the check is made for its job.
pub async fn check_entities(venue: &Venue, arrival: &Arrival) -> Result<(), PreparationError> {
    if arrival.task {
        return Ok(());
    }
    // A missing agent is refused elsewhere.
    let Some((agent, _)) = agents::get(venue, &arrival.owner, &arrival.agent).await? else { return Ok(()) };
    let config = agent.config;
    if !config.entity_ids_required {
        return Ok(());
    }
    let named = entities::ids(&config.entity_ids_key, &arrival.submission.session_context);
    named.map(drop).map_err(|error| SubmissionError::from(error).into())
}

/// Checks that the budget of a submission can be kept.
fn check_budget(arrival: &Arrival) -> Result<(), SubmissionError> {
    let budget = &arrival.submission.budget;
    if !arrival.task && !budget.is_empty() {
        return Err(SubmissionError::Budget("a message has none, give it to a task".into()));
    }
    budget.check().map_err(|error| SubmissionError::Budget(error.to_string()))
}

/// Checks that the priority of a submission is allowed.
fn check_priority(arrival: &Arrival) -> Result<(), SubmissionError> {
    if arrival.task || arrival.submission.priority.is_normal() {
        return Ok(());
    }
    Err(SubmissionError::Priority)
}

/// Checks that the schema of the output that a submission asks for can be used.
fn check_response(arrival: &Arrival) -> Result<(), SubmissionError> {
    match &arrival.submission.response_schema {
        None => Ok(()),
        Some(_) if !arrival.task => {
            Err(SubmissionError::ResponseSchema("a message has no output, give it to a task".into()))
        }
        Some(schema) => outputs::check(schema).map_err(|error| SubmissionError::ResponseSchema(error.to_string())),
    }
}

/// Parses the body of a submission.
pub fn parse(body: &[u8]) -> Result<Submission, SubmissionError> {
    if body.len() > SUBMISSION_BYTES {
        return Err(SubmissionError::TooLarge { bytes: body.len(), limit: SUBMISSION_BYTES });
    }
    let malformed = SubmissionError::Malformed;
    let value = decode::message_json(body, MESSAGE_DEPTH).map_err(malformed)?;
    // What a turn passes on may be deeper than its input. Whether the seal is valid is checked later.
    if value.get("seal").is_none_or(serde_json::Value::is_null) {
        decode::check(&value).map_err(malformed)?;
    }
    // The body is read again only to describe what is wrong with it.
    let again = |wrong: DataError| {
        decode::message_json(body, MESSAGE_DEPTH).map_or(wrong.clone(), |value| wrong.with_hint::<Submission>(&value))
    };
    decode::into_type(value).map_err(|wrong| malformed(again(wrong)))
}

/// Checks that, where callers are authenticated, an answer goes to an inbox of their owner.
pub fn check_reply(owner: &Owner, submission: &Submission) -> Result<(), SubmissionError> {
    let (tenant, user) = (owner.tenant().token(), owner.user().token());
    match submission.reply_to.clone().filter(|subject| !is_own_reply_subject(subject, &tenant, &user)) {
        None => Ok(()),
        Some(subject) => Err(SubmissionError::ReplyToOther { subject, tenant, user }),
    }
}

/// Makes the admission of a task or a message.
pub fn admission(venue: &Venue, arrival: &Arrival) -> Result<Admit, SubmissionError> {
    let Arrival { owner, agent, submission, id, .. } = arrival;
    let key = &venue.key;
    if let Some(subject) = &submission.reply_to
        && !is_reply_allowed(subject, &owner.tenant().token(), &owner.user().token())
    {
        return Err(SubmissionError::ReplyTo(subject.clone()));
    }
    let session_context = session_context(arrival)?;
    let grants = submission.context.as_ref().map(|grants| grant::parse(grants, &venue.boundaries)).transpose()?;
    check_budget(arrival)?;
    check_response(arrival)?;
    check_priority(arrival)?;
    options::check_loads(&submission.loads).map_err(SubmissionError::Loads)?;
    let context_ids = scratchpad::check_buckets(&submission.context_ids).map_err(SubmissionError::ContextIds)?;
    let job = arrival.task.then(|| JobId::derive(key, owner, id));
    let session = submission.session_id.clone().unwrap_or_else(|| {
        job.as_ref().map_or_else(|| SessionId::new(DEFAULT_SESSION).expect("a legal id"), new_session_id)
    });
    let input = submission.input.clone();
    let envelope = submission.envelope.clone().narrow_to_grants(grants);
    if let Some(path) = &submission.output_path {
        options::check_output(path, arrival.task, &envelope.bound)
            .map_err(|error| SubmissionError::OutputPath(Box::new(error)))?;
    }
    // A session of its own has no earlier task.
    let asks_way = job.as_ref().is_some_and(|job| session != new_session_id(job));
    let open = job.as_ref().map(|job| new_job(&job_head(arrival, job, &session, &envelope)));
    let payload = match &job {
        Some(job) => Payload::Task { job: job.clone(), input },
        None => Payload::Message { input, to: submission.job.clone() },
    };
    let event = Event {
        caller: submission.caller.clone(),
        reply_to: submission.reply_to.clone(),
        parent: submission.parent.clone(),
        session_context,
        context_ids,
        envelope,
        handed: submission.handed.clone(),
        budget: submission.budget,
        loads: submission.loads.clone(),
        output_path: submission.output_path.clone(),
        response_schema: submission.response_schema.clone(),
        priority: submission.priority,
        redrive_of: submission.redrive_of.clone(),
        trace: admit_span::find_place(venue, owner, id, arrival.trace),
        ..Event::new(id.clone(), arrival.received, payload)
    };
    let kind = if arrival.task { EventKind::Task } else { EventKind::Message };
    let event = NewEvent {
        id: id.clone(),
        body_hash: body_hash(agent, kind, submission, &arrival.by),
        kind,
        job: job.or_else(|| submission.job.clone()),
        order: mailbox_key(kind, submission.priority, arrival.received, arrival.sequence),
        body: encode(&event),
        open,
        finish: None,
        outbox: Vec::new(),
        quota: None,
        may_replace: asks_way,
    };
    let session = SessionKey { agent: agent.clone(), session };
    Ok(Admit { owner: owner.clone(), session, event: Some(event), lease: None })
}

/// Refuses new work if the store has no room for it; everything that creates a job calls this first.
pub async fn check_room(venue: &Venue) -> Result<(), StoreError> {
    venue.store_fill().await.check_room(&venue.name)
}

/// Makes the admission of a submission, after all checks of its agent and its job.
pub async fn prepare_admission(venue: &Venue, arrival: &Arrival) -> Result<Admit, PreparationError> {
    // What a turn has begun is admitted whatever the quota: its job exists already, and its caller waits for it.
    let is_new = arrival.submission.parent.is_none();
    let quota = if is_new { Some(venue.quota().await) } else { None };
    let within = |mut admit: Admit| {
        if let Some(event) = &mut admit.event {
            event.quota = quota;
        }
        admit
    };
    if is_new {
        check_room(venue).await?;
    }
    if let Some(to) = &arrival.submission.job {
        let arrival = job_messages::as_job_message(venue, arrival, to).await?;
        return Ok(within(admission(venue, &arrival)?));
    }
    let admission = admission(venue, arrival);
    match (admission, check_entities(venue, arrival).await) {
        // An error of the store comes first, because the caller tries again.
        (_, Err(error @ PreparationError::Store(_))) => Err(error),
        (Err(error), _) => Err(error.into()),
        (Ok(admit), checked) => checked.map(|()| within(admit)),
    }
}

/// Makes the admission of the result of a job that an agent waits for.
pub fn result_admission(
    venue_key: &[u8],
    owner: &Owner,
    agent: &AgentId,
    body: ResultBody,
    received: Millis,
    sequence: u64,
) -> Admit {
    let id = EventId::of_venue(venue_key, VenueIdSubject::Result(&body.job));
    let body_hash = sha256_hex(&serde_json::to_vec(&body).unwrap_or_default());
    let session = SessionKey { agent: agent.clone(), session: body.session_id };
    let job = body.job.clone();
    let event = Event::new(id.clone(), received, Payload::Result { job: body.job, result: body.result });
    let event = NewEvent {
        id,
        body_hash,
        kind: EventKind::Result,
        job: Some(job),
        order: mailbox_key(EventKind::Result, Priority::Normal, received, sequence),
        body: encode(&event),
        open: None,
        finish: None,
        outbox: Vec::new(),
        quota: None,
        may_replace: false,
    };
    Admit { owner: owner.clone(), session, event: Some(event), lease: None }
}

/// Returns the head of the job that a task opens; `envelope` has the authority of its turns.
pub fn job_head(arrival: &Arrival, job: &JobId, session: &SessionId, envelope: &Envelope) -> JobHead {
    let Submission { session_context, context_ids, budget, handed, response_schema, .. } = &arrival.submission;
    let Submission { loads, output_path, .. } = &arrival.submission;
    let request = TaskRequest {
        body_hash: body_hash(&arrival.agent, EventKind::Task, &arrival.submission, &arrival.by),
        asked_hash: asked_hash(&arrival.agent, EventKind::Task, &arrival.submission, &arrival.by),
        had_values: !session_context.is_empty(),
        context_ids: context_ids.clone(),
        envelope: envelope.clone(),
        budget: *budget,
        handed: handed.clone(),
        loads: loads.clone(),
        output_path: output_path.clone(),
        response_schema: response_schema.clone(),
    };
    JobHead {
        id: job.clone(),
        event: arrival.id.clone(),
        op: None,
        agent: arrival.agent.clone(),
        session: session.clone(),
        caller: arrival.submission.caller.clone(),
        input: arrival.submission.input.clone(),
        hidden: None,
        created: arrival.received,
        parent: arrival.submission.parent.clone(),
        reply_to: arrival.submission.reply_to.clone(),
        redrive_of: arrival.submission.redrive_of.clone(),
        priority: arrival.submission.priority,
        principal: arrival.by.mark().map(str::to_owned),
        request: Some(Box::new(request)),
        bound: None,
        ignored: ignored_keys(arrival),
        under: arrival.submission.envelope.trail(),
    }
}

/// Makes the admission of a task whose mailbox entry was lost; `None` if it can't be made again.
pub fn readmission(owner: &Owner, head: &JobHead) -> Option<Admit> {
    let (event, body_hash) = Event::from_job(head)?;
    let event = NewEvent {
        id: head.event.clone(),
        body_hash: body_hash.to_owned(),
        kind: EventKind::Task,
        job: Some(head.id.clone()),
        order: mailbox_key(EventKind::Task, head.priority, head.created, 0),
        body: encode(&event),
        open: None,
        finish: None,
        outbox: Vec::new(),
        quota: None,
        may_replace: false,
    };
    let session = SessionKey { agent: head.agent.clone(), session: head.session.clone() };
    Some(Admit { owner: owner.clone(), session, event: Some(event), lease: None })
}

/// Returns the record of a new job.
pub fn new_job(head: &JobHead) -> NewJob {
    let parent = head.parent.as_ref().and_then(|parent| parent.job.clone());
    NewJob { job: head.id.clone(), head: encode(head), parent }
}

fn encode<T: serde::Serialize>(value: &T) -> Bytes {
    Bytes::from(serde_json::to_vec(value).expect("JSON values serialise"))
}

/// Returns the id and the submission of a published message. What only the venue may set, including ids of its own,
/// counts only under its seal. `named` is the id as it arrived; without one `place` makes it.
pub fn open_seal(
    venue: &Venue,
    to: SubmissionAddress<'_>,
    named: Option<&str>,
    place: impl FnOnce() -> EventId,
    mut submission: Submission,
) -> Result<(EventId, Submission), SubmissionError> {
    if let Some(given) = submission.seal.take() {
        let id = named.map_or_else(|| Ok(place()), EventId::from_stored)?;
        let fits = seal::submission_fits(&venue.key, to, &id, &submission, &given);
        return if fits { Ok((id, submission)) } else { Err(SubmissionError::Forged("seal")) };
    }
    let id = named.map_or_else(|| Ok(place()), EventId::new)?;
    let claimed = [
        ("caller", submission.caller.is_some()),
        ("parent", submission.parent.is_some()),
        ("envelope", !submission.envelope.is_default()),
        ("handed", !submission.handed.is_empty()),
        ("redriveOf", submission.redrive_of.is_some()),
    ];
    match claimed.into_iter().find(|(_, claimed)| *claimed) {
        Some((key, _)) => Err(SubmissionError::Forged(key)),
        None => Ok((id, submission)),
    }
}

/// Returns an id for a submission without one: it isn't recognised when it is sent again.
pub fn fresh_id() -> EventId {
    EventId::new(uuid::Uuid::now_v7().to_string()).expect("a UUID is a legal id")
}
