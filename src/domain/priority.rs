//! Priority of a task among those of its agent: it orders the tasks of a session in its mailbox, and the sessions of an
//! agent that wait for a turn.

use serde::{Deserialize, Serialize};

/// Urgency of a task beside the others of its agent; `-1`, `0` or `1` in requests and records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub enum Priority {
    /// Processed after all other tasks.
    Low,
    /// Default urgency of a task.
    #[default]
    Normal,
    /// Processed before all other tasks.
    High,
}

/// A number or a text that is no priority.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PriorityError {
    /// A number that is none of the three.
    #[error("expected -1 (behind the others), 0 or 1 (before them), got {found}")]
    Number {
        /// Number that was given.
        found: i64,
    },
    /// A text that is no number.
    #[error("expected -1, 0 or 1, got `{found}`")]
    Text {
        /// Text that was given.
        found: String,
    },
}

impl TryFrom<i64> for Priority {
    type Error = PriorityError;
    fn try_from(number: i64) -> Result<Self, PriorityError> {
        match number {
            -1 => Ok(Self::Low),
            0 => Ok(Self::Normal),
            1 => Ok(Self::High),
            found => Err(PriorityError::Number { found }),
        }
    }
}

impl From<Priority> for i64 {
    fn from(priority: Priority) -> Self {
        match priority {
            Priority::Low => -1,
            Priority::Normal => 0,
            Priority::High => 1,
        }
    }
}

impl std::str::FromStr for Priority {
    type Err = PriorityError;
    fn from_str(text: &str) -> Result<Self, PriorityError> {
        let number: i64 = text.parse().map_err(|_| PriorityError::Text { found: text.to_owned() })?;
        Self::try_from(number)
    }
}

impl Priority {
    /// Whether it is the default.
    pub fn is_normal(&self) -> bool {
        *self == Self::Normal
    }
}

/// Prefix of the [mailbox key](crate::event::mailbox_key) of a task of high priority; results and messages sort before
/// it. A session whose mailbox has such a task is the first of its agent to get a turn.
pub const HIGH_PREFIX: &str = "25-";
/// Prefix of the mailbox key of a task of low priority; tasks of normal priority have `3-`. A session whose mailbox begins
/// with such a task is the last of its agent to get a turn.
pub const LOW_PREFIX: &str = "4-";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode;
    use serde_json::json;

    #[test]
    fn a_priority_is_one_of_three_numbers() {
        for (said, expected) in [
            (json!(-1), Some(Priority::Low)),
            (json!(0), Some(Priority::Normal)),
            (json!(1), Some(Priority::High)),
            (json!(2), None),
            (json!(-2), None),
            (json!(1.5), None),
            (json!("1"), None),
            (json!(true), None),
            (json!(null), None),
        ] {
            assert_eq!(decode::into_type::<Priority>(said.clone()).ok(), expected, "{said}");
            assert_eq!(said.to_string().parse::<Priority>().ok(), expected, "{said}");
        }
        assert_eq!(serde_json::to_value(Priority::Low).unwrap(), json!(-1));
        let error = "5".parse::<Priority>().unwrap_err();
        assert_eq!(error, PriorityError::Number { found: 5 });
        let error = error.to_string();
        assert!(error.contains("-1 (behind the others), 0 or 1 (before them), got 5"), "{error}");
    }
}
