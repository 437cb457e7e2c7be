//! `v/ops/job/pause`, `resume` and `message`: pause a job, resume it, send it a message.

use crate::domain::authority::ResourcePath;
use crate::domain::event::Submission;
use crate::domain::ids::{JobId, SessionKey};
use crate::domain::job::Job;
use crate::ops::agent::send;
use crate::store::{EventKind, SessionFacts};
use crate::venue::agents;
use crate::venue::ingress;
use crate::venue::job_view;
use crate::venue::jobs;
use crate::venue::jobs::pausing::{self, PauseOutcome};
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation};
use crate::view::request::JobMessageView;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

fn no_job(id: &JobId) -> OpError {
    OpError::NotFound(format!("no job `{id}`"))
}

/// Returns the answer of pausing or resuming a job.
async fn pause_answer(call: &Invocation<'_>, id: &JobId, held: PauseOutcome) -> Result<OpOutput, OpError> {
    match held {
        PauseOutcome::Done(job) => Ok(OpOutput::of(&job_view::record_for(call.venue, call.caller, &job).await?)),
        PauseOutcome::Refused(why) => Err(OpError::Conflict(why)),
        PauseOutcome::Unknown => Err(no_job(id)),
    }
}

/// Pause a job: the running turn commits, and none begins for it until it is resumed. Its children, timers and approvals go
/// on, and so does its deadline.
#[derive(Deserialize, JsonSchema)]
pub(super) struct PauseJob {
    /// id of an open job of an agent
    id: JobId,
}

impl Operation for PauseJob {
    const PATH: &'static str = "v/ops/job/pause";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("job/pause", ResourcePath::job(&self.id))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        pause_answer(call, &self.id, pausing::pause(call.venue, &call.caller.owner, &self.id, &call.caller.name).await?)
            .await
    }
}

/// Let a paused job go on.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ResumeJob {
    /// id of an open job of an agent
    id: JobId,
}

impl Operation for ResumeJob {
    const PATH: &'static str = "v/ops/job/resume";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("job/resume", ResourcePath::job(&self.id))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        pause_answer(call, &self.id, pausing::resume(call.venue, &call.caller.owner, &self.id).await?).await
    }
}

/// Say something to an open job: its next turn reads it, as part of that job's request.
#[derive(Deserialize, JsonSchema)]
pub(super) struct MessageJob {
    /// id of an open job of an agent
    id: JobId,
    message: Value,
}

impl Operation for MessageJob {
    const PATH: &'static str = "v/ops/job/message";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("job/message", ResourcePath::job(&self.id))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let (owner, id) = (&call.caller.owner, self.id);
        if self.message.is_null() {
            return Err(OpError::Invalid("`message`: expected what is to be said, got null".into()));
        }
        let Some(job) = jobs::get(call.venue, owner, &id).await? else { return Err(no_job(&id)) };
        ingress::check_accepts_message(&job).map_err(|error| OpError::Conflict(error.to_string()))?;
        let Job { head, .. } = job;
        let said = Submission {
            input: self.message,
            job: Some(id.clone()),
            session_id: Some(head.session.clone()),
            ..Submission::default()
        };
        let event = send::event_id(call);
        send::deliver(call, &head.agent, event.clone(), send::build_submission(call, None, said)?).await?;
        let session = SessionKey { agent: head.agent, session: head.session };
        let facts = agents::sessions::find(call.venue, owner, &session).await?;
        let is_for = |facts: &SessionFacts| {
            let mail = facts.mailbox.iter().filter(|entry| entry.job.as_ref() == Some(&id));
            mail.filter(|entry| entry.kind == EventKind::Message).count()
        };
        let depth = facts.as_ref().map_or(0, is_for);
        Ok(OpOutput::of(&JobMessageView {
            job: id,
            event: event.as_str().to_owned(),
            status: "queued".to_owned(),
            queue_depth: depth,
        }))
    }
}
