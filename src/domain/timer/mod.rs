//! Timers: a wake or a task at a time, once or again and again.
//!
//! ```text
//! set ─▶ Active ──fires──▶ Active … ─▶ Fired       (no time is left)
//!          │  └─mailbox full─▶ Active, tried again
//!          ├─cancel──────────────────▶ Cancelled
//!          └─agent gone, refused─────▶ Failed       each is kept for a while, then deleted
//! ```
//!
//! The id of what a timer sends is a function of the timer, its generation and the planned time, so
//! that firing twice is firing once.

mod due;
mod schedule;
#[cfg(test)]
mod tests;

pub use due::Due;
pub use schedule::{Schedule, duration, instant};

use crate::authority::envelope::Envelope;
use crate::event::Submission;
use crate::ids::{AgentId, EventId, IdError, IdOf, JobId, Owner, SessionId, sha256_hex};
use crate::kept::KeptKeys;
use crate::limits::{TIMER_BACKOFF, TIMER_KEPT};
use crate::time::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

/// What the holder of a token needs, by the word of its issuer, so that timers outlive the token.
pub const KEEP: &str = "timer/keep";

/// Name of a timer: 32 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(inline, description = "")]
pub struct TimerId(String);

impl TimerId {
    /// What [`TimerId::new`] takes, as a regular expression.
    pub const PATTERN: &str = "^[0-9a-fA-F]{32}$";

    /// The id of what is named by this text: the same text, the same timer.
    pub fn of(text: &str) -> Self {
        Self(sha256_hex(text.as_bytes())[..32].to_owned())
    }

    /// Validates `text`: 32 hex digits.
    pub fn new(text: &str) -> Result<Self, IdError> {
        if text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(Self(text.to_ascii_lowercase()));
        }
        let given = text.chars().take(80).collect();
        Err(IdError { what: "timer", given, rule: "expected 32 hexadecimal digits, as `timer list` prints them" })
    }

    /// The 32 hex digits.
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
    /// A message.
    Message,
}

/// What becomes of the times at which nothing ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub enum CatchUp {
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
pub enum Overlap {
    /// It is left out, and counted.
    Skip,
    /// It waits in the mailbox.
    #[default]
    Queue,
}

/// Whether a timer still fires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum Phase {
    /// It fires.
    Active,
    /// It has fired for the last time.
    Fired,
    /// Somebody has cancelled it.
    Cancelled,
    /// It can't fire any more.
    Failed {
        /// Why.
        error: String,
    },
}

/// What a timer has sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sent {
    /// The planned time.
    pub at: Millis,
    /// The event.
    pub event: EventId,
    /// Its job, of a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// The session that it went to.
    pub session: SessionId,
}

/// The call of a turn that has set a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerOrigin {
    /// Number of the turn.
    pub turn: u64,
    /// Place of the call in its reply.
    pub call: u32,
    /// When the turn of the reply began; 0 in records that don't say.
    #[serde(default)]
    pub start: Millis,
}

impl TimerOrigin {
    /// Whether `other` comes before it in the same session. A session that begins anew under its name counts its turns
    /// from 1, and later.
    fn is_at_or_after(&self, other: &Self) -> bool {
        (self.turn, self.call) >= (other.turn, other.call) && self.start >= other.start
    }
}

/// A timer as somebody wants it.
#[derive(Debug, Clone, PartialEq)]
pub struct TimerRequest {
    /// Which.
    pub id: TimerId,
    /// What people call it.
    pub name: Option<String>,
    /// Who sets it: the same again changes nothing.
    pub origin: EventId,
    /// What was asked under a producer's own id, and by whom, as a hash: anything else under it is a conflict.
    pub asked: Option<String>,
    /// The call that sets it, of a session's one wake: an earlier call doesn't replace a later one's.
    pub place: Option<TimerOrigin>,
    /// Whose session or task.
    pub agent: AgentId,
    /// What it sends.
    pub kind: TimerKind,
    /// What that says, under whose authority.
    pub submission: Submission,
    /// When.
    pub schedule: Schedule,
    /// See [`CatchUp`].
    pub catch_up: CatchUp,
    /// See [`Overlap`].
    pub overlap: Overlap,
}

/// A timer as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Timer {
    /// Which.
    pub id: TimerId,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// See [`TimerRequest::origin`].
    pub origin: EventId,
    /// See [`TimerRequest::asked`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// See [`TimerRequest::place`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<TimerOrigin>,
    /// To whom.
    pub agent: AgentId,
    /// When that agent was created: another one of its name isn't meant.
    pub agent_created: Millis,
    /// What it sends.
    pub kind: TimerKind,
    /// What that says, under whose authority.
    pub submission: Submission,
    /// When.
    pub schedule: Schedule,
    /// See [`CatchUp`].
    pub catch_up: CatchUp,
    /// See [`Overlap`].
    pub overlap: Overlap,
    /// Grows whenever it is set to something else.
    pub generation: u64,
    /// When it was set.
    pub created: Millis,
    /// Whether it still fires.
    #[serde(flatten)]
    pub phase: Phase,
    /// The next planned time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Millis>,
    /// It is looked at then: to fire, to try again, or to be deleted.
    pub due: Millis,
    /// Times in a row that a full mailbox refused it.
    #[serde(default)]
    pub tries: u32,
    /// Events sent.
    #[serde(default)]
    pub fired: u64,
    /// Times left out.
    #[serde(default)]
    pub skipped: u64,
    /// The last event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Sent>,
    /// Of a newer build.
    #[serde(flatten, deserialize_with = "besides_phase")]
    pub kept: KeptKeys,
}

fn besides_phase<'de, D: Deserializer<'de>>(from: D) -> Result<KeptKeys, D::Error> {
    KeptKeys::besides(&["state", "error"], from)
}

/// What became of one planned time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivered {
    /// The agent has it.
    Sent(Sent),
    /// It was left out: the work of the last one isn't finished, or the agent is busy.
    Skipped,
    /// Not now.
    Later,
    /// Never.
    Failed(String),
}

impl Timer {
    /// What `wanted` makes of a timer's document; the generation is one above `before`.
    pub fn new(wanted: TimerRequest, before: u64, agent_created: Millis, now: Millis) -> Result<Self, String> {
        let TimerRequest { id, name, origin, asked, place, agent, kind, submission, schedule, catch_up, overlap } =
            wanted;
        let times = schedule.times()?;
        let next = match &schedule {
            Schedule::At(at) => Some(*at),
            Schedule::Every { .. } | Schedule::Cron { .. } => times.next_after(now),
        };
        let due = next.ok_or("`cron`: there is no such day in the next four years, it would never fire")?;
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
            phase: Phase::Active,
            next,
            due,
            tries: 0,
            fired: 0,
            skipped: 0,
            last: None,
            kept: KeptKeys::default(),
        })
    }

    /// The same, due now, of one that fires once and later.
    pub fn hurried(&self, now: Millis) -> Option<Self> {
        let later = matches!(self.schedule, Schedule::At(at) if at > now);
        (later && self.is_active()).then(|| Self {
            schedule: Schedule::At(now),
            next: Some(now),
            due: now,
            ..self.clone()
        })
    }

    /// It was set under the same id, to something else or by somebody else.
    pub fn is_anothers(&self, wanted: &TimerRequest) -> bool {
        self.origin == wanted.origin && self.asked.is_some() && self.asked != wanted.asked
    }

    /// Nothing would change if it was set to this.
    pub fn is_as(&self, wanted: &TimerRequest) -> bool {
        self.origin == wanted.origin
            // An older call of the session comes too late.
            || self.place.zip(wanted.place).is_some_and(|(set, wanted)| set.is_at_or_after(&wanted))
            || (self.is_active()
                && self.agent == wanted.agent
                && self.kind == wanted.kind
                && self.says(&wanted.submission)
                && self.schedule.is_same(&wanted.schedule)
                && (self.catch_up, self.overlap) == (wanted.catch_up, wanted.overlap))
    }

    /// It sends the same, whatever request the one who sets it serves.
    fn says(&self, submission: &Submission) -> bool {
        let lineage = self.submission.envelope.lineage.clone();
        let envelope = Envelope { lineage, ..submission.envelope.clone() };
        self.submission == Submission { envelope, ..submission.clone() }
    }

    /// From then on it may not fire, and why.
    pub fn ends(&self) -> Option<(Millis, &'static str)> {
        let envelope = &self.submission.envelope;
        let deadline = envelope.deadline.map(|at| (at, "the time of the request behind it is over"));
        let expires = envelope.expires.map(|at| (at, "the token behind it ends"));
        deadline.into_iter().chain(expires).min()
    }

    /// It still fires.
    pub fn is_active(&self) -> bool {
        self.phase == Phase::Active
    }

    /// The id of what it sends for a planned time.
    pub fn event(&self, venue_key: &[u8], owner: &Owner, at: Millis) -> EventId {
        let (timer, generation) = (self.id.as_str(), self.generation);
        EventId::of_venue(venue_key, IdOf::Timer { owner, timer, generation, at })
    }

    /// The timer after what was due has been done: `done` goes with `due.fire`, up to the first that
    /// ends it or is to be tried again.
    #[must_use]
    pub fn after(mut self, due: &Due, done: Vec<Delivered>, now: Millis) -> Self {
        for (at, delivered) in due.fire.iter().zip(done) {
            match delivered {
                Delivered::Sent(sent) => {
                    self.fired += 1;
                    self.tries = 0;
                    self.last = Some(sent);
                }
                Delivered::Skipped => self.skipped += 1,
                Delivered::Later => return self.postponed(*at, due, now),
                Delivered::Failed(error) => return self.ended(Phase::Failed { error }, now),
            }
        }
        self.skipped += due.skipped;
        match due.next {
            Some(next) => Self { next: Some(next), due: next, ..self },
            None => self.ended(Phase::Fired, now),
        }
    }

    /// The timer when the mailbox had no room for its event of `at`.
    fn postponed(mut self, at: Millis, due: &Due, now: Millis) -> Self {
        // Those that were left out before it are behind it; those after it come up again.
        if self.catch_up == CatchUp::Skip {
            self.skipped += due.skipped;
        }
        let pause = TIMER_BACKOFF.0.saturating_mul(2u32.saturating_pow(self.tries)).min(TIMER_BACKOFF.1);
        Self { next: Some(at), due: now.plus(pause), tries: self.tries.saturating_add(1), ..self }
    }

    /// The timer when it fires no more: kept for a while.
    #[must_use]
    pub fn ended(self, phase: Phase, now: Millis) -> Self {
        Self { phase, next: None, due: now.plus(TIMER_KEPT), ..self }
    }

    /// As callers see it; times in RFC 3339.
    pub fn shown(&self) -> Value {
        let mut shown = json!({
            "timer": self.id,
            "name": self.name,
            "agentId": self.agent,
            "kind": self.kind,
            "input": self.submission.input,
            "sessionId": self.submission.session_id,
            "state": "active",
            "next": self.next.map(Millis::rfc3339),
            "last": self.last.as_ref().map(|sent| json!({
                "at": sent.at.rfc3339(), "id": sent.event, "job": sent.job, "sessionId": sent.session,
            })),
            "fired": self.fired,
            "skipped": self.skipped,
            "catchUp": self.catch_up,
            "overlap": self.overlap,
            "created": self.created.rfc3339(),
            "by": self.submission.caller,
        });
        if !self.submission.priority.is_normal() {
            shown["priority"] = i64::from(self.submission.priority).into();
        }
        match &self.schedule {
            Schedule::At(at) => shown["at"] = at.rfc3339().into(),
            Schedule::Every { every, .. } => {
                shown["every"] = humantime::format_duration(Duration::from_millis(*every)).to_string().into();
            }
            Schedule::Cron { expression, timezone } => {
                shown["cron"] = expression.as_str().into();
                shown["timezone"] = timezone.as_deref().unwrap_or("UTC").into();
            }
        }
        match &self.phase {
            Phase::Active if self.tries > 0 => {
                shown["waits"] =
                    format!("the mailbox is full; tried {} times, again at {}", self.tries, self.due.rfc3339()).into();
            }
            Phase::Active => {}
            Phase::Fired => shown["state"] = "fired".into(),
            Phase::Cancelled => shown["state"] = "cancelled".into(),
            Phase::Failed { error } => {
                shown["state"] = "failed".into();
                shown["error"] = error.as_str().into();
            }
        }
        if let Some(map) = shown.as_object_mut() {
            map.retain(|_, value| !value.is_null());
        }
        shown
    }
}
