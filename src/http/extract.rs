//! Extractors of handlers: caller, idempotency key, body, query.

use super::Api;
use super::load::MemoryCharge;
use super::problem::Problem;
use super::route::{BodyRule, RouteRules};
use crate::bus::AUTHORIZATION_HEADER;
use crate::domain::authority::Authority;
use crate::domain::decode::{self, DataError};
use crate::domain::ids::{EventId, Owner};
use crate::domain::job::{ErrorCode, JobStatus};
use crate::domain::nearest::did_you_mean;
use crate::domain::schema::integer_from_float;
use crate::domain::time::Millis;
use crate::domain::trace::{TRACEPARENT, TraceParent};
use crate::domain::visible::quote_foreign;
use crate::store::StoreError;
use crate::venue::auth::Auth;
use crate::venue::auth::caller::AuthenticatedCaller;
use crate::venue::is_reserved;
use crate::venue::operation::{Caller, CatalogView};
use crate::venue::policy::{self, RevocationCheckError};
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::{Number, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Name of the header with the owner, `tenant/user`.
pub(super) const OWNER_HEADER: &str = "X-Trellis-Owner";
/// The same name as a header that is set.
pub(super) const OWNER_FIELD: HeaderName = HeaderName::from_static("x-trellis-owner");
/// Name of the header with the caller's own id of a request.
pub(super) const KEY_HEADER: &str = "Idempotency-Key";
/// Name of the header with the task that task-ending calls refer to.
pub(super) const TASK_HEADER: &str = "X-Trellis-Task";
/// Owner of a request that names none.
const DEFAULT_OWNER: &str = "local/me";
/// Longest wait for a job in one request.
pub(super) const MAX_WAIT: Duration = Duration::from_mins(2);

/// The caller of a request, and the headers that go with it.
pub(super) struct RequestCaller {
    pub(super) caller: Caller,
    /// The operations that the request may name.
    pub(super) catalog: CatalogView,
    /// The caller may set values of claims that its token has.
    pub(super) may_override: bool,
    /// Idempotency key of a submission.
    pub(super) key: Option<EventId>,
    /// Subject of the token; absent without one.
    pub(super) token_owner: Option<Owner>,
    /// The task in scope, from the header.
    pub(super) task: Option<String>,
    /// Span that sent the request.
    pub(super) trace: Option<TraceParent>,
    /// Memory that the request is charged for.
    memory: Option<Arc<MemoryCharge>>,
}

impl RequestCaller {
    pub(super) const fn owner(&self) -> &Owner {
        &self.caller.owner
    }

    fn from_headers(headers: &HeaderMap, known: AuthenticatedCaller, catalog: CatalogView) -> Result<Self, Problem> {
        let key = match single_header(headers, KEY_HEADER)? {
            None => None,
            Some(text) => {
                // The draft of the header has the key quoted; common clients send it bare.
                let bare = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text);
                let key = EventId::new(bare);
                Some(key.map_err(|e| Problem::bad_request(format!("header `{KEY_HEADER}`: {e}")))?)
            }
        };
        let AuthenticatedCaller { caller, may_override, token_owner } = known;
        let task = single_header(headers, TASK_HEADER)?.map(str::to_owned);
        let traces = headers.get_all(TRACEPARENT).iter().filter_map(|value| value.to_str().ok());
        let trace = TraceParent::parse_only(traces);
        Ok(Self { caller, catalog, may_override, key, token_owner, task, trace, memory: None })
    }

    /// Returns the caller of a request about this owner, whom its path names.
    pub(super) async fn for_owner(parts: &Parts, api: &Api, owner: &Owner) -> Result<Self, Problem> {
        let headers = headers_for_owner(&parts.headers, owner)?;
        let known = policy::apply_revocations(&*api.venue.store, api.identify(&headers)?).await?;
        let memory = parts.extensions.get::<Arc<MemoryCharge>>().cloned();
        let catalog = api.venue.catalog_view(&known.caller.owner);
        Ok(Self { memory, ..Self::from_headers(&headers, known, catalog)? })
    }

    /// Frees the memory of a request whose body was handed on, while it waits.
    pub(super) fn release_memory(&self) {
        if let Some(load) = &self.memory {
            load.set_cost(0);
        }
    }

    /// Reduces the request's memory to that of its body: it reads nothing large.
    pub(super) fn release_read_memory(&self) {
        if let Some(load) = &self.memory {
            load.release_read_memory();
        }
    }
}

/// Returns the headers of a request about this owner, whom its path names: as if the header had named him.
pub(super) fn headers_for_owner(given: &HeaderMap, owner: &Owner) -> Result<HeaderMap, Problem> {
    let named = owner.to_string();
    if single_header(given, OWNER_HEADER)?.is_some_and(|given| given != named) {
        return Err(Problem::bad_request(format!("header `{OWNER_HEADER}`: the path names owner `{named}`")));
    }
    let mut headers = given.clone();
    headers.insert(OWNER_FIELD, HeaderValue::from_bytes(named.as_bytes()).map_err(Problem::bad_request)?);
    Ok(headers)
}

/// The caller of an open stream, verified again.
pub(super) enum StreamCaller {
    /// Callers have no tokens that could end.
    WithoutToken,
    /// The token counts, with what it permits now.
    Verified(Box<Caller>),
    /// The token has ended or was revoked.
    Refused,
}

impl Api {
    /// Verifies the sender of a request.
    pub(super) fn identify(&self, headers: &HeaderMap) -> Result<AuthenticatedCaller, Problem> {
        identify_caller(&self.options.auth, self.venue.now(), headers)
    }

    /// Verifies the caller of an open stream by the headers of its request.
    pub(super) async fn verify_again(&self, headers: &HeaderMap) -> Result<StreamCaller, StoreError> {
        let Ok(known) = self.identify(headers) else { return Ok(StreamCaller::Refused) };
        if known.token_owner.is_none() {
            return Ok(StreamCaller::WithoutToken);
        }
        match policy::apply_revocations(&*self.venue.store, known).await {
            Ok(known) => Ok(StreamCaller::Verified(Box::new(known.caller))),
            Err(RevocationCheckError::Token(_)) => Ok(StreamCaller::Refused),
            Err(RevocationCheckError::Store(error)) => Err(error),
        }
    }
}

fn identify_caller(auth: &Auth, now: Millis, headers: &HeaderMap) -> Result<AuthenticatedCaller, Problem> {
    let named: Option<Owner> = match single_header(headers, OWNER_HEADER)? {
        None => None,
        Some(text) => Some(text.parse().map_err(|e| Problem::bad_request(format!("header `{OWNER_HEADER}`: {e}")))?),
    };
    let token = single_header(headers, AUTHORIZATION_HEADER);
    let known = match auth.verify_header(token.as_ref().ok().copied().flatten(), now) {
        None => {
            let owner = named.unwrap_or_else(|| DEFAULT_OWNER.parse().expect("a legal owner"));
            let name = owner.to_string();
            let caller = Caller { operator: true, ..Caller::new(owner, name, Authority::without_limits()) };
            AuthenticatedCaller { caller, may_override: false, token_owner: None }
        }
        Some(verified) => {
            token?;
            verified?
                .caller(named)
                .map_err(|error| Problem::forbidden(format!("{error}; leave `{OWNER_HEADER}` (`--owner`) out")))?
        }
    };
    let owner = &known.caller.owner;
    if is_reserved(owner) {
        return Err(Problem::forbidden(format!("owner `{owner}` is the venue's own")));
    }
    Ok(known)
}

fn single_header<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::bad_request(format!("header `{name}` is given more than once")));
    }
    let text = std::str::from_utf8(value.as_bytes());
    text.map(Some).map_err(|_| Problem::bad_request(format!("header `{name}` is not UTF-8")))
}

impl FromRequestParts<Api> for RequestCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        // The guard has verified the caller, except at open routes and where no token is required.
        let known = match parts.extensions.get::<AuthenticatedCaller>() {
            Some(known) => known.clone(),
            None => api.identify(&parts.headers)?,
        };
        let load = parts.extensions.get::<Arc<MemoryCharge>>().cloned();
        let catalog = api.venue.catalog_view(&known.caller.owner);
        Ok(Self { memory: load, ..Self::from_headers(&parts.headers, known, catalog)? })
    }
}

/// The body as it was sent; the guard has read it.
pub(super) struct RawBody(pub(super) Bytes);

impl FromRequest<Api> for RawBody {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let rule = request.extensions().get().map_or(BodyRule::Optional, |admits: &RouteRules| admits.body);
        let read = axum::body::to_bytes(request.into_body(), rule.limit(api.options.body_limit)).await;
        read.map(Self).map_err(|e| Problem::bad_request(format!("the body didn't arrive: {e}")))
    }
}

/// A JSON body; `null` if it is empty.
pub(super) struct JsonBody(pub(super) Value);

impl FromRequest<Api> for JsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        body_value(request, api, decode::json).await.map(Self)
    }
}

/// A JSON5 body, where Covia accepts one; `null` if it is empty.
pub(super) struct Json5Body(pub(super) Value);

impl FromRequest<Api> for Json5Body {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        body_value(request, api, decode::json5).await.map(Self)
    }
}

async fn body_value(
    request: Request,
    api: &Api,
    read: impl Fn(&[u8]) -> Result<Value, DataError>,
) -> Result<Value, Problem> {
    let needed = request.extensions().get().is_some_and(|admits: &RouteRules| admits.body == BodyRule::Required);
    let RawBody(bytes) = RawBody::from_request(request, api).await?;
    let value = if decode::without_mark(&bytes).is_empty() { Ok(Value::Null) } else { read(&bytes) };
    if needed && value == Ok(Value::Null) {
        return Err(Problem::bad_request("expected a JSON body; `GET /api/v1/openapi.json` describes it"));
    }
    value.map_err(|wrong| {
        let what = if wrong.place.is_empty() { "the body is not JSON" } else { "malformed body" };
        Problem::bad_request(format!("{what}: {wrong}"))
    })
}

/// Decodes a body; the default if it is empty. The error names the place in the body.
pub(super) fn decode_body<T: DeserializeOwned + Default>(body: Value) -> Result<T, Problem> {
    match body {
        Value::Null => Ok(T::default()),
        body => decode::typed_with_hint(&body).map_err(Problem::invalid_data),
    }
}

/// The query; each name occurs at most once.
pub(super) struct QueryParams(BTreeMap<String, String>);

impl FromRequestParts<Api> for QueryParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _api: &Api) -> Result<Self, Problem> {
        let known = parts.extensions.get::<RouteRules>().map_or(&[][..], |admits| admits.query);
        let pairs: Query<Vec<(String, String)>> = Query::try_from_uri(&parts.uri).map_err(Problem::bad_request)?;
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        Self::from_pairs(pairs.0, &known)
    }
}

/// Returns the error of an unknown query parameter: if a misspelt filter were ignored, the list would be another one.
fn unknown_parameter(name: &str, known: &[&str]) -> String {
    let hint = did_you_mean(name, known);
    let some = if known.is_empty() { "none".to_owned() } else { format!("some of {}", known.join(", ")) };
    format!("unknown query parameter `{}`{hint}; expected {some}", quote_foreign(name))
}

impl QueryParams {
    /// Takes pairs of a query, or of a form that stands for one. Fails at a name that isn't known or occurs twice.
    pub(super) fn from_pairs(pairs: Vec<(String, String)>, known: &[&str]) -> Result<Self, Problem> {
        let mut asked = BTreeMap::new();
        for (name, value) in pairs {
            if !known.contains(&name.as_str()) {
                return Err(Problem::bad_request(unknown_parameter(&name, known)));
            }
            if asked.insert(name.clone(), value).is_some() {
                return Err(Problem::bad_request(format!("query `{name}` is given more than once")));
            }
        }
        Ok(Self(asked))
    }

    /// Leaves out parameters without a text, as a form sends its empty fields.
    pub(super) fn without_blanks(mut self) -> Self {
        self.0.retain(|_, text| !text.trim().is_empty());
        self
    }

    /// Returns a number of at least 0.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        self.0.get(name).map(|text| number(name, text)).transpose()
    }

    /// Returns the text of a parameter.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns a time: milliseconds since the epoch, or RFC 3339.
    pub(super) fn time(&self, name: &str) -> Result<Option<Millis>, Problem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let bad = || {
            Problem::bad_request(format!(
                "query `{name}`: expected milliseconds since the epoch or a time as `2026-11-21T22:00:00Z`, got `{text}`"
            ))
        };
        Millis::parse(text).map(Some).ok_or_else(bad)
    }

    /// Returns statuses of jobs, separated by commas.
    pub(super) fn statuses(&self, name: &str) -> Result<Vec<JobStatus>, Problem> {
        let texts = self.text(name).into_iter().flat_map(|text| text.split(','));
        let known = JobStatus::ALL.map(JobStatus::as_str).join(", ");
        let parse = |text: &str| {
            let status = JobStatus::parse(&text.trim().to_ascii_uppercase());
            let bad = || Problem::bad_request(format!("query `{name}`: expected some of {known}, got `{text}`"));
            status.ok_or_else(bad)
        };
        texts.map(parse).collect()
    }

    /// Returns error codes, separated by commas.
    pub(super) fn codes(&self, name: &str) -> Result<Vec<ErrorCode>, Problem> {
        let texts = self.text(name).into_iter().flat_map(|text| text.split(','));
        let bad =
            |text: &str| Problem::bad_request(format!("query `{name}`: expected codes such as DEAD, got `{text}`"));
        texts.map(|text| ErrorCode::parse(text.trim()).ok_or_else(|| bad(text))).collect()
    }

    /// Returns `true` or `false`; an absent flag is `false`.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Problem> {
        self.0.get(name).map_or(Ok(false), |text| flag(name, text))
    }

    /// Returns `wait`: `true` is the longest time, a number is milliseconds.
    pub(super) fn wait(&self) -> Result<Option<Duration>, Problem> {
        self.0.get("wait").map(|text| wait(&Value::String(text.clone()))).transpose()
    }

    /// Returns arguments of an operation; each text is converted to the type in the input schema.
    pub(super) fn arguments(self, schema: &Value) -> Result<Value, Problem> {
        let typed = |(name, text): (String, String)| {
            let value = match schema["properties"][&name]["type"].as_str() {
                Some("integer") => number(&name, &text)?.into(),
                Some("boolean") => flag(&name, &text)?.into(),
                _ => Value::String(text),
            };
            Ok((name, value))
        };
        self.0.into_iter().map(typed).collect::<Result<serde_json::Map<_, _>, Problem>>().map(Value::Object)
    }
}

fn number(name: &str, text: &str) -> Result<u64, Problem> {
    text.parse()
        .map_err(|_| Problem::bad_request(format!("query `{name}`: expected a number of at least 0, got `{text}`")))
}

fn flag(name: &str, text: &str) -> Result<bool, Problem> {
    text.parse().map_err(|_| Problem::bad_request(format!("query `{name}`: expected `true` or `false`, got `{text}`")))
}

/// Returns an integer of at least 0; `250.0` is one.
fn whole_number(number: &Number) -> Option<u64> {
    let float = || number.as_f64().filter(|float| float.is_sign_positive() && float.fract() == 0.0);
    number.as_u64().or_else(|| integer_from_float(float()?)?.as_u64())
}

/// Parses how long to wait for a job: `true`, milliseconds, or either as text; at most [`MAX_WAIT`].
pub(super) fn wait(value: &Value) -> Result<Duration, Problem> {
    let bad = || Problem::bad_request(format!("`wait`: expected `true` or milliseconds of at least 0, got `{value}`"));
    let millis = match value {
        Value::Null | Value::Bool(false) => 0,
        Value::Bool(true) => u64::MAX,
        Value::Number(number) => whole_number(number).ok_or_else(bad)?,
        Value::String(text) => match text.as_str() {
            "true" => u64::MAX,
            "false" => 0,
            digits => digits.parse().map_err(|_| bad())?,
        },
        Value::Array(_) | Value::Object(_) => return Err(bad()),
    };
    Ok(Duration::from_millis(millis).min(MAX_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::venue::operation::Catalog;
    use serde_json::json;

    fn identify(entries: &[(&'static str, &'static str)]) -> Result<RequestCaller, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in entries {
            headers.append(*name, value.parse().unwrap());
        }
        let known = identify_caller(&Auth::none(), Millis(0), &headers);
        known
            .and_then(|known| RequestCaller::from_headers(&headers, known, Catalog::default().compiled_view()))
            .map_err(|p| format!("{} {}", p.status.as_u16(), p.detail))
    }

    #[test]
    fn owner_and_key_come_from_headers() {
        let default = identify(&[]).unwrap();
        assert_eq!((default.caller.name.as_str(), default.key), ("local/me", None));
        let named = identify(&[("x-trellis-owner", "acme/jo"), ("idempotency-key", "\"k 1\"")]);
        assert!(named.err().unwrap().starts_with("400 header `Idempotency-Key`"));
        let named = identify(&[("x-trellis-owner", "acme/jo"), ("idempotency-key", "\"k1\"")]).unwrap();
        assert_eq!((named.caller.name.as_str(), named.key.unwrap().as_str()), ("acme/jo", "k1"));
        for (value, error) in [("acme", "400 "), ("acme/", "400 "), ("_venue/_venue", "403 ")] {
            let got = identify(&[("x-trellis-owner", value)]).err().unwrap();
            assert!(got.starts_with(error), "{value}: {got}");
        }
        assert!(identify(&[("x-trellis-owner", "a/b"), ("x-trellis-owner", "a/c")]).is_err());
    }

    #[test]
    fn a_wait_is_true_or_milliseconds() {
        let wait = |value: Value| wait(&value).map(|d| d.as_millis()).map_err(|p| p.status.as_u16());
        for (value, expected) in [
            (json!(true), Ok(120_000)),
            (json!(false), Ok(0)),
            (json!(250), Ok(250)),
            (json!("250"), Ok(250)),
            (json!("true"), Ok(120_000)),
            (json!(999_999_999), Ok(120_000)),
            (json!(-1), Err(400)),
            (json!(250.0), Ok(250)),
            (json!(1.5), Err(400)),
            (json!(1e300), Err(400)),
            (json!("soon"), Err(400)),
            (json!({}), Err(400)),
        ] {
            assert_eq!(wait(value.clone()), expected, "{value}");
        }
    }

    #[test]
    fn a_query_takes_the_types_of_the_schema() {
        let schema = json!({"properties": {"limit": {"type": "integer"}, "compact": {"type": "boolean"}, "path": {}}});
        let asked = |pairs: &[(&str, &str)]| {
            QueryParams(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()).arguments(&schema)
        };
        assert_eq!(
            asked(&[("limit", "5"), ("compact", "true"), ("path", "w/7")]).unwrap(),
            json!({"compact": true, "limit": 5, "path": "w/7"})
        );
        assert!(asked(&[("limit", "-5")]).unwrap_err().detail.contains("`limit`"));
        assert!(asked(&[("compact", "yes")]).unwrap_err().detail.contains("`compact`"));
    }
}
