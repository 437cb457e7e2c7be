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
const CACHED_AGENTS: usize = 1_024;
/// Number of cached policies.
const CACHED_POLICIES: usize = 1_024;
/// Age at which the revocations of operators are read again.
const REVOCATIONS_AGE_MAX: Duration = Duration::from_secs(1);

/// Cached values, each with its version and the generation of the store it was read in: after a loss, the same version
/// may be another value.
pub(crate) struct RecordCache {
    /// Keyed by the version of the agent's gate, which each change increments.
    agents: Cache<(Owner, AgentId), (CacheVersion, Arc<AgentRecord>)>,
    policies: Cache<Owner, (CacheVersion, Arc<Policy>)>,
    operator_revocations: Mutex<Option<OperatorRevocations>>,
}

/// Revocations of operators, with the time and the generation of the store at which they were read.
struct OperatorRevocations {
    read_at: Duration,
    history: u64,
    revocations: Arc<[Revocation]>,
}

/// Version of the value, and number of generations seen before.
type CacheVersion = (u64, u64);

impl Default for RecordCache {
    fn default() -> Self {
        Self {
            agents: Cache::new(CACHED_AGENTS),
            policies: Cache::new(CACHED_POLICIES),
            operator_revocations: Mutex::default(),
        }
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
    let known = worker.record_cache.agents.get(&key).filter(|(known, _)| *known == at && gate > 0);
    if let Some((_, record)) = known {
        return Ok(Some(record));
    }
    let Some((record, _)) = agents::get(&worker.venue, owner, agent).await? else { return Ok(None) };
    let record = Arc::new(record);
    if gate > 0 {
        worker.record_cache.agents.insert(key, (at, Arc::clone(&record)));
    }
    Ok(Some(record))
}

/// Returns the owner's policy, with the revocations of operators added, and its version: from the cache if it has this
/// version, else from the store.
pub(crate) async fn policy(worker: &Worker, owner: &Owner, version: u64) -> Result<(Arc<Policy>, u64), StoreError> {
    let (policy, version) = load_own_policy(worker, owner, version).await?;
    let everywhere = operator_revocations(worker).await?;
    if everywhere.is_empty() {
        return Ok((policy, version));
    }
    let mut policy = Policy::clone(&policy);
    policy.revocations.extend_from_slice(&everywhere);
    Ok((Arc::new(policy), version))
}

/// Returns the revocations of operators for all owners, at most [`REVOCATIONS_AGE_MAX`] old.
async fn operator_revocations(worker: &Worker) -> Result<Arc<[Revocation]>, StoreError> {
    // Without tokens an operator has nothing to revoke.
    if !worker.options.auth.is_required() {
        return Ok(Arc::default());
    }
    let (now, history) = (worker.venue.clock.steady(), worker.venue.history.changes());
    if let Some(known) = &*worker.record_cache.operator_revocations.lock()
        && known.read_at + REVOCATIONS_AGE_MAX > now
        && known.history == history
    {
        return Ok(Arc::clone(&known.revocations));
    }
    let all: Arc<[Revocation]> = policy::operator_revocations(&*worker.venue.store).await?.into();
    *worker.record_cache.operator_revocations.lock() =
        Some(OperatorRevocations { read_at: now, history, revocations: Arc::clone(&all) });
    Ok(all)
}

async fn load_own_policy(worker: &Worker, owner: &Owner, version: u64) -> Result<(Arc<Policy>, u64), StoreError> {
    if version == 0 {
        return Ok((Arc::default(), 0));
    }
    let history = worker.venue.history.changes();
    if let Some((known, policy)) = worker.record_cache.policies.get(owner)
        && known == (version, history)
    {
        return Ok((policy, version));
    }
    let (policy, version) = policy::load(&*worker.venue.store, owner).await?;
    let policy = Arc::new(policy);
    worker.record_cache.policies.insert(owner.clone(), ((version, history), Arc::clone(&policy)));
    Ok((policy, version))
}
