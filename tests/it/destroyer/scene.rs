//! A venue in which everything is under way: what the destroyer takes apart.

use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::ids::{JobId, Owner};
use trellis::domain::job::JobStatus;
use trellis::domain::time::Millis;
use trellis::store::keys;
use trellis::venue::jobs;

pub const START: Millis = Millis(1_767_225_600_000);

/// Of the scene: the child hangs. Those of the cases let it answer.
pub const HANGING: &str = r#"
[[rule]]
when = { agent = "middle" }
then = { fault = "hang" }

[[rule]]
when = { agent = "top", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "middle", input = "go", wait = 0 } }] }

[[rule]]
when = { agent = "payer", turn = 1 }
then = { calls = [{ tool = "pay", arguments = { path = "w/paid", value = 100 } }] }

[[rule]]
then = { text = "done" }
"#;

pub const RULES: &str = r#"
[[rule]]
when = { agent = "top", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "middle", input = "go", wait = 0 } }] }

[[rule]]
when = { agent = "payer", turn = 1 }
then = { calls = [{ tool = "pay", arguments = { path = "w/paid", value = 100 } }] }

[[rule]]
then = { text = "done" }
"#;

/// What must come of it.
#[derive(Debug, Clone)]
pub struct Scene {
    /// Waits for its child, for a person, and has ended.
    pub jobs: [JobId; 3],
}

async fn run(venue: &TestVenue, path: &str, input: Value) -> Result<Value, String> {
    operate(&venue.venue, &boss(&venue.owner), path, input).await.map_err(|error| format!("{path}: {error}"))
}

async fn until_status(venue: &TestVenue, job: &JobId, status: JobStatus) {
    for _ in 0..6_000 {
        if jobs::state(&venue.venue, &venue.owner, job).await.unwrap().is_some_and(|(is, _)| is == status) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("job {job} never is {status:?}");
}

/// A parent that waits for a child, a task that waits for a person, a timer, a job that has ended, documents.
pub async fn make(venue: &TestVenue) -> Scene {
    for agent in ["top", "middle", "helper"] {
        venue.agent(agent, json!({})).await;
    }
    let pay = json!({"tools": [{"operation": "v/ops/lattice/append", "name": "pay", "approval": "ask"}]});
    venue.agent("payer", pay).await;
    venue.write("w/notes/a", json!({"text": "kept"})).await;
    run(venue, "v/ops/asset/store", json!({"content": "asset"})).await.unwrap();
    run(venue, "v/ops/agent/trigger", json!({"agentId": "helper", "input": "tick", "after": "30m"})).await.unwrap();
    venue.worker();
    let ended = venue.run("helper", "ended", json!("go")).await.head.id;
    let parent = venue.submit("top", "parent", json!("go")).await.job.unwrap();
    let asked = venue.submit("payer", "asked", json!("go")).await.job.unwrap();
    until_status(venue, &asked, JobStatus::InputRequired).await;
    let mut total = 0;
    for _ in 0..1_000 {
        total = jobs::list(&venue.venue, &venue.owner, 0, 9).await.unwrap().total;
        if total == 4 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(total, 4, "{:?}", jobs::list(&venue.venue, &venue.owner, 0, 9).await.unwrap().items);
    // What was decided is published.
    for _ in 0..100 {
        venue.venue.clock.advance(Duration::from_millis(50));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    venue.shutdown.run(Duration::from_secs(1)).await;
    Scene { jobs: [parent, asked, ended] }
}

/// Lets a worker live for more than a minute.
pub async fn live(venue: &mut TestVenue) {
    venue.audit = Duration::from_secs(20);
    venue.lease = Duration::from_hours(3);
    venue.worker();
    for _ in 0..75 {
        venue.venue.clock.advance(Duration::from_secs(1));
        tokio::time::sleep(Duration::from_millis(12)).await;
    }
}

/// Whether another owner is served.
pub async fn serves_others(venue: &mut TestVenue) -> Result<(), String> {
    let mine = std::mem::replace(&mut venue.owner, "local/other".parse::<Owner>().unwrap());
    venue.agent("helper", json!({})).await;
    let task = venue.submit("helper", "other", json!("go")).await.job.unwrap();
    let done = finished(venue, &task).await;
    venue.owner = mine;
    done.map_err(|why| format!("another owner: {why}"))
}

async fn finished(venue: &TestVenue, job: &JobId) -> Result<(), String> {
    let mut last = None;
    for _ in 0..400 {
        last = jobs::get(&venue.venue, &venue.owner, job).await.map_err(|error| error.to_string())?;
        match &last {
            Some(job) if job.status == JobStatus::Complete && job.result.is_some() => return Ok(()),
            Some(job) if job.status.is_terminal() => break,
            _ => {}
        }
        venue.venue.clock.advance(Duration::from_millis(500));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(format!("job {job} doesn't complete: {:?}", last.map(|job| (job.status, job.result))))
}

/// Whether all that was under way comes to its end.
pub async fn finish(venue: &TestVenue, scene: &Scene) -> Result<(), String> {
    let found = venue.venue.store.scan(&venue.owner, keys::APPROVALS, None, false, 9).await;
    for (key, _) in found.map_err(|error| error.to_string())? {
        run(venue, "v/ops/approval/approve", json!({"id": key.strip_prefix(keys::APPROVALS).unwrap()})).await?;
    }
    for job in &scene.jobs {
        finished(venue, job).await?;
    }
    if venue.read("w/paid").await != Some(json!([100])) {
        return Err(format!("paid {:?}", venue.read("w/paid").await));
    }
    if venue.read("w/notes/a").await != Some(json!({"text": "kept"})) {
        return Err("a value is gone".to_owned());
    }
    let total = async || jobs::list(&venue.venue, &venue.owner, 0, 9).await.map(|page| page.total);
    if total().await.map_err(|error| error.to_string())? != 4 {
        return Err("there aren't four jobs".to_owned());
    }
    venue.venue.clock.advance(Duration::from_mins(31));
    for _ in 0..300 {
        if total().await.map_err(|error| error.to_string())? == 5 {
            return Ok(());
        }
        venue.venue.clock.advance(Duration::from_secs(1));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err("the timer doesn't fire".to_owned())
}
