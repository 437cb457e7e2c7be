//! Setting of timers, after the checks of the submission that each will make; `fire` sends what is due.

mod fire;

pub use fire::{AlarmOutcome, OwnerRemainder, fire_alarm, fire_due, fire_early, fire_one_early};

use crate::domain::agent::AgentStatus;
use crate::domain::ids::{AgentId, Owner};
use crate::domain::limits::{TIMER_BYTES, TIMERS_PER_AGENT};
use crate::domain::principal::Principal;
use crate::domain::time::Millis;
use crate::domain::timer::{Timer, TimerKind, TimerRequest};
use crate::domain::values::entities;
use crate::store::{Edit, Window, keys};
use crate::venue::Venue;
use crate::venue::agents;
use crate::venue::ingress::{self, Arrival};
use crate::venue::operation::OpError;
use crate::venue::timers::{arm, get, replacement_writes};

/// Sets a timer. The same request again changes nothing; another one under its id replaces it.
pub async fn set(venue: &Venue, owner: &Owner, wanted: &TimerRequest) -> Result<Timer, OpError> {
    let agent = &wanted.agent;
    let missing = || OpError::NotFound(format!("no agent `{agent}`"));
    let quota = venue.quota().await;
    let attempt = || async {
        let now = venue.now();
        let (known, version) = get(venue, owner, &wanted.id).await?;
        if known.as_ref().is_some_and(|known| known.conflicts_with(wanted)) {
            return Err(OpError::Conflict(ingress::SubmitError::Conflict(wanted.origin.clone()).to_string()));
        }
        let (record, _) = agents::get(venue, owner, agent).await?.ok_or_else(missing)?;
        let of_this_agent = |known: &&Timer| known.agent != *agent || known.agent_created == record.created;
        if let Some(known) = known.as_ref().filter(of_this_agent).filter(|known| known.is_same_as(wanted)) {
            return Ok(Edit::without_writes((known.clone(), false)));
        }
        if record.status == AgentStatus::Terminated {
            return Err(OpError::Conflict(format!("agent `{agent}` is terminated, it takes no timers")));
        }
        let before = known.as_ref().map_or(0, |timer| timer.generation);
        let timer = Timer::new(wanted.clone(), before, record.created, now)
            .map_err(|error| OpError::Invalid(error.to_string()))?;
        check_timer(venue, owner, &timer, now)?;
        if record.config.entity_ids_required {
            let named = entities::ids(&record.config.entity_ids_key, &timer.submission.session_context);
            named.map_err(|error| {
                OpError::Invalid(format!("{error}; a timer has the values of the request that sets it"))
            })?;
        }
        if !known.as_ref().is_some_and(|known| known.is_active() && known.agent == *agent) {
            check_number(venue, owner, agent).await?;
        }
        Ok(Edit::write(replacement_writes(known.as_ref(), version, &timer), (timer, true)).with_quota(quota))
    };
    let (timer, changed) = venue.store.edit(venue.now(), owner, "timer", &wanted.id, attempt).await?;
    if changed {
        arm(venue, owner, &timer).await;
    }
    Ok(timer)
}

/// Checks that the timer could fire as it is: a submission that would be refused then is refused now.
fn check_timer(venue: &Venue, owner: &Owner, timer: &Timer, now: Millis) -> Result<(), OpError> {
    if let (Some(next), Some((ends, why))) = (timer.next, timer.end_of_authority())
        && next >= ends
    {
        let (next, ends) = (next.rfc3339(), ends.rfc3339());
        return Err(OpError::Invalid(format!("a timer for {next} would never fire: {why} at {ends}")));
    }
    let bytes = serde_json::to_vec(&timer.submission).map_or(0, |bytes| bytes.len());
    if bytes > TIMER_BYTES {
        return Err(OpError::Invalid(format!(
            "the timer has {bytes} bytes, expected at most {TIMER_BYTES}; put large values into `w/` and name their path"
        )));
    }
    let arrival = arrival(venue, owner, timer, timer.due, now);
    ingress::admission(venue, &arrival).map_err(|error| OpError::Invalid(error.to_string()))?;
    Ok(())
}

async fn check_number(venue: &Venue, owner: &Owner, agent: &AgentId) -> Result<(), OpError> {
    let window = Window { reverse: false, skip: 0, limit: 0, values: false };
    let number = venue.store.page(owner, &keys::agent_timers(agent), window).await?.total;
    if number < TIMERS_PER_AGENT {
        return Ok(());
    }
    Err(OpError::Conflict(format!(
        "agent `{agent}` has {number} timers, at most {TIMERS_PER_AGENT} may be; cancel some with `timer/cancel`, or use one with `every` or `cron`"
    )))
}

/// Returns the submission that a timer makes for a planned time.
fn arrival(venue: &Venue, owner: &Owner, timer: &Timer, at: Millis, now: Millis) -> Arrival {
    Arrival {
        owner: owner.clone(),
        agent: timer.agent.clone(),
        task: timer.kind == TimerKind::Task,
        id: timer.event_id(&venue.key, owner, at),
        submission: timer.submission.clone(),
        received: now,
        sequence: 0,
        by: Principal::ANYBODY,
        // The values of the request that set the timer were checked when it arrived.
        may_override: true,
        trace: None,
    }
}
