//! Answers about jobs: their records, why they wait, and what they have used.

use super::approval::ApprovalView;
use super::pipeline::PipelineRunView;
use super::spend::JobSpendView;
use super::to_json;
use crate::domain::ids::{AgentId, JobId, QueueName, SessionId};
use crate::domain::job::watch::{ExternalWatch, IgnoredAnswer};
use crate::domain::job::{ErrorCode, Job, JobStatus, WaitNote};
use crate::domain::outcome::OutcomeSettlement;
use crate::domain::priority::Priority;
use crate::domain::reader::{JobReader, JobVisibility};
use crate::domain::session::WITHHELD;
use crate::domain::time::Millis;
use crate::domain::wait::{WaitCause, WaitReason};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A job as its reader may see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobView {
    /// Id of the job.
    pub id: JobId,
    /// Catalog path of the operation that it runs.
    pub op: String,
    /// Status of the job.
    pub status: JobStatus,
    /// Time at which it was opened, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub created: Millis,
    /// Time of the last change of its status, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub updated: Millis,
    /// Its input; absent where it is hidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Agent that serves it; absent of other operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// Session that serves it; absent of other operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The producer's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// Who asked for it: an owner, or `agent:<id>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The job whose turn has started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<JobId>,
    /// The failed job that it drives again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redrive_of: Option<JobId>,
    /// Priority of the job, -1 or 1; absent is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i8>", extend("enum" = [-1, 1]))]
    pub priority: Option<Priority>,
    /// Jobs that its turns have started, of which the reader sees anything: the first 100. Absent in lists, and where there
    /// are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ChildJobView>,
    /// Parts of the request that had no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignored: Option<IgnoredView>,
    /// Reason why a job that has not ended does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitView>,
    /// Queue and times of a job of an external worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outbound: Option<ExternalJobView>,
    /// Tokens and cost of the job; absent where nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spend: Option<JobSpendView>,
    /// Output of a complete job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The output is a text that the model's limit of tokens cut off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<bool>,
    /// Why it ended without an output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Code of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// `input`, `output`, `error` and `waiting` are left out: the job ran under authority that the reader does not
    /// hold, and he did not ask for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<String>,
    /// Approvals that the job waits for, the newest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approvals: Option<Vec<ApprovalView>>,
    /// Turn of the task that runs now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<RunningTurnView>,
    /// Job as which a failed job was driven again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redriven_as: Option<JobId>,
    /// Advice about a cancelled job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Of an operation that ended with `OUTCOME_UNKNOWN`: what a person has found out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled: Option<OutcomeSettlement>,
    /// State of the run of a pipeline, while the job has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<PipelineRunView>,
}

impl JobView {
    /// Returns a job's record as the reader sees it.
    pub fn for_reader(job: &Job, reader: &JobReader) -> Self {
        let whole = Self::from(job);
        if reader.visibility(&job.head) == JobVisibility::Whole {
            return whole;
        }
        Self { input: None, waiting: None, output: None, error: None, hidden: Some(WITHHELD.to_owned()), ..whole }
    }
}

impl From<&Job> for JobView {
    fn from(job: &Job) -> Self {
        let (head, result) = (&job.head, job.result.as_ref());
        let is_task = head.op.is_none();
        Self {
            id: head.id.clone(),
            op: head.op.clone().unwrap_or_else(|| "v/ops/agent/request".to_owned()),
            status: job.status,
            created: head.created,
            updated: job.updated,
            input: Some(head.input.clone()),
            agent: is_task.then(|| head.agent.clone()),
            session: is_task.then(|| head.session.clone()),
            event: is_task.then(|| head.event.as_str().to_owned()),
            caller: head.caller.clone(),
            parent: head.parent.as_ref().and_then(|parent| parent.job.clone()),
            redrive_of: head.redrive_of.clone(),
            priority: (!head.priority.is_normal()).then_some(head.priority),
            children: Vec::new(),
            ignored: IgnoredView::of_keys(&head.ignored),
            waiting: wait_of_job(job),
            outbound: job.outbound.as_ref().map(ExternalJobView::from),
            spend: JobSpendView::new(job.tally.as_ref(), job.tree.as_ref()),
            output: result.and_then(|result| result.output.clone()),
            truncated: result.and_then(|result| result.truncated.then_some(true)),
            error: result.and_then(|result| result.error.clone()),
            error_code: result.and_then(|result| result.error_code).and_then(error_code_name),
            hidden: None,
            approvals: None,
            running: None,
            redriven_as: None,
            advice: None,
            settled: None,
            pipeline: None,
        }
    }
}

/// Returns why a job waits: the reason that was looked for, else the last note of a worker.
fn wait_of_job(job: &Job) -> Option<WaitView> {
    let waits = !job.status.is_terminal() && job.status != JobStatus::Paused;
    // An old note about a pause says nothing of a job that was resumed.
    let noted = job.waiting.as_ref().filter(|note| waits && note.cause != WaitCause::Paused).map(WaitNote::to_reason);
    job.wait.as_ref().or(noted.as_ref()).map(WaitView::from)
}

/// Returns the name of a code in JSON.
pub fn error_code_name(code: ErrorCode) -> Option<String> {
    to_json(&code).as_str().map(str::to_owned)
}

/// A job that a turn of another has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChildJobView {
    /// Id of the job.
    pub id: JobId,
    /// Catalog path of the operation that it runs.
    pub op: String,
    /// Agent that serves it; absent of other operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// Status of the job.
    pub status: JobStatus,
}

impl From<&Job> for ChildJobView {
    fn from(job: &Job) -> Self {
        let JobView { id, op, agent, status, .. } = JobView::from(job);
        Self { id, op, agent, status }
    }
}

/// Parts of a request that had no effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IgnoredView {
    /// Keys whose values the token sets.
    pub session_context: Vec<String>,
}

impl IgnoredView {
    /// Returns the ignored keys of a `sessionContext`, if there are any.
    pub fn of_keys(keys: &[String]) -> Option<Self> {
        (!keys.is_empty()).then(|| Self { session_context: keys.to_vec() })
    }
}

/// The turn that runs now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunningTurnView {
    /// Its number in the session, from 1.
    pub turn: u64,
    /// Name of the worker that runs it.
    pub worker: String,
    /// When that worker took the session, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub since: Millis,
}

/// Why work does not go on, with what belongs to a reason of its kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitView {
    /// `not-admitted`, `due`, `queue-away`, `no-worker`, `slots-taken`, `owner-share`, `agent-limit`, `owner-limit`,
    /// `suspended`, `paused`, `behind` (an earlier task of its session), `person`, `child`, `result-due`,
    /// `external-worker`, `timer`, `provider-limit`, `spending-limit`, `backing-off`, `not-published`, `damaged` or
    /// `other`. Of jobs and agents that the reader may not read nothing else is told.
    pub kind: String,
    /// Reason in words.
    pub reason: String,
    /// Time at which it goes on by itself, in milliseconds since 1970; absent if that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub until: Option<Millis>,
    /// Advice: what the reader can do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Id of the child, of the earlier task, or of the ended job whose result is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// The agent of the child, or the one that is suspended or at its limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// Sessions that may run at once, or slots of all workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Since when the queue is away, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub since: Option<Millis>,
    /// Name of the caller who has paused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Ids of the approvals that people have to answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approvals: Option<Vec<JobId>>,
    /// Queue of the external worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Calls of the model so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tries: Option<u32>,
    /// Reason why that job waits, in the same form.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub waiting: Option<Box<WaitView>>,
}

impl From<&WaitReason> for WaitView {
    fn from(reason: &WaitReason) -> Self {
        let shown = Self {
            kind: reason.kind().to_owned(),
            reason: reason.to_string(),
            until: reason.resume_time(),
            advice: reason.advice(),
            ..Self::default()
        };
        let inner = |wait: Option<&WaitReason>| wait.map(|wait| Box::new(Self::from(wait)));
        match reason {
            WaitReason::AgentLimit { agent, limit, .. } => {
                Self { agent: Some(agent.clone()), limit: Some((*limit).into()), ..shown }
            }
            WaitReason::OwnerLimit { limit } => Self { limit: Some((*limit).into()), ..shown },
            WaitReason::QueueAway { since } => Self { since: Some(*since), ..shown },
            WaitReason::SlotsTaken { slots } => Self { limit: Some(*slots), ..shown },
            WaitReason::Suspended { agent, .. } => Self { agent: Some(agent.clone()), ..shown },
            WaitReason::Paused { by, .. } => Self { by: by.clone(), ..shown },
            WaitReason::Behind { job, wait } => {
                Self { job: Some(job.clone()), waiting: inner(wait.as_deref()), ..shown }
            }
            WaitReason::Person { approvals } => Self { approvals: Some(approvals.clone()), ..shown },
            WaitReason::Child { job, agent, wait, .. } => {
                Self { job: Some(job.clone()), agent: Some(agent.clone()), waiting: inner(wait.as_deref()), ..shown }
            }
            WaitReason::ResultDue { job } => Self { job: Some(job.clone()), ..shown },
            WaitReason::Withheld { .. } => {
                let root = reason.withheld_root().map(|(kind, text)| {
                    Box::new(Self { kind: kind.to_owned(), reason: text.to_owned(), ..Self::default() })
                });
                Self { waiting: root, ..shown }
            }
            WaitReason::External { queue, .. } => Self { queue: Some(queue.clone()), ..shown },
            WaitReason::Noted { cause: WaitCause::BackingOff { tries }, .. } => Self { tries: Some(*tries), ..shown },
            WaitReason::NotAdmitted
            | WaitReason::Due
            | WaitReason::NoWorker { .. }
            | WaitReason::OwnerShare
            | WaitReason::Timer { .. }
            | WaitReason::Noted { .. } => shown,
        }
    }
}

/// A job of an external worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalJobView {
    /// Queue that its workers take it from.
    pub queue: QueueName,
    /// Latest start by a worker, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub start_by: Millis,
    /// Seconds that its worker may be silent.
    pub heartbeat_seconds: u64,
    /// Latest end of the job, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub deadline: Millis,
    /// First sign of its worker, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub started: Option<Millis>,
    /// Last sign of its worker, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub heartbeat: Option<Millis>,
    /// Answers that changed nothing, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<IgnoredAnswer>,
}

impl From<&ExternalWatch> for ExternalJobView {
    fn from(watch: &ExternalWatch) -> Self {
        let signs = watch.started.zip(watch.heartbeat);
        Self {
            queue: watch.queue.clone(),
            start_by: watch.start_by,
            heartbeat_seconds: watch.heartbeat_seconds,
            deadline: watch.deadline,
            started: signs.map(|(started, _)| started),
            heartbeat: signs.map(|(_, heartbeat)| heartbeat),
            ignored: watch.ignored.clone(),
        }
    }
}

/// A piece of a job's live text, as its event stream shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LiveTextView {
    /// Text that follows the pieces before.
    pub text: String,
}

/// Progress of a turn, as the event stream of its job shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnProgressView {
    /// Number of the turn in its session, from 1.
    pub turn: u64,
    /// Names of the tools that it calls.
    pub calls: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::authority::{Authority, Capability};
    use crate::domain::chat::{Price, TokenUsage};
    use crate::domain::invocation;
    use crate::domain::job::{JobHead, JobResult};
    use crate::domain::reader::is_content_key;
    use crate::domain::spend::{JobTreeUse, ModelUse, Tally};
    use serde_json::json;

    fn id(digit: &str) -> JobId {
        JobId::new(&digit.repeat(32)).unwrap()
    }

    fn job() -> Job {
        let session = invocation::session(&id("0"));
        let head = json!({
            "id": id("0"), "event": "e", "op": "v/ops/x", "agent": session.agent, "session": session.session,
            "input": "given", "created": 5, "principal": "ann", "bound": null,
        });
        let head: JobHead = serde_json::from_value(head).unwrap();
        Job {
            head,
            status: JobStatus::Complete,
            updated: Millis(6),
            result: Some(JobResult::complete(json!("came out"))),
            waiting: None,
            wait: None,
            outbound: None,
            tally: None,
            tree: None,
        }
    }

    fn reader(caps: &[(&str, &str)], mark: Option<&str>) -> JobReader {
        let caps = caps.iter().map(|(with, can)| Capability { with: (*with).into(), can: (*can).into() });
        JobReader { authority: Authority::new(Some(caps.collect())), mark: mark.map(str::to_owned), operator: false }
    }

    #[test]
    fn omitted_parts_are_marked() {
        let veiled = to_json(&JobView::for_reader(&job(), &reader(&[("j", "crud/read")], None)));
        assert_eq!((&veiled["status"], &veiled["op"]), (&json!("COMPLETE"), &json!("v/ops/x")));
        assert_eq!(veiled["hidden"], WITHHELD);
        assert!(!veiled.to_string().contains("given") && !veiled.to_string().contains("came out"), "{veiled}");
        assert!(veiled.as_object().unwrap().keys().all(|key| !is_content_key(key)), "{veiled}");
        let whole = to_json(&JobView::for_reader(&job(), &reader(&[], Some("ann"))));
        assert_eq!(
            (&whole["input"], &whole["output"], whole.get("hidden")),
            (&json!("given"), &json!("came out"), None)
        );
    }

    #[test]
    fn a_record_reads_back_and_has_its_keys_in_one_order() {
        let failed = Job {
            status: JobStatus::Failed,
            result: Some(JobResult::failure(ErrorCode::LimitReached, "too long")),
            ..job()
        };
        let record = JobView::from(&failed);
        let shown = to_json(&record);
        let keys: Vec<&String> = shown.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["id", "op", "status", "created", "updated", "input", "error", "errorCode"]);
        assert_eq!((&shown["errorCode"], &shown["created"]), (&json!("LIMIT_REACHED"), &json!(5)));
        assert_eq!(serde_json::from_value::<JobView>(shown).unwrap(), record);
        let without_input = Job { head: JobHead { input: Value::Null, ..job().head }, ..job() };
        assert_eq!(to_json(&JobView::from(&without_input)).get("input"), Some(&Value::Null));
    }

    #[test]
    fn a_job_shows_its_own_and_that_of_its_tree() {
        let call = |input, output| ModelUse::of_call(TokenUsage::new(input, output), Some(Price::new(3.0, 15.0)));
        let own = Tally { spent: call(1, 2), started: true, fallbacks: 0 };
        let tree = JobTreeUse { spent: own.spent.plus(call(3, 4)), jobs: 1, partial: false };
        let shown = |tally, tree| to_json(&JobView::from(&Job { tally, tree, ..job() }))["spend"].clone();
        let both = shown(Some(own), Some(tree));
        assert_eq!(
            (&both["own"]["input"], &both["tree"]["input"], &both["tree"]["jobs"]),
            (&json!(1), &json!(4), &json!(1))
        );
        assert_eq!(both["tree"].get("partial"), None);
        assert_eq!(shown(None, Some(tree)).get("own"), None, "before its first commit");
        assert_eq!(shown(None, Some(JobTreeUse::default())), Value::Null, "an old job says nothing");
        assert_eq!(shown(Some(Tally::default()), None)["own"]["calls"], 0);
    }

    #[test]
    fn a_withheld_reason_has_its_kinds_and_no_name() {
        let agent: AgentId = "secret-agent".parse().unwrap();
        let person = WaitReason::Person { approvals: vec![id("2")] };
        let child = |wait: WaitReason| WaitReason::Child {
            job: id("1"),
            agent: agent.clone(),
            wait: Some(Box::new(wait)),
            others: 0,
        };
        let parent = to_json(&WaitView::from(&child(person.clone())));
        assert_eq!((&parent["kind"], &parent["waiting"]["kind"]), (&json!("child"), &json!("person")));
        assert_eq!(parent["waiting"]["approvals"], json!([id("2")]));
        let noted = |cause| WaitReason::Noted { cause, text: "secret text".into(), until: Some(Millis(7)) };
        for (reason, kind, root) in [
            (person.clone(), "person", None),
            (child(person.clone()), "child", Some("person")),
            (child(child(person.clone()).withhold()), "child", Some("person")),
            (WaitReason::Paused { job: id("1"), by: Some("secret name".into()) }, "paused", None),
            (WaitReason::Suspended { agent: agent.clone(), why: Some("secret".into()) }, "suspended", None),
            (noted(WaitCause::BackingOff { tries: 3 }), "backing-off", None),
            (WaitReason::External { queue: "secret queue".into(), begun: true }, "external-worker", None),
            (WaitReason::Timer { until: Millis(7) }, "timer", None),
        ] {
            let withheld = WaitView::from(&reason.clone().withhold());
            let end = withheld.waiting.as_ref().map(|waiting| waiting.kind.as_str());
            assert_eq!((withheld.kind.as_str(), end), (kind, root), "{reason}");
            let text = to_json(&withheld).to_string();
            for secret in ["secret", id("1").as_str(), id("2").as_str(), "until", "tries", "advice"] {
                assert!(!text.contains(secret), "`{secret}` in {text}");
            }
        }
    }
}
