//! What is submitted to a process with a worker begins in a free slot of it, and no message lies between: nothing here is
//! found by a sweep.

use crate::support::both_stores::{On, on_both};
use crate::support::venue::TestVenue;
use futures::future::join_all;
use serde_json::json;
use std::time::Duration;
use trellis::domain::event::Submission;
use trellis::domain::ids::{EventId, JobId};
use trellis::domain::job::JobStatus;
use trellis::process::clock::Clock;
use trellis::venue::jobs;

on_both! {
    a_granted_task_runs_after_its_submitter_leaves
    more_than_there_are_slots_wait_in_the_queue
    a_worker_that_stops_takes_nothing
}

const RULES: &str = r#"
[[rule]]
then = { text = "done" }
"#;

/// Shorter than what is admitted and not looked at waits for a sweep.
const SOON: Duration = Duration::from_secs(4);

async fn venue(on: On) -> Option<(TestVenue, tempfile::TempDir)> {
    let (mut venue, dir) = on.venue(RULES, Clock::system()).await?;
    venue.sweep = Duration::from_hours(1);
    venue.worker();
    venue.agent("echo", json!({"concurrency": 100})).await;
    Some((venue, dir))
}

fn said() -> Submission {
    Submission { input: json!("hi"), ..Submission::default() }
}

async fn a_granted_task_runs_after_its_submitter_leaves(on: On) {
    let Some((venue, _dir)) = venue(on).await else { return };
    let mut left = 0;
    for n in 0..60 {
        let id = format!("t{n}");
        let submitting = venue.arrive("echo", &id, true, said());
        left += u32::from(tokio::time::timeout(Duration::from_micros(40 * n), submitting).await.is_err());
        // So that there is a free slot for the next.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(left > 0, "none was fast enough to go away");
    for n in 0..60 {
        let event = EventId::new(format!("t{n}")).unwrap();
        let job = JobId::derive(&venue.venue.key, &venue.owner, &event);
        let status = async || jobs::get(&venue.venue, &venue.owner, &job).await.unwrap().map(|job| job.status);
        if status().await.is_none() {
            continue;
        }
        let ended = match tokio::time::timeout(SOON, venue.ended(&job)).await {
            Ok(ended) => ended,
            // There was no slot for it, and nobody was called: a sweep's business.
            Err(_) if status().await == Some(JobStatus::Pending) => continue,
            Err(_) => {
                let ended = tokio::time::timeout(SOON * 10, venue.ended(&job)).await;
                ended.expect("a session was granted to nobody")
            }
        };
        assert_eq!(ended.status, JobStatus::Complete, "{ended:?}");
    }
}

async fn more_than_there_are_slots_wait_in_the_queue(on: On) {
    let Some((venue, _dir)) = venue(on).await else { return };
    let submitted = join_all((0..50).map(|n| {
        let venue = &venue;
        async move { venue.arrive("echo", &format!("t{n}"), true, said()).await.job.unwrap() }
    }));
    for job in submitted.await {
        let ended = tokio::time::timeout(SOON * 5, venue.ended(&job)).await.expect("nobody was called");
        assert_eq!(ended.status, JobStatus::Complete);
    }
}

async fn a_worker_that_stops_takes_nothing(on: On) {
    let Some((venue, _dir)) = venue(on).await else { return };
    venue.shutdown.trigger();
    let job = venue.arrive("echo", "t", true, said()).await.job.unwrap();
    venue.shutdown.run(Duration::from_secs(5)).await;
    assert_eq!(jobs::get(&venue.venue, &venue.owner, &job).await.unwrap().unwrap().status, JobStatus::Pending);
}
