//! Cards: open, with a tag, for published agents only; more for those who have a token.

use super::client::{A2aClient, Binding};
use super::{Desk, text};
use crate::authority::tokens::{issuer, token};
use crate::support::http::Server;
use reqwest::Method;
use serde_json::json;
use std::sync::Arc;

const CARD: &str = "/a2a/local/me/clerk/.well-known/agent-card.json";

#[tokio::test(flavor = "multi_thread")]
async fn a_published_agent_has_a_card_with_a_tag() {
    let desk = Desk::idle().await;
    let first = desk.server.get(CARD).await;
    assert_eq!(first.header("content-type"), "application/json");
    assert!(first.header("cache-control").contains("max-age") && !first.header("last-modified").is_empty());
    let tag = first.header("etag").to_owned();
    let card = first.body(200);
    let url = format!("{}/a2a/local/me/clerk", desk.server.url);
    for (at, binding) in ["JSONRPC", "HTTP+JSON"].into_iter().enumerate() {
        let expected = json!({"url": url, "protocolBinding": binding, "protocolVersion": "1.0"});
        assert_eq!(card["supportedInterfaces"][at], expected);
    }
    assert_eq!((&card["name"], &card["description"]), (&json!("clerk"), &json!("Answers.")));
    assert_eq!(card["skills"], json!([{"id": "clerk", "name": "clerk", "description": "Answers.", "tags": ["clerk"]}]));
    let capabilities = json!({"streaming": true, "pushNotifications": false, "extendedAgentCard": true});
    assert_eq!(card["capabilities"], capabilities, "the venue calls no host");
    assert!(card.get("securitySchemes").is_none() && card.get("securityRequirements").is_none(), "{card}");
    for (sent, status) in [(tag.as_str(), 304), ("*", 304), ("\"other\"", 200)] {
        let again = desk.server.send(Method::GET, CARD, &[("If-None-Match", sent)], "").await;
        assert_eq!((again.status.as_u16(), again.header("etag")), (status, tag.as_str()), "{sent}");
    }
    desk.venue
        .agent(
            "clerk",
            json!({"description": "Answers twice.", "a2a": {"name": "Clerk", "skills": [
                {"id": "bills", "description": "Reads bills.", "tags": ["money"], "examples": ["Is it due?"]},
            ]}}),
        )
        .await;
    let changed = desk.server.get(CARD).await;
    assert_ne!(changed.header("etag"), tag);
    let card = changed.body(200);
    assert_eq!((&card["name"], &card["skills"][0]["tags"]), (&json!("Clerk"), &json!(["money"])));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unpublished_agent_is_as_unknown_as_none() {
    let desk = Desk::idle().await;
    desk.venue.agent("inner", json!({})).await;
    let mut texts = Vec::new();
    for agent in ["local/me/inner", "local/me/nobody", "local/other/clerk", "local/me/bad%20id"] {
        let answer = desk.server.get(&format!("/a2a/{agent}/.well-known/agent-card.json")).await;
        texts.push(answer.body(404)["error"]["message"].clone());
        let client = A2aClient::new(&desk.server.url, agent, Binding::Rest);
        let refused = client.refused("SendMessage", text("m", "hi")).await;
        assert_eq!((refused.http, refused.domain.as_str()), (404, "trellis"), "{agent}");
    }
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_card_is_open_where_tokens_are_needed() {
    let mut desk = Desk::idle().await;
    desk.venue.owner = "acme/ann".parse().unwrap();
    let schema = json!({"type": "object"});
    let config = json!({"outputs": {"complete": {"schema": schema}}, "a2a": {}});
    desk.venue.agent("clerk", config).await;
    let keys = tempfile::tempdir().unwrap();
    let (issuer, auth) = issuer(keys.path());
    let server = Server::with(Arc::clone(&desk.venue.venue), auth).await;
    let card = server.get("/a2a/acme/ann/clerk/.well-known/agent-card.json").await.body(200);
    assert_eq!(card["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"], "Bearer");
    assert_eq!(card["securityRequirements"][0]["schemes"]["bearer"], json!({"list": []}));
    for binding in super::client::BINDINGS {
        let client = A2aClient::new(&server.url, "acme/ann/clerk", binding);
        for operation in ["GetExtendedAgentCard", "ListTasks", "SendMessage", "SendStreamingMessage"] {
            let refused = client.refused(operation, text("m", "hi")).await;
            assert_eq!((refused.http, refused.reason.as_str()), (401, "UNAUTHENTICATED"), "{operation} {refused:?}");
        }
        let client = client.with_header("Authorization", &format!("Bearer {}", token(&issuer, "acme/ann", &json!({}))));
        let extended = client.ok("GetExtendedAgentCard", json!({})).await;
        assert_eq!(extended["capabilities"]["extensions"][0]["params"]["outputSchema"], schema);
        let bob = format!("Bearer {}", token(&issuer, "acme/bob", &json!({})));
        let refused = client.with_header("Authorization", &bob).refused("ListTasks", json!({})).await;
        assert_eq!((refused.http, refused.reason.as_str()), (403, "PERMISSION_DENIED"), "{refused:?}");
    }
}
