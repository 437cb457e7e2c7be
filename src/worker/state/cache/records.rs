//! Cache of agents and policies. A cached value counts only at the version at which it was read.

use crate::domain::agent::AgentRecord;
use crate::domain::authority::policy::{Policy, Revocation};
use crate::domain::ids::{AgentId, Owner};
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

/// Version of a cached value. After a loss of the store, the same version may be another value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordVersion {
    /// Version of the document; for an agent that of its gate, which each change increments.
    pub(crate) version: u64,
    /// Number of generations of the store seen before.
    pub(crate) generations: u64,
}

/// Cached agents and policies, each with the version at which it was read.
pub(crate) struct RecordCache {
    agents: Cache<(Owner, AgentId), (RecordVersion, Arc<AgentRecord>)>,
    policies: Cache<Owner, (RecordVersion, Arc<Policy>)>,
    operator_revocations: Mutex<Option<OperatorRevocations>>,
}

/// Revocations of operators, which count for all owners.
pub(crate) struct OperatorRevocations {
    /// Steady time at which they were read.
    pub(crate) read_at: Duration,
    /// Number of generations of the store seen before.
    pub(crate) generations: u64,
    pub(crate) revocations: Arc<[Revocation]>,
}

impl Default for RecordCache {
    fn default() -> Self {
        Self {
            agents: Cache::new(CACHED_AGENTS),
            policies: Cache::new(CACHED_POLICIES),
            operator_revocations: Mutex::default(),
        }
    }
}

impl RecordCache {
    /// Returns the agent, if it is cached at this version.
    pub(crate) fn agent(&self, owner: &Owner, agent: &AgentId, at: RecordVersion) -> Option<Arc<AgentRecord>> {
        let (known, record) = self.agents.get(&(owner.clone(), agent.clone()))?;
        (known == at).then_some(record)
    }

    /// Caches the agent of this version.
    pub(crate) fn insert_agent(&self, owner: &Owner, agent: &AgentId, at: RecordVersion, record: &Arc<AgentRecord>) {
        self.agents.insert((owner.clone(), agent.clone()), (at, Arc::clone(record)));
    }

    /// Returns the owner's policy, if it is cached at this version.
    pub(crate) fn policy(&self, owner: &Owner, at: RecordVersion) -> Option<Arc<Policy>> {
        let (known, policy) = self.policies.get(owner)?;
        (known == at).then_some(policy)
    }

    /// Caches the policy of this version.
    pub(crate) fn insert_policy(&self, owner: &Owner, at: RecordVersion, policy: &Arc<Policy>) {
        self.policies.insert(owner.clone(), (at, Arc::clone(policy)));
    }

    /// Returns the cached revocations of operators, if they are new enough at `now` and of this generation of the
    /// store. `now` is on the steady clock.
    pub(crate) fn operator_revocations(&self, now: Duration, generations: u64) -> Option<Arc<[Revocation]>> {
        let cached = self.operator_revocations.lock();
        let known = cached.as_ref()?;
        let is_valid = known.read_at + REVOCATIONS_AGE_MAX > now && known.generations == generations;
        is_valid.then(|| Arc::clone(&known.revocations))
    }

    /// Caches the revocations of operators.
    pub(crate) fn set_operator_revocations(&self, revocations: OperatorRevocations) {
        *self.operator_revocations.lock() = Some(revocations);
    }
}
