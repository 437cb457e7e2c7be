//! Requests and messages to agents, from a turn or from outside.
//!
//! From a turn they are effects under ids that are a function of the turn, fenced by its lease: a turn that is run
//! again sends nothing twice.

use super::checks::{find_existing, no_agent};
use crate::domain::agent::AgentStatus;
use crate::domain::authority::envelope::Envelope;
use crate::domain::authority::{ResourcePath, grant};
use crate::domain::decode;
use crate::domain::event::{Submission, new_session_id};
use crate::domain::ids::{AgentId, EventId, JobId};
use crate::domain::lattice::Path;
use crate::domain::lattice::address::to_plain_path;
use crate::domain::limits::{CHILD_WAIT, MESSAGE_DEPTH, SUBMISSION_BYTES};
use crate::domain::message::{BusMessage, InboundKind, MessageAddress};
use crate::domain::principal::Principal;
use crate::domain::scope::{Delegate, DelegateContext, ScopedSection};
use crate::domain::seal::{self, SubmissionAddress};
use crate::ops::child::{self, MAX_TIMEOUT, call_id, handed_records, still_running};
use crate::store::{NewJob, Refusal, StoreError};
use crate::venue::ingress::{self, Arrival, PreparationError, SubmitError};
use crate::venue::jobs;
use crate::venue::operation::{Caller, Invocation, OpError, OpOutput, Site, TurnSite};
use crate::view::request::{EndedRequestView, StartedRequestView};
use serde_json::Value;
use std::time::Duration;

/// Calls a delegate: starts a child job with the sections of the caller's context that it is handed.
pub(crate) async fn delegate(call: &Invocation<'_>, to: &Delegate, arguments: Value) -> Result<OpOutput, OpError> {
    let Site::Turn(site) = &call.site else {
        return Err(OpError::Conflict("only a turn can delegate".into()));
    };
    let own = || site.lease.session.agent.clone();
    let agent = to.agent.clone().unwrap_or_else(own);
    if to.agent.is_some() {
        let (ability, resource) = request_needs(&agent);
        call.permit(ability, resource)?;
    }
    let left_at = to.output_path.as_deref().map(Path::parse_output).transpose();
    let left_at = left_at.map_err(|error| OpError::Invalid(error.to_string()))?;
    if let Some(path) = &left_at {
        call.permit("crud/write", path)?;
    }
    let anonymous = (to.agent.is_none() && to.step.is_none()).then(|| to.prompt.clone());
    let submission = Submission {
        input: arguments,
        caller: Some(call.caller.name.clone()),
        envelope: delegated_envelope(call, site, None)?,
        handed: DelegateContext { anonymous, step: to.step.clone(), upstream: to.upstream, ..handed_sections(site) },
        output_path: to.output_path.clone(),
        ..Submission::default()
    };
    let job = start_child(call, site, &agent, submission).await?;
    if let Some(path) = left_at {
        // The output will be there, whether or not this call waits for it.
        call.reads.note_kept(ResourcePath::job(&job), format!("j/{job}/output"));
        call.reads.note_copies(&[path.to_string()]);
    }
    if site.is_pipeline {
        // Its next turn reads the result as an event, so that a turn that is run again decides the same.
        return Ok(still_running(site, StartedRequestView::of_agent(agent, job)));
    }
    let wait = to.wait.map_or(CHILD_WAIT, Duration::from_millis).min(MAX_TIMEOUT);
    let done = jobs::wait(call.venue, &call.caller.owner, &job, wait).await?;
    if let Some(done) = done.filter(|job| job.status.is_terminal()) {
        call.reads.note_kept(ResourcePath::job(&job), format!("j/{job}/output"));
        let nothing_went = site.handed.iter().all(|section| section.missing.is_some());
        let scoped = handed_records(site).filter(|_| nothing_went);
        return Ok(OpOutput::of(&EndedRequestView { scoped, ..EndedRequestView::of_agent(agent, &done) }));
    }
    Ok(still_running(site, StartedRequestView::of_agent(agent, job)))
}

/// Returns the sections of the turn's context that a child of a call gets.
pub(super) fn handed_sections(site: &TurnSite<'_>) -> DelegateContext {
    let scoped = site.handed.iter().filter_map(ScopedSection::for_receiver).collect();
    DelegateContext { scoped, ..DelegateContext::default() }
}

/// Returns ability and resource that a request to an agent needs.
pub(crate) fn request_needs(agent: &AgentId) -> (&'static str, ResourcePath) {
    ("agent/request", ResourcePath::agent(agent))
}

/// Returns a submission under no more authority than the caller's, and than `context` grants.
pub(crate) fn build_submission(
    call: &Invocation<'_>,
    context: Option<Vec<Value>>,
    said: Submission,
) -> Result<Submission, OpError> {
    let context = context.map(|grants| localise_grants(call, grants)).transpose()?;
    let (context, envelope) = match &call.site {
        Site::Api { .. } => (context, call.caller.request_envelope()),
        Site::Turn(site) => (None, delegated_envelope(call, site, context.as_deref())?),
    };
    Ok(Submission { caller: Some(call.caller.name.clone()), context, envelope, ..said })
}

/// Replaces addresses of the owner's own tree in grants by plain paths.
fn localise_grants(call: &Invocation<'_>, mut grants: Vec<Value>) -> Result<Vec<Value>, OpError> {
    for with in grants.iter_mut().filter_map(|grant| grant.get_mut("with")) {
        if let Some(text) = with.as_str() {
            let plain = to_plain_path(&call.caller.owner, text).map_err(|error| OpError::Denied(error.to_string()))?;
            *with = plain.into();
        }
    }
    Ok(grants)
}

fn delegated_envelope(
    call: &Invocation<'_>,
    site: &TurnSite<'_>,
    named: Option<&[Value]>,
) -> Result<Envelope, OpError> {
    let named = named.map(|grants| grant::parse(grants, &call.venue.boundaries)).transpose();
    let named = named.map_err(|error| OpError::Invalid(error.to_string()))?;
    let Caller { name, authority, envelope, .. } = call.caller;
    envelope
        .hand_on(name.clone(), authority, site.delegable, named.as_deref(), call.workspace.scope())
        .map_err(|error| OpError::Denied(error.to_string()))
}

pub(super) async fn start_child(
    call: &Invocation<'_>,
    site: &TurnSite<'_>,
    agent: &AgentId,
    mut submission: Submission,
) -> Result<JobId, OpError> {
    if find_existing(call, agent).await?.status == AgentStatus::Terminated {
        return Err(OpError::Conflict(format!("agent `{agent}`: {}", Refusal::Terminated)));
    }
    // An anonymous child can call nothing, and a step is an agent below its pipeline: neither closes a cycle.
    let named = (!submission.handed.is_own()).then_some(agent);
    child::check_limits(site, &submission.envelope.lineage, named)?;
    submission.parent = Some(site.parent.clone());
    let arrival = Arrival {
        owner: call.caller.owner.clone(),
        agent: agent.clone(),
        task: true,
        id: call_id(call.venue, site),
        submission,
        received: call.venue.now(),
        sequence: 0,
        by: Principal::ANYBODY,
        may_override: false,
    };
    let job = JobId::derive(&call.venue.key, &arrival.owner, &arrival.id);
    let session = arrival.submission.session_id.clone().unwrap_or_else(|| new_session_id(&job));
    let head = ingress::job_head(&arrival, &job, &session, &arrival.submission.envelope);
    let open = ingress::new_job(&head);
    send_effect(call, site, &arrival, InboundKind::Task, vec![open]).await?;
    Ok(job)
}

/// Sends a submission, with the job it opens, as an effect of the running turn.
async fn send_effect(
    call: &Invocation<'_>,
    site: &TurnSite<'_>,
    arrival: &Arrival,
    kind: InboundKind,
    open: Vec<NewJob>,
) -> Result<(), OpError> {
    // A submission that would be refused on arrival is refused now, because its caller would not learn of it.
    let admit = ingress::admission(call.venue, arrival).map_err(|error| OpError::Invalid(error.to_string()))?;
    let adds = admit.event.as_ref().map(|event| event.added_usage(false)).unwrap_or_default();
    let Arrival { owner, agent, id, submission, .. } = arrival;
    let to = SubmissionAddress { owner, agent, kind };
    let sealed = seal::seal_submission(&call.venue.key, to, id, submission.clone());
    let bytes = serde_json::to_vec(&sealed).map_or(0, |b| b.len());
    if bytes > SUBMISSION_BYTES {
        let error = ingress::SubmissionError::TooLarge { bytes, limit: SUBMISSION_BYTES };
        return Err(OpError::Invalid(error.to_string()));
    }
    let body = serde_json::to_value(&sealed).expect("submissions serialise");
    decode::check_to(&body, MESSAGE_DEPTH).map_err(|wrong| OpError::Invalid(wrong.to_string()))?;
    let to = MessageAddress::In { owner: owner.clone(), agent: agent.clone(), kind };
    let message = BusMessage { to, id: Some(id.to_string()), body };
    child::check_room(call, adds, &open, Some(&admit.session)).await?;
    child::start_effect(call, site, id, &message, open).await
}

pub(super) async fn submit(
    call: &Invocation<'_>,
    key: Option<EventId>,
    agent: &AgentId,
    task: bool,
    submission: Submission,
) -> Result<ingress::SubmitReceipt, OpError> {
    let arrival = Arrival {
        owner: call.caller.owner.clone(),
        agent: agent.clone(),
        task,
        id: key.unwrap_or_else(ingress::fresh_id),
        submission,
        received: call.venue.now(),
        sequence: 0,
        by: call.caller.principal.clone(),
        may_override: false,
    };
    ingress::submit(call.venue, &arrival).await.map_err(|error| match error {
        SubmitError::Submission(error @ ingress::SubmissionError::NotOpen { .. }) => {
            OpError::Conflict(error.to_string())
        }
        SubmitError::Submission(error @ ingress::SubmissionError::NoJob(_)) => OpError::NotFound(error.to_string()),
        SubmitError::Submission(error) => OpError::Invalid(error.to_string()),
        SubmitError::Refused { refusal: Refusal::UnknownAgent, agent } => no_agent(&agent),
        SubmitError::Refused { refusal: Refusal::Quota(over), .. } => OpError::Store(StoreError::Over(over)),
        SubmitError::Refused { .. } | SubmitError::Conflict(_) => OpError::Conflict(error.to_string()),
        SubmitError::Store(error) => OpError::Store(error),
    })
}

/// Returns the id of what a call sends.
pub(crate) fn event_id(call: &Invocation<'_>) -> EventId {
    match &call.site {
        Site::Api { key, .. } => key.clone().unwrap_or_else(ingress::fresh_id),
        Site::Turn(site) => call_id(call.venue, site),
    }
}

/// Sends a message; returns the ignored keys of its `sessionContext`.
pub(crate) async fn deliver(
    call: &Invocation<'_>,
    agent: &AgentId,
    id: EventId,
    submission: Submission,
) -> Result<Vec<String>, OpError> {
    let Site::Turn(site) = &call.site else {
        return Ok(submit(call, Some(id), agent, false, submission).await?.ignored);
    };
    find_existing(call, agent).await?;
    child::check_lineage(site, &submission.envelope.lineage, Some(agent))?;
    let arrival = Arrival {
        owner: call.caller.owner.clone(),
        agent: agent.clone(),
        task: false,
        id,
        submission,
        received: call.venue.now(),
        sequence: 0,
        by: Principal::ANYBODY,
        may_override: false,
    };
    ingress::check_entities(call.venue, &arrival).await.map_err(|error| match error {
        PreparationError::Submission(error) => OpError::Invalid(error.to_string()),
        PreparationError::Store(error) => OpError::Store(error),
    })?;
    send_effect(call, site, &arrival, InboundKind::Message, Vec::new()).await?;
    Ok(ingress::ignored_keys(&arrival))
}
