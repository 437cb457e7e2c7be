//! One HTTP call under a policy: every hop is checked, credentials stay at their origin, and size and time are bounded.

use super::address::NotPublic;
use super::departure::{Departure, WatchedBody};
use super::{HttpPolicy, check_url, error_causes};
use crate::domain::decode;
use crate::domain::headers::is_of_connection;
use crate::venue::failure::OpError;
use crate::view::http::HostAnswerView;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::{Bytes, BytesMut};
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, ClientBuilder, Method, Response, StatusCode, Url, redirect};
use serde_json::{Map, Value};
use std::error::Error;
use std::sync::OnceLock;
use std::time::Duration;

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// Headers that another origin may see after a redirect: none of them can be a credential.
const HARMLESS: [HeaderName; 4] = [header::ACCEPT, header::ACCEPT_LANGUAGE, header::USER_AGENT, header::CACHE_CONTROL];

/// A request to send.
pub(crate) struct OutgoingRequest {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    /// Bytes and their content type.
    pub(crate) body: Option<(Bytes, HeaderValue)>,
    /// Time limit, if shorter than the policy's.
    pub(crate) timeout: Option<Duration>,
    /// Whether the request may be repeated: then no failure is an unknown outcome.
    pub(crate) repeatable: bool,
    /// Name of the place in errors; `None` is the URL without the query.
    pub(crate) shown: Option<String>,
}

impl OutgoingRequest {
    fn place(&self) -> String {
        self.shown.clone().unwrap_or_else(|| super::url_resource(&self.url).to_string())
    }
}

/// Function that checks that the caller's authority covers a URL.
type UrlCheck<'a> = &'a (dyn Fn(&Url) -> Result<(), OpError> + Sync);

/// An HTTP client with its policy. Clones share its connections, if it has been used before.
#[derive(Default, Clone)]
pub(crate) struct HttpSender {
    policy: HttpPolicy,
    /// Client for direct calls, built by the first one: most venues allow no host.
    client: OnceLock<Client>,
    /// Client for calls that the proxy carries; it looks up only the proxy's name, which may be private.
    proxied: OnceLock<Client>,
}

/// Converts headers; names and values that would break out of their line are refused.
pub(crate) fn parse_headers(given: &Map<String, Value>) -> Result<HeaderMap, OpError> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let legal = HeaderName::from_bytes(name.as_bytes());
        let legal = legal.map_err(|_| OpError::Invalid(format!("`{}` is not a header name", name.escape_debug())))?;
        if is_of_connection(legal.as_str()) {
            return Err(OpError::Invalid(format!("header `{legal}` is set by the venue")));
        }
        headers.insert(legal, header_value(value.as_str().unwrap_or_default())?);
    }
    Ok(headers)
}

/// Converts a header's value, which must be one line. The error doesn't show it: it may be a credential.
pub(crate) fn header_value(text: &str) -> Result<HeaderValue, OpError> {
    HeaderValue::from_str(text)
        .map_err(|_| OpError::Invalid("a header's value has characters that are not allowed in it".to_owned()))
}

impl HttpSender {
    pub(crate) const fn new(policy: HttpPolicy) -> Self {
        Self { policy, client: OnceLock::new(), proxied: OnceLock::new() }
    }

    fn client(&self, url: &Url) -> Result<&Client, OpError> {
        let is_carried = self.policy.proxy.carries(url);
        let built = if is_carried { &self.proxied } else { &self.client };
        if let Some(client) = built.get() {
            return Ok(client);
        }
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .connect_timeout(CONNECT)
            .user_agent(concat!("trellis/", env!("CARGO_PKG_VERSION")));
        let client = if is_carried {
            self.policy.proxy.configure(client).and_then(ClientBuilder::build)
        } else {
            client.no_proxy().dns_resolver(self.policy.resolver()).build()
        };
        let client = client.map_err(|error| OpError::Failed(format!("no HTTP client: {}", error_chain(&error))))?;
        Ok(built.get_or_init(|| client))
    }

    /// Whether some host may be called.
    pub(crate) fn may_call(&self) -> bool {
        !self.policy.hosts.is_empty()
    }

    /// Checks that a URL may be called, as far as that is known before its name is looked up.
    pub(crate) fn check(&self, url: &Url) -> Result<(), OpError> {
        check_url(url)?;
        self.policy.check(url)
    }

    /// Makes the call. If it must not be repeated, any failure after the request left is [`OpError::OutcomeUnknown`];
    /// an earlier failure (policy, name, connection, TLS, proxy) keeps its own error.
    pub(crate) async fn send(&self, ask: OutgoingRequest, permitted: UrlCheck<'_>) -> Result<HostAnswerView, OpError> {
        let limit = ask.timeout.unwrap_or(self.policy.timeout).min(self.policy.timeout);
        let (place, repeatable) = (ask.place(), ask.repeatable);
        let departure = Departure::default();
        let ended = tokio::time::timeout(limit, self.follow_redirects(ask, permitted, &departure)).await;
        let ended = ended.unwrap_or_else(|_| {
            Err(OpError::Timeout(format!("`{place}` gave no whole answer within {} ms", limit.as_millis())))
        });
        match ended {
            Err(error) if !repeatable && departure.has_left() => {
                Err(OpError::OutcomeUnknown(format!("the request to `{place}` was sent, then: {error}")))
            }
            ended => ended,
        }
    }

    /// Sends a request, and returns the answer before its body is read. No redirect is followed; the caller bounds the
    /// time and the body.
    pub(crate) async fn open(&self, ask: &OutgoingRequest, departure: &Departure) -> Result<Response, OpError> {
        self.policy.check(&ask.url)?;
        if self.policy.proxy.carries(&ask.url) {
            self.policy.check_name(&ask.url).await?;
        }
        let response = self.send_hop(ask, departure).await?;
        match redirect_target(&ask.url, &response)? {
            None => Ok(response),
            Some(_) => Err(OpError::Upstream(format!("`{}` redirects, which is not followed", ask.place()))),
        }
    }

    /// Prepares a POST of JSON that can be sent later, without this value.
    pub(crate) fn prepare(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: &Value,
    ) -> Result<reqwest::RequestBuilder, OpError> {
        self.policy.check(url)?;
        let client = self.client(url)?;
        let request = client.post(url.clone()).headers(headers).header(header::CONTENT_TYPE, "application/json");
        Ok(request.body(body.to_string()))
    }

    async fn follow_redirects(
        &self,
        mut ask: OutgoingRequest,
        permitted: UrlCheck<'_>,
        departure: &Departure,
    ) -> Result<HostAnswerView, OpError> {
        for _ in 0..=self.policy.redirects {
            self.policy.check(&ask.url)?;
            if self.policy.proxy.carries(&ask.url) {
                self.policy.check_name(&ask.url).await?;
            }
            let response = self.send_hop(&ask, departure).await?;
            let Some(target) = redirect_target(&ask.url, &response)? else {
                return self.read_answer(ask.url, response).await;
            };
            if self.policy.redirects == 0 {
                break;
            }
            check_url(&target)?;
            permitted(&target)?;
            apply_redirect(&mut ask, target, response.status())?;
        }
        Err(OpError::Upstream(match self.policy.redirects {
            0 => format!("`{}` redirects, which is not followed", ask.place()),
            most => format!("more than {most} redirects"),
        }))
    }

    async fn send_hop(&self, ask: &OutgoingRequest, departure: &Departure) -> Result<Response, OpError> {
        let client = self.client(&ask.url)?;
        let mut request = client.request(ask.method.clone(), ask.url.clone()).headers(ask.headers.clone());
        if let Some((_, kind)) = &ask.body {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        if ask.body.is_some() || !ask.repeatable {
            let bytes = ask.body.as_ref().map(|(bytes, _)| bytes.clone()).unwrap_or_default();
            let departure = departure.clone();
            request = request.body(reqwest::Body::wrap(WatchedBody::new(bytes, move || departure.mark_left())));
        }
        let proxy = &self.policy.proxy;
        let response =
            request.send().await.map_err(|error| match (find_refusal(&error), proxy.failure(&ask.url, &error)) {
                (Some(refused), _) => OpError::Denied(refused.to_string()),
                (None, Some(failure)) => OpError::Upstream(format!("`{}`: {failure}", ask.place())),
                (None, None) => OpError::Upstream(format!("`{}`: {}", ask.place(), error_chain(&error.without_url()))),
            })?;
        // The request may have got no farther than the proxy. But proxies pass on a 407 of the server behind them,
        // which then has the request: nothing tells the two apart.
        match proxy.refusal(&ask.url, response.status()) {
            Some(failure) => Err(OpError::Upstream(format!(
                "`{}`: {failure}, or the server behind it says so (status 407)",
                ask.place()
            ))),
            None => Ok(response),
        }
    }

    async fn read_answer(&self, url: Url, response: Response) -> Result<HostAnswerView, OpError> {
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read_body(response, self.policy.max_bytes).await;
        let body = body.map_err(|error| OpError::Upstream(format!("the {error}")))?;
        Ok(host_answer(&url, status, &headers, &body))
    }
}

/// Why a body can't be read; the texts follow `the` or `its`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerBodyError {
    /// It has more bytes than its reader takes.
    #[error("answer has more than {limit} bytes")]
    TooLarge {
        /// Most bytes that are taken.
        limit: usize,
    },
    /// The connection broke.
    #[error("answer broke off after {read} bytes: {reason}")]
    Broken {
        /// Number of bytes that had come.
        read: usize,
        /// Error of the connection, without the URL.
        reason: String,
    },
}

/// Reads a body of at most so many bytes.
pub(crate) async fn read_body(mut response: Response, limit: usize) -> Result<BytesMut, AnswerBodyError> {
    if response.content_length().is_some_and(|length| length > limit as u64) {
        return Err(AnswerBodyError::TooLarge { limit });
    }
    let mut body = BytesMut::new();
    loop {
        match response.chunk().await {
            Ok(None) => return Ok(body),
            Ok(Some(chunk)) if body.len() + chunk.len() <= limit => body.extend_from_slice(&chunk),
            Ok(Some(_)) => return Err(AnswerBodyError::TooLarge { limit }),
            Err(error) => {
                return Err(AnswerBodyError::Broken { read: body.len(), reason: error_chain(&error.without_url()) });
            }
        }
    }
}

/// Returns the answer for a caller. Cookies are the server's credentials for a browser and are left out.
fn host_answer(url: &Url, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> HostAnswerView {
    let mut named: Map<String, Value> = Map::new();
    for (name, value) in headers.iter().filter(|(name, _)| **name != header::SET_COOKIE) {
        let text = String::from_utf8_lossy(value.as_bytes());
        let joined = match named.get(name.as_str()).and_then(Value::as_str) {
            Some(before) => format!("{before}, {text}"),
            None => text.into_owned(),
        };
        named.insert(name.to_string(), joined.into());
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let (text, base64) = match std::str::from_utf8(body) {
        Ok(text) if kind == "application/json" || kind.ends_with("+json") => {
            (Some(decode::lenient_json(body).unwrap_or_else(|_| text.into())), None)
        }
        Ok(text) => (Some(text.into()), None),
        Err(_) => (None, Some(BASE64_STANDARD.encode(body))),
    };
    HostAnswerView {
        status: status.as_u16(),
        url: url.as_str().to_owned(),
        headers: named,
        size: body.len(),
        body: text,
        body_base64: base64,
    }
}

/// Returns the target of a redirect.
fn redirect_target(from: &Url, response: &Response) -> Result<Option<Url>, OpError> {
    let followed = [301, 302, 303, 307, 308].contains(&response.status().as_u16());
    let Some(location) = response.headers().get(header::LOCATION).filter(|_| followed) else { return Ok(None) };
    let target = location.to_str().ok().and_then(|text| from.join(text).ok());
    target.map(Some).ok_or_else(|| OpError::Upstream("the server redirects to what is not a URL".to_owned()))
}

/// Changes a request to follow a redirect. Another origin gets no header that could be a credential, and no body; https
/// is never followed to http.
fn apply_redirect(ask: &mut OutgoingRequest, target: Url, status: StatusCode) -> Result<(), OpError> {
    if ask.url.scheme() == "https" && target.scheme() == "http" {
        return Err(OpError::Denied(format!("`{}` redirects from https to http", super::url_resource(&ask.url))));
    }
    let becomes_get = match status {
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => ask.method == Method::POST,
        StatusCode::SEE_OTHER => true,
        _ => false,
    };
    if becomes_get {
        ask.method = Method::GET;
        ask.body = None;
    }
    if ask.url.origin() != target.origin() {
        if ask.method != Method::GET {
            return Err(OpError::Denied(format!(
                "`{}` redirects the request with its body to another origin, `{}`; call that yourself if it is right",
                super::url_resource(&ask.url),
                super::url_resource(&target)
            )));
        }
        let harmless = HARMLESS.iter().filter_map(|name| Some((name.clone(), ask.headers.get(name)?.clone())));
        ask.headers = harmless.collect();
    }
    ask.url = target;
    Ok(())
}

/// Finds the refusal of an address among the causes of an error.
fn find_refusal<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e NotPublic> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(refused) = error.downcast_ref::<NotPublic>() {
            return Some(refused);
        }
        cause = error.source();
    }
    None
}

/// Returns an error and its causes on one line.
fn error_chain(error: &dyn Error) -> String {
    error_causes(error).join(": ")
}
