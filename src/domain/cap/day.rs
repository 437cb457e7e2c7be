//! Days of a named time zone: a day with a change of the clock is shorter or longer.

use crate::time::Millis;
use crate::time::cron;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::time::Duration;

/// A time zone with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    name: String,
    zone: TimeZone,
}

/// A day in a time zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Day {
    /// Date as `YYYY-MM-DD`.
    pub date: String,
    /// Time at which the next day begins.
    pub ends: Millis,
    /// Name of the time zone.
    pub zone: String,
}

impl Default for Zone {
    fn default() -> Self {
        Self { name: "UTC".into(), zone: TimeZone::UTC }
    }
}

impl Zone {
    /// Returns the zone of an IANA name such as `Europe/Berlin`, or of `UTC`.
    pub fn parse(name: &str) -> Option<Self> {
        let zone = cron::zone(Some(name)).ok()?;
        Some(Self { name: name.to_owned(), zone })
    }

    /// Returns the name of the zone.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the day at a time.
    pub fn day(&self, now: Millis) -> Day {
        let at = i64::try_from(now.0).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or_default();
        let date = at.to_zoned(self.zone.clone()).date();
        // A change of the clock may leave out midnight: then the day begins just after it.
        let ends = date.tomorrow().and_then(|next| next.to_zoned(self.zone.clone()));
        let ends = ends.ok().and_then(|ends| u64::try_from(ends.timestamp().as_millisecond()).ok());
        Day { date: date.to_string(), ends: ends.map_or(Millis(u64::MAX), Millis), zone: self.name.clone() }
    }

    /// Returns the date `days` days before a time.
    pub fn date_before(&self, now: Millis, days: u32) -> String {
        let age = Duration::from_hours(24) * days;
        self.day(now.minus(age)).date
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_ends_at_local_midnight_also_on_clock_changes() {
        for (zone, now, date, ends) in [
            ("UTC", "2026-11-22T23:59:59.999Z", "2026-11-22", "2026-11-23T00:00:00Z"),
            ("UTC", "2026-11-23T00:00:00Z", "2026-11-23", "2026-11-24T00:00:00Z"),
            ("Europe/Berlin", "2026-11-22T22:59:59Z", "2026-11-22", "2026-11-22T23:00:00Z"),
            ("Europe/Berlin", "2026-11-22T23:00:00Z", "2026-11-23", "2026-11-23T23:00:00Z"),
            // 23 hours, then 25.
            ("Europe/Berlin", "2026-03-28T23:00:00Z", "2026-03-29", "2026-03-29T22:00:00Z"),
            ("Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-25", "2026-10-25T23:00:00Z"),
            ("America/New_York", "2026-03-08T05:00:00Z", "2026-03-08", "2026-03-09T04:00:00Z"),
            ("Asia/Kathmandu", "2026-01-01T18:15:00Z", "2026-01-02", "2026-01-02T18:15:00Z"),
            // Midnight is left out: the day begins at one.
            ("America/Santiago", "2026-09-06T03:59:59Z", "2026-09-05", "2026-09-06T04:00:00Z"),
            ("America/Santiago", "2026-09-06T04:00:00Z", "2026-09-06", "2026-09-07T03:00:00Z"),
            // The last hour before midnight comes twice.
            ("America/Santiago", "2026-04-05T02:30:00Z", "2026-04-04", "2026-04-05T04:00:00Z"),
            ("America/Santiago", "2026-04-05T03:30:00Z", "2026-04-04", "2026-04-05T04:00:00Z"),
        ] {
            let now = Millis::parse(now).unwrap();
            let day = Zone::parse(zone).unwrap().day(now);
            assert_eq!((day.date.as_str(), day.ends), (date, Millis::parse(ends).unwrap()), "{zone} {now:?}");
            assert!(day.ends > now);
        }
        assert_eq!(Zone::parse("Mars/Olympus"), None);
        assert_eq!(Zone::default().date_before(Millis::parse("2026-03-01").unwrap(), 1), "2026-02-28");
        assert_eq!(Zone::default().day(Millis(u64::MAX)).date.len(), 10, "a clock that is wrong stops nothing");
    }
}
