//! Notifications: each kind as people get it, by events on NATS and by signed posts to webhooks that fail, hang or lead
//! elsewhere.

mod bounds;
mod embedded;
mod example;
mod fleet;
mod rights;
mod webhooks;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use trellis::domain::notification::signature::WebhookKey;

/// Secret of the specification's own example.
pub const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Agents that ask, pay, and do what nobody knows the end of.
pub const RULES: &str = r#"
[[rule]]
when = { agent = "payer", turn = 1 }
then = { calls = [{ tool = "pay", arguments = { path = "w/paid", value = 40 } }] }

[[rule]]
when = { agent = "asker", turn = 1 }
then = { calls = [{ tool = "human_ask", arguments = { title = "Size?", expires = 1, asks = [{ id = "size", type = "text", prompt = "Size?" }] } }] }

[[rule]]
when = { agent = "poster", turn = 1 }
then = { calls = [{ tool = "http_post", arguments = { url = "http://127.0.0.1:SITE/", body = {} } }] }

[[rule]]
then = { text = "done" }
"#;

/// Definition of one of these agents.
pub fn definition(agent: &str) -> String {
    let tools = match agent {
        "payer" => r#"tools = [{ operation = "v/ops/lattice/append", name = "pay", approval = "ask" }]"#,
        "asker" => r#"tools = ["v/ops/human/ask"]"#,
        "poster" => r#"tools = ["v/ops/http/post"]"#,
        _ => "",
    };
    format!("model = {{ provider = \"scripted\", name = \"all.rules\" }}\n{tools}\n")
}

/// A post as it came.
#[derive(Debug, Clone)]
pub struct HookPost {
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl HookPost {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn kind(&self) -> String {
        self.json()["type"].as_str().unwrap().to_owned()
    }

    /// Checks id, time and signature as the specification says.
    pub fn verify(&self) {
        let timestamp: u64 = self.headers["webhook-timestamp"].parse().unwrap();
        let signed = WebhookKey::parse(SECRET).unwrap().sign(&self.headers["webhook-id"], timestamp, &self.body);
        assert_eq!(self.headers["webhook-signature"], signed);
        assert_eq!(self.json()["id"], self.headers["webhook-id"].as_str());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        assert!(now.abs_diff(timestamp) < 60, "{timestamp}, now {now}");
    }
}

/// What a receiver does with a post.
#[derive(Debug, Clone)]
pub enum HookAnswer {
    Status(u16),
    Redirect(String),
    Hang,
}

type Decide = Arc<dyn Fn(usize) -> HookAnswer + Send + Sync>;

/// A receiver of webhooks; it ends with this value.
pub struct HookServer {
    pub port: u16,
    seen: Arc<Mutex<Vec<HookPost>>>,
    serving: JoinHandle<()>,
}

impl HookServer {
    /// One that answers the post with this index, from 0, so.
    pub async fn start(decide: impl Fn(usize) -> HookAnswer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen: Arc<Mutex<Vec<HookPost>>> = Arc::default();
        let state = (Arc::clone(&seen), Arc::new(decide) as Decide);
        let pages = Router::new().fallback(take).with_state(state);
        let serving = tokio::spawn(async move { axum::serve(listener, pages).await.unwrap() });
        Self { port, seen, serving }
    }

    /// One that takes everything.
    pub async fn willing() -> Self {
        Self::start(|_| HookAnswer::Status(204)).await
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook?key=s3cret", self.port)
    }

    pub fn all(&self) -> Vec<HookPost> {
        self.seen.lock().unwrap().clone()
    }

    /// The posts of a kind.
    pub fn of_kind(&self, kind: &str) -> Vec<HookPost> {
        self.all().into_iter().filter(|post| post.kind() == kind).collect()
    }

    /// Waits for so many posts of a kind.
    pub async fn wait(&self, kind: &str, count: usize) -> Vec<HookPost> {
        for _ in 0..3_000 {
            let found = self.of_kind(kind);
            if found.len() >= count {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let kinds: Vec<String> = self.all().iter().map(HookPost::kind).collect();
        panic!("no {count} posts of `{kind}`, got {kinds:?}");
    }
}

impl Drop for HookServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn take(
    State((seen, decide)): State<(Arc<Mutex<Vec<HookPost>>>, Decide)>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let text = |value: &axum::http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let headers = headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    let index = {
        let mut seen = seen.lock().unwrap();
        seen.push(HookPost { headers, body: body.to_vec() });
        seen.len() - 1
    };
    match decide(index) {
        HookAnswer::Status(status) => StatusCode::from_u16(status).unwrap().into_response(),
        HookAnswer::Redirect(to) => (StatusCode::TEMPORARY_REDIRECT, [("location", to)]).into_response(),
        HookAnswer::Hang => std::future::pending().await,
    }
}
