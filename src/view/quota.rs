//! Answers about quotas.

use crate::domain::quota::QuotaKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an owner keeps in the store, and the most that it may keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuotaView {
    /// Owner as `tenant/user`.
    pub owner: String,
    /// Documents: values in the lattice, agents, parts of assets, records of jobs and turns.
    pub documents: QuotaUseView,
    /// Bytes of documents with their keys, of the states of sessions, and of events in mailboxes.
    pub bytes: QuotaUseView,
    /// Number of sessions.
    pub sessions: QuotaUseView,
    /// Records of jobs, ended ones included.
    pub jobs: QuotaUseView,
    /// Users of the owner's tenant; absent if it may have any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_users: Option<TenantUsersView>,
}

/// Users of a tenant, and the most that it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantUsersView {
    /// Number of registered users.
    pub used: u64,
    /// Number of users that the tenant may have.
    pub limit: u64,
}

/// One limit of a quota, and what is used of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuotaUseView {
    /// Number that is kept.
    pub used: u64,
    /// Whether an operator has set the limit for this owner; else it is the venue's.
    pub own: bool,
    /// Number that may be kept at most; absent if any number may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

impl QuotaView {
    /// Returns the limit of one kind with its use.
    pub const fn get(&self, kind: QuotaKind) -> &QuotaUseView {
        match kind {
            QuotaKind::Documents => &self.documents,
            QuotaKind::Bytes => &self.bytes,
            QuotaKind::Sessions => &self.sessions,
            QuotaKind::Jobs => &self.jobs,
        }
    }
}
