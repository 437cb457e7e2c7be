//! A document that others change all the time: what wanted to change it is done later, once, and nothing is lost.

use crate::support::http::Server;
use crate::support::operate::{boss, operate};
use crate::support::venue::{TestVenue, all_jobs};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use trellis::bus::embedded::EmbeddedBus;
use trellis::domain::event::Submission;
use trellis::domain::ids::Owner;
use trellis::domain::job::JobStatus;
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::store::EDIT_ATTEMPTS;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::{DocConflict, DocWrite, Layer, Store, StoreError, WriteOutcome};
use trellis::venue::{approvals, jobs, operation_jobs};

const RULES: &str = r#"
[[rule]]
when = { agent = "payer", turn = 1 }
then = { calls = [{ tool = "pay", arguments = { path = "w/paid", value = 100 } }] }

[[rule]]
then = { text = "done" }
"#;

/// A store of which writes under a prefix meet others' so often.
struct Busy {
    inner: Arc<dyn Store>,
    prefix: &'static str,
    left: AtomicU32,
}

impl Layer for Busy {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn write(&self, now: Millis, owner: &Owner, writes: &[DocWrite]) -> Result<WriteOutcome, StoreError> {
        let busy = writes.iter().find(|write| write.key.starts_with(self.prefix));
        let less = |left: u32| left.checked_sub(1);
        if let Some(write) = busy
            && self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
        {
            return Ok(WriteOutcome::Conflict(vec![DocConflict { key: write.key.clone(), actual: 0 }]));
        }
        self.inner.write(now, owner, writes).await
    }
}

impl Busy {
    /// The next edits are given up so often.
    fn for_rounds(&self, rounds: u32) {
        self.left.store(EDIT_ATTEMPTS * rounds, Ordering::SeqCst);
    }
}

/// A venue with a worker, and the store under which that is.
async fn venue(dir: &Path, prefix: &'static str) -> (TestVenue, Arc<Busy>) {
    let inner = EmbeddedStore::open(dir).unwrap();
    let bus = EmbeddedBus::new(Arc::clone(&inner), Duration::from_secs(2), Clock::system()).unwrap();
    let busy = Arc::new(Busy { inner, prefix, left: AtomicU32::new(0) });
    let store = Arc::clone(&busy) as Arc<dyn Store>;
    let mut venue = TestVenue::at(store, Arc::new(bus), dir, RULES, Clock::system()).await;
    venue.sweep = Duration::from_millis(100);
    venue.worker();
    (venue, busy)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_answer_is_taken_once_the_approval_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let (venue, busy) = venue(dir.path(), "h/").await;
    venue
        .agent("payer", json!({"tools": [{"operation": "v/ops/lattice/append", "name": "pay", "approval": "ask"}]}))
        .await;
    let job = venue.arrive("payer", "e1", true, Submission { input: json!("go"), ..Submission::default() }).await;
    let job = job.job.unwrap();
    let asked = loop {
        let found = approvals::list(&venue.venue, &venue.owner, false, 0, 10).await.unwrap().items;
        if let Some(approval) = found.into_iter().next() {
            break approval;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    busy.for_rounds(2);
    let to =
        MessageAddress::In { owner: venue.owner.clone(), agent: "payer".parse().unwrap(), kind: InboundKind::Decide };
    let body = json!({"approval": asked.id, "digest": asked.digest, "answer": {"approve": {}}});
    venue.venue.bus.publish(&BusMessage { to, id: Some("a1".into()), body, trace: None }).await.unwrap();
    assert_eq!(venue.ended(&job).await.status, JobStatus::Complete);
    assert_eq!((venue.read("w/paid").await, busy.left.load(Ordering::SeqCst)), (Some(json!([100])), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_fires_once_after_contention_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (venue, busy) = venue(dir.path(), "m/").await;
    venue.agent("clerk", json!({})).await;
    let set = json!({"agentId": "clerk", "after": "1s", "input": "wake up"});
    operate(&venue.venue, &boss(&venue.owner), "v/ops/agent/trigger", set).await.unwrap();
    busy.for_rounds(3);
    let job = loop {
        if let Some(job) = all_jobs(&venue.venue, &venue.owner).await.into_iter().next() {
            break job;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(venue.ended(&job.head.id).await.status, JobStatus::Complete);
    while busy.left.load(Ordering::SeqCst) > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(all_jobs(&venue.venue, &venue.owner).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invoked_operation_runs_once_and_its_end_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (venue, busy) = venue(dir.path(), "i/").await;
    let server = Server::of(Arc::clone(&venue.venue)).await;
    busy.for_rounds(3);
    let append = json!({"operation": "v/ops/lattice/append", "input": {"path": "w/list", "value": 1}});
    let made = server.post("/api/v1/invoke", append.clone()).await;
    let made = if made.status == 503 {
        assert_eq!(made.header("retry-after"), "1");
        busy.for_rounds(0);
        let made = server.post("/api/v1/invoke", append).await.body(201);
        busy.for_rounds(3);
        made
    } else {
        made.body(201)
    };
    let ended = server.get(&format!("/api/v1/jobs/{}?wait=true", made["id"].as_str().unwrap())).await.body(200);
    assert_eq!(ended["status"], "COMPLETE", "{ended}");
    assert_eq!(venue.read("w/list").await, Some(json!([1])));
    let due = operation_jobs::list_due(&venue.venue, &venue.owner).await.unwrap();
    assert!(due.is_empty(), "{due:?}");
    let id = made["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(jobs::get(&venue.venue, &venue.owner, &id).await.unwrap().unwrap().status, JobStatus::Complete);
}
