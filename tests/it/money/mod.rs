//! What may be spent and kept: budgets, caps, quotas.

mod billed_calls;
mod budgets;
mod caps;
mod job_spend;
mod quota_of_writes;
mod quotas;
mod tenants;
mod unmade_calls;
mod user_caps;

use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::ids::JobId;
use trellis::domain::job::{ErrorCode, Job, JobStatus};
use trellis::domain::time::Millis;
use trellis::venue::jobs;

/// Rules by which every agent says `done`, and `slow` only after a moment.
const DONE_RULES: &str = r#"
[[rule]]
when = { agent = "slow" }
then = { text = "done", delay_ms = 30 }

[[rule]]
then = { text = "done" }
"#;

/// Returns the time at which tests of caps begin: ten o'clock in UTC.
fn start() -> Millis {
    Millis::parse("2026-11-22T10:00:00Z").unwrap()
}

/// Returns the model of agents under a cap, without a price.
fn model() -> Value {
    json!({"provider": "scripted", "name": "rules", "maxTokens": 100})
}

/// The end of a job; time goes on meanwhile, as some look again later.
async fn ended(venue: &TestVenue, job: &JobId) -> Job {
    for _ in 0..6_000 {
        let now = jobs::read_for_people(&venue.venue, &venue.owner, job).await.unwrap().unwrap();
        if now.status.is_terminal() {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        venue.venue.clock.advance(Duration::from_millis(20));
    }
    panic!("job {job} doesn't end");
}

/// Returns the error of a job that reached a limit.
fn why(job: &Job) -> &str {
    let result = job.result.as_ref().unwrap();
    assert_eq!(result.error_code, Some(ErrorCode::LimitReached), "{result:?}");
    result.error.as_deref().unwrap()
}

/// Returns how many of the jobs are complete, and the tokens that these used; the others reached the limit `reason`.
fn sum_completed(jobs: &[Job], reason: &str) -> (u32, u64) {
    let (mut made, mut used) = (0, 0);
    for job in jobs {
        if job.status == JobStatus::Complete {
            let own = job.tally.as_ref().unwrap().spent;
            (made, used) = (made + 1, used + own.input + own.output);
        } else {
            assert!(why(job).contains(reason), "{job:?}");
        }
    }
    (made, used)
}
