//! Agents as they were read before: read again when they have changed.

use crate::domain::agent::AgentRecord;
use crate::domain::ids::{AgentId, Owner};
use crate::store::StoreError;
use crate::venue::agents;
use crate::worker::Worker;
use quick_cache::sync::Cache;
use std::sync::Arc;

/// Agents kept.
const AGENTS: usize = 1_024;

/// Agents with what they were when they were read, and the version of the gate, which is written with every change.
pub(crate) struct Known(Cache<(Owner, AgentId), (u64, Arc<AgentRecord>)>);

impl Default for Known {
    fn default() -> Self {
        Self(Cache::new(AGENTS))
    }
}

/// The agent's record: the one known for this version of its gate, else the one in the store.
pub(crate) async fn agent(
    worker: &Worker,
    owner: &Owner,
    agent: &AgentId,
    gate: Option<u64>,
) -> Result<Option<Arc<AgentRecord>>, StoreError> {
    let key = (owner.clone(), agent.clone());
    if let Some((version, record)) = worker.known.0.get(&key)
        && Some(version) == gate
    {
        return Ok(Some(record));
    }
    let Some((record, _)) = agents::get(&worker.venue, owner, agent).await? else { return Ok(None) };
    let record = Arc::new(record);
    if let Some(gate) = gate {
        worker.known.0.insert(key, (gate, Arc::clone(&record)));
    }
    Ok(Some(record))
}
