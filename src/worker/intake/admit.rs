//! Admission: the store takes the event and grants the lease in one step; a refused event is answered.

use super::refuse::{refusal, refuse};
use super::reply_subject::parse_reply_to;
use super::settle::{REDELIVERY_DELAY, settle};
use crate::bus::Delivery;
use crate::domain::decode;
use crate::domain::job::{ErrorCode, JobHead, JobResult, JobStatus};
use crate::process::tracer::SpanStart;
use crate::store::{Admit, FinishOutcome, Intake, JobFinish, LeaseOutcome, NewJob, Refusal, StoreError};
use crate::venue::ingress::{self, AdmittedEvent};
use crate::venue::outbox;
use crate::worker::lease::outage::{pause, return_grant};
use crate::worker::session;
use crate::worker::stage::Stage;
use crate::worker::state::Worker;
use crate::worker::state::slots::{AdmissionSlot, SlotWait};
use bytes::Bytes;

/// Bytes of a message that stays in the queue while its session waits: the store has it by then, and a larger one would
/// fill the queue.
const HELD_BYTES_MAX: usize = 16 << 10;

/// Refusal of an id that names another request.
const USED_BEFORE: &str =
    "this id was used before with another body, caller or authority; use a new id for a new request";

/// Admits an event and runs its session in the owner's slot; without a slot the session stays due.
pub(super) async fn admit_and_run(
    worker: &Worker,
    delivery: &Delivery,
    mut admit: Admit,
    kind: &'static str,
    slot: Option<&AdmissionSlot>,
) {
    admit.lease = slot.map(|_| worker.lease_request());
    Stage::Admit.enter(&admit.session);
    let (asked, span) = (worker.venue.clock.steady(), worker.venue.tracer.start());
    let answer = match ingress::admit(&worker.venue, &mut admit).await {
        Ok(answer) => answer,
        Err(error) => {
            tracing::warn!(session = %admit.session, %error, "event not admitted yet");
            return_grant(worker, &admit);
            delivery.settle.nak(pause(&error)).await;
            Stage::Idle.enter(&admit.session);
            return;
        }
    };
    end_span(worker, delivery, &admit, span, &answer.intake);
    let metrics = &worker.venue.metrics;
    match answer.intake {
        Intake::Nothing | Intake::ReplaceRunning => {}
        Intake::New => count_new(worker, delivery, kind),
        Intake::Duplicate => {
            metrics.count_admitted(kind, "duplicate");
            answer_duplicate(worker, delivery, &admit).await;
        }
        Intake::Conflict => {
            metrics.count_admitted(kind, "conflict");
            refuse(worker, delivery, refusal(ErrorCode::Conflict, USED_BEFORE)).await;
            return;
        }
        Intake::Refused(refusal) => {
            metrics.count_admitted(kind, "refused");
            answer_refusal(worker, delivery, &admit, &refusal).await;
            return;
        }
    }
    match answer.lease {
        LeaseOutcome::Run(grant) => {
            let end = session::run(worker, *grant, asked, &*delivery.settle).await;
            settle(worker, &delivery.settle, end).await;
            Stage::Idle.enter(&admit.session);
            return;
        }
        // The event is in the mailbox and the session is due: its holder or the sweep goes on. Only a redelivery brings
        // back the session of a dead worker.
        LeaseOutcome::Busy(until) if delivery.delivered > 1 => {
            delivery.settle.nak(until.elapsed_since(worker.venue.now()).max(REDELIVERY_DELAY)).await;
        }
        LeaseOutcome::NotAsked => {
            let is_small = delivery.body.len() <= HELD_BYTES_MAX;
            let waits = if is_small { SlotWait::Admitted(&delivery.settle) } else { SlotWait::Due };
            if !worker.slots.enqueue_waiting(&admit.owner, &admit.session, &waits) {
                delivery.settle.ack().await;
            }
            if worker.slots.claim_announcement(&admit.owner) {
                worker.venue.wake_of_many(&admit.owner, &admit.session).await;
            }
        }
        LeaseOutcome::Busy(_)
        | LeaseOutcome::Empty
        | LeaseOutcome::Waiting
        | LeaseOutcome::Suspended
        | LeaseOutcome::Backoff(_) => delivery.settle.ack().await,
    }
    Stage::Idle.enter(&admit.session);
}

/// Counts an event that is new, and how long it has waited in the queue.
fn count_new(worker: &Worker, delivery: &Delivery, kind: &'static str) {
    let (metrics, now) = (&worker.venue.metrics, worker.venue.now());
    metrics.count_admitted(kind, "new");
    metrics.progress.queue_wait.observe(now.elapsed_since(delivery.published).as_secs_f64());
}

/// Ends the span of an admission.
fn end_span(worker: &Worker, delivery: &Delivery, admit: &Admit, span: Option<SpanStart>, outcome: &Intake) {
    if let Some(event) = &admit.event {
        let (owner, sent) = (&admit.owner, delivery.trace);
        let admitted = AdmittedEvent { owner, session: &admit.session, id: &event.id, sent, outcome };
        ingress::end_admit_span(&worker.venue, span, admitted);
    }
}

/// Answers a duplicate of a task whose job has ended.
async fn answer_duplicate(worker: &Worker, delivery: &Delivery, admit: &Admit) {
    let job = admit.event.as_ref().and_then(|event| event.open.as_ref()).map(|open| &open.job);
    if let (Some(job), Some(subject)) = (job, parse_reply_to(&delivery.body)) {
        ingress::repeat_answer(&worker.venue, &admit.owner, job, subject).await;
    }
}

/// Answers an event that the agent or its mailbox refuses. A terminated agent's refusal is a job that can be read; an
/// unknown owner gets no keys in the store. After a refusal for load or quota the client may retry under the same id,
/// so no job is made.
async fn answer_refusal(worker: &Worker, delivery: &Delivery, admit: &Admit, refusal: &Refusal) {
    let code = if matches!(refusal, Refusal::Quota(_)) { ErrorCode::QuotaExceeded } else { ErrorCode::Refused };
    let result = JobResult::unsuccessful(JobStatus::Rejected, code, format!("agent `{}`: {refusal}", delivery.agent));
    let event = admit.event.as_ref();
    let make = match refusal {
        Refusal::Terminated => true,
        Refusal::UnknownAgent | Refusal::MailboxFull { .. } | Refusal::Busy | Refusal::Quota(_) => false,
    };
    if let Some(open) = event.and_then(|event| event.open.as_ref())
        && let Err(error) = reject(worker, admit, open, &result, make).await
    {
        tracing::warn!(%error, "refusal not recorded yet");
        delivery.settle.nak(REDELIVERY_DELAY).await;
        return;
    }
    refuse(worker, delivery, Box::new(result)).await;
}

/// Ends the job of a refused task; `make`: a job that doesn't exist is made in that status. A job that a turn started
/// exists before its task arrives, and the session that waits for it gets the result.
async fn reject(
    worker: &Worker,
    admit: &Admit,
    open: &NewJob,
    result: &JobResult,
    make: bool,
) -> Result<(), StoreError> {
    let finish = JobFinish {
        job: open.job.clone(),
        status: result.status,
        result: Bytes::from(serde_json::to_vec(result).expect("results serialise")),
    };
    let venue = &worker.venue;
    let head: Option<JobHead> = decode::read_stored(&open.head).ok();
    let key = &worker.venue.key;
    let told =
        head.filter(|head| head.parent.is_some()).map(|head| outbox::completions(key, &admit.owner, &head, result));
    let told = told.unwrap_or_default();
    let (open, entries) = (make.then_some(open), venue.lasting_entries(&told, &[]));
    let finished = venue.store.finish(venue.now(), &admit.owner, &admit.session, &finish, open, &entries).await?;
    if finished == FinishOutcome::Done {
        venue.send(&admit.owner, told).await;
    }
    Ok(())
}
