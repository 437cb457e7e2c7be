//! Stage 5: the model call, with its live text, its cancellation and its failures.

use crate::domain::agent::Retry;
use crate::domain::charge::CallStage;
use crate::domain::chat::ModelRequest;
use crate::domain::ids::{JobId, Owner};
use crate::domain::turn::{ModelFailure, Observation};
use crate::model::meter::CallMeter;
use crate::model::{LiveText, ModelError};
use crate::venue::secrets::{OpenedSecret, SecretError};
use crate::worker::lease::waits::retry_pause;
use crate::worker::lease::{LeasedSession, RunStop, keeper};
use crate::worker::live_text;
use crate::worker::state::Worker;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedReceiver;

/// Calls the model once; the meter then says how far the call got. The call has a span in the turn's trace.
pub(crate) async fn model(
    worker: &Worker,
    leased: &mut LeasedSession,
    job: Option<&JobId>,
    request: &ModelRequest,
    retry: &Retry,
    meter: &Arc<CallMeter>,
) -> Result<Observation, RunStop> {
    let mut span = leased.spans.as_ref().map(|spans| spans.model(request));
    let observed = Box::pin(ask(worker, leased, job, request, retry, meter)).await?;
    if let (Some(span), Observation::Answered(answer)) = (&mut span, &observed) {
        match answer {
            Ok(reply) => span.finish_reply(reply),
            Err(ModelFailure::Transient { .. }) => span.set_error(Some("unavailable")),
            Err(_) => span.set_error(Some("refused")),
        }
    }
    Ok(observed)
}

async fn ask(
    worker: &Worker,
    leased: &mut LeasedSession,
    job: Option<&JobId>,
    request: &ModelRequest,
    retry: &Retry,
    meter: &Arc<CallMeter>,
) -> Result<Observation, RunStop> {
    let secrets = match open_secrets(worker, &leased.lease.owner, request).await {
        Ok(secrets) => secrets,
        Err(ModelSecretError { error: SecretError::Store(error), .. }) => return Err(RunStop::Store(error)),
        Err(error) => {
            worker.venue.metrics.count_model_call("refused");
            return Ok(Observation::Answered(Err(ModelFailure::Unusable { reason: error.to_string() })));
        }
    };
    // The reads and reservations before may have taken longer than the lease.
    keeper::ensure_lease(worker, leased).await?;
    let (pieces, texts) = LiveText::with_meter(Arc::clone(meter));
    let call = async {
        meter.mark(CallStage::Asked);
        let began = worker.venue.clock.steady();
        let answer = worker.model.complete(request, &secrets, &pieces).await;
        let took = worker.venue.clock.steady().saturating_sub(began);
        worker.venue.metrics.models.seconds.observe(took.as_secs_f64());
        drop(pieces);
        answer
    };
    let (lost, cancelled) = (leased.stops.lost.clone(), leased.cancelled.clone());
    let answered = tokio::select! {
        biased;
        () = lost.cancelled() => return Err(RunStop::Lost),
        () = cancelled.cancelled() => return Ok(Observation::Cancelled(Vec::new())),
        (answer, ()) = async { tokio::join!(call, forward(worker, job, texts)) } => answer,
    };
    let error = match answered {
        Ok(reply) => {
            worker.venue.metrics.count_model_call("ok");
            return Ok(Observation::Answered(Ok(reply)));
        }
        Err(error) => error,
    };
    let failure = match error {
        ModelError::Unusable { .. } => {
            worker.venue.metrics.count_model_call("refused");
            ModelFailure::Unusable { reason: error.to_string() }
        }
        ModelError::Permanent { .. } => {
            worker.venue.metrics.count_model_call("refused");
            ModelFailure::Permanent { reason: error.to_string() }
        }
        ModelError::Declined { .. } | ModelError::Unbounded { .. } => {
            worker.venue.metrics.count_model_call("refused");
            ModelFailure::Declined { reason: error.to_string() }
        }
        ModelError::Transient { retry_after, .. } => {
            worker.venue.metrics.count_model_call("unavailable");
            // A provider that asks for a longer pause than all tries may take counts as failed.
            let wait = retry_pause(worker, leased, retry, job, retry_after);
            let until = retry_after.filter(|_| wait.is_none()).map(|asked| worker.venue.now().plus(asked).rfc3339());
            let until = until.map(|until| format!("; it asks not to be called before {until}")).unwrap_or_default();
            if wait.is_some() {
                worker.venue.metrics.progress.count_retry("model");
            }
            leased.pause = wait;
            ModelFailure::Transient { reason: format!("{error}{until}"), exhausted: wait.is_none() }
        }
    };
    Ok(Observation::Answered(Err(failure)))
}

/// A secret of a model that can't be opened.
#[derive(Debug, thiserror::Error)]
#[error("model `{model}` has no {what}: {error}")]
struct ModelSecretError {
    /// Id of the model.
    model: String,
    /// What the secret is for: `key` or `header`.
    what: &'static str,
    /// Why the secret can't be opened.
    error: SecretError,
}

/// Opens each secret that the model's settings name, once.
async fn open_secrets(
    worker: &Worker,
    owner: &Owner,
    request: &ModelRequest,
) -> Result<Vec<OpenedSecret>, ModelSecretError> {
    let mut secrets = Vec::new();
    for name in request.model.secrets() {
        let opened = worker.venue.secrets.open(&*worker.venue.store, owner, name).await;
        secrets.push(opened.map_err(|error| {
            let what = if request.model.key.as_ref() == Some(name) { "key" } else { "header" };
            ModelSecretError { model: request.model.id(), what, error }
        })?);
    }
    Ok(secrets)
}

/// Sends pieces of the reply to watchers of the job; lost pieces are not sent again.
async fn forward(worker: &Worker, job: Option<&JobId>, mut texts: UnboundedReceiver<String>) {
    while let Some(mut text) = texts.recv().await {
        while let Ok(more) = texts.try_recv() {
            text.push_str(&more);
        }
        if let Some(job) = job {
            live_text::text(worker, job, &text).await;
        }
    }
}
