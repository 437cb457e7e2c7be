//! What a task does that arrives at a busy session: `queue`, `replace`, `reject`; and how sessions wait.

use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use trellis::domain::authority::Authority;
use trellis::domain::event::Submission;
use trellis::domain::ids::JobId;
use trellis::domain::job::{Job, JobStatus};
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::venue::jobs;

const START: Millis = Millis(1_767_225_600_000);

fn never(busy: &str) -> Value {
    json!({"model": {"provider": "scripted", "name": "never"}, "busy": busy})
}

fn to_main(input: &str) -> Submission {
    Submission { input: json!(input), session_id: Some("main".parse().unwrap()), ..Submission::default() }
}

async fn submit(venue: &TestVenue, id: &str) -> JobId {
    venue.arrive("a", id, true, to_main(id)).await.job.unwrap()
}

async fn job(venue: &TestVenue, id: &JobId) -> Job {
    jobs::get(&venue.venue, &venue.owner, id).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn replace_cancels_the_oldest_task_and_queues_the_new_one() {
    let (venue, _dir) = TestVenue::embedded("").await;
    venue.agent("a", never("queue")).await;
    let first = submit(&venue, "t1").await;
    let second = submit(&venue, "t2").await;
    venue.agent("a", never("replace")).await;
    let third = submit(&venue, "t3").await;
    let replaced = job(&venue, &first).await;
    assert_eq!(replaced.status, JobStatus::Cancelled);
    assert_eq!(replaced.result.unwrap().error.unwrap(), format!("cancelled: replaced by job {third}"));
    for queued in [&second, &third] {
        assert_eq!(job(&venue, queued).await.status, JobStatus::Pending);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replace_stops_the_task_that_is_being_served() {
    let (venue, _dir) = TestVenue::embedded("").await;
    venue.agent("a", never("replace")).await;
    venue.worker();
    let first = submit(&venue, "t1").await;
    while job(&venue, &first).await.status == JobStatus::Pending {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let second = submit(&venue, "t2").await;
    assert_eq!(venue.ended(&first).await.status, JobStatus::Cancelled);
    while job(&venue, &second).await.status == JobStatus::Pending {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(job(&venue, &second).await.status, JobStatus::Started);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_submission_replaces_nothing() {
    let (venue, _dir) = TestVenue::embedded("").await;
    venue.agent("a", never("replace")).await;
    let first = submit(&venue, "t1").await;
    assert_eq!(submit(&venue, "t1").await, first);
    assert_eq!(job(&venue, &first).await.status, JobStatus::Pending);
    let second = submit(&venue, "t2").await;
    assert_eq!(submit(&venue, "t1").await, first);
    assert_eq!(job(&venue, &second).await.status, JobStatus::Pending);
    // Over the queue, too.
    venue.worker();
    let to = MessageAddress::In { owner: venue.owner.clone(), agent: "a".parse().unwrap(), kind: InboundKind::Task };
    let publish = async |id: &str| {
        let body = json!({"input": id, "sessionId": "main"});
        let message = BusMessage { to: to.clone(), id: Some(id.to_owned()), body, trace: None };
        venue.venue.bus.publish(&message).await.unwrap();
    };
    publish("t3").await;
    assert_eq!(venue.ended(&second).await.status, JobStatus::Cancelled);
    let third = JobId::derive(&venue.venue.key, &venue.owner, &"t3".parse().unwrap());
    publish("t2").await;
    publish("t3").await;
    // Behind both in the queue: when it is done, they are.
    venue.agent("echo", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
    let behind =
        MessageAddress::In { owner: venue.owner.clone(), agent: "echo".parse().unwrap(), kind: InboundKind::Task };
    let message = BusMessage { to: behind, id: Some("last".into()), body: json!({"input": "x"}), trace: None };
    venue.venue.bus.publish(&message).await.unwrap();
    let last = JobId::derive(&venue.venue.key, &venue.owner, &"last".parse().unwrap());
    while jobs::get(&venue.venue, &venue.owner, &last).await.unwrap().is_none_or(|job| !job.status.is_terminal()) {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(!job(&venue, &third).await.status.is_terminal());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_whose_id_is_taken_replaces_nothing() {
    let (venue, _dir) = TestVenue::embedded("").await;
    venue.agent("a", never("replace")).await;
    let first = submit(&venue, "t1").await;
    let elsewhere = Submission { session_id: Some("other".parse().unwrap()), ..to_main("t2") };
    let taken = venue.arrive("a", "t2", true, elsewhere).await.job.unwrap();
    let refused = trellis::venue::ingress::submit(&venue.venue, &arrival(&venue, "t2")).await.unwrap_err().to_string();
    assert!(refused.contains("accepted before with another body"), "{refused}");
    for job in [&first, &taken] {
        assert_eq!(self::job(&venue, job).await.status, JobStatus::Pending);
    }
}

/// A task for the session `main`.
fn arrival(venue: &TestVenue, id: &str) -> trellis::venue::ingress::Arrival {
    trellis::venue::ingress::Arrival {
        owner: venue.owner.clone(),
        agent: "a".parse().unwrap(),
        task: true,
        id: id.parse().unwrap(),
        submission: to_main(id),
        received: venue.venue.now(),
        sequence: 0,
        by: trellis::domain::principal::Principal::ANYBODY,
        may_override: false,
        trace: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_mailbox_replaces_nothing() {
    let (venue, _dir) = TestVenue::embedded("").await;
    let mut config = never("replace");
    config["mailbox"] = 1.into();
    venue.agent("a", config).await;
    let first = submit(&venue, "t1").await;
    let refused = trellis::venue::ingress::submit(&venue.venue, &arrival(&venue, "t2")).await.unwrap_err().to_string();
    assert!(refused.contains("mailbox is full"), "{refused}");
    assert_eq!(job(&venue, &first).await.status, JobStatus::Pending);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_run_up_to_the_concurrency_and_wait_in_order() {
    let (venue, _dir) = TestVenue::embedded("").await;
    venue.agent("a", json!({"model": {"provider": "scripted", "name": "echo"}, "concurrency": 1})).await;
    let mut tasks = Vec::new();
    for n in 0..6 {
        tasks.push(venue.submit("a", &format!("t{n}"), json!(n)).await.job.unwrap());
    }
    venue.worker();
    let mut spans = Vec::new();
    for task in &tasks {
        assert_eq!(venue.ended(task).await.status, JobStatus::Complete);
    }
    let turns = trellis::venue::agents::timeline(
        &venue.venue,
        &venue.owner,
        &Authority::without_limits(),
        &"a".parse().unwrap(),
        0,
        100,
    )
    .await
    .unwrap();
    for turn in turns {
        spans.push((turn.record.start.0, turn.record.end.0));
    }
    // One at a time: the store's own cases hold the order of those who wait.
    assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{spans:?}");
}

/// Twelve tasks of an agent that serves one at a time, in a session each and all in one. The clock stands
/// still: no sweep, no alarm and no delivery again begins one, only the end of the one before.
async fn each_task_begins_when_the_one_before_ends(venue: TestVenue) {
    venue.agent("a", json!({"model": {"provider": "scripted", "name": "echo"}, "concurrency": 1})).await;
    venue.worker();
    let mut tasks = Vec::new();
    for n in 0..6 {
        tasks.push(venue.submit("a", &format!("own{n}"), json!(n)).await.job.unwrap());
        tasks.push(submit(&venue, &format!("main{n}")).await);
    }
    let start = std::time::Instant::now();
    for task in &tasks {
        while job(&venue, task).await.status != JobStatus::Complete {
            assert!(start.elapsed() < std::time::Duration::from_mins(1), "{task} waits: {:?}", job(&venue, task).await);
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
    assert_eq!(venue.venue.now(), START, "no time has passed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_serial_agents_next_task_needs_no_sweep() {
    let (venue, _dir) = TestVenue::embedded_at("", Clock::manual(START)).await;
    each_task_begins_when_the_one_before_ends(venue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_serial_agents_next_task_needs_no_sweep_on_redis() {
    let Some(server) = RedisServer::shared() else { return };
    let (venue, _dir, _) = TestVenue::redis_at(server, "", Clock::manual(START)).await;
    each_task_begins_when_the_one_before_ends(venue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owners_session_cap_does_not_delay_other_owners() {
    let (mut venue, _dir) = TestVenue::embedded("").await;
    venue.owner_cap = 2;
    for agent in ["a", "b"] {
        venue.agent(agent, never("queue")).await;
    }
    let mut jobs = Vec::new();
    for (agent, id) in [("a", "t1"), ("a", "t2"), ("b", "t3"), ("b", "t4")] {
        jobs.push(venue.submit(agent, id, json!("x")).await.job.unwrap());
    }
    venue.worker();
    let mine = venue.owner.clone();
    let started = async |venue: &TestVenue| {
        let mut found = Vec::new();
        for id in &jobs {
            let job = jobs::get(&venue.venue, &mine, id).await.unwrap().unwrap();
            found.extend((job.status == JobStatus::Started).then(|| id.clone()));
        }
        found
    };
    while started(&venue).await.len() < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    // Work of somebody else goes through all the same, and several turns later it is still two.
    venue.owner = "local/other".parse().unwrap();
    venue.agent("echo", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
    for id in ["n1", "n2", "n3"] {
        assert_eq!(venue.run("echo", id, json!("hi")).await.status, JobStatus::Complete);
    }
    let running = started(&venue).await;
    assert_eq!(running.len(), 2);
    // One ends: another of the four gets its slot.
    jobs::cancel(&venue.venue, &mine, &running[0], None).await.unwrap();
    while started(&venue).await.iter().all(|id| running.contains(id)) {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(started(&venue).await.len(), 2);
}
