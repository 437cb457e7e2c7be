//! Answers about workers.

use crate::domain::time::Millis;
use crate::domain::worker_registry::{DrainOrder, WorkerRecord};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Registered workers of a venue; a record is deleted a day after its last heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkersView {
    /// Workers, sorted by name.
    pub workers: Vec<WorkerView>,
}

/// A worker, as it has registered itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerView {
    /// Name of the worker, as in leases.
    pub name: String,
    /// Name of its machine.
    pub host: String,
    /// Version of its build.
    pub version: String,
    /// Number of the store format that it writes.
    pub format: u32,
    /// Number of sessions that it runs at once.
    pub slots: u32,
    /// Number of sessions that run.
    pub busy: u32,
    /// Time of its start, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub since: Millis,
    /// Time of its last heartbeat, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub seen: Millis,
    /// State of the worker: `works`, `told to leave` once it is ordered to drain, `leaving` once it accepts no new
    /// work, `silent` without a heartbeat for 20 seconds.
    #[schemars(extend("enum" = ["works", "told to leave", "leaving", "silent"]))]
    pub state: String,
    /// Order to drain it; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainOrder>,
}

impl WorkerView {
    /// Makes the answer about a worker at the time `now`, which decides whether it is silent.
    pub fn new(worker: &WorkerRecord, now: Millis) -> Self {
        Self {
            name: worker.name.clone(),
            host: worker.host.clone(),
            version: worker.version.clone(),
            format: worker.format,
            slots: worker.slots,
            busy: worker.busy,
            since: worker.since,
            seen: worker.seen,
            state: worker.state(now).to_owned(),
            drain: worker.drain.clone(),
        }
    }
}

/// Workers that were ordered to drain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerDrainView {
    /// Names of the workers.
    pub draining: Vec<String>,
    /// The one of `draining` that is in the process that has answered, which ends once it has drained; null if none is.
    pub here: Option<String>,
}
