//! Jobs that are paused, go on, end while they are paused, and are spoken to.

use crate::support::both_stores::{On, on_both};
use crate::support::cli::Up;
use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::event::Submission;
use trellis::domain::ids::JobId;
use trellis::domain::job::{ErrorCode, Job, JobStatus};
use trellis::domain::limits::GRANT_EVENTS;
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::venue::jobs;
use trellis::venue::operation::OpError;

const START: Millis = Millis(1_767_225_600_000);

const RULES: &str = r#"
[[rule]]
when = { agent = "slow", turn = 1 }
then = { calls = [{ tool = "test_delay", arguments = { delay = 400 } }] }

[[rule]]
when = { agent = "asker", turn = 1 }
then = { calls = [{ tool = "lattice_write", arguments = { path = "w/done", value = 1 } }] }

[[rule]]
when = { prompt = "only invoices of 2026" }
then = { text = "of 2026" }

[[rule]]
then = { text = "of all years" }
"#;

async fn venue(on: On, clock: Clock) -> Option<(TestVenue, tempfile::TempDir)> {
    let (venue, dir) = on.venue(RULES, clock).await?;
    venue.agent("slow", json!({"tools": ["v/test/ops/delay", "v/ops/test/delay"]})).await;
    let asks = json!({"operation": "v/ops/lattice/write", "approval": "ask"});
    venue.agent("asker", json!({"tools": [asks], "defaultTools": false})).await;
    Some((venue, dir))
}

async fn run(venue: &TestVenue, verb: &str, id: &JobId) -> Result<Value, OpError> {
    operate(&venue.venue, &boss(&venue.owner), &format!("v/ops/job/{verb}"), json!({"id": id})).await
}

async fn tell(venue: &TestVenue, id: &JobId, message: Value) -> Result<Value, OpError> {
    let said = json!({"id": id, "message": message});
    operate(&venue.venue, &boss(&venue.owner), "v/ops/job/message", said).await
}

async fn job(venue: &TestVenue, id: &JobId) -> Job {
    jobs::get(&venue.venue, &venue.owner, id).await.unwrap().unwrap()
}

async fn until(venue: &TestVenue, id: &JobId, status: JobStatus) {
    for _ in 0..600 {
        if job(venue, id).await.status == status {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("job {id} is {:?}, expected {status:?}", job(venue, id).await.status);
}

async fn turns(venue: &TestVenue, id: &JobId) -> usize {
    let head = job(venue, id).await.head;
    venue.turns(head.agent.as_str(), head.session.as_str()).await.len()
}

/// A job of `slow` that was paused in its first turn, which has committed since.
async fn paused(venue: &TestVenue, name: &str) -> JobId {
    let id = venue.submit("slow", name, json!("go")).await.job.unwrap();
    until(venue, &id, JobStatus::Started).await;
    assert_eq!(run(venue, "pause", &id).await.unwrap()["status"], "PAUSED");
    while turns(venue, &id).await == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    id
}

on_both! {
    the_running_turn_commits_and_none_begins_until_it_goes_on
    a_paused_job_can_be_cancelled
    the_time_of_a_paused_job_goes_on_and_ends_it_without_a_turn
    the_time_of_an_unstarted_paused_job_goes_on
    an_answer_waits_with_the_job_that_it_is_for
    a_message_reaches_the_task_alone
    messages_beyond_one_turn_reach_a_paused_job
    jobs_can_be_paused_and_messaged_over_the_queue
}

async fn the_running_turn_commits_and_none_begins_until_it_goes_on(on: On) {
    let Some((venue, _dir)) = venue(on, Clock::system()).await else { return };
    venue.worker();
    let id = paused(&venue, "t1").await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!((turns(&venue, &id).await, job(&venue, &id).await.status), (1, JobStatus::Paused));
    assert_eq!(run(&venue, "pause", &id).await.unwrap()["status"], "PAUSED", "twice is once");
    assert_eq!(run(&venue, "resume", &id).await.unwrap()["status"], "STARTED");
    let ended = venue.ended(&id).await;
    assert_eq!(ended.result.unwrap().output, Some(json!("of all years")));
    assert_eq!(turns(&venue, &id).await, 2);
    for verb in ["pause", "resume"] {
        assert!(matches!(run(&venue, verb, &id).await, Err(OpError::Conflict(_))), "{verb}");
    }
}

#[test]
fn a_job_paused_by_command_stays_paused_over_kill_9() {
    let mut up = Up::start();
    // Until it is killed, no reply comes: the turn that runs never commits.
    up.agent("slow", "[[rule]]\nthen = { text = \"never\", fault = \"hang\" }\n");
    let id = up.run(&["submit", "slow", "it"]).ok();
    let status = |up: &Up| -> String {
        let record: Value = serde_json::from_str(&up.run(&["job", "get", &id, "--output", "json"]).ok()).unwrap();
        record["status"].as_str().unwrap().to_owned()
    };
    while status(&up) == "PENDING" {}
    assert_eq!(up.run(&["job", "pause", &id]).ok(), format!("{id} PAUSED"));
    up.process.signal("KILL");
    up.process.ended();
    up.file("slow.rules", "[[rule]]\nwhen = { prompt = \"be brief\" }\nthen = { text = \"brief {{input}}\" }\n");
    up.start_again();
    up.run(&["job", "message", &id, "be brief"]).ok();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(status(&up), "PAUSED");
    assert_eq!(up.run(&["job", "resume", &id]).ok(), format!("{id} STARTED"));
    assert_eq!(up.run(&["job", "wait", &id, "--timeout", "60s"]).ok(), "brief it");
    up.run(&["job", "pause", &id]).expect(6, "can't be paused any more");
    up.run(&["job", "message", &id, "more"]).expect(6, "waits for no input");
    let audit: Value = serde_json::from_str(&up.run(&["audit", "--output", "json"]).ok()).unwrap();
    assert_eq!(audit["unaccounted"], 0, "{audit}");
}

async fn a_paused_job_can_be_cancelled(on: On) {
    let Some((venue, _dir)) = venue(on, Clock::system()).await else { return };
    venue.worker();
    let id = paused(&venue, "t1").await;
    jobs::cancel(&venue.venue, &venue.owner, &id, None).await.unwrap();
    assert_eq!(venue.ended(&id).await.status, JobStatus::Cancelled);
    let Err(OpError::Conflict(error)) = run(&venue, "resume", &id).await else { panic!("it has ended") };
    assert!(error.contains("CANCELLED"), "{error}");
    // Its session is free for the next task.
    let session = job(&venue, &id).await.head.session;
    let next = Submission { input: json!("x"), session_id: Some(session), ..Submission::default() };
    let next = venue.arrive("slow", "t2", true, next).await.job.unwrap();
    assert_eq!(venue.ended(&next).await.status, JobStatus::Complete);
}

async fn the_time_of_a_paused_job_goes_on_and_ends_it_without_a_turn(on: On) {
    let Some((venue, _dir)) = venue(on, Clock::manual(START)).await else { return };
    let wind_down = json!({"tools": ["v/ops/test/delay"], "limits": {"wallClock": 60, "windDown": true}});
    venue.agent("slow", wind_down).await;
    venue.worker();
    let id = paused(&venue, "t1").await;
    let calls = venue.model_calls().len();
    venue.venue.clock.advance(Duration::from_secs(61));
    let ended = venue.ended(&id).await;
    let result = ended.result.unwrap();
    assert_eq!((ended.status, result.error_code), (JobStatus::Failed, Some(ErrorCode::LimitReached)));
    assert!(result.error.unwrap().contains("while it was paused"));
    assert_eq!((turns(&venue, &id).await, venue.model_calls().len()), (1, calls));
}

async fn the_time_of_an_unstarted_paused_job_goes_on(on: On) {
    let Some((venue, _dir)) = venue(on, Clock::manual(START)).await else { return };
    let within = |seconds: u64| Submission {
        input: json!("go"),
        session_id: Some("s".parse().unwrap()),
        budget: serde_json::from_value(json!({"wallClock": seconds})).unwrap(),
        ..Submission::default()
    };
    let first = venue.arrive("slow", "t1", true, within(60)).await.job.unwrap();
    run(&venue, "pause", &first).await.unwrap();
    let behind = venue.arrive("slow", "t2", true, within(30)).await.job.unwrap();
    let free = venue.arrive("slow", "t3", true, within(3_600)).await.job.unwrap();
    venue.worker();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(job(&venue, &first).await.status, JobStatus::Paused);
    for (seconds, id, how) in [(31, &behind, "before it began"), (30, &first, "while it was paused")] {
        venue.venue.clock.advance(Duration::from_secs(seconds));
        let ended = venue.ended(id).await;
        let result = ended.result.unwrap();
        assert_eq!((ended.status, result.error_code), (JobStatus::Failed, Some(ErrorCode::BudgetExceeded)));
        assert!(result.error.unwrap().ends_with(how));
    }
    assert_eq!(venue.ended(&free).await.status, JobStatus::Complete, "its session is free");
    assert!(turns(&venue, &free).await > 0);
}

async fn an_answer_waits_with_the_job_that_it_is_for(on: On) {
    let Some((venue, _dir)) = venue(on, Clock::system()).await else { return };
    venue.worker();
    let id = venue.submit("asker", "t1", json!("go")).await.job.unwrap();
    until(&venue, &id, JobStatus::InputRequired).await;
    assert_eq!(run(&venue, "pause", &id).await.unwrap()["status"], "PAUSED");
    let open = operate(&venue.venue, &boss(&venue.owner), "v/ops/approval/list", json!({})).await.unwrap();
    let approval = &open["items"][0]["id"];
    let yes = json!({"id": approval, "digest": open["items"][0]["digest"]});
    operate(&venue.venue, &boss(&venue.owner), "v/ops/approval/approve", yes).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!((job(&venue, &id).await.status, venue.read("w/done").await), (JobStatus::Paused, None));
    run(&venue, "resume", &id).await.unwrap();
    assert_eq!(venue.ended(&id).await.status, JobStatus::Complete);
    assert_eq!(venue.read("w/done").await, Some(json!(1)));
}

async fn a_message_reaches_the_task_alone(on: On) {
    let Some((venue, _dir)) = venue(on, Clock::system()).await else { return };
    venue.worker();
    let id = paused(&venue, "t1").await;
    let told = tell(&venue, &id, json!("only invoices of 2026")).await.unwrap();
    assert_eq!((&told["status"], &told["queueDepth"]), (&json!("queued"), &json!(1)));
    let session = job(&venue, &id).await.head.session;
    let behind = Submission { input: json!("x"), session_id: Some(session), ..Submission::default() };
    let behind = venue.arrive("slow", "t2", true, behind).await.job.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(job(&venue, &behind).await.status, JobStatus::Pending, "the session is its task's");
    run(&venue, "resume", &id).await.unwrap();
    assert_eq!(venue.ended(&id).await.result.unwrap().output, Some(json!("of 2026")));
    venue.ended(&behind).await;
    assert!(matches!(tell(&venue, &id, json!("more")).await, Err(OpError::Conflict(_))));
    assert!(matches!(tell(&venue, &id, Value::Null).await, Err(OpError::Invalid(_))));
}

async fn messages_beyond_one_turn_reach_a_paused_job(on: On) {
    let Some((venue, _dir)) = venue(on, Clock::system()).await else { return };
    // One that is paused before its first turn, and one behind which the other waits.
    let id = venue.submit("slow", "t", json!({"task": "add up the invoices"})).await.job.unwrap();
    run(&venue, "pause", &id).await.unwrap();
    let behind = venue.submit("slow", "t2", json!("and again")).await.job.unwrap();
    for n in 0..GRANT_EVENTS + 6 {
        let of = if n % 2 == 0 { &id } else { &behind };
        tell(&venue, of, json!(format!("message {n}: only invoices of 2026"))).await.unwrap();
    }
    venue.worker();
    run(&venue, "resume", &id).await.unwrap();
    for id in [&id, &behind] {
        let done = venue.ended(id).await;
        assert_eq!(done.result.unwrap().output, Some(json!("of 2026")), "it heard some of them");
    }
}

async fn jobs_can_be_paused_and_messaged_over_the_queue(on: On) {
    let Some((venue, _dir)) = venue(on, Clock::system()).await else { return };
    let id = venue.submit("asker", "t1", json!("go")).await.job.unwrap();
    venue.agent("asker", json!({})).await;
    let publish = async |kind, agent: &str, id: Option<&str>, body| {
        let to = MessageAddress::In { owner: venue.owner.clone(), agent: agent.parse().unwrap(), kind };
        venue.venue.bus.publish(&BusMessage { to, id: id.map(Into::into), body, trace: None }).await.unwrap();
    };
    run(&venue, "pause", &id).await.unwrap();
    venue.worker();
    let said = json!({"job": id, "input": "only invoices of 2026"});
    publish(InboundKind::Message, "slow", Some("m0"), said.clone()).await;
    publish(InboundKind::Message, "asker", Some("m1"), said).await;
    let queued = async || {
        let all = venue.venue.store.sessions(&venue.owner, None, None, 9).await.unwrap();
        all.iter().map(|facts| facts.mailbox.len()).sum::<usize>()
    };
    while queued().await < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    publish(InboundKind::Resume, "asker", None, json!({"job": id})).await;
    assert_eq!(venue.ended(&id).await.head.id, id);
    assert_eq!(queued().await, 0, "the one for another agent was refused");
    let slow = venue.submit("slow", "t2", json!("go")).await.job.unwrap();
    until(&venue, &slow, JobStatus::Started).await;
    publish(InboundKind::Pause, "slow", None, json!({"job": slow})).await;
    until(&venue, &slow, JobStatus::Paused).await;
}
