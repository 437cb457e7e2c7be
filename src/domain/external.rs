//! Jobs of external workers: how long each may take, what its worker says, and what is kept of that.

use crate::event::fresh_session;
use crate::ids::{AgentId, JobId, QueueName, SessionId};
use crate::job::{ErrorCode, JobResult, JobStatus};
use crate::limits::{
    OUTBOUND_BYTES, OUTBOUND_DEADLINE, OUTBOUND_DEADLINE_MAX, OUTBOUND_GRACE, OUTBOUND_HEARTBEAT, OUTBOUND_IGNORED,
    OUTBOUND_NOTE_BYTES, OUTBOUND_ORPHAN, OUTBOUND_START,
};
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

/// Catalog path of the operation that makes one.
pub const PUBLISH: &str = "v/ops/queue/publish";

/// What stands before the name of a queue where the name of an agent is expected.
const PREFIX: &str = "queue:";

/// How long a job may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExternalTimes {
    /// Until its worker says that it has begun.
    pub start: Duration,
    /// From one sign of its worker to the next.
    pub heartbeat: Duration,
    /// In all.
    pub deadline: Duration,
}

impl ExternalTimes {
    /// What a call says, in seconds, with the defaults for the rest. None is longer than the deadline.
    pub fn of(start: Option<u64>, heartbeat: Option<u64>, deadline: Option<u64>) -> Self {
        let deadline = deadline.map_or(OUTBOUND_DEADLINE, Duration::from_secs).min(OUTBOUND_DEADLINE_MAX);
        let within = |given: Option<u64>, default| given.map_or(default, Duration::from_secs).min(deadline);
        Self { start: within(start, OUTBOUND_START), heartbeat: within(heartbeat, OUTBOUND_HEARTBEAT), deadline }
    }
}

/// Which time was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Start,
    Heartbeat,
    Deadline,
}

/// What is kept of a job of an external worker while it is waited for, and of its answers after that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Watch {
    /// The job.
    pub job: JobId,
    /// Whose workers.
    pub queue: QueueName,
    /// When it was published.
    pub created: Millis,
    /// Until then its worker must have begun.
    pub start_by: Millis,
    /// Longest silence of its worker, in seconds.
    pub heartbeat_seconds: u64,
    /// Until then it must have ended.
    pub deadline: Millis,
    /// The first sign of its worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Millis>,
    /// The last sign of its worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<Millis>,
    /// When it is looked at: its place in the index.
    pub due: Millis,
    /// Since when its time is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdue: Option<Millis>,
    /// Answers that changed nothing, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<Ignored>,
}

/// An answer that changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ignored {
    /// When it was looked at.
    pub at: Millis,
    /// Its message: a delivery of it again is no other answer.
    pub message: String,
    /// Why.
    pub reason: String,
}

/// What is to be done about a watch whose place has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchLook {
    /// Not yet: it is looked at again at its new place.
    Later(Watch),
    /// The job has failed, for this reason.
    Over(String),
}

impl Watch {
    /// Of a job that is published now. `ends`: the time of the request behind it is over then.
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
            ignored: Vec::new(),
        };
        let (due, _) = watch.limit();
        Self { due, ..watch }
    }

    /// Which time is over first, and when.
    fn limit(&self) -> (Millis, Over) {
        let (at, which) = match self.heartbeat {
            None => (self.start_by, Over::Start),
            Some(last) => (last.plus(Duration::from_secs(self.heartbeat_seconds)), Over::Heartbeat),
        };
        if self.deadline <= at { (self.deadline, Over::Deadline) } else { (at, which) }
    }

    /// The worker has given a sign.
    #[must_use]
    pub fn alive(self, now: Millis) -> Self {
        let started = self.started.or(Some(now));
        let watch = Self { started, heartbeat: Some(now), overdue: None, ..self };
        // A place that comes too early only costs a look; one that comes too late would cost the time.
        let due = watch.due.min(watch.limit().0);
        Self { due, ..watch }
    }

    /// What is to be done about it now.
    pub fn look(self, now: Millis) -> WatchLook {
        let (at, which) = self.limit();
        if now < at {
            return WatchLook::Later(Self { due: at, overdue: None, ..self });
        }
        let since = self.overdue.unwrap_or(now);
        let end = since.plus(OUTBOUND_GRACE);
        if now < end {
            return WatchLook::Later(Self { due: end, overdue: Some(since), ..self });
        }
        WatchLook::Over(self.over(which))
    }

    /// The same when there is no job: it may be about to be opened. `None`: it never will.
    pub fn without_job(self, now: Millis) -> Option<Self> {
        let end = self.created.plus(OUTBOUND_ORPHAN);
        (now < end).then_some(Self { due: end, ..self })
    }

    fn over(&self, which: Over) -> String {
        let queue = &self.queue;
        let seconds = |from: Millis, to: Millis| to.since(from).as_secs();
        match which {
            Over::Start => format!(
                "no worker of queue `{queue}` began within {} s (`startTimeout`)",
                seconds(self.created, self.start_by)
            ),
            Over::Heartbeat => format!(
                "the worker of queue `{queue}` gave no sign for {} s (`heartbeatTimeout`)",
                self.heartbeat_seconds
            ),
            Over::Deadline => format!(
                "the worker of queue `{queue}` did not end within {} s (`deadline`)",
                seconds(self.created, self.deadline)
            ),
        }
    }

    /// The same with one more answer that changed nothing; one that is delivered again is known.
    #[must_use]
    pub fn ignoring(mut self, ignored: Ignored) -> Self {
        if self.ignored.iter().all(|known| known.message != ignored.message) {
            self.ignored.push(ignored);
            let over = self.ignored.len().saturating_sub(OUTBOUND_IGNORED);
            self.ignored.drain(..over);
        }
        self
    }

    /// As a job's record shows it.
    pub fn shown(&self) -> Value {
        let mut shown = json!({
            "queue": self.queue,
            "startBy": self.start_by,
            "heartbeatSeconds": self.heartbeat_seconds,
            "deadline": self.deadline,
        });
        if let (Some(started), Some(heartbeat)) = (self.started, self.heartbeat) {
            shown["started"] = json!(started);
            shown["heartbeat"] = json!(heartbeat);
        }
        if !self.ignored.is_empty() {
            shown["ignored"] = json!(self.ignored);
        }
        shown
    }
}

/// Who serves the jobs of a queue, where the name of an agent is expected.
pub fn server(queue: &QueueName) -> AgentId {
    let fallback = || AgentId::new("queue").expect("a legal id");
    AgentId::new(format!("{PREFIX}{queue}")).unwrap_or_else(|_| fallback())
}

/// Who serves a job, for people and models: the inverse of [`server`], or an agent.
pub fn shown(server: &AgentId) -> String {
    match server.as_str().strip_prefix(PREFIX) {
        Some(queue) => format!("queue {queue}"),
        None => format!("agent {server}"),
    }
}

/// The session of a job of an external worker: nobody's, for none serves it.
pub fn session(job: &JobId) -> SessionId {
    fresh_session(job)
}

/// What a worker has said of its job, and by which right.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerAnswer {
    /// Its job.
    pub job: JobId,
    /// The job's token.
    pub token: String,
    /// What it said, or what is wrong with it.
    pub said: Result<WorkerSaid, String>,
}

/// What a worker has said.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerSaid {
    /// It has begun, or is at it.
    Started {
        /// How far it is, for those who watch.
        progress: Option<Value>,
    },
    /// It has ended.
    Ended(JobResult),
}

impl WorkerAnswer {
    /// Out of a body; `None`: it is no answer of an external worker.
    pub fn parse(body: &Value) -> Option<Self> {
        let token = body.get("token")?.as_str()?.to_owned();
        let job = JobId::new(body.get("job")?.as_str()?).ok()?;
        Some(Self { job, token, said: said(body) })
    }
}

fn said(body: &Value) -> Result<WorkerSaid, String> {
    let bytes = |value: &Value| value.to_string().len();
    match body.get("status").and_then(Value::as_str) {
        Some("STARTED") => {
            let progress = body.get("progress").filter(|progress| !progress.is_null());
            match progress.map(bytes) {
                Some(bytes) if bytes > OUTBOUND_NOTE_BYTES => {
                    Err(format!("`progress` has {bytes} bytes, expected at most {OUTBOUND_NOTE_BYTES}"))
                }
                Some(_) | None => Ok(WorkerSaid::Started { progress: progress.cloned() }),
            }
        }
        Some("COMPLETE") => match body.get("output") {
            None => Err("expected `output` with the status `COMPLETE`; it may be null".to_owned()),
            Some(output) => Ok(WorkerSaid::Ended(completed(output, bytes(output)))),
        },
        Some("FAILED") => {
            let error = match body.get("error") {
                None | Some(Value::Null) => "the worker failed and said no more".to_owned(),
                Some(Value::String(text)) => cut(text),
                Some(other) => cut(&other.to_string()),
            };
            Ok(WorkerSaid::Ended(JobResult::failed(ErrorCode::TaskFailed, error)))
        }
        Some(other) => Err(format!("`status`: expected `STARTED`, `COMPLETE` or `FAILED`, got `{}`", cut(other))),
        None => Err("expected `status`: `STARTED`, `COMPLETE` or `FAILED`".to_owned()),
    }
}

/// An output that is too large is not taken, and nobody waits for another one.
fn completed(output: &Value, bytes: usize) -> JobResult {
    if bytes <= OUTBOUND_BYTES {
        return JobResult::complete(output.clone());
    }
    let error = format!(
        "the worker's output has {bytes} bytes, expected at most {OUTBOUND_BYTES}; it should keep large values elsewhere and say where"
    );
    JobResult::failed(ErrorCode::OutputInvalid, error)
}

fn cut(text: &str) -> String {
    if text.len() <= OUTBOUND_NOTE_BYTES {
        return text.to_owned();
    }
    let end = (0..=OUTBOUND_NOTE_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}…", &text[..end])
}

/// Why the end of a job that has ended already is ignored; `None`: it is the same once more.
pub fn late(known: Option<&JobResult>, status: JobStatus, again: &JobResult) -> Option<String> {
    // A null isn't told from nothing where results are kept.
    let said = |result: &JobResult| {
        let output = result.output.clone().filter(|output| !output.is_null());
        JobResult { output, ..result.clone() }
    };
    if known.map(said) == Some(said(again)) {
        return None;
    }
    Some(format!("`{}` came after the job had ended: it is {}", again.status.as_str(), status.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Millis = Millis(1_000_000);

    fn job() -> JobId {
        JobId::new(&"0f".repeat(16)).unwrap()
    }

    fn watch(start: u64, heartbeat: u64, deadline: u64) -> Watch {
        let times = ExternalTimes::of(Some(start), Some(heartbeat), Some(deadline));
        Watch::new(job(), "ocr".parse().unwrap(), T, times, None)
    }

    fn at(seconds: u64) -> Millis {
        T.plus(Duration::from_secs(seconds))
    }

    /// Looks as a sweep would, each time when its place has come; when it is given up, and why.
    fn given_up(mut watch: Watch) -> (u64, String) {
        for _ in 0..10 {
            let now = watch.due;
            match watch.look(now) {
                WatchLook::Later(later) => {
                    assert!(later.due > now, "it comes to an end");
                    watch = later;
                }
                WatchLook::Over(why) => return (now.since(T).as_secs(), why),
            }
        }
        panic!("never given up: {watch:?}");
    }

    #[test]
    fn a_job_is_given_up_when_its_first_time_is_over_and_the_grace_after_it() {
        let grace = OUTBOUND_GRACE.as_secs();
        let begun = |watch: Watch, seconds: u64| watch.alive(at(seconds));
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
    fn a_sign_in_the_grace_is_in_time() {
        let WatchLook::Later(late) = watch(10, 5, 100).look(at(10)) else { panic!("it has a grace") };
        assert_eq!((late.overdue, late.due), (Some(at(10)), at(10).plus(OUTBOUND_GRACE)));
        let alive = late.alive(at(12));
        assert_eq!((alive.overdue, alive.started, alive.heartbeat), (None, Some(at(12)), Some(at(12))));
        assert_eq!(alive.clone().look(at(15)), WatchLook::Later(Watch { due: at(17), ..alive }));
    }

    #[test]
    fn defaults_are_an_hour_ten_minutes_and_a_day_and_no_time_is_longer_than_the_deadline() {
        let times = |start, heartbeat, deadline| {
            let times = ExternalTimes::of(start, heartbeat, deadline);
            (times.start.as_secs(), times.heartbeat.as_secs(), times.deadline.as_secs())
        };
        assert_eq!(times(None, None, None), (3600, 600, 86_400));
        assert_eq!(times(Some(7200), Some(1), Some(90)), (90, 1, 90));
        assert_eq!(times(None, None, Some(u64::MAX)), (3600, 600, 30 * 86_400));
        let of_request = Watch::new(job(), "q".parse().unwrap(), T, ExternalTimes::of(None, None, None), Some(at(60)));
        assert_eq!((of_request.deadline, of_request.due), (at(60), at(60)), "no longer than the request behind it");
    }

    #[test]
    fn a_watch_without_a_job_is_kept_for_an_hour() {
        let kept = watch(1, 1, 1).without_job(at(5)).unwrap();
        assert_eq!(kept.due, T.plus(OUTBOUND_ORPHAN));
        assert_eq!(kept.clone().without_job(kept.due), None);
    }

    #[test]
    fn answers_are_parsed_and_mistakes_named() {
        let parse = |mut body: Value| {
            body["job"] = json!(job());
            body["token"] = json!("t");
            WorkerAnswer::parse(&body).unwrap().said
        };
        assert_eq!(parse(json!({"status": "STARTED"})), Ok(WorkerSaid::Started { progress: None }));
        let progress = parse(json!({"status": "STARTED", "progress": {"page": 3}, "extra": 1}));
        assert_eq!(progress, Ok(WorkerSaid::Started { progress: Some(json!({"page": 3})) }));
        let done = |output| Ok(WorkerSaid::Ended(JobResult::complete(output)));
        assert_eq!(parse(json!({"status": "COMPLETE", "output": {"n": 1}})), done(json!({"n": 1})));
        assert_eq!(parse(json!({"status": "COMPLETE", "output": null})), done(json!(null)));
        for (body, text) in [
            (json!({"status": "FAILED", "error": "no such file"}), "no such file"),
            (json!({"status": "FAILED", "error": {"code": 7}}), "{\"code\":7}"),
            (json!({"status": "FAILED"}), "the worker failed and said no more"),
        ] {
            assert_eq!(parse(body), Ok(WorkerSaid::Ended(JobResult::failed(ErrorCode::TaskFailed, text))));
        }
        for (body, part) in [
            (json!({}), "expected `status`"),
            (json!({"status": "DONE"}), "got `DONE`"),
            (json!({"status": "COMPLETE", "outputs": 1}), "expected `output`"),
            (json!({"status": "STARTED", "progress": "x".repeat(9_000)}), "`progress` has 9002 bytes"),
        ] {
            let error = parse(body).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let Ok(WorkerSaid::Ended(large)) = parse(json!({"status": "COMPLETE", "output": "x".repeat(OUTBOUND_BYTES)}))
        else {
            panic!("it is an end")
        };
        assert_eq!((large.error_code, large.output), (Some(ErrorCode::OutputInvalid), None));
        let Ok(WorkerSaid::Ended(long)) = parse(json!({"status": "FAILED", "error": "ü".repeat(9_000)})) else {
            panic!("it is an end")
        };
        assert_eq!(long.error.unwrap().len(), OUTBOUND_NOTE_BYTES + '…'.len_utf8());
    }

    #[test]
    fn a_body_without_job_and_token_is_no_answer() {
        for body in
            [json!({}), json!([1]), json!({"token": "t"}), json!({"job": job()}), json!({"job": 1, "token": "t"})]
        {
            assert_eq!(WorkerAnswer::parse(&body), None, "{body}");
        }
    }

    #[test]
    fn the_same_end_once_more_is_none_and_any_other_is_told() {
        let done = JobResult::complete(json!(1));
        assert_eq!(late(Some(&done), JobStatus::Complete, &done), None);
        let nothing = JobResult { output: None, ..done.clone() };
        assert_eq!(late(Some(&nothing), JobStatus::Complete, &JobResult::complete(json!(null))), None);
        let other = late(Some(&done), JobStatus::Complete, &JobResult::complete(json!(2))).unwrap();
        assert_eq!(other, "`COMPLETE` came after the job had ended: it is COMPLETE");
        assert!(late(None, JobStatus::Cancelled, &done).unwrap().contains("CANCELLED"));
    }

    #[test]
    fn of_answers_that_changed_nothing_the_newest_are_kept_each_once() {
        let ignored = |n: usize| Ignored { at: T, message: n.to_string(), reason: "r".into() };
        let watch = (0..15).chain(13..16).fold(watch(1, 1, 1), |watch, n| watch.ignoring(ignored(n)));
        let kept: Vec<_> = watch.ignored.iter().map(|ignored| ignored.message.as_str()).collect();
        assert_eq!(kept, ["6", "7", "8", "9", "10", "11", "12", "13", "14", "15"]);
    }

    #[test]
    fn who_serves_a_queue_has_a_name_among_agents() {
        assert_eq!(server(&"ocr".parse().unwrap()).as_str(), "queue:ocr");
        assert_eq!(shown(&server(&"ocr".parse().unwrap())), "queue ocr");
        assert_eq!(shown(&"clerk".parse().unwrap()), "agent clerk");
        assert_eq!(server(&"q".repeat(128).parse().unwrap()).as_str(), "queue");
    }
}
