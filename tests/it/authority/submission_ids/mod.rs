//! Ids of submissions: whose they are, and which nobody but the venue can use.

mod id_ownership;
mod reserved_ids;

use crate::support::http::Server;
use crate::support::nats;
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use async_nats::jetstream;
use futures::StreamExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::LiveSubject;
use trellis::bus::nats::NatsBus;
use trellis::process::clock::Clock;
use trellis::store::redis::{RedisStore, ServerOrInjected};

/// Longest wait for what must come.
const LIMIT: Duration = Duration::from_mins(1);

/// Over what, and by which entrance.
#[derive(Debug, Clone, Copy)]
enum On {
    /// HTTP, the embedded store.
    Embedded,
    /// HTTP, Redis.
    Redis,
    /// NATS, Redis.
    Nats,
}

enum Way {
    Http(Server),
    Queue { context: jetstream::Context, prefix: String },
}

/// A venue with a worker, as those outside reach it.
struct Site {
    venue: TestVenue,
    way: Way,
    _dir: tempfile::TempDir,
}

impl Site {
    /// `None` without a server for it.
    async fn open(on: On, rules: &str) -> Option<Self> {
        let (venue, dir, way) = match on {
            On::Embedded => {
                let (venue, dir) = TestVenue::embedded(rules).await;
                (venue, dir, None)
            }
            On::Redis => {
                let (venue, dir, _) = TestVenue::redis_at(RedisServer::shared()?, rules, Clock::system()).await;
                (venue, dir, None)
            }
            On::Nats => {
                let (url, server) = (nats::shared()?, RedisServer::shared()?);
                let dir = tempfile::tempdir().unwrap();
                let store = RedisStore::open(server.options(ServerOrInjected::Server)).await.unwrap();
                let options = nats::options(&url);
                let prefix = options.prefix.clone();
                let bus = NatsBus::open(&options).await.unwrap();
                let venue = TestVenue::new(store, Arc::new(bus), dir.path(), rules).await;
                let context = jetstream::new(async_nats::connect(&url).await.unwrap());
                (venue, dir, Some(Way::Queue { context, prefix }))
            }
        };
        let way = match way {
            Some(way) => way,
            None => Way::Http(Server::of(Arc::clone(&venue.venue)).await),
        };
        Some(Self { venue, way, _dir: dir })
    }

    /// Sends a submission under this id. What is refused at once is the error; over the queue nothing is.
    async fn send(&self, kind: &str, agent: &str, id: &str, body: &Value) -> Result<(), String> {
        match &self.way {
            Way::Http(server) => {
                let answer = server.post_once(id, &format!("/api/v1/agents/{agent}/{kind}s"), body.clone()).await;
                if answer.status.is_success() { Ok(()) } else { Err(answer.body["error"].to_string()) }
            }
            Way::Queue { context, prefix } => {
                let mut headers = async_nats::HeaderMap::new();
                headers.insert("Trellis-Id", id);
                let subject = format!("{prefix}.in.local.me.{agent}.{kind}");
                let sent = context.publish_with_headers(subject, headers, body.to_string().into());
                sent.await.unwrap().await.unwrap();
                Ok(())
            }
        }
    }

    /// Sends a submission that must be refused, for this reason.
    async fn refused(&self, kind: &str, agent: &str, id: &str, reason: &str) {
        let body = |inbox: &str| json!({"input": "x", "replyTo": inbox});
        self.refuses(kind, agent, id, body, reason).await;
    }

    /// The same with what it says, told where to.
    async fn refuses(&self, kind: &str, agent: &str, id: &str, body: impl FnOnce(&str) -> Value, reason: &str) {
        let inbox = format!("_INBOX.{}.refused", uuid::Uuid::now_v7().simple());
        let mut answers = self.venue.venue.bus.listen(&LiveSubject::Reply(inbox.clone())).await.unwrap();
        let body = body(&inbox);
        let error = if let Err(error) = self.send(kind, agent, id, &body).await {
            error
        } else {
            assert!(matches!(self.way, Way::Queue { .. }), "{kind} {id} was taken");
            let answer = tokio::time::timeout(LIMIT, answers.next()).await.expect("it is not refused").unwrap();
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            assert_eq!(answer["status"], "REJECTED", "{answer}");
            answer["error"].to_string()
        };
        assert!(error.contains(reason), "expected `{reason}` in {error}");
    }

    /// Waits until the model is called for an agent.
    async fn until_asked(&self, agent: &str) {
        let part = format!("/{agent}/");
        let of = |call: &Value| call["turn"].as_str().is_some_and(|turn| turn.contains(&part));
        until(&format!("{agent} is asked"), async || self.venue.model_calls().iter().any(of)).await;
    }
}

async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let start = std::time::Instant::now();
    while !done().await {
        assert!(start.elapsed() < LIMIT, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Stamps every case on every entrance and store.
macro_rules! everywhere {
    ($($case:ident)*) => {
        mod embedded {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    super::$case(super::On::Embedded).await;
                }
            )*
        }
        mod redis {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    super::$case(super::On::Redis).await;
                }
            )*
        }
        mod nats {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    super::$case(super::On::Nats).await;
                }
            )*
        }
    };
}
use everywhere;
