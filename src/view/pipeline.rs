//! The run of a pipeline as callers see it.

use crate::domain::authority::Authority;
use crate::domain::ids::JobId;
use crate::domain::pipeline_run::{PipelineState, RunningStep};
use crate::domain::session::WITHHELD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The State of one run of a pipeline, and how far the run has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineRunView {
    /// Task that the run serves.
    pub job: JobId,
    /// Inputs and outputs of the steps by name; empty where they are hidden.
    pub state: Map<String, Value>,
    /// Steps that have begun and not ended.
    pub running: Vec<RunningStepView>,
    /// Passes of the loop that have ended.
    pub passes: u32,
    /// Number of steps that have begun, in all passes.
    pub begun: usize,
    /// The failed step and its reason; absent where none has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Why the values are left out: the run had authority that the reader does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<String>,
}

/// A running step: the name of its output, and its child job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunningStepView {
    /// Name of its output in the State.
    pub key: String,
    /// Child job that does it; absent while its call waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
}

impl PipelineRunView {
    /// Returns the run as a reader may see it.
    pub fn for_reader(run: &PipelineState, reader: &Authority) -> Self {
        let is_visible = reader.covers_reading(&run.authority);
        let step = |step: &RunningStep| RunningStepView { key: step.key.clone(), job: step.job.clone() };
        Self {
            job: run.job.clone(),
            state: if is_visible { run.values.clone() } else { Map::new() },
            running: run.running.iter().map(step).collect(),
            passes: run.passes,
            begun: run.begun,
            failure: run.failure.as_ref().filter(|_| is_visible).map(|failure| failure.text.clone()),
            hidden: (!is_visible).then(|| WITHHELD.to_owned()),
        }
    }
}
