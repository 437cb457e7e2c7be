//! Signals that anybody may send: a worker looks, as often as it likes, and the store decides.

use crate::support::nats;
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use crate::support::watched_store::{Watch, Watched};
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use trellis::bus::nats::NatsBus;
use trellis::bus::{Bus, LiveSubject};
use trellis::domain::event::Submission;
use trellis::domain::ids::JobId;
use trellis::domain::job::JobStatus;
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::redis::{RedisStore, ServerOrInjected};
use trellis::store::{DocKey, Store, keys};
use trellis::venue::jobs;

const RULES: &str = r#"
[[rule]]
when = { agent = "slow" }
then = { text = "done", delay_ms = 2500 }

[[rule]]
when = { agent = "never", text = "hang" }
then = { fault = "hang" }

[[rule]]
then = { text = "done" }
"#;

/// Counts how often the status of one job is asked for.
#[derive(Default)]
struct Reads {
    job: OnceLock<JobId>,
    seen: AtomicUsize,
}

#[derive(Default, Clone)]
struct Counted(Arc<Reads>);

impl Watch for Counted {
    fn read(&self, keys: &[DocKey]) {
        if self.0.job.get().is_some_and(|job| keys == [keys::job_status(job)]) {
            self.0.seen.fetch_add(1, Ordering::Relaxed);
        }
    }
}

struct Site {
    venue: TestVenue,
    reads: Arc<Reads>,
    /// A client of the queue without any right, and the prefix of the subjects.
    client: Option<(async_nats::Client, String)>,
    _dir: tempfile::TempDir,
}

impl Site {
    async fn over(store: Arc<dyn Store>, bus: Arc<dyn Bus>, dir: tempfile::TempDir) -> Self {
        let watch = Counted::default();
        let reads = Arc::clone(&watch.0);
        let store = Arc::new(Watched { inner: store, watch });
        let venue = TestVenue::new(store, bus, dir.path(), RULES).await;
        for agent in ["slow", "never"] {
            venue.agent(agent, json!({})).await;
        }
        venue.worker();
        Self { venue, reads, client: None, _dir: dir }
    }

    async fn embedded() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path()).unwrap();
        let bus = trellis::bus::embedded::EmbeddedBus::new(Arc::clone(&store), Duration::from_secs(2), Clock::system());
        Some(Self::over(store, Arc::new(bus.unwrap()), dir).await)
    }

    async fn nats() -> Option<Self> {
        let (url, server) = (nats::shared()?, RedisServer::shared()?);
        let dir = tempfile::tempdir().unwrap();
        let store = RedisStore::open(server.options(ServerOrInjected::Server)).await.unwrap();
        let options = nats::options(&url);
        let bus = NatsBus::open(&options).await.unwrap();
        let client = async_nats::connect(&url).await.unwrap();
        Some(Self { client: Some((client, options.prefix.clone())), ..Self::over(store, Arc::new(bus), dir).await })
    }

    /// Somebody says on an owner's subject that a job is cancelled.
    async fn say(&self, owner: &str, job: &JobId) {
        let body = Bytes::from(job.to_string());
        match &self.client {
            None => self.venue.venue.bus.signal(&LiveSubject::Control(owner.parse().unwrap()), body).await.unwrap(),
            Some((client, prefix)) => {
                client.publish(format!("{prefix}.ctl.{}", owner.replace('/', ".")), body).await.unwrap();
            }
        }
    }

    async fn submit(&self, agent: &str, id: &str, input: Value) -> JobId {
        let submission = Submission { input, session_id: Some("s1".parse().unwrap()), ..Submission::default() };
        self.venue.arrive(agent, id, true, submission).await.job.unwrap()
    }

    /// Waits until the model is asked for this agent.
    async fn until_asked(&self, agent: &str) {
        let part = format!("/{agent}/");
        let start = Instant::now();
        let asked = |call: &Value| call["turn"].as_str().is_some_and(|turn| turn.contains(&part));
        while !self.venue.model_calls().iter().any(asked) {
            assert!(start.elapsed() < Duration::from_mins(1), "{agent} is never asked");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A storm of forged cancellations on the subjects of the owner and of another.
async fn forged_cancellations_change_nothing_and_cost_little(site: Option<Site>) {
    let Some(site) = site else { return };
    let start = Instant::now();
    let job = site.submit("slow", "t1", json!("go")).await;
    site.reads.job.set(job.clone()).unwrap();
    site.until_asked("slow").await;
    for _ in 0..2_000 {
        site.say("local/me", &job).await;
        site.say("local/you", &job).await;
    }
    let ended = site.venue.ended(&job).await;
    let output = ended.result.as_ref().and_then(|result| result.output.clone());
    assert_eq!((ended.status, output), (JobStatus::Complete, Some(json!("done"))));
    // One look per tenth of a second, and what a turn reads of its own.
    let most = usize::try_from(start.elapsed().as_millis() / 100).unwrap() + 10;
    let seen = site.reads.seen.load(Ordering::Relaxed);
    assert!((1..=most).contains(&seen), "{seen} reads, expected at most {most}");
}

/// The lease is renewed after ten seconds only: it is the signal that stops the call.
async fn a_true_cancellation_stops_a_running_call_at_once(site: Option<Site>) {
    let Some(site) = site else { return };
    let job = site.submit("never", "t1", json!("hang")).await;
    site.until_asked("never").await;
    site.say("local/me", &job).await;
    let next = site.submit("never", "t2", json!("speak")).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let start = Instant::now();
    assert!(matches!(
        jobs::cancel(&site.venue.venue, &site.venue.owner, &job, None).await.unwrap(),
        jobs::CancelOutcome::Done(_)
    ));
    assert_eq!(site.venue.ended(&next).await.status, JobStatus::Complete);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

macro_rules! on_both {
    ($($case:ident)*) => {
        mod embedded {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    super::$case(super::Site::embedded().await).await;
                }
            )*
        }
        mod over_nats {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    super::$case(super::Site::nats().await).await;
                }
            )*
        }
    };
}

on_both! {
    forged_cancellations_change_nothing_and_cost_little
    a_true_cancellation_stops_a_running_call_at_once
}
