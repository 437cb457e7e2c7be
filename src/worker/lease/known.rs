//! Cache of agents and policies, which are read again when their version changes.

use crate::domain::agent::AgentRecord;
use crate::domain::authority::policy::{Policy, Revocation};
use crate::domain::ids::{AgentId, Owner};
use crate::store::StoreError;
use crate::venue::{agents, policy};
use crate::worker::Worker;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use std::sync::Arc;
use std::time::Duration;

/// Number of cached agents.
const AGENTS: usize = 1_024;
/// Number of cached policies.
const POLICIES: usize = 1_024;
/// Age at which the revocations of operators are read again.
const OPERATOR_LOOK: Duration = Duration::from_secs(1);

/// Cached values, each with its version and the generation of the store it was read in: after a loss, the same version
/// may be another value.
pub(crate) struct Known {
    /// Keyed by the version of the agent's gate, which each change increments.
    agents: Cache<(Owner, AgentId), (ReadAt, Arc<AgentRecord>)>,
    policies: Cache<Owner, (ReadAt, Arc<Policy>)>,
    everywhere: Mutex<Option<OperatorRevocations>>,
}

/// Revocations of operators, with the time and the generation of the store at which they were read.
struct OperatorRevocations {
    at: Duration,
    history: u64,
    all: Arc<[Revocation]>,
}

/// Version of the value, and number of generations seen before.
type ReadAt = (u64, u64);

impl Default for Known {
    fn default() -> Self {
        Self { agents: Cache::new(AGENTS), policies: Cache::new(POLICIES), everywhere: Mutex::default() }
    }
}

/// Returns the agent's record: from the cache if its gate has this version, else from the store.
pub(crate) async fn agent(
    worker: &Worker,
    owner: &Owner,
    agent: &AgentId,
    gate: u64,
) -> Result<Option<Arc<AgentRecord>>, StoreError> {
    let (key, at) = ((owner.clone(), agent.clone()), (gate, worker.venue.history.changes()));
    let known = worker.known.agents.get(&key).filter(|(known, _)| *known == at && gate > 0);
    if let Some((_, record)) = known {
        return Ok(Some(record));
    }
    let Some((record, _)) = agents::get(&worker.venue, owner, agent).await? else { return Ok(None) };
    let record = Arc::new(record);
    if gate > 0 {
        worker.known.agents.insert(key, (at, Arc::clone(&record)));
    }
    Ok(Some(record))
}

/// Returns the owner's policy, with the revocations of operators added, and its version: from the cache if it has this
/// version, else from the store.
pub(crate) async fn policy(worker: &Worker, owner: &Owner, version: u64) -> Result<(Arc<Policy>, u64), StoreError> {
    let (policy, version) = own_policy(worker, owner, version).await?;
    let everywhere = operator_revocations(worker).await?;
    if everywhere.is_empty() {
        return Ok((policy, version));
    }
    let mut policy = Policy::clone(&policy);
    policy.revocations.extend_from_slice(&everywhere);
    Ok((Arc::new(policy), version))
}

/// Returns the revocations of operators for all owners, at most [`OPERATOR_LOOK`] old.
async fn operator_revocations(worker: &Worker) -> Result<Arc<[Revocation]>, StoreError> {
    // Without tokens an operator has nothing to revoke.
    if !worker.options.auth.is_required() {
        return Ok(Arc::default());
    }
    let (now, history) = (worker.venue.clock.steady(), worker.venue.history.changes());
    if let Some(known) = &*worker.known.everywhere.lock()
        && known.at + OPERATOR_LOOK > now
        && known.history == history
    {
        return Ok(Arc::clone(&known.all));
    }
    let all: Arc<[Revocation]> = policy::operator_revocations(&*worker.venue.store).await?.into();
    *worker.known.everywhere.lock() = Some(OperatorRevocations { at: now, history, all: Arc::clone(&all) });
    Ok(all)
}

async fn own_policy(worker: &Worker, owner: &Owner, version: u64) -> Result<(Arc<Policy>, u64), StoreError> {
    if version == 0 {
        return Ok((Arc::default(), 0));
    }
    let history = worker.venue.history.changes();
    if let Some((known, policy)) = worker.known.policies.get(owner)
        && known == (version, history)
    {
        return Ok((policy, version));
    }
    let (policy, version) = policy::load(&*worker.venue.store, owner).await?;
    let policy = Arc::new(policy);
    worker.known.policies.insert(owner.clone(), ((version, history), Arc::clone(&policy)));
    Ok((policy, version))
}
