//! `v/ops/http/*`: calls to hosts that the venue's configuration names.

mod address;
pub mod endpoint;
mod send;

use super::lattice::schema;
use super::{Effect, Invocation, Need, OpError, Operation, Output, Spec};
use crate::domain::authority::Resource;
use crate::domain::hosts::HostRule;
use crate::domain::secret::{Destination, reference};
use address::Guarded;
use async_trait::async_trait;
use reqwest::dns::Resolve;
use reqwest::{Method, Url};
use send::{Ask, Sender};
use serde_json::{Value, json};
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

    /// Gives a connection no address that may not be called.
    pub fn resolver(&self) -> Arc<dyn Resolve> {
        let (lookup, setting) = (Arc::clone(&self.lookup), self.setting.clone());
        Arc::new(Guarded { lookup, allow_private: self.allow_private, setting })
    }
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
            setting: "http_client".into(),
        }
    }
}

#[derive(Clone, Copy)]
enum Verb {
    Get,
    Post,
}

struct Http {
    verb: Verb,
    sender: Arc<Sender>,
}

/// The operations of this group, under a policy.
pub fn operations(policy: HttpPolicy) -> Vec<Arc<dyn Operation>> {
    let sender = Arc::new(Sender::new(policy));
    let operation = |verb| Arc::new(Http { verb, sender: Arc::clone(&sender) }) as Arc<dyn Operation>;
    vec![operation(Verb::Get), operation(Verb::Post)]
}

/// A URL as a resource: scheme, host, port when it isn't the scheme's own, path. No query, which
/// may hold secrets, and no fragment.
fn resource(url: &Url) -> Resource {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    Resource::web(url.scheme(), &format!("{}{port}", url.host_str().unwrap_or_default()), url.path())
}

/// A URL as a place that secrets can be bound to.
pub fn destination(url: &Url) -> Destination {
    let https = url.scheme() == "https";
    let port = url.port().unwrap_or(if https { 443 } else { 80 });
    Destination { https, host: url.host_str().unwrap_or_default().to_owned(), port }
}

fn url_of(arguments: &Value) -> Result<Url, OpError> {
    let text = arguments["url"].as_str().unwrap_or_default();
    let url = Url::parse(text).map_err(|error| OpError::Invalid(format!("`url` expected a URL, {error}")))?;
    check_url(&url)?;
    Ok(url)
}

/// Rules of a URL that don't depend on the policy.
fn check_url(url: &Url) -> Result<(), OpError> {
    if !matches!(url.scheme(), "http" | "https") {
        let scheme = url.scheme();
        return Err(OpError::Invalid(format!("`url` expected `http://` or `https://`, got `{scheme}:`")));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(OpError::Invalid("credentials are not allowed in a URL; send a header".to_owned()));
    }
    Ok(())
}

impl Verb {
    const fn ability(self) -> &'static str {
        match self {
            Self::Get => "http/get",
            Self::Post => "http/post",
        }
    }
}

#[async_trait]
impl Operation for Http {
    fn spec(&self) -> Spec {
        let header = || {
            let mut text = reference::text_schema();
            text["description"] = "text, or a secret: {\"$secret\": \"s/NAME\", \"prefix\": \"Bearer \"}".into();
            text
        };
        let headers = || json!({"type": "object", "additionalProperties": header(), "maxProperties": 50});
        let body = || json!({reference::MARK: true, "description": "JSON may hold secrets, as headers do"});
        let timeout = || json!({"type": "integer", "minimum": 1, "description": "ms"});
        let url = || json!({"type": "string", "maxLength": 8192});
        match self.verb {
            Verb::Get => Spec {
                path: "v/ops/http/get",
                description: "Get a URL of a host that this venue allows. Returns status, headers, and the body: JSON \
                              parsed, text as `body`, bytes as `bodyBase64`. Any status is a result.",
                input: schema(&json!({"url": url(), "headers": headers(), "timeout": timeout()}), &["url"]),
                effect: Effect::Read,
            },
            Verb::Post => Spec {
                path: "v/ops/http/post",
                description: "Post to a URL of a host that this venue allows: `body` is sent as it is when it is text, \
                              else as JSON. Returns as http/get does. It is never sent twice.",
                input: schema(
                    &json!({"url": url(), "headers": headers(), "body": body(), "contentType": {"type": "string"}, "timeout": timeout()}),
                    &["url"],
                ),
                effect: Effect::Once,
            },
        }
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError> {
        Ok(vec![Need { ability: self.verb.ability(), resource: resource(&url_of(arguments)?) }])
    }

    fn destination(&self, arguments: &Value) -> Result<Option<Destination>, OpError> {
        Ok(Some(destination(&url_of(arguments)?)))
    }

    async fn invoke(&self, call: &Invocation<'_>, mut arguments: Value) -> Result<Output, OpError> {
        let url = url_of(&arguments)?;
        let headers = send::headers(&arguments["headers"])?;
        let body = match (self.verb, arguments.get_mut("body").map(Value::take)) {
            (Verb::Get, _) | (Verb::Post, None) => None,
            (Verb::Post, Some(Value::String(text))) => Some((text.into_bytes(), "text/plain; charset=utf-8")),
            (Verb::Post, Some(value)) => Some((value.to_string().into_bytes(), "application/json")),
        };
        let kind = arguments["contentType"].as_str().map(send::header_value).transpose()?;
        let ask = Ask {
            method: match self.verb {
                Verb::Get => Method::GET,
                Verb::Post => Method::POST,
            },
            url,
            headers,
            body: body.map(|(bytes, default)| {
                (bytes.into(), kind.unwrap_or_else(|| reqwest::header::HeaderValue::from_static(default)))
            }),
            timeout: arguments["timeout"].as_u64().map(Duration::from_millis),
            shown: None,
        };
        // Whoever may call one place may not by that call the place it points to.
        let permitted = |url: &Url| {
            let permitted = call.caller.authority.permits(self.verb.ability(), resource(url));
            permitted.map_err(|denied| OpError::Denied(denied.text(call.named)))
        };
        self.sender.send(ask, &permitted).await.map(Into::into)
    }
}
