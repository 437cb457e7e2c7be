//! External workers: programs of other people, in any language, that do jobs of agents.
//!
//! # How a worker speaks
//!
//! An agent calls `v/ops/queue/publish {queue, input}`. The job is a message on the subject
//! `<prefix>.jobs.<queue>` of the work queue stream `<PREFIX>_JOBS`. A worker takes it with a pull
//! consumer whose filter is that subject (one consumer for all workers of a queue), and gets
//!
//! ```json
//! {"job": "…", "queue": "ocr", "input": {}, "owner": "acme/ann", "agent": "clerk", "session": "s-…",
//!  "created": 1767225600000, "startBy": 1767229200000, "heartbeatSeconds": 600, "deadline": 1767312000000,
//!  "token": "…", "answer": "trellis.in.acme.ann.clerk.result", "control": "trellis.ctl.acme.ann"}
//! ```
//!
//! (times in milliseconds since the epoch; `scoped`, too, when the agent hands sections of its context
//! on). It publishes what it has to say on the subject `answer`, as JSON with the `job` and `token` of
//! its message, and acknowledges the message once its result is stored:
//!
//! | it says | which means |
//! |---|---|
//! | `{job, token, status: "STARTED"}` | it has begun; said again, it is still at it. Needed until `startBy`, and then every `heartbeatSeconds` at least |
//! | the same with `progress` | what those who watch the job are told, at most 8 KiB |
//! | `{job, token, status: "COMPLETE", output}` | it has ended; `output` has at most 900,000 bytes |
//! | `{job, token, status: "FAILED", error}` | it has ended without an output |
//!
//! - A message can come twice: after a crash, on either side. The first end of a job counts. Later ones
//!   change nothing; the record of the job has them (`outbound.ignored`), and the log.
//! - When a job is cancelled or given up, its id goes out on the subject `control` (core NATS): a worker
//!   that listens there can stop. It goes out again when a worker says `STARTED` of a job that has ended.
//! - A wrong or missing token is answered on `<prefix>.out.…` with `REJECTED`, `FORGED`, and never counts.
//! - Who begins too late, falls silent or takes too long has lost the job: it is `FAILED`, `TIMEOUT`. What
//!   is already in the queue by then still counts for some seconds.
//!
//! `config/examples/external_worker.py` is such a worker. A job whose stream is gone, and every job of an
//! embedded queue, is `FAILED`, `QUEUE_UNAVAILABLE`; while the stream is full it waits in the outbox.
//!
//! # How a job is watched
//!
//! A document per job, and its place in an index by time, written before the job can be published. The
//! sweep looks at those that are due. The document stays as long as the job; the place until it ends.

use crate::bus::{BusError, LiveSubject};
use crate::domain::external::{WorkerAnswer, WorkerSaid, late};
use crate::domain::ids::{JobId, Owner, SessionKey};
use crate::domain::job::watch::{Ignored, Watch, WatchLook};
use crate::domain::job::{ErrorCode, Job, JobHead, JobResult, JobStatus, Waiting};
use crate::domain::limits::OUTBOUND_GRACE;
use crate::domain::time::Millis;
use crate::domain::wait::WaitCause;
use crate::outbox::{self, RelayedJob, Unpublished};
use crate::store::{DocWrite, Edit, Finished, JobFinish, Store, StoreError, keys};
use crate::venue::Venue;
use crate::venue::jobs;
use bytes::Bytes;
use serde_json::{Value, json};

/// Jobs of one owner that are looked at in one step.
const PAGE: usize = 64;

/// The writes that replace a watch of this version, with its place.
fn moved(before: Option<&Watch>, version: u64, watch: &Watch) -> Vec<DocWrite> {
    let mut writes = vec![DocWrite::json(keys::outbound(&watch.job), watch).at(version)];
    if let Some(before) = before.filter(|before| before.due != watch.due) {
        writes.push(DocWrite::delete(keys::outbound_due(before.due, &watch.job)));
    }
    if before.is_none_or(|before| before.due != watch.due) {
        writes.push(DocWrite::mark(keys::outbound_due(watch.due, &watch.job)));
    }
    writes
}

/// What is known of a job: its watch and its status, with their versions.
struct Known {
    watch: Option<Watch>,
    version: u64,
    status: Option<JobStatus>,
    status_version: u64,
}

async fn known(store: &dyn Store, owner: &Owner, job: &JobId) -> Result<Known, StoreError> {
    let keys = [keys::outbound(job), keys::job_status(job)];
    let mut docs = store.read(owner, &keys).await?.into_iter();
    let (watch, status) = (docs.next().unwrap_or_default(), docs.next().unwrap_or_default());
    Ok(Known {
        watch: watch.decode(&keys[0])?,
        version: watch.version,
        status: status.status().map(|(status, _)| status),
        status_version: status.version,
    })
}

/// Watches a job that is about to be opened. One that was opened before is watched already, and goes
/// on as it was: this is returned.
pub async fn watch(venue: &Venue, owner: &Owner, watch: Watch) -> Result<Watch, StoreError> {
    let attempt = || async {
        let known = known(&*venue.store, owner, &watch.job).await?;
        if known.status.is_some() {
            return Ok(Edit::nothing(known.watch.unwrap_or_else(|| watch.clone())));
        }
        Ok(Edit::write(moved(known.watch.as_ref(), known.version, &watch), watch.clone()))
    };
    venue.store.edit(venue.now(), owner, ("job", &watch.job), attempt).await
}

/// What comes of an attempt to publish the message of a job.
pub async fn relayed(venue: &Venue, owner: &Owner, relayed: &RelayedJob) -> Result<(), StoreError> {
    let RelayedJob { job, entry, published } = relayed;
    let Err(why) = published else { return waits_no_more(venue, owner, job).await };
    let (result, is_running) = match why {
        Unpublished::Queue(error @ (BusError::Full { .. } | BusError::Unavailable { .. })) => {
            let until = venue.now().plus(OUTBOUND_GRACE);
            let cause = WaitCause::NotPublished;
            let note = Waiting { reason: format!("it is not published yet: {error}"), until: Some(until), cause };
            let write = DocWrite::json(keys::job_wait(job), &note);
            venue.store.write(venue.now(), owner, &[write]).await?;
            return Ok(());
        }
        Unpublished::Queue(
            error @ (BusError::NoStream { .. } | BusError::Refused { .. } | BusError::TooLarge { .. }),
        ) => {
            tracing::warn!(%owner, %job, %error, "job of an external worker can't be published, and fails");
            (JobResult::failed(ErrorCode::QueueUnavailable, error.to_string()), false)
        }
        Unpublished::Revoked(reason) => {
            tracing::info!(%owner, %job, reason, "job of an external worker is not published, and fails");
            // The acknowledgement of an earlier try may have been lost.
            (JobResult::failed(ErrorCode::CapDenied, reason.clone()), true)
        }
    };
    if let Some(known) = jobs::get(venue, owner, job).await? {
        let finished = end(venue, owner, &known.head, &result).await?;
        if is_running && finished == Finished::Done {
            stop(venue, owner, job).await;
        }
    }
    venue.store.published(owner, std::slice::from_ref(entry)).await
}

/// Ends a job, and tells the session that waits for it. The first end counts.
async fn end(venue: &Venue, owner: &Owner, head: &JobHead, result: &JobResult) -> Result<Finished, StoreError> {
    let told = outbox::completions(&venue.key, owner, head, result);
    let finish = JobFinish {
        job: head.id.clone(),
        status: result.status,
        result: Bytes::from(serde_json::to_vec(result).expect("results serialise")),
    };
    let session = SessionKey { agent: head.agent.clone(), session: head.session.clone() };
    let finished = venue.store.finish(venue.now(), owner, &session, &finish, None, &venue.lasting(&told, &[])).await?;
    if finished == Finished::Done {
        venue.send(owner, told).await;
        leave(venue, owner, &head.id).await?;
    }
    Ok(finished)
}

/// A job that has ended is looked at no more. Should this not come about, its next look does it.
async fn leave(venue: &Venue, owner: &Owner, job: &JobId) -> Result<(), StoreError> {
    if let Some(watch) = known(&*venue.store, owner, job).await?.watch {
        let place = DocWrite::delete(keys::outbound_due(watch.due, job));
        venue.store.write(venue.now(), owner, &[place]).await?;
    }
    Ok(())
}

/// What became of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerOutcome {
    /// It counts, or did before.
    Yes,
    /// It changes nothing, for this reason; the job's record has it.
    Ignored(String),
}

/// Takes what a worker has said of a job of this owner, by right of its token. `message` names its
/// message.
pub async fn answered(
    venue: &Venue,
    owner: &Owner,
    answer: WorkerAnswer,
    message: &str,
) -> Result<AnswerOutcome, StoreError> {
    let WorkerAnswer { job: id, said, .. } = answer;
    let Some(job) = jobs::get(venue, owner, &id).await? else {
        return Ok(AnswerOutcome::Ignored(format!("job `{id}` is gone")));
    };
    let wrong = match said {
        Ok(WorkerSaid::Started { progress }) => {
            if began(venue, owner, &id).await? {
                tell(venue, &LiveSubject::Job(id), progress.map(|progress| json!({"progress": progress}))).await;
            } else {
                stop(venue, owner, &id).await;
            }
            return Ok(AnswerOutcome::Yes);
        }
        Ok(WorkerSaid::Ended(result)) => match end(venue, owner, &job.head, &result).await? {
            Finished::Done => return Ok(AnswerOutcome::Yes),
            Finished::Unknown => return Ok(AnswerOutcome::Ignored(format!("job `{id}` is gone"))),
            Finished::Already(status) => {
                let known = jobs::get(venue, owner, &id).await?.and_then(|job: Job| job.result);
                match late(known.as_ref(), status, &result) {
                    None => return Ok(AnswerOutcome::Yes),
                    Some(late) => late,
                }
            }
        },
        Err(wrong) => wrong.reason,
    };
    note(venue, owner, &id, message, &wrong).await?;
    Ok(AnswerOutcome::Ignored(wrong))
}

/// The worker of a job has begun, or is at it; false: the job has ended.
async fn began(venue: &Venue, owner: &Owner, job: &JobId) -> Result<bool, StoreError> {
    let attempt = || async {
        let known = known(&*venue.store, owner, job).await?;
        let (Some(watch), Some(status)) = (known.watch, known.status) else { return Ok(Edit::nothing(false)) };
        if status.is_terminal() {
            return Ok(Edit::nothing(false));
        }
        let now = venue.now();
        let mut writes = moved(Some(&watch), known.version, &watch.clone().alive(now));
        if status == JobStatus::Pending {
            let line = DocWrite::put(keys::job_status(job), keys::encode_status(JobStatus::Started, now));
            writes.push(line.at(known.status_version));
        }
        Ok(Edit::write(writes, true))
    };
    venue.store.edit(venue.now(), owner, ("job", job), attempt).await
}

/// Keeps an answer that changed nothing.
async fn note(venue: &Venue, owner: &Owner, job: &JobId, message: &str, reason: &str) -> Result<(), StoreError> {
    let attempt = || async {
        let known = known(&*venue.store, owner, job).await?;
        let Some(watch) = known.watch else { return Ok(Edit::nothing(())) };
        let ignored = Ignored { at: venue.now(), message: message.to_owned(), reason: reason.to_owned() };
        let write = DocWrite::json(keys::outbound(job), &watch.ignoring(ignored));
        Ok(Edit::write([write.at(known.version)], ()))
    };
    venue.store.edit(venue.now(), owner, ("job", job), attempt).await
}

async fn tell(venue: &Venue, to: &LiveSubject, piece: Option<Value>) {
    let Some(piece) = piece else { return };
    if let Err(error) = venue.bus.signal(to, Bytes::from(piece.to_string())).await {
        tracing::debug!(%error, "progress of an external worker not sent");
    }
}

/// Tells the worker of a job that nobody waits for it any more.
async fn stop(venue: &Venue, owner: &Owner, job: &JobId) {
    let control = LiveSubject::Control(owner.clone());
    if let Err(error) = venue.bus.signal(&control, Bytes::from(job.to_string())).await {
        tracing::debug!(%error, %job, "an external worker is not told that its job has ended");
    }
}

/// Looks at the jobs of an owner that are due; returns whether there are more. Any process may do it
/// at any time, and several at once.
pub async fn look(venue: &Venue, owner: &Owner) -> Result<bool, StoreError> {
    let now = venue.now();
    let found = venue.store.scan(owner, keys::OUTBOUND_DUE, None, false, PAGE).await?;
    let due: Vec<_> = found.iter().filter_map(|(key, _)| keys::job_of_due(keys::OUTBOUND_DUE, key)).collect();
    let due: Vec<_> = due.into_iter().take_while(|(at, _)| *at <= now).collect();
    let mut damaged = 0;
    for (at, job) in &due {
        match one(venue, owner, *at, job, now).await {
            Ok(()) => {}
            // One damaged record must not keep the others from their time.
            Err(error @ StoreError::Corrupt { .. }) => {
                damaged += 1;
                tracing::warn!(%owner, %job, %error, "job not looked at");
            }
            Err(error) => return Err(error),
        }
    }
    // A page of damaged ones is the same at the next look.
    Ok(due.len() == PAGE && damaged < PAGE)
}

async fn one(venue: &Venue, owner: &Owner, at: Millis, job: &JobId, now: Millis) -> Result<(), StoreError> {
    let known = known(&*venue.store, owner, job).await?;
    let place = || DocWrite::delete(keys::outbound_due(at, job));
    let Some(watch) = known.watch.filter(|watch| watch.due == at) else {
        // Somebody has moved it since, or it was forgotten with its job.
        venue.store.write(now, owner, &[DocWrite::check(keys::outbound(job), known.version), place()]).await?;
        return Ok(());
    };
    let writes = match known.status {
        None => match watch.clone().without_job(now) {
            Some(later) => moved(Some(&watch), known.version, &later),
            None => vec![DocWrite::delete(keys::outbound(job)).at(known.version), place()],
        },
        Some(status) if status.is_terminal() => vec![place()],
        Some(_) => match watch.clone().look(now) {
            WatchLook::Later(later) => moved(Some(&watch), known.version, &later),
            WatchLook::Over(why) => return give_up(venue, owner, job, &why).await,
        },
    };
    // On a conflict somebody else was faster: what is there now is looked at again.
    venue.store.write(now, owner, &writes).await?;
    Ok(())
}

/// The time of a job is over.
async fn give_up(venue: &Venue, owner: &Owner, id: &JobId, why: &str) -> Result<(), StoreError> {
    let Some(job) = jobs::get(venue, owner, id).await? else { return Ok(()) };
    let waited =
        job.waiting.filter(|_| job.status == JobStatus::Pending).map(|waiting| format!("; {}", waiting.reason));
    let result = JobResult::failed(ErrorCode::Timeout, format!("{why}{}", waited.unwrap_or_default()));
    if end(venue, owner, &job.head, &result).await? == Finished::Done {
        tracing::info!(%owner, job = %id, why, "job of an external worker given up");
        stop(venue, owner, id).await;
    }
    Ok(())
}

/// The message of a job is published: what it waited for is over.
async fn waits_no_more(venue: &Venue, owner: &Owner, job: &JobId) -> Result<(), StoreError> {
    let key = keys::job_wait(job);
    let waited = venue.store.doc(owner, &key).await?;
    if waited.value.is_some() {
        venue.store.write(venue.now(), owner, &[DocWrite::delete(key).at(waited.version)]).await?;
    }
    Ok(())
}
