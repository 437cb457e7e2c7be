//! `v/ops/job/pause`, `resume` and `message`: a job is held, goes on, and is spoken to.

use crate::domain::authority::ResourcePath;
use crate::domain::event::Submission;
use crate::domain::ids::{JobId, SessionKey};
use crate::domain::job::Job;
use crate::ingress;
use crate::ops::agent::ask;
use crate::venue::agents;
use crate::venue::approvals;
use crate::venue::jobs;
use crate::venue::jobs::hold::{self, HoldOutcome};
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, Output, UntypedOperation as Operation, UntypedSpec as Spec,
};
use async_trait::async_trait;
use serde_json::{Value, json};

/// What is done with a job.
#[derive(Clone, Copy)]
pub(super) enum Verb {
    Pause,
    Resume,
    Message,
}

impl Verb {
    pub(super) const ALL: [Self; 3] = [Self::Pause, Self::Resume, Self::Message];

    const fn ability(self) -> &'static str {
        match self {
            Self::Pause => "job/pause",
            Self::Resume => "job/resume",
            Self::Message => "job/message",
        }
    }
}

#[async_trait]
impl Operation for Verb {
    fn spec(&self) -> Spec {
        let id = json!({"type": "string", "description": "id of an open job of an agent"});
        let of = |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
        let (path, description, input) = match self {
            Self::Pause => (
                "v/ops/job/pause",
                "Pause a job: the running turn commits, and none begins for it until it is resumed. Its children, \
                 timers and approvals go on, and so does its deadline.",
                of(json!({"id": id}), json!(["id"])),
            ),
            Self::Resume => ("v/ops/job/resume", "Let a paused job go on.", of(json!({"id": id}), json!(["id"]))),
            Self::Message => (
                "v/ops/job/message",
                "Say something to an open job: its next turn reads it, as part of that job's request.",
                of(json!({"id": id, "message": {}}), json!(["id", "message"])),
            ),
        };
        Spec { path, description, input, effect: Effect::Idempotent }
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError> {
        Ok(vec![Need { ability: self.ability(), resource: ResourcePath::job(&job_id(arguments)?) }])
    }

    async fn invoke(&self, call: &Invocation<'_>, arguments: Value) -> Result<Output, OpError> {
        let (owner, id) = (&call.caller.owner, job_id(&arguments)?);
        let held = match self {
            Self::Pause => hold::pause(call.venue, owner, &id).await?,
            Self::Resume => hold::resume(call.venue, owner, &id).await?,
            Self::Message => return Ok(message(call, &id, &arguments).await?.into()),
        };
        match held {
            HoldOutcome::Done(job) => Ok(approvals::shown(call.venue, call.caller, &job).await?.into()),
            HoldOutcome::Not(why) => Err(OpError::Conflict(why)),
            HoldOutcome::Unknown => Err(unknown(&id)),
        }
    }
}

fn job_id(arguments: &Value) -> Result<JobId, OpError> {
    JobId::new(arguments["id"].as_str().unwrap_or_default()).map_err(|e| OpError::Invalid(e.to_string()))
}

fn unknown(id: &JobId) -> OpError {
    OpError::NotFound(format!("no job `{id}`"))
}

async fn message(call: &Invocation<'_>, id: &JobId, arguments: &Value) -> Result<Value, OpError> {
    let (owner, content) = (&call.caller.owner, &arguments["message"]);
    if content.is_null() {
        return Err(OpError::Invalid("`message`: expected what is to be said, got null".into()));
    }
    let Some(job) = jobs::get(call.venue, owner, id).await? else { return Err(unknown(id)) };
    ingress::hears(&job).map_err(|error| OpError::Conflict(error.to_string()))?;
    let Job { head, .. } = job;
    let submission = Submission {
        job: Some(id.clone()),
        session_id: Some(head.session.clone()),
        ..ask::submission(call, arguments, "message")?
    };
    let event = ask::event_id(call);
    ask::deliver(call, &head.agent, event.clone(), submission).await?;
    let session = SessionKey { agent: head.agent, session: head.session };
    let facts = agents::sessions::find(call.venue, owner, &session).await?;
    let is_for = |facts: &crate::store::SessionFacts| {
        let mail = facts.mailbox.iter().filter(|entry| entry.job.as_ref() == Some(id));
        mail.filter(|entry| entry.kind == crate::store::EventKind::Message).count()
    };
    Ok(json!({"job": id, "event": event, "status": "queued", "queueDepth": facts.as_ref().map_or(0, is_for)}))
}
