//! Kinds of resources that the configuration adds.

use super::AppError;
use super::key_variables::{KeyVariable, KeyVariableError};
use crate::config::{Config, ResourceKind};
use crate::venue::outbound::endpoint::{Endpoint, EndpointError, EndpointSettings};
use crate::venue::outbound::proxy::ProxyRoute;
use crate::venue::resources::remote::{self, RemoteProvider};
use crate::venue::resources::{ResourceProvider, ResourceProviders};

/// Reason why a kind of resources can't be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResourceKindError {
    /// Its key can't be used.
    #[error(transparent)]
    Key(#[from] KeyVariableError),
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
    let ResourceKind { key_env, header, prefix, .. } = kind;
    let key = |variable| KeyVariable { variable, header, prefix, shown: name }.read();
    let credential = key_env.as_deref().map(key).transpose()?;
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
