//! Tasks and messages: verifies the sender and prepares the admission.

use super::admit::admit_and_run;
use super::callers;
use super::refuse::{MessageRefusal, derive_event_id, refusal, refuse, refuse_sender};
use super::settle::REDELIVERY_DELAY;
use super::wakes::run_due;
use crate::bus::Delivery;
use crate::domain::ids::{EventId, JobId, SessionKey};
use crate::domain::job::{ErrorCode, Job, JobResult};
use crate::domain::message::InboundKind;
use crate::domain::seal::SubmissionAddress;
use crate::store::{Admit, StoreError};
use crate::venue::ingress::sender::{IdentifiedSubmission, SenderRefusal};
use crate::venue::ingress::{self, Arrival, PreparationError, SubmissionError};
use crate::venue::jobs;
use crate::worker::state::Worker;
use crate::worker::state::slots::AdmissionSlot;
use std::sync::Arc;

/// Why a submission isn't admitted.
enum AdmissionError {
    /// The submission is refused.
    Refused(MessageRefusal),
    /// The store failed; a redelivery may help.
    Store(StoreError),
}

impl From<StoreError> for AdmissionError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Prepares the admission of a submission whose sender is verified.
async fn prepare_admission(worker: &Worker, delivery: &Delivery) -> Result<Admit, AdmissionError> {
    let venue = &worker.venue;
    let parsed = ingress::parse(&delivery.body).and_then(|said| {
        let to = SubmissionAddress { owner: &delivery.owner, agent: &delivery.agent, kind: delivery.kind };
        let (named, sealed) = (delivery.id.as_deref(), said.seal.is_some());
        let place = || derive_event_id(&venue.key, delivery);
        ingress::open_seal(venue, to, named, place, said).map(|(id, said)| (id, said, sealed))
    });
    let (id, said, sealed) = parsed.map_err(|error| AdmissionError::Refused(admission_refusal(&error)))?;
    let sent = match callers::identify_sender(worker, delivery, sealed, said).await {
        Ok(sent) => sent,
        Err(SenderRefusal::Refused(code, text)) => return Err(AdmissionError::Refused(refusal(code, text))),
        Err(SenderRefusal::RetryLater(error)) => return Err(error.into()),
    };
    let IdentifiedSubmission { submission, by, may_override } = sent;
    let arrival = Arrival {
        owner: delivery.owner.clone(),
        agent: delivery.agent.clone(),
        task: delivery.kind == InboundKind::Task,
        id,
        submission,
        received: delivery.published,
        sequence: delivery.sequence,
        by,
        may_override,
        trace: delivery.trace,
    };
    match ingress::prepare_admission(venue, &arrival).await {
        Ok(admit) => Ok(admit),
        Err(PreparationError::Store(error)) => Err(error.into()),
        Err(PreparationError::Submission(error)) => {
            let refused = admission_refusal(&error);
            if sealed && arrival.task {
                end_refused_job(worker, &arrival, &refused.result).await?;
            }
            Err(AdmissionError::Refused(refused))
        }
    }
}

fn admission_refusal(error: &SubmissionError) -> MessageRefusal {
    let may_be_newer = matches!(error, SubmissionError::Malformed(wrong) if wrong.is_unknown_name());
    MessageRefusal { may_be_newer, ..refusal(error.code(), error.to_string()) }
}

/// Ends a job that a turn has started with a refused task, so that the session that waits for it gets the result.
async fn end_refused_job(worker: &Worker, arrival: &Arrival, refused: &JobResult) -> Result<(), StoreError> {
    let job = JobId::derive(&worker.venue.key, &arrival.owner, &arrival.id);
    match jobs::get(&worker.venue, &arrival.owner, &job).await? {
        Some(job) if !job.status.is_terminal() => {
            jobs::end(&worker.venue, &arrival.owner, &job, refused, Vec::new()).await.map(drop)
        }
        _ => Ok(()),
    }
}

pub(super) async fn handle_submission(worker: &Arc<Worker>, delivery: &Delivery, slot: Option<&AdmissionSlot>) {
    match prepare_admission(worker, delivery).await {
        Ok(admit) => {
            let kind = if delivery.kind == InboundKind::Task { "task" } else { "message" };
            admit_and_run(worker, delivery, admit, kind, slot).await;
        }
        Err(AdmissionError::Store(error)) => {
            refuse_sender(worker, delivery, SenderRefusal::RetryLater(error)).await;
        }
        Err(AdmissionError::Refused(refused)) => {
            // Accepted before by a key that is no longer valid: the task goes on.
            match known_session(worker, delivery, &refused.result).await {
                Ok(Some(session)) => run_due(worker, delivery, session, slot, false).await,
                Ok(None) => refuse(worker, delivery, refused).await,
                Err(error) => {
                    tracing::warn!(%error, "submission not looked up yet");
                    delivery.settle.nak(REDELIVERY_DELAY).await;
                }
            }
        }
    }
}

/// Returns the session of a redelivered task that has a job and whose token is refused by now.
async fn known_session(
    worker: &Worker,
    delivery: &Delivery,
    refused: &JobResult,
) -> Result<Option<SessionKey>, StoreError> {
    let by_token = matches!(refused.error_code, Some(ErrorCode::Unauthenticated | ErrorCode::CapDenied));
    if !by_token || delivery.delivered < 2 || delivery.kind != InboundKind::Task {
        return Ok(None);
    }
    let key = &worker.venue.key;
    let named = delivery.id.as_deref().map_or_else(|| Ok(derive_event_id(key, delivery)), EventId::new);
    let Ok(id) = named else { return Ok(None) };
    let job = JobId::derive(key, &delivery.owner, &id);
    let job = jobs::get(&worker.venue, &delivery.owner, &job).await?;
    let of = |job: Job| SessionKey { agent: job.head.agent, session: job.head.session };
    Ok(job.filter(|job| job.head.agent == delivery.agent).map(of))
}
