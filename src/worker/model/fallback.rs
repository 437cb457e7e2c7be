//! Stage 5 of an agent with several models: if one can't be called, the next one is.
//!
//! Each turn begins with the first model. Nothing about the others is stored between turns, so the worker that
//! continues after a crash begins with the first again: no reply had been received.

use super::origin::{self, OriginCheckError};
use super::spend::{self, ModelCallResult};
use crate::domain::chat::{ModelRequest, ModelSettings};
use crate::domain::rate::RateWait;
use crate::domain::turn::fallback::{ModelCalls, ModelWithoutReply, NoReplyReason, join_failures};
use crate::domain::turn::{ModelFailure, Observation, Turn};
use crate::worker::lease::{LeasedSession, RunStop, keeper};
use crate::worker::state::Worker;
use std::time::Duration;

/// Result of a turn's model call.
pub(crate) enum FallbackResult {
    /// The call was made or refused; with the models that were called and what they have used.
    Finished(Box<Observation>, ModelCalls),
    /// The call must wait; with what was used nonetheless.
    Wait(RateWait, ModelCalls),
}

/// Models that gave no reply so far.
#[derive(Default)]
struct FallbackRound {
    calls: ModelCalls,
    missed_models: Vec<ModelWithoutReply>,
    /// Shortest pause after which one of them may answer.
    pause: Option<Duration>,
}

/// Calls the models of an agent, in order, until one replies or a failure rules out the others.
pub(crate) async fn call_models(
    worker: &Worker,
    leased: &mut LeasedSession,
    turn: &Turn,
    mut request: ModelRequest,
) -> Result<FallbackResult, RunStop> {
    let mut counted = match origin::check(worker, turn.input()).await {
        Ok(counted) => counted,
        Err(OriginCheckError::Store(error)) => return Err(error.into()),
        Err(OriginCheckError::Exhausted(last)) => {
            let short = Observation::Answered(Err(ModelFailure::LimitReached(last)));
            return Ok(FallbackResult::Finished(Box::new(short), ModelCalls::default()));
        }
    };
    let models: Vec<_> = request.model.in_order().map(ModelSettings::without_fallback).collect();
    let mut round = FallbackRound::default();
    for model in models {
        let id = model.id();
        if let Some(missed) = round.missed_models.last() {
            tracing::info!(session = %leased.lease.session, ?missed, next = ?id, "the next model is asked");
            // The model before may have taken longer than the lease.
            keeper::ensure_lease(worker, leased).await?;
        }
        request.model = model;
        let miss = match spend::call_model(worker, leased, turn, &mut request, &mut counted).await? {
            ModelCallResult::AwaitsBudget(wait) => return Ok(FallbackResult::Wait(wait, round.calls)),
            ModelCallResult::OverLimit(miss) => miss,
            ModelCallResult::Finished(observed, spent) => {
                round.calls.add_call(&id, spent);
                match *observed {
                    Observation::Answered(Err(failure)) if failure.leads_to_next() => NoReplyReason::Failed(failure),
                    observed => return Ok(round.end(&id, observed)),
                }
            }
        };
        round.pause = round.pause.into_iter().chain(leased.pause.take()).min();
        round.missed_models.push(ModelWithoutReply { model: id, miss });
    }
    leased.pause = round.pause;
    Ok(round.conclude())
}

impl FallbackRound {
    /// Ends the round with what this model returned. If several models were called, the turn's record lists those that
    /// failed.
    fn end(mut self, model: &str, observed: Observation) -> FallbackResult {
        if let Observation::Answered(Ok(_)) = &observed {
            self.calls.answered = Some(model.to_owned());
        }
        self.calls.failed = self.missed_models.iter().map(ModelWithoutReply::to_record).collect();
        FallbackResult::Finished(Box::new(observed), self.calls)
    }

    /// Ends the round when no model is left.
    fn conclude(mut self) -> FallbackResult {
        if self.missed_models.len() > 1 {
            self.calls.failed = self.missed_models.iter().map(ModelWithoutReply::to_record).collect();
        }
        match join_failures(&self.missed_models) {
            Some(NoReplyReason::RetryLater(wait)) => FallbackResult::Wait(wait, self.calls),
            Some(NoReplyReason::Failed(failure)) => {
                FallbackResult::Finished(Box::new(Observation::Answered(Err(failure))), self.calls)
            }
            None => {
                let reason = "the agent has no model; this is a bug of the venue".to_owned();
                FallbackResult::Finished(
                    Box::new(Observation::Answered(Err(ModelFailure::Permanent { reason }))),
                    self.calls,
                )
            }
        }
    }
}
