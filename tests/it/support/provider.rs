//! A server that provides a kind of resources, and remembers what it was asked.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A request: its headers by name, and its message.
pub type Asked = (BTreeMap<String, String>, Value);

/// The server; it ends with this value.
pub struct ProviderServer {
    pub port: u16,
    seen: Arc<Mutex<Vec<Asked>>>,
    serving: JoinHandle<()>,
}

type Answer = Arc<dyn Fn(&Value) -> Response + Send + Sync>;

impl ProviderServer {
    /// That answers as `answer` says.
    pub async fn start(answer: impl Fn(&Value) -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let state = (Arc::clone(&seen), Arc::new(answer) as Answer);
        let pages = Router::new().fallback(asked).with_state(state);
        let serving = tokio::spawn(async move { axum::serve(listener, pages).await.unwrap() });
        Self { port, seen, serving }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/kinds", self.port)
    }

    /// What it was asked of an operation.
    pub fn asked(&self, operation: &str) -> Vec<Asked> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|(_, message)| message["operation"] == operation).cloned().collect()
    }

    /// All that it was asked, in order.
    pub fn all(&self) -> Vec<Asked> {
        self.seen.lock().unwrap().clone()
    }

    /// How often it was asked anything.
    pub fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

impl Drop for ProviderServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn asked(
    State((seen, answer)): State<(Arc<Mutex<Vec<Asked>>>, Answer)>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let headers = headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    seen.lock().unwrap().push((headers.collect(), message.clone()));
    answer(&message)
}

/// An answer in JSON.
pub fn answer(value: &Value) -> Response {
    refusal(200, value)
}

/// The same with another status.
pub fn refusal(status: u16, value: &Value) -> Response {
    let status = StatusCode::from_u16(status).unwrap();
    (status, [("content-type", "application/json")], value.to_string()).into_response()
}

/// One that keeps documents of everybody, and judges as little as it can: it returns all of them.
pub async fn careless() -> ProviderServer {
    ProviderServer::start(|message| {
        let documents = json!([
            {"namespace": "app/user/a", "id": "a1", "content": "A likes tea"},
            {"namespace": "app/user/a/deep", "id": "a2", "content": "A lives in Jena"},
            {"namespace": "app/user/b", "id": "b1", "content": "a secret of B"},
            {"namespace": "app", "id": "all", "content": "above"},
        ]);
        answer(&match message["operation"].as_str().unwrap_or_default() {
            "context" => json!({"text": format!("{} topics", message["namespaces"].as_array().unwrap().len())}),
            "put" | "delete" => json!({"ok": true}),
            "purge" => json!({"purged": 3}),
            _ => json!({"items": documents}),
        })
    })
    .await
}
