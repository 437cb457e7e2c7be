//! Firing of timers: what is due is submitted, and the timer is moved to its next time.
//!
//! The submission comes first: after a crash between the two it is sent again under the same id, which admission
//! recognises.

use super::arrival;
use crate::bus::Alarm;
use crate::domain::agent::AgentStatus;
use crate::domain::event::EventKind;
use crate::domain::ids::{AgentId, JobId, Owner, SessionKey};
use crate::domain::lattice::layout::Scope;
use crate::domain::time::Millis;
use crate::domain::timer::{DeliveryResult, OverlapPolicy, SentEvent, Timer, TimerId, TimerKind};
use crate::store::{Refusal, StoreError, keys};
use crate::venue::Venue;
use crate::venue::agents;
use crate::venue::ingress::{self, SubmitError};
use crate::venue::jobs;
use crate::venue::policy;
use crate::venue::timers::{deletion_writes, get, replace};
use std::time::Duration;

/// Timers of one owner that one step reads.
const TIMERS: usize = 64;

/// What is left to do for an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OwnerRemainder {
    /// Whether more timers are due now.
    pub more: bool,
    /// When the next timer is due.
    pub at: Option<Millis>,
}

/// Fires the due timers of an owner. Any process may do it at any time, and several at once.
pub async fn fire_due(venue: &Venue, owner: &Owner) -> Result<OwnerRemainder, StoreError> {
    let now = venue.now();
    let mut first = list_due(venue, owner, TIMERS).await?;
    let more = first.len() == TIMERS && first.iter().all(|(due, _)| *due <= now);
    first.retain(|(due, _)| *due <= now);
    for (due, id) in &first {
        match handle_due(venue, owner, *due, id, now).await {
            Ok(()) => {}
            // A damaged timer must not delay others.
            Err(error @ StoreError::Corrupt { .. }) => tracing::warn!(%owner, timer = %id, %error, "timer not fired"),
            Err(error) => return Err(error),
        }
    }
    let left = list_due(venue, owner, first.len() + 1).await?;
    Ok(OwnerRemainder { more, at: left.into_iter().map(|(due, _)| due).find(|due| *due > now) })
}

/// Returns the timers of an owner that are due first.
async fn list_due(venue: &Venue, owner: &Owner, limit: usize) -> Result<Vec<(Millis, TimerId)>, StoreError> {
    let found = venue.store.scan(owner, keys::TIMERS_DUE, None, false, limit).await?;
    Ok(found.iter().filter_map(|(key, _)| keys::timer_of_due(key)).collect())
}

/// Result of an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlarmOutcome {
    /// The timer has fired, here or elsewhere at the same moment.
    Fired,
    /// Nothing was done: the timer doesn't exist, or has another time.
    Stale,
    /// Nothing was done: by the clock here the timer is due after this time.
    Early(Duration),
}

/// Fires the timer of an alarm, if it is still due then. Any number of processes may do it at once.
pub async fn fire_alarm(venue: &Venue, alarm: &Alarm) -> Result<AlarmOutcome, StoreError> {
    let now = venue.now();
    let Alarm { owner, timer, generation, at } = alarm;
    let (known, version) = get(venue, owner, timer).await?;
    let meant = |timer: &Timer| timer.is_active() && timer.generation == *generation && timer.due == *at;
    let Some(timer) = known.filter(meant) else { return Ok(AlarmOutcome::Stale) };
    if *at > now {
        return Ok(AlarmOutcome::Early(at.elapsed_since(now)));
    }
    advance(venue, owner, &timer, version, now).await?;
    Ok(AlarmOutcome::Fired)
}

/// Fires the one-time timers of an agent now; recurring ones keep their times. Returns which were fired.
pub async fn fire_early(venue: &Venue, owner: &Owner, agent: &AgentId) -> Result<Vec<TimerId>, StoreError> {
    let mut fired = Vec::new();
    let prefix = keys::agent_timers(agent);
    let mut places = venue.store.entries(owner, &prefix);
    while let Some(page) = places.keys().await? {
        for id in page.iter().filter_map(|key| TimerId::new(key.strip_prefix(&prefix)?).ok()) {
            if fire_one_early(venue, owner, &id).await? {
                fired.push(id);
            }
        }
    }
    Ok(fired)
}

/// Fires a one-time timer now; `false` if it isn't such a timer, or was moved meanwhile.
pub async fn fire_one_early(venue: &Venue, owner: &Owner, id: &TimerId) -> Result<bool, StoreError> {
    let now = venue.now();
    let (known, version) = get(venue, owner, id).await?;
    let Some((known, hurried)) = known.and_then(|known| known.due_now(now).map(|new| (known, new))) else {
        return Ok(false);
    };
    // On a conflict the timer was moved, or fires at this moment.
    if !replace(venue, owner, &known, version, &hurried).await? {
        return Ok(false);
    }
    handle_due(venue, owner, now, id, now).await?;
    Ok(true)
}

/// Handles one timer that is due: fires it, or deletes it if it has ended.
async fn handle_due(venue: &Venue, owner: &Owner, due: Millis, id: &TimerId, now: Millis) -> Result<(), StoreError> {
    let (known, version) = get(venue, owner, id).await?;
    // Otherwise the timer was moved meanwhile.
    let Some(timer) = known.filter(|timer| timer.due == due) else { return Ok(()) };
    if !timer.is_active() {
        // The retention is over. On a conflict the timer was set anew.
        venue.store.write(now, owner, &deletion_writes(&timer, version)).await?;
        return Ok(());
    }
    advance(venue, owner, &timer, version, now).await
}

/// Sends what is due of an active timer, and moves the timer to its next time.
async fn advance(venue: &Venue, owner: &Owner, timer: &Timer, version: u64, now: Millis) -> Result<(), StoreError> {
    let moved = send_due(venue, owner, timer, now).await?;
    // On a conflict another process was faster, or the timer was cancelled: the stored timer counts.
    replace(venue, owner, timer, version, &moved).await?;
    Ok(())
}

/// Sends everything of a timer that is due; returns the timer after it.
async fn send_due(venue: &Venue, owner: &Owner, timer: &Timer, now: Millis) -> Result<Timer, StoreError> {
    let mut due = timer.due(now);
    if let Some(at) = timer.next.filter(|at| *at <= now && due.fire.first() != Some(at))
        && was_sent(venue, owner, timer, at).await?
    {
        due.fire.insert(0, at);
        due.skipped = due.skipped.saturating_sub(1);
    }
    let mut done = Vec::with_capacity(due.fire.len());
    let mut last = timer.last.clone();
    for at in &due.fire {
        let delivered = submit_planned(venue, owner, timer, *at, last.as_ref()).await?;
        let stop = matches!(delivered, DeliveryResult::Later | DeliveryResult::Failed(_));
        if let DeliveryResult::Sent(sent) = &delivered {
            last = Some(sent.clone());
        }
        done.push(delivered);
        if stop {
            break;
        }
    }
    let moved = timer.clone().after_delivery(&due, done, now);
    tracing::debug!(%owner, timer = %timer.id, agent = %timer.agent, fired = moved.fired, "timer fired");
    Ok(moved)
}

async fn submit_planned(
    venue: &Venue,
    owner: &Owner,
    timer: &Timer,
    at: Millis,
    last: Option<&SentEvent>,
) -> Result<DeliveryResult, StoreError> {
    let agent = &timer.agent;
    match agents::get(venue, owner, agent).await? {
        Some((record, _)) if record.created != timer.agent_created => {
            return Ok(DeliveryResult::Failed(format!("agent `{agent}` was removed; another one has its name now")));
        }
        Some((record, _)) if record.status == AgentStatus::Terminated => {
            return Ok(DeliveryResult::Failed(format!("agent `{agent}` is terminated")));
        }
        Some((record, _)) => {
            let (policy, _) = policy::load_in_force(&*venue.store, owner).await?;
            if let Some(reason) = record.stop_reason(&policy, &timer.submission.envelope, &Scope::default()) {
                return Ok(DeliveryResult::Failed(reason));
            }
        }
        None => return Ok(DeliveryResult::Failed(format!("agent `{agent}` was removed"))),
    }
    if timer.overlap == OverlapPolicy::Skip
        && let Some(last) = last
        // A submission that is sent again after a crash doesn't overlap itself.
        && last.at < at
        && is_open(venue, owner, timer, last).await?
    {
        return Ok(DeliveryResult::Skipped);
    }
    Ok(match ingress::submit(venue, &arrival(venue, owner, timer, at, venue.now())).await {
        Ok(sent) => {
            DeliveryResult::Sent(SentEvent { at, event: sent.id, job: sent.job, session: sent.session.session })
        }
        Err(
            SubmitError::Store(StoreError::Full { .. })
            | SubmitError::Refused { refusal: Refusal::MailboxFull { .. } | Refusal::Quota(_), .. },
        ) => DeliveryResult::Later,
        Err(SubmitError::Store(error)) => return Err(error),
        Err(SubmitError::Refused { refusal: Refusal::Busy, .. }) => DeliveryResult::Skipped,
        Err(error) => DeliveryResult::Failed(error.to_string()),
    })
}

/// Whether another process has sent the job of a time that would now be skipped, and died before it recorded that: the
/// time counts as fired. For a message this can't be known once it is read.
async fn was_sent(venue: &Venue, owner: &Owner, timer: &Timer, at: Millis) -> Result<bool, StoreError> {
    if timer.kind == TimerKind::Message {
        return Ok(false);
    }
    let job = JobId::derive(&venue.key, owner, &timer.event_id(&venue.key, owner, at));
    Ok(jobs::get(venue, owner, &job).await?.is_some())
}

/// Whether the work of an event isn't finished: its job hasn't ended, or it is in the mailbox.
async fn is_open(venue: &Venue, owner: &Owner, timer: &Timer, sent: &SentEvent) -> Result<bool, StoreError> {
    if let Some(job) = &sent.job {
        return Ok(jobs::get(venue, owner, job).await?.is_some_and(|job| !job.status.is_terminal()));
    }
    let key = SessionKey { agent: timer.agent.clone(), session: sent.session.clone() };
    let Some(facts) = agents::sessions::find(venue, owner, &key).await? else { return Ok(false) };
    let is_its = |key: &str| key.split_once('|').is_some_and(|(_, id)| id == sent.event.as_str());
    Ok(facts.mailbox.iter().any(|entry| entry.kind == EventKind::Message && is_its(&entry.key)))
}
