//! Limits of the tasks of an agent.

use crate::budget::Budget;
use crate::cap::Ceiling;
use crate::limits::TURNS_PER_TASK;
use serde::{Deserialize, Serialize};

/// Limits of one task.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentLimits {
    /// Number of turns per task at most.
    #[serde(default = "default_turns")]
    pub turns: u32,
    /// Tokens of a task and of everything under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// US dollars of a task and of everything under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Tokens and US dollars of each session over its whole life.
    #[serde(default, skip_serializing_if = "Ceiling::is_none")]
    pub session: Ceiling,
    /// Seconds from the acceptance of a task to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_clock: Option<u64>,
    /// Seconds of one tool call at most; the venue's own limit applies besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_timeout: Option<u64>,
    /// Whether a task that reaches a limit has one last turn to end in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wind_down: bool,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self {
            turns: default_turns(),
            tokens: None,
            cost: None,
            session: Ceiling::default(),
            wall_clock: None,
            tool_timeout: None,
            wind_down: false,
        }
    }
}

impl AgentLimits {
    /// Returns the key of the limit that is given in money, if one is.
    pub const fn in_money(&self) -> Option<&'static str> {
        match (self.cost, self.session.cost) {
            (Some(_), _) => Some("limits.cost"),
            (None, Some(_)) => Some("limits.session.cost"),
            (None, None) => None,
        }
    }

    /// Returns the limits of a task as a budget, without its turns.
    pub const fn budget(&self) -> Budget {
        Budget { tokens: self.tokens, cost: self.cost, turns: None, wall_clock: self.wall_clock }
    }
}

const fn default_turns() -> u32 {
    TURNS_PER_TASK
}
