//! Times that are over: by a clock that stands until it is moved.

use super::{Office, Taken, code, output};
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::ids::JobId;
use trellis::domain::job::{Job, JobStatus};
use trellis::domain::limits::OUTBOUND_GRACE;
use trellis::venue::external;

/// A job by the clock that stands, once its session rests: no lease is over when the clock is moved.
async fn ordered(office: &Office, times: Value) -> (JobId, Taken) {
    let (clerks, taken) = office.ordered("t1", times).await;
    office.rests(&clerks).await;
    (clerks, taken)
}

/// Lets time pass and looks, as a sweep does.
async fn pass(office: &Office, time: Duration) {
    office.venue.venue.clock.advance(time);
    while external::check_due(&office.venue.venue, &office.venue.owner).await.unwrap() {}
}

/// The job has failed because a time was over, and its session has been told.
async fn given_up(office: &Office, clerks: &JobId, id: &JobId, why: &str) {
    assert_eq!(output(&office.venue.ended(clerks).await), "the worker is not done");
    let job: Job = office.job(id).await;
    assert_eq!((job.status, code(&job)), (JobStatus::Failed, json!("TIMEOUT")));
    let error = job.result.unwrap().error.unwrap();
    assert!(error.contains(why), "{error}");
    office.is_watched_no_more().await;
    office.books_are_closed().await;
}

fn seconds(start: u64, heartbeat: u64, deadline: u64) -> Value {
    json!({"startTimeout": start, "heartbeatTimeout": heartbeat, "deadline": deadline})
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_no_worker_begins_is_given_up() {
    let Some(office) = Office::manual().await else { return };
    let (clerks, taken) = ordered(&office, seconds(60, 10, 600)).await;
    pass(&office, SECOND * 59).await;
    pass(&office, SECOND).await;
    assert_eq!(office.job(&taken.job).await.status, JobStatus::Pending, "what is on its way has some seconds");
    pass(&office, OUTBOUND_GRACE).await;
    given_up(&office, &clerks, &taken.job, "no worker of queue `ocr` began within 60 s").await;
    // Its worker comes back from the dead.
    office.say(&taken, json!({"status": "COMPLETE", "output": 1})).await;
    let noted = |job: &Job| !job.outbound.as_ref().unwrap().ignored.is_empty();
    assert_eq!(office.becomes(&taken.job, "noted", noted).await.status, JobStatus::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_worker_loses_its_job() {
    let Some(office) = Office::manual().await else { return };
    let (clerks, taken) = ordered(&office, seconds(60, 10, 600)).await;
    for _ in 0..3 {
        let before = office.job(&taken.job).await.outbound.unwrap().heartbeat;
        office.say(&taken, json!({"status": "STARTED"})).await;
        let heard = |job: &Job| job.outbound.as_ref().unwrap().heartbeat > before;
        office.becomes(&taken.job, "heard of", heard).await;
        // Longer than the start in all, never longer than a heartbeat.
        pass(&office, SECOND * 9).await;
        assert_eq!(office.job(&taken.job).await.status, JobStatus::Started);
    }
    pass(&office, SECOND).await;
    pass(&office, OUTBOUND_GRACE).await;
    given_up(&office, &clerks, &taken.job, "gave no sign for 10 s").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_past_its_deadline_is_given_up_despite_progress() {
    let Some(office) = Office::manual().await else { return };
    let (clerks, taken) = ordered(&office, seconds(60, 60, 90)).await;
    for _ in 0..2 {
        let before = office.job(&taken.job).await.outbound.unwrap().heartbeat;
        office.say(&taken, json!({"status": "STARTED"})).await;
        let heard = |job: &Job| job.outbound.as_ref().unwrap().heartbeat > before;
        office.becomes(&taken.job, "heard of", heard).await;
        pass(&office, SECOND * 45).await;
    }
    assert_eq!(office.job(&taken.job).await.status, JobStatus::Started);
    pass(&office, OUTBOUND_GRACE).await;
    given_up(&office, &clerks, &taken.job, "did not end within 90 s").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_sent_while_the_venue_was_down_count_later() {
    let Some(office) = Office::manual().await else { return };
    let (clerks, taken) = ordered(&office, seconds(60, 10, 600)).await;
    // Long after, the first look only sees that it is late.
    pass(&office, SECOND * 300).await;
    office.say(&taken, json!({"status": "COMPLETE", "output": 1})).await;
    assert_eq!(output(&office.venue.ended(&clerks).await), "the worker is done");
    assert_eq!(office.job(&taken.job).await.status, JobStatus::Complete);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_job_deletes_all_its_records() {
    let Some(office) = Office::manual().await else { return };
    let (clerks, taken) = ordered(&office, seconds(60, 10, 600)).await;
    office.say(&taken, json!({"status": "COMPLETE", "output": 1})).await;
    office.venue.ended(&clerks).await;
    office.venue.venue.clock.advance(Duration::from_hours(24 * 40));
    let rules = trellis::domain::retention::RetentionRules::default();
    let janitor = trellis::venue::upkeep::retention::Janitor::new(rules);
    for _ in 0..3 {
        janitor.tidy_step(&office.venue.venue, &office.venue.owner).await.unwrap();
    }
    for prefix in ["j/", "l/", "q/", "q.due/"] {
        assert_eq!(office.keys(prefix).await, [""; 0], "{prefix}");
    }
}
