//! What a worker's own lease is worth while the store takes its time: a renewal beside the commit that gives it back, a
//! model call whose budget is held for longer than it lasts.

use crate::support::venue::TestVenue;
use crate::support::watched_store::{Watch, Watched};
use async_trait::async_trait;
use futures::StreamExt;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use trellis::bus::embedded::EmbeddedBus;
use trellis::domain::ids::{EventId, SessionKey, VenueIdSubject};
use trellis::domain::job::JobStatus;
use trellis::domain::message::BusMessage;
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::{Admit, Commit, CommitOutcome, DocWrite, LeaseCheck, LeaseOutcome, LeaseRequest, LeaseUse, Store};

/// Longer than a worker of the tests goes without a renewal.
const RENEWAL: Duration = Duration::from_secs(2);
/// What a worker makes of an answer is made by then.
const MAKING: Duration = Duration::from_millis(300);

/// The answer of a commit that gives the lease back comes after the next renewal's, if there is one.
#[derive(Default)]
struct Late(Notify);

#[async_trait]
impl Watch for Late {
    async fn renewed(&self, _held: &LeaseCheck) {
        self.0.notify_waiters();
    }

    async fn committed(&self, commit: &Commit, _committed: &CommitOutcome) {
        if matches!(commit.after_commit, LeaseUse::Release { .. }) && timeout(RENEWAL, self.0.notified()).await.is_ok()
        {
            sleep(MAKING).await;
        }
    }
}

#[tokio::test]
async fn a_renewal_during_a_releasing_commit_delays_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let bus = EmbeddedBus::new(Arc::clone(&store), Duration::from_secs(30), Clock::system()).unwrap();
    let mut told = bus.listen_outbound();
    let store = Watched { inner: store, watch: Late::default() };
    let mut venue = TestVenue::new(Arc::new(store), Arc::new(bus), dir.path(), "").await;
    // The sweep would tell it too.
    venue.sweep = Duration::from_mins(10);
    venue.lease = Duration::from_secs(2);
    venue.worker();
    venue.agent("echo", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
    let job = venue.run("echo", "t1", json!({"message": "hi"})).await;
    assert_eq!(job.status, JobStatus::Complete);
    let told = timeout(Duration::from_mins(1), told.next()).await.expect("nobody told the completion").unwrap();
    let told: BusMessage = serde_json::from_slice(&told).unwrap();
    assert_eq!(told.id, Some(EventId::of_venue(&venue.venue.key, VenueIdSubject::Done(&job.head.id)).to_string()));
    assert_eq!(venue.venue.metrics.leases_lost.get(), 0, "nobody took the lease");
}

/// Short, and long enough for a machine that does other things.
const LEASE: Duration = Duration::from_secs(2);

/// No renewal has an answer until another has the lease: what holds the budget of a call takes longer than the lease.
struct Slow {
    store: Arc<EmbeddedStore>,
    is_stuck: Notify,
    is_held: AtomicBool,
    session: SessionKey,
}

#[async_trait]
impl Watch for Slow {
    async fn renewed(&self, _held: &LeaseCheck) {
        if !self.is_held.load(Ordering::SeqCst) {
            self.is_stuck.notify_one();
            std::future::pending::<()>().await;
        }
    }

    async fn writing(&self, writes: &[DocWrite]) {
        let is_budget = writes.iter().any(|write| write.key.starts_with("b/"));
        if !is_budget || self.is_held.load(Ordering::SeqCst) {
            return;
        }
        timeout(RENEWAL, self.is_stuck.notified()).await.expect("the lease is renewed meanwhile");
        sleep(LEASE).await;
        let owner = "local/me".parse().unwrap();
        let request = LeaseRequest {
            token: "another".into(),
            worker: "another".into(),
            ttl: Duration::from_hours(1),
            mailbox_limit: 8,
            crash_limit: 5,
            owner_cap: 0,
        };
        let admit = Admit { owner, session: self.session.clone(), event: None, lease: Some(request) };
        // A renewal without an answer is tried again, and each lengthens the lease.
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let admitted = self.store.admit(Clock::system().now(), &admit).await.unwrap();
            if matches!(admitted.lease, LeaseOutcome::Run(_)) {
                break;
            }
            assert!(Instant::now() < end, "{:?}", admitted.lease);
            sleep(Duration::from_millis(50)).await;
        }
        self.is_held.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_lease_that_lapses_during_a_hold_asks_no_model() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let bus = EmbeddedBus::new(Arc::clone(&store), Duration::from_secs(30), Clock::system()).unwrap();
    let session = SessionKey { agent: "echo".parse().unwrap(), session: "s".parse().unwrap() };
    let (is_stuck, is_held) = (Notify::new(), AtomicBool::new(false));
    let watch = Slow { store: Arc::clone(&store), is_stuck, is_held, session };
    let store = Arc::new(Watched { inner: store, watch });
    let mut venue = TestVenue::new(Arc::clone(&store) as Arc<dyn Store>, Arc::new(bus), dir.path(), "").await;
    venue.lease = LEASE;
    venue.worker();
    venue.agent("echo", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
    let submission = json!({"input": {"message": "hi"}, "sessionId": "s", "budget": {"turns": 4}});
    venue.arrive("echo", "t1", true, serde_json::from_value(submission).unwrap()).await;
    let end = Instant::now() + Duration::from_mins(1);
    while !store.watch.is_held.load(Ordering::SeqCst) || venue.shutdown.turns() > 0 {
        assert!(Instant::now() < end, "its turn goes on");
        sleep(Duration::from_millis(50)).await;
        assert_eq!(venue.model_calls().len(), 0, "another may have the reply by now");
    }
}
