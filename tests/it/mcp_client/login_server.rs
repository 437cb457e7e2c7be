//! A login server whose answers a test can replace, and a server of tools that takes its tokens.

use super::{ClientSite, conformance};
use crate::support::mcp_server::{McpReply, McpTestServer, STATELESS, text_tool};
use crate::support::operate::{boss, operate};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use trellis::venue::operation::OpError;

/// Page to which logins come back.
pub const REDIRECT: &str = "http://127.0.0.1:8765/callback";

/// An answer in place of the usual one.
#[derive(Clone)]
pub enum Replaced {
    /// A body with this status.
    Body(u16, Vec<u8>),
    /// A redirect.
    Redirect(String),
    /// JSON whose keys go over the usual ones.
    Keys(Value),
    /// The usual answer, after this time.
    Late(Duration),
}

/// A request, with its path, its body and its `Authorization`.
#[derive(Debug, Clone)]
pub struct LoginAsked {
    pub path: String,
    pub body: String,
    pub authorization: String,
}

#[derive(Default)]
struct LoginState {
    base: String,
    server: Mutex<String>,
    replaced: Mutex<BTreeMap<&'static str, Replaced>>,
    seen: Mutex<Vec<LoginAsked>>,
    accepted: Mutex<BTreeSet<String>>,
    used: Mutex<BTreeSet<String>>,
    issued: Mutex<usize>,
}

/// The login server; it ends with this value.
pub struct LoginServer {
    state: Arc<LoginState>,
    serving: JoinHandle<()>,
}

impl Drop for LoginServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl LoginServer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(LoginState { base, ..LoginState::default() });
        let pages = Router::new().fallback(asked).with_state(Arc::clone(&state));
        let serving = tokio::spawn(async move { axum::serve(listener, pages).await.unwrap() });
        Self { state, serving }
    }

    /// A server with the tools `search` and `pay` that takes the tokens of this one; in its challenge `BASE` stands for the
    /// URL of this one.
    pub async fn guard(&self, challenge: Option<String>) -> McpTestServer {
        let tools = vec![text_tool("search", json!({"readOnlyHint": true})), text_tool("pay", json!({}))];
        let accepts = self.checker();
        let challenge = challenge.unwrap_or_else(|| "Bearer resource_metadata=\"BASE/prm\"".to_owned());
        let challenge = challenge.replace("BASE", &self.state.base);
        let server = McpTestServer::start(STATELESS, tools, move |asked| {
            let token = asked.header("authorization").strip_prefix("Bearer ").unwrap_or_default();
            (!accepts(token)).then(|| McpReply::Status(401, "www-authenticate", challenge.clone()))
        })
        .await;
        self.set_server(&server);
        server
    }

    /// Names the server of tools for which the tokens are.
    pub fn set_server(&self, server: &McpTestServer) {
        *self.state.server.lock().unwrap() = server.url();
    }

    /// A function that says whether a token of this server counts.
    pub fn checker(&self) -> impl Fn(&str) -> bool + Send + Sync + 'static {
        let state = Arc::clone(&self.state);
        move |token| state.accepted.lock().unwrap().contains(token)
    }

    pub fn base(&self) -> &str {
        &self.state.base
    }

    /// Answers a path otherwise from now on.
    pub fn replace(&self, path: &'static str, with: Replaced) {
        self.state.replaced.lock().unwrap().insert(path, with);
    }

    pub fn restore(&self, path: &'static str) {
        self.state.replaced.lock().unwrap().remove(path);
    }

    /// The server of tools takes no token any more that was given before.
    pub fn revoke_all(&self) {
        self.state.accepted.lock().unwrap().clear();
    }

    /// The requests for a path, the first ones first.
    pub fn asked(&self, path: &str) -> Vec<LoginAsked> {
        self.state.seen.lock().unwrap().iter().filter(|asked| asked.path == path).cloned().collect()
    }
}

async fn asked(State(state): State<Arc<LoginState>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let authorization = headers.get("authorization").and_then(|text| text.to_str().ok()).unwrap_or_default();
    let body = String::from_utf8_lossy(&body).into_owned();
    let asked = LoginAsked { path: uri.path().to_owned(), body, authorization: authorization.to_owned() };
    state.seen.lock().unwrap().push(asked.clone());
    let found = state.replaced.lock().unwrap().iter().find(|(path, _)| **path == asked.path).map(|(_, r)| r.clone());
    let more = match found {
        Some(Replaced::Body(status, body)) => {
            return (axum::http::StatusCode::from_u16(status).unwrap(), body).into_response();
        }
        Some(Replaced::Redirect(to)) => return (axum::http::StatusCode::FOUND, [("location", to)]).into_response(),
        Some(Replaced::Keys(keys)) => keys.as_object().unwrap().clone(),
        Some(Replaced::Late(time)) => {
            tokio::time::sleep(time).await;
            Map::new()
        }
        None => Map::new(),
    };
    let base = &state.base;
    let (status, mut usual) = match asked.path.as_str() {
        "/prm" => (200, json!({"resource": *state.server.lock().unwrap(), "authorization_servers": [base]})),
        "/.well-known/oauth-authorization-server" => (
            200,
            json!({
                "issuer": base, "authorization_endpoint": format!("{base}/go"), "token_endpoint": format!("{base}/token"),
                "registration_endpoint": format!("{base}/register"), "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
                "authorization_response_iss_parameter_supported": true
            }),
        ),
        "/register" => (201, json!({"client_id": "client-1"})),
        "/go" => return go(&state, &uri),
        "/token" => give(&state, &asked),
        _ => (404, json!({})),
    };
    usual.as_object_mut().unwrap().extend(more);
    (axum::http::StatusCode::from_u16(status).unwrap(), usual.to_string()).into_response()
}

/// Sends the person back with a code.
fn go(state: &LoginState, uri: &Uri) -> Response {
    let url = reqwest::Url::parse(&format!("{}{uri}", state.base)).unwrap();
    let asked: BTreeMap<_, _> = url.query_pairs().collect();
    let mut target = reqwest::Url::parse(&asked["redirect_uri"]).unwrap();
    let code = format!("code-{}", asked["state"]);
    target.query_pairs_mut().extend_pairs([("code", code.as_str()), ("state", &asked["state"]), ("iss", &state.base)]);
    (axum::http::StatusCode::FOUND, [("location", target.to_string())]).into_response()
}

/// Gives tokens for a code, a token that renews, or to a machine. Codes and tokens that renew count once.
fn give(state: &LoginState, asked: &LoginAsked) -> (u16, Value) {
    let form = reqwest::Url::parse(&format!("http://x/?{}", asked.body)).unwrap();
    let form: BTreeMap<_, _> = form.query_pairs().collect();
    let shown = form.get("code").or_else(|| form.get("refresh_token")).cloned();
    if let Some(shown) = shown
        && !state.used.lock().unwrap().insert(shown.into_owned())
    {
        return (400, json!({"error": "invalid_grant", "error_description": "used twice"}));
    }
    let mut issued = state.issued.lock().unwrap();
    *issued += 1;
    let token = format!("access-token-{issued}");
    state.accepted.lock().unwrap().insert(token.clone());
    let mut answer = json!({"access_token": token, "token_type": "Bearer", "expires_in": 3_600});
    if form.get("grant_type").is_some_and(|grant| grant != "client_credentials") {
        answer["refresh_token"] = format!("refresh-token-{issued}").into();
    }
    if let Some(scope) = form.get("scope") {
        answer["scope"] = scope.as_ref().into();
    }
    (200, answer)
}

/// The scopes in the form of a request for a token.
pub fn asked_scope(form: &str) -> String {
    form.split('&').find_map(|field| field.strip_prefix("scope=")).unwrap().to_owned()
}

/// Logs in at the server `shop` of an agent as a person does; returns what the venue says.
pub async fn log_in(site: &ClientSite, agent: &str) -> Result<Value, OpError> {
    let answer = begin(site, agent).await?;
    finish(site, agent, answer).await
}

/// Begins a login, opens its page, and returns the answer that comes back.
pub async fn begin(site: &ClientSite, agent: &str) -> Result<Map<String, Value>, OpError> {
    let input = json!({"server": "shop", "agent": agent, "redirect": REDIRECT});
    let (venue, caller) = (&site.venue.venue, boss(&site.venue.owner));
    let page = operate(venue, &caller, "mcp/login", input).await?;
    Ok(conformance::open_page(page["url"].as_str().unwrap()).await)
}

/// Ends a login with an answer.
pub async fn finish(site: &ClientSite, agent: &str, answer: Map<String, Value>) -> Result<Value, OpError> {
    let mut input = json!({"server": "shop", "agent": agent});
    input.as_object_mut().unwrap().extend(answer);
    operate(&site.venue.venue, &boss(&site.venue.owner), "mcp/login-finish", input).await
}

/// Asks the server `shop` of an agent for its tools.
pub async fn refresh(site: &ClientSite, agent: &str) -> Result<Value, String> {
    let input = json!({"server": "shop", "agent": agent});
    let asked = operate(&site.venue.venue, &boss(&site.venue.owner), "mcp/refresh", input).await;
    asked.map_err(|error| error.to_string())
}
