//! `v/ops/secret/*`: set, list and delete secrets. No operation returns a value.

use crate::domain::authority::ResourcePath;
use crate::domain::ids::secret::SecretName;
use crate::domain::lattice::Namespace;
use crate::domain::secret::{Binding, PlainSecret};
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, operation};
use crate::venue::secrets::{self, SetSecret};
use crate::view::secret::{SecretDeletedView, SecretStoredView, SecretView, SecretsView};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![
        operation::<StoreSecret>(),
        operation::<ListSecrets>(),
        operation::<DeleteSecret>(),
        operation::<ExtractSecret>(),
    ]
}

/// Reads a name, or `s/NAME`, as other operations name it.
fn name<'de, D: Deserializer<'de>>(from: D) -> Result<SecretName, D::Error> {
    let text = String::deserialize(from)?;
    SecretName::new(text.strip_prefix("s/").unwrap_or(&text)).map_err(serde::de::Error::custom)
}

/// Store a secret and bind it to the hosts that it may be sent to; without `hosts` it keeps those it has, and a new one goes
/// nowhere. It is offered to no agent unless its tools name it: a model that calls it writes the value into its reply.
/// Records and transcripts hide it; the model's provider has seen it.
#[derive(Deserialize, JsonSchema)]
struct StoreSecret {
    /// 1 to 64 of [A-Za-z0-9_.-]
    #[serde(deserialize_with = "name")]
    name: SecretName,
    #[schemars(with = "String", extend("writeOnly" = true))]
    value: PlainSecret,
    /// such as api.example.com, *.example.com, 10.0.0.7:8080
    #[schemars(with = "Option<Vec<String>>")]
    hosts: Option<Binding>,
    #[serde(default)]
    overwrite: bool,
}

impl Operation for StoreSecret {
    const PATH: &'static str = "v/ops/secret/set";
    const EFFECT: Effect = Effect::Once;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("secret/set", ResourcePath::secret(&self.name))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let Self { name, value, hosts, overwrite } = self;
        let (venue, owner) = (call.venue, &call.caller.owner);
        let set = SetSecret { name, value, hosts, overwrite, within: venue.quota().await };
        let (stamp, existed) = venue.secrets.set(&*venue.store, venue.now(), owner, &set).await?;
        Ok(OpOutput::of(&SecretStoredView {
            name: set.name.to_string(),
            stored: true,
            existed,
            version: stamp.version,
            hosts: stamp.hosts.hosts().to_vec(),
        }))
    }
}

/// The names of the owner's secrets, with the hosts that they may go to. No values.
#[derive(Deserialize, JsonSchema)]
struct ListSecrets {}

impl Operation for ListSecrets {
    const PATH: &'static str = "v/ops/secret/list";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("secret/list", ResourcePath::whole_namespace(Namespace::Secrets))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let all = secrets::list_stamps(&*call.venue.store, &call.caller.owner).await?;
        let known = call.venue.secrets.keys().ids();
        let shown = all.iter().map(|(name, stamp, key)| SecretView {
            name: name.to_string(),
            hosts: stamp.hosts.hosts().to_vec(),
            version: stamp.version,
            created: stamp.created,
            updated: stamp.updated,
            key: key.to_string(),
            readable: known.contains(key),
        });
        Ok(OpOutput::of(&SecretsView { secrets: shown.collect() }))
    }
}

/// Delete a secret; nothing there is no error.
#[derive(Deserialize, JsonSchema)]
struct DeleteSecret {
    /// 1 to 64 of [A-Za-z0-9_.-]
    #[serde(deserialize_with = "name")]
    name: SecretName,
}

impl Operation for DeleteSecret {
    const PATH: &'static str = "v/ops/secret/delete";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("secret/delete", ResourcePath::secret(&self.name))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let venue = call.venue;
        let deleted = secrets::delete(&*venue.store, venue.now(), &call.caller.owner, &self.name).await?;
        Ok(OpOutput::of(&SecretDeletedView { deleted }))
    }
}

/// Always refused: no value of a secret leaves this venue but to a host that it is bound to.
#[derive(Deserialize, JsonSchema)]
struct ExtractSecret {
    /// 1 to 64 of [A-Za-z0-9_.-]
    #[serde(deserialize_with = "name")]
    name: SecretName,
}

impl Operation for ExtractSecret {
    const PATH: &'static str = "v/ops/secret/extract";
    const EFFECT: Effect = Effect::Read;

    /// The answer is the same for every caller, whether or not there is such a secret.
    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::none()
    }

    async fn run(self, _call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        Err(OpError::Denied(format!(
            "`s/{}` is not given out: a secret's value goes to the hosts that it is bound to and nowhere else; \
             reference it as {{\"$secret\": \"s/NAME\"}} in a header or body of `v/ops/http/*`",
            self.name
        )))
    }
}
