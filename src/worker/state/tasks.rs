//! Tasks that are served here, and the cancellation signals that came for them. A signal only makes the worker look:
//! anybody may have sent it, and the store says whether the task is cancelled.

use crate::bus::Signal;
use crate::domain::ids::{JobId, Owner};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Tasks served here, which a cancellation must stop.
#[derive(Debug, Default)]
pub(crate) struct TaskRegistry {
    tasks: Mutex<HashMap<JobId, RunningTask>>,
    check_due: Notify,
}

#[derive(Debug)]
struct RunningTask {
    owner: Owner,
    token: CancellationToken,
    /// A signal says that the task is cancelled, and the store has not been asked since.
    has_signal: bool,
}

/// Registration of a task that is served here.
pub(crate) struct TaskRegistration<'c> {
    registry: &'c TaskRegistry,
    job: JobId,
}

impl Drop for TaskRegistration<'_> {
    /// Also runs when the turn is dropped before its end.
    fn drop(&mut self) {
        self.registry.tasks.lock().remove(&self.job);
    }
}

impl TaskRegistry {
    /// Registers a task until the returned value is dropped; `token` is cancelled when the job is.
    pub(crate) fn serve(&self, owner: &Owner, job: &JobId, token: &CancellationToken) -> TaskRegistration<'_> {
        let task = RunningTask { owner: owner.clone(), token: token.clone(), has_signal: false };
        self.tasks.lock().insert(job.clone(), task);
        TaskRegistration { registry: self, job: job.clone() }
    }

    /// Marks the task that a signal names, if the signal came on its owner's subject.
    pub(crate) fn on_signal(&self, signal: &Signal) {
        let named = std::str::from_utf8(&signal.body).ok().and_then(|text| JobId::new(text).ok());
        let mut tasks = self.tasks.lock();
        if let Some(task) = named.and_then(|job| tasks.get_mut(&job)).filter(|task| task.owner == signal.owner) {
            task.has_signal = true;
            self.check_due.notify_one();
        }
    }

    /// Waits until a task is signalled.
    pub(crate) async fn wait_for_signal(&self) {
        self.check_due.notified().await;
    }

    /// Returns the tasks signalled since the last call, by owner.
    pub(crate) fn take_signalled(&self) -> BTreeMap<Owner, Vec<(JobId, CancellationToken)>> {
        let mut found: BTreeMap<Owner, Vec<_>> = BTreeMap::new();
        for (job, task) in self.tasks.lock().iter_mut().filter(|(_, task)| task.has_signal) {
            task.has_signal = false;
            found.entry(task.owner.clone()).or_default().push((job.clone(), task.token.clone()));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn a_signal_on_its_owners_subject_marks_a_local_task() {
        let (control, token) = (TaskRegistry::default(), CancellationToken::new());
        let job = JobId::new(&"0f".repeat(16)).unwrap();
        let (owner, other): (Owner, Owner) = ("t/u".parse().unwrap(), "t/v".parse().unwrap());
        let said = |owner: &Owner, body: &str| Signal { owner: owner.clone(), body: Bytes::from(body.to_owned()) };
        control.on_signal(&said(&owner, job.as_str()));
        assert!(control.take_signalled().is_empty(), "it isn't served yet");
        let served = control.serve(&owner, &job, &token);
        for signal in [said(&other, job.as_str()), said(&owner, "x"), said(&owner, &"1f".repeat(16))] {
            control.on_signal(&signal);
            assert!(control.take_signalled().is_empty(), "{signal:?}");
        }
        for _ in 0..1000 {
            control.on_signal(&said(&owner, job.as_str()));
        }
        assert_eq!(control.take_signalled()[&owner].len(), 1, "one look for all");
        assert!(control.take_signalled().is_empty() && !token.is_cancelled());
        control.on_signal(&said(&owner, job.as_str()));
        drop(served);
        assert!(control.take_signalled().is_empty(), "it isn't served any more");
    }
}
