//! A real HTTP server on a free loopback port, over the embedded store in a directory of its own.

use reqwest::{Client, Method, StatusCode, header::HeaderMap};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use trellis::bus::Bus;
use trellis::bus::embedded::EmbeddedBus;
use trellis::domain::cap::SpendSettings;
use trellis::domain::secret::KeyRing;
use trellis::http::{HttpOptions, serve};
use trellis::process::clock::Clock;
use trellis::process::telemetry::Metrics;
use trellis::process::tracer::Tracer;
use trellis::store::Store;
use trellis::store::embedded::EmbeddedStore;
use trellis::venue::auth::Auth;
use trellis::venue::secrets::Vault;
use trellis::venue::{Venue, load_or_make_key};

/// Longest body that these servers take, in bytes.
pub const BODY_LIMIT: usize = 100_000;

/// A running server; it ends with this value.
pub struct Server {
    pub url: String,
    pub venue: Arc<Venue>,
    pub client: Client,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
    dir: Option<TempDir>,
}

/// What a request was answered.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Answer {
    /// A header's text; empty when it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    /// Checks that this is a problem with `status` whose text contains `part`.
    #[track_caller]
    pub fn is_problem(&self, status: u16, part: &str) {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!(self.body["status"], status);
        assert_eq!(self.body["error"], self.body["detail"]);
        let text = self.body["error"].as_str().unwrap();
        assert!(text.contains(part), "expected `{part}` in: {text}");
    }

    /// Checks the status and gives the body.
    #[track_caller]
    pub fn body(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        self.body
    }
}

impl Server {
    /// A server without a worker.
    pub async fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("trellis-http").tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path()).unwrap();
        let server = Self::over(Arc::clone(&store) as Arc<dyn Store>, &store).await;
        Self { dir: Some(dir), ..server }
    }

    /// A server without a worker, over this queue.
    pub async fn on(bus: Arc<dyn Bus>) -> Self {
        let dir = tempfile::Builder::new().prefix("trellis-http").tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path()).unwrap();
        let server = Self::of(Self::venue_on(store, bus).await).await;
        Self { dir: Some(dir), ..server }
    }

    /// A server without a worker, with other limits.
    pub async fn limited(change: impl FnOnce(HttpOptions) -> HttpOptions) -> Self {
        let dir = tempfile::Builder::new().prefix("trellis-http").tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path()).unwrap();
        let venue = Self::venue(Arc::clone(&store) as Arc<dyn Store>, &store).await;
        let server = Self::changed(venue, Arc::default(), change).await;
        Self { dir: Some(dir), ..server }
    }

    /// A server over any store; the queue lies in `queue`.
    pub async fn over(store: Arc<dyn Store>, queue: &Arc<EmbeddedStore>) -> Self {
        Self::of(Self::venue(store, queue).await).await
    }

    async fn venue(store: Arc<dyn Store>, queue: &Arc<EmbeddedStore>) -> Arc<Venue> {
        let bus = EmbeddedBus::new(Arc::clone(queue), Duration::from_secs(30), Clock::system()).unwrap();
        Self::venue_on(store, Arc::new(bus)).await
    }

    async fn venue_on(store: Arc<dyn Store>, bus: Arc<dyn Bus>) -> Arc<Venue> {
        let clock = Clock::system();
        let key = load_or_make_key(&*store, clock.now()).await.unwrap();
        Arc::new(Venue {
            store,
            bus,
            clock,
            name: "test venue".into(),
            key,
            catalog: trellis::ops::catalog(true),
            secrets: Vault::new(KeyRing::parse(&"01".repeat(32)).unwrap()),
            boundaries: Vec::new(),
            spend: SpendSettings::default(),
            quota: trellis::domain::quota::QuotaSettings::default(),
            prompts: trellis::venue::context::PromptCache::default(),
            meters: trellis::venue::rates::Meters::default(),
            local: trellis::venue::local_worker::LocalWorker::default(),
            fleet: trellis::venue::registry::FleetCache::default(),
            history: trellis::venue::history::History::default(),
            metrics: Arc::new(Metrics::new()),
            tracer: Tracer::default(),
        })
    }

    /// A server of a venue that exists.
    pub async fn of(venue: Arc<Venue>) -> Self {
        Self::with(venue, Arc::default()).await
    }

    /// A server that recognises its callers.
    pub async fn with(venue: Arc<Venue>, auth: Arc<Auth>) -> Self {
        Self::changed(venue, auth, |options| options).await
    }

    /// A server of a venue that exists, with other limits.
    pub async fn changed(venue: Arc<Venue>, auth: Arc<Auth>, change: impl FnOnce(HttpOptions) -> HttpOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let options = change(HttpOptions {
            auth,
            drain: Duration::from_millis(200),
            heartbeat: Duration::from_millis(50),
            ..HttpOptions::new(&url, BODY_LIMIT)
        });
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _ = stopped.await;
        };
        let serving = tokio::spawn(serve(listener, Arc::clone(&venue), options, shutdown));
        Self { url, venue, client: Client::new(), stop: Some(stop), serving: Some(serving), dir: None }
    }

    /// A second server of the venue, in place of this one, with other limits.
    pub async fn second(mut self, change: impl FnOnce(HttpOptions) -> HttpOptions) -> Self {
        let second = Self::changed(Arc::clone(&self.venue), Arc::default(), change).await;
        self.shut_down().await;
        Self { dir: self.dir.take(), ..second }
    }

    /// Begins the shutdown and waits for its end.
    pub async fn shut_down(&mut self) {
        drop(self.stop.take());
        self.serving.take().unwrap().await.unwrap();
    }

    /// Any request.
    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<String>) -> Answer {
        let mut request = self.client.request(method, format!("{}{path}", self.url)).body(body.into());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Answer { status, headers, body }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], "").await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, &[], body.to_string()).await
    }

    /// A post under an `Idempotency-Key`.
    pub async fn post_once(&self, key: &str, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, &[("Idempotency-Key", key)], body.to_string()).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(Method::PUT, path, &[], body).await
    }

    /// The output of an operation.
    pub async fn run(&self, operation: &str, input: Value) -> Value {
        let body = serde_json::json!({"operation": operation, "input": input});
        self.post("/api/v1/run", body).await.body(200)
    }

    /// An agent that answers with what it was asked.
    pub async fn echo_agent(&self, id: &str) {
        let config = serde_json::json!({"model": {"provider": "scripted", "name": "echo"}});
        self.put(&format!("/api/v1/agents/{id}"), config).await.body(201);
    }

    /// Reads a stream of events until it ends, at most `limit`; calls `act` with the text so far
    /// after each piece.
    pub async fn events(&self, path: &str, limit: Duration, mut act: impl AsyncFnMut(&str)) -> String {
        let response = self.client.get(format!("{}{path}", self.url)).send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut response = response;
        let mut text = String::new();
        let read = async {
            while let Some(piece) = response.chunk().await.unwrap() {
                text.push_str(std::str::from_utf8(&piece).unwrap());
                act(&text).await;
            }
        };
        assert!(tokio::time::timeout(limit, read).await.is_ok(), "the stream didn't end: {text}");
        text
    }
}
