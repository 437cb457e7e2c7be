//! The output of a task goes to the path that its request names, in the commit that completes it.

use crate::domain::authority::Authority;
use crate::domain::job::{ErrorCode, JobResult, JobStatus};
use crate::domain::lattice::Path;
use crate::domain::pipeline_run::StepFailure;
use crate::domain::session::TurnRecord;
use crate::domain::turn::Turn;
use crate::domain::turn::decide::Decision;
use crate::venue::resources::scratchpad::NOTES;
use crate::venue::workspace::{self, WorkspaceError, WriteOp};
use crate::worker::lease::RunStop;
use crate::worker::turn_base::TurnBase;
use serde_json::Value;

/// Index of the write, after those of a reply's calls.
const OUTPUT_INDEX: u32 = workspace::OWN_WRITES;

/// Returns the path for the output of the task that ends here.
fn output_path(turn: &Turn, decision: &Decision) -> Option<Path> {
    let task = turn.input().plan.task.as_ref()?;
    let (ended, _) = decision.ended_task.as_ref().filter(|(_, result)| result.status == JobStatus::Complete)?;
    let path = task.event.output_path.as_ref().filter(|_| task.event.job() == Some(ended))?;
    Path::parse_output(path).ok()
}

/// Writes the output under the authority of the turn; a task whose output can't be written fails.
pub(crate) async fn write_output(turn_base: &TurnBase, turn: &Turn, decision: &mut Decision) -> Result<(), RunStop> {
    let Some(path) = output_path(turn, decision) else { return Ok(()) };
    if fail_if_denied(turn_base, turn, decision, &turn.input().authority).await {
        return Ok(());
    }
    let output = decision.ended_task.as_ref().and_then(|(_, result)| result.output.clone()).unwrap_or_default();
    let write = WriteOp::Write { path: path.clone(), value: output, expect: None };
    match turn_base.workspace.apply(OUTPUT_INDEX, write).await {
        Ok(_) => Ok(()),
        Err(WorkspaceError::Store(error)) => Err(RunStop::Store(error)),
        Err(error) => {
            fail(decision, ErrorCode::Refused, &format!("`outputPath` `{path}`: {error}"));
            Ok(())
        }
    }
}

/// Fails the task if its output may not be written. Returns whether it did.
pub(crate) async fn fail_if_denied(
    turn_base: &TurnBase,
    turn: &Turn,
    decision: &mut Decision,
    now: &Authority,
) -> bool {
    let Some(path) = output_path(turn, decision) else { return false };
    let Err(denied) = now.permits("crud/write", &path) else { return false };
    turn_base.workspace.drop_calls(&[OUTPUT_INDEX]).await;
    fail(decision, ErrorCode::CapDenied, &denied.model_text("`outputPath`"));
    true
}

/// Fails a completed task whose grants are revoked, and undoes the writes of its output.
pub(crate) async fn refuse(turn_base: &TurnBase, decision: &mut Decision, reason: &str) {
    fail_completed(turn_base, decision, ErrorCode::CapDenied, &format!("CAP_DENIED: {reason}")).await;
}

/// Fails a completed task, and undoes the writes of its output. Returns whether it was one.
async fn fail_completed(turn_base: &TurnBase, decision: &mut Decision, code: ErrorCode, error: &str) -> bool {
    let is_completed = decision.ended_task.as_ref().is_some_and(|(_, result)| result.status == JobStatus::Complete);
    if is_completed {
        turn_base.workspace.drop_calls(&[OUTPUT_INDEX, NOTES]).await;
        fail(decision, code, error);
    }
    is_completed
}

/// Fails the run of a pipeline some of whose calls have come to nothing at the commit, and the task that they completed.
/// Returns whether there was such a task: the workspace must be rebased then.
pub(crate) async fn fail_steps(
    turn_base: &TurnBase,
    turn: &Turn,
    decision: &mut Decision,
    failed: Vec<(u32, StepFailure)>,
) -> bool {
    if turn.input().config.pipeline.is_none() || failed.is_empty() {
        return false;
    }
    let Some(StepFailure { code, text }) = decision.fail_steps(failed) else { return false };
    fail_completed(turn_base, decision, code, &text).await
}

/// Returns the calls of a turn whose writes can't be made on the newer version, and why.
pub(crate) fn failed_writes(
    record: &TurnRecord,
    results: &[(u32, Result<Value, WorkspaceError>)],
) -> Vec<(u32, StepFailure)> {
    let is_call = |call: &u32| usize::try_from(*call).is_ok_and(|at| at < record.calls.len());
    let failure = |error: &WorkspaceError| StepFailure::new(ErrorCode::TaskFailed, &error.to_string());
    let failed = results.iter().filter(|(call, _)| is_call(call));
    failed.filter_map(|(call, result)| Some((*call, failure(result.as_ref().err()?)))).collect()
}

pub(crate) fn fail(decision: &mut Decision, code: ErrorCode, error: &str) {
    if let Some((job, result)) = &mut decision.ended_task {
        *result = JobResult::failure(code, error);
        let job = job.clone();
        for (ended, status) in &mut decision.record.ended {
            if *ended == job {
                *status = JobStatus::Failed;
            }
        }
    }
}
