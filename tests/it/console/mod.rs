//! The console as a browser meets it: sessions, strict pages, forms, and text that wants to be markup.

mod browser;
mod foreign_text;
mod forms;
mod holdings;
mod job_page;
mod many_jobs;
mod refusals;
mod sessions;
mod strict_pages;
mod values;

use crate::authority::tokens::{issuer, token};
use crate::support::http::Server;
use reqwest::header::HeaderMap;
use reqwest::redirect::Policy;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use std::sync::Arc;
use trellis::venue::Venue;
use trellis::venue::auth::signing::SigningKey;

/// A venue with tokens, and a browser that follows nothing by itself.
struct Site {
    server: Server,
    browser: Client,
    issuer: SigningKey,
    /// It has the folder of the store.
    _plain: Option<Server>,
    _dir: tempfile::TempDir,
}

/// What the browser was answered.
struct Page {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Page {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    /// Checks the status and gives the text.
    #[track_caller]
    fn text(self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.text);
        self.text
    }
}

impl Site {
    /// Without a worker.
    async fn new() -> Self {
        let plain = Server::start().await;
        let site = Self::of(Arc::clone(&plain.venue)).await;
        Self { _plain: Some(plain), ..site }
    }

    async fn of(venue: Arc<Venue>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (issuer, auth) = issuer(dir.path());
        let server = Server::with(venue, auth).await;
        let browser = Client::builder().redirect(Policy::none()).build().unwrap();
        Self { server, browser, issuer, _plain: None, _dir: dir }
    }

    fn token(&self, sub: &str, more: &Value) -> String {
        token(&self.issuer, sub, more)
    }

    async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], form: &[(&str, &str)]) -> Page {
        let mut request = self.browser.request(method, format!("{}{path}", self.server.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if !form.is_empty() {
            let body: Vec<String> = form.iter().map(|(name, value)| format!("{name}={}", form_text(value))).collect();
            request = request.header("content-type", "application/x-www-form-urlencoded").body(body.join("&"));
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Page { status, headers, text: response.text().await.unwrap() }
    }

    /// Opens a page with the session of a token.
    async fn open(&self, path: &str, token: &str) -> Page {
        let cookie = format!("trellis-session={token}");
        self.send(Method::GET, path, &[("cookie", cookie.as_str())], &[]).await
    }

    /// Sends a form of the console with the session of a token.
    async fn post(&self, path: &str, token: &str, form: &[(&str, &str)]) -> Page {
        let (cookie, origin) = (format!("trellis-session={token}"), self.server.url.clone());
        self.send(Method::POST, path, &[("cookie", cookie.as_str()), ("origin", origin.as_str())], form).await
    }

    /// An agent of the token's owner.
    async fn agent(&self, token: &str, name: &str) {
        let bearer = format!("Bearer {token}");
        let agent = json!({"model": {"provider": "scripted", "name": "echo"}}).to_string();
        let path = format!("/api/v1/agents/{name}");
        self.server.send(Method::PUT, &path, &[("authorization", bearer.as_str())], agent).await.body(201);
    }

    /// What the API answers to this token.
    async fn api(&self, method: Method, path: &str, token: &str, body: &Value) -> Value {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str())];
        let answer = self.server.send(method, &format!("/api/v1/{path}"), &headers, body.to_string()).await;
        assert!(answer.status.is_success(), "{path}: {}", answer.body);
        answer.body
    }

    /// A timer of the agent `clerk` of the token's owner.
    async fn timer(&self, token: &str, timer: &Value) -> String {
        let set = self.api(Method::POST, "agents/clerk/timers", token, timer).await;
        set["timer"].as_str().unwrap().to_owned()
    }

    /// A job of the agent `clerk` of the token's owner.
    async fn job(&self, token: &str, input: &str) -> String {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str())];
        let request = json!({"input": input}).to_string();
        let job = self.server.send(Method::POST, "/api/v1/agents/clerk/tasks", &headers, request).await.body(202);
        job["job"].as_str().unwrap().to_owned()
    }
}

/// A text as a form sends it.
fn form_text(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
