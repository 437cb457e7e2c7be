//! Kinds of resources that the configuration adds.

use super::AppError;
use crate::config::{Config, ResourceKind};
use crate::domain::ids::secret::{SecretName, SecretNameError};
use crate::domain::secret::{PlainSecret, ValueError};
use crate::venue::outbound::endpoint::{Credential, Endpoint, EndpointError, EndpointSettings};
use crate::venue::outbound::proxy::ProxyRoute;
use crate::venue::resources::remote::{self, RemoteProvider};
use crate::venue::resources::{ResourceProvider, ResourceProviders};

/// Reason why a kind of resources can't be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResourceKindError {
    /// The environment has no key for the server.
    #[error("its key is in the environment variable `{variable}`, which isn't set")]
    NoKey {
        /// Name of the environment variable.
        variable: String,
    },
    /// The key can't be a secret.
    #[error("its key, in `{variable}`: {error}")]
    Key {
        /// Name of the environment variable.
        variable: String,
        /// Limit that the key breaks.
        error: ValueError,
    },
    /// The kind has a name that its key can't have.
    #[error(transparent)]
    Name(#[from] SecretNameError),
    /// The server can't be called with these settings.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
}

/// Makes the providers of all kinds that the configuration adds.
pub(super) fn open_kinds(config: &Config) -> Result<ResourceProviders, AppError> {
    let added = config.resources.kinds.iter().map(|(name, kind)| {
        let provider = provider(config, name, kind);
        provider.map_err(|problem| AppError::Kind { kind: name.clone(), problem })
    });
    Ok(ResourceProviders::new(added.collect::<Result<Vec<_>, _>>()?))
}

fn provider(config: &Config, name: &str, kind: &ResourceKind) -> Result<Box<dyn ResourceProvider>, ResourceKindError> {
    let credential = kind.key_env.as_deref().map(|variable| credential(name, kind, variable)).transpose()?;
    let endpoint = Endpoint::new(EndpointSettings {
        url: kind.url.clone(),
        allow_private: kind.allow_private,
        timeout: kind.timeout,
        max_bytes: config.http_client.max_bytes,
        proxy: ProxyRoute::new(&config.http_client.proxy, "http_client.proxy"),
        credential,
        setting: format!("resources.kinds.{name}"),
    })?;
    let (about, verbs, mode) = (kind.about.clone(), kind.operations.clone(), kind.mode);
    Ok(Box::new(RemoteProvider::new(remote::RemoteSettings { kind: name.to_owned(), about, verbs, mode }, endpoint)))
}

/// Reads the key of a kind from an environment variable.
fn credential(name: &str, kind: &ResourceKind, variable: &str) -> Result<Credential, ResourceKindError> {
    let value = std::env::var(variable).ok().filter(|value| !value.is_empty());
    let value = value.ok_or_else(|| ResourceKindError::NoKey { variable: variable.to_owned() })?;
    let value =
        PlainSecret::new(value).map_err(|error| ResourceKindError::Key { variable: variable.to_owned(), error })?;
    let shown = SecretName::new(name)?;
    Ok(Credential { header: kind.header.clone(), prefix: kind.prefix.clone(), value, shown })
}
