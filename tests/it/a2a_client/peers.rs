//! Two venues: an agent of one gives work to an agent of the other.

use super::{CallerSite, partner_agent, told};
use crate::support::http::Server;
use crate::support::venue::{TestVenue, all_jobs};
use serde_json::json;
use std::sync::Arc;

/// Agents of the other venue: one answers, one asks first.
const OTHER: &str = r#"
[[rule]]
when = { agent = "asker", turn = 1 }
then = { calls = [{ tool = "human_ask", arguments = { title = "The order", expires = 3600, asks = [
    { id = "size", type = "choice", prompt = "Which size?", choices = ["S", "L"] },
] } }] }

[[rule]]
when = { turn = 2 }
then = { text = "got {{tool_result}}" }

[[rule]]
then = { text = "echo {{input}}" }
"#;

/// The other venue, with its API.
async fn other() -> (TestVenue, Server, tempfile::TempDir) {
    let (venue, dir) = TestVenue::embedded(OTHER).await;
    venue.agent("echo", json!({"description": "Echoes.", "a2a": {}})).await;
    venue.agent("asker", json!({"tools": ["v/ops/human/ask"], "a2a": {}})).await;
    venue.worker();
    let server = Server::of(Arc::clone(&venue.venue)).await;
    (venue, server, dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_another_venue_does_the_work() {
    let (there, server, _dir) = other().await;
    let site = CallerSite::new().await;
    let url = format!("{}/a2a/local/me/echo", server.url);
    site.venue.agent("clerk", partner_agent(&url, json!({"timeout": 10, "repeatable": true}))).await;
    let said = told(&site.venue.run("clerk", "t1", json!("a coffee")).await);
    assert!(said.contains("echo a coffee"), "{said}");
    assert_eq!(all_jobs(&there.venue, &there.owner).await.len(), 1, "one task");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_of_another_venue_reaches_the_model() {
    let (_there, server, _dir) = other().await;
    let site = CallerSite::new().await;
    let url = format!("{}/a2a/local/me/asker", server.url);
    site.venue.agent("clerk", partner_agent(&url, json!({"timeout": 10}))).await;
    let said = told(&site.venue.run("clerk", "t1", json!("a coffee")).await);
    assert!(said.contains("Which size?") && said.contains("input-required"), "{said}");
}
