//! What a turn's model calls have used goes into its commit, once: with the reply it is recorded, and a
//! successor that goes on from there commits the same.

use super::decide::Decision;
use super::{Action, Observed, Setting, Turn};
use crate::ids::JobId;
use crate::spend::{Spent, Tally, Today};
use crate::time::Millis;

impl Turn {
    /// A call was made for it, or broken off.
    pub fn pay(&mut self, spent: Spent) {
        self.spent = self.spent.plus(spent);
    }

    /// The next step; see [`super`].
    pub fn step(&mut self, observed: Observed, now: Millis) -> Action {
        match self.observe(observed, now) {
            Action::Commit(decision) => Action::Commit(Box::new(decision.paid(&self.setting, self.spent))),
            other => other,
        }
    }
}

impl Decision {
    /// The same with what its task and its session have used so far, this turn included.
    #[must_use]
    pub(super) fn paid(mut self, setting: &Setting, spent: Spent) -> Self {
        if spent != Spent::default() {
            let before = setting.state.today.as_ref();
            let today = Today::after(before, &setting.date, self.record.end, &self.record.model, spent);
            self.state.today = Some(today.clone());
            self.today = Some(today);
        }
        if let Some(job) = self.record.job.clone() {
            self.tally = self.tally(setting, &job, spent).map(|tally| (job, tally));
        }
        self
    }

    fn tally(&mut self, setting: &Setting, job: &JobId, spent: Spent) -> Option<Tally> {
        let begun = setting.state.task.as_ref().filter(|progress| progress.job == *job);
        // What an older version has begun has used nobody knows how much.
        let before = begun.map_or(Some(Tally::default()), |progress| progress.tally)?;
        let started = before.started || self.record.calls.iter().any(|call| call.went_out);
        let tally = Tally { spent: before.spent.plus(spent), started };
        if let Some(progress) = self.state.task.as_mut().filter(|progress| progress.job == *job) {
            progress.tally = Some(tally);
        }
        Some(tally)
    }
}
