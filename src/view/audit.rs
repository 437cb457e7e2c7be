//! Answers about the audit, `doctor`'s report and the health of a venue.

use crate::domain::audit::AuditTotals;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Totals of an audit, and the repairs that were made before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditView {
    /// Totals of all owners; in JSON their keys stand beside `repaired`.
    #[serde(flatten)]
    pub totals: AuditTotals,
    /// Repairs, in their order; absent unless a repair was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repaired: Option<Vec<RepairView>>,
}

/// A finding that was repaired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepairView {
    /// Owner as `tenant/user`.
    pub owner: String,
    /// Description of the finding.
    pub found: String,
    /// Description of the repair.
    pub did: String,
}

/// Guarantees that hold with the settings of a venue's servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DoctorView {
    /// Settings of the store, of the queue and of the process that has looked.
    pub settings: Vec<SettingView>,
    /// Guarantees by number.
    pub guarantees: Vec<GuaranteeView>,
    /// Number of broken guarantees.
    pub broken: usize,
    /// Whether the store has lost changes, or the queue a stream, that no operator has settled.
    #[serde(default)]
    pub unsettled: bool,
    /// What to change, one line for each setting with a problem.
    #[serde(default)]
    pub advice: Vec<String>,
}

/// A setting of a server, and what depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettingView {
    /// Name of the setting, with its server or its stream.
    pub name: String,
    /// Value of the setting, in words.
    pub value: String,
    /// State of the setting: `unknown` if the server doesn't disclose a value that matters.
    #[schemars(extend("enum" = ["ok", "unknown", "problem"]))]
    pub state: String,
    /// What to change; null if the setting is right.
    pub problem: Option<String>,
    /// Numbers of the guarantees that depend on the setting.
    #[serde(default)]
    pub guarantees: Vec<u8>,
}

/// A guarantee, and whether it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuaranteeView {
    /// Number of the guarantee.
    pub number: u8,
    /// Text of the guarantee.
    pub text: String,
    /// State of the guarantee: `unknown` if it depends on a setting that the server doesn't disclose.
    #[schemars(extend("enum" = ["holds", "unknown", "broken"]))]
    pub verdict: String,
}

/// Sign that a process serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LivenessView {
    /// Always `live`: the process serves.
    #[schemars(extend("const" = "live"))]
    pub status: String,
}

/// Status of a process that can take work.
const READY: &str = "ready";

/// Sign that a process can take work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReadinessView {
    /// Always `ready`; a process that isn't ready answers with a problem.
    #[schemars(extend("const" = "ready"))]
    pub status: String,
    /// Since when the queue is away, in words; absent while it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
}

impl ReadinessView {
    /// Makes the answer of a process that can take work.
    pub fn new(queue: Option<String>) -> Self {
        Self { status: READY.to_owned(), queue }
    }

    /// Whether the process can take work.
    pub fn is_ready(&self) -> bool {
        self.status == READY
    }
}

/// Amount of work of the whole venue that waits or runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkView {
    /// Number of messages and busy sessions together.
    pub work: i64,
    /// Messages that wait in the queue.
    pub messages: i64,
    /// Seconds since the oldest of them was published.
    pub oldest_seconds: i64,
}
