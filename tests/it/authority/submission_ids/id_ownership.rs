//! An id belongs to a caller and an authority: of anybody else it is a conflict that says nothing.

use super::{LIMIT, On, Site, Way};
use crate::authority::tokens::{issuer, token};
use crate::support::http::{Answer, Server};
use futures::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use trellis::bus::LiveSubject;
use trellis::domain::ids::JobId;
use trellis::domain::job::JobStatus;
use trellis::venue::auth::signing::SigningKey;

const RULES: &str = "[[rule]]\nthen = { text = \"the secret is out\" }\n";

/// Ann's venue, where callers need tokens.
struct Owned {
    site: Site,
    server: Server,
    issuer: SigningKey,
}

/// What Ann's token lets her do, in this order.
fn rights(order: [usize; 3]) -> Value {
    let att =
        [json!({"with": "g", "can": "agent"}), json!({"with": "w", "can": "crud"}), json!({"with": "j", "can": "job"})];
    json!(order.map(|n| att[n].clone()))
}

impl Owned {
    async fn open(on: On) -> Option<Self> {
        let mut site = Site::open(on, RULES).await?;
        let (issuer, auth) = issuer(&site.venue.dir);
        (site.venue.owner, site.venue.auth) = ("acme/ann".parse().unwrap(), Arc::clone(&auth));
        site.venue.agent("a", json!({})).await;
        site.venue.worker();
        let server = Server::with(Arc::clone(&site.venue.venue), auth).await;
        Some(Self { site, server, issuer })
    }

    fn first(&self) -> String {
        token(&self.issuer, "acme/ann", &json!({"att": rights([0, 1, 2]), "jti": "one"}))
    }

    /// A later token of the same subject with the same rights.
    fn renewed(&self) -> String {
        let later = trellis::process::clock::Clock::system().now().0 / 1000 + 7200;
        token(&self.issuer, "acme/ann", &json!({"att": rights([2, 0, 1]), "jti": "two", "exp": later}))
    }

    /// Others who may do the same: with fewer rights, with more, and an operator.
    fn others(&self) -> [String; 3] {
        let fewer = json!([{"with": "g/a", "can": "agent"}, {"with": "w/log", "can": "crud/append"}]);
        [
            token(&self.issuer, "acme/ann", &json!({"att": fewer})),
            token(&self.issuer, "acme/ann", &json!({})),
            token(&self.issuer, "acme/root", &json!({})),
        ]
    }

    async fn post(&self, path: &str, key: &str, token: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer {token}");
        let headers = [("Authorization", bearer.as_str()), ("Idempotency-Key", key), ("X-Trellis-Owner", "acme/ann")];
        self.server.send(Method::POST, &format!("/api/v1/{path}"), &headers, body.to_string()).await
    }
}

/// The same submission again is known under a renewed token; of others it is a conflict, which is the same
/// for the same and for another body.
async fn an_id_is_of_a_caller_and_an_authority(on: On) {
    let Some(owned) = Owned::open(on).await else { return };
    let append =
        |value: u32| json!({"operation": "lattice/append", "input": {"path": "w/log", "value": value}, "wait": true});
    let ask =
        |input: &str| json!({"operation": "agent/request", "input": {"agentId": "a", "input": input, "timeout": 0}});
    let trigger = |after: &str| json!({"operation": "agent/trigger", "input": {"agentId": "a", "input": 1, "after": after, "name": "n"}});
    for (n, (path, same, other)) in [
        ("agents/a/tasks", json!({"input": "x"}), json!({"input": "y"})),
        ("agents/a/messages", json!({"input": "x"}), json!({"input": "y"})),
        ("run", ask("x"), ask("y")),
        ("invoke", ask("x"), ask("y")),
        ("invoke", append(1), append(2)),
        ("run", trigger("20m"), trigger("30m")),
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("k{n}");
        let first = owned.post(path, &key, &owned.first(), &same).await;
        assert!(first.status.is_success(), "{path}: {}", first.body);
        let id = first.body["job"].as_str().or(first.body["id"].as_str()).or(first.body["timer"].as_str()).unwrap();
        let again = owned.post(path, &key, &owned.renewed(), &same).await;
        let known = [&again.body["job"], &again.body["id"], &again.body["timer"]];
        assert!(again.status.is_success() && known.contains(&&json!(id)), "{path}: {}", again.body);
        for token in owned.others() {
            let refused = [&same, &other].map(|body| owned.post(path, &key, &token, body));
            let refused = futures::future::join_all(refused).await;
            refused[0].is_problem(409, "another");
            assert_eq!(refused[0].body, refused[1].body, "{path}");
            // What a message is known by is the key itself.
            assert!(id == key || !refused[0].body.to_string().contains(id), "{path}: {}", refused[0].body);
        }
        owned.post(path, &key, &owned.renewed(), &other).await.is_problem(409, "another");
    }
    // What they may not do they are told before anything is said of who did it.
    let reader = json!({"att": [{"with": "w", "can": "crud/read"}]});
    let reader = token(&owned.issuer, "acme/ann", &reader);
    owned.post("invoke", "k4", &reader, &append(1)).await.is_problem(403, "");
    let log = json!({"operation": "lattice/read", "input": {"path": "w/log"}});
    assert_eq!(owned.post("run", "k9", &owned.first(), &log).await.body(200)["value"], json!([1]), "it ran once");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_is_of_a_caller_and_an_authority_on_the_embedded_store() {
    an_id_is_of_a_caller_and_an_authority(On::Embedded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_is_of_a_caller_and_an_authority_on_redis() {
    an_id_is_of_a_caller_and_an_authority(On::Redis).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_is_of_a_caller_and_an_authority_whichever_way_it_comes() {
    let Some(owned) = Owned::open(On::Nats).await else { return };
    let Way::Queue { context, prefix } = &owned.site.way else { unreachable!() };
    let inbox = format!("trellis.reply.acme.ann.{prefix}");
    let mut answers = owned.site.venue.venue.bus.listen(&LiveSubject::Reply(inbox.clone())).await.unwrap();
    let mut answer = async || -> Value {
        let answer = tokio::time::timeout(LIMIT, answers.next()).await.expect("no answer").unwrap();
        serde_json::from_slice(&answer).unwrap()
    };
    let body = json!({"input": "x", "replyTo": inbox});
    let publish = async |token: &str, body: &Value| {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Trellis-Id", "k1");
        headers.insert("Authorization", format!("Bearer {token}"));
        let subject = format!("{prefix}.in.acme.ann.a.task");
        context.publish_with_headers(subject, headers, body.to_string().into()).await.unwrap().await.unwrap();
    };
    let accepted = owned.post("agents/a/tasks", "k1", &owned.first(), &body).await.body(202);
    let job = JobId::new(accepted["job"].as_str().unwrap()).unwrap();
    assert_eq!(owned.site.venue.ended(&job).await.status, JobStatus::Complete);
    assert_eq!(answer().await["output"], "the secret is out");
    publish(&owned.renewed(), &body).await;
    let again = answer().await;
    assert_eq!((&again["status"], &again["job"]), (&json!("COMPLETE"), &json!(job)), "it is told once more");
    for token in owned.others() {
        for body in [&body, &json!({"input": "y", "replyTo": inbox})] {
            publish(&token, body).await;
            let refused = answer().await;
            assert_eq!((&refused["status"], &refused["errorCode"]), (&json!("REJECTED"), &json!("CONFLICT")));
            assert!(refused.get("job").is_none() && !refused.to_string().contains("secret"), "{refused}");
        }
    }
}
