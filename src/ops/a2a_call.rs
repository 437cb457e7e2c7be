//! `v/ops/a2a/<name>/send`: a message to an agent elsewhere, as a job that stands for its task there. What becomes of the
//! job says [`crate::venue::remote_tasks`].

use crate::domain::a2a::message::RemoteMessage;
use crate::domain::a2a::shared::SharedAgentIds;
use crate::domain::a2a::task::{OPERATION, RemoteCallPlan, RemoteTaskInput};
use crate::domain::ids::{EventId, JobId, VenueIdSubject, sha256_hex};
use crate::domain::invocation::{self as rules, InvokedOperation};
use crate::domain::job::{JobHead, Parent};
use crate::domain::limits::{CHILD_WAIT, INVOKED_OPEN, OPEN_TASKS, OUTBOUND_DEADLINE};
use crate::store::keys;
use crate::venue::child_jobs::{self as child, call_id};
use crate::venue::ingress;
use crate::venue::jobs;
use crate::venue::operation::{Invocation, OpError, OpOutput, RuntimeCall, Site, TurnSite};
use crate::venue::operation_jobs::{self, InvokedAdmission};
use crate::view::request::{EndedRequestView, StartedRequestView};
use crate::view::to_json;
use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Hexadecimal digits of the key of a call outside turns.
const KEY_DIGITS: usize = 32;

/// Sends messages to one agent elsewhere.
struct RemoteAgentCall(RemoteCallPlan);

/// Makes what sends messages to an agent elsewhere.
pub(super) fn remote_calls(plan: RemoteCallPlan) -> Arc<dyn RuntimeCall> {
    Arc::new(RemoteAgentCall(plan))
}

#[async_trait]
impl RuntimeCall for RemoteAgentCall {
    async fn run(&self, arguments: Value, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let RemoteCallPlan { agent, has_changed, .. } = &self.0;
        if *has_changed {
            return Err(OpError::Conflict(format!(
                "the card of the A2A agent `{agent}` has changed since it was approved, so nothing was sent: a person \
                 looks at the change with `trellis a2a agent {agent}` and approves it"
            )));
        }
        let message = RemoteMessage::read(self.read_ids(arguments, call)?)
            .map_err(|error| OpError::Invalid(error.to_string()))?;
        let job = match &call.site {
            Site::Turn(site) => Box::pin(self.start_in_turn(call, site, message)).await?,
            Site::Api { key, .. } => Box::pin(self.start(call, key.as_ref(), message)).await?,
        };
        let wait = CHILD_WAIT.min(call.time_limit());
        let done = jobs::wait(call.venue, &call.caller.owner, &job, wait).await?;
        let name = self.0.agent.to_string();
        Ok(match (done.filter(|job| job.status.is_terminal()), &call.site) {
            (Some(done), _) => OpOutput::of(&EndedRequestView::of_remote(name, &done)),
            (None, Site::Turn(site)) => child::still_running(site, StartedRequestView::of_remote(name, job)),
            (None, Site::Api { .. }) => {
                let id = Some(job.clone());
                OpOutput::of(&StartedRequestView { id, ..StartedRequestView::of_remote(name, job) })
            }
        })
    }
}

impl RemoteAgentCall {
    /// Returns the arguments with ids as the agent knows them. Of an agent that all owners share, an owner names only what
    /// it has got itself.
    fn read_ids(&self, mut arguments: Value, call: &Invocation<'_>) -> Result<Value, OpError> {
        let RemoteCallPlan { agent, place, is_shared, .. } = &self.0;
        if !is_shared {
            return Ok(arguments);
        }
        let ids = SharedAgentIds { key: &call.venue.key, owner: &call.caller.owner, agent, place };
        for key in ["task", "context"] {
            let Some(shown) = arguments.get(key).and_then(Value::as_str) else { continue };
            let Some(id) = ids.read(shown).map(str::to_owned) else {
                return Err(OpError::Invalid(format!(
                    "`{key}`: expected the `{key}Id` of an earlier result of this owner, as it was shown: all owners share \
                     the A2A agent `{agent}`"
                )));
            };
            arguments[key] = id.into();
        }
        Ok(arguments)
    }

    /// Makes the head of the job, and the record by which workers run it.
    fn job(
        &self,
        call: &Invocation<'_>,
        event: EventId,
        parent: Option<Parent>,
        message: RemoteMessage,
    ) -> (JobHead, InvokedOperation) {
        let (venue, owner, now) = (call.venue, &call.caller.owner, call.venue.now());
        let id = JobId::derive(&venue.key, owner, &event);
        let deadline = now.plus(self.0.deadline.map_or(OUTBOUND_DEADLINE, Duration::from_secs));
        let input = RemoteTaskInput {
            agent: self.0.agent.clone(),
            declared_by: self.0.declared_by.clone(),
            place: self.0.place.clone(),
            message,
            deadline: call.caller.envelope.limit_time(deadline),
        };
        let invoked = InvokedOperation::new(id.clone(), event.clone(), call.caller.asker(None), now);
        let head = JobHead {
            caller: Some(call.caller.name.clone()),
            parent,
            principal: call.caller.principal.mark().map(str::to_owned),
            bound: Some(Box::new(call.caller.authority.clone().without_home())),
            under: call.caller.trail(),
            ..rules::job_head(id, event, OPERATION, to_json(&input), now)
        };
        (head, invoked)
    }

    /// Opens the job as an effect of the running turn.
    async fn start_in_turn(
        &self,
        call: &Invocation<'_>,
        site: &TurnSite<'_>,
        message: RemoteMessage,
    ) -> Result<JobId, OpError> {
        let lineage = call.caller.envelope.lineage.under_agent(&site.lease.session.agent);
        child::check_limits(site, &lineage, None)?;
        let (venue, owner) = (call.venue, &call.caller.owner);
        let (head, invoked) = self.job(call, call_id(venue, site), Some(site.parent.clone()), message);
        let is_known = venue.store.doc(owner, &keys::job_head(&head.id)).await?.value.is_some();
        if !is_known {
            check_open_tasks(call).await?;
        }
        child::open_operation(call, site, &head, &invoked, 0).await?;
        Ok(head.id)
    }

    /// Opens the job for a caller outside turns. A call under a key that comes again opens nothing twice.
    async fn start(
        &self,
        call: &Invocation<'_>,
        key: Option<&EventId>,
        message: RemoteMessage,
    ) -> Result<JobId, OpError> {
        let (venue, owner) = (call.venue, &call.caller.owner);
        let key = key.cloned().unwrap_or_else(ingress::fresh_id);
        // The operation that was invoked under this key is a job itself, so that this one has another id.
        let own = format!("a2a-{}", &sha256_hex(format!("a2a-task {key}").as_bytes())[..KEY_DIGITS]);
        let own = EventId::new(own).unwrap_or_else(|_| ingress::fresh_id());
        let event = EventId::of_venue(&venue.key, VenueIdSubject::Operation { owner, key: &own });
        let (head, invoked) = self.job(call, event, None, message);
        if venue.store.doc(owner, &keys::job_head(&head.id)).await?.value.is_none() {
            check_open_tasks(call).await?;
        }
        match operation_jobs::admit(venue, owner, &head, &invoked).await? {
            InvokedAdmission::Done | InvokedAdmission::Known => Ok(head.id),
            InvokedAdmission::Full => Err(too_many(INVOKED_OPEN)),
        }
    }
}

/// Checks that tasks elsewhere leave room for other operations of the owner.
async fn check_open_tasks(call: &Invocation<'_>) -> Result<(), OpError> {
    let open = operation_jobs::count_open(call.venue, &call.caller.owner).await?;
    if open < OPEN_TASKS { Ok(()) } else { Err(too_many(open)) }
}

fn too_many(open: usize) -> OpError {
    OpError::Limit(format!(
        "{open} operations of this owner have not ended, and {OPEN_TASKS} are most for sending a message; wait until some \
         have ended"
    ))
}
