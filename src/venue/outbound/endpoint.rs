//! A server that the venue's configuration names, and that is asked in JSON: by the same rules as the
//! calls of agents, to this one place, without redirects.

use super::proxy::ProxyRoute;
use super::send::{Ask, Sender};
use super::{HttpPolicy, destination};
use crate::config::url::callable;
use crate::domain::decode;
use crate::domain::hosts::HostRule;
use crate::domain::ids::secret::SecretName;
use crate::domain::secret::{Mask, Plain};
use crate::venue::failure::OpError;
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde_json::Value;
use std::time::Duration;

/// Under which a server knows a request again.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// How a server is called.
#[derive(Debug, Clone)]
pub struct EndpointPlace {
    /// Where.
    pub url: String,
    /// Also when it has no public address.
    pub allow_private: bool,
    /// One call, with its answer.
    pub timeout: Duration,
    /// Bytes of an answer.
    pub max_bytes: usize,
    /// What carries the calls.
    pub proxy: ProxyRoute,
    /// What it is given to know the venue by.
    pub credential: Option<Credential>,
    /// The section of the configuration that names it.
    pub setting: String,
}

/// A header that no answer shows.
#[derive(Debug, Clone)]
pub struct Credential {
    /// Its name.
    pub header: String,
    /// Stands before the value: `Bearer `.
    pub prefix: String,
    /// The value.
    pub value: Plain,
    /// What stands in answers in its place.
    pub shown: SecretName,
}

/// The server.
pub struct Endpoint {
    sender: Sender,
    url: Url,
    host: String,
    headers: HeaderMap,
    mask: Mask,
}

/// What it answered, with no credential in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    /// Of HTTP.
    pub status: u16,
    /// JSON as a value, anything else as a text, bytes as nothing.
    pub body: Value,
}

impl Endpoint {
    /// The errors are for who configures it, and show no credential.
    pub fn new(place: EndpointPlace) -> Result<Self, String> {
        let url = callable(&place.url)?;
        let to = destination(&url);
        let rule = HostRule::parse(&format!("{}:{}", to.host, to.port))?;
        let mut headers = HeaderMap::new();
        let mut mask = Mask::default();
        if let Some(Credential { header, prefix, value, shown }) = &place.credential {
            let name = HeaderName::from_bytes(header.as_bytes()).map_err(|_| format!("`{header}` is no header"))?;
            let text = HeaderValue::from_str(&format!("{prefix}{}", value.reveal()));
            let mut text = text.map_err(|_| "the key has characters that no header may have".to_owned())?;
            text.set_sensitive(true);
            headers.insert(name, text);
            mask.add(shown, value);
        }
        let policy = HttpPolicy {
            hosts: vec![rule],
            allow_private: place.allow_private,
            timeout: place.timeout,
            max_bytes: place.max_bytes,
            redirects: 0,
            proxy: place.proxy,
            setting: place.setting,
            ..HttpPolicy::default()
        };
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let host = format!("{}{port}", to.host);
        Ok(Self { sender: Sender::new(policy), url, host, headers, mask })
    }

    /// Its host, with the port where that isn't the usual one.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Asks it; `key` names a request that may be sent again.
    pub async fn ask(&self, message: &Value, key: Option<&str>) -> Result<Answered, OpError> {
        let mut headers = self.headers.clone();
        if let Some(key) = key {
            let key = HeaderValue::from_str(key);
            headers.insert(IDEMPOTENCY_KEY, key.map_err(|error| OpError::Failed(error.to_string()))?);
        }
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let body = (message.to_string().into_bytes().into(), HeaderValue::from_static("application/json"));
        let ask = Ask {
            method: Method::POST,
            url: self.url.clone(),
            headers,
            body: Some(body),
            timeout: None,
            shown: Some(self.host.clone()),
        };
        let mut answer = self.sender.send(ask, &|_| Ok(())).await?;
        let body = match answer["body"].take() {
            // Whatever type it says that it has.
            Value::String(text) => decode::data(text.as_bytes()).unwrap_or(Value::String(text)),
            body => body,
        };
        let status = answer["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or_default();
        Ok(Answered { status, body: if self.mask.is_empty() { body } else { self.mask.value(body) } })
    }
}
