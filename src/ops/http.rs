//! `v/ops/http/*`: calls to hosts that the venue's configuration names.

use crate::domain::decode;
use crate::domain::ids::secret::SecretName;
use crate::domain::lattice::value::type_name;
use crate::domain::secret::{Destination, SecretReference, reference};
use crate::domain::visible::quote_foreign;
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, operation};
use crate::venue::outbound::send::{self, OutgoingRequest};
use crate::venue::outbound::{check_url, url_destination, url_resource};
use reqwest::header::{AUTHORIZATION, HeaderValue};
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

/// Why a URL can't be called.
#[derive(Debug, thiserror::Error)]
enum TargetUrlError {
    /// The text is no URL.
    #[error("expected a URL, {reason}")]
    Syntax {
        /// Text of the parser.
        reason: String,
    },
    /// The URL breaks a rule.
    #[error(transparent)]
    Rule(#[from] OpError),
}

impl TryFrom<String> for TargetUrl {
    type Error = TargetUrlError;

    fn try_from(text: String) -> Result<Self, TargetUrlError> {
        let url = Url::parse(&text).map_err(|error| TargetUrlError::Syntax { reason: error.to_string() })?;
        check_url(&url)?;
        Ok(Self(url))
    }
}

/// Returns the schema of headers by name.
fn headers(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut header = reference::text_schema();
    header["description"] = "text, or a secret: s/NAME, or {\"$secret\": \"s/NAME\", \"prefix\": \"Bearer \"}".into();
    schemars::json_schema!({"type": "object", "additionalProperties": header, "maxProperties": 50})
}

/// Returns the schema of query parameters by name.
fn query_params(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}, "maxProperties": 100,
        "description": "added to the query of the URL"
    })
}

/// Keys of a call as Covia writes them, beside the URL and the headers.
struct CoviaKeys<'a> {
    query_params: &'a Map<String, Value>,
    method: Option<&'a str>,
    bearer_secret: Option<&'a str>,
}

impl CoviaKeys<'_> {
    /// Checks that a call of an operation that sends `method` can have the keys.
    fn check(&self, method: &str, headers: &Map<String, Value>) -> Result<(), OpError> {
        if let Some(other) = self.method.filter(|given| !given.trim().eq_ignore_ascii_case(method)) {
            let hint = match other.trim().to_ascii_uppercase().as_str() {
                "GET" => "use `v/ops/http/get`",
                "POST" => "use `v/ops/http/post`",
                _ => "no operation of this venue sends it",
            };
            let (name, other) = (method.to_ascii_lowercase(), quote_foreign(other));
            return Err(OpError::Invalid(format!("`method`: `http/{name}` sends {method}, got `{other}`; {hint}")));
        }
        for (name, value) in self.query_params {
            query_text(name, value)?;
        }
        let Some(named) = self.bearer_secret else { return Ok(()) };
        bearer_name(named)?;
        match headers.keys().find(|name| name.eq_ignore_ascii_case(AUTHORIZATION.as_str())) {
            None => Ok(()),
            Some(name) => Err(OpError::Invalid(format!(
                "`bearerSecret`: the header `{}` is given too; leave one of them out",
                quote_foreign(name)
            ))),
        }
    }

    /// Adds the parameters to the query of a URL.
    fn extend_query(&self, url: &mut Url) -> Result<(), OpError> {
        for (name, value) in self.query_params {
            url.query_pairs_mut().append_pair(name, &query_text(name, value)?);
        }
        Ok(())
    }
}

fn query_text(name: &str, value: &Value) -> Result<String, OpError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(OpError::Invalid(format!(
            "`queryParams.{}`: expected a text, a number or a boolean, got {}",
            quote_foreign(name),
            type_name(value)
        ))),
    }
}

/// Returns the secret of a bearer token: `NAME`, `s/NAME` or `/s/NAME`.
fn bearer_name(named: &str) -> Result<SecretName, OpError> {
    let path = named.strip_prefix('/').unwrap_or(named);
    SecretName::new(path.strip_prefix("s/").unwrap_or(path))
        .map_err(|error| OpError::Invalid(format!("`bearerSecret`: expected a secret, `s/NAME`: {error}")))
}

/// Adds the header of a bearer token, as a reference that is resolved before the call.
fn add_bearer(headers: &mut Map<String, Value>, named: Option<&str>) {
    if let Some(name) = named.and_then(|named| bearer_name(named).ok()) {
        let token = SecretReference { name, prefix: "Bearer ".to_owned() };
        headers.insert(AUTHORIZATION.to_string(), token.to_value());
    }
}

/// Makes a call if the caller has this ability on the URL, within the time of the operation.
async fn send_request(call: &Invocation<'_>, ability: &'static str, ask: OutgoingRequest) -> Result<OpOutput, OpError> {
    let time = ask.timeout.map_or_else(|| call.time_limit(), |asked| asked.min(call.time_limit()));
    let ask = OutgoingRequest { timeout: Some(time), ..ask };
    // A capability for one URL doesn't cover the target of its redirect.
    let permitted = |url: &Url| call.permit(ability, url_resource(url));
    Ok(OpOutput::of(&call.venue.catalog.hosts.send(ask, &permitted).await?))
}

/// Get a URL of a host that this venue allows. Returns status, headers, and the body: JSON parsed, text as `body`, bytes as
/// `bodyBase64`. Any status is a result.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct HttpGet {
    #[schemars(with = "String", length(max = 8192))]
    url: TargetUrl,
    #[serde(default)]
    #[schemars(schema_with = "headers")]
    headers: Map<String, Value>,
    #[serde(default)]
    #[schemars(schema_with = "query_params")]
    query_params: Map<String, Value>,
    /// GET, as the operation says
    method: Option<String>,
    /// s/NAME: sent as the header `Authorization: Bearer`
    bearer_secret: Option<String>,
    /// milliseconds that the call may take
    #[schemars(range(min = 1))]
    timeout: Option<u64>,
}

impl HttpGet {
    fn covia_keys(&self) -> CoviaKeys<'_> {
        let (method, bearer_secret) = (self.method.as_deref(), self.bearer_secret.as_deref());
        CoviaKeys { query_params: &self.query_params, method, bearer_secret }
    }
}

impl Operation for HttpGet {
    const PATH: &'static str = "v/ops/http/get";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        self.covia_keys().check("GET", &self.headers)?;
        Need::only("http/get", url_resource(&self.url.0))
    }

    fn destination(&self) -> Option<Destination> {
        Some(url_destination(&self.url.0))
    }

    fn secrets(&mut self) -> Vec<&mut Value> {
        add_bearer(&mut self.headers, self.bearer_secret.take().as_deref());
        self.headers.values_mut().collect()
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let headers = send::parse_headers(&self.headers)?;
        let mut url = self.url.0.clone();
        self.covia_keys().extend_query(&mut url)?;
        let timeout = self.timeout.map(Duration::from_millis);
        let ask =
            OutgoingRequest { method: Method::GET, url, headers, body: None, timeout, repeatable: true, shown: None };
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
    #[serde(default)]
    #[schemars(schema_with = "query_params")]
    query_params: Map<String, Value>,
    /// POST, as the operation says
    method: Option<String>,
    /// s/NAME: sent as the header `Authorization: Bearer`
    bearer_secret: Option<String>,
    /// JSON may hold secrets, as headers do
    #[serde(default, deserialize_with = "decode::nullable_field")]
    #[schemars(extend("x-secret" = true))]
    body: Option<Value>,
    content_type: Option<String>,
    /// milliseconds that the call may take
    #[schemars(range(min = 1))]
    timeout: Option<u64>,
}

impl HttpPost {
    fn covia_keys(&self) -> CoviaKeys<'_> {
        let (method, bearer_secret) = (self.method.as_deref(), self.bearer_secret.as_deref());
        CoviaKeys { query_params: &self.query_params, method, bearer_secret }
    }
}

impl Operation for HttpPost {
    const PATH: &'static str = "v/ops/http/post";
    const EFFECT: Effect = Effect::Once;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        self.covia_keys().check("POST", &self.headers)?;
        Need::only("http/post", url_resource(&self.url.0))
    }

    fn destination(&self) -> Option<Destination> {
        Some(url_destination(&self.url.0))
    }

    fn secrets(&mut self) -> Vec<&mut Value> {
        add_bearer(&mut self.headers, self.bearer_secret.take().as_deref());
        self.headers.values_mut().chain(&mut self.body).collect()
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let mut headers = send::parse_headers(&self.headers)?;
        let mut url = self.url.0.clone();
        self.covia_keys().extend_query(&mut url)?;
        call.mark_request(&mut headers)?;
        let kind = self.content_type.as_deref().map(send::header_value).transpose()?;
        let body = self.body.map(|body| {
            let (bytes, default) = match body {
                Value::String(text) => (text.into_bytes(), "text/plain; charset=utf-8"),
                value => (value.to_string().into_bytes(), "application/json"),
            };
            (bytes.into(), kind.unwrap_or_else(|| HeaderValue::from_static(default)))
        });
        let timeout = self.timeout.map(Duration::from_millis);
        let ask = OutgoingRequest { method: Method::POST, url, headers, body, timeout, repeatable: false, shown: None };
        send_request(call, "http/post", ask).await
    }
}
