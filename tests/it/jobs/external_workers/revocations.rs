//! Revocations beside jobs of external workers: one is published already, and one waits to be.

use super::Office;
use crate::support::both_stores::{On, on_both};
use crate::support::nats::NatsServer;
use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::authority::policy::Revocation;
use trellis::domain::ids::JobId;
use trellis::domain::job::{ErrorCode, Job, JobStatus};
use trellis::process::clock::Clock;
use trellis::store::{DocWrite, keys};
use trellis::venue::jobs;
use trellis::venue::policy;

on_both! {
    a_revocation_stops_the_publication_of_a_waiting_job
    a_missing_policy_stops_the_publication_of_a_waiting_job
}

/// Jobs for external workers, by their queue.
async fn outbound(office: &Office) -> Vec<(String, Job)> {
    let all = jobs::list(&office.venue.venue, &office.venue.owner, 0, 100).await.unwrap().items;
    let all = all.into_iter().filter(|job| job.head.op.is_some());
    all.map(|job| (job.head.input["queue"].as_str().unwrap().to_owned(), job)).collect()
}

fn ids(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one["job"].as_str().unwrap()).collect()
}

async fn a_revocation_stops_the_publication_of_a_waiting_job(on: On) {
    Box::pin(what_is_revoked_is_not_published(on, false)).await;
}

/// Its copy is in force.
async fn a_missing_policy_stops_the_publication_of_a_waiting_job(on: On) {
    Box::pin(what_is_revoked_is_not_published(on, true)).await;
}

/// Waits until no call of a job outside lies in the outbox.
async fn no_call_is_left(venue: &TestVenue) {
    let mut left = Vec::new();
    for _ in 0..1_000 {
        left = venue.venue.store.outbox(&venue.owner).await.unwrap();
        left.retain(|entry| entry.id.starts_with("venue:call-"));
        if left.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{left:?}");
}

async fn what_is_revoked_is_not_published(on: On, policy_is_gone: bool) {
    let Some(mut nats) = NatsServer::start() else { return };
    let Some(office) = Office::on(on, &nats.url(), Clock::system()).await else { return };
    let venue = &office.venue;
    let queues = ["held-grant", "held-holder", "held-child", "held-kept"];
    let mut tasks: Vec<JobId> = Vec::new();
    for queue in queues {
        venue.agent(queue, json!({"tools": ["v/ops/queue/publish"], "defaultTools": false})).await;
        tasks.push(venue.submit(queue, queue, json!(queue)).await.job.unwrap());
    }
    let begun = || venue.model_calls().iter().filter(|call| call["event"] == "started").count();
    for _ in 0..500 {
        if begun() == queues.len() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // While their models think.
    nats.kill();
    assert_eq!(begun(), queues.len());
    let mut waiting = outbound(&office).await;
    for _ in 0..6_000 {
        if waiting.len() == queues.len() && waiting.iter().all(|(_, job)| job.waiting.is_some()) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        waiting = outbound(&office).await;
    }
    let named = |queue: &str| waiting.iter().find(|(of, _)| of == queue).unwrap().1.clone();
    for (queue, what) in [
        ("held-grant", json!({"grant": tasks[0]})),
        ("held-holder", json!({"holder": "agent:held-holder"})),
        ("held-child", json!({"grant": named("held-child").head.id})),
    ] {
        let job = named(queue);
        assert!(job.waiting.is_some(), "{job:?}");
        let answer = operate(&venue.venue, &boss(&venue.owner), "v/ops/policy/revoke", what.clone()).await.unwrap();
        let stops = &answer["stops"];
        assert!(ids(&stops["jobs"]).contains(&job.head.id.as_str()), "{queue}: it waits: {stops}");
        assert_eq!(stops["running"], json!([]), "{queue}: no worker can have it");
    }
    if policy_is_gone {
        let gone = [DocWrite::delete(keys::POLICY)];
        venue.venue.store.write(venue.venue.now(), &venue.owner, &gone).await.unwrap();
    }
    nats.restart();
    for (queue, job) in &waiting {
        if queue == "held-kept" {
            assert_eq!(office.take(queue).await.job, job.head.id);
            continue;
        }
        let ended = office.becomes(&job.head.id, "ended", |job| job.status.is_terminal()).await;
        let result = ended.result.unwrap();
        assert_eq!(result.error_code, Some(ErrorCode::CapDenied), "{queue}: {result:?}");
        assert!(result.error.unwrap().contains("nothing starts any more under"), "{queue}");
    }
    // The one that is left was taken; nothing else was ever in the stream.
    let stream = office.context.get_stream(office.jobs_stream()).await.unwrap();
    assert_eq!(stream.cached_info().state.last_sequence, 1);
    no_call_is_left(venue).await;
    // The agent of which this job alone was revoked goes on, and knows.
    assert_eq!(venue.ended(&tasks[2]).await.status, JobStatus::Complete);
    office.books_are_closed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_published_job_is_recorded_and_delivered_once() {
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
