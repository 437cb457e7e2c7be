//! Answers about policy: roots and revocations.

use crate::domain::authority::capability::Capability;
use crate::domain::authority::policy::{Policy, Revocation};
use crate::domain::ids::{AgentId, JobId};
use crate::domain::job::JobStatus;
use crate::domain::time::Millis;
use crate::domain::timer::TimerId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The policy of an owner; after a revocation also what that reaches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyView {
    /// Upper bound of what anything of this owner may do; null = no limit.
    pub roots: Option<Vec<Capability>>,
    /// Capabilities whose use waits for a person.
    #[serde(default)]
    pub approvals: Vec<Capability>,
    /// Revocations, the oldest first.
    #[serde(default)]
    pub revocations: Vec<RevocationView>,
    /// Id of the revocation that was made; absent in other answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked: Option<String>,
    /// What stops, since all was revoked from its holder; absent in other answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stops: Option<RevocationReachView>,
    /// What may do less, since a path was revoked from its holder; absent in other answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub narrows: Option<RevocationReachView>,
    /// Whether the revocation holds in every owner; absent in other answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_owner: Option<bool>,
    /// What is perhaps a mistake in the capabilities that were set: abilities that nothing needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl From<&Policy> for PolicyView {
    fn from(policy: &Policy) -> Self {
        Self {
            roots: policy.roots.clone(),
            approvals: policy.approvals.clone(),
            revocations: policy.revocations.iter().map(RevocationView::from).collect(),
            revoked: None,
            stops: None,
            narrows: None,
            every_owner: None,
            warnings: Vec::new(),
        }
    }
}

/// A revocation: all that it names must match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevocationView {
    /// Id by which the revocation is taken back.
    pub id: String,
    /// Path that is revoked with everything below; absent = everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Holder that it applies to: a caller, or `agent:<id>` and what that handed on; absent = any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Grant that it applies to: the id of a token or of a job, and what was handed on under it; absent = any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// Reason for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Name of the caller who revoked.
    pub by: String,
    /// Time of the revocation, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub at: Millis,
}

impl From<&Revocation> for RevocationView {
    fn from(revocation: &Revocation) -> Self {
        Self {
            id: revocation.id.clone(),
            path: revocation.path.as_ref().map(ToString::to_string),
            holder: revocation.holder.clone(),
            grant: revocation.grant.clone(),
            reason: revocation.reason.clone(),
            by: revocation.by.clone(),
            at: revocation.at,
        }
    }
}

/// What descends from a holder or a grant. Each list has a bounded number of items.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevocationReachView {
    /// Agents that were made under it.
    pub agents: Vec<AgentId>,
    /// Timers that were set under it.
    pub timers: Vec<ReachedTimerView>,
    /// Open jobs that were submitted under it.
    pub jobs: Vec<ReachedJobView>,
    /// Jobs of operations that have begun: their effects may have happened, and nothing interrupts them.
    #[serde(default)]
    pub running: Vec<ReachedJobView>,
    /// Whether there is more than is listed: older jobs that were not read, or what the reader may not see.
    #[serde(default)]
    pub more: bool,
}

/// A timer that would have fired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReachedTimerView {
    /// Id of the timer.
    pub timer: TimerId,
    /// Agent that it is for.
    pub agent_id: AgentId,
    /// Time at which it would have fired next, as RFC 3339; null if there is none.
    pub next: Option<String>,
}

/// An open job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReachedJobView {
    /// Id of the job.
    pub job: JobId,
    /// Status of the job.
    pub status: JobStatus,
    /// Operation that the job runs; absent for a task of an agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// Agent that serves the task; absent for an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// Job that started it as its child.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<JobId>,
}
