//! What the queue makes of messages, seen from its stream: nothing comes twice, nothing stays.

use crate::support::http::Server;
use crate::support::nats;
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use async_nats::jetstream::{self, consumer::PullConsumer};
use futures::StreamExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::LiveSubject;
use trellis::bus::nats::NatsBus;
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::quota::QuotaKind;
use trellis::domain::seal;
use trellis::store::redis::{RedisStore, ServerOrInjected};
use trellis::venue::jobs;
use trellis::venue::quotas;

struct Fleet {
    venue: TestVenue,
    consumer: PullConsumer,
    /// Completions and refusals.
    out: jetstream::stream::Stream,
    _dir: tempfile::TempDir,
}

impl Fleet {
    /// With a worker and an agent `echo`.
    async fn start() -> Option<Self> {
        let (url, server) = (nats::shared()?, RedisServer::shared()?);
        let dir = tempfile::tempdir().unwrap();
        let store = RedisStore::open(server.options(ServerOrInjected::Server)).await.unwrap();
        let options = nats::options(&url);
        let bus = NatsBus::open(&options).await.unwrap();
        let venue = TestVenue::new(store, Arc::new(bus), dir.path(), "").await;
        venue.worker();
        venue.agent("echo", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
        let context = jetstream::new(async_nats::connect(&url).await.unwrap());
        let stream = options.prefix.to_uppercase();
        let consumer = context.get_consumer_from_stream("workers", &stream).await.unwrap();
        let out = context.get_stream(format!("{stream}_OUT")).await.unwrap();
        Some(Self { venue, consumer, out, _dir: dir })
    }

    async fn publish(&self, agent: &str, kind: InboundKind, body: Value) {
        self.publish_as(None, agent, kind, body).await;
    }

    /// What the venue alone sends is under its seal.
    async fn publish_as(&self, id: Option<&str>, agent: &str, kind: InboundKind, body: Value) {
        let to = MessageAddress::In { owner: self.venue.owner.clone(), agent: agent.parse().unwrap(), kind };
        let id = id.map(str::to_owned);
        let message = seal::seal_message(&self.venue.venue.key, BusMessage { to, id, body, trace: None });
        self.venue.venue.bus.publish(&message).await.unwrap();
    }

    /// Subjects of everything that went out, without what all begin with.
    async fn sent(&self) -> Vec<String> {
        let last = self.out.get_info().await.unwrap().state.last_sequence;
        let mut sent = Vec::new();
        for sequence in 1..=last {
            let subject = self.out.get_raw_message(sequence).await.unwrap().subject;
            sent.push(subject.split_once(".out.local.me.").unwrap().1.to_owned());
        }
        sent
    }

    /// Waits until nothing is left, so that nothing can come again; returns how many deliveries
    /// there were.
    async fn deliveries(&mut self) -> u64 {
        for _ in 0..3000 {
            let info = self.consumer.info().await.unwrap();
            if info.num_pending == 0 && info.num_ack_pending == 0 {
                return info.delivered.consumer_sequence;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("something is still in the queue: {:?}", self.consumer.info().await);
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
    fleet.publish("echo", InboundKind::Result, result("0a", "main")).await;
    fleet.publish("echo", InboundKind::Result, result("0a", "main")).await;
    fleet.publish("echo", InboundKind::Result, result("0b", "never-seen")).await;
    fleet.publish("nobody", InboundKind::Result, result("0c", "main")).await;
    fleet.publish("echo", InboundKind::Result, json!({"job": 1})).await;
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
    fleet.publish("echo", InboundKind::Wake, json!({"session": "never-seen"})).await;
    fleet.publish("nobody", InboundKind::Wake, json!({"session": "main"})).await;
    fleet.publish("echo", InboundKind::Wake, json!({"session": "a/b"})).await;
    fleet.publish("echo", InboundKind::Cancel, json!({"job": "0d".repeat(16)})).await;
    fleet.publish("echo", InboundKind::Cancel, json!({})).await;
    assert_eq!(fleet.deliveries().await, 5);
    fleet.rests().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_submission_by_three_ways_is_one_job() {
    let Some(mut fleet) = Fleet::start().await else { return };
    fleet.venue.agent("other", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
    let server = Server::of(Arc::clone(&fleet.venue.venue)).await;
    let task = server.post_once("k", "/api/v1/agents/echo/tasks?wait=60000", json!({"input": "hi"})).await.body(202);
    assert_eq!(task["status"], "COMPLETE");
    let request = |agent: &str| json!({"agentId": agent, "input": "hi"});
    let invoke = json!({"operation": "v/ops/agent/request", "input": request("echo")});
    let invoked = server.post_once("k", "/api/v1/invoke", invoke).await;
    assert_eq!((invoked.status.is_success(), &invoked.body["id"]), (true, &task["job"]), "{}", invoked.body);
    let run =
        server.post_once("k", "/api/v1/run", json!({"operation": "v/ops/agent/request", "input": request("echo")}));
    assert_eq!(run.await.body(200)["output"], "hi");
    fleet.publish_as(Some("k"), "echo", InboundKind::Task, json!({"input": "hi"})).await;
    fleet.deliveries().await;
    let job = format!("echo.{}", task["job"].as_str().unwrap());
    assert_eq!(fleet.sent().await, [job.as_str()], "one completion and no conflict");
    // To another agent, or as a message, it is another submission.
    let path = "/api/v1/agents/other/tasks";
    server.post_once("k", path, json!({"input": "hi"})).await.is_problem(409, "accepted before with another body");
    let path = "/api/v1/agents/echo/messages";
    server.post_once("k", path, json!({"input": "hi"})).await.is_problem(409, "accepted before with another body");
    fleet.publish_as(Some("k"), "other", InboundKind::Task, json!({"input": "hi"})).await;
    fleet.publish_as(Some("k"), "echo", InboundKind::Message, json!({"input": "hi"})).await;
    fleet.deliveries().await;
    let mut sent = fleet.sent().await;
    sent.sort();
    assert_eq!(sent, [job.as_str(), "echo.k", "other.k"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_over_quota_is_answered_and_leaves_the_queue() {
    let Some(fleet) = Fleet::start().await else { return };
    let (venue, owner) = (Arc::clone(&fleet.venue.venue), fleet.venue.owner.clone());
    quotas::set_limits(&venue, &owner, &[(QuotaKind::Documents, Some(1))]).await.unwrap();
    let mut answers = venue.bus.listen(&LiveSubject::Reply("_INBOX.queue.quota".into())).await.unwrap();
    let body = json!({"input": "x", "replyTo": "_INBOX.queue.quota"});
    fleet.publish_as(Some("t1"), "echo", InboundKind::Task, body.clone()).await;
    let answer = tokio::time::timeout(Duration::from_mins(1), answers.next()).await.unwrap().unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!((&answer["status"], &answer["errorCode"]), (&json!("REJECTED"), &json!("QUOTA_EXCEEDED")), "{answer}");
    fleet.rests().await;
    assert_eq!(jobs::list(&venue, &owner, 0, 10).await.unwrap().total, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_refused_by_a_busy_agent_may_be_sent_again() {
    let Some(mut fleet) = Fleet::start().await else { return };
    let agent = json!({"model": {"provider": "scripted", "name": "never"}, "busy": "reject"});
    fleet.venue.agent("busy", agent).await;
    let body = json!({"input": "x", "sessionId": "s"});
    let first = fleet.venue.arrive("busy", "t1", true, serde_json::from_value(body.clone()).unwrap()).await;
    let listen = LiveSubject::Reply("_INBOX.queue.refused".into());
    let mut answers = fleet.venue.venue.bus.listen(&listen).await.unwrap();
    let body = json!({"input": "x", "sessionId": "s", "replyTo": "_INBOX.queue.refused"});
    let (venue, owner) = (Arc::clone(&fleet.venue.venue), fleet.venue.owner.clone());
    let jobs_listed = async || jobs::list(&venue, &owner, 0, 10).await.unwrap().total;
    for _ in 0..2 {
        fleet.publish_as(Some("t2"), "busy", InboundKind::Task, body.clone()).await;
        let answer = tokio::time::timeout(Duration::from_mins(1), answers.next()).await.unwrap().unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!((&answer["status"], &answer["errorCode"]), (&json!("REJECTED"), &json!("REFUSED")), "{answer}");
        assert_eq!(jobs_listed().await, 1, "the refusal stands in no one's way");
    }
    jobs::cancel(&venue, &owner, first.job.as_ref().unwrap(), None).await.unwrap();
    fleet.deliveries().await;
    fleet.publish_as(Some("t2"), "busy", InboundKind::Task, body.clone()).await;
    for _ in 0..3000 {
        if jobs_listed().await == 2 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the free agent did not take the task");
}
