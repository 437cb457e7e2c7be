//! Timers as they are stored: set, listed, cancelled; [`fire`] sends what is due.
//!
//! A timer is a document with two places in indexes: among those that are due, always, and among
//! those of its agent while it fires. All are written together, under the version of the document.

mod fire;

pub use fire::{Next, Rung, fire, hurry, ring};

use crate::bus::Alarm;
use crate::domain::agent::AgentStatus;
use crate::domain::ids::{AgentId, Owner};
use crate::domain::limits::{TIMER_BYTES, TIMERS_PER_AGENT};
use crate::domain::principal::Principal;
use crate::domain::quota::Usage;
use crate::domain::time::Millis;
use crate::domain::timer::{Kind, Phase, Timer, TimerId, Wanted};
use crate::ingress::{self, Arrival};
use crate::store::{Change, DocWrite, Expect, StoreError, Window, Written, decode, keys, steps};
use crate::venue::Venue;
use crate::venue::agents;
use crate::venue::jobs::Listed;
use crate::venue::operation::OpError;
use bytes::Bytes;

/// Tries of a change that others get in the way of.
const TRIES: u32 = 16;

/// Timers of one page.
const PAGE: usize = 500;

/// A timer, and the version of its document, which is there without a timer, too.
pub async fn get(venue: &Venue, owner: &Owner, id: &TimerId) -> Result<(Option<Timer>, u64), StoreError> {
    let key = keys::timer(id);
    let doc = venue.store.read(owner, std::slice::from_ref(&key)).await?.pop().unwrap_or_default();
    Ok((doc.value.map(|bytes| decode(&key, &bytes)).transpose()?, doc.version))
}

/// A page of the timers of an owner, or of one agent, by the time at which they fire next: of those
/// that still fire, or of all that are kept. It ends where they would weigh more than [`crate::domain::limits::LIST_BYTES`].
pub async fn list(
    venue: &Venue,
    owner: &Owner,
    (agent, all): (Option<&AgentId>, bool),
    offset: usize,
    limit: usize,
) -> Result<Listed<Timer>, StoreError> {
    let mut known = Vec::new();
    let mut look = |timer: Timer| {
        if (all || timer.is_active()) && agent.is_none_or(|agent| timer.agent == *agent) {
            known.push((timer.next.is_none(), timer.due, timer.id.as_str().to_owned(), [keys::timer(&timer.id)]));
        }
    };
    each(venue, owner, &mut look).await?;
    known.sort();
    let places: Vec<_> = known.into_iter().map(|(.., key)| key).collect();
    let (items, next) = steps::page(&*venue.store, owner, &places, offset, limit).await?;
    Ok(Listed { items, total: places.len(), next })
}

/// Shows all timers that an owner keeps, one after the other.
pub async fn each(venue: &Venue, owner: &Owner, look: &mut (dyn FnMut(Timer) + Send)) -> Result<(), StoreError> {
    steps::each(&*venue.store, owner, keys::TIMERS, look).await
}

/// Sets a timer. The same again changes nothing; something else under its id replaces it.
pub async fn set(venue: &Venue, owner: &Owner, wanted: &Wanted) -> Result<Timer, OpError> {
    let agent = &wanted.agent;
    let missing = || OpError::NotFound(format!("no agent `{agent}`"));
    for _ in 0..TRIES {
        let now = venue.now();
        let (known, version) = get(venue, owner, &wanted.id).await?;
        if known.as_ref().is_some_and(|known| known.is_anothers(wanted)) {
            return Err(OpError::Conflict(ingress::SubmitError::Conflict(wanted.origin.clone()).to_string()));
        }
        let (record, _) = agents::get(venue, owner, agent).await?.ok_or_else(missing)?;
        let of_this_agent = |known: &&Timer| known.agent != *agent || known.agent_created == record.created;
        if let Some(known) = known.as_ref().filter(of_this_agent).filter(|known| known.is_as(wanted)) {
            return Ok(known.clone());
        }
        if record.status == AgentStatus::Terminated {
            return Err(OpError::Conflict(format!("agent `{agent}` is terminated, it takes no timers")));
        }
        let before = known.as_ref().map_or(0, |timer| timer.generation);
        let timer = Timer::new(wanted.clone(), before, record.created, now).map_err(OpError::Invalid)?;
        check(venue, owner, &timer, now)?;
        if !known.as_ref().is_some_and(|known| known.is_active() && known.agent == *agent) {
            check_number(venue, owner, agent).await?;
        }
        venue.room(owner, comes(known.as_ref(), &timer)).await?;
        if put(venue, owner, known.as_ref(), version, &timer).await? == Written::Done {
            return Ok(timer);
        }
    }
    Err(contended(&wanted.id).into())
}

/// What a timer adds in the place of the one `before`.
fn comes(before: Option<&Timer>, timer: &Timer) -> Usage {
    let weight = |timer: &Timer| serde_json::to_vec(timer).map_or(0, |bytes| bytes.len() as u64);
    let documents = match before {
        None => 3,
        Some(before) if before.is_active() => 0,
        // Its place among those that fire.
        Some(_) => 1,
    };
    let bytes = weight(timer).saturating_sub(before.map_or(0, weight));
    Usage { documents, bytes, ..Usage::default() }
}

fn contended(id: &TimerId) -> StoreError {
    StoreError::Unavailable { store: "documents".into(), reason: format!("timer `{id}` is being changed by others") }
}

/// Whether it could fire as it is: what would be refused then is refused now.
fn check(venue: &Venue, owner: &Owner, timer: &Timer, now: Millis) -> Result<(), OpError> {
    if let (Some(next), Some((ends, why))) = (timer.next, timer.ends())
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

/// The submission that a timer makes for a planned time.
fn arrival(venue: &Venue, owner: &Owner, timer: &Timer, at: Millis, now: Millis) -> Arrival {
    Arrival {
        owner: owner.clone(),
        agent: timer.agent.clone(),
        task: timer.kind == Kind::Task,
        id: timer.event(&venue.key, owner, at),
        submission: timer.submission.clone(),
        received: now,
        sequence: 0,
        by: Principal::ANYBODY,
        // Values are those of the request that set it: it was checked when it came.
        may_override: true,
    }
}

/// Cancels a timer. One that fires no more stays as it is.
pub async fn cancel(venue: &Venue, owner: &Owner, id: &TimerId) -> Result<Option<Timer>, StoreError> {
    end(venue, owner, id, &Phase::Cancelled).await
}

/// Deletes a timer with everything that it says.
pub async fn erase(venue: &Venue, owner: &Owner, id: &TimerId) -> Result<(), StoreError> {
    for _ in 0..TRIES {
        let (known, version) = get(venue, owner, id).await?;
        let Some(known) = known else { return Ok(()) };
        if forget(venue, owner, &known, version).await? == Written::Done {
            return Ok(());
        }
    }
    Err(contended(id))
}

/// Deletes the timer of this version with its places in the indexes.
async fn forget(venue: &Venue, owner: &Owner, timer: &Timer, version: u64) -> Result<Written, StoreError> {
    let delete = |key, expect| DocWrite { key, expect, change: Change::Delete };
    let writes = [
        delete(keys::timer(&timer.id), Expect::Version(version)),
        delete(keys::timer_due(timer.due, &timer.id), Expect::Any),
        delete(keys::agent_timer(&timer.agent, &timer.id), Expect::Any),
    ];
    venue.store.write(venue.now(), owner, &writes).await
}

/// Ends all timers of an agent that is there no more.
pub async fn fail_all(venue: &Venue, owner: &Owner, agent: &AgentId, error: &str) -> Result<(), StoreError> {
    let prefix = keys::agent_timers(agent);
    let failed = Phase::Failed { error: error.to_owned() };
    let mut after: Option<String> = None;
    loop {
        let page = venue.store.scan(owner, &prefix, after.as_deref(), false, PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(last.clone());
        for id in page.iter().filter_map(|(key, _)| TimerId::new(key.strip_prefix(&prefix)?).ok()) {
            end(venue, owner, &id, &failed).await?;
        }
    }
}

async fn end(venue: &Venue, owner: &Owner, id: &TimerId, phase: &Phase) -> Result<Option<Timer>, StoreError> {
    for _ in 0..TRIES {
        let (known, version) = get(venue, owner, id).await?;
        let Some(known) = known else { return Ok(None) };
        if !known.is_active() {
            return Ok(Some(known));
        }
        let timer = known.clone().ended(phase.clone(), venue.now());
        if put(venue, owner, Some(&known), version, &timer).await? == Written::Done {
            return Ok(Some(timer));
        }
    }
    Err(contended(id))
}

/// Writes a timer over `before`, with its places in the indexes.
async fn put(
    venue: &Venue,
    owner: &Owner,
    before: Option<&Timer>,
    version: u64,
    timer: &Timer,
) -> Result<Written, StoreError> {
    let bytes = Bytes::from(serde_json::to_vec(timer).expect("timers serialise"));
    let any = |key, change| DocWrite { key, expect: Expect::Any, change };
    let mut writes =
        vec![DocWrite { key: keys::timer(&timer.id), expect: Expect::Version(version), change: Change::Put(bytes) }];
    if let Some(before) = before {
        if before.due != timer.due {
            writes.push(any(keys::timer_due(before.due, &timer.id), Change::Delete));
        }
        if before.is_active() && !(timer.is_active() && timer.agent == before.agent) {
            writes.push(any(keys::agent_timer(&before.agent, &timer.id), Change::Delete));
        }
    }
    writes.push(any(keys::timer_due(timer.due, &timer.id), Change::Put(Bytes::new())));
    if timer.is_active() && !before.is_some_and(|before| before.is_active() && before.agent == timer.agent) {
        writes.push(any(keys::agent_timer(&timer.agent, &timer.id), Change::Put(Bytes::new())));
    }
    let written = venue.store.write(venue.now(), owner, &writes).await?;
    if written == Written::Done {
        arm(venue, owner, timer).await;
    }
    Ok(written)
}

/// Has the queue ring when the timer is due. What goes wrong costs time only: a sweep finds it.
async fn arm(venue: &Venue, owner: &Owner, timer: &Timer) {
    let Some(alarms) = venue.bus.alarms() else { return };
    let armed = match timer.phase {
        Phase::Active => {
            let Timer { id, generation, due, .. } = timer;
            let alarm = Alarm { owner: owner.clone(), timer: id.clone(), generation: *generation, at: *due };
            alarms.set(&alarm).await
        }
        // What has rung is gone.
        Phase::Fired => Ok(()),
        Phase::Cancelled | Phase::Failed { .. } => alarms.clear(owner, &timer.id).await,
    };
    if let Err(error) = armed {
        tracing::debug!(%owner, timer = %timer.id, %error, "alarm not set; the sweep will find the timer");
    }
}
