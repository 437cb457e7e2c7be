//! Outcomes of calls that ended with an error.

use crate::domain::call::Outcome;
use crate::domain::turn::CallOutcome;
use crate::domain::visible::cut_error;
use crate::store::StoreError;
use crate::venue::operation::OpError;
use crate::worker::lease::RunStop;

/// Makes the outcome of an error. Fails if the lease is lost or the store can't be reached: that stops the turn.
pub(crate) fn error_outcome(error: OpError) -> Result<CallOutcome, RunStop> {
    match error {
        OpError::Fenced => Err(RunStop::Lost),
        // The contended write changed nothing, and the model can read what earlier writes left: a turn that began anew
        // couldn't know either.
        OpError::Store(error @ StoreError::Contended { .. }) => Ok(failed_outcome(Outcome::Error, &error)),
        // A retry would not repair a damaged value.
        OpError::Store(error) if error.is_transient() => Err(RunStop::Store(error)),
        OpError::Store(error @ (StoreError::Over(_) | StoreError::TenantFull(_) | StoreError::Oversized(_))) => {
            Ok(failed_outcome(Outcome::Limit, &error))
        }
        OpError::Store(error) => Ok(failed_outcome(Outcome::Error, &error)),
        OpError::Denied(_) => Ok(CallOutcome::from_text(Outcome::Denied, cut_error(error.to_string()))),
        OpError::Invalid(_) | OpError::Arguments { .. } => Ok(failed_outcome(Outcome::Arguments, &error)),
        OpError::Limit(_) => Ok(failed_outcome(Outcome::Limit, &error)),
        OpError::OutcomeUnknown(_) => Ok(CallOutcome::from_text(Outcome::OutcomeUnknown, cut_error(error.to_string()))),
        OpError::NotFound(_)
        | OpError::Conflict(_)
        | OpError::Failed(_)
        | OpError::Upstream(_)
        | OpError::Timeout(_) => Ok(failed_outcome(Outcome::Error, &error)),
    }
}

fn failed_outcome(outcome: Outcome, error: &dyn std::fmt::Display) -> CallOutcome {
    CallOutcome::from_text(outcome, cut_error(format!("error: {error}")))
}
