//! `v/ops/quota/*`: show and set the quota of an owner.

use crate::domain::authority::ResourcePath;
use crate::domain::decode;
use crate::domain::quota::{MOST, QuotaKind};
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, operation};
use crate::venue::quotas;
use schemars::JsonSchema;
use serde::Deserialize;

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![operation::<ShowQuota>(), operation::<SetQuota>()]
}

/// What this owner keeps, and what it may keep: documents, bytes, sessions, jobs.
#[derive(Deserialize, JsonSchema)]
struct ShowQuota {}

impl Operation for ShowQuota {
    const PATH: &'static str = "v/ops/quota/show";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("quota/show", ResourcePath::owner_document("quota"))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        Ok(OpOutput::of(&quotas::usage(call.venue, &call.caller.owner).await?))
    }
}

/// Set what this owner may keep at most; 0 = any number, null = as the venue says of all owners.
#[derive(Deserialize, JsonSchema)]
struct SetQuota {
    #[serde(default, deserialize_with = "decode::nullable_field")]
    #[schemars(range(max = MOST), extend("nullable" = true))]
    documents: Option<QuotaLimit>,
    #[serde(default, deserialize_with = "decode::nullable_field")]
    #[schemars(range(max = MOST), extend("nullable" = true))]
    bytes: Option<QuotaLimit>,
    #[serde(default, deserialize_with = "decode::nullable_field")]
    #[schemars(range(max = MOST), extend("nullable" = true))]
    sessions: Option<QuotaLimit>,
    #[serde(default, deserialize_with = "decode::nullable_field")]
    #[schemars(range(max = MOST), extend("nullable" = true))]
    jobs: Option<QuotaLimit>,
}

/// At most so many; null = as the venue says of all.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[schemars(description = "")]
struct QuotaLimit(Option<u64>);

impl SetQuota {
    /// Returns the limits that are named; `None` restores the venue's.
    fn limits(&self) -> Vec<(QuotaKind, Option<u64>)> {
        let limit = |kind| match kind {
            QuotaKind::Documents => self.documents,
            QuotaKind::Bytes => self.bytes,
            QuotaKind::Sessions => self.sessions,
            QuotaKind::Jobs => self.jobs,
        };
        QuotaKind::ALL.into_iter().filter_map(|kind| Some((kind, limit(kind)?.0))).collect()
    }
}

impl Operation for SetQuota {
    const PATH: &'static str = "v/ops/quota/set";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        if self.limits().is_empty() {
            return Err(OpError::Invalid("expected `documents`, `bytes`, `sessions` or `jobs`".into()));
        }
        Need::only("quota/set", ResourcePath::owner_document("quota"))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        call.require_operator::<Self>("")?;
        let owner = &call.caller.owner;
        quotas::set_limits(call.venue, owner, &self.limits()).await?;
        Ok(OpOutput::of(&quotas::usage(call.venue, owner).await?))
    }
}
