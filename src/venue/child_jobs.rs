//! Jobs that a turn starts, for agents and for external workers.
//!
//! They are effects under ids that are a function of the turn, fenced by its lease: a turn that is run again starts
//! nothing twice.

use crate::domain::ids::{AgentId, EventId, SessionKey};
use crate::domain::invocation::{self, InvokedOperation};
use crate::domain::job::JobHead;
use crate::domain::limits::pipeline::{PIPELINE_BRANCHES, PIPELINE_CHILDREN};
use crate::domain::limits::{OUTBOUND_ORPHAN, RUN_CHILDREN, SESSION_CHILDREN};
use crate::domain::lineage::Lineage;
use crate::domain::message::BusMessage;
use crate::domain::quota::QuotaUsage;
use crate::domain::scope::{HandOffRecord, ScopedSection};
use crate::store::{Checkpoint, LeaseCheck, NewJob, keys};
use crate::venue::Venue;
use crate::venue::agents::sessions;
use crate::venue::ingress;
use crate::venue::operation::{Invocation, OpError, OpOutput, TurnSite};
use crate::venue::operation_jobs::keep_child;
use crate::venue::outbox;
use crate::view::request::StartedRequestView;
use crate::view::to_json;
use std::time::Duration;

/// Longest wait of one call.
pub(crate) const MAX_TIMEOUT: Duration = Duration::from_secs(280);

/// Returns the wait that a call names in milliseconds, bounded by [`MAX_TIMEOUT`].
pub(crate) fn millis(named: Option<u64>, default: Duration) -> Duration {
    named.map_or(default, Duration::from_millis).min(MAX_TIMEOUT)
}

/// Returns the id of what a call of a turn sends.
pub(crate) fn call_id(venue: &Venue, site: &TurnSite<'_>) -> EventId {
    EventId::of_venue(&venue.key, site.id_of_call())
}

/// Returns the result of a call whose child is still running.
pub(crate) fn still_running(site: &TurnSite<'_>, started: StartedRequestView) -> OpOutput {
    let started = StartedRequestView { scoped: handed_records(site), ..started };
    OpOutput { value: to_json(&started), started: Some(started.job) }
}

/// Returns the sections of the caller's context that went with a call, and why others didn't; `None` without any.
pub(crate) fn handed_records(site: &TurnSite<'_>) -> Option<Vec<HandOffRecord>> {
    (!site.handed.is_empty()).then(|| site.handed.iter().map(ScopedSection::to_record).collect())
}

/// Checks that the turn may send something to an agent under this lineage; `None` is an agent without a name. Refused
/// calls of the same reply count as calls before it.
pub(crate) fn check_lineage(site: &TurnSite<'_>, lineage: &Lineage, to: Option<&AgentId>) -> Result<(), OpError> {
    lineage.check_target(to).map_err(|error| OpError::Limit(error.to_string()))?;
    let limit = if site.is_pipeline { PIPELINE_CHILDREN } else { RUN_CHILDREN };
    if site.run_children >= limit {
        return Err(OpError::Limit(format!(
            "{limit} requests, messages and timers were begun for this task already, at most {limit} may be; finish with \
             what you have"
        )));
    }
    Ok(())
}

/// Checks that the turn may start one more job.
pub(crate) fn check_limits(site: &TurnSite<'_>, lineage: &Lineage, to: Option<&AgentId>) -> Result<(), OpError> {
    check_lineage(site, lineage, to)?;
    let limit = if site.is_pipeline { PIPELINE_BRANCHES } else { SESSION_CHILDREN };
    if site.children >= limit {
        return Err(OpError::Limit(format!(
            "{limit} requests are running already, at most {limit} may; wait for their results"
        )));
    }
    Ok(())
}

/// Writes the message and the job it opens as an effect of the running turn, and publishes it. Callers check
/// the limits before, by [`check_limits`] or [`check_lineage`].
pub(crate) async fn start_effect(
    call: &Invocation<'_>,
    site: &TurnSite<'_>,
    id: &EventId,
    message: &BusMessage,
    open: Vec<NewJob>,
) -> Result<(), OpError> {
    let entries = vec![outbox::make_entry(id.to_string(), message)];
    let write = Checkpoint { turn: site.turn, open, outbox: entries.clone(), ..Checkpoint::default() };
    match call.venue.store.checkpoint(call.venue.now(), site.lease, &write).await? {
        LeaseCheck::Fenced => Err(OpError::Fenced),
        LeaseCheck::Held { .. } => {
            Box::pin(call.venue.relay_at_once(&call.caller.owner, &entries)).await;
            Ok(())
        }
    }
}

/// Opens the job of an operation as an effect of the running turn, fenced by its lease, with the record by which workers run
/// it. A turn that is run again opens nothing twice. `bytes` are those that are kept besides the head.
pub(crate) async fn open_operation(
    call: &Invocation<'_>,
    site: &TurnSite<'_>,
    head: &JobHead,
    invoked: &InvokedOperation,
    bytes: usize,
) -> Result<(), OpError> {
    let (venue, owner) = (call.venue, &call.caller.owner);
    let open = vec![ingress::new_job(head)];
    // The job has a head, a status and an entry in the list; its record has a document and an entry by time.
    let adds = QuotaUsage { documents: 5, bytes: (2 * open[0].head.len() + bytes) as u64, sessions: 0, jobs: 1 };
    check_room(call, adds, &open, None).await?;
    keep_child(venue, owner, invoked, venue.now().plus(OUTBOUND_ORPHAN)).await?;
    let write = Checkpoint { turn: site.turn, open, ..Checkpoint::default() };
    match venue.store.checkpoint(venue.now(), site.lease, &write).await? {
        LeaseCheck::Fenced => return Err(OpError::Fenced),
        LeaseCheck::Held { .. } => {}
    }
    // The job is open: its record is due anyway, if later.
    if let Err(error) = keep_child(venue, owner, invoked, venue.now()).await {
        tracing::warn!(%owner, job = %head.id, %error, "a call that goes on is looked at late");
    }
    venue.wake(owner, &invocation::session(&head.id)).await;
    Ok(())
}

/// Checks that the owner's quota has room for what a turn starts, and for the session that it goes to, if that is new.
/// What the turn has started before needs no room.
pub(crate) async fn check_room(
    call: &Invocation<'_>,
    adds: QuotaUsage,
    open: &[NewJob],
    to: Option<&SessionKey>,
) -> Result<(), OpError> {
    let (venue, owner) = (call.venue, &call.caller.owner);
    let all = QuotaUsage { sessions: u64::from(to.is_some()), ..adds };
    let Err(refused) = venue.check_room(owner, all).await else { return Ok(()) };
    let heads: Vec<_> = open.iter().map(|open| keys::job_head(&open.job)).collect();
    let known = venue.store.read(owner, &heads).await?;
    if !known.is_empty() && known.iter().all(|head| head.value.is_some()) {
        return Ok(());
    }
    if let Some(to) = to
        && sessions::find(venue, owner, to).await?.is_some()
    {
        return Ok(venue.check_room(owner, adds).await?);
    }
    Err(refused.into())
}
