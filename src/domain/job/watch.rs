//! The watch of an external worker's job: its deadlines and the signs of its worker.

use crate::ids::{JobId, QueueName};
use crate::limits::OUTBOUND_DEADLINE;
use crate::limits::OUTBOUND_DEADLINE_MAX;
use crate::limits::OUTBOUND_GRACE;
use crate::limits::OUTBOUND_HEARTBEAT;
use crate::limits::OUTBOUND_IGNORED;
use crate::limits::OUTBOUND_ORPHAN;
use crate::limits::OUTBOUND_START;
use crate::time::Millis;
use crate::unknown_fields::UnknownFields;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// Times that a job of an external worker may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExternalTimes {
    /// Time until its worker begins.
    pub start: Duration,
    /// Time between two signs of its worker.
    pub heartbeat: Duration,
    /// Time from publication to the end.
    pub deadline: Duration,
}

impl ExternalTimes {
    /// Returns the times of a call, given in seconds, with defaults for absent ones. None is longer than the deadline.
    pub fn with_defaults(start: Option<u64>, heartbeat: Option<u64>, deadline: Option<u64>) -> Self {
        let deadline = deadline.map_or(OUTBOUND_DEADLINE, Duration::from_secs).min(OUTBOUND_DEADLINE_MAX);
        let within = |given: Option<u64>, default| given.map_or(default, Duration::from_secs).min(deadline);
        Self { start: within(start, OUTBOUND_START), heartbeat: within(heartbeat, OUTBOUND_HEARTBEAT), deadline }
    }
}

/// Time limit that has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PassedLimit {
    Start,
    Heartbeat,
    Deadline,
}

/// Record of an external worker's job while its result is awaited, and of late answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalWatch {
    /// Id of the job.
    pub job: JobId,
    /// Queue of its workers.
    pub queue: QueueName,
    /// Time of publication.
    pub created: Millis,
    /// Deadline for the first sign of the worker.
    pub start_by: Millis,
    /// Seconds of the longest silence of its worker.
    pub heartbeat_seconds: u64,
    /// Deadline of the job.
    pub deadline: Millis,
    /// Time of its worker's first sign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Millis>,
    /// Time of its worker's last sign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<Millis>,
    /// Time of the next look at it, by which the index is sorted.
    pub due: Millis,
    /// Time at which a limit was first found to have passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdue: Option<Millis>,
    /// JSON Schema that the output must fit; absent = any output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Answers that had no effect, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<IgnoredAnswer>,
    /// Fields that a newer build wrote.
    #[serde(flatten)]
    pub kept: UnknownFields,
}

/// An answer of a worker that had no effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IgnoredAnswer {
    /// Time at which the answer was processed, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub at: Millis,
    /// Id of its message: a second delivery is not counted as another answer.
    pub message: String,
    /// Reason why it had no effect.
    pub reason: String,
}

/// Next step for a watch that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchStep {
    /// The watch is due again at its new time.
    Later(Box<ExternalWatch>),
    /// The job has failed, for this reason.
    Over(String),
}

impl ExternalWatch {
    /// Makes the watch of a job that is published at `now`; the request behind it ends at `ends`.
    pub fn new(job: JobId, queue: QueueName, now: Millis, times: ExternalTimes, ends: Option<Millis>) -> Self {
        let deadline = now.plus(times.deadline);
        let deadline = ends.map_or(deadline, |ends| ends.min(deadline));
        let watch = Self {
            job,
            queue,
            created: now,
            start_by: now.plus(times.start),
            heartbeat_seconds: times.heartbeat.as_secs(),
            deadline,
            started: None,
            heartbeat: None,
            due: now,
            overdue: None,
            output: None,
            ignored: Vec::new(),
            kept: UnknownFields::default(),
        };
        let (due, _) = watch.first_limit();
        Self { due, ..watch }
    }

    /// Returns the time limit that passes first, and which one it is.
    fn first_limit(&self) -> (Millis, PassedLimit) {
        let (at, which) = match self.heartbeat {
            None => (self.start_by, PassedLimit::Start),
            Some(last) => (last.plus(Duration::from_secs(self.heartbeat_seconds)), PassedLimit::Heartbeat),
        };
        if self.deadline <= at { (self.deadline, PassedLimit::Deadline) } else { (at, which) }
    }

    /// Notes a sign of the worker at `now`.
    #[must_use]
    pub fn note_sign(self, now: Millis) -> Self {
        let started = self.started.or(Some(now));
        let watch = Self { started, heartbeat: Some(now), overdue: None, ..self };
        // A due time that is too early costs one look; a later one would delay the end.
        let due = watch.due.min(watch.first_limit().0);
        Self { due, ..watch }
    }

    /// Returns the next step at `now`.
    pub fn next_step(self, now: Millis) -> WatchStep {
        let (at, which) = self.first_limit();
        if now < at {
            return WatchStep::Later(Box::new(Self { due: at, overdue: None, ..self }));
        }
        let since = self.overdue.unwrap_or(now);
        let end = since.plus(OUTBOUND_GRACE);
        if now < end {
            return WatchStep::Later(Box::new(Self { due: end, overdue: Some(since), ..self }));
        }
        WatchStep::Over(self.failure_text(which))
    }

    /// Returns the watch of a job that isn't opened yet; `None` if it is too old to be opened.
    pub fn await_job(self, now: Millis) -> Option<Self> {
        let end = self.created.plus(OUTBOUND_ORPHAN);
        (now < end).then_some(Self { due: end, ..self })
    }

    fn failure_text(&self, which: PassedLimit) -> String {
        let queue = &self.queue;
        let seconds = |from: Millis, to: Millis| to.elapsed_since(from).as_secs();
        match which {
            PassedLimit::Start => format!(
                "no worker of queue `{queue}` began within {} s (`startTimeout`)",
                seconds(self.created, self.start_by)
            ),
            PassedLimit::Heartbeat => format!(
                "the worker of queue `{queue}` gave no sign for {} s (`heartbeatTimeout`)",
                self.heartbeat_seconds
            ),
            PassedLimit::Deadline => format!(
                "the worker of queue `{queue}` did not end within {} s (`deadline`)",
                seconds(self.created, self.deadline)
            ),
        }
    }

    /// Adds an answer that had no effect, unless it was delivered before.
    #[must_use]
    pub fn add_ignored(mut self, ignored: IgnoredAnswer) -> Self {
        if self.ignored.iter().all(|known| known.message != ignored.message) {
            self.ignored.push(ignored);
            let over = self.ignored.len().saturating_sub(OUTBOUND_IGNORED);
            self.ignored.drain(..over);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Millis = Millis(1_000_000);

    fn job() -> JobId {
        JobId::new(&"0f".repeat(16)).unwrap()
    }

    fn watch(start: u64, heartbeat: u64, deadline: u64) -> ExternalWatch {
        let times = ExternalTimes::with_defaults(Some(start), Some(heartbeat), Some(deadline));
        ExternalWatch::new(job(), "ocr".parse().unwrap(), T, times, None)
    }

    fn at(seconds: u64) -> Millis {
        T.plus(Duration::from_secs(seconds))
    }

    /// Looks as a sweep would, each time when its place has come; when it is given up, and why.
    fn given_up(mut watch: ExternalWatch) -> (u64, String) {
        for _ in 0..10 {
            let now = watch.due;
            match watch.next_step(now) {
                WatchStep::Later(later) => {
                    assert!(later.due > now, "it comes to an end");
                    watch = *later;
                }
                WatchStep::Over(why) => return (now.elapsed_since(T).as_secs(), why),
            }
        }
        panic!("never given up: {watch:?}");
    }

    #[test]
    fn a_job_is_given_up_after_its_first_deadline_and_the_grace() {
        let grace = OUTBOUND_GRACE.as_secs();
        let begun = |watch: ExternalWatch, seconds: u64| watch.note_sign(at(seconds));
        for (watch, expected, why) in [
            (watch(10, 5, 100), 10, "no worker of queue `ocr` began within 10 s (`startTimeout`)"),
            (watch(200, 5, 100), 100, "did not end within 100 s (`deadline`)"),
            (begun(watch(10, 5, 100), 3), 8, "gave no sign for 5 s (`heartbeatTimeout`)"),
            (begun(begun(watch(10, 5, 100), 3), 7), 12, "gave no sign for 5 s"),
            (begun(watch(10, 500, 100), 3), 100, "did not end within 100 s"),
            (begun(watch(10, 5, 100), 97), 100, "did not end within 100 s"),
            (begun(watch(3600, 5, 7200), 0), 5, "gave no sign for 5 s"),
        ] {
            let (when, said) = given_up(watch);
            assert_eq!(when, expected + grace, "{said}");
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn a_sign_of_life_during_the_grace_counts() {
        let WatchStep::Later(late) = watch(10, 5, 100).next_step(at(10)) else { panic!("it has a grace") };
        assert_eq!((late.overdue, late.due), (Some(at(10)), at(10).plus(OUTBOUND_GRACE)));
        let alive = late.note_sign(at(12));
        assert_eq!((alive.overdue, alive.started, alive.heartbeat), (None, Some(at(12)), Some(at(12))));
        assert_eq!(alive.clone().next_step(at(15)), WatchStep::Later(Box::new(ExternalWatch { due: at(17), ..alive })));
    }

    #[test]
    fn watch_times_have_defaults_and_end_by_the_deadline() {
        let times = |start, heartbeat, deadline| {
            let times = ExternalTimes::with_defaults(start, heartbeat, deadline);
            (times.start.as_secs(), times.heartbeat.as_secs(), times.deadline.as_secs())
        };
        assert_eq!(times(None, None, None), (3600, 600, 86_400));
        assert_eq!(times(Some(7200), Some(1), Some(90)), (90, 1, 90));
        assert_eq!(times(None, None, Some(u64::MAX)), (3600, 600, 30 * 86_400));
        let of_request = ExternalWatch::new(
            job(),
            "q".parse().unwrap(),
            T,
            ExternalTimes::with_defaults(None, None, None),
            Some(at(60)),
        );
        assert_eq!((of_request.deadline, of_request.due), (at(60), at(60)), "no longer than the request behind it");
    }

    #[test]
    fn a_watch_without_a_job_is_kept_for_an_hour() {
        let kept = watch(1, 1, 1).await_job(at(5)).unwrap();
        assert_eq!(kept.due, T.plus(OUTBOUND_ORPHAN));
        assert_eq!(kept.clone().await_job(kept.due), None);
    }

    #[test]
    fn the_newest_ignored_answers_are_kept_each_once() {
        let ignored = |n: usize| IgnoredAnswer { at: T, message: n.to_string(), reason: "r".into() };
        let watch = (0..15).chain(13..16).fold(watch(1, 1, 1), |watch, n| watch.add_ignored(ignored(n)));
        let kept: Vec<_> = watch.ignored.iter().map(|ignored| ignored.message.as_str()).collect();
        assert_eq!(kept, ["6", "7", "8", "9", "10", "11", "12", "13", "14", "15"]);
    }
}
