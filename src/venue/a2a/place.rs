//! Places in the log of a task: the ids of its events, from which a stream or a push notification goes on.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Turn of the events behind the last turn of a task.
const END: u64 = u64::MAX;

/// Spelling of that turn.
const END_WORD: &str = "end";

/// Place of an event: the turn that caused it, and its number among the events of that turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LogPlace {
    turn: u64,
    index: u32,
}

/// A text that is no place of a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected the `id` of an event, got `{0}`")]
pub struct LogPlaceError(pub String);

impl LogPlace {
    /// Returns the place of an event of a turn.
    pub const fn in_turn(turn: u64, index: u32) -> Self {
        Self { turn, index }
    }

    /// Returns the place behind all events of a turn.
    pub const fn behind_turn(turn: u64) -> Self {
        Self { turn, index: u32::MAX }
    }

    /// Returns the place of an event that ends the task.
    pub const fn at_end(index: u32) -> Self {
        Self { turn: END, index }
    }

    /// Returns the last turn whose events are all before this place; the turns behind it are read.
    pub const fn turn_before(self) -> u64 {
        if self.index == u32::MAX { self.turn } else { self.turn.saturating_sub(1) }
    }

    /// Whether the place is among the events that end the task.
    pub const fn is_end(self) -> bool {
        self.turn == END
    }
}

impl fmt::Display for LogPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_end() { write!(f, "{END_WORD}-{}", self.index) } else { write!(f, "{}-{}", self.turn, self.index) }
    }
}

impl TryFrom<String> for LogPlace {
    type Error = LogPlaceError;

    fn try_from(text: String) -> Result<Self, LogPlaceError> {
        let parsed = text.split_once('-').and_then(|(turn, index)| {
            let turn = if turn == END_WORD { END } else { turn.parse::<u64>().ok().filter(|turn| *turn != END)? };
            Some(Self { turn, index: index.parse().ok()? })
        });
        parsed.ok_or_else(|| LogPlaceError(text.chars().take(80).collect()))
    }
}

impl From<LogPlace> for String {
    fn from(place: LogPlace) -> Self {
        place.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_ordered_and_read_back() {
        let places = [
            LogPlace::in_turn(0, 0),
            LogPlace::behind_turn(0),
            LogPlace::in_turn(9, 0),
            LogPlace::in_turn(9, 1),
            LogPlace::in_turn(10, 0),
            LogPlace::at_end(0),
            LogPlace::at_end(1),
        ];
        assert!(places.is_sorted());
        for place in places {
            assert_eq!(LogPlace::try_from(place.to_string()), Ok(place));
        }
        for (place, before) in
            [(LogPlace::in_turn(9, 1), 8), (LogPlace::behind_turn(9), 9), (LogPlace::in_turn(0, 0), 0)]
        {
            assert_eq!(place.turn_before(), before, "{place}");
        }
        for bad in ["", "5", "x-1", "1-x", "18446744073709551615-0", "end-", "-1"] {
            assert!(LogPlace::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
