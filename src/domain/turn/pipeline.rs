//! Turns of a pipeline: its manifest decides the calls in the place of a model. Everything else is as in other turns: the
//! calls are recorded, made and committed, and the State is committed with them.

use super::decide::{self, Decision};
use super::record::turn_record;
use super::verdict::TurnVerdict;
use super::{Action, CallOutcome, RecordedReply, Sections, Turn, TurnInput, TurnPhase, plan};
use crate::call::{Outcome, PlannedCall, ResolvedCall, ToolTarget};
use crate::chat::{Arguments, Reply, ToolCall};
use crate::event::Payload;
use crate::ids::JobId;
use crate::job::{ErrorCode, JobResult, JobStatus};
use crate::outputs;
use crate::pipeline::{Pipeline, TOOL_RESULT, inputs};
use crate::pipeline_run::{PipelineMove, PipelineState, StepCall, StepFailure, StepTarget, next_move};
use crate::scope::Delegate;
use crate::spend::ModelUse;
use crate::time::Millis;
use crate::tools::ToolTable;
use crate::values::inject::Injection;
use serde_json::Value;

/// Answer to a message: there is no conversation.
const NO_CONVERSATION: &str = "this agent is a pipeline: it takes tasks, by `agent/request`, and answers no messages";

impl Turn {
    /// Decides the calls of a turn: those of the steps that begin.
    pub(super) fn on_offered(&mut self, tools: &ToolTable, now: Millis) -> Action {
        let turn_input = &self.input;
        let Some(pipeline) = &turn_input.config.pipeline else {
            return fail(turn_input, ErrorCode::Internal, "the agent has no pipeline; this is a bug of the venue", now);
        };
        let Some(job) = turn_input.plan.job() else {
            return fail(turn_input, ErrorCode::Refused, NO_CONVERSATION, now);
        };
        let mut state = match state_of_task(turn_input, pipeline, job) {
            Ok(state) => state,
            Err(StepFailure { code, text }) => return fail(turn_input, code, &text, now),
        };
        let begun = match next_move(pipeline, &mut state, turn_input.turn) {
            PipelineMove::Start(begun) => begun,
            PipelineMove::Wait | PipelineMove::End(_) => Vec::new(),
        };
        let recorded = record_calls(turn_input, state, begun, tools);
        if recorded.calls.is_empty() {
            return Action::Commit(Box::new(on_outcomes(turn_input, &recorded, Vec::new(), now)));
        }
        self.phase = TurnPhase::Recording(Box::new(recorded.clone()));
        Action::Record(Box::new(recorded))
    }
}

fn fail(turn_input: &TurnInput, code: ErrorCode, text: &str, now: Millis) -> Action {
    let keys = turn_input.plan.event_keys();
    Action::Commit(Box::new(decide::on_failure(turn_input, &keys, code, text, now)))
}

/// Returns the State of the run that serves a task, with the results that have arrived; a run begins with its first turn.
fn state_of_task(turn_input: &TurnInput, pipeline: &Pipeline, job: &JobId) -> Result<PipelineState, StepFailure> {
    let known = turn_input.state.pipeline.as_deref().filter(|state| state.job == *job);
    let mut state = if let Some(state) = known {
        state.clone()
    } else {
        let input = turn_input.plan.input().cloned().unwrap_or_default();
        let values = turn_input.plan.input_values(turn_input.config.input_schema.as_ref(), &input);
        let mut values = values.map_err(|error| StepFailure::new(ErrorCode::Refused, &error.to_string()))?;
        // No caller writes the output of a step before it runs.
        let is_output = |name: &str| {
            (pipeline.tool.is_some() && name == TOOL_RESULT) || pipeline.steps.iter().any(|step| step.state_key == name)
        };
        let declared: Vec<&str> = inputs::names(turn_input.config.input_schema.as_ref()).collect();
        values.retain(|name, _| declared.contains(&name.as_str()) || !is_output(name));
        PipelineState::begin(job.clone(), pipeline, values, input)
    };
    if state.manifest != pipeline.hash() {
        let at = if state.running.is_empty() { "between two steps".to_owned() } else { state.running_text() };
        let text = format!("the pipeline was changed while this task ran ({at}); submit it again");
        return Err(StepFailure::new(ErrorCode::Conflict, &text));
    }
    let authority = turn_input.authority.clone().without_home();
    // What was read under a wider authority stays hidden from those who hold the narrower one.
    if known.is_none() || authority.covers(&state.authority) {
        state.authority = authority;
    }
    for result in &turn_input.plan.results {
        if let Payload::Result { job, result } = &result.event.payload {
            state.end_job(job, result);
        }
    }
    Ok(state)
}

/// Returns the record of a turn that makes these calls.
fn record_calls(
    turn_input: &TurnInput,
    state: PipelineState,
    begun: Vec<StepCall>,
    tools: &ToolTable,
) -> RecordedReply {
    let shown = turn_input.plan.results.iter().chain(&turn_input.plan.messages);
    let first = decide::begun_task(turn_input);
    let style = turn_input.config.prompt_style();
    let (said, calls): (Vec<_>, Vec<_>) =
        (0..).zip(begun).map(|(at, call)| plan_step(turn_input, at, call, tools)).unzip();
    let text = if state.running.is_empty() { String::new() } else { format!("runs {}", state.running_text()) };
    RecordedReply {
        job: turn_input.plan.job().cloned(),
        reply: Reply { text, calls: said, ..Reply::default() },
        calls,
        prompt: String::new(),
        consume: shown.clone().map(|pending| pending.key.clone()).collect(),
        heard: shown
            .clone()
            .map(|pending| &pending.event)
            .chain(first)
            .map(|event| decide::transcript_entry(event, style))
            .collect(),
        events: shown.map(|pending| &pending.event).chain(first).map(|event| event.id.clone()).collect(),
        unpinned: Vec::new(),
        start: turn_input.reply_start(),
        config_version: turn_input.config_version,
        authority: turn_input.authority.clone(),
        used: Vec::new(),
        frame: 0,
        last: None,
        ledger: None,
        prefix: None,
        spent: ModelUse::default(),
        asked: None,
        pipeline: Some(Box::new(state)),
    }
}

/// Returns the call of a step as the transcript shows it, and as it is made.
fn plan_step(turn_input: &TurnInput, at: usize, call: StepCall, tools: &ToolTable) -> (ToolCall, PlannedCall) {
    let id = format!("step_{}_{at}", turn_input.turn);
    let StepCall { key, target, input, is_upstream: upstream } = call;
    let agent = match target {
        StepTarget::Tool(tool) => {
            let mut said = ToolCall { id, name: tool, arguments: Arguments::Json(input) };
            let planned = plan::plan_call(&mut said, tools, &Sections::default());
            return (said, planned);
        }
        StepTarget::Agent(agent) => Delegate { agent: Some(agent), upstream, ..Delegate::default() },
        StepTarget::Inline(step) => {
            let above = turn_input.plan.step().map(|above| format!("{above}/")).unwrap_or_default();
            Delegate { step: Some(format!("{above}{step}:{key}")), upstream, ..Delegate::default() }
        }
    };
    let arguments = Arguments::Json(input.clone());
    let said = ToolCall { id: id.clone(), name: key.clone(), arguments };
    let what = Ok(ResolvedCall { target: ToolTarget::Delegate(agent), arguments: input });
    let (instance, scoped) = (None, Vec::new());
    (said, PlannedCall { id, tool: key, what, injection: Injection::default(), instance, scoped, published: None })
}

/// Decides a turn whose calls have these outcomes.
pub(super) fn on_outcomes(
    turn_input: &TurnInput,
    recorded: &RecordedReply,
    mut outcomes: Vec<CallOutcome>,
    now: Millis,
) -> Decision {
    let mut state = decide::carry_state(turn_input, recorded);
    decide::record_started(turn_input, &mut state, &outcomes, now);
    decide::count_children(&mut state, recorded.calls.iter().zip(&outcomes));
    let mut run = recorded.pipeline.clone();
    for (at, outcome) in (0..).zip(&outcomes) {
        if let Some(run) = &mut run {
            note_outcome(run, turn_input.turn, at, outcome);
        }
    }
    let verdict = verdict(turn_input, run.as_deref(), &outcomes);
    if !matches!(verdict, TurnVerdict::Await) {
        decide::cancel_approvals(&mut outcomes);
    }
    state.pipeline = run;
    let record = turn_record(turn_input, Some(recorded), &outcomes, now);
    let mut decision =
        Decision { consume: decide::consumed_keys(turn_input, &recorded.consume), ..Decision::new(record, state) };
    decision.apply_verdict(turn_input, verdict, outcomes);
    decision
}

impl Decision {
    /// Fails the run of a pipeline some of whose calls have come to nothing at the commit. Returns why it fails.
    pub fn fail_steps(&mut self, failed: Vec<(u32, StepFailure)>) -> Option<StepFailure> {
        let (turn, job) = (self.results_record().turn, self.record.job.clone());
        let run = self.state.pipeline.as_mut().filter(|run| Some(&run.job) == job.as_ref())?;
        for (call, failure) in failed {
            run.fail_call(turn, call, failure);
        }
        let failure = run.failure.clone()?;
        // Its next turn ends the task.
        self.state.parked = false;
        Some(failure)
    }
}

/// Returns what becomes of the task. A run that begins a step next has another turn at once.
fn verdict(turn_input: &TurnInput, run: Option<&PipelineState>, outcomes: &[CallOutcome]) -> TurnVerdict {
    let (Some(pipeline), Some(run)) = (&turn_input.config.pipeline, run) else {
        let text = "the pipeline of this task is gone; submit it again";
        return TurnVerdict::Ended(JobResult::failure(ErrorCode::Conflict, text));
    };
    match next_move(pipeline, &mut run.clone(), turn_input.turn) {
        PipelineMove::End(result) => TurnVerdict::Ended(typed_result(turn_input, result)),
        PipelineMove::Wait if outcomes.iter().any(|outcome| outcome.asked.is_some()) => TurnVerdict::Await,
        PipelineMove::Wait => TurnVerdict::Park,
        PipelineMove::Start(_) => TurnVerdict::GoOn,
    }
}

/// Returns the result of a run, or the failure that its output is not of the type that was asked for.
fn typed_result(turn_input: &TurnInput, result: JobResult) -> JobResult {
    let output = result.output.as_ref().filter(|_| result.status == JobStatus::Complete);
    let wrong = turn_input.output().zip(output).and_then(|(schema, output)| outputs::misfit_text(schema, output));
    match wrong {
        Some(wrong) => JobResult::failure(ErrorCode::OutputInvalid, format!("`output`: {wrong}")),
        None => result,
    }
}

/// Notes the outcome of the call that has begun a step.
pub(super) fn note_outcome(run: &mut PipelineState, turn: u64, call: u32, outcome: &CallOutcome) {
    if outcome.asked.is_some() {
        return;
    }
    if let Some((job, _)) = &outcome.started {
        run.note_started(turn, call, job);
        return;
    }
    let code = match outcome.outcome {
        Outcome::Ok => {
            let text = || Value::String(outcome.text.clone());
            run.end_call(turn, call, Ok(outcome.value.clone().unwrap_or_else(text)));
            return;
        }
        Outcome::Denied | Outcome::Scope | Outcome::Rejected => ErrorCode::CapDenied,
        Outcome::Limit => ErrorCode::LimitReached,
        Outcome::Cancelled => ErrorCode::Cancelled,
        Outcome::OutcomeUnknown => ErrorCode::OutcomeUnknown,
        Outcome::Error | Outcome::Unknown | Outcome::Arguments | Outcome::Awaiting => ErrorCode::TaskFailed,
    };
    run.end_call(turn, call, Err(StepFailure::new(code, &outcome.text)));
}
