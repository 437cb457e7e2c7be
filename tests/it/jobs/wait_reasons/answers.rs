//! Answers that come at once: with the last of them nobody is asked any more.

use crate::support::both_stores::{On, on_both};
use crate::support::operate::boss;
use crate::support::venue::TestVenue;
use crate::support::watched_store::{Watch, Watched};
use async_trait::async_trait;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::embedded::EmbeddedBus;
use trellis::domain::approval::ApprovalVerdict;
use trellis::domain::ids::JobId;
use trellis::domain::job::JobStatus;
use trellis::process::clock::Clock;
use trellis::store::DocWrite;
use trellis::store::embedded::EmbeddedStore;
use trellis::venue::{approvals, jobs};

const RULES: &str = r#"
[[rule]]
when = { agent = "payer", turn = 1 }
then = { calls = [{ tool = "pay", arguments = { delay = 600000 } }, { tool = "pay", arguments = { delay = 600001 } }] }

[[rule]]
then = { text = "done" }
"#;

/// Looks at what must come about, 20 ms apart.
const TRIES: u32 = 3_000;

/// Something that happens before the next write from outside turns.
#[derive(Default)]
struct Interruption(Mutex<Option<BoxFuture<'static, ()>>>);

#[async_trait]
impl Watch for Interruption {
    async fn writing(&self, _writes: &[DocWrite]) {
        let meanwhile = self.0.lock().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile.await;
        }
    }
}

on_both! {
    the_last_two_answers_at_once_leave_no_job_waiting_for_input
}

async fn status(venue: &TestVenue, job: &JobId) -> JobStatus {
    jobs::read_status(&venue.venue, &venue.owner, job).await.unwrap().unwrap().0
}

async fn the_last_two_answers_at_once_leave_no_job_waiting_for_input(on: On) {
    let Some((asking, dir)) = on.venue(RULES, Clock::system()).await else { return };
    let pay = json!({"operation": "v/ops/test/delay", "name": "pay", "approval": "ask"});
    asking.agent("payer", json!({"tools": [pay], "defaultTools": false})).await;
    asking.worker();
    let job = asking.submit("payer", "t1", json!("go")).await.job.unwrap();
    for _ in 0..TRIES {
        if status(&asking, &job).await == JobStatus::InputRequired {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let asked = approvals::list(&asking.venue, &asking.owner, false, 0, 10).await.unwrap().items;
    assert_eq!(asked.len(), 2, "both calls are asked for");
    // Its worker is gone: what the job says is what the answers have written.
    asking.shutdown.trigger();
    asking.shutdown.cancel_token().cancel();
    asking.shutdown.end_token().cancel();
    let store = Arc::clone(&asking.venue.store);
    let interrupted = Arc::new(Watched { inner: Arc::clone(&store), watch: Interruption::default() });
    let queue = async |name: &str| {
        let queue = EmbeddedStore::open(&dir.path().join(name)).unwrap();
        Arc::new(EmbeddedBus::new(queue, Duration::from_secs(2), Clock::system()).unwrap())
    };
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first =
        TestVenue::new(Arc::<Watched<Interruption>>::clone(&interrupted), queue("q1").await, one.path(), RULES).await;
    let second = TestVenue::new(store, queue("q2").await, two.path(), RULES).await;
    let approve = ApprovalVerdict::Approved { arguments: None, scopes: None };
    let (other, verdict, owner) = (asked[1].id.clone(), approve.clone(), second.owner.clone());
    *interrupted.watch.0.lock() = Some(Box::pin(async move {
        approvals::decide(&second.venue, &boss(&owner), &other, verdict, None).await.unwrap();
    }));
    approvals::decide(&first.venue, &boss(&first.owner), &asked[0].id, approve, None).await.unwrap();
    assert!(interrupted.watch.0.lock().is_none(), "the other answer came between");
    assert_eq!(status(&first, &job).await, JobStatus::Started, "nobody is asked any more");
}
