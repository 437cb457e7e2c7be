//! The State of one run of a pipeline, and what becomes of it when a step begins, waits or ends.
//!
//! It is part of the session and is written with the commit of each turn. Nothing else says how far a run has come.

mod next;
#[cfg(test)]
mod tests;

pub use next::{PipelineMove, StepCall, StepTarget, next_move};

use crate::authority::Authority;
use crate::decode;
use crate::ids::JobId;
use crate::job::{ErrorCode, JobResult, JobStatus};
use crate::limits::RESULT_DEPTH;
use crate::limits::pipeline::PIPELINE_STATE_BYTES;
use crate::lines::ERASED;
use crate::pipeline::Pipeline;
use crate::visible::cut_at;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Bytes of the reason of a failed step.
const REASON_BYTES: usize = 8 * 1024;

/// The working object of one run, and how far the run has come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PipelineState {
    /// Task that the run serves.
    pub job: JobId,
    /// SHA-256 of the manifest that it began with.
    pub manifest: String,
    /// Inputs and outputs by name.
    pub values: Map<String, Value>,
    /// Input of a step that maps none: the output of the step before it, or the input of the task.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub upstream: Value,
    /// Index of the step that begins next.
    pub step: usize,
    /// Passes of the loop that have ended.
    pub passes: u32,
    /// Number of steps that have begun, in all passes.
    pub begun: usize,
    /// Steps that have begun and not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running: Vec<RunningStep>,
    /// Why the run fails; the first failure counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<StepFailure>,
    /// Authority of the last turn: a reader who holds less doesn't see the values.
    #[serde(default, skip_serializing_if = "Authority::is_unlimited")]
    pub authority: Authority,
}

/// A running step: the call that began it, and its child job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunningStep {
    /// Name of its output.
    pub key: String,
    /// The step in words, with its number and its pass.
    pub place: String,
    /// Turn whose call has begun it.
    pub turn: u64,
    /// Index of that call.
    pub call: u32,
    /// Child job that does it; absent while its call has no outcome yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
}

/// Why a run fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepFailure {
    /// Code of the job's error.
    pub code: ErrorCode,
    /// The failed step and its reason.
    pub text: String,
}

impl StepFailure {
    /// Makes a failure with a reason of bounded length.
    pub fn new(code: ErrorCode, text: &str) -> Self {
        Self { code, text: cut_at(text, REASON_BYTES) }
    }
}

impl PipelineState {
    /// Begins a run with the inputs of its task; `input` is the whole input.
    pub fn begin(job: JobId, pipeline: &Pipeline, values: Map<String, Value>, input: Value) -> Self {
        Self {
            job,
            manifest: pipeline.hash(),
            values,
            upstream: input,
            step: 0,
            passes: 0,
            begun: 0,
            running: Vec::new(),
            failure: None,
            authority: Authority::default(),
        }
    }

    /// Records the child job of a step that a call has begun.
    pub fn note_started(&mut self, turn: u64, call: u32, job: &JobId) {
        if let Some(step) = self.running.iter_mut().find(|step| (step.turn, step.call) == (turn, call)) {
            step.job = Some(job.clone());
        }
    }

    /// Ends the step that a call has begun.
    pub fn end_call(&mut self, turn: u64, call: u32, ended: Result<Value, StepFailure>) {
        if let Some(at) = self.running.iter().position(|step| (step.turn, step.call) == (turn, call)) {
            self.end_step(at, ended);
        }
    }

    /// Ends the step that a child job does. Returns whether a step waited for it.
    pub fn end_job(&mut self, job: &JobId, result: &JobResult) -> bool {
        let Some(at) = self.running.iter().position(|step| step.job.as_ref() == Some(job)) else { return false };
        let ended = match result.status {
            JobStatus::Complete => Ok(result.output.clone().unwrap_or(Value::Null)),
            status => {
                let code = result.error_code.unwrap_or(ErrorCode::TaskFailed);
                let reason = result.error.clone().unwrap_or_else(|| format!("its job ended as {}", status.as_str()));
                Err(StepFailure::new(code, &reason))
            }
        };
        self.end_step(at, ended);
        true
    }

    fn end_step(&mut self, at: usize, ended: Result<Value, StepFailure>) {
        let RunningStep { key, place, .. } = self.running.remove(at);
        match ended {
            // A run that fails shows no later outputs; its values may be erased.
            Ok(_) if self.failure.is_some() => {}
            Ok(output) => {
                if let Err(error) = decode::check_to(&output, RESULT_DEPTH) {
                    self.values.insert(key, Value::Null);
                    self.fail(StepFailure::new(ErrorCode::LimitReached, &format!("{place}: its output: {error}")));
                    return;
                }
                let before = self.values.insert(key.clone(), output.clone());
                let bytes = serde_json::to_vec(&self.values).map_or(usize::MAX, |text| text.len());
                if bytes <= PIPELINE_STATE_BYTES {
                    self.upstream = output;
                    return;
                }
                self.values.insert(key, before.unwrap_or(Value::Null));
                let text = format!(
                    "{place}: with its output the State has {bytes} bytes, at most {PIPELINE_STATE_BYTES} may be; let it \
                     return less, or a path below `w/`"
                );
                self.fail(StepFailure::new(ErrorCode::LimitReached, &text));
            }
            Err(StepFailure { code, text }) => {
                self.fail(StepFailure::new(code, &format!("{place}: {}", text.trim_start_matches("error: "))));
            }
        }
    }

    /// Notes why the run fails; the first reason counts.
    pub fn fail(&mut self, failure: StepFailure) {
        self.failure.get_or_insert(failure);
    }

    /// Fails the step that a call has begun, or the run if the step has ended.
    pub fn fail_call(&mut self, turn: u64, call: u32, failure: StepFailure) {
        if self.running.iter().any(|step| (step.turn, step.call) == (turn, call)) {
            self.end_call(turn, call, Err(failure));
        } else {
            self.fail(failure);
        }
    }

    /// Forgets the values of the run, and its reason of a failure. A run that is open fails with `why`. Returns whether
    /// there was anything to forget.
    pub fn erase(&mut self, is_open: bool, why: &str) -> bool {
        let failure = match (&self.failure, is_open) {
            (_, true) => Some(StepFailure::new(ErrorCode::Conflict, why)),
            (Some(failure), false) => Some(StepFailure { text: ERASED.text().to_owned(), ..failure.clone() }),
            (None, false) => None,
        };
        if self.values.is_empty() && self.upstream.is_null() && self.failure == failure {
            return false;
        }
        (self.values, self.upstream, self.failure) = (Map::new(), Value::Null, failure);
        true
    }

    /// Returns the steps that run, in words.
    pub fn running_text(&self) -> String {
        self.running.iter().map(|step| step.place.as_str()).collect::<Vec<_>>().join(", ")
    }
}
