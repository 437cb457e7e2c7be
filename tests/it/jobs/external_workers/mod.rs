//! Jobs of external workers: published once, watched, answered by right of their token, ended once.

mod answers;
mod declared;
mod fleet;
mod publishing;
mod revocations;
mod times;

use crate::support::both_stores::On;
use crate::support::venue::{TestVenue, job_record};
use crate::support::{nats, redis};
use async_nats::jetstream::{self, AckKind, consumer::PullConsumer, consumer::pull};
use futures::StreamExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::nats::NatsBus;
use trellis::domain::ids::JobId;
use trellis::domain::job::{Job, JobStatus};
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::store::Store;
use trellis::store::embedded::EmbeddedStore;
use trellis::venue::jobs;

/// 2026-01-01T00:00:00Z.
const START: Millis = Millis(1_767_225_600_000);

/// The clerk publishes its input and ends when the result is there.
const RULES: &str = r#"
[[rule]]
when = { agent = "clerk", turn = 1 }
then = { calls = [{ tool = "queue_publish", arguments = { queue = "{{input.queue}}", input = "{{input.input}}", wait = "{{input.wait}}", startTimeout = "{{input.startTimeout}}", heartbeatTimeout = "{{input.heartbeatTimeout}}", deadline = "{{input.deadline}}" } }] }

[[rule]]
when = { agent = "seller", turn = 1 }
then = { calls = [
    { tool = "queue_publish", arguments = { queue = "ocr", input = 1, wait = 0 } },
    { tool = "lattice_write", arguments = { path = "w/out", value = 1 } },
    { tool = "test_delay", arguments = { delay = 2500 } },
] }

[[rule]]
when = { agent = "reader", turn = 1 }
then = { calls = [{ tool = "ocr", arguments = { file = "a.pdf" } }] }

[[rule]]
when = { text = "held-", turn = 1 }
then = { delay_ms = 6000, calls = [{ tool = "queue_publish", arguments = { queue = "{{input}}", input = "do it", wait = 0 } }] }

[[rule]]
when = { text = "COMPLETE" }
then = { text = "the worker is done" }

[[rule]]
when = { text = "FAILED" }
then = { text = "the worker is not done" }

[[rule]]
when = { tool_result = "\"FAILED\"" }
then = { text = "it failed at once" }

[[rule]]
then = { text = "done" }
"#;

/// A venue on the shared NATS server, a worker, the agent `clerk`, and an external worker.
struct Office {
    venue: TestVenue,
    context: jetstream::Context,
    prefix: String,
    client: async_nats::Client,
    _dir: tempfile::TempDir,
}

impl Office {
    async fn open() -> Option<Self> {
        Self::at(Clock::system()).await
    }

    /// By a clock that stands until it is moved.
    async fn manual() -> Option<Self> {
        Self::at(Clock::manual(START)).await
    }

    async fn at(clock: Clock) -> Option<Self> {
        Self::on(On::Embedded, &nats::shared()?, clock).await
    }

    /// Over this store and this NATS.
    async fn on(on: On, url: &str, clock: Clock) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let options = nats::options(url);
        let bus = NatsBus::open(&options).await.unwrap();
        let store: Arc<dyn Store> = match on {
            On::Embedded => EmbeddedStore::open(dir.path()).unwrap(),
            On::Redis => redis::store().await?,
        };
        let venue = TestVenue::at(store, Arc::new(bus), dir.path(), RULES, clock).await;
        venue.agent("clerk", json!({"tools": ["v/ops/queue/publish"], "defaultTools": false})).await;
        venue.worker();
        let client = async_nats::connect(url).await.unwrap();
        let context = jetstream::new(client.clone());
        Some(Self { venue, context, prefix: options.prefix, client, _dir: dir })
    }

    fn jobs_stream(&self) -> String {
        format!("{}_JOBS", self.prefix.to_uppercase())
    }

    /// Submits a task to the clerk, who publishes a job for `ocr`; the clerk's job.
    async fn order(&self, id: &str, more: Value) -> JobId {
        let mut arguments = json!({
            "queue": "ocr", "input": {"page": 7}, "wait": 0,
            "startTimeout": 3600, "heartbeatTimeout": 600, "deadline": 86_400
        });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.venue.submit("clerk", id, arguments).await.job.unwrap()
    }

    /// The clerk's only job for an external worker, once it is there.
    async fn published(&self) -> JobId {
        for _ in 0..6_000 {
            let all = jobs::list(&self.venue.venue, &self.venue.owner, 0, 100).await.unwrap().items;
            if let Some(job) = all.into_iter().find(|job| job.head.op.is_some()) {
                return job.head.id;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no job is published within a minute");
    }

    /// The same, with the message that an external worker of `ocr` gets for it. The turn that published it may go on: an
    /// answer that must come after it waits until the session [rests](Self::rests).
    async fn ordered(&self, id: &str, more: Value) -> (JobId, Taken) {
        let job = self.order(id, more).await;
        (job, self.take("ocr").await)
    }

    /// Waits until no worker holds the session of this job: its turn is over, and it waits.
    async fn rests(&self, id: &JobId) {
        let session = self.job(id).await.head.session;
        let (store, owner) = (&self.venue.venue.store, &self.venue.owner);
        for _ in 0..6_000 {
            let all = store.sessions(owner, None, None, 100).await.unwrap();
            let own = all.into_iter().find(|facts| facts.key.session == session).unwrap();
            if own.version > 0 && own.lease_until.is_none() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the session of job {id} is held for more than a minute");
    }

    async fn consumer(&self, queue: &str) -> PullConsumer {
        let stream = self.context.get_stream(self.jobs_stream()).await.unwrap();
        let config = pull::Config {
            durable_name: Some(queue.to_owned()),
            filter_subject: format!("{}.jobs.{queue}", self.prefix),
            ..pull::Config::default()
        };
        stream.get_or_create_consumer(queue, config).await.unwrap()
    }

    /// The next message of a queue.
    async fn take(&self, queue: &str) -> Taken {
        let mut messages = self.consumer(queue).await.messages().await.unwrap();
        let next = tokio::time::timeout(Duration::from_mins(1), messages.next());
        let message = next.await.expect("a job within a minute").unwrap().unwrap();
        message.ack_with(AckKind::Ack).await.unwrap();
        let body: Value = serde_json::from_slice(&message.payload).unwrap();
        let id = message.headers.as_ref().and_then(|headers| headers.get("Nats-Msg-Id")).map(ToString::to_string);
        Taken { job: JobId::new(body["job"].as_str().unwrap()).unwrap(), body, id }
    }

    /// Messages that the stream keeps.
    async fn kept(&self) -> u64 {
        self.context.get_stream(self.jobs_stream()).await.unwrap().cached_info().state.messages
    }

    /// Says something of a job; it is in the queue when this returns.
    async fn say(&self, taken: &Taken, said: Value) {
        let mut body = json!({"job": taken.body["job"], "token": taken.body["token"]});
        body.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
        self.send(taken.body["answer"].as_str().unwrap(), &body).await;
    }

    async fn send(&self, subject: &str, body: &Value) {
        let sent = self.context.publish(subject.to_owned(), body.to_string().into()).await.unwrap();
        sent.await.unwrap();
    }

    async fn job(&self, id: &JobId) -> Job {
        jobs::get(&self.venue.venue, &self.venue.owner, id).await.unwrap().unwrap()
    }

    /// The job once it is so.
    async fn becomes(&self, id: &JobId, what: &str, is: impl Fn(&Job) -> bool) -> Job {
        for _ in 0..6_000 {
            let job = self.job(id).await;
            if is(&job) {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("not {what} within a minute: {:?}", self.job(id).await);
    }

    async fn started(&self, id: &JobId) -> Job {
        self.becomes(id, "STARTED", |job| job.status == JobStatus::Started).await
    }

    /// Nothing is missing in the books.
    async fn books_are_closed(&self) {
        let books = trellis::venue::upkeep::audit::audit_owner(&self.venue.venue, &self.venue.owner).await.unwrap();
        assert_eq!(books.unaccounted, 0, "{:?}", books.missing);
    }

    /// No job has a time at which it is looked at. The last one goes after its session was told.
    async fn is_watched_no_more(&self) {
        for _ in 0..1_000 {
            if self.keys("q.due/").await.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("still watched: {:?}", self.keys("q.due/").await);
    }

    /// Keys of documents under a prefix.
    async fn keys(&self, prefix: &str) -> Vec<String> {
        let found = self.venue.venue.store.scan(&self.venue.owner, prefix, None, false, 100).await.unwrap();
        found.into_iter().map(|(key, _)| key).collect()
    }
}

/// A message that an external worker has taken.
struct Taken {
    job: JobId,
    body: Value,
    /// Its `Nats-Msg-Id`.
    id: Option<String>,
}

fn output(job: &Job) -> Value {
    job.result.as_ref().and_then(|result| result.output.clone()).unwrap_or_default()
}

fn code(job: &Job) -> Value {
    job_record(job)["errorCode"].clone()
}
