//! `v/ops/resource/*`: list what is stored under resource namespaces, and erase it. For operators: agents use resources
//! by tools of their own, under the grants of a request.

use crate::domain::authority::ResourcePath;
use crate::domain::authority::grant::check_namespace;
use crate::venue::erase::{self, Erasure};
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, operation};
use crate::venue::resources::purge;
use crate::view::resource::{ErasedRecordsView, ResourceCountView, ResourceListView, ResourcePurgeView};
use schemars::JsonSchema;
use serde::Deserialize;

/// Returns the operations of this group. Their capabilities aren't on `r/…`, which only requests are granted: an
/// operator acts on everything of the owner.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![operation::<ListResources>(), operation::<PurgeNamespace>()]
}

/// A resource namespace, without `r/`.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct NamespaceName(String);

/// A text that names no namespace of resources.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule}")]
struct NamespaceNameError {
    /// First rule that the name breaks.
    rule: &'static str,
}

impl TryFrom<String> for NamespaceName {
    type Error = NamespaceNameError;

    fn try_from(text: String) -> Result<Self, NamespaceNameError> {
        let name = text.strip_prefix("r/").unwrap_or(&text);
        check_namespace(name).map_err(|rule| NamespaceNameError { rule })?;
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
        let rows = kept.into_iter().map(|((namespace, kind), count)| ResourceCountView { namespace, kind, count });
        Ok(OpOutput::of(&ResourceListView { resources: rows.collect() }))
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
        Ok(OpOutput::of(&ResourcePurgeView {
            namespace: namespace.clone(),
            recursive,
            purged: counts,
            erased: ErasedRecordsView {
                turns: erased.turns,
                jobs: erased.jobs,
                dead_letters: erased.dead,
                timers: erased.timers,
            },
            not_purged: Some(not_asked).filter(|kinds| !kinds.is_empty()),
        }))
    }
}
