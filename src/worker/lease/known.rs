//! Agents and policies as they were read before: read again when they have changed.

use crate::domain::agent::AgentRecord;
use crate::domain::authority::policy::Policy;
use crate::domain::ids::{AgentId, Owner};
use crate::store::StoreError;
use crate::venue::{agents, policy};
use crate::worker::Worker;
use quick_cache::sync::Cache;
use std::sync::Arc;

/// Agents kept.
const AGENTS: usize = 1_024;
/// Policies kept.
const POLICIES: usize = 1_024;

/// What was read, with the version that it had and the history of the store that it was read in: after a loss the same
/// version may be of something else.
pub(crate) struct Known {
    /// By the version of the gate, which is written with every change.
    agents: Cache<(Owner, AgentId), (ReadAt, Arc<AgentRecord>)>,
    policies: Cache<Owner, (ReadAt, Arc<Policy>)>,
}

/// Version, and how often the history had been another before.
type ReadAt = (u64, u64);

impl Default for Known {
    fn default() -> Self {
        Self { agents: Cache::new(AGENTS), policies: Cache::new(POLICIES) }
    }
}

/// The agent's record: the one known for this version of its gate, else the one in the store.
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

/// The owner's policy, and its version: the one known for this version, else the one in the store.
pub(crate) async fn policy(worker: &Worker, owner: &Owner, version: u64) -> Result<(Arc<Policy>, u64), StoreError> {
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
