//! Agents and policies as they were read before: read again when they have changed.

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

/// Agents kept.
const AGENTS: usize = 1_024;
/// Policies kept.
const POLICIES: usize = 1_024;
/// How long what operators have taken back counts as read.
const OPERATOR_LOOK: Duration = Duration::from_secs(1);

/// What was read, with the version that it had and the history of the store that it was read in: after a loss the same
/// version may be of something else.
pub(crate) struct Known {
    /// By the version of the gate, which is written with every change.
    agents: Cache<(Owner, AgentId), (ReadAt, Arc<AgentRecord>)>,
    policies: Cache<Owner, (ReadAt, Arc<Policy>)>,
    everywhere: Mutex<Option<OperatorRevocations>>,
}

/// What operators have taken back, and when and in which history of the store it was read.
struct OperatorRevocations {
    at: Duration,
    history: u64,
    all: Arc<[Revocation]>,
}

/// Version, and how often the history had been another before.
type ReadAt = (u64, u64);

impl Default for Known {
    fn default() -> Self {
        Self { agents: Cache::new(AGENTS), policies: Cache::new(POLICIES), everywhere: Mutex::default() }
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

/// The owner's policy with what operators have taken back everywhere, and its version: the one known for this version,
/// else the one in the store.
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

/// What operators have taken back in every owner, as it was at most [`OPERATOR_LOOK`] ago.
async fn operator_revocations(worker: &Worker) -> Result<Arc<[Revocation]>, StoreError> {
    // Without tokens there is none that an operator could take back.
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
