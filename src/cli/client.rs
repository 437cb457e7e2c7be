//! Client of the HTTP API for the command line.

use super::exit::{Exit, Failure};
use crate::config::mask_url;
use crate::domain::decode;
use crate::domain::event::Submission;
use crate::domain::ids::{EventId, Owner};
pub(crate) use crate::domain::percent::percent_encode as encode;
use crate::http::VERSION_HEADER;
use crate::view::audit::ReadinessView;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

/// Longest wait for a connection.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Longest wait for an answer: one long poll, and time for a slow store.
const ANSWER_TIME: Duration = Duration::from_mins(1);

const OWNER: HeaderName = HeaderName::from_static("x-trellis-owner");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Which server, and for whom.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ServerArgs {
    /// Address of the HTTP API
    #[arg(long, value_name = "URL", env = "TRELLIS_URL", default_value = "http://127.0.0.1:8420")]
    pub url: String,
    /// Whose agents and data [default: local/me]
    #[arg(long, value_name = "TENANT/USER", env = "TRELLIS_OWNER")]
    pub owner: Option<Owner>,
    /// Token of a venue with `auth.mode = "jwt"`; others can see it in the list of processes, so better in
    /// the environment or with `--token-file`
    #[arg(long, env = "TRELLIS_TOKEN", hide_env_values = true, hide_default_value = true)]
    pub token: Option<String>,
    /// File with the token
    #[arg(long, value_name = "FILE", env = "TRELLIS_TOKEN_FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
}

impl ServerArgs {
    /// Returns the value of the header `Authorization`, if there is a token.
    pub fn authorization(&self) -> Result<Option<String>, Failure> {
        let (token, place) = match (&self.token, &self.token_file) {
            (Some(token), _) => (token.clone(), "the token of `--token` or TRELLIS_TOKEN".to_owned()),
            (None, Some(path)) => (super::input::file(path)?, format!("the token file `{}`", path.display())),
            (None, None) => return Ok(None),
        };
        match token.trim() {
            "" => Err(Failure::usage(format!(
                "{place} is empty; `trellis token issue` prints a token, and without one leave the option out"
            ))),
            token => Ok(Some(format!("Bearer {token}"))),
        }
    }
}

/// Body of `POST run`.
#[derive(Serialize)]
struct OperationCall<'a, T> {
    operation: &'a str,
    input: &'a T,
}

/// HTTP client of one server.
pub(crate) struct Client {
    http: reqwest::Client,
    base: String,
    owner: Option<HeaderValue>,
    token: Option<HeaderValue>,
}

impl Client {
    /// Checks the address; the first request connects.
    pub fn new(server: &ServerArgs) -> Result<Self, Failure> {
        let shown = mask_url(&server.url);
        let bad = |why: &str| Failure::usage(format!("illegal server address `{shown}`: {why}"));
        let scheme = || {
            if server.url.contains("://") || server.url.is_empty() {
                bad("expected `http://` or `https://`, e.g. `http://127.0.0.1:8420`")
            } else {
                bad(&format!("expected `http://` or `https://` before it: `http://{shown}`"))
            }
        };
        let url = Url::parse(&server.url).map_err(|error| match error.to_string() {
            text if text.starts_with("relative URL") => scheme(),
            text => bad(&format!("{text}, expected e.g. `http://127.0.0.1:8420`")),
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(scheme());
        }
        let builder = reqwest::Client::builder().connect_timeout(CONNECT_TIME).user_agent("trellis");
        let here = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
        // A proxy of the environment can't reach this machine's loopback.
        let builder = if here { builder.no_proxy() } else { builder };
        let http = builder.build().map_err(|e| Failure::internal(format!("no HTTP client: {}", cause_chain(&e))))?;
        let owner = server.owner.as_ref().map(|owner| header("owner", &owner.to_string())).transpose()?;
        let base = url.as_str().trim_end_matches('/').trim_end_matches("/api/v1").to_owned();
        let token = server.authorization()?;
        let token = token.map(|text| HeaderValue::from_str(&text)).transpose();
        let mut token = token.map_err(|_| Failure::usage("the token has characters that no token has"))?;
        if let Some(token) = &mut token {
            token.set_sensitive(true);
        }
        Ok(Self { http, base, owner, token })
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.request_to(method, &format!("/api/v1/{path}"))
    }

    fn request_to(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        let request = match &self.owner {
            Some(owner) => request.header(OWNER, owner.clone()),
            None => request,
        };
        match &self.token {
            Some(token) => request.header(AUTHORIZATION, token.clone()),
            None => request,
        }
    }

    /// Sends a message of the Model Context Protocol. Its answer may be a stream, which has no time limit.
    pub async fn send_mcp(&self, body: Vec<u8>, headers: HeaderMap) -> Result<Response, Failure> {
        let request = self.request_to(Method::POST, "/mcp").headers(headers).body(body);
        let response = request.send().await.map_err(|e| self.unreachable(&e))?;
        self.check_venue(response).await
    }

    /// Returns the address of the server, without a slash at its end.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Checks that a venue answers at the address.
    pub async fn check_answers(&self) -> Result<(), Failure> {
        let answer = self.ask_status().await.map_err(|e| self.unreachable(&e))?;
        self.check_venue(answer).await.map(|_| ())
    }

    async fn ask_status(&self) -> Result<Response, reqwest::Error> {
        self.http.get(format!("{}/api/v1/status", self.base)).timeout(CONNECT_TIME).send().await
    }

    /// Checks that the server answers and can take work, and returns its answer.
    pub async fn ready(&self) -> Result<Value, Failure> {
        let asked = self.http.get(format!("{}/readyz", self.base)).timeout(CONNECT_TIME).send().await;
        let answer = asked
            .map_err(|e| if e.is_timeout() { self.timeout_failure(CONNECT_TIME) } else { self.unreachable(&e) })?;
        if !answer.status().is_success() {
            return Err(self.refusal(answer).await);
        }
        let said: Value = answer.json().await.unwrap_or_default();
        if read_view::<ReadinessView>(said.clone()).is_ok_and(|ready| ready.is_ready()) {
            Ok(said)
        } else {
            Err(self.no_venue_failure("its `/readyz` says something else"))
        }
    }

    /// Checks that the answer is a venue's: by its header, or for an older build by its status.
    async fn check_venue(&self, answer: Response) -> Result<Response, Failure> {
        if answer.headers().contains_key(&VERSION_HEADER) {
            return Ok(answer);
        }
        let status: Value = match self.ask_status().await {
            Ok(answer) => answer.json().await.unwrap_or_default(),
            Err(_) => Value::Null,
        };
        let is_venue = ["did", "name", "version"].iter().all(|key| status[*key].is_string());
        let why = || format!("it answered {} to a request of the API, and has no `/api/v1/status`", answer.status());
        if is_venue { Ok(answer) } else { Err(self.no_venue_failure(&why())) }
    }

    /// Sends `GET path?query`.
    pub async fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Value, Failure> {
        let mut request = self.request(Method::GET, path);
        if !query.is_empty() {
            let encoded: Vec<_> = query.iter().map(|(key, value)| format!("{key}={}", encode(value))).collect();
            request = self.request(Method::GET, &format!("{path}?{}", encoded.join("&")));
        }
        self.json(request).await
    }

    /// Sends `PUT path` with a JSON body.
    pub async fn put(&self, path: &str, body: &impl Serialize) -> Result<Value, Failure> {
        self.json(self.request(Method::PUT, path).json(body)).await
    }

    /// Sends `PUT path` with bytes of a media type.
    pub async fn put_content(&self, path: &str, media: &'static str, bytes: Vec<u8>) -> Result<Value, Failure> {
        self.json(self.request(Method::PUT, path).header(CONTENT_TYPE, media).body(bytes)).await
    }

    /// Sends `POST path` with a JSON body.
    pub async fn post(&self, path: &str, body: &impl Serialize) -> Result<Value, Failure> {
        self.json(self.request(Method::POST, path).json(body)).await
    }

    /// Sends `DELETE path` and returns the answer.
    pub async fn delete(&self, path: &str) -> Result<Value, Failure> {
        self.json(self.request(Method::DELETE, path)).await
    }

    /// Whether a server accepts connections there.
    pub async fn accepts_connections(&self) -> bool {
        let asked = self.request(Method::GET, "status").timeout(ANSWER_TIME).send().await;
        !asked.is_err_and(|error| error.is_connect())
    }

    /// Runs an operation and returns its output. With `key`, a repetition changes nothing.
    pub async fn run(&self, operation: &str, input: &impl Serialize, key: Option<&EventId>) -> Result<Value, Failure> {
        let mut request = self.request(Method::POST, "run");
        if let Some(key) = key {
            request = request.header(IDEMPOTENCY_KEY, header("id", key.as_str())?);
        }
        self.json(request.json(&OperationCall { operation, input })).await
    }

    /// Sends `POST path` with a submission under an id.
    pub async fn submit(&self, path: &str, body: &Submission, key: &EventId) -> Result<Value, Failure> {
        let request = self.request(Method::POST, path).header(IDEMPOTENCY_KEY, header("id", key.as_str())?);
        self.json(request.json(body)).await
    }

    /// Opens `GET path` as a stream of server-sent events, after the event with the id `after`.
    pub async fn stream(&self, path: &str, after: Option<&str>) -> Result<Response, Failure> {
        let mut request = self.request(Method::GET, path).header("accept", "text/event-stream");
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        let response = request.send().await.map_err(|e| self.unreachable(&e))?;
        let response = self.check_venue(response).await?;
        if response.status().is_success() { Ok(response) } else { Err(self.refusal(response).await) }
    }

    async fn json(&self, request: RequestBuilder) -> Result<Value, Failure> {
        let response = request.timeout(ANSWER_TIME).send().await.map_err(|e| self.unreachable(&e))?;
        let response = self.check_venue(response).await?;
        if !response.status().is_success() {
            return Err(self.refusal(response).await);
        }
        let body = response.bytes().await.map_err(|e| self.unreachable(&e))?;
        serde_json::from_slice(&body).map_err(|_| self.no_venue_failure("its answer is not JSON"))
    }

    async fn refusal(&self, response: Response) -> Failure {
        let status = response.status();
        let body: Value = response.json().await.unwrap_or_default();
        let Some(text) = ["error", "detail", "title"].iter().find_map(|key| body[key].as_str()) else {
            return self.no_venue_failure(&format!("it answered {status} without a reason"));
        };
        Failure::new(exit_code(status.as_u16()), text)
    }

    /// Makes the failure of a request without an answer, or of a broken stream.
    pub fn unreachable(&self, error: &reqwest::Error) -> Failure {
        if error.is_timeout() && !error.is_connect() {
            return self.timeout_failure(ANSWER_TIME);
        }
        let server = mask_url(&self.base);
        let text = if error.is_connect() {
            let why = innermost_cause(error);
            if self.base.starts_with("https:") && is_plain_text_answer(&why) {
                let plain = server.replacen("https:", "http:", 1);
                format!("the server at `{server}` speaks no TLS ({why}); its address may be `{plain}`")
            } else {
                format!(
                    "no server at `{server}`: {why}; is `trellis up` running? `--url` or TRELLIS_URL names another address"
                )
            }
        } else {
            format!("the connection to `{server}` broke: {}", innermost_cause(error))
        };
        Failure::new(Exit::Unreachable, text)
    }

    fn timeout_failure(&self, limit: Duration) -> Failure {
        let (server, limit) = (mask_url(&self.base), limit.as_secs());
        Failure::new(Exit::Unreachable, format!("the server at `{server}` did not answer within {limit} s"))
    }

    fn no_venue_failure(&self, why: &str) -> Failure {
        let server = mask_url(&self.base);
        Failure::new(
            Exit::Unreachable,
            format!("what answers at `{server}` is no Trellis server: {why}; check `--url`"),
        )
    }
}

/// Returns the exit code of an HTTP status.
const fn exit_code(status: u16) -> Exit {
    match status {
        400 | 405 | 411 | 413 | 414 | 415 | 422 | 431 => Exit::Usage,
        401 | 403 => Exit::Denied,
        404 | 410 => Exit::NotFound,
        409 | 412 | 423 | 507 => Exit::Conflict,
        408 | 429 | 502 | 503 | 504 => Exit::Unreachable,
        _ => Exit::Internal,
    }
}

fn header(what: &str, text: &str) -> Result<HeaderValue, Failure> {
    HeaderValue::from_bytes(text.as_bytes())
        .map_err(|_| Failure::usage(format!("the {what} `{}` can't be sent in a header", text.escape_debug())))
}

/// Reads an answer as its type of [`crate::view`]. Whoever prints the answer as JSON, too, gives a clone.
pub(crate) fn read_view<T: DeserializeOwned>(answer: Value) -> Result<T, Failure> {
    decode::into_type(answer).map_err(|error| {
        Failure::internal(format!("this build doesn't know such an answer: {error}; is the venue of another version?"))
    })
}

/// Whether this message of the TLS library means that the other side answered in plain text.
pub(crate) fn is_plain_text_answer(why: &str) -> bool {
    why.contains("InvalidContentType")
}

fn innermost_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

fn cause_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(url: &str) -> Result<Client, Failure> {
        Client::new(&ServerArgs { url: url.into(), ..ServerArgs::default() })
    }

    #[test]
    fn addresses_are_checked_and_the_api_path_is_optional() {
        for url in ["http://h:1", "http://h:1/", "http://h:1/api/v1", "http://h:1/api/v1/"] {
            assert_eq!(client(url).map(|c| c.base).unwrap(), "http://h:1", "{url}");
        }
        for url in ["h:1", "ftp://h", "", "http://"] {
            assert_eq!(client(url).map(|_| ()).unwrap_err().exit, Exit::Usage, "{url}");
        }
    }

    #[test]
    fn values_are_encoded_for_queries_and_paths() {
        assert_eq!(encode("w/a b?c&ü"), "w%2Fa%20b%3Fc%26%C3%BC");
    }
}
