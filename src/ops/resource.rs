//! `v/ops/resource/*`: what is kept under resource namespaces, and erasing it. For operators: what
//! agents do with resources are tools of their own, under the grants of a request.

use crate::domain::authority;
use crate::domain::authority::grant::check_namespace;
use crate::venue::erase::{self, Erasure};
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, Output, Site, UntypedOperation as Operation, UntypedSpec as Spec,
};
use crate::venue::resources::purge;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Clone, Copy)]
enum Verb {
    List,
    Purge,
}

struct Resource(Verb);

/// The operations of this group.
pub fn operations() -> Vec<Arc<dyn Operation>> {
    let verbs = [Verb::List, Verb::Purge];
    verbs.into_iter().map(|verb| Arc::new(Resource(verb)) as Arc<dyn Operation>).collect()
}

fn namespace(arguments: &Value) -> Result<&str, OpError> {
    let namespace = arguments["namespace"].as_str().unwrap_or_default();
    let namespace = namespace.strip_prefix("r/").unwrap_or(namespace);
    check_namespace(namespace).map_err(|rule| OpError::Invalid(format!("`namespace`: {rule}")))?;
    Ok(namespace)
}

#[async_trait]
impl Operation for Resource {
    fn spec(&self) -> Spec {
        let text = || json!({"type": "string", "description": "resource namespace, e.g. app/user/u1"});
        let (path, description, properties, required, effect) = match self.0 {
            Verb::List => (
                "v/ops/resource/list",
                "The namespaces under which something is kept, with how much by kind.",
                json!({"namespace": text()}),
                vec![],
                Effect::Read,
            ),
            Verb::Purge => (
                "v/ops/resource/purge",
                "Erase what every kind of resource keeps in a namespace, with `recursive` below it too, and what was said \
                 in the turns that ran under it, with their prompts, inputs and outputs. `notPurged` names kinds of \
                 other servers that can't be asked to.",
                json!({"namespace": text(), "recursive": {"type": "boolean"}}),
                vec!["namespace"],
                Effect::Idempotent,
            ),
        };
        let input = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false
        });
        Spec { path, description, input, effect }
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError> {
        let ability = match self.0 {
            Verb::List => "resource/list",
            Verb::Purge => "resource/purge",
        };
        if !arguments["namespace"].is_null() {
            namespace(arguments)?;
        }
        // Not on `r/…`, which only requests are granted: an operator acts for everything of the owner.
        Ok(vec![Need { ability, resource: authority::ResourcePath::kept("resource") }])
    }

    async fn invoke(&self, call: &Invocation<'_>, arguments: Value) -> Result<Output, OpError> {
        if call.caller.is_agent() || matches!(call.site, Site::Turn(_)) || !call.caller.operator {
            return Err(OpError::Denied(format!("`{}` is for operators alone", self.spec().path)));
        }
        let owner = &call.caller.owner;
        match self.0 {
            Verb::List => {
                let under = if arguments["namespace"].is_null() { None } else { Some(namespace(&arguments)?) };
                let kept = purge::list(&*call.venue.store, owner, under).await?;
                let kept: Vec<_> = kept
                    .into_iter()
                    .map(|((namespace, kind), count)| json!({"namespace": namespace, "kind": kind, "count": count}))
                    .collect();
                Ok(json!({"resources": kept}).into())
            }
            Verb::Purge => {
                let namespace = namespace(&arguments)?;
                let recursive = arguments["recursive"].as_bool().unwrap_or(false);
                let purge::Purged { counts, not_asked } = purge::purge(call.venue, owner, namespace, recursive).await?;
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
    }
}
