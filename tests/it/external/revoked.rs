//! A revocation while a turn runs that has given a job to an external worker.

use super::Office;
use serde_json::json;
use std::time::Duration;
use trellis::domain::authority::policy::Revocation;
use trellis::domain::job::{ErrorCode, JobStatus};
use trellis::venue::policy;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_was_published_is_recorded_as_published_and_its_worker_has_it_once() {
    let Some(office) = Office::open().await else { return };
    let venue = &office.venue;
    venue.agent("seller", json!({"tools": ["v/ops/queue/publish", "v/ops/test/delay"]})).await;
    let task = venue.submit("seller", "t1", json!("go")).await;
    let job = office.published().await;
    let taken = office.take("ocr").await;
    assert_eq!(taken.job, job, "it goes out at the call");
    let (by, at) = ("test".into(), venue.venue.now());
    let holder = Some("agent:seller".to_owned());
    let revocation = Revocation { id: "r1".into(), path: None, holder, grant: None, reason: None, by, at };
    policy::revoke(&venue.venue, &venue.owner, revocation).await.unwrap().unwrap();
    let ended = venue.ended(task.job.as_ref().unwrap()).await;
    assert_eq!(ended.result.unwrap().error_code, Some(ErrorCode::CapDenied));
    let turns = venue.turns("seller", task.session.session.as_str()).await;
    let outcomes: Vec<_> = turns[0].calls.iter().map(|call| call.outcome.as_str()).collect();
    assert_eq!(outcomes, ["ok", "denied", "ok"], "{:?}", turns[0].said);
    assert!(format!("{:?}", turns[0].said).contains(job.as_str()), "the record names the job");
    assert_eq!(venue.read("w/out").await, None, "what could be held back was");
    // The turn was built again under the new policy, and nothing was published again.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(office.kept().await <= 1, "it is there once");
    let shown = office.job(&job).await;
    assert!(shown.status == JobStatus::Cancelled || !shown.status.is_terminal(), "{shown:?}");
}
