//! When a timer fires.

use crate::time::Millis;
use crate::time::cron::{self, Cron};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// When a timer fires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Schedule {
    /// Once.
    At(Millis),
    /// Again and again.
    Every {
        /// Milliseconds from one time to the next, at least 1.
        every: u64,
        /// Times are counted from here; this itself is none.
        start: Millis,
    },
    /// By the wall clock.
    Cron {
        /// Five fields: minute, hour, day of month, month, day of week; or `@daily` and the like.
        expression: String,
        /// IANA name; absent = UTC.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timezone: Option<String>,
    },
}

/// A schedule that is ready to be asked.
pub enum ReadySchedule {
    /// See [`Schedule::At`].
    At(Millis),
    /// See [`Schedule::Every`].
    Every(u64, Millis),
    /// See [`Schedule::Cron`].
    Cron(Box<Cron>),
}

impl Schedule {
    /// Ready to be asked; the error names the field.
    pub fn times(&self) -> Result<ReadySchedule, String> {
        Ok(match self {
            Self::At(at) => ReadySchedule::At(*at),
            Self::Every { every, start } => ReadySchedule::Every((*every).max(1), *start),
            Self::Cron { expression, timezone } => {
                ReadySchedule::Cron(Box::new(Cron::parse(expression, timezone.as_deref())?))
            }
        })
    }

    /// The first time after `after`; `None` when there is none, or none in the next four years.
    pub fn next_after(&self, after: Millis) -> Option<Millis> {
        self.times().ok()?.next_after(after)
    }

    /// The same times, wherever they are counted from.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Every { every, .. }, Self::Every { every: other, .. }) => every == other,
            (Self::At(_) | Self::Every { .. } | Self::Cron { .. }, _) => self == other,
        }
    }
}

impl ReadySchedule {
    /// See [`Schedule::next_after`].
    pub fn next_after(&self, after: Millis) -> Option<Millis> {
        match self {
            Self::At(at) => (*at > after).then_some(*at),
            Self::Every(every, start) => {
                let passed = after.0.saturating_sub(start.0) / every;
                start.0.checked_add((passed + 1).checked_mul(*every)?).map(Millis)
            }
            Self::Cron(cron) => cron.next_after(after),
        }
    }
}

/// An instant that somebody named: RFC 3339, milliseconds since 1970, or `2026-03-29T09:00` on the
/// wall clock of a time zone.
pub fn instant(named: &serde_json::Value, timezone: Option<&str>) -> Result<Millis, String> {
    let zone = cron::zone(timezone)?;
    if let Some(at) = named.as_u64() {
        return Ok(Millis(at));
    }
    let text = named.as_str().unwrap_or_default();
    let expected = "expected a time such as `2026-03-29T09:00:00Z`, or without an offset and with `timezone`";
    let shown = || cron::instant_shown(&zone, text.parse().ok()?);
    let at = text.parse::<jiff::Timestamp>().ok().or_else(shown).ok_or_else(|| format!("{expected}, got {named}"))?;
    u64::try_from(at.as_millisecond()).map(Millis).map_err(|_| format!("{named} is before 1970"))
}

/// A length of time that somebody named: `90s`, `5m`, or milliseconds.
pub fn duration(named: &serde_json::Value) -> Result<Duration, String> {
    if let Some(ms) = named.as_u64() {
        return Ok(Duration::from_millis(ms));
    }
    let text = named.as_str().unwrap_or_default();
    humantime::parse_duration(text).map_err(|_| format!("expected a duration such as `90s`, `5m` or `1h`, got {named}"))
}
