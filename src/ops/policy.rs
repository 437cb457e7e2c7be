//! `v/ops/policy/*`: what an owner's agents may do at most, and taking back what was granted. People
//! and services decide it; nothing that a model calls does.

use crate::domain::authority::ResourcePath;
use crate::domain::authority::capability::{Capability, RESOURCES};
use crate::domain::authority::policy::{MAX_REVOCATIONS, Policy, Revocation};
use crate::domain::decode;
use crate::domain::lattice::{Namespace, Path};
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, Output, Site, UntypedOperation as Operation, UntypedSpec as Spec,
};
use crate::venue::policy;
use crate::venue::revoked;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Clone, Copy)]
enum Verb {
    Show,
    Revoke,
    Restore,
    Roots,
    Approvals,
}

struct PolicyOperation(Verb);

/// The operations of this group.
pub fn operations() -> Vec<Arc<dyn Operation>> {
    let verbs = [Verb::Show, Verb::Revoke, Verb::Restore, Verb::Roots, Verb::Approvals];
    verbs.into_iter().map(|verb| Arc::new(PolicyOperation(verb)) as Arc<dyn Operation>).collect()
}

impl Verb {
    fn spec(self) -> Spec {
        let text = |about: &str| json!({"type": "string", "description": about});
        let (path, description, properties, required, effect) = match self {
            Self::Show => (
                "v/ops/policy/show",
                "What anything of this owner may do at most, and what was revoked.",
                json!({}),
                vec![],
                Effect::Read,
            ),
            Self::Revoke => (
                "v/ops/policy/revoke",
                "Take back a path, what a holder may do, or a grant; all that is named must match. Holds from the next \
                 check on, that of a running commit included. Without a path nothing starts any more under it: `stops` \
                 lists the agents that were made, the timers that were set and the jobs that are open.",
                json!({
                    "path": {
                        "type": ["string", "array"], "items": {"type": ["string", "integer"]},
                        "description": "a lattice path (text, or an array of keys) or a resource namespace `r/…`, with everything below",
                    },
                    "holder": text("a caller, or `agent:<id>` and what it handed on"),
                    "grant": text("id of a token or of a job, and what was handed on under it"),
                    "reason": text("why"),
                }),
                vec![],
                Effect::Idempotent,
            ),
            Self::Restore => (
                "v/ops/policy/restore",
                "Take a revocation back: for operators, since it may widen what others hold.",
                json!({"id": text("as `policy/show` lists it")}),
                vec!["id"],
                Effect::Idempotent,
            ),
            Self::Roots => (
                "v/ops/policy/roots",
                "Set what anything of this owner may do at most; null = no limit.",
                json!({"caps": {"type": ["array", "null"], "items": {"type": "object"}}}),
                vec!["caps"],
                Effect::Idempotent,
            ),
            Self::Approvals => (
                "v/ops/policy/approvals",
                "Set what calls wait for a person: all that need any of it.",
                json!({"caps": {"type": "array", "items": {"type": "object"}}}),
                vec!["caps"],
                Effect::Idempotent,
            ),
        };
        let input = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false
        });
        Spec { path, description, input, effect }
    }

    const fn ability(self) -> &'static str {
        match self {
            Self::Show => "policy/show",
            Self::Revoke => "policy/revoke",
            Self::Restore => "policy/restore",
            Self::Roots => "policy/roots",
            Self::Approvals => "policy/approvals",
        }
    }
}

#[async_trait]
impl Operation for PolicyOperation {
    fn spec(&self) -> Spec {
        self.0.spec()
    }

    fn needs(&self, _arguments: &Value) -> Result<Vec<Need>, OpError> {
        Ok(vec![Need { ability: self.0.ability(), resource: ResourcePath::kept("policy") }])
    }

    async fn invoke(&self, call: &Invocation<'_>, arguments: Value) -> Result<Output, OpError> {
        if call.caller.is_agent() || matches!(call.site, Site::Turn(_)) {
            return Err(OpError::Denied(format!(
                "`{}` is for people and services; no agent may call it",
                self.0.spec().path
            )));
        }
        // To take something back only narrows; the rest may widen.
        if matches!(self.0, Verb::Restore | Verb::Roots | Verb::Approvals) && !call.caller.operator {
            return Err(OpError::Denied(format!(
                "`{}` is for operators alone: it may widen what others hold; ask an operator of the venue",
                self.0.spec().path
            )));
        }
        let owner = &call.caller.owner;
        let policy = match self.0 {
            Verb::Show => policy::load(&*call.venue.store, owner).await?.0,
            Verb::Revoke => {
                let revocation = revocation(call, &arguments)?;
                let revoked = policy::revoke(call.venue, owner, revocation.clone()).await?;
                let policy = revoked.ok_or_else(|| {
                    OpError::Conflict(format!(
                        "there are {MAX_REVOCATIONS} revocations, the most that are kept; restore some"
                    ))
                })?;
                return Ok(told(call, &policy, &revocation).await?.into());
            }
            Verb::Restore => {
                let id = arguments["id"].as_str().unwrap_or_default();
                let restored = policy::restore(call.venue, owner, id).await?;
                restored.ok_or_else(|| OpError::NotFound(format!("no revocation `{id}`")))?
            }
            Verb::Roots => {
                let roots = policy::set_roots(call.venue, owner, roots(&arguments["caps"])?).await?;
                roots.unwrap_or_default()
            }
            Verb::Approvals => {
                let caps = roots(&arguments["caps"])?.unwrap_or_default();
                policy::set_approvals(call.venue, owner, caps).await?.unwrap_or_default()
            }
        };
        Ok(shown(&policy).into())
    }
}

/// The policy, and what the revocation reaches: all of that stops when it takes everything back, and
/// may do less when it names a path.
async fn told(call: &Invocation<'_>, policy: &Policy, revocation: &Revocation) -> Result<Value, OpError> {
    let mut answer = shown(policy);
    answer["revoked"] = revocation.id.as_str().into();
    if revocation.names_some() {
        let reached = revoked::reached(call.venue, &call.caller.owner, revocation).await?;
        let reached = reached.to(&call.caller.authority).shown();
        answer[if revocation.ends() { "stops" } else { "narrows" }] = reached;
    }
    Ok(answer)
}

fn shown(policy: &Policy) -> Value {
    let mut revocations = json!(policy.revocations);
    for (shown, revocation) in revocations.as_array_mut().into_iter().flatten().zip(&policy.revocations) {
        if let Some(path) = &revocation.path {
            shown["path"] = path.to_string().into();
        }
    }
    json!({"roots": policy.roots, "approvals": policy.approvals, "revocations": revocations})
}

fn revocation(call: &Invocation<'_>, arguments: &Value) -> Result<Revocation, OpError> {
    let text = |key: &str| arguments[key].as_str().map(str::to_owned).filter(|text| !text.is_empty());
    let path = Some(&arguments["path"]).filter(|path| **path != Value::Null && **path != json!(""));
    let path = path.map(legal).transpose()?;
    let (holder, grant) = (text("holder"), text("grant"));
    if path.is_none() && holder.is_none() && grant.is_none() {
        return Err(OpError::Invalid("expected `path`, `holder` or `grant`: what is to be revoked".into()));
    }
    Ok(Revocation {
        id: uuid::Uuid::now_v7().to_string(),
        path,
        holder,
        grant,
        reason: text("reason"),
        by: call.caller.name.clone(),
        at: call.venue.now(),
    })
}

/// What a revocation takes back: a path, or by the rules of capabilities a namespace of resources or
/// a host.
fn legal(given: &Value) -> Result<ResourcePath, OpError> {
    if let Value::String(text) = given
        && (text.split('/').next() == Some(RESOURCES) || text.contains("://"))
    {
        let cap = Capability { with: text.clone(), can: "*".into() };
        return cap.check().map(|()| ResourcePath::of(&cap)).map_err(OpError::Invalid);
    }
    let path = Path::from_json(given).map_err(|error| OpError::Invalid(error.to_string()))?;
    if matches!(path.namespace(), Namespace::Session | Namespace::Job) {
        return Err(OpError::Invalid(format!(
            "`{path}` can't be revoked: what a session or a job keeps for itself is always its own; revoke its `holder` or its `grant`"
        )));
    }
    Ok(ResourcePath::from(&path))
}

fn roots(caps: &Value) -> Result<Option<Vec<Capability>>, OpError> {
    let caps: Option<Vec<Capability>> =
        decode::typed(caps.clone()).map_err(|error| OpError::Invalid(format!("`caps`: {error}")))?;
    for (at, cap) in caps.iter().flatten().enumerate() {
        cap.check().map_err(|rule| OpError::Invalid(format!("`caps[{at}]`: {rule}")))?;
    }
    Ok(caps)
}
