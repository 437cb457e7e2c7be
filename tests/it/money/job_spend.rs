//! Tokens and money of jobs with the jobs under them: while they run, when they have ended, in lists, and
//! for jobs of older versions.

use crate::support::redis::RedisServer;
use crate::support::venue::{TestVenue, job_record};
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::ids::JobId;
use trellis::domain::job::{Job, JobStatus};
use trellis::process::clock::Clock;
use trellis::store::{ForgetRequest, keys};
use trellis::venue::jobs;
use trellis::venue::jobs::list::{JobListFilter, find};

const RULES: &str = r#"
[[rule]]
when = { agent = "boss", turn = 1 }
then = { calls = [
    { tool = "agent_request", arguments = { agentId = "worker", input = "one", wait = 60000 } },
    { tool = "agent_request", arguments = { agentId = "worker", input = "two", wait = 60000 } },
], usage = { input = 1000, output = 10 } }

[[rule]]
when = { agent = "boss" }
then = { text = "done", usage = { input = 2000, output = 20 } }

[[rule]]
when = { agent = "worker", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "free", input = "go", wait = 60000 } }], usage = { input = 100, output = 1 } }

[[rule]]
when = { agent = "worker" }
then = { text = "done", usage = { input = 200, output = 2 } }

[[rule]]
when = { agent = "slow", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "quick", input = "go", wait = 60000 } }], usage = { input = 7, output = 7 } }

[[rule]]
when = { agent = "slow" }
then = { fault = "hang" }

[[rule]]
then = { text = "done", usage = { input = 10, output = 5 } }
"#;

fn priced() -> Value {
    json!({"provider": "scripted", "name": "rules", "price": {"input": 1.0, "output": 100.0}})
}

async fn agents(venue: &TestVenue) {
    for (name, model) in [("boss", priced()), ("worker", priced()), ("slow", priced()), ("quick", priced())] {
        venue.agent(name, json!({"model": model})).await;
    }
    venue.agent("free", json!({})).await;
}

async fn shown(venue: &TestVenue, id: &JobId) -> Value {
    let job = jobs::read_for_people(&venue.venue, &venue.owner, id).await.unwrap().unwrap();
    job_record(&job)["spend"].take()
}

/// A boss with two workers, each of whom has a helper whose model has no price.
fn whole_tree() -> Value {
    json!({
        "own": {"calls": 2, "input": 3000, "output": 30, "cost": 0.006},
        "tree": {"calls": 8, "input": 3620, "output": 46, "cost": 0.0072, "unpriced": 2, "jobs": 4},
    })
}

async fn a_tree_adds_up(venue: TestVenue) {
    agents(&venue).await;
    venue.worker();
    let boss = venue.run("boss", "b", json!("go")).await;
    assert_eq!(boss.status, JobStatus::Complete);
    assert_eq!(shown(&venue, &boss.head.id).await, whole_tree());
    let spend = |jobs: &[Job], agent: &str| {
        let of = |job: &&Job| job.head.agent.as_str() == agent;
        jobs.iter().filter(of).map(|job| job_record(job)["spend"].take()).collect::<Vec<_>>()
    };
    let list = jobs::list(&venue.venue, &venue.owner, 0, 10).await.unwrap().items;
    let filter = JobListFilter { agent: Some("boss".parse().unwrap()), ..JobListFilter::default() };
    let found = find(&venue.venue, &venue.owner, &filter, None, 10).await.unwrap().jobs;
    assert_eq!((spend(&list, "boss"), spend(&found, "boss")), (vec![whole_tree()], vec![whole_tree()]));
    let worker = json!({
        "own": {"calls": 2, "input": 300, "output": 3, "cost": 0.0006},
        "tree": {"calls": 3, "input": 310, "output": 8, "cost": 0.0006, "unpriced": 1, "jobs": 1},
    });
    assert_eq!(spend(&list, "worker"), vec![worker.clone(), worker]);
    let free = json!({"calls": 1, "input": 10, "output": 5, "unpriced": 1});
    assert_eq!(spend(&list, "free")[0]["own"], free);
    // Of jobs that are gone nothing is known, and the rest stays.
    let gone: Vec<_> = list.iter().filter(|job| job.head.agent.as_str() == "free").collect();
    let documents = gone.iter().flat_map(|job| keys::job_documents(&job.head.id)).collect();
    let forget = ForgetRequest { documents, ..ForgetRequest::default() };
    venue.venue.store.forget(venue.venue.now(), &venue.owner, &forget).await.unwrap();
    let left = json!({"calls": 6, "input": 3600, "output": 36, "cost": 0.0072, "jobs": 2});
    assert_eq!(shown(&venue, &boss.head.id).await["tree"], left);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_of_jobs_adds_up_on_the_embedded_store() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    a_tree_adds_up(venue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_of_jobs_adds_up_on_redis() {
    let Some(server) = RedisServer::shared() else { return };
    let (venue, _dir, _prefix) = TestVenue::redis_at(server, RULES, Clock::system()).await;
    a_tree_adds_up(venue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_shows_what_it_has_used_so_far() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    agents(&venue).await;
    venue.worker();
    let job = venue.submit("slow", "s", json!("go")).await.job.unwrap();
    let expected = json!({
        "own": {"calls": 1, "input": 7, "output": 7, "cost": 0.000_707},
        "tree": {"calls": 2, "input": 17, "output": 12, "cost": 0.001_217, "jobs": 1},
    });
    let mut seen = Value::Null;
    for _ in 0..1_000 {
        seen = shown(&venue, &job).await;
        if seen == expected {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(seen, expected);
    // The child's end is stored before the parent's next turn begins its call: nothing says that it is under way.
    tokio::time::sleep(Duration::from_secs(1)).await;
    jobs::cancel(&venue.venue, &venue.owner, &job, None).await.unwrap();
    // The call that hangs is broken off: its prompt may have to be paid.
    for _ in 0..1_000 {
        seen = shown(&venue, &job).await;
        if seen["own"]["calls"] == 2 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the call that was broken off counts: {seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_an_older_version_says_nothing() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    agents(&venue).await;
    venue.worker();
    let job = venue.run("quick", "q", json!("go")).await;
    let known = shown(&venue, &job.head.id).await;
    assert_eq!((&known["own"]["calls"], known["tree"].get("jobs")), (&json!(1), Some(&json!(0))));
    let forget = ForgetRequest { documents: vec![keys::job_spend(&job.head.id)], ..ForgetRequest::default() };
    venue.venue.store.forget(venue.venue.now(), &venue.owner, &forget).await.unwrap();
    assert_eq!(shown(&venue, &job.head.id).await, Value::Null);
}
