//! Forms of the console: what they send is done as through the API.

use crate::support::http::{Answer, Server};
use crate::support::venue::TestVenue;
use reqwest::Method;
use reqwest::redirect::Policy;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const RULES: &str = r#"
[[rule]]
when = { agent = "payer", turn = 1 }
then = { calls = [{ tool = "pay", arguments = { path = "w/paid", value = 100 } }] }

[[rule]]
when = { agent = "asker", turn = 1 }
then = { calls = [{ tool = "human_ask", arguments = { title = "The order", expires = 3600, asks = [
    { id = "size", type = "choice", prompt = "Which size?", choices = ["S", "L"] },
    { id = "sure", type = "approval", prompt = "Are you sure?" },
] } }] }

[[rule]]
when = { agent = "boss", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "echo", input = "help", wait = 5000 } }] }

[[rule]]
when = { agent = "broken" }
then = { fault = "bad_request" }

[[rule]]
then = { text = "told: {{tool_result}}" }
"#;

/// The console of a venue without tokens, with a worker.
pub(super) struct Console {
    pub(super) venue: TestVenue,
    pub(super) server: Server,
    _dir: tempfile::TempDir,
}

impl Console {
    pub(super) async fn new() -> Self {
        let (venue, dir) = TestVenue::embedded(RULES).await;
        venue.worker();
        let mut server = Server::of(Arc::clone(&venue.venue)).await;
        server.client = reqwest::Client::builder().redirect(Policy::none()).build().unwrap();
        Self { venue, server, _dir: dir }
    }

    pub(super) async fn page(&self, path: &str) -> String {
        self.server.get(path).await.body(200).as_str().unwrap().to_owned()
    }

    /// Sends a form of a page; the answer leads to this path.
    pub(super) async fn post(&self, path: &str, form: &[(&str, &str)]) -> String {
        let answer = self.answer(path, form).await;
        assert_eq!(answer.status.as_u16(), 303, "{path}: {}", answer.body);
        answer.header("location").to_owned()
    }

    pub(super) async fn answer(&self, path: &str, form: &[(&str, &str)]) -> Answer {
        let fields: Vec<String> =
            form.iter().map(|(name, text)| format!("{name}={}", super::form_text(text))).collect();
        let url = self.server.url.clone();
        let headers = [("origin", url.as_str()), ("content-type", "application/x-www-form-urlencoded")];
        self.server.send(Method::POST, path, &headers, fields.join("&")).await
    }

    /// The page once it has a text.
    pub(super) async fn page_with(&self, path: &str, text: &str) -> String {
        let mut page = String::new();
        for _ in 0..1_000 {
            page = self.page(path).await;
            if page.contains(text) {
                return page;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{path} never has `{text}`: {page}");
    }
}

/// The value of a hidden field.
pub(super) fn hidden_field(page: &str, name: &str) -> String {
    let start = format!("name=\"{name}\" value=\"");
    let rest = page.split_once(start.as_str()).unwrap_or_else(|| panic!("no field `{name}` in {page}")).1;
    let text = rest.split_once('"').unwrap().0;
    text.replace("&#34;", "\"").replace("&#60;", "<").replace("&#62;", ">").replace("&#38;", "&")
}

/// The id of the only approval of a page.
fn approval_path(page: &str) -> String {
    let rest = page.split_once("action=\"/approvals/").unwrap().1;
    format!("/approvals/{}", rest.split_once('"').unwrap().0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_approved_with_the_arguments_of_the_person() {
    let console = Console::new().await;
    let tools = json!({"tools": [{"operation": "v/ops/lattice/append", "name": "pay", "approval": "ask"}]});
    console.venue.agent("payer", tools).await;
    let job = console.post("/agents/payer/tasks", &[("input", "go")]).await;
    let page = console.page_with("/approvals", "v/ops/lattice/append").await;
    let (digest, shown) = (hidden_field(&page, "digest"), hidden_field(&page, "shown"));
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), json!({"path": "w/paid", "value": 100}));
    let edited = shown.replace("100", "7");
    let form = [("digest", digest.as_str()), ("shown", &shown), ("arguments", &edited), ("verdict", "approve")];
    let other = [("digest", "00"), form[1], form[2], form[3]];
    assert_eq!(console.answer(&approval_path(&page), &other).await.status.as_u16(), 409, "of another digest");
    let broken = [form[0], form[1], ("arguments", "{\"value\": 7"), form[3]];
    let again = console.answer(&approval_path(&page), &broken).await.body(400).as_str().unwrap().to_owned();
    assert!(again.contains("Nothing was decided") && again.contains("{&#34;value&#34;: 7</textarea>"), "{again}");
    let answered = console.post(&approval_path(&page), &form).await;
    assert_eq!(answered, "/approvals?answered=%2Fapprovals");
    let calm = console.page(&answered).await;
    assert!(calm.contains("your answer is taken") && !calm.contains("<textarea"), "a second tap meets no form: {calm}");
    console.page_with(&job, "complete").await;
    assert_eq!(console.venue.read("w/paid").await, Some(json!([7])));
    let rejected = [form[0], ("verdict", "reject")];
    assert_eq!(console.answer(&approval_path(&page), &rejected).await.status.as_u16(), 409, "an answer counts once");
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_answered_on_the_page_of_their_job() {
    let console = Console::new().await;
    console.venue.agent("asker", json!({"tools": ["v/ops/human/ask"]})).await;
    let job = console.post("/agents/asker/tasks", &[("input", "go")]).await;
    let page = console.page_with(&job, "Which size?").await;
    let digest = hidden_field(&page, "digest");
    let form = [("digest", digest.as_str()), ("next", &job), ("choice:size", "L"), ("approval:sure", "yes")];
    let form: Vec<_> = form.into_iter().chain([("verdict", "answer")]).collect();
    let answered = console.post(&approval_path(&page), &form).await;
    assert_eq!(answered, format!("/approvals?answered={}", job.replace('/', "%2F")));
    assert!(console.page(&answered).await.contains(&format!("href=\"{job}\"")));
    let page = console.page_with(&job, "complete").await;
    assert!(page.contains("size") && page.contains('L'), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_that_is_sent_twice_is_one_task() {
    let console = Console::new().await;
    console.venue.agent("echo", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
    let key = hidden_field(&console.page("/agents/echo").await, "key");
    let form = [("key", key.as_str()), ("input", "{\"a\": [1]}"), ("session", "s1")];
    let job = console.post("/agents/echo/tasks", &form).await;
    assert_eq!(console.post("/agents/echo/tasks", &form).await, job);
    console.page_with(&job, "complete").await;
    let turns = console.page("/agents/echo?session=s1").await;
    assert!(turns.contains("/agents/echo/turns/s1/1") && !turns.contains("/agents/echo/turns/s1/2"), "{turns}");
    assert_eq!(console.answer("/agents/echo/tasks", &[("input", " ")]).await.status.as_u16(), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_suspended_and_its_job_says_why_it_waits() {
    let console = Console::new().await;
    console.venue.agent("echo", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
    assert_eq!(console.post("/agents/echo/suspend", &[]).await, "/agents/echo");
    assert!(console.page("/agents/echo").await.contains("suspended"));
    let job = console.post("/agents/echo/tasks", &[("input", "go")]).await;
    assert!(console.page_with(&job, "It waits").await.contains("suspended"));
    assert_eq!(console.post(&format!("{job}/pause"), &[]).await, job);
    assert!(console.page(&job).await.contains("paused"));
    console.post(&format!("{job}/resume"), &[]).await;
    console.post("/agents/echo/resume", &[]).await;
    console.page_with(&job, "complete").await;
    assert_eq!(console.answer(&format!("{job}/cancel"), &[]).await.status.as_u16(), 409);
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_grouped_and_driven_again() {
    let console = Console::new().await;
    console.venue.agent("broken", json!({})).await;
    let job = console.post("/agents/broken/tasks", &[("input", "go")]).await;
    console.page_with(&job, "Redrive as a new job").await;
    let failures = console.page("/failures").await;
    assert!(failures.contains("agent=broken&#38;code="), "{failures}");
    let again = console.post(&format!("{job}/redrive"), &[]).await;
    assert_ne!(again, job);
    assert!(console.page(&again).await.contains("Drives again"));
    assert!(console.page_with(&job, "Driven again as").await.contains(&again));
}
