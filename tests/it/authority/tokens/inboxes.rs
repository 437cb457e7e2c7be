//! Where answers go, in a real queue where callers must send a token: to no inbox that is somebody else's.

use super::{issuer, token};
use crate::support::nats;
use crate::support::venue::TestVenue;
use futures::StreamExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::nats::NatsBus;
use trellis::store::embedded::EmbeddedStore;
use trellis::venue::auth::signing::SigningKey;

const LIMIT: Duration = Duration::from_mins(1);

/// A venue that requires tokens, with an agent `clerk` of `acme/ann`, on a real queue.
struct Site {
    venue: TestVenue,
    issuer: SigningKey,
    /// First token of its subjects.
    prefix: String,
    _dir: tempfile::TempDir,
}

impl Site {
    async fn start(url: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = nats::options(url);
        let prefix = options.prefix.clone();
        let store = EmbeddedStore::open(dir.path()).unwrap();
        let bus = NatsBus::open(&options).await.unwrap();
        let rules = "[[rule]]\nthen = { text = \"done\" }\n";
        let mut venue = TestVenue::new(store, Arc::new(bus), dir.path(), rules).await;
        let (issuer, auth) = issuer(dir.path());
        (venue.owner, venue.auth) = ("acme/ann".parse().unwrap(), auth);
        venue.worker();
        venue.agent("clerk", json!({})).await;
        Self { venue, issuer, prefix, _dir: dir }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_goes_where_its_sender_may_not_read() {
    let Some(url) = nats::shared() else { return };
    let Site { venue, issuer, prefix, _dir } = Site::start(&url).await;
    let client = async_nats::connect(&url).await.unwrap();
    let context = async_nats::jetstream::new(client.clone());
    // Everybody's, another user's, and one that is no inbox at all.
    let others = [format!("_INBOX.{prefix}.1"), format!("trellis.reply.acme.bob.{prefix}"), format!("heard.{prefix}")];
    let mut heard = futures::stream::SelectAll::new();
    for other in &others {
        heard.push(client.subscribe(other.clone()).await.unwrap());
    }
    let own = format!("trellis.reply.acme.ann.{prefix}");
    let mut answers = client.subscribe(own.clone()).await.unwrap();
    client.flush().await.unwrap();
    let ann = token(&issuer, "acme/ann", &json!({}));
    let publish = async |end: &str, token: Option<&str>, body: Value| {
        let mut headers = async_nats::HeaderMap::new();
        if let Some(token) = token {
            headers.insert("Authorization", format!("Bearer {token}"));
        }
        let subject = format!("{prefix}.in.acme.ann.{end}");
        context.publish_with_headers(subject, headers, body.to_string().into()).await.unwrap().await.unwrap();
    };
    let sends = [
        ("%ff.task", None, json!({"input": "x"}), "REFUSED"),
        ("clerk.task", None, json!({"input": "x"}), "UNAUTHENTICATED"),
        ("clerk.task", Some(ann.as_str()), json!({"inptu": "x"}), "REFUSED"),
        ("clerk.wake", None, json!({"session": 5}), "REFUSED"),
        ("clerk.result", None, json!({"job": "0"}), "FORGED"),
    ];
    for (end, token, body, code) in sends {
        for to in others.iter().chain([&own]) {
            let mut body = body.clone();
            body["replyTo"] = to.as_str().into();
            publish(end, token, body).await;
        }
        let answer = tokio::time::timeout(LIMIT, answers.next()).await.unwrap().unwrap();
        let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
        assert_eq!((&answer["status"], &answer["errorCode"]), (&json!("REJECTED"), &json!(code)), "{end} {answer}");
    }
    // Whoever is known is told at once that an inbox isn't theirs: nothing is begun for it.
    for to in &others {
        publish("clerk.task", Some(&ann), json!({"input": "x", "replyTo": to})).await;
    }
    publish("clerk.task", Some(&ann), json!({"input": "x", "replyTo": own})).await;
    let answer = tokio::time::timeout(LIMIT, answers.next()).await.unwrap().unwrap();
    let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
    assert_eq!(answer["status"], "COMPLETE", "{answer}");
    let jobs = trellis::venue::jobs::list(&venue.venue, &venue.owner, 0, 100).await.unwrap().items;
    assert_eq!(jobs.len(), 1, "only the one that says an inbox of its own: {jobs:?}");
    let wrong = tokio::time::timeout(Duration::from_millis(500), heard.next()).await;
    assert!(wrong.is_err(), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_about_an_unseen_job_tells_nothing() {
    let Some(url) = nats::shared() else { return };
    let Site { venue, issuer, prefix, _dir } = Site::start(&url).await;
    let job = venue.submit("clerk", "t1", json!("go")).await.job.unwrap();
    venue.ended(&job).await;
    let client = async_nats::connect(&url).await.unwrap();
    let ask = async |rights: &Value, id: &str| {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Authorization", format!("Bearer {}", token(&issuer, "acme/ann", rights)));
        for n in 0..600 {
            let own = format!("trellis.reply.acme.ann.{prefix}.{id}.{n}");
            let mut answers = client.subscribe(own.clone()).await.unwrap();
            let (subject, body) = (format!("{prefix}.ask.acme.ann"), id.to_owned().into());
            client.publish_with_reply_and_headers(subject, own, headers.clone(), body).await.unwrap();
            // While the worker doesn't listen yet, the server answers without a payload.
            match tokio::time::timeout(Duration::from_secs(5), answers.next()).await {
                Ok(Some(answer)) if !answer.payload.is_empty() => {
                    return serde_json::from_slice::<Value>(&answer.payload).unwrap();
                }
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        panic!("no answer about `{id}`");
    };
    let seen = ask(&json!({}), "t1").await;
    assert_eq!((&seen["status"], &seen["job"]), (&json!("COMPLETE"), &json!(job)), "{seen}");
    let narrow = json!({"att": [{"with": "g/other", "can": "agent/request"}]});
    let unknown = ask(&narrow, "never-sent").await;
    assert_eq!(unknown["status"], "PENDING", "{unknown}");
    assert_eq!(ask(&narrow, "t1").await, unknown);
}
