//! Results of jobs that sessions wait for.

use super::admit::admit_and_run;
use super::refuse::{body_of, forged, id_of_place, refusal, refuse, unsealed};
use super::seats::Seat;
use super::{RETRY, stray};
use crate::bus::Delivery;
use crate::domain::decode;
use crate::domain::event::ResultBody;
use crate::domain::external::WorkerAnswer;
use crate::domain::job::ErrorCode;
use crate::domain::seal::{self, Sender};
use crate::ingress;
use crate::store::StoreError;
use crate::venue::external::{self, AnswerOutcome};
use crate::venue::jobs;
use crate::worker::Worker;

/// A verified result, by its sender.
enum Told {
    /// The venue says how the job ended.
    Venue(ResultBody),
    /// The external worker of the job answers.
    Worker(WorkerAnswer),
}

/// Handles the result of a job, sent by the venue or by the job's external worker.
pub(super) async fn result(worker: &Worker, delivery: &Delivery, seat: Option<&Seat>) {
    let told = unsealed(worker, delivery, "result").and_then(|(body, sender)| match sender {
        Sender::Venue => body_of(decode::typed::<ResultBody>(body), "result").map(Told::Venue),
        Sender::Anybody => match WorkerAnswer::parse(&body) {
            Some(answer) if seal::token_fits(&worker.venue.key, &delivery.owner, &answer.job, &answer.token) => {
                Ok(Told::Worker(answer))
            }
            Some(answer) => {
                let text = format!("FORGED: the token is not that of job `{}` of `{}`", answer.job, delivery.owner);
                Err(refusal(ErrorCode::Forged, text))
            }
            None => Err(forged("result")),
        },
        Sender::Forger => Err(forged("result")),
    });
    match told {
        Ok(Told::Venue(body)) => match restore_output(worker, delivery, body).await {
            Ok(body) => take_result(worker, delivery, body, seat).await,
            Err(error) => {
                tracing::warn!(%error, "the output of a job that an agent waits for can't be read yet");
                delivery.settle.nak(RETRY).await;
            }
        },
        Ok(Told::Worker(answer)) => take_answer(worker, delivery, answer).await,
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
async fn take_result(worker: &Worker, delivery: &Delivery, body: ResultBody, seat: Option<&Seat>) {
    let Delivery { owner, agent, published, sequence, .. } = delivery;
    let admit = ingress::result_admission(&worker.venue.key, (owner, agent), body, *published, *sequence);
    admit_and_run(worker, delivery, admit, "result", seat).await;
}

/// Records the answer of an external worker to its job.
async fn take_answer(worker: &Worker, delivery: &Delivery, answer: WorkerAnswer) {
    if let Err(error) = &answer.said
        && error.is_of_status
        && stray::is_left(worker, &*delivery.settle, delivery.published, &error.reason).await
    {
        return;
    }
    let job = answer.job.clone();
    let message = id_of_place(&worker.venue.key, delivery);
    match external::answered(&worker.venue, &delivery.owner, answer, message.as_str()).await {
        Ok(AnswerOutcome::Yes) => {}
        Ok(AnswerOutcome::Ignored(reason)) => {
            tracing::warn!(owner = %delivery.owner, %job, reason, "answer of an external worker ignored");
        }
        Err(error) if error.is_transient() => {
            tracing::warn!(%job, %error, "answer of an external worker not taken yet");
            delivery.settle.nak(RETRY).await;
            return;
        }
        Err(error) => {
            tracing::error!(%job, %error, "answer of an external worker dropped");
            let reason = format!("the answer to job `{job}` can't be taken: {error}");
            return stray::unusable(worker, delivery, reason).await;
        }
    }
    delivery.settle.ack().await;
}
