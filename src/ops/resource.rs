//! `v/ops/resource/*`: list what is stored under resource namespaces, and erase it. For operators: agents use resources
//! by tools of their own, under the grants of a request.

use crate::domain::authority::ResourcePath;
use crate::domain::authority::grant::check_namespace;
use crate::venue::erase::{self, Erasure};
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, operation};
use crate::venue::resources::purge;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// Returns the operations of this group. Their capabilities aren't on `r/…`, which only requests are granted: an
/// operator acts on everything of the owner.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![operation::<ListResources>(), operation::<PurgeNamespace>()]
}

/// A resource namespace, without `r/`.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct NamespaceName(String);

impl TryFrom<String> for NamespaceName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let name = text.strip_prefix("r/").unwrap_or(&text);
        check_namespace(name).map_err(ToString::to_string)?;
        Ok(Self(name.to_owned()))
    }
}

/// The namespaces under which something is kept, with how much by kind.
#[derive(Deserialize, JsonSchema)]
struct ListResources {
    /// resource namespace, e.g. app/user/u1
    #[schemars(with = "Option<String>")]
    namespace: Option<NamespaceName>,
}

impl Operation for ListResources {
    const PATH: &'static str = "v/ops/resource/list";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("resource/list", ResourcePath::owner_document("resource"))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        call.require_operator::<Self>("")?;
        let under = self.namespace.as_ref().map(|NamespaceName(name)| name.as_str());
        let kept = purge::count_stored(&*call.venue.store, &call.caller.owner, under).await?;
        let shown = kept
            .into_iter()
            .map(|((namespace, kind), count)| json!({"namespace": namespace, "kind": kind, "count": count}));
        Ok(json!({"resources": shown.collect::<Vec<Value>>()}).into())
    }
}

/// Erase what every kind of resource keeps in a namespace, with `recursive` below it too, and what was said in the turns
/// that ran under it, with their prompts, inputs and outputs. `notPurged` names kinds of other servers that can't be asked
/// to.
#[derive(Deserialize, JsonSchema)]
struct PurgeNamespace {
    /// resource namespace, e.g. app/user/u1
    #[schemars(with = "String")]
    namespace: NamespaceName,
    #[serde(default)]
    recursive: bool,
}

impl Operation for PurgeNamespace {
    const PATH: &'static str = "v/ops/resource/purge";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("resource/purge", ResourcePath::owner_document("resource"))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        call.require_operator::<Self>("")?;
        let Self { namespace: NamespaceName(namespace), recursive } = &self;
        let (owner, recursive) = (&call.caller.owner, *recursive);
        let purge::PurgeCounts { counts, not_asked } = purge::purge(call.venue, owner, namespace, recursive).await?;
        let erased = erase::erase(call.venue, owner, Erasure { namespace, recursive }).await?;
        let mut done = json!({
            "namespace": namespace, "recursive": recursive, "purged": counts,
            "erased": {
                "turns": erased.turns, "jobs": erased.jobs,
                "deadLetters": erased.dead, "timers": erased.timers,
            },
        });
        if !not_asked.is_empty() {
            done["notPurged"] = not_asked.into();
        }
        Ok(done.into())
    }
}
