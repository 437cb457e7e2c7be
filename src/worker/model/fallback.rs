//! Stage 5 of an agent with several models: if one can't be called, the next one is.
//!
//! Each turn begins with the first model. Nothing about the others is stored between turns, so the worker that
//! continues after a crash begins with the first again: no reply had been received.

use super::origin;
use super::spend::{self, ModelAsked};
use crate::domain::chat::{ModelRequest, ModelSettings};
use crate::domain::rate::Wait;
use crate::domain::turn::fallback::{Miss, MissedModel, ModelCalls, conclude};
use crate::domain::turn::{ModelFailure, Observed, Turn};
use crate::worker::Worker;
use crate::worker::lease::{Leased, Stop, keeper};
use std::time::Duration;

/// Result of a turn's model call.
pub(crate) enum Asked {
    /// The call was made or refused; with the models that were called and what they have used.
    Made(Box<Observed>, ModelCalls),
    /// The call must wait; with what was used nonetheless.
    Wait(Wait, ModelCalls),
}

/// Models that gave no reply so far.
#[derive(Default)]
struct Round {
    calls: ModelCalls,
    missed: Vec<MissedModel>,
    /// Shortest pause after which one of them may answer.
    pause: Option<Duration>,
}

/// Calls the models of an agent, in order, until one replies or a failure rules out the others.
pub(crate) async fn ask(
    worker: &Worker,
    leased: &mut Leased,
    turn: &Turn,
    mut request: ModelRequest,
) -> Result<Asked, Stop> {
    let mut counted = match origin::check(worker, turn.setting()).await? {
        Ok(counted) => counted,
        Err(last) => {
            let short = Observed::Answered(Err(ModelFailure::Short(last)));
            return Ok(Asked::Made(Box::new(short), ModelCalls::default()));
        }
    };
    let models: Vec<_> = request.model.in_order().map(ModelSettings::alone).collect();
    let mut round = Round::default();
    for model in models {
        let id = model.id();
        if let Some(missed) = round.missed.last() {
            tracing::info!(session = %leased.lease.session, ?missed, next = ?id, "the next model is asked");
            // The model before may have taken longer than the lease.
            keeper::assure(worker, leased).await?;
        }
        request.model = model;
        let miss = match spend::ask(worker, leased, turn, &mut request, &mut counted).await? {
            ModelAsked::Held(wait) => return Ok(Asked::Wait(wait, round.calls)),
            ModelAsked::NotAsked(miss) => miss,
            ModelAsked::Made(observed, spent) => {
                round.calls.pay(&id, spent);
                match *observed {
                    Observed::Answered(Err(failure)) if failure.leads_on() => Miss::Failed(failure),
                    observed => return Ok(round.end(&id, observed)),
                }
            }
        };
        round.pause = round.pause.into_iter().chain(leased.pause.take()).min();
        round.missed.push(MissedModel { model: id, miss });
    }
    leased.pause = round.pause;
    Ok(round.conclude())
}

impl Round {
    /// Ends the round with what this model returned. If several models were called, the turn's record lists those that
    /// failed.
    fn end(mut self, model: &str, observed: Observed) -> Asked {
        if let Observed::Answered(Ok(_)) = &observed {
            self.calls.answered = Some(model.to_owned());
        }
        self.calls.failed = self.missed.iter().map(MissedModel::to_record).collect();
        Asked::Made(Box::new(observed), self.calls)
    }

    /// Ends the round when no model is left.
    fn conclude(mut self) -> Asked {
        if self.missed.len() > 1 {
            self.calls.failed = self.missed.iter().map(MissedModel::to_record).collect();
        }
        match conclude(&self.missed) {
            Some(Miss::Later(wait)) => Asked::Wait(wait, self.calls),
            Some(Miss::Failed(failure)) => Asked::Made(Box::new(Observed::Answered(Err(failure))), self.calls),
            None => {
                let reason = "the agent has no model; this is a bug of the venue".to_owned();
                Asked::Made(Box::new(Observed::Answered(Err(ModelFailure::Permanent { reason }))), self.calls)
            }
        }
    }
}
