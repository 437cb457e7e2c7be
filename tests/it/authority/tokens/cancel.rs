//! Cancellations in a real queue where callers must send a token.

use super::{issuer, token};
use crate::support::nats;
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use futures::StreamExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::LiveSubject;
use trellis::bus::nats::NatsBus;
use trellis::domain::authority::policy::Revocation;
use trellis::domain::job::JobStatus;
use trellis::store::redis::{RedisStore, ServerOrInjected};
use trellis::venue::policy;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_in_the_queue_needs_a_seal_or_a_permitted_token() {
    let (Some(url), Some(server)) = (nats::shared(), RedisServer::shared()) else { return };
    let dir = tempfile::tempdir().unwrap();
    let store = RedisStore::open(server.options(ServerOrInjected::Server)).await.unwrap();
    let options = nats::options(&url);
    let prefix = options.prefix.clone();
    let bus = NatsBus::open(&options).await.unwrap();
    let mut venue = TestVenue::new(store, Arc::new(bus), dir.path(), "").await;
    let (issuer, auth) = issuer(dir.path());
    (venue.owner, venue.auth) = ("acme/ann".parse().unwrap(), auth);
    venue.worker();
    venue.agent("idle", json!({"model": {"provider": "scripted", "name": "never"}})).await;
    let job = venue.submit("idle", "t1", json!("x")).await.job.unwrap();
    let context = async_nats::jetstream::new(async_nats::connect(&url).await.unwrap());
    let inbox = format!("trellis.reply.acme.ann.{prefix}.cancel");
    let mut answers = venue.venue.bus.listen(&LiveSubject::Reply(inbox.clone())).await.unwrap();
    let publish = async |token: Option<String>, more: Value| {
        let mut body = json!({"job": job, "replyTo": inbox});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut headers = async_nats::HeaderMap::new();
        if let Some(token) = token {
            headers.insert("Authorization", format!("Bearer {token}"));
        }
        let subject = format!("{prefix}.in.acme.ann.idle.cancel");
        context.publish_with_headers(subject, headers, body.to_string().into()).await.unwrap().await.unwrap();
    };
    let may = |sub: &str, more: Value| {
        let mut claims = json!({"att": [{"with": format!("j/{job}"), "can": "job/cancel"}]});
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Some(token(&issuer, sub, &claims))
    };
    let revocation = Revocation {
        id: "r1".into(),
        path: None,
        holder: None,
        grant: Some("lost".into()),
        reason: None,
        by: "test".into(),
        at: venue.venue.now(),
    };
    policy::revoke(&venue.venue, &venue.owner, revocation).await.unwrap().unwrap();
    for (token, more, code) in [
        (None, json!({}), "UNAUTHENTICATED"),
        (may("acme/ann", json!({"exp": 1})), json!({}), "UNAUTHENTICATED"),
        (may("acme/ann", json!({"jti": "lost"})), json!({}), "UNAUTHENTICATED"),
        (may("acme/bob", json!({})), json!({}), "CAP_DENIED"),
        (may("acme/ann", json!({"att": [{"with": "j/0", "can": "job/cancel"}]})), json!({}), "CAP_DENIED"),
        (may("acme/ann", json!({"att": [{"with": "j", "can": "job/pause"}]})), json!({}), "CAP_DENIED"),
        (may("acme/ann", json!({})), json!({"seal": "00".repeat(32)}), "FORGED"),
    ] {
        publish(token, more).await;
        let answer = tokio::time::timeout(Duration::from_mins(1), answers.next()).await.unwrap().unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!((&answer["status"], &answer["errorCode"]), (&json!("REJECTED"), &json!(code)), "{answer}");
        let now = trellis::venue::jobs::get(&venue.venue, &venue.owner, &job).await.unwrap().unwrap();
        assert!(!now.status.is_terminal(), "{code}: {:?}", now.status);
    }
    publish(may("acme/ann", json!({})), json!({})).await;
    assert_eq!(venue.ended(&job).await.status, JobStatus::Cancelled);
    // The venue's own, which no token is with.
    let job = venue.submit("idle", "t2", json!("x")).await.job.unwrap();
    let head = trellis::venue::jobs::get(&venue.venue, &venue.owner, &job).await.unwrap().unwrap().head;
    venue
        .venue
        .relay(&venue.owner, &[trellis::venue::outbox::cancel_entry(&venue.venue.key, &venue.owner, &head, "enough")])
        .await;
    assert_eq!(venue.ended(&job).await.status, JobStatus::Cancelled);
}
