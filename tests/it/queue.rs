//! Messages that lead to nothing are acknowledged and don't come again.

use crate::support::nats;
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use async_nats::jetstream::{self, consumer::PullConsumer};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::nats::NatsBus;
use trellis::bus::{Address, InKind, Message};
use trellis::store::redis::{RedisStore, ServerOrInjected};

struct Fleet {
    venue: TestVenue,
    consumer: PullConsumer,
    _dir: tempfile::TempDir,
}

impl Fleet {
    /// With a worker and an agent `echo`.
    async fn start() -> Option<Self> {
        let (url, server) = (nats::shared()?, RedisServer::shared()?);
        let dir = tempfile::tempdir().unwrap();
        let store = RedisStore::open(server.options(ServerOrInjected::Server)).await.unwrap();
        let mut options = nats::options(&url);
        options.ack_wait = Duration::from_millis(500);
        let bus = NatsBus::open(&options).await.unwrap();
        let venue = TestVenue::new(store, Arc::new(bus), dir.path(), "").await;
        venue.worker().await;
        venue.agent("echo", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
        let context = jetstream::new(async_nats::connect(&url).await.unwrap());
        let stream = options.prefix.to_uppercase();
        let consumer = context.get_consumer_from_stream("workers", stream).await.unwrap();
        Some(Self { venue, consumer, _dir: dir })
    }

    async fn publish(&self, agent: &str, kind: InKind, body: Value) {
        let to = Address::In { owner: self.venue.owner.clone(), agent: agent.parse().unwrap(), kind };
        self.venue.venue.bus.publish(&Message { to, id: None, body }).await.unwrap();
    }

    /// Waits until nothing is left, then longer than a redelivery takes; returns how many
    /// deliveries there were.
    async fn deliveries(&mut self) -> u64 {
        for _ in 0..100 {
            let info = self.consumer.info().await.unwrap();
            if info.num_pending == 0 && info.num_ack_pending == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_millis(700)).await;
        let info = self.consumer.info().await.unwrap();
        assert_eq!((info.num_pending, info.num_ack_pending), (0, 0), "{info:?}");
        info.delivered.consumer_sequence
    }

    /// Nothing waits in any session, and none is due.
    async fn rests(&self) {
        let sessions = self.venue.venue.store.sessions(&self.venue.owner, None, None, 100).await.unwrap();
        for facts in sessions {
            assert!(facts.mailbox.is_empty() && facts.due.is_none(), "{facts:?}");
        }
        assert!(self.venue.model_calls().is_empty(), "{:?}", self.venue.model_calls());
    }
}

fn result(job: &str, session: &str) -> Value {
    json!({"sessionId": session, "job": job.repeat(16), "result": {"status": "COMPLETE", "output": 1}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_that_nobody_awaits_are_settled_once() {
    let Some(mut fleet) = Fleet::start().await else { return };
    fleet.publish("echo", InKind::Result, result("0a", "main")).await;
    fleet.publish("echo", InKind::Result, result("0a", "main")).await;
    fleet.publish("echo", InKind::Result, result("0b", "never-seen")).await;
    fleet.publish("nobody", InKind::Result, result("0c", "main")).await;
    fleet.publish("echo", InKind::Result, json!({"job": 1})).await;
    assert_eq!(fleet.deliveries().await, 5);
    fleet.rests().await;
    // The session works on.
    let submission = trellis::domain::event::Submission {
        input: json!("hi"),
        session_id: Some("main".parse().unwrap()),
        ..Default::default()
    };
    let submitted = fleet.venue.arrive("echo", "t1", true, submission).await;
    let job = fleet.venue.ended(&submitted.job.unwrap()).await;
    assert_eq!(job.result.unwrap().output, Some(json!("hi")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wakes_and_cancels_of_what_is_not_there_are_settled_once() {
    let Some(mut fleet) = Fleet::start().await else { return };
    fleet.publish("echo", InKind::Wake, json!({"session": "never-seen"})).await;
    fleet.publish("nobody", InKind::Wake, json!({"session": "main"})).await;
    fleet.publish("echo", InKind::Wake, json!({"session": "a/b"})).await;
    fleet.publish("echo", InKind::Cancel, json!({"job": "0d".repeat(16)})).await;
    fleet.publish("echo", InKind::Cancel, json!({})).await;
    assert_eq!(fleet.deliveries().await, 5);
    fleet.rests().await;
}
