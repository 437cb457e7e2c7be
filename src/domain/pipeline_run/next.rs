//! Decides what a pipeline does next. The State alone says how far its run has come.

use super::{PipelineState, RunningStep, StepFailure};
use crate::decode;
use crate::ids::AgentId;
use crate::job::{ErrorCode, JobResult};
use crate::limits::RESULT_DEPTH;
use crate::limits::pipeline::{PIPELINE_CHILDREN, PIPELINE_INPUT_BYTES, PIPELINE_ITERATIONS};
use crate::pipeline::condition::Condition;
use crate::pipeline::template::{StepRenderer, StepTemplateError};
use crate::pipeline::{Pipeline, PipelineKind, PipelineStep, TOOL_RESULT};
use serde_json::{Map, Value};

/// What a pipeline does next.
#[derive(Debug, Clone, PartialEq)]
pub enum PipelineMove {
    /// Begin these steps side by side, each by the call of its index.
    Start(Vec<StepCall>),
    /// Wait for the steps that run.
    Wait,
    /// The run has ended with this result.
    End(JobResult),
}

/// The call that begins a step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepCall {
    /// Name of the step's output.
    pub key: String,
    /// What does the step.
    pub target: StepTarget,
    /// Input of the step.
    pub input: Value,
    /// Whether the input is what came before the step, because its manifest names none.
    pub is_upstream: bool,
}

/// What does a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepTarget {
    /// The agent of this id, as a child job.
    Agent(AgentId),
    /// The agent that is written in the step of this index.
    Inline(usize),
    /// The tool of this name.
    Tool(String),
}

/// Why a step can't begin.
#[derive(Debug, thiserror::Error)]
enum StepStartError {
    #[error(transparent)]
    Template(#[from] StepTemplateError),
    #[error("its condition can't be read: {0}")]
    Condition(String),
    #[error("it has neither an agent nor a reference")]
    NoAgent,
    #[error("{PIPELINE_CHILDREN} steps were begun by this run already, no more may be")]
    TooMany,
    #[error("its input: {0}")]
    TooDeep(String),
    #[error(
        "the inputs of the branches up to it come to more than {PIPELINE_INPUT_BYTES} bytes; map less into `input`"
    )]
    TooLarge,
}

/// Returns what the run does next, and notes in its State what begins. `turn` is the number of the turn that makes the
/// calls. Once more with the same State and turn it returns the same.
pub fn next_move(pipeline: &Pipeline, state: &mut PipelineState, turn: u64) -> PipelineMove {
    if let Some(StepFailure { code, text }) = &state.failure {
        return PipelineMove::End(JobResult::failure(*code, text.clone()));
    }
    if !state.running.is_empty() {
        return PipelineMove::Wait;
    }
    let decided = match pipeline.kind {
        PipelineKind::Sequential => next_of_sequence(pipeline, state, turn),
        PipelineKind::Parallel => next_of_branches(pipeline, state, turn),
        PipelineKind::Tool => next_of_tool(pipeline, state, turn),
    };
    match decided {
        Ok(Some(calls)) => PipelineMove::Start(calls),
        Ok(None) => PipelineMove::End(match output(pipeline, state) {
            Ok(output) => match decode::check_to(&output, RESULT_DEPTH) {
                Ok(()) => JobResult::complete(output),
                Err(error) => JobResult::failure(ErrorCode::LimitReached, format!("`output`: {error}")),
            },
            Err(error) => JobResult::failure(ErrorCode::TaskFailed, format!("`output`: {error}")),
        }),
        Err(failure) => {
            let StepFailure { code, text } = &failure;
            let ended = JobResult::failure(*code, text.clone());
            state.fail(failure);
            PipelineMove::End(ended)
        }
    }
}

/// Returns the next step of a sequence, past those whose condition doesn't hold; `None` at its end.
fn next_of_sequence(
    pipeline: &Pipeline,
    state: &mut PipelineState,
    turn: u64,
) -> Result<Option<Vec<StepCall>>, StepFailure> {
    loop {
        while let Some(step) = pipeline.steps.get(state.step) {
            let place = step_place(pipeline, state, state.step);
            let begun = begin_step(state, step, state.step);
            state.step += 1;
            if let Some(call) = begun.map_err(|error| failure(&place, &error))? {
                state.note_begun(&call.key, place, turn, 0);
                return Ok(Some(vec![call]));
            }
            state.values.insert(step.state_key.clone(), Value::Null);
            state.upstream = Value::Null;
        }
        let Some(until) = &pipeline.until else { return Ok(None) };
        state.passes += 1;
        let limit = pipeline.max_iterations.unwrap_or(PIPELINE_ITERATIONS).min(PIPELINE_ITERATIONS);
        let is_done = Condition::parse(until)
            .map(|condition| condition.is_met(&state.values))
            .map_err(|error| StepFailure::new(ErrorCode::TaskFailed, &format!("`until`: {error}")))?;
        if is_done || state.passes >= limit {
            return Ok(None);
        }
        state.step = 0;
    }
}

/// Returns all branches whose condition holds; `None` when they have ended.
fn next_of_branches(
    pipeline: &Pipeline,
    state: &mut PipelineState,
    turn: u64,
) -> Result<Option<Vec<StepCall>>, StepFailure> {
    if state.step > 0 {
        return Ok(None);
    }
    state.step = pipeline.steps.len().max(1);
    let (mut calls, mut skipped, mut left) = (Vec::new(), Vec::new(), PIPELINE_INPUT_BYTES);
    for (at, step) in pipeline.steps.iter().enumerate() {
        let place = step_place(pipeline, state, at);
        match begin_step(state, step, at).map_err(|error| failure(&place, &error))? {
            Some(call) => {
                let bytes = serde_json::to_vec(&call.input).map_or(usize::MAX, |text| text.len());
                left = left.checked_sub(bytes).ok_or_else(|| failure(&place, &StepStartError::TooLarge))?;
                calls.push((call, place));
            }
            None => skipped.push(step.state_key.clone()),
        }
    }
    state.values.extend(skipped.into_iter().map(|key| (key, Value::Null)));
    let mut begun = Vec::with_capacity(calls.len());
    for (index, (call, place)) in (0..).zip(calls) {
        state.note_begun(&call.key, place, turn, index);
        begun.push(call);
    }
    Ok((!begun.is_empty()).then_some(begun))
}

/// Returns the one call of a tool; `None` when it has ended.
fn next_of_tool(
    pipeline: &Pipeline,
    state: &mut PipelineState,
    turn: u64,
) -> Result<Option<Vec<StepCall>>, StepFailure> {
    if state.step > 0 {
        return Ok(None);
    }
    state.step = 1;
    let tool = pipeline.tool.clone().unwrap_or_default();
    let place = format!("tool `{tool}`");
    let params = StepRenderer::new(&state.values).map_all(&pipeline.params);
    let params = params.map_err(|error| failure(&place, &error.into()))?;
    let input = Value::Object(params);
    check_depth(&input).map_err(|error| failure(&place, &error))?;
    let call = StepCall { key: TOOL_RESULT.to_owned(), target: StepTarget::Tool(tool), input, is_upstream: false };
    state.note_begun(&call.key, place, turn, 0);
    Ok(Some(vec![call]))
}

/// Returns the call of a step; `None` if its condition doesn't hold.
fn begin_step(state: &PipelineState, step: &PipelineStep, at: usize) -> Result<Option<StepCall>, StepStartError> {
    if let Some(when) = &step.when {
        let condition = Condition::parse(when).map_err(|error| StepStartError::Condition(error.to_string()))?;
        if !condition.is_met(&state.values) {
            return Ok(None);
        }
    }
    if state.begun >= PIPELINE_CHILDREN {
        return Err(StepStartError::TooMany);
    }
    let target = match (&step.reference, &step.agent) {
        (Some(agent), _) => StepTarget::Agent(agent.clone()),
        (None, Some(_)) => StepTarget::Inline(at),
        (None, None) => return Err(StepStartError::NoAgent),
    };
    let input = match &step.input {
        Some(input) => Value::Object(StepRenderer::new(&state.values).map_all(input)?),
        None => state.upstream.clone(),
    };
    check_depth(&input)?;
    Ok(Some(StepCall { key: step.state_key.clone(), target, input, is_upstream: step.input.is_none() }))
}

/// Checks that an input can be recorded: a template nests a value deeper with each step.
fn check_depth(input: &Value) -> Result<(), StepStartError> {
    decode::check_to(input, RESULT_DEPTH).map_err(|error| StepStartError::TooDeep(error.to_string()))
}

/// Returns the output of a run whose steps have all ended.
fn output(pipeline: &Pipeline, state: &PipelineState) -> Result<Value, StepTemplateError> {
    if let Some(output) = &pipeline.output {
        return StepRenderer::new(&state.values).map(output);
    }
    let value = |key: &str| state.values.get(key).cloned().unwrap_or(Value::Null);
    Ok(match (pipeline.kind, pipeline.steps.last()) {
        (PipelineKind::Tool, _) => value(TOOL_RESULT),
        (PipelineKind::Sequential, last) => last.map_or(Value::Null, |last| value(&last.state_key)),
        (PipelineKind::Parallel, _) => {
            let all = pipeline.steps.iter().map(|step| (step.state_key.clone(), value(&step.state_key)));
            Value::Object(all.collect::<Map<_, _>>())
        }
    })
}

/// Returns a step in words: its name, its number, and the pass of a loop.
fn step_place(pipeline: &Pipeline, state: &PipelineState, at: usize) -> String {
    let (number, all) = (at + 1, pipeline.steps.len());
    let key = pipeline.steps.get(at).map(|step| step.state_key.as_str()).unwrap_or_default();
    let pass = pipeline.until.as_ref().map(|_| format!(", pass {}", state.passes + 1)).unwrap_or_default();
    format!("step `{key}` ({number} of {all}{pass})")
}

fn failure(place: &str, error: &StepStartError) -> StepFailure {
    let code = match error {
        StepStartError::TooMany
        | StepStartError::TooDeep(_)
        | StepStartError::TooLarge
        | StepStartError::Template(StepTemplateError::TooLong) => ErrorCode::LimitReached,
        StepStartError::Template(_) | StepStartError::Condition(_) | StepStartError::NoAgent => ErrorCode::TaskFailed,
    };
    StepFailure::new(code, &format!("{place}: {error}"))
}

impl PipelineState {
    fn note_begun(&mut self, key: &str, place: String, turn: u64, call: u32) {
        self.begun += 1;
        self.running.push(RunningStep { key: key.to_owned(), place, turn, call, job: None });
    }
}
