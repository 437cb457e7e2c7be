//! What it costs to look at approvals, at the queue, and at why a job waits, in calls and documents.

use crate::support::http::Server;
use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use crate::support::watched_store::{Watch, Watched};
use crate::workers::turn_costs::counting_layers::{CountedBus, CountedStore};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::Bus;
use trellis::bus::embedded::EmbeddedBus;
use trellis::domain::approval::{Approval, ApprovalAnswer, ApprovalSubject, ApprovalVerdict, CallPlace};
use trellis::domain::event::Submission;
use trellis::domain::ids::{JobId, Owner, SessionKey};
use trellis::domain::retention::RetentionRules;
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::{DocKey, DocWrite, Store, keys};
use trellis::venue::approvals;
use trellis::venue::upkeep::audit;
use trellis::venue::upkeep::retention::Janitor;

const RULES: &str = r#"
[[rule]]
when = { agent = "parent", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "asker", input = "go", wait = 0 } }] }

[[rule]]
when = { agent = "asker", turn = 1 }
then = { calls = [{ tool = "human_ask", arguments = { title = "The order", expires = 3600, asks = [{ id = "size", type = "text", prompt = "Which?" }] } }] }

[[rule]]
then = { text = "done" }
"#;

/// Looks at what must come about, 20 ms apart.
const TRIES: u32 = 3_000;

struct Looked {
    venue: TestVenue,
    store: Arc<CountedStore>,
    bus: Arc<CountedBus>,
    _dir: tempfile::TempDir,
}

async fn venue() -> Looked {
    let dir = tempfile::tempdir().unwrap();
    let inner = EmbeddedStore::open(dir.path()).unwrap();
    let bus = EmbeddedBus::new(Arc::clone(&inner), Duration::from_secs(30), Clock::system()).unwrap();
    let (store, bus) = (CountedStore::new(inner), CountedBus::new(Arc::new(bus)));
    let (counted, queue): (Arc<dyn Store>, Arc<dyn Bus>) =
        (Arc::<CountedStore>::clone(&store), Arc::<CountedBus>::clone(&bus));
    // Time stands still: how often the list of workers is read doesn't depend on it.
    let clock = Clock::manual(Millis(1_767_225_600_000));
    let venue = TestVenue::at(counted, queue, dir.path(), RULES, clock).await;
    Looked { venue, store, bus, _dir: dir }
}

fn approval(venue: &TestVenue, call: u32, answered: bool) -> Approval {
    let session = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
    let place = CallPlace { owner: &venue.owner, session: &session, turn: 1, call, start: None };
    let subject = ApprovalSubject::Questions { title: "t".into(), asks: Vec::new(), rules: BTreeMap::new() };
    let now = venue.venue.now();
    let asked = Approval::new(&venue.venue.key, place, "ask", subject, now, now.plus(Duration::from_hours(1)));
    let answer = answered.then(|| ApprovalAnswer {
        by: "ann".into(),
        at: now,
        verdict: ApprovalVerdict::Rejected { reason: None },
    });
    Approval { answer, ..asked }
}

async fn keep(venue: &TestVenue, calls: std::ops::Range<u32>, answered: bool) {
    let writes: Vec<DocWrite> = calls
        .map(|call| approval(venue, call, answered))
        .map(|approval| DocWrite::json(keys::approval(&approval.id), &approval))
        .collect();
    venue.venue.store.write(venue.venue.now(), &venue.owner, &writes).await.unwrap();
}

#[tokio::test]
async fn answered_approvals_cost_a_list_of_open_ones_nothing() {
    let Looked { venue, store, _dir, .. } = venue().await;
    // As an older build has left them: without entries.
    keep(&venue, 0..3, false).await;
    let list = async || approvals::list(&venue.venue, &venue.owner, false, 0, 100).await.unwrap().items.len();
    assert_eq!(list().await, 3, "they are found all the same");
    store.take();
    assert_eq!(list().await, 3);
    let before = store.take();
    keep(&venue, 100..1_600, true).await;
    store.take();
    assert_eq!(list().await, 3);
    assert_eq!(store.take(), before, "1,500 more that are answered");
}

#[tokio::test]
async fn the_list_of_workers_is_read_once_a_second() {
    let Looked { venue, store, _dir, .. } = venue().await;
    venue.agent("a", json!({})).await;
    let job = venue.submit("a", "t1", json!("go")).await.job.unwrap();
    let look = async || {
        store.take();
        operate(&venue.venue, &boss(&venue.owner), "v/ops/job/result", json!({"id": job})).await.unwrap();
        store.take()
    };
    look().await;
    let known = look().await;
    venue.venue.clock.advance(Duration::from_millis(999));
    assert_eq!(look().await, known);
    venue.venue.clock.advance(Duration::from_millis(1));
    assert_ne!(look().await, known, "it is read again");
    assert_eq!(look().await, known);
}

#[tokio::test]
async fn an_audit_lists_the_queue_once_and_not_once_for_each_owner() {
    let Looked { venue, bus, _dir, .. } = venue().await;
    let mut venues = Vec::new();
    for n in 0..8 {
        let owner: Owner = format!("t/u{n}").parse().unwrap();
        venues.push(owner);
    }
    let mut venue = venue;
    for owner in venues {
        venue.owner = owner;
        venue.agent("a", json!({})).await;
        venue.arrive("a", "t1", true, Submission { input: json!("go"), ..Submission::default() }).await;
    }
    bus.take();
    let books = audit::audit_all(&venue.venue).await.unwrap();
    assert_eq!((books.accepted, books.unaccounted), (8, 0));
    let listed = bus.take().to_string();
    assert!(listed.contains("in_transit 1,"), "{listed}");
}

/// Documents that were read, by key.
#[derive(Default)]
struct ReadLog(Mutex<Vec<DocKey>>);

impl Watch for ReadLog {
    fn read(&self, keys: &[DocKey]) {
        self.0.lock().extend_from_slice(keys);
    }
}

impl ReadLog {
    fn count(&self, key: &str) -> usize {
        self.0.lock().iter().filter(|read| read.as_str() == key).count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_stream_rereads_only_what_may_have_changed() {
    let dir = tempfile::tempdir().unwrap();
    let inner = EmbeddedStore::open(dir.path()).unwrap();
    let bus = EmbeddedBus::new(Arc::clone(&inner), Duration::from_secs(30), Clock::system()).unwrap();
    let store = Arc::new(Watched { inner, watch: ReadLog::default() });
    let venue = TestVenue::new(Arc::<Watched<ReadLog>>::clone(&store), Arc::new(bus), dir.path(), RULES).await;
    venue.agent("parent", json!({})).await;
    venue.agent("asker", json!({"tools": ["v/ops/human/ask"]})).await;
    venue.worker();
    let job = venue.submit("parent", "t1", json!("go")).await.job.unwrap();
    let mut waits = Value::Null;
    for _ in 0..TRIES {
        let ask = json!({"id": job});
        waits = operate(&venue.venue, &boss(&venue.owner), "v/ops/job/result", ask).await.unwrap()["waiting"].clone();
        if waits["waiting"]["kind"] == "person" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let child: JobId = waits["job"].as_str().unwrap().parse().unwrap();
    let server = Server::of(Arc::clone(&venue.venue)).await;
    store.watch.0.lock().clear();
    let mut response = server.client.get(format!("{}/api/v1/jobs/{job}/sse", server.url)).send().await.unwrap();
    let reading = tokio::spawn(async move { while let Ok(Some(_)) = response.chunk().await {} });
    // It looks at why the job waits, and so at how its child stands, again and again.
    for _ in 0..TRIES {
        if store.watch.count(&keys::job_status(&child)) >= 5 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    reading.abort();
    let count = |key: String| store.watch.count(&key);
    assert!(count(keys::job_status(&child)) >= 5, "it goes on looking");
    assert_eq!(count(keys::job_result(&child)), 0, "nobody wants what came out of it");
    assert!(
        count(keys::job_spend(&child)) <= 1,
        "what it has cost is added up for the one record: {}",
        count(keys::job_spend(&child))
    );
    assert!(count(keys::job_head(&job)) <= 2, "what the job is doesn't change: {}", count(keys::job_head(&job)));
}

#[tokio::test]
async fn an_older_workers_approval_is_listed_while_it_lives() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    let list = async || approvals::list(&venue.venue, &venue.owner, false, 0, 100).await.unwrap().items.len();
    keep(&venue, 0..3, false).await;
    assert_eq!(list().await, 3);
    let now = venue.venue.now();
    let older = json!({
        "name": "w-1", "host": "h", "version": "0.1.0", "format": 1, "slots": 1, "busy": 0, "since": now, "seen": now,
    });
    let older = serde_json::from_value(older).unwrap();
    trellis::venue::registry::register(&venue.venue, &older).await.unwrap();
    keep(&venue, 10..12, false).await;
    assert_eq!(list().await, 5);
    // What it has asked right before it ended is found as well.
    keep(&venue, 20..21, false).await;
    trellis::venue::registry::unregister(&venue.venue, &older).await.unwrap();
    assert_eq!((list().await, list().await), (6, 6));
}

#[tokio::test]
async fn approvals_of_an_older_build_are_listed_with_the_rest() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    let list = async || approvals::list(&venue.venue, &venue.owner, false, 0, 100).await.unwrap().items.len();
    keep(&venue, 0..3, false).await;
    assert_eq!(list().await, 3);
    keep(&venue, 10..12, false).await;
    Janitor::new(RetentionRules::NEVER).tidy_step(&venue.venue, &venue.owner).await.unwrap();
    assert_eq!(list().await, 5);
}
