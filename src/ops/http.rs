//! `v/ops/http/*`: calls to hosts that the venue's configuration names.

use crate::domain::decode;
use crate::domain::secret::{Destination, reference};
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, operation};
use crate::venue::outbound::endpoint::IDEMPOTENCY_KEY;
use crate::venue::outbound::send::{self, OutgoingRequest};
use crate::venue::outbound::{check_url, url_destination, url_resource};
use reqwest::header::HeaderValue;
use reqwest::{Method, Url};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::time::Duration;

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![operation::<HttpGet>(), operation::<HttpPost>()]
}

/// A URL that may be called as far as its form goes.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct TargetUrl(Url);

impl TryFrom<String> for TargetUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let url = Url::parse(&text).map_err(|error| format!("expected a URL, {error}"))?;
        check_url(&url).map_err(|error| error.to_string())?;
        Ok(Self(url))
    }
}

/// Returns the schema of headers by name.
fn headers(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut header = reference::text_schema();
    header["description"] = "text, or a secret: s/NAME, or {\"$secret\": \"s/NAME\", \"prefix\": \"Bearer \"}".into();
    schemars::json_schema!({"type": "object", "additionalProperties": header, "maxProperties": 50})
}

/// Makes a call if the caller has this ability on the URL, within the time of the operation.
async fn send_request(call: &Invocation<'_>, ability: &'static str, ask: OutgoingRequest) -> Result<OpOutput, OpError> {
    let time = ask.timeout.map_or_else(|| call.time_limit(), |asked| asked.min(call.time_limit()));
    let ask = OutgoingRequest { timeout: Some(time), ..ask };
    // A capability for one URL doesn't cover the target of its redirect.
    let permitted = |url: &Url| call.permit(ability, url_resource(url));
    call.venue.catalog.hosts.send(ask, &permitted).await.map(Into::into)
}

/// Get a URL of a host that this venue allows. Returns status, headers, and the body: JSON parsed, text as `body`, bytes as
/// `bodyBase64`. Any status is a result.
#[derive(Deserialize, JsonSchema)]
struct HttpGet {
    #[schemars(with = "String", length(max = 8192))]
    url: TargetUrl,
    #[serde(default)]
    #[schemars(schema_with = "headers")]
    headers: Map<String, Value>,
    /// ms
    #[schemars(range(min = 1))]
    timeout: Option<u64>,
}

impl Operation for HttpGet {
    const PATH: &'static str = "v/ops/http/get";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("http/get", url_resource(&self.url.0))
    }

    fn destination(&self) -> Option<Destination> {
        Some(url_destination(&self.url.0))
    }

    fn secrets(&mut self) -> Vec<&mut Value> {
        self.headers.values_mut().collect()
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let headers = send::parse_headers(&self.headers)?;
        let timeout = self.timeout.map(Duration::from_millis);
        let ask = OutgoingRequest {
            method: Method::GET,
            url: self.url.0,
            headers,
            body: None,
            timeout,
            repeatable: true,
            shown: None,
        };
        send_request(call, "http/get", ask).await
    }
}

/// Post to a URL of a host that this venue allows: `body` is sent as it is when it is text, else as JSON. Returns as
/// http/get does. It is never sent twice; when no whole answer comes, its outcome is unknown. Has an `Idempotency-Key`, of
/// yours or of the venue.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct HttpPost {
    #[schemars(with = "String", length(max = 8192))]
    url: TargetUrl,
    #[serde(default)]
    #[schemars(schema_with = "headers")]
    headers: Map<String, Value>,
    /// JSON may hold secrets, as headers do
    #[serde(default, deserialize_with = "decode::nullable_field")]
    #[schemars(extend("x-secret" = true))]
    body: Option<Value>,
    content_type: Option<String>,
    /// ms
    #[schemars(range(min = 1))]
    timeout: Option<u64>,
}

impl Operation for HttpPost {
    const PATH: &'static str = "v/ops/http/post";
    const EFFECT: Effect = Effect::Once;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("http/post", url_resource(&self.url.0))
    }

    fn destination(&self) -> Option<Destination> {
        Some(url_destination(&self.url.0))
    }

    fn secrets(&mut self) -> Vec<&mut Value> {
        self.headers.values_mut().chain(&mut self.body).collect()
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let mut headers = send::parse_headers(&self.headers)?;
        if !headers.contains_key(&IDEMPOTENCY_KEY)
            && let Some(key) = call.idempotency_key()
        {
            headers.insert(IDEMPOTENCY_KEY, send::header_value(&key)?);
        }
        let kind = self.content_type.as_deref().map(send::header_value).transpose()?;
        let body = self.body.map(|body| {
            let (bytes, default) = match body {
                Value::String(text) => (text.into_bytes(), "text/plain; charset=utf-8"),
                value => (value.to_string().into_bytes(), "application/json"),
            };
            (bytes.into(), kind.unwrap_or_else(|| HeaderValue::from_static(default)))
        });
        let timeout = self.timeout.map(Duration::from_millis);
        let ask = OutgoingRequest {
            method: Method::POST,
            url: self.url.0,
            headers,
            body,
            timeout,
            repeatable: false,
            shown: None,
        };
        send_request(call, "http/post", ask).await
    }
}
