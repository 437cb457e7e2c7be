//! Dead letters as operators see them: list, show; and driving again what failed.

use crate::domain::authority::envelope::Envelope;
use crate::domain::dead::DeadLetter;
use crate::domain::event::{Event, Payload, Submission};
use crate::domain::ids::{EventId, IdOf, JobId, Owner, SessionKey};
use crate::domain::job::{ErrorCode, Job, JobStatus};
use crate::domain::limits::LIST_BYTES;
use crate::domain::principal::Principal;
use crate::ingress::{self, Arrival, SubmitError};
use crate::store::{Change, DocKey, DocWrite, Expect, StoreError, Window, decode, keys, steps};
use crate::venue::Venue;
use crate::venue::jobs::{self, Listed};
use bytes::Bytes;

/// Why a dead letter isn't driven again.
#[derive(Debug, thiserror::Error)]
pub enum RedriveError {
    /// No such dead letter.
    #[error("no job `{0}` that failed: `trellis job list --state failed` and `trellis dead list` show which did")]
    Unknown(JobId),
    /// What failed can't be sent again.
    #[error("job `{job}` can't be driven again: {why}")]
    Not {
        /// Which.
        job: JobId,
        /// Why.
        why: &'static str,
    },
    /// The new submission was not accepted.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The write by which the commit that takes a dead task out of its mailbox keeps it.
pub fn kept(letter: &DeadLetter) -> DocWrite {
    let change = Change::Put(Bytes::from(serde_json::to_vec(letter).expect("dead letters serialise")));
    DocWrite { key: keys::dead_letter(letter.died, &letter.job), expect: Expect::Any, change }
}

/// A page of them, the last to die first: no more than weigh [`LIST_BYTES`] together.
pub async fn list(venue: &Venue, owner: &Owner, offset: usize, limit: usize) -> Result<Listed<DeadLetter>, StoreError> {
    let window = Window { reverse: true, skip: offset, limit, values: false };
    let page = venue.store.page(owner, keys::DEAD_LETTERS, window).await?;
    let places: Vec<[DocKey; 1]> = page.docs.into_iter().map(|(key, _)| [key]).collect();
    let (found, _) = steps::read(&*venue.store, owner, &places, LIST_BYTES).await?;
    let next = offset + found.len();
    let mut items = Vec::with_capacity(found.len());
    for ([key], mut doc) in places.iter().zip(found) {
        items.extend(doc.pop().and_then(|doc| doc.value).map(|bytes| decode::<DeadLetter>(key, &bytes)).transpose()?);
    }
    Ok(Listed { items, total: page.total, next })
}

/// That of a job.
pub async fn get(venue: &Venue, owner: &Owner, id: &JobId) -> Result<Option<(DeadLetter, u64)>, StoreError> {
    // Its place follows from when its job failed.
    let Some(Job { updated, result: Some(result), .. }) = jobs::get(venue, owner, id).await? else { return Ok(None) };
    if result.error_code != Some(ErrorCode::Dead) {
        return Ok(None);
    }
    let key: DocKey = keys::dead_letter(updated, id);
    let doc = venue.store.read(owner, std::slice::from_ref(&key)).await?.pop().unwrap_or_default();
    doc.value.map(|bytes| Ok((decode(&key, &bytes)?, doc.version))).transpose()
}

/// The id under which a job is driven again, however often.
fn id_of(venue: &Venue, job: &JobId) -> EventId {
    EventId::of_venue(&venue.key, IdOf::Redrive(job))
}

/// Which of these jobs were driven again.
pub async fn driven(venue: &Venue, owner: &Owner, jobs: &[JobId]) -> Result<Vec<bool>, StoreError> {
    let heads: Vec<DocKey> =
        jobs.iter().map(|job| keys::job_status(&JobId::derive(&venue.key, owner, &id_of(venue, job)))).collect();
    Ok(venue.store.read(owner, &heads).await?.iter().map(|doc| doc.value.is_some()).collect())
}

/// The task of a job that failed, as it was.
fn task_of(job: &Job) -> Result<Event, RedriveError> {
    let not = |why| RedriveError::Not { job: job.head.id.clone(), why };
    if job.status != JobStatus::Failed {
        return Err(not("it has not FAILED"));
    }
    if job.head.op.is_some() {
        return Err(not("it is the run of an operation; run that again"));
    }
    let task = job.head.task().map(|(event, _)| event);
    task.ok_or_else(|| not("its values (`sessionContext`) were kept with its task and are gone; submit it again"))
}

/// Drives a task that failed again, as a new job in the same session; under the authority that it had and
/// no more. Driving it twice is driving it once.
pub async fn redrive(venue: &Venue, owner: &Owner, id: &JobId) -> Result<(JobId, bool), RedriveError> {
    let Some((letter, version)) = get(venue, owner, id).await? else {
        let Some(job) = jobs::get(venue, owner, id).await? else { return Err(RedriveError::Unknown(id.clone())) };
        let session = SessionKey { agent: job.head.agent.clone(), session: job.head.session.clone() };
        let submitted = ingress::submit(venue, &again(venue, owner, (id, &session), &task_of(&job)?)).await?;
        let next = submitted.job.unwrap_or_else(|| JobId::derive(&venue.key, owner, &submitted.id));
        return Ok((next, submitted.duplicate));
    };
    let arrival = again(venue, owner, (id, &letter.session), &letter.event);
    let submitted = ingress::submit(venue, &arrival).await?;
    let job = submitted.job.unwrap_or_else(|| JobId::derive(&venue.key, owner, &arrival.id));
    if letter.redriven.is_none() {
        let noted = DeadLetter { redriven: Some(job.clone()), ..letter };
        // Lost when somebody drives it at the same time: as the same job.
        let write = DocWrite { expect: Expect::Version(version), ..kept(&noted) };
        venue.store.write(venue.now(), owner, &[write]).await?;
    }
    Ok((job, submitted.duplicate))
}

/// The submission that drives it again. The one who waited for it has its answer.
fn again(venue: &Venue, owner: &Owner, (job, session): (&JobId, &SessionKey), event: &Event) -> Arrival {
    let Event { caller, reply_to, session_context, context_ids, envelope, budget, handed, response_schema, .. } = event;
    let (loads, output_path) = (event.loads.clone(), event.output_path.clone());
    let input = match &event.payload {
        Payload::Task { input, .. } => input.clone(),
        Payload::Message { .. } | Payload::Result { .. } | Payload::Decision { .. } => serde_json::Value::Null,
    };
    Arrival {
        owner: owner.clone(),
        agent: session.agent.clone(),
        task: true,
        id: id_of(venue, job),
        submission: Submission {
            input,
            session_id: Some(session.session.clone()),
            reply_to: reply_to.clone(),
            session_context: session_context.clone(),
            context_ids: context_ids.clone(),
            caller: caller.clone(),
            // The time of the request that it served is over; what it may do and spend is as it was.
            envelope: Envelope { deadline: None, ..envelope.clone() },
            handed: handed.clone(),
            budget: *budget,
            loads,
            output_path,
            response_schema: response_schema.clone(),
            priority: event.priority,
            redrive_of: Some(job.clone()),
            ..Submission::default()
        },
        received: venue.now(),
        sequence: 0,
        by: Principal::ANYBODY,
        may_override: true,
    }
}
