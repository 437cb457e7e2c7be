//! HTTP calls to hosts that the venue's configuration names, for whoever makes them: operations, resources,
//! models. Each hop is checked before it is made; nothing here says who may ask for it.

mod address;
pub(crate) mod departure;
pub mod proxy;
pub mod endpoint;
pub(crate) mod send;

use crate::config::url::check;
use crate::domain::authority::ResourcePath;
use crate::domain::hosts::HostRule;
use crate::domain::secret::Destination;
use crate::venue::failure::OpError;
use address::{Guarded, is_internal_name};
use proxy::ProxyRoute;
use reqwest::Url;
use reqwest::dns::Resolve;
use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub use address::{Lookup, NotPublic, is_public, system_lookup};

/// What calls are permitted, and how far they go.
#[derive(Clone)]
pub struct HttpPolicy {
    /// Hosts that may be called; empty = none.
    pub hosts: Vec<HostRule>,
    /// Also addresses that are not public.
    pub allow_private: bool,
    /// One call with its redirects, and its body read.
    pub timeout: Duration,
    /// Bytes of an answer's body, unpacked.
    pub max_bytes: usize,
    /// Redirects that are followed.
    pub redirects: usize,
    /// How names become addresses.
    pub lookup: Lookup,
    /// What carries the calls.
    pub proxy: ProxyRoute,
    /// The section of the configuration that it comes from, for errors.
    pub setting: String,
}

impl fmt::Debug for HttpPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpPolicy").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl HttpPolicy {
    /// Whether a URL may be called. A host that is an address is checked here, a name when it is
    /// looked up for the connection, by [`HttpPolicy::resolver`].
    pub fn check(&self, url: &Url) -> Result<(), OpError> {
        let Destination { host, port, https } = destination(url);
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

    /// Checks the name in a URL that a proxy is going to look up: what is not public here is refused. Where a name is
    /// unknown here, as in networks in which only the proxy knows names, the proxy decides, but for names that are
    /// never public.
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

    /// Gives a connection no address that may not be called.
    pub fn resolver(&self) -> Arc<dyn Resolve> {
        let (lookup, setting) = (Arc::clone(&self.lookup), self.setting.clone());
        Arc::new(Guarded { lookup, allow_private: self.allow_private, setting })
    }
}

/// The texts of an error and of its causes, the outermost first.
pub(crate) fn causes(error: &dyn Error) -> Vec<String> {
    let mut texts = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        texts.push(cause.to_string());
        next = cause.source();
    }
    texts
}

impl Default for HttpPolicy {
    /// No host at all.
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

/// A URL as a resource: scheme, host, port when it isn't the scheme's own, path. No query, which
/// may hold secrets, and no fragment.
pub fn resource(url: &Url) -> ResourcePath {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    ResourcePath::web(url.scheme(), &format!("{}{port}", url.host_str().unwrap_or_default()), url.path())
}

/// A URL as a place that secrets can be bound to.
pub fn destination(url: &Url) -> Destination {
    let https = url.scheme() == "https";
    let port = url.port().unwrap_or(if https { 443 } else { 80 });
    Destination { https, host: url.host_str().unwrap_or_default().to_owned(), port }
}

/// Rules of a URL that don't depend on the policy.
pub fn check_url(url: &Url) -> Result<(), OpError> {
    check(url).map_err(OpError::Invalid)
}
