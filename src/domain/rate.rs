//! Rate limits of model providers, for the whole fleet: how many calls run at once, and how many
//! calls and tokens there are in a minute.
//!
//! A call is booked before it is made and settled with what it really used. The books of a limit are
//! two times and a list: a time is how far ahead of now the calls so far reach when each takes its
//! share of a minute (the generic cell rate algorithm), so that a minute's worth may come at once, and
//! nothing needs to be counted down.

use crate::domain::chat::ModelSettings;
use crate::domain::time::Millis;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Microseconds of the window in which calls and tokens are counted.
const MINUTE: u64 = 60_000_000;

/// What is booked farther ahead than this, a worker with a wrong clock has booked.
const BOGUS: u64 = 15 * MINUTE;

/// A call that is to be lost later than this is one of those.
const LONGEST: Duration = Duration::from_hours(2);

/// Pause of a call that waits for another to end: nobody knows when that is.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Whoever is first in line comes this much after its time at the latest, or loses its place.
const LATE: Duration = Duration::from_secs(15);

/// What a provider, or one of its models, takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// `provider`, for all of its models together, or `provider/name`.
    pub of: String,
    /// Calls at once.
    pub concurrency: Option<u32>,
    /// Calls per minute.
    pub requests: Option<u32>,
    /// Tokens per minute, of prompts and replies.
    pub tokens: Option<u64>,
}

/// What runs under a limit, and what ran in the last minute.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Meter {
    /// Until when the calls so far reach, in microseconds.
    #[serde(skip_serializing_if = "is_zero")]
    requests: u64,
    /// The same of their tokens.
    #[serde(skip_serializing_if = "is_zero")]
    tokens: u64,
    /// Calls that run.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    running: BTreeMap<String, Running>,
    /// Who waits for tokens first: smaller calls that come later leave room for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<First>,
}

/// The call that waits for tokens first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct First {
    /// Which.
    id: String,
    /// What its tokens take, in microseconds.
    share: u64,
    /// It has lost its place when it hasn't come by then.
    until: Millis,
}

/// A call that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Running {
    /// When it counts as lost.
    until: Millis,
    /// Until when its own tokens reach, in microseconds.
    tokens: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A call that is going to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its session and turn: whoever makes it again takes its place.
    pub id: String,
    /// Tokens of its prompt and, at most, of its reply.
    pub tokens: u64,
    /// When it counts as lost.
    pub until: Millis,
}

/// A call that has to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// When it may be tried again.
    pub until: Millis,
    /// Which limit.
    pub reason: String,
}

impl fmt::Display for Limit {
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

impl Limit {
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

    /// Whether one more call fits; else why not, and until when.
    fn check(&self, meter: &Meter, call: &Call, now: Millis) -> Result<(), Wait> {
        let busy = meter.running.iter().filter(|(id, running)| **id != call.id && counts(running.until, now)).count();
        if let Some(limit) = self.concurrency
            && busy >= usize::try_from(limit).unwrap_or(usize::MAX)
        {
            let reason = format!("rate limit of `{}`: {limit} calls at once", self.of);
            return Err(Wait { until: now.plus(LOOK_AGAIN), reason });
        }
        let kept = meter.ahead_of(call, now).map_or(0, |first| first.share);
        let shares = [
            (self.requests.map(u64::from), meter.requests, 0, 1, "requests"),
            (self.tokens, meter.tokens, kept, call.tokens, "tokens"),
        ];
        for (limit, reached, kept, amount, what) in shares {
            let Some(limit) = limit else { continue };
            let ahead = ahead(reached, now).saturating_add(kept);
            // What is larger than a minute's worth was refused before, unless the limits were lowered meanwhile: then
            // it passes when nothing else runs, else it never would.
            let over = ahead.saturating_add(share(amount, limit)).saturating_sub(MINUTE);
            if over > 0 && ahead > 0 {
                let pause = Duration::from_micros(over.min(ahead));
                let reason = format!("rate limit of `{}`: {limit} {what} per minute", self.of);
                return Err(Wait { until: now.plus(pause.max(Duration::from_millis(1))), reason });
            }
        }
        Ok(())
    }

    /// A call that has to wait for tokens is the first in line: no other is.
    fn queue(&self, meter: &mut Meter, call: &Call, wait: &Wait, now: Millis) {
        let Some(limit) = self.tokens else { return };
        let share = share(call.tokens, limit);
        if ahead(meter.tokens, now).saturating_add(share) > MINUTE {
            meter.first = Some(First { id: call.id.clone(), share, until: wait.until.plus(LATE) });
        }
    }

    fn book(&self, meter: &mut Meter, call: &Call, now: Millis) {
        meter.first.take_if(|first| first.id == call.id || !counts(first.until, now));
        meter.running.retain(|_, running| counts(running.until, now));
        if let Some(limit) = self.requests {
            meter.requests = micros(now) + ahead(meter.requests, now) + share(1, u64::from(limit));
        }
        if let Some(limit) = self.tokens {
            meter.tokens = micros(now) + ahead(meter.tokens, now) + share(call.tokens, limit);
        }
        meter.running.insert(call.id.clone(), Running { until: call.until, tokens: meter.tokens });
    }

    fn settle(&self, meter: &mut Meter, call: &Call, used: u64, now: Millis) {
        let own = meter.running.remove(&call.id);
        let Some(limit) = self.tokens else { return };
        let (booked, used) = (share(call.tokens, limit), share(used, limit));
        if used > booked {
            meter.tokens = micros(now) + ahead(meter.tokens, now) + (used - booked);
        } else {
            // What has passed meanwhile was held from others, and can't be given back.
            let left = own.map_or(0, |own| ahead(own.tokens, now));
            meter.tokens = meter.tokens.saturating_sub((booked - used).min(left));
        }
    }
}

impl Meter {
    /// The first in line, unless it is this call.
    fn ahead_of(&self, call: &Call, now: Millis) -> Option<&First> {
        self.first.as_ref().filter(|first| first.id != call.id && counts(first.until, now))
    }
}

/// Whether what ends then isn't over, and was booked by a clock that can be right.
fn counts(until: Millis, now: Millis) -> bool {
    until > now && until.since(now) <= LONGEST
}

/// How far a time is ahead of now.
const fn ahead(reached: u64, now: Millis) -> u64 {
    let ahead = reached.saturating_sub(micros(now));
    if ahead > BOGUS { 0 } else { ahead }
}

const fn micros(at: Millis) -> u64 {
    at.0.saturating_mul(1_000)
}

/// Microseconds of a minute that so much of a limit takes.
const fn share(amount: u64, limit: u64) -> u64 {
    amount.saturating_mul(MINUTE) / limit
}

/// The tokens that a call is booked with: those of its prompt, and those that its reply may have at most, or about so
/// many where nothing says it. An error when no minute has room for what it takes.
pub fn reserve(
    limits: &[Limit],
    model: &ModelSettings,
    prompt: u64,
    reply: Option<u64>,
    guess: u64,
) -> Result<u64, String> {
    let all = limits.iter().filter(|limit| limit.covers(model)).filter_map(|limit| Some((limit.tokens?, &limit.of)));
    let tightest = all.min();
    let takes = prompt.saturating_add(reply.unwrap_or_default());
    match tightest {
        Some((most, of)) if takes > most => Err(format!(
            "the call takes up to {takes} tokens, {prompt} of its prompt and {} of its reply, and the rate limit of `{of}` \
             is {most} tokens per minute: shorten its context (`contextBudget`) or its reply (`maxTokens`), or have the \
             limit raised (`models.limits`)",
            reply.unwrap_or_default()
        )),
        Some((most, _)) => Ok(prompt.saturating_add(reply.unwrap_or(guess)).min(most)),
        None => Ok(prompt.saturating_add(reply.unwrap_or(guess))),
    }
}

/// Books a call under all of its limits, or under none: then it may have become the first in line.
pub fn book(limits: &[&Limit], meters: &mut [Meter], call: &Call, now: Millis) -> Result<(), Wait> {
    let pairs = || limits.iter().zip(0..);
    let waits = pairs().filter_map(|(limit, at)| limit.check(&meters[at], call, now).err());
    if let Some(longest) = waits.max_by_key(|wait| wait.until) {
        // Whoever waits behind another anywhere is first nowhere: two that are first before each other would
        // wait for ever.
        let is_behind = pairs().any(|(_, at)| meters[at].ahead_of(call, now).is_some());
        for (limit, at) in pairs() {
            if is_behind {
                meters[at].first.take_if(|first| first.id == call.id);
            } else {
                limit.queue(&mut meters[at], call, &longest, now);
            }
        }
        return Err(longest);
    }
    for (limit, at) in pairs() {
        limit.book(&mut meters[at], call, now);
    }
    Ok(())
}

/// A call has ended, with so many tokens used.
pub fn settle(limits: &[&Limit], meters: &mut [Meter], call: &Call, used: u64, now: Millis) {
    for (limit, meter) in limits.iter().zip(meters) {
        limit.settle(meter, call, used, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = Millis(1_000_000);

    fn limit(text: &str) -> Limit {
        Limit::parse(text).unwrap()
    }

    fn call(id: &str, tokens: u64) -> Call {
        Call { id: id.to_owned(), tokens, until: NOW.plus(Duration::from_mins(2)) }
    }

    fn booked(limit: &Limit, meter: &mut Meter, call: &Call, now: Millis) -> Result<(), (u64, String)> {
        book(&[limit], std::slice::from_mut(meter), call, now).map_err(|wait| (wait.until.0 - now.0, wait.reason))
    }

    #[test]
    fn limits_are_read_and_written_in_one_form() {
        for text in ["openai:requests=500:tokens=200000", "openai/gpt-4o:concurrency=10"] {
            assert_eq!(limit(text).to_string(), text);
        }
        let both = Limit::list("openai:requests=500, openai/gpt-4o:concurrency=10").unwrap();
        let model = |provider: &str, name: &str| ModelSettings::new(provider, name);
        let covers = |model: &ModelSettings| both.iter().map(|limit| limit.covers(model)).collect::<Vec<_>>();
        assert_eq!(covers(&model("openai", "gpt-4o")), [true, true]);
        assert_eq!(covers(&model("openai", "gpt-4o-mini")), [true, false]);
        assert_eq!(covers(&model("anthropic", "gpt-4o")), [false, false]);
        for bad in
            ["openai", "openai:rpm=1", "openai:requests=0", ":requests=1", "a:requests=1,a:tokens=2", "a b:requests=1"]
        {
            assert_eq!(Limit::list(bad), None, "{bad}");
        }
    }

    #[test]
    fn calls_at_once_are_bounded_and_a_lost_one_frees_its_place_in_time() {
        let (limit, mut meter) = (limit("openai:concurrency=2"), Meter::default());
        for id in ["a", "b"] {
            assert_eq!(booked(&limit, &mut meter, &call(id, 1), NOW), Ok(()));
        }
        let wait = booked(&limit, &mut meter, &call("c", 1), NOW).unwrap_err();
        assert_eq!(wait, (1_000, "rate limit of `openai`: 2 calls at once".to_owned()));
        assert_eq!(booked(&limit, &mut meter, &call("a", 1), NOW), Ok(()), "the same call again");
        settle(&[&limit], std::slice::from_mut(&mut meter), &call("b", 1), 1, NOW);
        assert_eq!(booked(&limit, &mut meter, &call("c", 1), NOW), Ok(()));
        let later = NOW.plus(Duration::from_mins(3));
        assert_eq!(booked(&limit, &mut meter, &call("d", 1), later), Ok(()), "a and c are lost");
    }

    #[test]
    fn a_minutes_worth_may_come_at_once_and_the_rest_evenly_after_it() {
        let (limit, mut meter) = (limit("openai:requests=60"), Meter::default());
        for n in 0..60 {
            assert_eq!(booked(&limit, &mut meter, &call(&n.to_string(), 1), NOW), Ok(()), "{n}");
        }
        let mut now = NOW;
        for n in 60..70 {
            let (pause, reason) = booked(&limit, &mut meter, &call(&n.to_string(), 1), now).unwrap_err();
            assert_eq!((pause, reason.as_str()), (1_000, "rate limit of `openai`: 60 requests per minute"));
            now = now.plus(Duration::from_secs(1));
            assert_eq!(booked(&limit, &mut meter, &call(&n.to_string(), 1), now), Ok(()));
        }
    }

    #[test]
    fn in_no_minute_more_is_booked_than_two_minutes_allow_and_the_long_run_keeps_to_the_limit() {
        let (limit, mut meter, mut seed) = (limit("openai:requests=30"), Meter::default(), 7_u64);
        let (mut now, mut calls) = (NOW, 0_u64);
        for n in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            now = Millis(now.0 + (seed >> 33) % 700);
            calls += u64::from(booked(&limit, &mut meter, &call(&n.to_string(), 1), now).is_ok());
        }
        let minutes = (now.0 - NOW.0).div_ceil(60_000);
        assert!(calls <= 30 * (minutes + 1) && calls >= 30 * (minutes - 1), "{calls} in {minutes} minutes");
    }

    #[test]
    fn tokens_are_reserved_and_settled_with_what_was_used() {
        let (limit, mut meter) = (limit("openai:tokens=1000"), Meter::default());
        assert_eq!(booked(&limit, &mut meter, &call("a", 900), NOW), Ok(()));
        let (pause, reason) = booked(&limit, &mut meter, &call("b", 600), NOW).unwrap_err();
        assert_eq!((pause, reason.as_str()), (30_000, "rate limit of `openai`: 1000 tokens per minute"));
        settle(&[&limit], std::slice::from_mut(&mut meter), &call("a", 900), 400, NOW);
        assert_eq!(booked(&limit, &mut meter, &call("b", 600), NOW), Ok(()));
        // One that is larger than the limit waits until nothing else runs, and then passes.
        let (pause, _) = booked(&limit, &mut meter, &call("c", 5_000), NOW).unwrap_err();
        assert_eq!(pause, 60_000);
        let later = NOW.plus(Duration::from_mins(1));
        assert_eq!(booked(&limit, &mut meter, &call("c", 5_000), later), Ok(()));
    }

    #[test]
    fn a_call_that_no_minute_has_room_for_is_refused() {
        let limits = Limit::list("openai:tokens=1000, openai/gpt:tokens=600, openai/o:requests=1").unwrap();
        let check = |name: &str, prompt, reply| {
            reserve(&limits, &ModelSettings::new("openai", name), prompt, reply, 500).map_err(|said| {
                let begin = said.split(':').next().unwrap_or_default().to_owned();
                begin
            })
        };
        assert_eq!(check("gpt", 500, Some(100)), Ok(600));
        assert_eq!(check("gpt", 500, None), Ok(600), "a guess alone refuses nothing");
        assert_eq!(check("o", 500, Some(500)), Ok(1_000));
        assert_eq!(check("o", 100, None), Ok(600));
        let said = "the call takes up to 601 tokens, 500 of its prompt and 101 of its reply, and the rate limit of \
                    `openai/gpt` is 600 tokens per minute";
        assert_eq!(check("gpt", 500, Some(101)), Err(said.to_owned()));
        assert!(check("o", 1_001, None).is_err());
        assert!(check("gpt", u64::MAX, Some(u64::MAX)).is_err());
        let free = ModelSettings::new("anthropic", "gpt");
        assert_eq!(reserve(&limits, &free, 10_000, None, 500), Ok(10_500));
    }

    #[test]
    fn smaller_calls_that_come_later_leave_room_for_the_one_that_waits_first() {
        let (limit, mut meter) = (limit("openai:tokens=1000"), Meter::default());
        assert_eq!(booked(&limit, &mut meter, &call("a", 900), NOW), Ok(()));
        let (pause, _) = booked(&limit, &mut meter, &call("large", 800), NOW).unwrap_err();
        assert_eq!(pause, 42_000);
        // There is room for a small one now, but then the large one would wait on and on.
        let (pause, _) = booked(&limit, &mut meter, &call("small", 100), NOW).unwrap_err();
        assert_eq!(pause, 48_000);
        let then = NOW.plus(Duration::from_secs(42));
        assert!(booked(&limit, &mut meter, &call("small", 100), then).is_err());
        assert_eq!(booked(&limit, &mut meter, &call("large", 800), then), Ok(()));
        let later = then.plus(Duration::from_secs(6));
        assert_eq!(booked(&limit, &mut meter, &call("small", 100), later), Ok(()));
        // One that waits first and never comes, because it was cancelled, keeps nobody waiting for long.
        assert!(booked(&limit, &mut meter, &call("gone", 900), later).is_err());
        assert!(booked(&limit, &mut meter, &call("b", 200), later).is_err());
        let late = later.plus(Duration::from_mins(2));
        assert_eq!(booked(&limit, &mut meter, &call("b", 200), late), Ok(()));
    }

    #[test]
    fn what_is_larger_than_a_minutes_worth_passes_although_others_come_all_the_time() {
        let (limit, mut meter) = (limit("openai:tokens=1000"), Meter::default());
        assert_eq!(booked(&limit, &mut meter, &call("first", 500), NOW), Ok(()));
        let (pause, _) = booked(&limit, &mut meter, &call("huge", 5_000), NOW).unwrap_err();
        for second in 1..pause / 1_000 {
            let now = NOW.plus(Duration::from_secs(second));
            assert!(booked(&limit, &mut meter, &call(&second.to_string(), 10), now).is_err(), "{second}");
        }
        assert_eq!(booked(&limit, &mut meter, &call("huge", 5_000), NOW.plus(Duration::from_millis(pause))), Ok(()));
    }

    #[test]
    fn calls_that_are_too_large_for_their_limits_do_not_wait_for_each_other() {
        let limits = [limit("openai:tokens=1000"), limit("openai/gpt:tokens=600")];
        let both: Vec<_> = limits.iter().collect();
        let mut meters = vec![Meter::default(); 2];
        let mut book = |call: &Call, now| book(&both, &mut meters, call, now);
        assert_eq!(book(&call("now", 50), NOW), Ok(()));
        let (one, two) = (call("one", 900), call("two", 1_100));
        let (mut waits, mut now) = (vec![one, two], NOW);
        for _ in 0..200 {
            waits.retain(|call| book(call, now).is_err());
            now = now.plus(Duration::from_secs(5));
        }
        assert_eq!(waits, [], "each of them has been made");
    }

    #[test]
    fn what_has_passed_while_a_call_ran_is_not_given_back() {
        let (limit, mut meter) = (limit("openai:tokens=1000"), Meter::default());
        assert_eq!(booked(&limit, &mut meter, &call("a", 900), NOW), Ok(()));
        let (late, end) = (NOW.plus(Duration::from_secs(55)), NOW.plus(Duration::from_mins(1)));
        assert_eq!(booked(&limit, &mut meter, &call("b", 900), late), Ok(()));
        settle(&[&limit], std::slice::from_mut(&mut meter), &call("a", 900), 10, end);
        assert!(booked(&limit, &mut meter, &call("c", 900), end).is_err(), "b has just had its 900");
    }

    #[test]
    fn a_wrong_clock_does_not_block_the_fleet() {
        let (limit, mut meter) = (limit("openai:requests=60:tokens=1000:concurrency=1"), Meter::default());
        let tomorrow = NOW.plus(Duration::from_hours(24));
        let lost = Call { until: tomorrow.plus(Duration::from_mins(2)), ..call("a", 900) };
        assert_eq!(booked(&limit, &mut meter, &lost, tomorrow), Ok(()));
        assert_eq!(booked(&limit, &mut meter, &call("b", 900), NOW), Ok(()));
    }

    #[test]
    fn a_call_is_booked_under_all_of_its_limits_or_none() {
        let (all, one) = (limit("openai:requests=100"), limit("openai/gpt-4o:requests=1"));
        let mut meters = [Meter::default(), Meter::default()];
        assert_eq!(book(&[&all, &one], &mut meters, &call("a", 1), NOW), Ok(()));
        let before = meters.clone();
        let wait = book(&[&all, &one], &mut meters, &call("b", 1), NOW).unwrap_err();
        assert!(wait.reason.contains("`openai/gpt-4o`"), "{}", wait.reason);
        assert_eq!(meters, before);
    }
}
