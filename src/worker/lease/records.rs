//! Agents and policies, which are read again when their version changes.

use crate::domain::agent::AgentRecord;
use crate::domain::authority::policy::{Policy, Revocation};
use crate::domain::ids::{AgentId, Owner};
use crate::store::StoreError;
use crate::venue::{agents, policy};
use crate::worker::state::Worker;
use crate::worker::state::cache::records::{OperatorRevocations, RecordVersion};
use std::sync::Arc;

/// Returns the agent's record: from the cache if its gate has this version, else from the store.
pub(crate) async fn load_agent(
    worker: &Worker,
    owner: &Owner,
    agent: &AgentId,
    gate: u64,
) -> Result<Option<Arc<AgentRecord>>, StoreError> {
    let at = RecordVersion { version: gate, generations: worker.venue.history.changes() };
    if gate > 0
        && let Some(record) = worker.record_cache.agent(owner, agent, at)
    {
        return Ok(Some(record));
    }
    let Some((record, _)) = agents::get(&worker.venue, owner, agent).await? else { return Ok(None) };
    let record = Arc::new(record);
    if gate > 0 {
        worker.record_cache.insert_agent(owner, agent, at, &record);
    }
    Ok(Some(record))
}

/// Returns the owner's policy, with the revocations of operators added, and its version: from the cache if it has this
/// version, else from the store.
pub(crate) async fn load_policy(
    worker: &Worker,
    owner: &Owner,
    version: u64,
) -> Result<(Arc<Policy>, u64), StoreError> {
    let (policy, version) = load_own_policy(worker, owner, version).await?;
    let everywhere = operator_revocations(worker).await?;
    if everywhere.is_empty() {
        return Ok((policy, version));
    }
    let mut policy = Policy::clone(&policy);
    policy.revocations.extend_from_slice(&everywhere);
    Ok((Arc::new(policy), version))
}

/// Returns the revocations of operators for all owners, a second old at most.
async fn operator_revocations(worker: &Worker) -> Result<Arc<[Revocation]>, StoreError> {
    // Without tokens an operator has nothing to revoke.
    if !worker.options.auth.is_required() {
        return Ok(Arc::default());
    }
    let (now, generations) = (worker.venue.clock.steady(), worker.venue.history.changes());
    if let Some(known) = worker.record_cache.operator_revocations(now, generations) {
        return Ok(known);
    }
    let all: Arc<[Revocation]> = policy::operator_revocations(&*worker.venue.store).await?.into();
    let read = OperatorRevocations { read_at: now, generations, revocations: Arc::clone(&all) };
    worker.record_cache.set_operator_revocations(read);
    Ok(all)
}

async fn load_own_policy(worker: &Worker, owner: &Owner, version: u64) -> Result<(Arc<Policy>, u64), StoreError> {
    if version == 0 {
        return Ok((Arc::default(), 0));
    }
    let generations = worker.venue.history.changes();
    if let Some(policy) = worker.record_cache.policy(owner, RecordVersion { version, generations }) {
        return Ok((policy, version));
    }
    let (policy, version) = policy::load(&*worker.venue.store, owner).await?;
    let policy = Arc::new(policy);
    worker.record_cache.insert_policy(owner, RecordVersion { version, generations }, &policy);
    Ok((policy, version))
}
