//! Agents as they were read before: read again when they have changed.

use super::Worker;
use crate::domain::agent::AgentRecord;
use crate::domain::ids::{AgentId, Owner};
use crate::store::StoreError;
use crate::venue::agents;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Agents kept; past it all are read again.
const AGENTS: usize = 1024;

/// A record with the version of its gate, which is written with every change of it.
type Versioned = (u64, Arc<AgentRecord>);

/// Agents with what they were when they were read.
#[derive(Default)]
pub(super) struct Known(Mutex<HashMap<(Owner, AgentId), Versioned>>);

impl Known {
    fn get(&self, agent: &(Owner, AgentId), gate: u64) -> Option<Arc<AgentRecord>> {
        let agents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        agents.get(agent).filter(|(version, _)| *version == gate).map(|(_, record)| Arc::clone(record))
    }

    fn put(&self, agent: (Owner, AgentId), gate: u64, record: Arc<AgentRecord>) {
        let mut agents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if agents.len() >= AGENTS {
            agents.clear();
        }
        agents.insert(agent, (gate, record));
    }
}

/// The agent's record: the one known for this version of its gate, else the one in the store.
pub(super) async fn agent(
    worker: &Worker,
    owner: &Owner,
    agent: &AgentId,
    gate: Option<u64>,
) -> Result<Option<Arc<AgentRecord>>, StoreError> {
    let key = (owner.clone(), agent.clone());
    if let Some(record) = gate.and_then(|gate| worker.known.get(&key, gate)) {
        return Ok(Some(record));
    }
    let Some((record, _)) = agents::get(&worker.venue, owner, agent).await? else { return Ok(None) };
    let record = Arc::new(record);
    if let Some(gate) = gate {
        worker.known.put(key, gate, Arc::clone(&record));
    }
    Ok(Some(record))
}
