//! Rate limits of model providers, for the whole fleet: how many calls run at once, and how many calls and tokens there
//! are in a minute.
//!
//! A call is booked before it is made and settled with its real use. A meter holds two times and a list: a time says
//! how far ahead of now the booked calls reach when each takes its share of a minute (the generic cell rate algorithm).
//! So a minute's worth may come at once, and nothing needs to be counted down.

mod reserve;
mod turns;

pub use reserve::{OversizedCallError, reserve};

use crate::chat::ModelSettings;
use crate::time::Millis;
use crate::unknown_fields::UnknownFields;
use crate::wait::WaitCause;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use turns::{PassedTurns, QueuePlace, last_of_most_frequent, owner_of, tenant_of};

/// Microseconds of the window in which calls and tokens are counted.
const MINUTE: u64 = 60_000_000;

/// Microseconds ahead of now beyond which a booking was made by a worker with a wrong clock.
const MAX_AHEAD: u64 = 15 * MINUTE;

/// Longest time until a call counts as lost; a later one was booked by a wrong clock, too.
const MAX_CALL_TIME: Duration = Duration::from_hours(2);

/// Pause of a call that waits for another to end and gets no wake: its worker may have died.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Number of calls that are woken when a call ends; further ones try again by themselves.
const LINE_LENGTH: usize = 100;

/// Calls that hold tokens alone are scanned whenever their number is a multiple of this.
const PRUNED: usize = 64;

/// Delay after which a call that waits for tokens loses its place.
const GRACE: Duration = Duration::from_secs(15);

/// Delay up to which a late call gets its old place back: it may have waited for a slot.
const PLACE_KEPT: Duration = Duration::from_mins(10);

/// Longest pause of a waiting call: a cancelled one keeps its place no longer than this and [`GRACE`].
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Number of calls that have a place among those that wait for tokens; further ones get none until one of these is
/// made.
const QUEUE_LENGTH: usize = 200;

/// Number of calls that are woken at most when one ends and releases tokens.
const MAX_WOKEN: usize = 4;

/// Limit of a provider, or of one of its models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimit {
    /// Scope of the limit: `provider`, for all of its models together, or `provider/name`.
    pub of: String,
    /// Number of calls at once.
    pub concurrency: Option<u32>,
    /// Number of calls per minute.
    pub requests: Option<u32>,
    /// Tokens per minute, of prompts and replies.
    pub tokens: Option<u64>,
}

/// Calls that run under a limit, and the use of the last minute.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Meter {
    /// Time that the booked calls reach, in microseconds.
    #[serde(skip_serializing_if = "is_zero")]
    requests: u64,
    /// Time that the booked tokens reach, in microseconds.
    #[serde(skip_serializing_if = "is_zero")]
    tokens: u64,
    /// Calls that run, by id.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    running: BTreeMap<String, RunningCall>,
    /// Ids of the calls that wait for a call to end, the first one first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    line: Vec<String>,
    /// The call that has waited longest for tokens; older builds know only this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<WaitingCall>,
    /// Calls that wait behind it, the longest wait first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    behind: Vec<WaitingCall>,
    /// Fields that a newer build wrote.
    #[serde(flatten)]
    kept: UnknownFields,
}

/// A call that waits for tokens: calls that have waited less leave room for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct WaitingCall {
    id: String,
    /// Share of a minute that its tokens take, in microseconds.
    share: u64,
    /// Time at which its reservation lapses.
    until: Millis,
    /// Time of its first try, under any limit: a call has the same time under all, so that no two calls wait for each
    /// other. Absent in records of older builds.
    #[serde(default)]
    since: Millis,
    /// Time at which a call of its owner was last made while it waited: then it was the turn of other owners.
    #[serde(default, skip_serializing_if = "is_start")]
    passed: Millis,
    /// Time at which a call of its tenant was last made while it waited.
    #[serde(default, skip_serializing_if = "is_start")]
    tenant_passed: Millis,
    /// Whether it was woken because there is room.
    #[serde(default, skip_serializing_if = "is_false")]
    told: bool,
}

/// A call that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct RunningCall {
    /// Time after which the call is treated as lost and its slot is freed.
    until: Millis,
    /// Time that its own tokens reach, in microseconds.
    tokens: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_start(at: &Millis) -> bool {
    at.0 == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// A call that is about to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RatedCall {
    /// Its session and turn: a repetition of the call takes its place.
    pub id: String,
    /// Tokens of its prompt and of its longest reply.
    pub tokens: u64,
    /// Time after which the call is treated as lost and its slot is freed.
    pub until: Millis,
}

impl WaitingCall {
    fn queue_place(&self) -> QueuePlace<'_> {
        QueuePlace::new(&self.id, self.since, PassedTurns { tenant: self.tenant_passed, owner: self.passed })
    }
}

/// A call that has to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateWait {
    /// Time of the next try.
    pub until: Millis,
    /// Name of the limit in words.
    pub reason: String,
    /// Whether it is woken when it may be tried sooner.
    pub told: bool,
    /// Kind of the limit.
    pub cause: WaitCause,
}

impl fmt::Display for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.of)?;
        let (calls, tokens) = (self.concurrency.map(u64::from), self.tokens);
        for (name, value) in [("concurrency", calls), ("requests", self.requests.map(u64::from)), ("tokens", tokens)] {
            if let Some(value) = value {
                write!(f, ":{name}={value}")?;
            }
        }
        Ok(())
    }
}

impl RateLimit {
    /// Reads `openai:requests=500:tokens=200000, openai/gpt-4o:concurrency=10`.
    pub fn list(text: &str) -> Option<Vec<Self>> {
        let all: Vec<_> =
            text.split(',').map(str::trim).filter(|text| !text.is_empty()).map(Self::parse).collect::<Option<_>>()?;
        let twice = all.iter().enumerate().any(|(at, limit)| all[..at].iter().any(|other| other.of == limit.of));
        (!twice).then_some(all)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let of = parts.next()?.trim();
        let mut limit = Self { of: of.to_owned(), concurrency: None, requests: None, tokens: None };
        for part in parts {
            let (name, value) = part.split_once('=')?;
            match name.trim() {
                "concurrency" => limit.concurrency = Some(value.trim().parse().ok().filter(|n| *n > 0)?),
                "requests" => limit.requests = Some(value.trim().parse().ok().filter(|n| *n > 0)?),
                "tokens" => limit.tokens = Some(value.trim().parse().ok().filter(|n| *n > 0)?),
                _ => return None,
            }
        }
        let says = limit.concurrency.is_some() || limit.requests.is_some() || limit.tokens.is_some();
        (says && !of.is_empty() && !of.contains(char::is_whitespace)).then_some(limit)
    }

    /// Whether calls of a model count.
    pub fn covers(&self, model: &ModelSettings) -> bool {
        self.of == model.provider || self.of == model.id()
    }

    /// Whether a running call holds a part of it that is free when the call ends. Calls per minute are used up when
    /// they are booked.
    pub const fn is_held_while_running(&self) -> bool {
        self.concurrency.is_some() || self.tokens.is_some()
    }

    /// Removes calls that don't count, where their number makes the scan worth its cost.
    fn prune(&self, meter: &mut Meter, now: Millis) {
        match (self.concurrency, self.tokens) {
            (Some(limit), _) if !is_full(meter.running.len(), limit) => {}
            (Some(_), _) | (None, None) => meter.running.retain(|_, running| is_current(running.until, now)),
            (None, Some(_)) if !meter.running.len().is_multiple_of(PRUNED) => {}
            // Time that has passed can't be given back.
            (None, Some(_)) => meter.running.retain(|_, running| micros_ahead(running.tokens, now) > 0),
        }
    }

    /// Checks that one more call fits; the error says why it doesn't, and until when it waits.
    fn check(&self, meter: &Meter, call: &RatedCall, place: QueuePlace<'_>, now: Millis) -> Result<(), RateWait> {
        let others = meter.running.len() - usize::from(meter.running.contains_key(&call.id));
        if let Some(limit) = self.concurrency
            && is_full(others, limit)
        {
            let reason = format!("rate limit of `{}`: {limit} calls at once", self.of);
            let cause = WaitCause::ProviderLimit;
            return Err(RateWait { until: now.plus(LOOK_AGAIN), reason, told: true, cause });
        }
        let kept = meter.reserved_before(place, now);
        let shares = [
            (self.requests.map(u64::from), meter.requests, 0, 1, "requests", false),
            (self.tokens, meter.tokens, kept, call.tokens, "tokens", true),
        ];
        for (limit, reached, kept, amount, what, told) in shares {
            let Some(limit) = limit else { continue };
            let ahead = micros_ahead(reached, now).saturating_add(kept);
            // A call larger than a minute's worth was refused before, unless the limits were lowered meanwhile: then it
            // is made when nothing else runs, because it would never be otherwise.
            let over = ahead.saturating_add(share(amount, limit)).saturating_sub(MINUTE);
            if over > 0 && ahead > 0 {
                let pause = Duration::from_micros(over.min(ahead)).min(LONGEST_PAUSE);
                let reason = format!("rate limit of `{}`: {limit} {what} per minute", self.of);
                let (until, cause) = (now.plus(pause.max(Duration::from_millis(1))), WaitCause::ProviderLimit);
                return Err(RateWait { until, reason, told, cause });
            }
        }
        Ok(())
    }

    /// Adds a call that has to wait for another to end to the line, or keeps its place there.
    fn join_line(&self, meter: &mut Meter, call: &RatedCall) {
        if self.concurrency.is_none() || meter.line.contains(&call.id) {
            return;
        }
        if meter.line.len() >= LINE_LENGTH
            && let Some(at) = last_of_most_frequent(meter.line.iter().map(String::as_str), &call.id)
        {
            meter.line.remove(at);
        }
        if meter.line.len() < LINE_LENGTH {
            meter.line.push(call.id.clone());
        }
    }

    /// Adds a call that has to wait for tokens to the queue, or keeps its place there, also if it now waits for
    /// something else.
    fn queue(&self, meter: &mut Meter, call: &RatedCall, wait: &RateWait, place: QueuePlace<'_>, now: Millis) {
        let Some(limit) = self.tokens else { return };
        let share = share(call.tokens, limit);
        let kept = meter.reserved_before(place, now);
        let is_short = micros_ahead(meter.tokens, now).saturating_add(kept).saturating_add(share) > MINUTE;
        let mut queue = meter.take_queue(now);
        let known = queue.iter().position(|waiting| waiting.id == call.id);
        if let Some(known) = known {
            queue.remove(known);
        }
        if queue.len() >= QUEUE_LENGTH {
            let lost = queue.iter().rposition(|waiting| !is_current(waiting.until, now));
            let ids = queue.iter().map(|waiting| waiting.id.as_str());
            if let Some(lost) = lost.or_else(|| last_of_most_frequent(ids, &call.id)) {
                queue.remove(lost);
            }
        }
        if known.is_some() || is_short && queue.len() < QUEUE_LENGTH {
            let QueuePlace { tenant_turn, turn, since, .. } = place;
            let (until, id) = (wait.until.plus(GRACE), call.id.clone());
            let own = WaitingCall { id, share, until, since, passed: turn, tenant_passed: tenant_turn, told: false };
            queue.insert(queue.partition_point(|other| other.queue_place() < place), own);
        }
        meter.set_queue(queue);
    }

    fn book(&self, meter: &mut Meter, call: &RatedCall, now: Millis) {
        if meter.first.is_some() {
            let mut queue = meter.take_queue(now);
            queue.retain(|waiting| waiting.id != call.id);
            for other in queue.iter_mut().filter(|other| tenant_of(&other.id) == tenant_of(&call.id)) {
                other.tenant_passed = other.tenant_passed.max(now);
                if owner_of(&other.id) == owner_of(&call.id) {
                    other.passed = other.passed.max(now);
                }
            }
            queue.sort_by(|one, other| one.queue_place().cmp(&other.queue_place()));
            meter.set_queue(queue);
        }
        meter.line.retain(|id| *id != call.id);
        if let Some(limit) = self.requests {
            meter.requests = micros(now) + micros_ahead(meter.requests, now) + share(1, u64::from(limit));
        }
        if let Some(limit) = self.tokens {
            meter.tokens = micros(now) + micros_ahead(meter.tokens, now) + share(call.tokens, limit);
        }
        if self.is_held_while_running() {
            meter.running.insert(call.id.clone(), RunningCall { until: call.until, tokens: meter.tokens });
        }
    }

    /// Releases the unused part, and returns the ids of calls to wake because a place or tokens are free.
    fn settle(&self, meter: &mut Meter, call: &RatedCall, used: u64, now: Millis) -> Vec<String> {
        let own = meter.running.remove(&call.id);
        let mut told: Vec<_> = meter.take_next_in_line().into_iter().collect();
        let Some(limit) = self.tokens else { return told };
        let (booked, used) = (share(call.tokens, limit), share(used, limit));
        if used > booked {
            meter.tokens = micros(now) + micros_ahead(meter.tokens, now) + (used - booked);
        } else {
            // Time that has passed was held from others, and can't be given back.
            let left = own.map_or(0, |own| micros_ahead(own.tokens, now));
            meter.tokens = meter.tokens.saturating_sub((booked - used).min(left));
        }
        told.extend(meter.wake_with_room(now));
        told
    }
}

impl Meter {
    /// Removes the next call from the line: of the tenant, and within it of the owner, with the fewest running calls.
    fn take_next_in_line(&mut self) -> Option<String> {
        let running = |id: &str| {
            let of_tenant = self.running.keys().filter(|other| tenant_of(other) == tenant_of(id));
            (of_tenant.clone().count(), of_tenant.filter(|other| owner_of(other) == owner_of(id)).count())
        };
        let (at, _) = self.line.iter().enumerate().min_by_key(|(_, id)| running(id))?;
        Some(self.line.remove(at))
    }

    /// Returns the share of a minute that is kept for waiting calls before this place, in microseconds.
    fn reserved_before(&self, place: QueuePlace<'_>, now: Millis) -> u64 {
        let queue = self.first.iter().chain(&self.behind);
        let earlier = queue.filter(|other| other.id != place.id && other.queue_place() < place);
        earlier.filter(|other| is_current(other.until, now)).fold(0, |sum, other| sum.saturating_add(other.share))
    }

    /// Takes the calls that wait for tokens, the longest wait first, with those that lost their place not long ago.
    fn take_queue(&mut self, now: Millis) -> Vec<WaitingCall> {
        let mut queue: Vec<_> = self.first.take().into_iter().chain(std::mem::take(&mut self.behind)).collect();
        queue.retain(|waiting| is_current(waiting.until.plus(PLACE_KEPT), now));
        queue
    }

    fn set_queue(&mut self, queue: Vec<WaitingCall>) {
        let mut queue = queue.into_iter();
        self.first = queue.next();
        self.behind = queue.collect();
    }

    /// Returns the ids of the calls that have waited longest and for which tokens are free, each once.
    fn wake_with_room(&mut self, now: Millis) -> Vec<String> {
        if self.first.is_none() {
            return Vec::new();
        }
        let (mut queue, mut told, mut reached) = (self.take_queue(now), Vec::new(), micros_ahead(self.tokens, now));
        for waiting in queue.iter_mut().filter(|waiting| is_current(waiting.until, now)) {
            let before = reached;
            reached = reached.saturating_add(waiting.share);
            if told.len() == MAX_WOKEN || reached > MINUTE && before > 0 {
                break;
            }
            if !waiting.told {
                waiting.told = true;
                told.push(waiting.id.clone());
            }
        }
        self.set_queue(queue);
        told
    }
}

/// Whether a time is not over, and was booked by a clock that can be right.
fn is_current(until: Millis, now: Millis) -> bool {
    until > now && until.elapsed_since(now) <= MAX_CALL_TIME
}

/// Whether `calls` calls are as many as may run at once.
fn is_full(calls: usize, limit: u32) -> bool {
    calls >= usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Returns the microseconds by which a time is ahead of now.
const fn micros_ahead(reached: u64, now: Millis) -> u64 {
    let ahead = reached.saturating_sub(micros(now));
    if ahead > MAX_AHEAD { 0 } else { ahead }
}

const fn micros(at: Millis) -> u64 {
    at.0.saturating_mul(1_000)
}

/// Returns the microseconds of a minute that an amount takes of a limit.
const fn share(amount: u64, limit: u64) -> u64 {
    amount.saturating_mul(MINUTE) / limit
}

/// Books a call under all of its limits, or under none: then it gets a place among those that wait.
pub fn book(limits: &[RateLimit], meters: &mut [Meter], call: &RatedCall, now: Millis) -> Result<(), RateWait> {
    let pairs = || limits.iter().zip(0..);
    for (limit, at) in pairs() {
        limit.prune(&mut meters[at], now);
    }
    let place = find_queue_place(meters, call, now);
    let waits = pairs().filter_map(|(limit, at)| limit.check(&meters[at], call, place, now).err());
    if let Some(longest) = waits.max_by_key(|wait| wait.until) {
        for (limit, at) in pairs() {
            limit.join_line(&mut meters[at], call);
            limit.queue(&mut meters[at], call, &longest, place, now);
        }
        return Err(longest);
    }
    for (limit, at) in pairs() {
        limit.book(&mut meters[at], call, now);
    }
    Ok(())
}

/// Returns the place of a call. It is the same under all of its limits, so that no two calls wait for each other.
fn find_queue_place<'c>(meters: &[Meter], call: &'c RatedCall, now: Millis) -> QueuePlace<'c> {
    let waiting = meters.iter().flat_map(|meter| meter.first.iter().chain(&meter.behind));
    let own = waiting.filter(|waiting| waiting.id == call.id && is_current(waiting.until.plus(PLACE_KEPT), now));
    let (mut since, mut passed) = (None, PassedTurns::default());
    for waiting in own {
        since = since.into_iter().chain([waiting.since]).min();
        passed.owner = passed.owner.max(waiting.passed);
        passed.tenant = passed.tenant.max(waiting.tenant_passed);
    }
    QueuePlace::new(&call.id, since.unwrap_or(now), passed)
}

/// Renews a running call: its places count until then, even if it was taken for lost meanwhile. In that case its tokens
/// are not released at its end.
pub fn renew(meters: &mut [Meter], id: &str, until: Millis) {
    for meter in meters {
        meter.running.entry(id.to_owned()).or_insert(RunningCall { until, tokens: 0 }).until = until;
    }
}

/// Settles a call that has ended with so many tokens used; returns the ids of calls that may be made now.
pub fn settle(limits: &[RateLimit], meters: &mut [Meter], call: &RatedCall, used: u64, now: Millis) -> Vec<String> {
    limits.iter().zip(meters).flat_map(|(limit, meter)| limit.settle(meter, call, used, now)).collect()
}

#[cfg(test)]
#[path = "rate_tests.rs"]
mod tests;
