//! Sessions with a time to live: a session in which nothing happened for that time is new and empty at its next event.
//!
//! The arrival of an event counts, not the time at which a worker takes it: an event that arrives in time finds the
//! session, however long the queue is. A session at work never expires, whatever it waits for. The turns stay in the
//! store until their retention ends; no prompt and no conversation shows them.

use super::session::SessionState;
use super::time::Millis;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Range of a session's time to live.
const RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(24 * 36_500);

/// Settings of an agent's sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionSettings {
    /// Time to live after a session's last turn; absent = for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Ttl>,
}

/// A time to live, with the text that it was written as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ttl {
    text: String,
    time: Duration,
}

/// A text that is no time to live.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a duration from 1s to 100 years such as `30m`, `12h` or `7d`, got `{found}`")]
pub struct TtlError {
    /// Text that was given.
    pub found: String,
}

impl TryFrom<String> for Ttl {
    type Error = TtlError;

    fn try_from(text: String) -> Result<Self, TtlError> {
        let time = humantime::parse_duration(&text).ok().filter(|time| RANGE.contains(time));
        match time {
            Some(time) => Ok(Self { text, time }),
            None => Err(TtlError { found: text }),
        }
    }
}

impl From<Ttl> for String {
    fn from(ttl: Ttl) -> Self {
        ttl.text
    }
}

impl SessionState {
    /// Makes the state of a session whose conversation of `turns` turns has expired: an empty one.
    #[must_use]
    pub fn after_expiry(turns: u64) -> Self {
        Self { since: turns, ..Self::default() }
    }

    /// Whether nothing in it waits or runs.
    pub fn is_idle(&self) -> bool {
        self.current_work().is_none() && self.pending.is_empty()
    }

    /// Whether it had expired at `at`, when its newest turn ended at `last`.
    pub fn is_expired(&self, ttl: &Ttl, last: Millis, at: Millis) -> bool {
        // The turns of a copy are older than the copy.
        let last = self.copied.map_or(last, |copied| copied.max(last));
        self.is_idle() && at >= last.plus(ttl.time)
    }

    /// Returns the number of the last turn that the conversation at `at` doesn't include; the session has `turns`
    /// turns, the newest of which ended at `last`.
    pub fn conversation_start(&self, ttl: Option<&Ttl>, turns: u64, last: Millis, at: Millis) -> u64 {
        if ttl.is_some_and(|ttl| self.is_expired(ttl, last, at)) { turns } else { self.since }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::JobId;
    use crate::session::TaskProgress;

    fn ttl(text: &str) -> Result<Ttl, TtlError> {
        Ttl::try_from(text.to_owned())
    }

    #[test]
    fn a_time_to_live_is_a_duration() {
        for text in ["1s", "30m", "7d", "1h 30m"] {
            assert_eq!(String::from(ttl(text).unwrap()), text);
        }
        for text in ["", "0s", "10ms", "30", "soon", "-1h", "101years"] {
            let error = ttl(text).unwrap_err().to_string();
            assert!(error.contains(&format!("such as `30m`, `12h` or `7d`, got `{text}`")), "{error}");
        }
    }

    #[test]
    fn an_idle_session_expires_and_a_working_one_does_not() {
        let hour = ttl("1h").unwrap();
        let (last, at) = (Millis(1_000), |minutes: u64| Millis(1_000 + minutes * 60_000));
        let rests = SessionState::default();
        let job = JobId::new(&"0".repeat(32)).unwrap();
        let works = SessionState { task: Some(TaskProgress::new(job)), ..SessionState::default() };
        let copy = SessionState { copied: Some(at(30)), ..SessionState::default() };
        for (state, minutes, over) in [
            (&rests, 0, false),
            (&rests, 59, false),
            (&rests, 60, true),
            (&rests, 600, true),
            (&works, 600, false),
            (&copy, 60, false),
            (&copy, 90, true),
        ] {
            assert_eq!(state.is_expired(&hour, last, at(minutes)), over, "{state:?} after {minutes} minutes");
        }
        assert!(!rests.is_expired(&hour, at(30), last), "a clock that goes back ends nothing");
        let old = SessionState { since: 3, ..SessionState::default() };
        assert_eq!(old.conversation_start(Some(&hour), 9, last, at(59)), 3);
        assert_eq!(old.conversation_start(Some(&hour), 9, last, at(60)), 9);
        assert_eq!(old.conversation_start(None, 9, last, at(600)), 3);
        assert_eq!(SessionState::after_expiry(9), SessionState { since: 9, ..SessionState::default() });
    }
}
