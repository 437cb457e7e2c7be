//! HTTP calls of operations, resources and models to hosts that the venue's configuration names. Each hop is checked
//! before it is made; callers check who may make a call.

mod address;
pub(crate) mod departure;
pub(crate) mod owner_headers;
pub mod proxy;
pub mod endpoint;
pub(crate) mod send;
pub mod webhook;
pub mod trace_sender;

use crate::config::url::check;
use crate::domain::authority::ResourcePath;
use crate::domain::hosts::HostRule;
use crate::domain::secret::Destination;
use crate::venue::failure::OpError;
use address::{PublicResolver, is_internal_name};
use proxy::ProxyRoute;
use reqwest::Url;
use reqwest::dns::Resolve;
use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub use address::{Lookup, NotPublic, is_public, system_lookup};

/// Rules and limits of calls.
#[derive(Clone)]
pub struct HttpPolicy {
    /// Hosts that may be called; empty = none.
    pub hosts: Vec<HostRule>,
    /// Whether private addresses may be called, too.
    pub allow_private: bool,
    /// Longest time of one call with its redirects and its body.
    pub timeout: Duration,
    /// Most bytes of an answer's body, decompressed.
    pub max_bytes: usize,
    /// Most redirects that are followed.
    pub redirects: usize,
    /// Function that resolves names.
    pub lookup: Lookup,
    /// Proxy that carries the calls.
    pub proxy: ProxyRoute,
    /// Section of the configuration, for errors.
    pub setting: String,
}

impl fmt::Debug for HttpPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpPolicy").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl HttpPolicy {
    /// Checks that a URL may be called. An address as host is checked here; a name is checked by
    /// [`HttpPolicy::resolver`] when it is looked up for the connection.
    pub fn check(&self, url: &Url) -> Result<(), OpError> {
        let Destination { host, port, https } = url_destination(url);
        let default = if https { 443 } else { 80 };
        if !self.hosts.iter().any(|rule| rule.permits(&host, port, default)) {
            return Err(OpError::Denied(format!(
                "host `{host}` port {port} is not one that this venue allows (`{}.allow_hosts`); retrying will not \
                 help",
                self.setting
            )));
        }
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        match address {
            Ok(address) if !self.allow_private && !is_public(address) => {
                let refused = NotPublic { host, address: address.to_string(), setting: self.setting.clone() };
                Err(OpError::Denied(refused.to_string()))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Checks the name in a URL that a proxy will look up: a name that isn't public here is refused. If the name is
    /// unknown here, as in networks where only the proxy knows names, the proxy decides; but names that are never
    /// public are refused.
    pub async fn check_name(&self, url: &Url) -> Result<(), OpError> {
        let Some(host) = url.domain().filter(|_| !self.allow_private) else { return Ok(()) };
        let found = (self.lookup)(host.to_owned()).await.unwrap_or_default();
        let setting = &self.setting;
        if let Some(address) = found.iter().find(|address| !is_public(**address)) {
            let (host, address) = (host.to_owned(), address.to_string());
            return Err(OpError::Denied(NotPublic { host, address, setting: setting.clone() }.to_string()));
        }
        if found.is_empty() && is_internal_name(host) {
            return Err(OpError::Denied(format!(
                "`{host}` is a name of private networks (this venue's `{setting}.allow_private` is false)"
            )));
        }
        Ok(())
    }

    /// Returns a resolver that gives a connection no address which may not be called.
    pub fn resolver(&self) -> Arc<dyn Resolve> {
        let (lookup, setting) = (Arc::clone(&self.lookup), self.setting.clone());
        Arc::new(PublicResolver { lookup, allow_private: self.allow_private, setting })
    }
}

/// Returns the texts of an error and of its causes, the outermost first.
pub(crate) fn error_causes(error: &dyn Error) -> Vec<String> {
    let mut texts = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        texts.push(cause.to_string());
        next = cause.source();
    }
    texts
}

impl Default for HttpPolicy {
    /// Permits no host.
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            allow_private: false,
            timeout: Duration::from_secs(30),
            max_bytes: 1024 * 1024,
            redirects: 5,
            lookup: system_lookup(),
            proxy: ProxyRoute::default(),
            setting: "http_client".into(),
        }
    }
}

/// Returns a URL as a resource: scheme, host, port if it isn't the scheme's own, path. It has no fragment, and no
/// query, which may contain secrets.
pub fn url_resource(url: &Url) -> ResourcePath {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    ResourcePath::web(url.scheme(), &format!("{}{port}", url.host_str().unwrap_or_default()), url.path())
}

/// Returns the forms in which errors name a URL: the URL, its resource and its host; empty if the text is no URL with a
/// host.
pub(crate) fn spellings(text: &str) -> Vec<String> {
    let Some(url) = Url::parse(text).ok().filter(Url::has_host) else { return Vec::new() };
    vec![url.to_string(), url_resource(&url).to_string(), url.host_str().unwrap_or_default().to_owned()]
}

/// Returns a URL as a place that secrets can be bound to.
pub fn url_destination(url: &Url) -> Destination {
    let https = url.scheme() == "https";
    let port = url.port().unwrap_or(if https { 443 } else { 80 });
    Destination { https, host: url.host_str().unwrap_or_default().to_owned(), port }
}

/// Checks the rules of a URL that don't depend on the policy.
pub fn check_url(url: &Url) -> Result<(), OpError> {
    check(url).map_err(|error| OpError::Invalid(error.to_string()))
}
