//! Schedules of timers.

use crate::time::Millis;
use crate::time::cron::{self, Cron, CronError, TimeZoneError};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Times at which a timer fires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Schedule {
    /// One fire at this time.
    At(Millis),
    /// Fires at equal distances.
    Every {
        /// Milliseconds between two times, at least 1.
        every: u64,
        /// Start of the count; it is not a time itself.
        start: Millis,
    },
    /// Fires at times of the wall clock.
    Cron {
        /// Five fields: minute, hour, day of month, month, day of week; or `@daily` and the like.
        expression: String,
        /// IANA name of the time zone; absent = UTC.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timezone: Option<String>,
    },
}

/// A parsed schedule.
pub enum ReadySchedule {
    /// One time, see [`Schedule::At`].
    At(Millis),
    /// Distance and start, see [`Schedule::Every`].
    Every(u64, Millis),
    /// Parsed expression, see [`Schedule::Cron`].
    Cron(Box<Cron>),
}

impl Schedule {
    /// Parses the schedule; the error names the field.
    pub fn parse(&self) -> Result<ReadySchedule, CronError> {
        Ok(match self {
            Self::At(at) => ReadySchedule::At(*at),
            Self::Every { every, start } => ReadySchedule::Every((*every).max(1), *start),
            Self::Cron { expression, timezone } => {
                ReadySchedule::Cron(Box::new(Cron::parse(expression, timezone.as_deref())?))
            }
        })
    }

    /// Returns the first time after `after`; `None` if there is none, or none in the next four years.
    pub fn next_after(&self, after: Millis) -> Option<Millis> {
        self.parse().ok()?.next_after(after)
    }

    /// Whether both have the same times, apart from the start of the count.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Every { every, .. }, Self::Every { every: other, .. }) => every == other,
            (Self::At(_) | Self::Every { .. } | Self::Cron { .. }, _) => self == other,
        }
    }
}

impl ReadySchedule {
    /// Returns the first time after `after`, as [`Schedule::next_after`] does.
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

/// Reason why a value is no time of a timer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimerInstantError {
    /// The time zone is unknown.
    #[error(transparent)]
    Zone(#[from] TimeZoneError),
    /// The value has the form of no time.
    #[error(
        "expected a time such as `2026-03-29T09:00:00Z`, or without an offset and with `timezone` or \
         `[Europe/Berlin]` behind it, got {found}"
    )]
    Form {
        /// Value that was given, as JSON.
        found: String,
    },
    /// The text and `timezone` name different zones.
    #[error("{found} names another time zone than `timezone`: leave one of the two out")]
    OtherZone {
        /// Value that was given, as JSON.
        found: String,
    },
    /// The offset is not that of the zone at that time.
    #[error("{found}: its time zone has another offset then, its clocks show {shown}")]
    Offset {
        /// Value that was given, as JSON.
        found: String,
        /// Time on the clocks of the zone.
        shown: DateTime,
    },
    /// The time is earlier than any that [`Millis`] holds.
    #[error("{found} is before 1970")]
    BeforeEpoch {
        /// Value that was given, as JSON.
        found: String,
    },
}

/// A value that is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a duration such as `90s`, `5m` or `1h`, got {found}")]
pub struct TimerDurationError {
    /// Value that was given, as JSON.
    pub found: String,
}

/// Reads an instant: RFC 3339, milliseconds since 1970, or `2026-03-29T09:00` on the wall clock of a time zone, which
/// may also follow in brackets (RFC 9557).
pub fn parse_instant(named: &serde_json::Value, timezone: Option<&str>) -> Result<Millis, TimerInstantError> {
    let zone = cron::zone(timezone)?;
    if let Some(at) = named.as_u64() {
        return Ok(Millis(at));
    }
    let text = named.as_str().unwrap_or_default();
    let expected = || TimerInstantError::Form { found: named.to_string() };
    let at = match text.split_once('[') {
        None => text.parse().ok().or_else(|| cron::instant_shown(&zone, text.parse().ok()?)).ok_or_else(expected)?,
        Some((time, annotation)) => {
            let name =
                annotation.strip_suffix(']').filter(|name| !name.contains(['[', ']', '='])).ok_or_else(expected)?;
            // The `!` demands that the zone isn't ignored, which it never is.
            let own = cron::zone(Some(name.strip_prefix('!').unwrap_or(name)))?;
            if timezone.is_some() && zone != own {
                return Err(TimerInstantError::OtherZone { found: named.to_string() });
            }
            parse_zoned(&own, time, named)?
        }
    };
    let before_epoch = |_| TimerInstantError::BeforeEpoch { found: named.to_string() };
    u64::try_from(at.as_millisecond()).map(Millis).map_err(before_epoch)
}

/// Reads the time of `named` with its zone behind it; an offset in it must be that of the zone at that time.
fn parse_zoned(zone: &TimeZone, time: &str, named: &serde_json::Value) -> Result<Timestamp, TimerInstantError> {
    let Ok(at) = time.parse::<Timestamp>() else {
        let local = time.parse::<DateTime>().ok();
        let at = local.and_then(|local| cron::instant_shown(zone, local));
        return at.ok_or_else(|| TimerInstantError::Form { found: named.to_string() });
    };
    let shown = zone.to_datetime(at);
    // With `Z` the wall clock is unknown, says RFC 9557.
    let is_so = time.parse::<DateTime>().is_ok_and(|own| own == shown) || time.ends_with(['Z', 'z']);
    if is_so { Ok(at) } else { Err(TimerInstantError::Offset { found: named.to_string(), shown }) }
}

/// Reads a duration: `90s`, `5m`, or milliseconds.
pub fn parse_duration(named: &serde_json::Value) -> Result<Duration, TimerDurationError> {
    if let Some(ms) = named.as_u64() {
        return Ok(Duration::from_millis(ms));
    }
    let text = named.as_str().unwrap_or_default();
    humantime::parse_duration(text).map_err(|_| TimerDurationError { found: named.to_string() })
}
