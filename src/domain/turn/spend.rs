//! Adds what a turn's model calls have used to its commit, once. The use is recorded with the reply, so a successor
//! that continues from there commits the same.

use super::decide::Decision;
use super::fallback::ModelCalls;
use super::{Action, Observation, RecordedReply, Turn, TurnInput};
use crate::chat::ModelSettings;
use crate::ids::JobId;
use crate::spend::{DayUse, ModelUse, Tally};
use crate::time::Millis;

impl Turn {
    /// Adds model calls to the turn.
    pub fn add_model_calls(&mut self, calls: ModelCalls) {
        self.asked.add_later(calls);
    }

    /// Returns the models that were asked so far, with their use.
    pub const fn model_calls(&self) -> &ModelCalls {
        &self.asked
    }

    /// Returns what the session has used today and what the task has used, this turn included; `None` without model
    /// calls. A waiting turn stores both, because it may never be committed.
    pub fn usage_so_far(&self, now: Millis) -> (Option<DayUse>, Option<(JobId, Tally)>) {
        let (turn_input, calls) = (&self.input, &self.asked);
        let tally = turn_input.plan.job().filter(|_| !calls.is_free()).and_then(|job| {
            let before = tally_before(turn_input, job)?;
            Some((job.clone(), Tally { spent: before.spent.plus(calls.total()), ..before }))
        });
        (usage_today(turn_input, calls, now), tally)
    }

    /// Takes an observation and returns the next action; see [`super`].
    pub fn step(&mut self, observed: Observation, now: Millis) -> Action {
        match self.observe(observed, now) {
            Action::Commit(decision) => Action::Commit(Box::new(decision.with_usage(&self.input, &self.asked))),
            other => other,
        }
    }
}

impl RecordedReply {
    /// Returns the current settings of the model that has answered.
    pub(super) fn model<'s>(&self, turn_input: &'s TurnInput) -> &'s ModelSettings {
        let model = &turn_input.config.model;
        let answered = self.asked.as_ref().and_then(|asked| asked.answered.as_ref());
        model.in_order().find(|model| answered == Some(&model.id())).unwrap_or(model)
    }

    /// Returns the model calls for the reply; if they are not recorded, one call of the agent's own model.
    pub(super) fn model_calls(&self, turn_input: &TurnInput) -> ModelCalls {
        match &self.asked {
            Some(asked) => asked.clone(),
            None => ModelCalls::of_model(&turn_input.config.model.id(), self.spent),
        }
    }
}

impl Decision {
    /// Adds the models that were asked, and what the task and the session have used so far, this turn included.
    #[must_use]
    pub(super) fn with_usage(mut self, turn_input: &TurnInput, calls: &ModelCalls) -> Self {
        if let Some(today) = usage_today(turn_input, calls, self.record.end) {
            self.state.today = Some(today.clone());
            self.today = Some(today);
        }
        if let Some(answered) = &calls.answered {
            self.record.model.clone_from(answered);
        }
        self.record.failed_models.clone_from(&calls.failed);
        if let Some(job) = self.record.job.clone() {
            self.tally = self.tally(turn_input, &job, calls).map(|tally| (job, tally));
        }
        self
    }

    fn tally(&mut self, turn_input: &TurnInput, job: &JobId, calls: &ModelCalls) -> Option<Tally> {
        let before = tally_before(turn_input, job)?;
        let started = before.started || self.record.calls.iter().any(|call| call.went_out);
        let is_fallback = calls.answered.as_ref().is_some_and(|answered| *answered != turn_input.config.model.id());
        let fallbacks = before.fallbacks.saturating_add(u32::from(is_fallback));
        let tally = Tally { spent: before.spent.plus(calls.total()), started, fallbacks };
        if let Some(progress) = self.state.task.as_mut().filter(|progress| progress.job == *job) {
            progress.tally = Some(tally);
        }
        Some(tally)
    }
}

/// Returns what the session has used on the day of the turn, these calls included; `None` if nothing was used.
fn usage_today(turn_input: &TurnInput, calls: &ModelCalls, now: Millis) -> Option<DayUse> {
    let mut today = None;
    for (model, spent) in &calls.spent {
        let counted = turn_input.counted.spent.get(model).copied().unwrap_or_default();
        let fresh = spent.minus(counted);
        if fresh != ModelUse::default() {
            let before = today.as_ref().or(turn_input.state.today.as_ref());
            today = Some(DayUse::after_turn(before, &turn_input.date, now, model, fresh));
        }
    }
    let counted = || turn_input.state.today.clone().filter(|today| today.date == turn_input.date);
    today.or_else(|| counted().filter(|_| !turn_input.counted.is_free()))
}

/// Returns what a task has used before the turn; `None` if an older version has begun it, so that its use is unknown.
fn tally_before(turn_input: &TurnInput, job: &JobId) -> Option<Tally> {
    let begun = turn_input.state.task.as_ref().filter(|progress| progress.job == *job);
    begun.map_or(Some(Tally::default()), |progress| progress.tally)
}
