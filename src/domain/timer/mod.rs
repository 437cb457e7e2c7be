//! Timers: a message or a task at a time, once or repeatedly.
//!
//! ```text
//! set ─▶ Active ──fires──▶ Active … ─▶ Fired       (no time is left)
//!          │  └─mailbox full─▶ Active, tried again
//!          ├─cancel──────────────────▶ Cancelled
//!          └─agent gone, refused─────▶ Failed       each is kept for a while, then deleted
//! ```
//!
//! The id of the submitted event is a function of the timer, its generation and the planned time, so that a repeated
//! fire has no effect.

mod due;
mod schedule;
#[cfg(test)]
mod tests;

pub use due::DueTimes;
pub use schedule::{Schedule, TimerDurationError, TimerInstantError, parse_duration, parse_instant};

use crate::authority::envelope::Envelope;
use crate::event::Submission;
use crate::ids::{AgentId, EventId, IdError, JobId, Owner, SessionId, VenueIdSubject, sha256_hex};
use crate::limits::{TIMER_BACKOFF, TIMER_KEPT};
use crate::time::Millis;
use crate::time::cron::CronError;
use crate::unknown_fields::UnknownFields;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// Ability that a token needs so that its timers outlive it; its issuer grants it.
pub const KEEP_ABILITY: &str = "timer/keep";

/// Name of a timer: 32 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(inline, description = "")]
pub struct TimerId(String);

impl TimerId {
    /// Regular expression of the texts that [`TimerId::new`] accepts.
    pub const PATTERN: &str = "^[0-9a-fA-F]{32}$";

    /// Makes the id of a text: the same text makes the same id.
    pub fn from_text(text: &str) -> Self {
        Self(sha256_hex(text.as_bytes())[..32].to_owned())
    }

    /// Makes an id of 32 hex digits; capital letters become small.
    pub fn new(text: &str) -> Result<Self, IdError> {
        if text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(Self(text.to_ascii_lowercase()));
        }
        let given = text.chars().take(80).collect();
        Err(IdError { what: "timer", given, rule: "expected 32 hexadecimal digits, as `timer list` prints them" })
    }

    /// Returns the 32 hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for TimerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for TimerId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::new(text)
    }
}

impl TryFrom<String> for TimerId {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        Self::new(&text)
    }
}

impl From<TimerId> for String {
    fn from(id: TimerId) -> Self {
        id.0
    }
}

/// What a timer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub enum TimerKind {
    /// A task: each time a job.
    #[default]
    Task,
    /// A message: read by the agent, without a job.
    Message,
}

/// What becomes of the times at which nothing ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub enum CatchUpPolicy {
    /// One event stands for all of them.
    #[default]
    One,
    /// Each, the oldest first, up to [`TIMER_CATCH_UP`](crate::limits::TIMER_CATCH_UP).
    All,
    /// None. Only the newest may count as not missed: while it is late by no more than [`TIMER_LATE`](crate::limits::TIMER_LATE), behind others
    /// [`TIMER_PROMPT`](crate::limits::TIMER_PROMPT), and when it found a full mailbox [`TIMER_GRACE`](crate::limits::TIMER_GRACE).
    Skip,
}

/// What becomes of a time at which the work of the last one isn't finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub enum OverlapPolicy {
    /// It is left out, and counted.
    Skip,
    /// It waits in the mailbox.
    #[default]
    Queue,
}

/// Whether a timer will still fire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum TimerPhase {
    /// The timer will fire.
    Active,
    /// The timer has fired for the last time.
    Fired,
    /// A caller has cancelled the timer.
    Cancelled,
    /// The timer can't fire any more.
    Failed {
        /// Reason in words.
        error: String,
    },
}

/// An event that a timer has sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SentEvent {
    /// Planned time of the event.
    pub at: Millis,
    /// Id of the event.
    pub event: EventId,
    /// Job of the event, if it is a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Session that got the event.
    pub session: SessionId,
}

/// Call of a turn that has set a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerOrigin {
    /// Number of the turn.
    pub turn: u64,
    /// Position of the call in the turn's reply.
    pub call: u32,
    /// Start of the turn of the reply; 0 in records that don't hold it.
    #[serde(default)]
    pub start: Millis,
}

impl TimerOrigin {
    /// Whether `other` doesn't come after it in the same session. A session that begins anew under its name counts its
    /// turns from 1, with a later start.
    fn is_at_or_after(&self, other: &Self) -> bool {
        (self.turn, self.call) >= (other.turn, other.call) && self.start >= other.start
    }
}

/// A timer as a caller requests it.
#[derive(Debug, Clone, PartialEq)]
pub struct TimerRequest {
    /// Id of the timer.
    pub id: TimerId,
    /// Name for people.
    pub name: Option<String>,
    /// Id of the request that sets it: a repetition changes nothing.
    pub origin: EventId,
    /// Hash of a request under a producer's own id, with its caller: another request under that id is a conflict.
    pub asked: Option<String>,
    /// Call that sets the one wake of a session: an earlier call doesn't replace a later one's timer.
    pub place: Option<TimerOrigin>,
    /// Agent that gets the message or task.
    pub agent: AgentId,
    /// Kind of the event that it sends.
    pub kind: TimerKind,
    /// Submission that it sends, with its authority.
    pub submission: Submission,
    /// Times at which it fires.
    pub schedule: Schedule,
    /// Treatment of missed times, see [`CatchUpPolicy`].
    pub catch_up: CatchUpPolicy,
    /// Treatment of overlapping times, see [`OverlapPolicy`].
    pub overlap: OverlapPolicy,
}

/// A timer as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Timer {
    /// Id of the timer.
    pub id: TimerId,
    /// Name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Id of the request that set it, see [`TimerRequest::origin`].
    pub origin: EventId,
    /// Hash of that request, see [`TimerRequest::asked`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// Call that set it, see [`TimerRequest::place`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<TimerOrigin>,
    /// Agent that gets the message or task.
    pub agent: AgentId,
    /// Time at which that agent was created: a later agent of the same name gets nothing.
    pub agent_created: Millis,
    /// Kind of the event that it sends.
    pub kind: TimerKind,
    /// Submission that it sends, with its authority.
    pub submission: Submission,
    /// Times at which it fires.
    pub schedule: Schedule,
    /// Treatment of missed times, see [`CatchUpPolicy`].
    pub catch_up: CatchUpPolicy,
    /// Treatment of overlapping times, see [`OverlapPolicy`].
    pub overlap: OverlapPolicy,
    /// Number of changes of the timer.
    pub generation: u64,
    /// Time at which it was set.
    pub created: Millis,
    /// Whether it will still fire.
    #[serde(flatten)]
    pub phase: TimerPhase,
    /// Planned time of the next event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Millis>,
    /// Time of the next look at it: to fire, to retry, or to be deleted.
    pub due: Millis,
    /// Number of times in a row that a full mailbox refused it.
    #[serde(default)]
    pub tries: u32,
    /// Number of events sent.
    #[serde(default)]
    pub fired: u64,
    /// Number of planned times left out.
    #[serde(default)]
    pub skipped: u64,
    /// Last event that it sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<SentEvent>,
    /// Fields that a newer build wrote.
    #[serde(flatten, deserialize_with = "unknown_fields")]
    pub kept: UnknownFields,
}

fn unknown_fields<'de, D: Deserializer<'de>>(from: D) -> Result<UnknownFields, D::Error> {
    UnknownFields::except(&["state", "error"], from)
}

/// Result of one planned time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryResult {
    /// The agent got the event.
    Sent(SentEvent),
    /// The time was left out: the work of the last event isn't finished, or the agent is busy.
    Skipped,
    /// The event is sent later.
    Later,
    /// The timer can never fire.
    Failed(String),
}

impl Timer {
    /// Makes the document of a requested timer; its generation is one above `before`.
    pub fn new(wanted: TimerRequest, before: u64, agent_created: Millis, now: Millis) -> Result<Self, CronError> {
        let TimerRequest { id, name, origin, asked, place, agent, kind, submission, schedule, catch_up, overlap } =
            wanted;
        let times = schedule.parse()?;
        let next = match &schedule {
            Schedule::At(at) => Some(*at),
            Schedule::Every { .. } | Schedule::Cron { .. } => times.next_after(now),
        };
        let due = next.ok_or(CronError::NoDay)?;
        Ok(Self {
            id,
            name,
            origin,
            asked,
            place,
            agent,
            agent_created,
            kind,
            submission,
            schedule,
            catch_up,
            overlap,
            generation: before + 1,
            created: now,
            phase: TimerPhase::Active,
            next,
            due,
            tries: 0,
            fired: 0,
            skipped: 0,
            last: None,
            kept: UnknownFields::default(),
        })
    }

    /// Returns the timer with its time set to `now`, if it fires once and later.
    pub fn due_now(&self, now: Millis) -> Option<Self> {
        let later = matches!(self.schedule, Schedule::At(at) if at > now);
        (later && self.is_active()).then(|| Self {
            schedule: Schedule::At(now),
            next: Some(now),
            due: now,
            ..self.clone()
        })
    }

    /// Whether it was set under the same id by another request or another caller.
    pub fn conflicts_with(&self, wanted: &TimerRequest) -> bool {
        self.origin == wanted.origin && self.asked.is_some() && self.asked != wanted.asked
    }

    /// Whether this request would change nothing.
    pub fn is_same_as(&self, wanted: &TimerRequest) -> bool {
        self.origin == wanted.origin
            // An older call of the session comes too late.
            || self.place.zip(wanted.place).is_some_and(|(set, wanted)| set.is_at_or_after(&wanted))
            || (self.is_active()
                && self.agent == wanted.agent
                && self.kind == wanted.kind
                && self.sends_same(&wanted.submission)
                && self.schedule.is_same(&wanted.schedule)
                && (self.catch_up, self.overlap) == (wanted.catch_up, wanted.overlap))
    }

    /// Whether it sends the same submission, for whatever request its setter works.
    fn sends_same(&self, submission: &Submission) -> bool {
        let lineage = self.submission.envelope.lineage.clone();
        let envelope = Envelope { lineage, ..submission.envelope.clone() };
        self.submission == Submission { envelope, ..submission.clone() }
    }

    /// Returns the time from which on it may not fire, and the reason.
    pub fn end_of_authority(&self) -> Option<(Millis, &'static str)> {
        let envelope = &self.submission.envelope;
        let deadline = envelope.deadline.map(|at| (at, "the time of the request behind it is over"));
        let expires = envelope.expires.map(|at| (at, "the token behind it ends"));
        deadline.into_iter().chain(expires).min()
    }

    /// Whether it will still fire.
    pub fn is_active(&self) -> bool {
        self.phase == TimerPhase::Active
    }

    /// Returns the id of its event for a planned time.
    pub fn event_id(&self, venue_key: &[u8], owner: &Owner, at: Millis) -> EventId {
        let (timer, generation) = (self.id.as_str(), self.generation);
        EventId::of_venue(venue_key, VenueIdSubject::Timer { owner, timer, generation, at })
    }

    /// Returns the timer after its due times were processed: `done` belongs to `due.fire`, up to the first result that
    /// ends the timer or needs a retry.
    #[must_use]
    pub fn after_delivery(mut self, due: &DueTimes, done: Vec<DeliveryResult>, now: Millis) -> Self {
        for (at, delivered) in due.fire.iter().zip(done) {
            match delivered {
                DeliveryResult::Sent(sent) => {
                    self.fired += 1;
                    self.tries = 0;
                    self.last = Some(sent);
                }
                DeliveryResult::Skipped => self.skipped += 1,
                DeliveryResult::Later => return self.postpone(*at, due, now),
                DeliveryResult::Failed(error) => return self.end(TimerPhase::Failed { error }, now),
            }
        }
        self.skipped += due.skipped;
        match due.next {
            Some(next) => Self { next: Some(next), due: next, ..self },
            None => self.end(TimerPhase::Fired, now),
        }
    }

    /// Returns the timer after the mailbox had no room for its event of `at`.
    fn postpone(mut self, at: Millis, due: &DueTimes, now: Millis) -> Self {
        // Times that were left out before `at` are settled; those after it are due again.
        if self.catch_up == CatchUpPolicy::Skip {
            self.skipped += due.skipped;
        }
        let pause = TIMER_BACKOFF.0.saturating_mul(2u32.saturating_pow(self.tries)).min(TIMER_BACKOFF.1);
        Self { next: Some(at), due: now.plus(pause), tries: self.tries.saturating_add(1), ..self }
    }

    /// Returns the timer when it fires no more: it is kept for [`TIMER_KEPT`].
    #[must_use]
    pub fn end(self, phase: TimerPhase, now: Millis) -> Self {
        Self { phase, next: None, due: now.plus(TIMER_KEPT), ..self }
    }
}
