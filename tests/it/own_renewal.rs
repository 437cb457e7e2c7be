//! A worker renews its lease while the commit that gives it back is under way.

use crate::support::venue::TestVenue;
use crate::support::watched::{Watch, Watched};
use async_trait::async_trait;
use futures::StreamExt;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use trellis::bus::embedded::EmbeddedBus;
use trellis::domain::ids::{EventId, IdOf};
use trellis::domain::job::JobStatus;
use trellis::domain::message::Message;
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::{After, Commit, Committed, LeaseCheck};

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

    async fn committed(&self, commit: &Commit, _committed: &Committed) {
        if matches!(commit.then, After::Release { .. }) && timeout(RENEWAL, self.0.notified()).await.is_ok() {
            sleep(MAKING).await;
        }
    }
}

#[tokio::test]
async fn a_renewal_beside_the_commit_that_gives_the_lease_back_holds_up_no_completion() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let bus = EmbeddedBus::new(Arc::clone(&store), Duration::from_secs(30), Clock::system()).unwrap();
    let mut told = bus.listen_outbound();
    let store = Watched { inner: store, watch: Late::default() };
    let mut venue = TestVenue::new(Arc::new(store), Arc::new(bus), dir.path(), "").await;
    // The sweep would tell it too.
    venue.sweep = Duration::from_mins(10);
    venue.lease = Duration::from_secs(2);
    venue.worker().await;
    venue.agent("echo", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
    let job = venue.run("echo", "t1", json!({"message": "hi"})).await;
    assert_eq!(job.status, JobStatus::Complete);
    let told = timeout(Duration::from_mins(1), told.next()).await.expect("nobody told the completion").unwrap();
    let told: Message = serde_json::from_slice(&told).unwrap();
    assert_eq!(told.id, Some(EventId::of_venue(&venue.venue.key, IdOf::Done(&job.head.id)).to_string()));
    assert_eq!(venue.venue.metrics.leases_lost.get(), 0, "nobody took the lease");
}
