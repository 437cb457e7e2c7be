//! Operators act for every owner: what is taken back of their tokens is taken back everywhere.

use super::{issuer, token};
use crate::support::both_stores::{On, on_both};
use crate::support::http::Server;
use crate::support::venue::TestVenue;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use trellis::domain::ids::JobId;
use trellis::domain::job::{ErrorCode, JobStatus};
use trellis::process::clock::Clock;
use trellis::venue::auth::signing::SigningKey;

struct Site {
    venue: TestVenue,
    server: Server,
    issuer: SigningKey,
    _dir: tempfile::TempDir,
}

impl Site {
    /// A site of `acme/ann`, with an agent and no worker yet.
    async fn open(on: On) -> Option<Self> {
        let (mut venue, dir) = on.venue("[[rule]]\nthen = { text = \"paid\" }\n", Clock::system()).await?;
        let (issuer, auth) = issuer(dir.path());
        (venue.owner, venue.auth) = ("acme/ann".parse().unwrap(), Arc::clone(&auth));
        venue.agent("clerk", json!({})).await;
        let server = Server::with(Arc::clone(&venue.venue), auth).await;
        Some(Self { venue, server, issuer, _dir: dir })
    }

    async fn send(&self, path: &str, token: &str, owner: &str, body: &Value) -> Value {
        let bearer = format!("Bearer {token}");
        let headers = [("Authorization", bearer.as_str()), ("X-Trellis-Owner", owner)];
        let answer = self.server.send(Method::POST, &format!("/api/v1/{path}"), &headers, body.to_string()).await;
        assert!(answer.status.is_success(), "{path}: {}", answer.body);
        answer.body
    }

    async fn task(&self, token: &str) -> JobId {
        let sent = self.send("agents/clerk/tasks", token, "acme/ann", &json!({"input": "go"})).await;
        sent["job"].as_str().unwrap().parse().unwrap()
    }
}

async fn a_revoked_operator_token_starts_nothing_for_other_owners(on: On) {
    let Some(site) = Site::open(on).await else { return };
    let operator = |jti: &str| token(&site.issuer, "acme/root", &json!({"jti": jti}));
    let (leaked, kept) = (operator("leaked"), operator("kept"));
    // Accepted before the revocation, and started after it.
    let (under_leaked, under_kept) = (site.task(&leaked).await, site.task(&kept).await);
    let revoke = json!({"operation": "policy/revoke", "input": {"grant": "leaked"}});
    assert_eq!(site.send("run", &kept, "acme/root", &revoke).await["everyOwner"], true);
    site.venue.worker();
    let denied = site.venue.ended(&under_leaked).await;
    assert_eq!(denied.result.unwrap().error_code, Some(ErrorCode::CapDenied));
    assert_eq!(site.venue.ended(&under_kept).await.status, JobStatus::Complete);
}

async fn an_operators_revocation_for_one_owner_stays_there(on: On) {
    let Some(site) = Site::open(on).await else { return };
    let root = token(&site.issuer, "acme/root", &json!({"jti": "root"}));
    for holder in ["agent:clerk", "acme/ann"] {
        let revoke = json!({"operation": "policy/revoke", "input": {"holder": holder}});
        for owner in ["acme/bob", "acme/root"] {
            assert_eq!(site.send("run", &root, owner, &revoke).await["everyOwner"], false, "{holder}");
        }
    }
    let job = site.task(&token(&site.issuer, "acme/ann", &json!({}))).await;
    site.venue.worker();
    assert_eq!(site.venue.ended(&job).await.status, JobStatus::Complete);
}

on_both! {
    a_revoked_operator_token_starts_nothing_for_other_owners
    an_operators_revocation_for_one_owner_stays_there
}
