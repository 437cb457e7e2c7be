//! `v/ops/policy/*`: limit what an owner's agents may do, and revoke grants. For people and services; no model may call
//! them.

use crate::domain::authority::ResourcePath;
use crate::domain::authority::ability::unknown_ability;
use crate::domain::authority::capability::{Capability, CapabilityError, RESOURCES};
use crate::domain::authority::policy::{MAX_REVOCATIONS, Policy, Revocation};
use crate::domain::bounds::{REVOKED_NAME_BYTES, cut_reason};
use crate::domain::lattice::{Namespace, Path, PathError};
use crate::domain::limits::CAPABILITIES;
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, operation};
use crate::venue::policy;
use crate::venue::revocation_reach;
use crate::view::policy::PolicyView;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![
        operation::<ShowPolicy>(),
        operation::<RevokeGrant>(),
        operation::<RestoreGrant>(),
        operation::<SetRoots>(),
        operation::<SetRequiredApprovals>(),
    ]
}

/// Refuses agents: the operations are for people and services.
fn for_people<T: Operation>(call: &Invocation<'_>) -> Result<(), OpError> {
    call.refuse_agents::<T>("people and services")
}

/// Refuses all but operators: the operations may widen what others hold.
fn for_operators<T: Operation>(call: &Invocation<'_>) -> Result<(), OpError> {
    for_people::<T>(call)?;
    call.require_operator::<T>(": it may widen what others hold; ask an operator of the venue")
}

/// What anything of this owner may do at most, and what was revoked.
#[derive(Deserialize, JsonSchema)]
struct ShowPolicy {}

impl Operation for ShowPolicy {
    const PATH: &'static str = "v/ops/policy/show";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("policy/show", ResourcePath::owner_document("policy"))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        for_people::<Self>(call)?;
        let (policy, _) = policy::load(&*call.venue.store, &call.caller.owner).await?;
        Ok(OpOutput::of(&PolicyView::from(&policy)))
    }
}

/// Take back a path, what a holder may do, or a grant; all that is named must match. Holds from the next check on, that of a
/// running commit included; of an operator it also holds for what his token or job has begun for other owners (`everyOwner`),
/// within a second. Without a path nothing starts any more under it: `stops` lists the agents that were made, the
/// timers that were set and the jobs that are open.
#[derive(Deserialize, JsonSchema)]
struct RevokeGrant {
    /// a lattice path (text, or an array of keys) or a resource namespace `r/…`, with everything below
    #[serde(default)]
    #[schemars(with = "Value", extend("type" = ["string", "array"], "items" = {"type": ["string", "integer"]}))]
    path: RevokedPath,
    /// a caller, or `agent:<id>` and what it handed on
    #[serde(default)]
    holder: String,
    /// id of a token or of a job, and what was handed on under it
    #[serde(default)]
    grant: String,
    /// why; what is beyond 4 KiB is cut off
    #[serde(default)]
    reason: String,
}

/// What a revocation names: a path, or by the rules of capabilities a namespace of resources or a host; or none of
/// these.
#[derive(Default, Deserialize)]
#[serde(try_from = "Value")]
struct RevokedPath(Option<ResourcePath>);

/// Why a path can't be revoked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum RevokedPathError {
    /// The text is no path outside the tree.
    #[error(transparent)]
    Capability(#[from] CapabilityError),
    /// The value is no path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A session or a job has the path for itself.
    #[error(
        "`{0}` can't be revoked: what a session or a job keeps for itself is always its own; revoke its `holder` or its \
         `grant`"
    )]
    Own(Path),
}

impl TryFrom<Value> for RevokedPath {
    type Error = RevokedPathError;

    fn try_from(given: Value) -> Result<Self, RevokedPathError> {
        if given == "" {
            return Ok(Self(None));
        }
        if let Value::String(text) = &given
            && (text.split('/').next() == Some(RESOURCES) || text.contains("://"))
        {
            let cap = Capability { with: text.clone(), can: "*".into() };
            cap.check()?;
            return Ok(Self(Some(ResourcePath::from_capability(&cap))));
        }
        let path = Path::from_json(&given)?;
        if matches!(path.namespace(), Namespace::Session | Namespace::Job) {
            return Err(RevokedPathError::Own(path));
        }
        Ok(Self(Some(ResourcePath::from(&path))))
    }
}

impl Operation for RevokeGrant {
    const PATH: &'static str = "v/ops/policy/revoke";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("policy/revoke", ResourcePath::owner_document("policy"))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        // A revocation only narrows; the other operations may widen.
        for_people::<Self>(call)?;
        let Self { path: RevokedPath(path), holder, grant, reason } = self;
        let text = |text: String| Some(text).filter(|text| !text.is_empty());
        let (holder, grant) = (text(holder), text(grant));
        if path.is_none() && holder.is_none() && grant.is_none() {
            return Err(OpError::Invalid("expected `path`, `holder` or `grant`: what is to be revoked".into()));
        }
        for (name, value) in [("holder", &holder), ("grant", &grant)] {
            if let Some(bytes) = value.as_ref().map(String::len).filter(|bytes| *bytes > REVOKED_NAME_BYTES) {
                let most = format!("`{name}`: expected at most {REVOKED_NAME_BYTES} bytes, got {bytes}");
                return Err(OpError::Invalid(most));
            }
        }
        let id = uuid::Uuid::now_v7().to_string();
        let (by, at) = (call.caller.name.clone(), call.venue.now());
        let revocation = Revocation { id, path, holder, grant, reason: text(reason).map(cut_reason), by, at };
        let full = || {
            OpError::Conflict(format!("there are {MAX_REVOCATIONS} revocations, the most that are kept; restore some"))
        };
        // The revocation for all owners is written first: after a crash in between the call is repeated, and no less is
        // revoked than reported.
        let everywhere = is_of_own_token(call, &revocation);
        if everywhere {
            policy::revoke_everywhere(call.venue, revocation.clone()).await?.ok_or_else(full)?;
        }
        let revoked = policy::revoke(call.venue, &call.caller.owner, revocation.clone()).await?;
        let policy = revoked.ok_or_else(full)?;
        let told = describe_revocation(call, &policy, &revocation).await?;
        Ok(OpOutput::of(&PolicyView { every_owner: Some(everywhere), ..told }))
    }
}

/// Take a revocation back: for operators, since it may widen what others hold.
#[derive(Deserialize, JsonSchema)]
struct RestoreGrant {
    /// as `policy/show` lists it
    id: String,
}

impl Operation for RestoreGrant {
    const PATH: &'static str = "v/ops/policy/restore";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("policy/restore", ResourcePath::owner_document("policy"))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        for_operators::<Self>(call)?;
        let restored = policy::restore(call.venue, &call.caller.owner, &self.id, call.caller.operator).await?;
        let policy = restored.ok_or_else(|| OpError::NotFound(format!("no revocation `{}`", self.id)))?;
        Ok(OpOutput::of(&PolicyView::from(&policy)))
    }
}

/// Set what anything of this owner may do at most; null = no limit.
#[derive(Deserialize, JsonSchema)]
struct SetRoots {
    #[serde(deserialize_with = "Deserialize::deserialize")]
    #[schemars(with = "CapabilityMaps", extend("nullable" = true, "type" = ["array", "null"]))]
    caps: Option<Vec<Capability>>,
}

/// Capabilities, as schemas for models show them.
type CapabilityMaps = Vec<Map<String, Value>>;

impl Operation for SetRoots {
    const PATH: &'static str = "v/ops/policy/roots";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("policy/roots", ResourcePath::owner_document("policy"))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        for_operators::<Self>(call)?;
        let warnings = check(self.caps.as_deref().unwrap_or_default())?;
        let roots = policy::set_roots(call.venue, &call.caller.owner, self.caps).await?;
        Ok(OpOutput::of(&PolicyView { warnings, ..PolicyView::from(&roots.unwrap_or_default()) }))
    }
}

/// Set what calls wait for a person: all that need any of it.
#[derive(Deserialize, JsonSchema)]
struct SetRequiredApprovals {
    #[schemars(with = "CapabilityMaps")]
    caps: Vec<Capability>,
}

impl Operation for SetRequiredApprovals {
    const PATH: &'static str = "v/ops/policy/approvals";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("policy/approvals", ResourcePath::owner_document("policy"))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        for_operators::<Self>(call)?;
        let warnings = check(&self.caps)?;
        let policy = policy::set_approvals(call.venue, &call.caller.owner, self.caps).await?;
        Ok(OpOutput::of(&PolicyView { warnings, ..PolicyView::from(&policy.unwrap_or_default()) }))
    }
}

/// Whether an operator, in his own owner, revokes what a token or job of his own holds: it may act in every owner.
fn is_of_own_token(call: &Invocation<'_>, revocation: &Revocation) -> bool {
    let name = &call.caller.name;
    let is_own = revocation.holder.as_ref().map_or(revocation.grant.is_some(), |holder| holder == name);
    call.caller.operator && *name == call.caller.owner.to_string() && is_own
}

/// Returns the policy, and what the revocation reaches: all of that stops if everything is revoked, and may do less if
/// the revocation names a path.
async fn describe_revocation(
    call: &Invocation<'_>,
    policy: &Policy,
    revocation: &Revocation,
) -> Result<PolicyView, OpError> {
    let mut answer = PolicyView { revoked: Some(revocation.id.clone()), ..PolicyView::from(policy) };
    if revocation.has_subject() {
        let reached = revocation_reach::find_reach(call.venue, &call.caller.owner, revocation).await?;
        let reached = Some(reached.visible_to(&call.caller.authority).view());
        if revocation.revokes_everything() {
            answer.stops = reached;
        } else {
            answer.narrows = reached;
        }
    }
    Ok(answer)
}

/// Checks capabilities, and returns a warning for each ability that nothing needs.
fn check(caps: &[Capability]) -> Result<Vec<String>, OpError> {
    if caps.len() > CAPABILITIES {
        let found = caps.len();
        return Err(OpError::Invalid(format!("`caps`: expected at most {CAPABILITIES} capabilities, got {found}")));
    }
    let mut warnings = Vec::new();
    for (at, cap) in caps.iter().enumerate() {
        let place = format!("caps[{at}]");
        cap.check().map_err(|rule| OpError::Invalid(format!("`{place}`: {rule}")))?;
        warnings.extend(unknown_ability(&place, &cap.can));
    }
    Ok(warnings)
}
