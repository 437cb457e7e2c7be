//! Cron expressions on the wall clock of a time zone.
//!
//! The expression is matched on a clock without a zone; the result is then looked up in the zone. A time that a zone
//! leaves out in spring fires once, at the next existing instant; a time that occurs twice in autumn fires at its first
//! occurrence. Only an expression for every hour (`*`) follows the real hours, none left out and none repeated.

use crate::time::Millis;
use cronexpr::{Crontab, FallbackTimezoneOption, MakeTimestamp, ParseOptions};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};
use std::sync::LazyLock;

/// Time zones that are built in, the same for every process.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Names of the fields, in their order.
const FIELDS: [&str; 5] = ["minute", "hour", "day of month", "month", "day of week"];

/// Short names of expressions.
const NICKNAMES: [(&str, &str); 6] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
];

/// Number of candidates after which a search gives up: changes of the clock in more years than a leap day is away.
const LOOKS: usize = 64;

/// A name that is no time zone's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`timezone`: no time zone `{name}`, expected an IANA name such as `Europe/Berlin`, or `UTC`")]
pub struct TimeZoneError {
    /// Name that was given.
    pub name: String,
}

/// Reason why a text is no cron expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// The time zone is unknown.
    #[error(transparent)]
    Zone(#[from] TimeZoneError),
    /// The expression has another number of fields.
    #[error(
        "`cron`: expected 5 fields (minute, hour, day of month, month, day of week), got {found} in `{expression}`; \
         for seconds use `every`, the time zone goes into `timezone`"
    )]
    FieldCount {
        /// Expression that was given, or that a short name stands for.
        expression: String,
        /// Number of its fields.
        found: usize,
    },
    /// A field is illegal by itself.
    #[error("`cron`: {name} `{field}`: {reason}")]
    Field {
        /// Name of the field.
        name: &'static str,
        /// Text of the field.
        field: String,
        /// Reason in the words of the library.
        reason: String,
    },
    /// The fields are legal, but not together.
    #[error("`cron`: {reason}")]
    Fields {
        /// Expression that was given, or that a short name stands for.
        expression: String,
        /// Reason in the words of the library.
        reason: String,
    },
    /// The expression names a day that doesn't come.
    #[error("`cron`: there is no such day in the next four years, it would never fire")]
    NoDay,
}

/// Returns the time zone of a name; UTC without one.
pub fn zone(name: Option<&str>) -> Result<TimeZone, TimeZoneError> {
    let Some(name) = name else { return Ok(TimeZone::UTC) };
    ZONES.get(name).map_err(|_| TimeZoneError { name: name.to_owned() })
}

/// A cron expression in a time zone.
#[derive(Debug, Clone)]
pub struct Cron {
    /// Expression in the zone UTC, as a clock without a zone.
    tab: Crontab,
    zone: TimeZone,
    every_hour: bool,
}

impl Cron {
    /// Parses `minute hour day-of-month month day-of-week`, or a short name such as `@daily`. The error names the
    /// field.
    pub fn parse(expression: &str, timezone: Option<&str>) -> Result<Self, CronError> {
        let zone = zone(timezone)?;
        let known = NICKNAMES.iter().find(|(name, _)| *name == expression.trim());
        let expression = known.map_or(expression, |(_, meant)| meant);
        let fields: Vec<&str> = expression.split_whitespace().collect();
        if fields.len() != FIELDS.len() {
            return Err(CronError::FieldCount { expression: expression.to_owned(), found: fields.len() });
        }
        for (at, (field, name)) in fields.iter().zip(FIELDS).enumerate() {
            let mut alone = ["*"; 5];
            alone[at] = field;
            tab(&alone).map_err(|error| CronError::Field {
                name,
                field: (*field).to_owned(),
                reason: library_reason(&error),
            })?;
        }
        let tab = tab(&fields)
            .map_err(|error| CronError::Fields { expression: expression.to_owned(), reason: library_reason(&error) })?;
        Ok(Self { tab, zone, every_hour: fields[1] == "*" })
    }

    /// Returns the first time after `after`; `None` if there is none in the next four years.
    pub fn next_after(&self, after: Millis) -> Option<Millis> {
        let after = Timestamp::from_millisecond(i64::try_from(after.0).ok()?).ok()?;
        let found = if self.every_hour { self.next_hourly(after) } else { self.next_fixed(after) }?;
        u64::try_from(found.as_millisecond()).ok().map(Millis)
    }

    /// Returns the first match on the clock without a zone.
    fn next_shown(&self, after: DateTime) -> Option<DateTime> {
        let after = TimeZone::UTC.to_timestamp(after).ok()?;
        Some(self.tab.find_next(MakeTimestamp(after)).ok()?.datetime())
    }

    fn next_fixed(&self, after: Timestamp) -> Option<Timestamp> {
        let mut shown = self.zone.to_datetime(after);
        for _ in 0..LOOKS {
            shown = self.next_shown(shown)?;
            let instant = instant_shown(&self.zone, shown)?;
            if instant > after {
                return Some(instant);
            }
        }
        None
    }

    /// Between two changes of the clock the expression is matched on the local clock.
    fn next_hourly(&self, after: Timestamp) -> Option<Timestamp> {
        let mut offset = self.zone.to_offset(after);
        let mut shown = offset.to_datetime(after);
        let mut change = change_after(&self.zone, after);
        for _ in 0..LOOKS {
            let found = offset.to_timestamp(self.next_shown(shown)?).ok()?;
            let Some(at) = change.filter(|at| found >= *at) else { return Some(found) };
            offset = self.zone.to_offset(at);
            // The minute of the change itself may match.
            shown = offset.to_datetime(at).checked_sub(SignedDuration::from_secs(1)).ok()?;
            change = change_after(&self.zone, at);
        }
        None
    }
}

/// Returns the instant at which the local clock shows this time; where a change leaves it out, the next existing one.
pub fn instant_shown(zone: &TimeZone, shown: DateTime) -> Option<Timestamp> {
    match zone.to_ambiguous_timestamp(shown).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(shown).ok(),
        // The clock shows the time twice: the first occurrence counts.
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(shown).ok(),
        // By the offset of the other side it is just before the change.
        AmbiguousOffset::Gap { after, .. } => change_after(zone, after.to_timestamp(shown).ok()?),
    }
}

/// Returns the next change of a zone's offset.
fn change_after(zone: &TimeZone, at: Timestamp) -> Option<Timestamp> {
    zone.following(at).next().map(|change| change.timestamp())
}

fn tab(fields: &[&str]) -> Result<Crontab, cronexpr::Error> {
    let mut options = ParseOptions::default();
    options.fallback_timezone_option = FallbackTimezoneOption::UTC;
    cronexpr::parse_crontab_with(&fields.join(" "), options)
}

/// Returns the reason of an error, whose text shows the expression with a mark before it.
fn library_reason(error: &cronexpr::Error) -> String {
    let text = error.to_string();
    text.rsplit_once("^ ").map_or(text.clone(), |(_, why)| why.to_owned())
}
