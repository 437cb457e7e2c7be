//! Of the sessions of an agent the one is named that waits, wherever it stands; and a result under way is told as one.

use crate::support::both_stores::{On, on_both};
use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use bytes::Bytes;
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::event::Submission;
use trellis::domain::ids::{JobId, SessionKey};
use trellis::domain::job::{ErrorCode, JobResult, JobStatus};
use trellis::process::clock::Clock;
use trellis::store::JobFinish;
use trellis::venue::jobs;

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

/// More than an older build looked at.
const IDLE: usize = 205;

async fn submit_to(venue: &TestVenue, session: &str) -> JobId {
    let session_id = Some(session.parse().unwrap());
    let said = Submission { input: json!("go"), session_id, ..Submission::default() };
    venue.arrive("plain", &format!("of-{session}"), true, said).await.job.unwrap()
}

async fn waiting(venue: &TestVenue, agent: &str) -> Value {
    let ask = json!({"agentId": agent});
    let info = operate(&venue.venue, &boss(&venue.owner), "v/ops/agent/info", ask).await.unwrap();
    info["waiting"].clone()
}

async fn record(venue: &TestVenue, job: &JobId) -> Value {
    operate(&venue.venue, &boss(&venue.owner), "v/ops/job/result", json!({"id": job})).await.unwrap()
}

on_both! {
    a_session_behind_many_idle_ones_is_found
    of_several_that_wait_the_one_for_a_person_is_told
    a_result_under_way_is_what_its_parent_waits_for
}

async fn a_session_behind_many_idle_ones_is_found(on: On) {
    let Some((venue, _dir)) = on.venue(RULES, Clock::system()).await else { return };
    venue.agent("plain", json!({})).await;
    for n in 0..IDLE {
        let job = submit_to(&venue, &format!("a{n:03}")).await;
        jobs::cancel(&venue.venue, &venue.owner, &job, None).await.unwrap();
    }
    assert_eq!(waiting(&venue, "plain").await, Value::Null, "none waits yet");
    submit_to(&venue, "z").await;
    assert_eq!(waiting(&venue, "plain").await["kind"], "no-worker");
}

async fn of_several_that_wait_the_one_for_a_person_is_told(on: On) {
    let Some((venue, _dir)) = on.venue(RULES, Clock::system()).await else { return };
    venue.agent("plain", json!({})).await;
    for session in ["a", "b", "c"] {
        submit_to(&venue, session).await;
    }
    assert_eq!(waiting(&venue, "plain").await["kind"], "no-worker");
    let last = submit_to(&venue, "d").await;
    operate(&venue.venue, &boss(&venue.owner), "v/ops/job/pause", json!({"id": last})).await.unwrap();
    let waits = waiting(&venue, "plain").await;
    assert_eq!((&waits["kind"], &waits["by"]), (&json!("paused"), &json!("local/me")), "{waits}");
}

async fn a_result_under_way_is_what_its_parent_waits_for(on: On) {
    let Some((venue, _dir)) = on.venue(RULES, Clock::system()).await else { return };
    venue.agent("parent", json!({"concurrency": 3})).await;
    venue.agent("asker", json!({"tools": ["v/ops/human/ask"]})).await;
    venue.worker();
    let parent = venue.submit("parent", "t1", json!("go")).await.job.unwrap();
    let mut waits = Value::Null;
    for _ in 0..TRIES {
        waits = record(&venue, &parent).await["waiting"].clone();
        if waits["waiting"]["kind"] == "person" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let child: JobId = waits["job"].as_str().unwrap().parse().unwrap();
    // It ends, and what tells its parent has not arrived.
    let head = jobs::head(&venue.venue, &venue.owner, &child).await.unwrap().unwrap();
    let result = JobResult::unsuccessful(JobStatus::Cancelled, ErrorCode::Cancelled, "by a test");
    let finish = JobFinish {
        job: child.clone(),
        status: JobStatus::Cancelled,
        result: Bytes::from(serde_json::to_vec(&result).unwrap()),
    };
    let session = SessionKey { agent: head.agent, session: head.session };
    let store = &venue.venue.store;
    store.finish(venue.venue.now(), &venue.owner, &session, &finish, None, &[]).await.unwrap();
    let waits = record(&venue, &parent).await["waiting"].clone();
    assert_eq!((&waits["kind"], &waits["job"]), (&json!("result-due"), &json!(child)), "{waits}");
    assert!(waits["reason"].as_str().unwrap().contains("is on its way"), "{waits}");
}
