//! The venue as a server of the Agent2Agent protocol, from outside: raw JSON in both bindings.

mod cards;
mod client;
mod conversations;
mod fleet;
mod kit;
mod narrow;
mod notifications;
mod repeated;
mod refusals;
mod sdk;
mod streams;
mod tasks;

use crate::support::http::Server;
use crate::support::venue::TestVenue;
use client::{A2aClient, Binding};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const RULES: &str = r#"
[[rule]]
when = { agent = "asker", turn = 1 }
then = { text = "One question.", calls = [{ tool = "human_ask", arguments = { title = "The order", expires = 3600, asks = [
    { id = "size", type = "choice", prompt = "Which size?", choices = ["S", "L"] },
] } }] }

[[rule]]
when = { agent = "curious", turn = 1 }
then = { calls = [{ tool = "human_ask", arguments = { title = "Question 1", asks = [
    { id = "one", type = "text", prompt = "Question 1" },
] } }] }

[[rule]]
when = { agent = "curious", turn = 2 }
then = { calls = [{ tool = "human_ask", arguments = { title = "Question 2", asks = [
    { id = "two", type = "text", prompt = "Question 2" },
] } }] }

[[rule]]
when = { agent = "payer", turn = 1 }
then = { calls = [{ tool = "pay", arguments = { path = "w/paid", value = 100 } }] }

[[rule]]
when = { agent = "slow" }
then = { text = "late", delay_ms = 3000 }

[[rule]]
when = { agent = "never" }
then = { fault = "hang" }

[[rule]]
when = { agent = "broken" }
then = { fault = "bad_request" }

[[rule]]
when = { agent = "whole", text = "as message" }
then = { text = '{"message":{"parts":[{"text":"no task needed"}]}}' }

[[rule]]
when = { agent = "whole" }
then = { text = '{"parts":[{"text":"a"},{"data":{"b":1}},{"url":"https://example.com/c.txt","filename":"c.txt"}]}' }

[[rule]]
when = { turn = 2 }
then = { text = "got {{tool_result}}" }

[[rule]]
then = { text = "echo {{input}}" }
"#;

/// Agents of the tests with what is special about each.
fn agents() -> [(&'static str, Value); 8] {
    [
        ("clerk", json!({"description": "Answers.", "a2a": {}})),
        ("asker", json!({"tools": ["v/ops/human/ask"], "a2a": {}})),
        ("curious", json!({"tools": ["v/ops/human/ask"], "a2a": {}})),
        (
            "payer",
            json!({"tools": [{"operation": "v/ops/lattice/append", "name": "pay", "approval": "ask"}], "a2a": {}}),
        ),
        ("slow", json!({"a2a": {}})),
        ("never", json!({"a2a": {}})),
        ("broken", json!({"a2a": {}})),
        ("whole", json!({"a2a": {"wholeMessages": true}})),
    ]
}

/// A venue with a worker and an API, and its published agents.
struct Desk {
    venue: TestVenue,
    server: Server,
    _dir: tempfile::TempDir,
}

impl Desk {
    async fn open() -> Self {
        let desk = Self::idle().await;
        desk.venue.worker();
        desk
    }

    /// The same before its worker starts.
    async fn idle() -> Self {
        let (mut venue, dir) = TestVenue::embedded(RULES).await;
        venue.sweep = Duration::from_millis(100);
        for (id, config) in agents() {
            venue.agent(id, config).await;
        }
        let server = Server::of(Arc::clone(&venue.venue)).await;
        Self { venue, server, _dir: dir }
    }

    fn client(&self, agent: &str, binding: Binding) -> A2aClient {
        A2aClient::new(&self.server.url, &format!("local/me/{agent}"), binding)
    }
}

/// A message of one text.
fn text(id: &str, text: &str) -> Value {
    json!({"message": {"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]}})
}

/// The same as an answer to a task.
fn answer(id: &str, task: &Value, said: &str) -> Value {
    let mut message = text(id, said);
    message["message"]["taskId"] = task.clone();
    message
}

/// The same, answered before its task has ended.
fn at_once(mut message: Value) -> Value {
    message["configuration"] = json!({"returnImmediately": true});
    message
}

/// Waits until a task has this state.
async fn becomes(client: &A2aClient, task: &Value, state: &str) -> Value {
    for _ in 0..3_000 {
        let found = client.ok("GetTask", json!({"id": task})).await;
        if found["status"]["state"] == state {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("task {task} is never {state}: {}", client.ok("GetTask", json!({"id": task})).await);
}
