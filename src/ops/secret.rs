//! `v/ops/secret/*`: set, list and delete secrets. No operation gives a value.

use super::lattice::schema;
use crate::domain::authority::ResourcePath;
use crate::domain::ids::secret::SecretName;
use crate::domain::lattice::Namespace;
use crate::domain::secret::{Binding, Plain};
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, Output, UntypedOperation as Operation, UntypedSpec as Spec,
};
use crate::venue::secrets::{self, SetSecret};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Clone, Copy)]
enum Verb {
    Set,
    List,
    Delete,
    Extract,
}

struct Secret(Verb);

/// The operations of this group.
pub fn operations() -> Vec<Arc<dyn Operation>> {
    let verbs = [Verb::Set, Verb::List, Verb::Delete, Verb::Extract];
    verbs.into_iter().map(|verb| Arc::new(Secret(verb)) as Arc<dyn Operation>).collect()
}

fn name_of(arguments: &Value) -> Result<SecretName, OpError> {
    let text = arguments["name"].as_str().unwrap_or_default();
    // `s/NAME` is what everybody else calls it.
    let name = text.strip_prefix("s/").unwrap_or(text);
    SecretName::new(name).map_err(|error| OpError::Invalid(error.to_string()))
}

fn hosts_of(arguments: &Value) -> Result<Option<Binding>, OpError> {
    let Some(hosts) = arguments["hosts"].as_array() else { return Ok(None) };
    let hosts: Vec<String> = hosts.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    Binding::parse(&hosts).map(Some).map_err(OpError::Invalid)
}

#[async_trait]
impl Operation for Secret {
    fn spec(&self) -> Spec {
        let name = || json!({"type": "string", "description": "1 to 64 of [A-Za-z0-9_.-]"});
        match self.0 {
            Verb::Set => Spec {
                path: "v/ops/secret/set",
                description: "Store a secret and bind it to the hosts that it may be sent to; without `hosts` it keeps \
                              those it has, and a new one goes nowhere. It is offered to no agent unless its tools \
                              name it: a model that calls it writes the value into its reply. Records and transcripts \
                              hide it; the model's provider has seen it.",
                input: schema(
                    &json!({
                        "name": name(),
                        "value": {"type": "string", "writeOnly": true},
                        "hosts": {
                            "type": "array",
                            "items": {"type": "string"},
                            "description": "such as api.example.com, *.example.com, 10.0.0.7:8080"
                        },
                        "overwrite": {"type": "boolean"}
                    }),
                    &["name", "value"],
                ),
                effect: Effect::Once,
            },
            Verb::List => Spec {
                path: "v/ops/secret/list",
                description: "The names of the owner's secrets, with the hosts that they may go to. No values.",
                input: schema(&json!({}), &[]),
                effect: Effect::Read,
            },
            Verb::Delete => Spec {
                path: "v/ops/secret/delete",
                description: "Delete a secret; nothing there is no error.",
                input: schema(&json!({"name": name()}), &["name"]),
                effect: Effect::Idempotent,
            },
            Verb::Extract => Spec {
                path: "v/ops/secret/extract",
                description: "Always refused: no value of a secret leaves this venue but to a host that it is bound to.",
                input: schema(&json!({"name": name()}), &["name"]),
                effect: Effect::Read,
            },
        }
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError> {
        let on = |ability| Ok(vec![Need { ability, resource: ResourcePath::secret(&name_of(arguments)?) }]);
        match self.0 {
            Verb::Set => on("secret/set"),
            Verb::Delete => on("secret/delete"),
            Verb::List => Ok(vec![Need { ability: "secret/list", resource: ResourcePath::all(Namespace::Secrets) }]),
            // The same answer for everybody, whether or not there is such a secret.
            Verb::Extract => Ok(Vec::new()),
        }
    }

    async fn invoke(&self, call: &Invocation<'_>, mut arguments: Value) -> Result<Output, OpError> {
        let (venue, owner) = (call.venue, &call.caller.owner);
        let value = match self.0 {
            Verb::Set => {
                let Value::String(value) = arguments["value"].take() else {
                    return Err(OpError::Invalid("expected `value` as text".to_owned()));
                };
                let value = Plain::new(value).map_err(|error| OpError::Invalid(error.to_string()))?;
                let overwrite = arguments["overwrite"].as_bool().unwrap_or(false);
                let set = SetSecret {
                    name: name_of(&arguments)?,
                    value,
                    hosts: hosts_of(&arguments)?,
                    overwrite,
                    within: venue.quota().await,
                };
                let (stamp, existed) = venue.secrets.set(&*venue.store, venue.now(), owner, &set).await?;
                json!({
                    "name": set.name, "stored": true, "existed": existed, "version": stamp.version, "hosts": stamp.hosts
                })
            }
            Verb::List => {
                let all = secrets::stamps(&*venue.store, owner).await?;
                let items: Vec<Value> = all
                    .iter()
                    .map(|(name, stamp, key)| {
                        json!({
                            "name": name, "hosts": stamp.hosts, "version": stamp.version, "created": stamp.created,
                            "updated": stamp.updated, "key": key
                        })
                    })
                    .collect();
                json!({"secrets": items})
            }
            Verb::Delete => {
                let name = name_of(&arguments)?;
                json!({"deleted": secrets::delete(&*venue.store, venue.now(), owner, &name).await?})
            }
            Verb::Extract => {
                return Err(OpError::Denied(format!(
                    "`s/{}` is not given out: a secret's value goes to the hosts that it is bound to and nowhere else; \
                     reference it as {{\"$secret\": \"s/NAME\"}} in a header or body of `v/ops/http/*`",
                    name_of(&arguments)?
                )));
            }
        };
        Ok(value.into())
    }
}
