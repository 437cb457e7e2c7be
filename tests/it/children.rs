//! Child jobs in real turns: what becomes of them when the job above is cancelled.

use crate::support::venue::TestVenue;
use serde_json::json;
use std::time::Duration;
use trellis::domain::ids::JobId;
use trellis::domain::job::{Job, JobStatus};
use trellis::jobs;

const RULES: &str = r#"
[[rule]]
when = { agent = "top", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "middle", input = "go", wait = 0 } }] }

[[rule]]
when = { agent = "busy", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "middle", input = "go", wait = 60000 } }] }

[[rule]]
when = { agent = "middle", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "bottom", input = "go", wait = 0 } }] }

[[rule]]
when = { agent = "bottom" }
then = { fault = "hang" }

[[rule]]
then = { text = "done" }
"#;

async fn venue() -> (TestVenue, tempfile::TempDir) {
    let (venue, dir) = TestVenue::embedded(RULES).await;
    for agent in ["top", "busy", "middle", "bottom"] {
        venue.agent(agent, json!({})).await;
    }
    (venue, dir)
}

async fn all(venue: &TestVenue) -> Vec<Job> {
    jobs::list(&venue.venue, &venue.owner, 0, 100).await.unwrap().items
}

/// Waits until the agent at the bottom has been asked.
async fn at_the_bottom(venue: &TestVenue) {
    let asked = |venue: &TestVenue| {
        venue.model_calls().iter().any(|call| call["turn"].as_str().is_some_and(|turn| turn.contains("/bottom/")))
    };
    for _ in 0..3000 {
        if asked(venue) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the agent at the bottom is never asked: {:?}", all(venue).await);
}

#[tokio::test]
async fn cancelling_a_job_cancels_its_descendants_wherever_they_are() {
    // The job above waits for its child outside a turn, or inside of one.
    for agent in ["top", "busy"] {
        let (venue, _dir) = venue().await;
        venue.worker().await;
        let job: JobId = venue.submit(agent, "t1", json!("go")).await.job.unwrap();
        at_the_bottom(&venue).await;
        jobs::cancel(&venue.venue, &venue.owner, &job, None).await.unwrap();
        for job in all(&venue).await {
            assert_eq!(venue.ended(&job.head.id).await.status, JobStatus::Cancelled, "{agent}: {}", job.head.agent);
        }
        assert_eq!(all(&venue).await.len(), 3, "{agent}");
    }
}

#[tokio::test]
async fn a_child_that_is_cancelled_leaves_the_job_above_alone() {
    let (venue, _dir) = venue().await;
    venue.worker().await;
    let job: JobId = venue.submit("top", "t1", json!("go")).await.job.unwrap();
    at_the_bottom(&venue).await;
    let bottom = all(&venue).await.into_iter().find(|job| job.head.agent.as_str() == "bottom").unwrap();
    jobs::cancel(&venue.venue, &venue.owner, &bottom.head.id, None).await.unwrap();
    assert_eq!(venue.ended(&job).await.status, JobStatus::Complete, "it hears of it and goes on");
}
