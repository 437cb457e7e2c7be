//! Runs of operations outside turns: for whom, and how the invoked ones end.

use super::{LeasedOperation, job_catalog};
use crate::domain::ids::{EventId, Owner};
use crate::domain::invocation::OperationCaller;
use crate::domain::job::{ErrorCode, JobResult};
use crate::domain::lattice::layout::Scope;
use crate::domain::visible::cut_error;
use crate::store::StoreError;
use crate::venue::auth::caller::AuthenticatedCaller;
use crate::venue::operation::{Caller, CatalogView, Invocation, NO_SECTIONS, OpError, OpOutput, Reads, Site, dispatch};
use crate::venue::{Venue, policy};
use serde_json::Value;
use std::time::Duration;

/// Runs an operation for a caller outside turns. `key` is the idempotency key of the run.
pub async fn operate(
    venue: &Venue,
    catalog: &CatalogView,
    caller: &Caller,
    key: Option<EventId>,
    path: &str,
    input: Value,
) -> Result<OpOutput, OpError> {
    operate_at(venue, catalog, caller, Site::Api { key, job: None }, path, input).await
}

async fn operate_at(
    venue: &Venue,
    catalog: &CatalogView,
    caller: &Caller,
    site: Site<'_>,
    path: &str,
    input: Value,
) -> Result<OpOutput, OpError> {
    let workspace = venue.workspace(&caller.owner, Scope::default()).await;
    let call = Invocation {
        named: path,
        venue,
        catalog,
        caller,
        workspace: &workspace,
        scoped: &NO_SECTIONS,
        site,
        reads: &Reads::of_copies(),
        fills_prompt: false,
    };
    dispatch::invoke(&call, path, input).await
}

/// Result of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum RunOutcome {
    /// The job ends with this result.
    Ended(JobResult),
    /// The store didn't answer: the operation is run again later, if it may be repeated.
    Retry,
    /// The operation has more to do after this time, and holds no slot until then. Only operations that may be repeated
    /// end so.
    Later(Duration),
}

/// Who an operation runs for.
#[derive(Debug, Clone)]
pub enum RunCaller {
    /// The caller who invoked it, with what is left of his authority.
    Permitted(Box<Caller>),
    /// Nobody: a revocation ends the operation with this result.
    Revoked(JobResult),
}

/// Returns the caller of an operation as he is now.
pub async fn read_caller(venue: &Venue, owner: &Owner, held: &LeasedOperation) -> Result<RunCaller, StoreError> {
    let OperationCaller { name, operator, authority, envelope, principal, token_owner } = held.invoked.asker.clone();
    let caller = Caller { owner: owner.clone(), name, authority, operator, envelope, principal };
    let known = AuthenticatedCaller { caller, may_override: false, token_owner };
    let denied = |text: String| Ok(RunCaller::Revoked(JobResult::failure(ErrorCode::CapDenied, text)));
    let mut caller = match policy::apply_revocations(&*venue.store, known).await {
        Ok(known) => known.caller,
        Err(policy::RevocationCheckError::Store(error)) => return Err(error),
        Err(error) => return denied(error.to_string()),
    };
    let (policy, _) = policy::load_in_force(&*venue.store, owner).await?;
    let mut trail = held.head.under.clone();
    trail.grants.push(held.invoked.job.to_string());
    for revocation in policy.revocations.iter().filter(|revocation| revocation.applies_to(&trail)) {
        let Some(path) = &revocation.path else { return denied(revocation.refusal()) };
        caller.authority = caller.authority.except_resource(path);
    }
    Ok(RunCaller::Permitted(Box::new(caller)))
}

/// Runs the operation for the caller who invoked it, with what is left of his authority.
pub async fn run(venue: &Venue, owner: &Owner, held: &LeasedOperation) -> Result<RunOutcome, StoreError> {
    let caller = match read_caller(venue, owner, held).await? {
        RunCaller::Permitted(caller) => caller,
        RunCaller::Revoked(result) => return Ok(RunOutcome::Ended(result)),
    };
    let op = held.head.op.as_deref().unwrap_or_default();
    let catalog = job_catalog(venue, owner, &held.head).await?;
    let site = Site::Api { key: Some(held.invoked.key.clone()), job: Some(held.invoked.job.clone()) };
    let ran = match held.invoked.published.as_ref().map_or(Ok(()), |shown| catalog.check_version(shown)) {
        Ok(()) => operate_at(venue, &catalog, &caller, site, op, held.head.input.clone()).await,
        Err(stale) => Err(OpError::Conflict(stale.to_string())),
    };
    Ok(match ran {
        Err(OpError::Store(error)) if error.is_transient() => RunOutcome::Retry,
        Err(OpError::Fenced) => RunOutcome::Retry,
        ran => RunOutcome::Ended(result_of(ran)),
    })
}

/// Returns the end of a job from the result of its operation.
pub fn result_of(ran: Result<OpOutput, OpError>) -> JobResult {
    let coded = |code, text| JobResult::failure(code, cut_error(text));
    let failed = |text| JobResult { error_code: None, ..coded(ErrorCode::Internal, text) };
    match ran {
        Ok(output) => JobResult::complete(output.value),
        Err(OpError::Failed(text) | OpError::Upstream(text) | OpError::NotFound(text) | OpError::Conflict(text)) => {
            failed(text)
        }
        Err(OpError::Timeout(text) | OpError::Limit(text)) => coded(ErrorCode::LimitReached, text),
        Err(OpError::Denied(text)) => coded(ErrorCode::CapDenied, text),
        Err(OpError::Invalid(text)) => coded(ErrorCode::Refused, text),
        Err(error @ OpError::OutcomeUnknown(_)) => coded(ErrorCode::OutcomeUnknown, error.to_string()),
        Err(error @ (OpError::Arguments { .. } | OpError::Store(StoreError::Oversized(_)))) => {
            coded(ErrorCode::Refused, error.to_string())
        }
        Err(OpError::Store(StoreError::Over(over))) => coded(ErrorCode::QuotaExceeded, over.to_string()),
        Err(error @ (OpError::Fenced | OpError::Store(_))) => coded(ErrorCode::Internal, error.to_string()),
    }
}
