//! Answers about what is scheduled, under Covia's names.

use crate::domain::ids::AgentId;
use crate::domain::time::Millis;
use crate::domain::timer::TimerId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An operation that was scheduled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledView {
    /// Id of its timer.
    pub handle: TimerId,
    /// Time at which it runs, in milliseconds since 1970; null where it has run already.
    #[schemars(with = "Option<u64>")]
    pub time: Option<Millis>,
}

/// A page of scheduled operations, the next first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledPage {
    /// Scheduled operations of the page.
    #[serde(default)]
    pub events: Vec<ScheduledRowView>,
    /// `offset` of the next page; null after the last.
    pub next: Option<usize>,
}

/// A scheduled operation in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledRowView {
    /// Id of its timer.
    pub handle: TimerId,
    /// Path of the operation.
    pub op: String,
    /// Time at which it runs, in milliseconds since 1970; null where it has run already.
    #[schemars(with = "Option<u64>")]
    pub time: Option<Millis>,
    /// The agent to which it sends.
    pub agent_id: AgentId,
}

/// Whether a scheduled operation was cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleCancellationView {
    /// False if it was sent, run or cancelled before, or isn't there.
    pub cancelled: bool,
}

/// Whether a scheduled operation was run early.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleTriggerView {
    /// False if it was sent or cancelled before, or isn't there.
    pub triggered: bool,
}
