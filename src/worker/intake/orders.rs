//! Orders about jobs and approvals over the queue: cancel, pause, resume, decide.

use super::callers;
use super::refuse::{forgery_refusal, parse_body, parse_sealed, refusal, refuse, refuse_sender};
use super::settle::REDELIVERY_DELAY;
use crate::bus::Delivery;
use crate::domain::approval::AnswerBody;
use crate::domain::authority::ResourcePath;
use crate::domain::decode;
use crate::domain::ids::JobId;
use crate::domain::job::ErrorCode;
use crate::domain::seal::SealOrigin;
use crate::store::StoreError;
use crate::venue::approvals;
use crate::venue::ingress::sender::SenderRefusal;
use crate::venue::jobs;
use crate::venue::jobs::pausing::{self, PauseOutcome};
use crate::venue::notifications;
use crate::venue::operation::OpError;
use crate::worker::state::Worker;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelBody {
    job: JobId,
    #[serde(default)]
    reason: Option<String>,
    /// Where a refusal goes; it is parsed when a refusal is sent.
    #[serde(default, rename = "replyTo")]
    _reply_to: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HoldBody {
    job: JobId,
}

/// Cancels a job for the venue, or for a caller who may cancel it.
pub(super) async fn cancel(worker: &Worker, delivery: &Delivery) {
    let body = parse_sealed(worker, delivery, "cancel").and_then(|(body, sender)| match sender {
        SealOrigin::Venue | SealOrigin::Anybody => {
            Ok((parse_body(decode::into_type::<CancelBody>(body), "cancel")?, sender))
        }
        SealOrigin::Forger => Err(forgery_refusal("cancel")),
    });
    let (body, sender) = match body {
        Ok(said) => said,
        Err(refused) => return refuse(worker, delivery, refused).await,
    };
    if sender == SealOrigin::Anybody
        && let Err(unknown) = check(worker, delivery, "job/cancel", &body.job).await
    {
        return refuse_sender(worker, delivery, unknown).await;
    }
    match jobs::cancel(&worker.venue, &delivery.owner, &body.job, body.reason.as_deref()).await {
        Ok(_) => delivery.settle.ack().await,
        Err(error) => {
            tracing::warn!(%error, "cancel not applied yet");
            delivery.settle.nak(REDELIVERY_DELAY).await;
        }
    }
}

/// Checks that a caller other than the venue may do this to a job. Returns the caller's name.
async fn check(worker: &Worker, delivery: &Delivery, ability: &str, job: &JobId) -> Result<String, SenderRefusal> {
    let caller = callers::verify_person(worker, delivery).await?;
    caller.authority.permits(ability, ResourcePath::job(job)).map_err(|denied| {
        SenderRefusal::Refused(
            ErrorCode::CapDenied,
            format!("CAP_DENIED: {}", denied.model_text(&format!("`{ability}`"))),
        )
    })?;
    Ok(caller.name)
}

/// Pauses or resumes a job.
pub(super) async fn hold(worker: &Worker, delivery: &Delivery, pause: bool) {
    let (what, ability) = if pause { ("pause", "job/pause") } else { ("resume", "job/resume") };
    let job = match parse_body(decode::from_json::<HoldBody>(&delivery.body), what) {
        Ok(body) => body.job,
        Err(refused) => return refuse(worker, delivery, refused).await,
    };
    let by = match check(worker, delivery, ability, &job).await {
        Ok(by) => by,
        Err(unknown) => return refuse_sender(worker, delivery, unknown).await,
    };
    let (venue, owner) = (&worker.venue, &delivery.owner);
    let held =
        if pause { pausing::pause(venue, owner, &job, &by).await } else { pausing::resume(venue, owner, &job).await };
    match held {
        // Not paused any more: an earlier delivery of this message has done it.
        Ok(PauseOutcome::Done(_)) => delivery.settle.ack().await,
        Ok(PauseOutcome::Refused(_)) if delivery.delivered > 1 => delivery.settle.ack().await,
        Ok(PauseOutcome::Refused(why)) => refuse(worker, delivery, refusal(ErrorCode::Refused, why)).await,
        Ok(PauseOutcome::Unknown) => {
            refuse(worker, delivery, refusal(ErrorCode::Refused, format!("no job `{job}`"))).await;
        }
        Err(error) => {
            tracing::warn!(%error, what, "job not held yet");
            delivery.settle.nak(REDELIVERY_DELAY).await;
        }
    }
}

/// Records a person's answer to an approval.
pub(super) async fn decide(worker: &Worker, delivery: &Delivery) {
    let AnswerBody { approval, digest, answer } = match parse_body(decode::from_json(&delivery.body), "answer") {
        Ok(body) => body,
        Err(refused) => return refuse(worker, delivery, refused).await,
    };
    let caller = match callers::verify_person(worker, delivery).await {
        Ok(caller) => caller,
        Err(unknown) => return refuse_sender(worker, delivery, unknown).await,
    };
    match approvals::decide(&worker.venue, &caller, &approval, answer.into(), digest.as_deref()).await {
        Ok(_) => {
            delivery.settle.ack().await;
            notifications::send_soon(&worker.venue, &caller.owner).await;
        }
        Err(OpError::Store(StoreError::Over(over))) => {
            refuse(worker, delivery, refusal(ErrorCode::QuotaExceeded, over.to_string())).await;
        }
        Err(OpError::Store(error)) => {
            tracing::warn!(%error, "answer not taken yet");
            delivery.settle.nak(REDELIVERY_DELAY).await;
        }
        Err(error) => {
            let code = if matches!(error, OpError::Denied(_)) { ErrorCode::CapDenied } else { ErrorCode::Refused };
            refuse(worker, delivery, refusal(code, error.to_string())).await;
        }
    }
}
