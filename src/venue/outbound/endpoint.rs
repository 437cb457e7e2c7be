//! A server that the venue's configuration names and that is called in JSON: by the same rules as calls of agents, but
//! only this place, and without redirects.

use super::proxy::ProxyRoute;
use super::send::{HttpSender, OutgoingRequest, header_value};
use super::{HttpPolicy, url_destination};
use crate::config::url::{CallableUrlError, parse_callable};
use crate::domain::call::SentMarks;
use crate::domain::decode;
use crate::domain::hosts::{HostRule, HostRuleError};
use crate::domain::ids::JobId;
use crate::domain::ids::secret::SecretName;
use crate::domain::secret::{Mask, PlainSecret};
use crate::venue::failure::OpError;
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde_json::Value;
use std::time::Duration;

/// Header with the key by which a server recognises a repeated request.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Header with the trace of a call, as the Trace Context of the W3C has it.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Header with the id of the job that a call is made for.
const JOB: HeaderName = HeaderName::from_static("trellis-job");

/// Adds the marks of a call to the headers of its request.
pub(crate) fn add_marks(headers: &mut HeaderMap, marks: &SentMarks) -> Result<(), OpError> {
    for (name, value) in [
        (IDEMPOTENCY_KEY, marks.key.as_deref()),
        (TRACEPARENT, Some(marks.traceparent.as_str())),
        (JOB, marks.job.as_ref().map(JobId::as_str)),
    ] {
        if let Some(value) = value {
            headers.insert(name, header_value(value)?);
        }
    }
    Ok(())
}

/// How a server is called.
#[derive(Debug, Clone)]
pub struct EndpointSettings {
    /// URL of the server.
    pub url: String,
    /// Whether the server may have a private address.
    pub allow_private: bool,
    /// Longest time of one call with its answer.
    pub timeout: Duration,
    /// Most bytes of an answer.
    pub max_bytes: usize,
    /// Proxy that carries the calls.
    pub proxy: ProxyRoute,
    /// Header that authenticates the venue.
    pub credential: Option<Credential>,
    /// Section of the configuration that names the server.
    pub setting: String,
}

/// A secret header, which is masked in answers.
#[derive(Debug, Clone)]
pub struct Credential {
    /// Name of the header.
    pub header: String,
    /// Text before the value, such as `Bearer `.
    pub prefix: String,
    /// Value of the header.
    pub value: PlainSecret,
    /// Name that replaces the value in answers.
    pub shown: SecretName,
}

/// Why a credential can't be sent. The texts don't show it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// The header has an illegal name; holds it.
    #[error("`{0}` is no header")]
    HeaderName(String),
    /// The key has characters that a header can't have.
    #[error("the key has characters that no header may have")]
    KeyCharacters,
}

impl Credential {
    /// Adds the header to those of all requests, and the value to what is masked in answers.
    ///
    /// # Errors
    /// No header can have the name or the value.
    pub fn add_to(&self, headers: &mut HeaderMap, mask: &mut Mask) -> Result<(), CredentialError> {
        let Self { header, prefix, value, shown } = self;
        let name = HeaderName::from_bytes(header.as_bytes());
        let name = name.map_err(|_| CredentialError::HeaderName(header.clone()))?;
        let text = HeaderValue::from_str(&format!("{prefix}{}", value.reveal()));
        let mut text = text.map_err(|_| CredentialError::KeyCharacters)?;
        text.set_sensitive(true);
        headers.insert(name, text);
        mask.add(shown, value);
        Ok(())
    }
}

/// Client of one server.
pub struct Endpoint {
    sender: HttpSender,
    url: Url,
    host: String,
    headers: HeaderMap,
    mask: Mask,
}

/// Answer of a server, with credentials masked.
#[derive(Debug, Clone, PartialEq)]
pub struct EndpointAnswer {
    /// HTTP status of the answer.
    pub status: u16,
    /// Body: JSON as a value, any other text as a string, other bytes as null.
    pub body: Value,
}

/// Why a server can't be called with its settings. The texts show no credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The URL can't be called.
    #[error(transparent)]
    Url(#[from] CallableUrlError),
    /// The URL has a host that no rule can name.
    #[error(transparent)]
    Host(#[from] HostRuleError),
    /// The credential can't be sent.
    #[error(transparent)]
    Credential(#[from] CredentialError),
}

impl Endpoint {
    /// Makes a client. Errors are for the person who configures it, and show no credential.
    pub fn new(place: EndpointSettings) -> Result<Self, EndpointError> {
        let url = parse_callable(&place.url)?;
        let to = url_destination(&url);
        let rule = HostRule::parse(&format!("{}:{}", to.host, to.port))?;
        let mut headers = HeaderMap::new();
        let mut mask = Mask::default();
        if let Some(credential) = &place.credential {
            credential.add_to(&mut headers, &mut mask)?;
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
        Ok(Self { sender: HttpSender::new(policy), url, host, headers, mask })
    }

    /// Returns the host, with the port if it isn't the default one.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Sends a request. `marks` are those of a request that changes something: the venue may send it again under their
    /// key, and an error after it left is an unknown outcome.
    pub async fn send(&self, message: &Value, marks: Option<&SentMarks>) -> Result<EndpointAnswer, OpError> {
        let mut headers = self.headers.clone();
        let repeatable = marks.is_none();
        if let Some(marks) = marks {
            add_marks(&mut headers, marks)?;
        }
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let body = (message.to_string().into_bytes().into(), HeaderValue::from_static("application/json"));
        let ask = OutgoingRequest {
            method: Method::POST,
            url: self.url.clone(),
            headers,
            body: Some(body),
            timeout: None,
            repeatable,
            shown: Some(self.host.clone()),
        };
        let answer = self.sender.send(ask, &|_| Ok(())).await?;
        let status = answer.status;
        let body = match answer.body.unwrap_or_default() {
            // The body is decoded whatever content type it declares.
            Value::String(text) => decode::lenient_json(text.as_bytes()).unwrap_or(Value::String(text)),
            body => body,
        };
        Ok(EndpointAnswer { status, body: if self.mask.is_empty() { body } else { self.mask.value(body) } })
    }
}
