//! Results of jobs that sessions wait for.

use super::admit::admit_and_run;
use super::refuse::{derive_event_id, forgery_refusal, parse_body, parse_sealed, refusal, refuse};
use super::settle::REDELIVERY_DELAY;
use super::stray;
use crate::bus::Delivery;
use crate::domain::decode;
use crate::domain::event::ResultBody;
use crate::domain::external::WorkerAnswer;
use crate::domain::job::ErrorCode;
use crate::domain::seal::{self, SealOrigin};
use crate::store::StoreError;
use crate::venue::external::{self, AnswerOutcome};
use crate::venue::ingress;
use crate::venue::jobs;
use crate::worker::state::Worker;
use crate::worker::state::slots::AdmissionSlot;

/// A verified result, by its sender.
enum JobReport {
    /// The venue says how the job ended.
    JobEnded(ResultBody),
    /// The external worker of the job answers.
    WorkerAnswered(WorkerAnswer),
}

/// Handles the result of a job, sent by the venue or by the job's external worker.
pub(super) async fn handle_result(worker: &Worker, delivery: &Delivery, slot: Option<&AdmissionSlot>) {
    let told = parse_sealed(worker, delivery, "result").and_then(|(body, sender)| match sender {
        SealOrigin::Venue => parse_body(decode::into_type::<ResultBody>(body), "result").map(JobReport::JobEnded),
        SealOrigin::Anybody => match WorkerAnswer::parse(&body) {
            Some(answer) if seal::token_fits(&worker.venue.key, &delivery.owner, &answer.job, &answer.token) => {
                Ok(JobReport::WorkerAnswered(answer))
            }
            Some(answer) => {
                let text = format!("FORGED: the token is not that of job `{}` of `{}`", answer.job, delivery.owner);
                Err(refusal(ErrorCode::Forged, text))
            }
            None => Err(forgery_refusal("result")),
        },
        SealOrigin::Forger => Err(forgery_refusal("result")),
    });
    match told {
        Ok(JobReport::JobEnded(body)) => match restore_output(worker, delivery, body).await {
            Ok(body) => take_result(worker, delivery, body, slot).await,
            Err(error) => {
                tracing::warn!(%error, "the output of a job that an agent waits for can't be read yet");
                delivery.settle.nak(REDELIVERY_DELAY).await;
            }
        },
        Ok(JobReport::WorkerAnswered(answer)) => take_answer(worker, delivery, answer).await,
        Err(refused) => refuse(worker, delivery, refused).await,
    }
}

/// Restores an output that was omitted from the message, from the job's record.
async fn restore_output(worker: &Worker, delivery: &Delivery, body: ResultBody) -> Result<ResultBody, StoreError> {
    if body.output_omitted.is_none() {
        return Ok(body);
    }
    let job = jobs::get(&worker.venue, &delivery.owner, &body.job).await?;
    let result = job.and_then(|job| job.result).unwrap_or(body.result);
    Ok(ResultBody { result, output_omitted: None, ..body })
}

/// Admits a result to the session that waits for it.
async fn take_result(worker: &Worker, delivery: &Delivery, body: ResultBody, slot: Option<&AdmissionSlot>) {
    let Delivery { owner, agent, published, sequence, .. } = delivery;
    let admit = ingress::result_admission(&worker.venue.key, owner, agent, body, *published, *sequence);
    admit_and_run(worker, delivery, admit, "result", slot).await;
}

/// Records the answer of an external worker to its job.
async fn take_answer(worker: &Worker, delivery: &Delivery, answer: WorkerAnswer) {
    if let Err(error) = &answer.report
        && error.is_of_status
        && stray::leave_to_newer(worker, &*delivery.settle, delivery.published, &error.reason).await
    {
        return;
    }
    let job = answer.job.clone();
    let message = derive_event_id(&worker.venue.key, delivery);
    match external::apply_answer(&worker.venue, &delivery.owner, answer, message.as_str()).await {
        Ok(AnswerOutcome::Counted) => {}
        Ok(AnswerOutcome::Ignored(reason)) => {
            tracing::warn!(owner = %delivery.owner, %job, reason, "answer of an external worker ignored");
        }
        Err(error) if error.is_transient() => {
            tracing::warn!(%job, %error, "answer of an external worker not taken yet");
            delivery.settle.nak(REDELIVERY_DELAY).await;
            return;
        }
        Err(error) => {
            tracing::error!(%job, %error, "answer of an external worker dropped");
            let reason = format!("the answer to job `{job}` can't be taken: {error}");
            return stray::keep_unusable(worker, delivery, reason).await;
        }
    }
    delivery.settle.ack().await;
}
