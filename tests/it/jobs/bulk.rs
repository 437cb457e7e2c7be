//! Driving again what failed, and many jobs at once.

use crate::support::cli::Up;
use crate::support::http::Server;
use crate::support::operate::{boss, operate};
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use trellis::domain::authority::{Authority, Capability};
use trellis::domain::event::Submission;
use trellis::domain::ids::JobId;
use trellis::domain::job::{ErrorCode, Job, JobStatus};
use trellis::process::clock::Clock;
use trellis::venue::ingress::redrive::{RedriveError, redrive};
use trellis::venue::jobs;
use trellis::venue::operation::{Caller, OpError};

/// `looper` never ends in one turn; in a second one of its session it does.
const RULES: &str = r#"
[[rule]]
when = { agent = "looper", turn = 1 }
then = { calls = [{ tool = "lattice_list", arguments = { path = "w" } }] }

[[rule]]
then = { text = "done {{input}}" }
"#;

async fn embedded() -> (TestVenue, tempfile::TempDir) {
    TestVenue::embedded_at(RULES, Clock::system()).await
}

async fn over_redis() -> Option<(TestVenue, tempfile::TempDir)> {
    let (venue, dir, _) = TestVenue::redis_at(RedisServer::shared()?, RULES, Clock::system()).await;
    Some((venue, dir))
}

async fn failed(venue: &TestVenue, id: &str, submission: Submission) -> JobId {
    let job = venue.arrive("looper", id, true, submission).await.job.unwrap();
    let ended = venue.ended(&job).await;
    assert_eq!(ended.result.unwrap().error_code, Some(ErrorCode::LimitReached));
    job
}

async fn looper(venue: &TestVenue, turns: u32) {
    venue.agent("looper", json!({"tools": ["v/ops/lattice/list"], "limits": {"turns": turns}})).await;
}

fn says(input: &str) -> Submission {
    Submission { input: json!(input), ..Submission::default() }
}

async fn bulk(venue: &TestVenue, caller: &Caller, asked: Value) -> Result<Value, OpError> {
    operate(&venue.venue, caller, "v/ops/job/bulk", asked).await
}

async fn job(venue: &TestVenue, id: &JobId) -> Job {
    jobs::get(&venue.venue, &venue.owner, id).await.unwrap().unwrap()
}

async fn driven_again((venue, _dir): (TestVenue, tempfile::TempDir)) {
    looper(&venue, 1).await;
    venue.worker();
    let budget = serde_json::from_value(json!({"turns": 3})).unwrap();
    let id = failed(&venue, "t1", Submission { budget, ..says("first") }).await;
    looper(&venue, 5).await;
    // Twice at once is once.
    let (venue_, owner) = (&*venue.venue, &venue.owner);
    let (left, right) = tokio::join!(redrive(venue_, owner, &id), redrive(venue_, owner, &id));
    let (left, right) = (left.unwrap(), right.unwrap());
    assert_eq!(left.0, right.0);
    assert!(left.1 || right.1, "one of them was the second");
    let again = venue.ended(&left.0).await;
    assert_eq!((again.status, again.head.redrive_of.clone()), (JobStatus::Complete, Some(id.clone())));
    assert_eq!(again.result.unwrap().output, Some(json!("done first")));
    let before = job(&venue, &id).await;
    assert_eq!((before.status, &before.head.session), (JobStatus::Failed, &again.head.session));
    assert_eq!(venue.turns("looper", before.head.session.as_str()).await.len(), 2, "no turn is applied twice");
    assert_eq!(redrive(venue_, owner, &id).await.unwrap(), (left.0.clone(), true), "and later, too");
    let wrong = redrive(venue_, owner, &left.0).await.unwrap_err();
    assert!(matches!(&wrong, RedriveError::Refused { .. }) && wrong.to_string().contains("has not FAILED"), "{wrong}");
    looper(&venue, 1).await;
    let values = json!({"k": 1}).as_object().unwrap().clone();
    let again = failed(&venue, "t2", Submission { session_context: values, ..says("with values") }).await;
    let wrong = redrive(venue_, owner, &again).await.unwrap_err();
    assert!(wrong.to_string().contains("`sessionContext`"), "{wrong}");
}

async fn many_at_once((venue, _dir): (TestVenue, tempfile::TempDir)) {
    looper(&venue, 1).await;
    venue.worker();
    for n in 0..5 {
        failed(&venue, &format!("t{n}"), says(&format!("task {n}"))).await;
    }
    venue.agent("other", json!({})).await;
    venue.run("other", "o1", json!("fine")).await;
    looper(&venue, 5).await;
    let boss = boss(&venue.owner);
    let asked = json!({"action": "redrive", "agent": "looper", "code": ["limit_reached"], "dryRun": true});
    let counted = bulk(&venue, &boss, asked.clone()).await.unwrap();
    assert_eq!((&counted["matched"], &counted["done"]), (&json!(5), &json!(0)));
    let with = |more: Value| {
        let mut asked = asked.as_object().unwrap().clone();
        asked.remove("dryRun");
        asked.extend(more.as_object().unwrap().clone());
        Value::Object(asked)
    };
    for (more, error) in [
        (json!({}), "`expected`"),
        (json!({"expected": 4}), "4 jobs, but there are more: nothing was done"),
        (json!({"expected": 6}), "6 jobs, but there are 5: nothing was done"),
        (json!({"expected": 5, "status": ["COMPLETE"]}), "`status`"),
        (json!({"expected": 5, "code": ["NONE"]}), "`/code/0`"),
        (json!({"expected": 5, "cursor": "x"}), "`/cursor`"),
        (json!({"expected": 5, "limit": 101}), "limit"),
        (json!({"expected": 5, "agnet": "x"}), "agnet"),
    ] {
        let refused = bulk(&venue, &boss, with(more.clone())).await.unwrap_err().to_string();
        assert!(refused.contains(error), "{more}: {refused}");
    }
    let first = bulk(&venue, &boss, with(json!({"expected": 5, "limit": 2}))).await.unwrap();
    assert_eq!((&first["done"], &first["failed"]), (&json!(2), &json!(0)), "{first}");
    let narrow = Authority::new(Some(vec![Capability { with: "j".into(), can: "crud/read".into() }]));
    let narrow = Caller::new(venue.owner.clone(), "reader".into(), narrow);
    let second = bulk(&venue, &narrow, with(json!({"cursor": first["next"], "limit": 2}))).await.unwrap();
    assert_eq!((&second["denied"], &second["done"]), (&json!(2), &json!(0)), "{second}");
    let nobody = Caller::new(venue.owner.clone(), "nobody".into(), Authority::new(Some(Vec::new())));
    assert!(matches!(bulk(&venue, &nobody, asked.clone()).await, Err(OpError::Denied(_))));
    let mut place = first["next"].clone();
    let mut done = 2;
    while place.is_string() {
        let batch = bulk(&venue, &boss, with(json!({"cursor": place, "limit": 2}))).await.unwrap();
        done += batch["done"].as_u64().unwrap();
        place = batch["next"].clone();
    }
    assert_eq!(done, 5);
    let jobs = crate::support::venue::all_jobs(&venue.venue, &venue.owner).await;
    assert_eq!(jobs.len(), 11, "five failed, five again, and another's");
    for again in jobs.iter().filter(|job| job.head.redrive_of.is_some()) {
        assert_eq!(venue.ended(&again.head.id).await.status, JobStatus::Complete);
    }
    assert_eq!(bulk(&venue, &boss, asked).await.unwrap()["matched"], 0, "what was driven again isn't once more");
}

macro_rules! on_both {
    ($($case:ident)*) => {
        mod on_embedded {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                super::$case(super::embedded().await).await;
            })*
        }
        mod on_redis {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                let Some(venue) = super::over_redis().await else { return };
                super::$case(venue).await;
            })*
        }
    };
}

on_both! { driven_again many_at_once }

#[tokio::test]
async fn open_jobs_are_cancelled_by_filter_over_http() {
    let server = Server::start().await;
    server.echo_agent("clerk").await;
    server.put("/api/v1/agents/clerk/suspend", json!({})).await.body(200);
    for n in 0..3 {
        server.post("/api/v1/agents/clerk/tasks", json!({"input": n})).await.body(202);
    }
    let asked = json!({"action": "cancel", "agent": "clerk", "status": ["pending"], "dryRun": true});
    assert_eq!(server.post("/api/v1/jobs", asked).await.body(200)["matched"], 3);
    let wrong = json!({"action": "cancel", "agent": "clerk", "expected": 2});
    server.post("/api/v1/jobs", wrong).await.is_problem(409, "nothing was done");
    let asked = json!({"action": "cancel", "agent": "clerk", "expected": 3, "reason": "not wanted"});
    assert_eq!(server.post("/api/v1/jobs", asked).await.body(200)["done"], 3);
    let found = server.get("/api/v1/jobs?code=CANCELLED&details=true").await.body(200);
    assert_eq!(found["items"].as_array().unwrap().len(), 3);
    assert!(found["items"][0]["error"].as_str().unwrap().contains("not wanted"));
    server.get("/api/v1/jobs?code=NONE").await.is_problem(400, "`code`");
    let id = found["items"][0]["id"].as_str().unwrap();
    server.put(&format!("/api/v1/jobs/{id}/redrive"), json!({})).await.is_problem(409, "has not FAILED");
    server.put(&format!("/api/v1/jobs/{}/redrive", "0".repeat(32)), json!({})).await.is_problem(404, "no job");
}

#[test]
fn the_command_line_asks_for_the_number_first() {
    let up = Up::start();
    up.agent("clerk", "never");
    for n in 0..3 {
        up.run(&["submit", "clerk", &n.to_string()]).ok();
    }
    up.run(&["job", "cancel"]).expect(2, "the id of a job, or which ones");
    up.run(&["job", "cancel", &"0".repeat(32), "--agent", "clerk"]).expect(2, "the id of a job, or which ones");
    up.run(&["job", "cancel", "--agent", "clerk"]).expect(2, "3 jobs would be cancelled; nobody is there to ask");
    assert_eq!(up.run(&["job", "cancel", "--agent", "clerk", "--yes"]).ok(), "3 cancelled");
    assert_eq!(up.run(&["job", "cancel", "--agent", "clerk"]).ok(), "0 cancelled");
    up.run(&["dead", "redrive", "--state", "complete"]).expect(2, "only FAILED ones");
    assert_eq!(up.run(&["dead", "redrive", "--agent", "clerk", "--code", "dead,limit_reached"]).ok(), "0 driven again");
}
