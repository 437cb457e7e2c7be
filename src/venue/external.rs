//! External workers: programs of other people, in any language, that do jobs of agents.
//!
//! # Protocol of a worker
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
//! (times in milliseconds since the epoch; with `scoped` if the agent passes sections of its context on). The worker
//! publishes its answers on the subject `answer`, as JSON with the `job` and `token` of the message, and acknowledges
//! the message once its result is stored:
//!
//! | answer | meaning |
//! |---|---|
//! | `{job, token, status: "STARTED"}` | the job has begun or still runs. Needed until `startBy`, and then at least every `heartbeatSeconds` |
//! | the same with `progress` | progress that is shown to those who watch the job, at most 8 KiB |
//! | `{job, token, status: "COMPLETE", output}` | the job has ended; `output` has at most 900,000 bytes |
//! | `{job, token, status: "FAILED", error}` | the job has ended without an output |
//!
//! - A message can be delivered twice, after a crash on either side. The first end of a job counts. Later ones change
//!   nothing; they are in the record of the job (`outbound.ignored`) and in the log.
//! - When a job is cancelled or given up, its id is sent on the subject `control` (core NATS), so that a worker that
//!   listens there can stop. It is sent again when a worker says `STARTED` of a job that has ended.
//! - An answer with a wrong or missing token gets the reply `REJECTED`, `FORGED` on `<prefix>.out.…`, and never counts.
//! - A worker that begins too late, is silent for too long or takes too long loses the job, which is `FAILED`,
//!   `TIMEOUT`. An answer that is in the queue by then still counts for some seconds.
//!
//! `config/examples/external_worker.py` is such a worker. A job whose stream is gone, and every job of an embedded
//! queue, is `FAILED`, `QUEUE_UNAVAILABLE`; while the stream is full the job waits in the outbox.
//!
//! # How a job is watched
//!
//! Each job has a document and an entry in an index by time, both written before the job can be published. The sweep
//! reads the entries that are due. The document stays as long as the job; the entry until the job ends.

use crate::bus::{BusError, LiveSubject};
use crate::domain::external::{WorkerAnswer, WorkerReport, check_output, second_end_error};
use crate::domain::ids::{JobId, Owner, SessionKey};
use crate::domain::job::watch::{ExternalWatch, IgnoredAnswer, WatchStep};
use crate::domain::job::{ErrorCode, Job, JobHead, JobResult, JobStatus, WaitNote};
use crate::domain::limits::OUTBOUND_GRACE;
use crate::domain::time::Millis;
use crate::domain::wait::WaitCause;
use crate::store::{DocWrite, Edit, FinishOutcome, JobFinish, Store, StoreError, keys};
use crate::venue::Venue;
use crate::venue::jobs;
use crate::venue::outbox::{self, PublishFailure, RelayedJob};
use bytes::Bytes;
use serde_json::{Value, json};

/// Jobs of one owner that one step checks.
const PAGE: usize = 64;

/// Returns the writes that replace a watch of this version, with its entry in the index.
fn watch_writes(before: Option<&ExternalWatch>, version: u64, watch: &ExternalWatch) -> Vec<DocWrite> {
    let mut writes = vec![DocWrite::json(keys::outbound(&watch.job), watch).at_version(version)];
    if let Some(before) = before.filter(|before| before.due != watch.due) {
        writes.push(DocWrite::delete(keys::outbound_due(before.due, &watch.job)));
    }
    if before.is_none_or(|before| before.due != watch.due) {
        writes.push(DocWrite::index_entry(keys::outbound_due(watch.due, &watch.job)));
    }
    writes
}

/// The watch and the status of a job, with their versions.
struct WatchedJob {
    watch: Option<ExternalWatch>,
    version: u64,
    status: Option<JobStatus>,
    status_version: u64,
}

async fn read_watched(store: &dyn Store, owner: &Owner, job: &JobId) -> Result<WatchedJob, StoreError> {
    let keys = [keys::outbound(job), keys::job_status(job)];
    let mut docs = store.read(owner, &keys).await?.into_iter();
    let (watch, status) = (docs.next().unwrap_or_default(), docs.next().unwrap_or_default());
    Ok(WatchedJob {
        watch: watch.decode(&keys[0])?,
        version: watch.version,
        status: status.status().map(|(status, _)| status),
        status_version: status.version,
    })
}

/// Stores the watch of a job that is about to be opened, and returns it. A job that was opened before keeps its watch,
/// which is returned.
pub async fn watch(venue: &Venue, owner: &Owner, watch: ExternalWatch) -> Result<ExternalWatch, StoreError> {
    let attempt = || async {
        let known = read_watched(&*venue.store, owner, &watch.job).await?;
        if known.status.is_some() {
            return Ok(Edit::without_writes(known.watch.unwrap_or_else(|| watch.clone())));
        }
        Ok(Edit::write(watch_writes(known.watch.as_ref(), known.version, &watch), watch.clone()))
    };
    venue.store.edit(venue.now(), owner, "job", &watch.job, attempt).await
}

/// Handles the result of an attempt to publish the message of a job.
pub async fn note_publication(venue: &Venue, owner: &Owner, relayed: &RelayedJob) -> Result<(), StoreError> {
    let RelayedJob { job, entry, published } = relayed;
    let Err(why) = published else { return clear_wait(venue, owner, job).await };
    let (result, is_running) = match why {
        PublishFailure::Queue(error @ (BusError::Full { .. } | BusError::Unavailable { .. })) => {
            let until = venue.now().plus(OUTBOUND_GRACE);
            let cause = WaitCause::NotPublished;
            let note = WaitNote { reason: format!("it is not published yet: {error}"), until: Some(until), cause };
            let write = DocWrite::json(keys::job_wait(job), &note);
            venue.store.write(venue.now(), owner, &[write]).await?;
            return Ok(());
        }
        PublishFailure::Queue(
            error @ (BusError::NoStream { .. } | BusError::Refused { .. } | BusError::TooLarge { .. }),
        ) => {
            tracing::warn!(%owner, %job, %error, "job of an external worker can't be published, and fails");
            (JobResult::failure(ErrorCode::QueueUnavailable, error.to_string()), false)
        }
        PublishFailure::Revoked(reason) => {
            tracing::info!(%owner, %job, reason, "job of an external worker is not published, and fails");
            // The acknowledgement of an earlier try may have been lost, so a worker may run the job.
            (JobResult::failure(ErrorCode::CapDenied, reason.clone()), true)
        }
    };
    if let Some(known) = jobs::get(venue, owner, job).await? {
        let finished = end_job(venue, owner, &known.head, &result).await?;
        if is_running && finished == FinishOutcome::Done {
            signal_stop(venue, owner, job).await;
        }
    }
    venue.store.remove_published(owner, std::slice::from_ref(entry)).await
}

/// Ends a job, and sends its result to the session that waits for it. The first end counts.
async fn end_job(
    venue: &Venue,
    owner: &Owner,
    head: &JobHead,
    result: &JobResult,
) -> Result<FinishOutcome, StoreError> {
    let told = outbox::completions(&venue.key, owner, head, result);
    let finish = JobFinish {
        job: head.id.clone(),
        status: result.status,
        result: Bytes::from(serde_json::to_vec(result).expect("results serialise")),
    };
    let session = SessionKey { agent: head.agent.clone(), session: head.session.clone() };
    let finished =
        venue.store.finish(venue.now(), owner, &session, &finish, None, &venue.lasting_entries(&told, &[])).await?;
    if finished == FinishOutcome::Done {
        venue.send(owner, told).await;
        delete_entry(venue, owner, &head.id).await?;
    }
    Ok(finished)
}

/// Deletes the entry of a job that has ended. If this fails, the next check of the job does it.
async fn delete_entry(venue: &Venue, owner: &Owner, job: &JobId) -> Result<(), StoreError> {
    if let Some(watch) = read_watched(&*venue.store, owner, job).await?.watch {
        let place = DocWrite::delete(keys::outbound_due(watch.due, job));
        venue.store.write(venue.now(), owner, &[place]).await?;
    }
    Ok(())
}

/// Result of a worker's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerOutcome {
    /// The answer counts, or has counted before.
    Counted,
    /// The answer changes nothing, for this reason; the job's record has it.
    Ignored(String),
}

/// Applies a worker's answer about a job of this owner, whose token was verified. `message` is the id of the message.
pub async fn apply_answer(
    venue: &Venue,
    owner: &Owner,
    answer: WorkerAnswer,
    message: &str,
) -> Result<AnswerOutcome, StoreError> {
    let WorkerAnswer { job: id, report: said, .. } = answer;
    let Some(job) = jobs::get(venue, owner, &id).await? else {
        return Ok(AnswerOutcome::Ignored(format!("job `{id}` is gone")));
    };
    let wrong = match said {
        Ok(WorkerReport::Started { progress }) => {
            if record_start(venue, owner, &id).await? {
                send_progress(venue, &LiveSubject::Job(id), progress.map(|progress| json!({"progress": progress})))
                    .await;
            } else {
                signal_stop(venue, owner, &id).await;
            }
            return Ok(AnswerOutcome::Counted);
        }
        Ok(WorkerReport::Ended(result)) => {
            let result = check_output(job.outbound.as_ref().and_then(|watch| watch.output.as_ref()), result);
            match end_job(venue, owner, &job.head, &result).await? {
                FinishOutcome::Done => return Ok(AnswerOutcome::Counted),
                FinishOutcome::Unknown => return Ok(AnswerOutcome::Ignored(format!("job `{id}` is gone"))),
                FinishOutcome::Already(status) => {
                    let known = jobs::get(venue, owner, &id).await?.and_then(|job: Job| job.result);
                    match second_end_error(known.as_ref(), status, &result) {
                        None => return Ok(AnswerOutcome::Counted),
                        Some(late) => late,
                    }
                }
            }
        }
        Err(wrong) => wrong.reason,
    };
    record_ignored(venue, owner, &id, message, &wrong).await?;
    Ok(AnswerOutcome::Ignored(wrong))
}

/// Records that the worker of a job has begun or still runs it; `false` if the job has ended.
async fn record_start(venue: &Venue, owner: &Owner, job: &JobId) -> Result<bool, StoreError> {
    let attempt = || async {
        let known = read_watched(&*venue.store, owner, job).await?;
        let (Some(watch), Some(status)) = (known.watch, known.status) else { return Ok(Edit::without_writes(false)) };
        if status.is_terminal() {
            return Ok(Edit::without_writes(false));
        }
        let now = venue.now();
        let mut writes = watch_writes(Some(&watch), known.version, &watch.clone().note_sign(now));
        if status == JobStatus::Pending {
            let line = DocWrite::put(keys::job_status(job), keys::encode_status(JobStatus::Started, now));
            writes.push(line.at_version(known.status_version));
        }
        Ok(Edit::write(writes, true))
    };
    venue.store.edit(venue.now(), owner, "job", job, attempt).await
}

/// Records an answer that changed nothing.
async fn record_ignored(
    venue: &Venue,
    owner: &Owner,
    job: &JobId,
    message: &str,
    reason: &str,
) -> Result<(), StoreError> {
    let attempt = || async {
        let known = read_watched(&*venue.store, owner, job).await?;
        let Some(watch) = known.watch else { return Ok(Edit::without_writes(())) };
        let ignored = IgnoredAnswer { at: venue.now(), message: message.to_owned(), reason: reason.to_owned() };
        let write = DocWrite::json(keys::outbound(job), &watch.add_ignored(ignored));
        Ok(Edit::write([write.at_version(known.version)], ()))
    };
    venue.store.edit(venue.now(), owner, "job", job, attempt).await
}

async fn send_progress(venue: &Venue, to: &LiveSubject, piece: Option<Value>) {
    let Some(piece) = piece else { return };
    if let Err(error) = venue.bus.signal(to, Bytes::from(piece.to_string())).await {
        tracing::debug!(%error, "progress of an external worker not sent");
    }
}

/// Signals the worker of a job that the job has ended.
async fn signal_stop(venue: &Venue, owner: &Owner, job: &JobId) {
    let control = LiveSubject::Control(owner.clone());
    if let Err(error) = venue.bus.signal(&control, Bytes::from(job.to_string())).await {
        tracing::debug!(%error, %job, "an external worker is not told that its job has ended");
    }
}

/// Checks the jobs of an owner that are due; returns whether there are more. Any process may do it at any time, and
/// several at once.
pub async fn check_due(venue: &Venue, owner: &Owner) -> Result<bool, StoreError> {
    let now = venue.now();
    let found = venue.store.scan(owner, keys::OUTBOUND_DUE, None, false, PAGE).await?;
    let due: Vec<_> = found.iter().filter_map(|(key, _)| keys::job_of_due(keys::OUTBOUND_DUE, key)).collect();
    let due: Vec<_> = due.into_iter().take_while(|(at, _)| *at <= now).collect();
    let mut damaged = 0;
    for (at, job) in &due {
        match check_one(venue, owner, *at, job, now).await {
            Ok(()) => {}
            // A damaged record must not delay the checks of others.
            Err(error @ StoreError::Corrupt { .. }) => {
                damaged += 1;
                tracing::warn!(%owner, %job, %error, "job not looked at");
            }
            Err(error) => return Err(error),
        }
    }
    // A page of only damaged records would be the same next time.
    Ok(due.len() == PAGE && damaged < PAGE)
}

async fn check_one(venue: &Venue, owner: &Owner, at: Millis, job: &JobId, now: Millis) -> Result<(), StoreError> {
    let known = read_watched(&*venue.store, owner, job).await?;
    let place = || DocWrite::delete(keys::outbound_due(at, job));
    let Some(watch) = known.watch.filter(|watch| watch.due == at) else {
        // Another process has moved the entry, or the watch was deleted with its job.
        venue.store.write(now, owner, &[DocWrite::check(keys::outbound(job), known.version), place()]).await?;
        return Ok(());
    };
    let writes = match known.status {
        None => match watch.clone().await_job(now) {
            Some(later) => watch_writes(Some(&watch), known.version, &later),
            None => vec![DocWrite::delete(keys::outbound(job)).at_version(known.version), place()],
        },
        Some(status) if status.is_terminal() => vec![place()],
        Some(_) => match watch.clone().next_step(now) {
            WatchStep::Later(later) => watch_writes(Some(&watch), known.version, &later),
            WatchStep::Over(why) => return fail_overdue(venue, owner, job, &why).await,
        },
    };
    // On a conflict another process was faster, and its entry is checked later.
    venue.store.write(now, owner, &writes).await?;
    Ok(())
}

/// Fails a job whose time is over.
async fn fail_overdue(venue: &Venue, owner: &Owner, id: &JobId, why: &str) -> Result<(), StoreError> {
    let Some(job) = jobs::get(venue, owner, id).await? else { return Ok(()) };
    let waited =
        job.waiting.filter(|_| job.status == JobStatus::Pending).map(|waiting| format!("; {}", waiting.reason));
    let result = JobResult::failure(ErrorCode::Timeout, format!("{why}{}", waited.unwrap_or_default()));
    if end_job(venue, owner, &job.head, &result).await? == FinishOutcome::Done {
        tracing::info!(%owner, job = %id, why, "job of an external worker given up");
        signal_stop(venue, owner, id).await;
    }
    Ok(())
}

/// Deletes the note that the job waits to be published.
async fn clear_wait(venue: &Venue, owner: &Owner, job: &JobId) -> Result<(), StoreError> {
    let key = keys::job_wait(job);
    let waited = venue.store.doc(owner, &key).await?;
    if waited.value.is_some() {
        venue.store.write(venue.now(), owner, &[DocWrite::delete(key).at_version(waited.version)]).await?;
    }
    Ok(())
}
