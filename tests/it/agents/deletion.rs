//! The deletion of an agent is ended, whoever began it.

mod recreated_agents;

use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use futures::StreamExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use trellis::domain::authority::Authority;
use trellis::domain::ids::{AgentId, JobId};
use trellis::domain::job::JobStatus;
use trellis::process::clock::Clock;
use trellis::store::faulty::{FaultAt, FaultPlan, FaultyStore};
use trellis::store::keys;
use trellis::venue::agents::deletion;

const RULES: &str = r#"
[[rule]]
when = { agent = "parent", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "kid", input = 1, wait = 0 } }] }

[[rule]]
when = { agent = "kid", turn = 1 }
then = { calls = [{ tool = "agent_delete", arguments = { agentId = "parent" } }] }

[[rule]]
when = { agent = "own", turn = 1 }
then = { calls = [{ tool = "agent_delete", arguments = { agentId = "own", remove = true } }] }

[[rule]]
then = { text = "done" }
"#;

async fn cancelled(venue: &TestVenue, tasks: Vec<JobId>) {
    for task in tasks {
        let job = venue.ended(&task).await;
        assert_eq!(job.status, JobStatus::Cancelled, "{:?}", job.result);
    }
}

async fn marks(venue: &TestVenue) -> usize {
    venue.venue.store.scan(&venue.owner, keys::DELETIONS, None, false, 10).await.unwrap().len()
}

/// Until nothing is left to be done.
async fn settled(venue: &TestVenue) {
    for _ in 0..300 {
        if marks(venue).await == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("a deletion isn't ended");
}

async fn session(venue: &TestVenue, agent: &str, tasks: usize) -> Vec<JobId> {
    let mut found = Vec::new();
    for n in 0..tasks {
        let submission = serde_json::from_value(json!({"input": n, "sessionId": "s"})).unwrap();
        let id = format!("{agent}-{n}");
        found.push(venue.arrive(agent, &id, true, submission).await.job.unwrap());
    }
    found
}

async fn venues(rules: &str) -> Vec<(TestVenue, TempDir)> {
    let mut venues = vec![TestVenue::embedded(rules).await];
    if let Some(server) = RedisServer::shared() {
        let (venue, dir, _) = TestVenue::redis_at(server, rules, Clock::system()).await;
        venues.push((venue, dir));
    }
    venues
}

fn with(tools: &[&str]) -> Value {
    json!({"tools": tools})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_the_deletion_cancels_leaves_nothing_half_way() {
    for (venue, _dir) in venues(RULES).await {
        venue.agent("parent", with(&["v/ops/agent/request"])).await;
        venue.agent("kid", with(&["v/ops/agent/delete"])).await;
        let tasks = session(&venue, "parent", 4).await;
        venue.worker();
        cancelled(&venue, tasks).await;
        settled(&venue).await;
        assert_eq!(json!(venue.record("parent").await.status), "TERMINATED");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_removes_itself_ends_all_its_tasks() {
    for (venue, _dir) in venues(RULES).await {
        venue.agent("own", with(&["v/ops/agent/delete"])).await;
        let tasks = session(&venue, "own", 3).await;
        venue.worker();
        cancelled(&venue, tasks).await;
        settled(&venue).await;
        let own: AgentId = "own".parse().unwrap();
        assert!(trellis::venue::agents::get(&venue.venue, &venue.owner, &own).await.unwrap().is_none());
    }
}

/// Whoever deletes dies at its `n`-th write; the first is the look for the key of the venue.
async fn dies(n: u64, at: FaultAt) {
    for (venue, dir) in venues(RULES).await {
        venue.agent("a", with(&[])).await;
        let tasks = session(&venue, "a", 3).await;
        let faulty = FaultyStore::new(Arc::clone(&venue.venue.store), FaultPlan::From { n, at });
        let bus = Arc::clone(&venue.venue.bus);
        let dying = TestVenue::new(faulty, bus, dir.path(), RULES).await;
        let id: AgentId = "a".parse().unwrap();
        let outcome = deletion::terminate(&dying.venue, &venue.owner, &id).await;
        let begun = json!(venue.record("a").await.status) == "TERMINATED";
        assert!(begun || outcome.is_err(), "{n} {at:?}");
        venue.worker();
        if begun {
            cancelled(&venue, tasks).await;
            settled(&venue).await;
        } else {
            assert_eq!(marks(&venue).await, 0, "{n} {at:?}: it has not begun");
            assert_eq!(venue.ended(&tasks[2]).await.status, JobStatus::Complete);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sweep_completes_a_deletion_after_a_crash() {
    let cases = [FaultAt::Before, FaultAt::After].into_iter().flat_map(|at| (2..7).map(move |n| dies(n, at)));
    // Each opens a store: all at once a loaded server answers later than they wait.
    futures::stream::iter(cases).for_each_concurrent(3, |case| case).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_was_made_anew_keeps_its_work() {
    let (venue, dir) = TestVenue::embedded(RULES).await;
    venue.agent("a", with(&[])).await;
    session(&venue, "a", 1).await;
    let plan = FaultPlan::From { n: 3, at: FaultAt::Before };
    let faulty = FaultyStore::new(Arc::clone(&venue.venue.store), plan);
    let dying = TestVenue::new(faulty, Arc::clone(&venue.venue.bus), dir.path(), RULES).await;
    deletion::terminate(&dying.venue, &venue.owner, &"a".parse().unwrap()).await.unwrap_err();
    assert_eq!(marks(&venue).await, 1);
    venue.agent("a", with(&[])).await;
    let task = venue.submit("a", "later", json!(1)).await.job.unwrap();
    venue.worker();
    settled(&venue).await;
    assert_eq!(venue.ended(&task).await.status, JobStatus::Complete);
    let by = trellis::venue::agents::lifecycle::AgentEditor {
        authority: &Authority::without_limits(),
        trail: &trellis::domain::authority::trail::Trail::default(),
        turn: false,
    };
    deletion::remove(&venue.venue, &venue.owner, &"a".parse().unwrap(), by).await.unwrap();
    assert_eq!(marks(&venue).await, 0);
}
