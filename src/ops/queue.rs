//! `v/ops/queue/publish`: start a job of an external worker. [`crate::venue::external`] has the protocol of such a
//! worker.

use super::child::{self, call_id, millis};
use crate::domain::authority::ResourcePath;
use crate::domain::declared::JobsDeclaration;
use crate::domain::external as rules;
use crate::domain::external::PUBLISH;
use crate::domain::ids::{AgentId, JobId, Owner, QueueName, SessionId};
use crate::domain::job::JobHead;
use crate::domain::job::watch::{ExternalTimes, ExternalWatch};
use crate::domain::limits::{
    CHILD_WAIT, OUTBOUND_BYTES, OUTBOUND_DEADLINE, OUTBOUND_DEADLINE_MAX, OUTBOUND_HEARTBEAT, OUTBOUND_START,
    QUEUE_NAME_BYTES,
};
use crate::domain::message::{BusMessage, MessageAddress};
use crate::domain::priority::Priority;
use crate::domain::quota::QuotaUsage;
use crate::domain::time::Millis;
use crate::venue::external;
use crate::venue::ingress;
use crate::venue::jobs;
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, RuntimeCall, Site, TurnSite, operation,
};
use crate::view::request::{EndedRequestView, StartedRequestView};
use crate::view::to_json;
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![operation::<Publish>()]
}

/// Returns the description of an argument in seconds.
fn describe_seconds(about: &str, default: Duration) -> String {
    format!("seconds {about}; {} when absent", default.as_secs())
}

/// Give a job to an external worker. A fast result comes back at once; otherwise status is STARTED and the result arrives
/// later as a pending job result.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Publish {
    /// name of the queue that the workers take jobs from
    #[schemars(length(min = 1, max = QUEUE_NAME_BYTES))]
    queue: QueueName,
    /// what the worker gets
    input: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(description = format!("ms that this call waits for a fast result; {} when absent", CHILD_WAIT.as_millis()))]
    wait: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = OUTBOUND_DEADLINE_MAX.as_secs()))]
    #[schemars(description = describe_seconds("until a worker must have begun", OUTBOUND_START))]
    start_timeout: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = OUTBOUND_DEADLINE_MAX.as_secs()))]
    #[schemars(description = describe_seconds("that the worker may give no sign", OUTBOUND_HEARTBEAT))]
    heartbeat_timeout: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = OUTBOUND_DEADLINE_MAX.as_secs()))]
    #[schemars(description = describe_seconds("until it must have ended", OUTBOUND_DEADLINE))]
    deadline: Option<u64>,
}

impl Operation for Publish {
    const PATH: &'static str = PUBLISH;
    const EFFECT: Effect = Effect::Idempotent;
    const TAKES_SECTIONS: bool = true;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        let bytes = self.queue.as_str().len();
        if bytes > QUEUE_NAME_BYTES {
            return Err(OpError::Invalid(format!("`queue`: expected at most {QUEUE_NAME_BYTES} bytes, got {bytes}")));
        }
        Need::only("queue/publish", ResourcePath::queue(&self.queue))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        publish(call, self, None).await
    }
}

/// Publishes a job and waits for a fast result; `output` is the schema that its output must fit.
async fn publish(call: &Invocation<'_>, asked: Publish, output: Option<Value>) -> Result<OpOutput, OpError> {
    let Site::Turn(site) = &call.site else {
        return Err(OpError::Invalid(format!(
            "`{PUBLISH}` is for agents: its result goes to the session of the turn that calls it; give the work to an agent with `v/ops/agent/request`"
        )));
    };
    let job = start_job(call, site, &asked, output).await?;
    if site.is_pipeline {
        // The result comes as an event, as that of every step.
        return Ok(child::still_running(site, StartedRequestView::of_queue(asked.queue, job)));
    }
    let done = jobs::wait(call.venue, &call.caller.owner, &job, millis(asked.wait, CHILD_WAIT)).await?;
    Ok(match done.filter(|job| job.status.is_terminal()) {
        Some(done) => OpOutput::of(&EndedRequestView::of_queue(asked.queue, &done)),
        None => child::still_running(site, StartedRequestView::of_queue(asked.queue, job)),
    })
}

/// A declared job: the arguments of a call are its input.
struct DeclaredJob(JobsDeclaration);

/// Makes what runs the calls of a declared job.
pub(super) fn declared_calls(declared: &JobsDeclaration) -> Arc<dyn RuntimeCall> {
    Arc::new(DeclaredJob(declared.clone()))
}

#[async_trait]
impl RuntimeCall for DeclaredJob {
    fn more_needs(&self, _: &Value) -> Result<Vec<Need>, OpError> {
        Need::only("queue/publish", ResourcePath::queue(&self.0.queue))
    }

    fn takes_sections(&self) -> bool {
        Publish::TAKES_SECTIONS
    }

    async fn run(&self, arguments: Value, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let JobsDeclaration { queue, output, wait, start_timeout, heartbeat_timeout, deadline } = self.0.clone();
        let asked = Publish { queue, input: arguments, wait, start_timeout, heartbeat_timeout, deadline };
        publish(call, asked, output).await
    }
}

/// Opens the job and publishes its message. The watch is stored before the message can be published.
async fn start_job(
    call: &Invocation<'_>,
    site: &TurnSite<'_>,
    asked: &Publish,
    output: Option<Value>,
) -> Result<JobId, OpError> {
    let lineage = call.caller.envelope.lineage.under_agent(&site.lease.session.agent);
    child::check_limits(site, &lineage, None)?;
    let (venue, owner, now) = (call.venue, &call.caller.owner, call.venue.now());
    let event = call_id(venue, site);
    let job = JobId::derive(&venue.key, owner, &event);
    let times = ExternalTimes::with_defaults(asked.start_timeout, asked.heartbeat_timeout, asked.deadline);
    let watch = ExternalWatch::new(job.clone(), asked.queue.clone(), now, times, call.caller.envelope.deadline);
    let watch = ExternalWatch { output, ..watch };
    let bytes = message(call, site, &watch, &asked.input).body.to_string().len();
    if bytes > OUTBOUND_BYTES {
        return Err(OpError::Invalid(format!(
            "the job has {bytes} bytes, expected at most {OUTBOUND_BYTES}; put large values where the worker can read them and name the place"
        )));
    }
    let mut head = JobHead {
        id: job.clone(),
        event: event.clone(),
        op: Some(PUBLISH.to_owned()),
        agent: site.lease.session.agent.clone(),
        session: rules::session(&job),
        caller: Some(call.caller.name.clone()),
        input: to_json(asked),
        hidden: None,
        created: watch.created,
        parent: Some(site.parent.clone()),
        reply_to: None,
        redrive_of: None,
        priority: Priority::Normal,
        principal: None,
        request: None,
        bound: Some(Box::new(call.caller.authority.clone().without_home())),
        ignored: Vec::new(),
        under: call.caller.trail(),
    };
    let open = [ingress::new_job(&head)];
    // The job has a head, a status and an entry in the list; the watch has a document and an entry among those that are
    // due.
    let adds = QuotaUsage { documents: 5, bytes: (bytes + open[0].head.len()) as u64, sessions: 0, jobs: 1 };
    child::check_room(call, adds, &open, None).await?;
    // A turn that is run again sends the same message as before, whatever the time is.
    let watch = external::watch(venue, owner, watch).await?;
    head.created = watch.created;
    let message = message(call, site, &watch, &asked.input);
    child::start_effect(call, site, &event, &message, vec![ingress::new_job(&head)]).await?;
    Ok(job)
}

/// Body of the message to the worker, without its token and its subjects.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WorkerMessage<'a> {
    job: &'a JobId,
    queue: &'a QueueName,
    input: &'a Value,
    owner: &'a Owner,
    agent: &'a AgentId,
    session: &'a SessionId,
    /// Time of publication, in milliseconds since 1970.
    created: Millis,
    /// Deadline for the first sign of the worker, in milliseconds since 1970.
    start_by: Millis,
    /// Seconds of the longest silence of the worker.
    heartbeat_seconds: u64,
    /// Deadline of the job, in milliseconds since 1970.
    deadline: Millis,
    /// Sections of the caller's context by key; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    scoped: Option<&'a Map<String, Value>>,
}

/// Returns the message to the worker, without its token and its subjects, which are added when it is published.
fn message(call: &Invocation<'_>, site: &TurnSite<'_>, watch: &ExternalWatch, input: &Value) -> BusMessage {
    let (owner, session) = (&call.caller.owner, &site.lease.session);
    let body = to_json(&WorkerMessage {
        job: &watch.job,
        queue: &watch.queue,
        input,
        owner,
        agent: &session.agent,
        session: &session.session,
        created: watch.created,
        start_by: watch.start_by,
        heartbeat_seconds: watch.heartbeat_seconds,
        deadline: watch.deadline,
        scoped: (!call.scoped.is_empty()).then_some(call.scoped),
    });
    let to = MessageAddress::Job { queue: watch.queue.clone(), owner: owner.clone(), agent: session.agent.clone() };
    // If a store has lost the turn and its watch, the job is sent again; with the same id the queue would drop it as a
    // duplicate.
    BusMessage { to, id: Some(format!("{}-{}", watch.job, watch.created.0)), body }
}
