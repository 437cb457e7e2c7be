//! Priorities of tasks, by every way in.

use crate::support::cli::Up;
use crate::support::http::Server;
use crate::support::operate::{boss, operate};
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::event::Submission;
use trellis::domain::ids::JobId;
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::priority::Priority;
use trellis::process::clock::Clock;

const RULES: &str = "[[rule]]\nthen = { text = \"done {{input}}\" }\n";

async fn embedded() -> (TestVenue, tempfile::TempDir) {
    TestVenue::embedded_at(RULES, Clock::system()).await
}

async fn over_redis() -> Option<(TestVenue, tempfile::TempDir)> {
    let (venue, dir, _) = TestVenue::redis_at(RedisServer::shared()?, RULES, Clock::system()).await;
    Some((venue, dir))
}

/// In which order the tasks of an agent were answered.
async fn served(venue: &TestVenue) -> Vec<String> {
    let jobs = crate::support::venue::all_jobs(&venue.venue, &venue.owner).await;
    let mut ended = Vec::new();
    for job in jobs {
        let job = venue.ended(&job.head.id).await;
        let turn = venue.turns("clerk", job.head.session.as_str()).await;
        let turn = turn.iter().find(|turn| format!("{turn:?}").contains(job.head.input.as_str().unwrap()));
        ended.push((turn.map(|turn| turn.start), job.head.input.as_str().unwrap().to_owned()));
    }
    ended.sort();
    ended.into_iter().map(|(_, input)| input).collect()
}

async fn every_way_in((venue, _dir): (TestVenue, tempfile::TempDir)) {
    venue.agent("clerk", json!({"concurrency": 1})).await;
    let at =
        MessageAddress::In { owner: venue.owner.clone(), agent: "clerk".parse().unwrap(), kind: InboundKind::Task };
    let body = json!({"input": "by the queue, low", "priority": -1});
    venue.venue.bus.publish(&BusMessage { to: at, id: Some("q1".into()), body, trace: None }).await.unwrap();
    venue.submit("clerk", "t1", json!("as any")).await;
    let asked = json!({"agentId": "clerk", "input": "by an operation, high", "priority": 1, "timeout": 0});
    operate(&venue.venue, &boss(&venue.owner), "v/ops/agent/request", asked).await.unwrap();
    let timer = json!({"agentId": "clerk", "input": "by a timer, high", "priority": 1, "after": 1});
    operate(&venue.venue, &boss(&venue.owner), "v/ops/agent/trigger", timer).await.unwrap();
    let listed = operate(&venue.venue, &boss(&venue.owner), "v/ops/timer/list", json!({})).await.unwrap();
    assert_eq!(listed["items"][0]["priority"], 1);
    tokio::time::sleep(Duration::from_millis(10)).await;
    trellis::venue::ingress::timers::fire_due(&venue.venue, &venue.owner).await.unwrap();
    // All of them lie there, and wait for the only slot, before the first is served.
    let suspend = json!({"agentId": "clerk"});
    operate(&venue.venue, &boss(&venue.owner), "v/ops/agent/suspend", suspend.clone()).await.unwrap();
    venue.worker();
    let waiting = async || {
        let all = venue.venue.store.sessions(&venue.owner, None, None, 9).await.unwrap();
        all.iter().filter(|facts| facts.due.is_none()).count()
    };
    while waiting().await < 4 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    operate(&venue.venue, &boss(&venue.owner), "v/ops/agent/resume", suspend).await.unwrap();
    let mut order = served(&venue).await;
    order[..2].sort();
    assert_eq!(order, ["by a timer, high", "by an operation, high", "as any", "by the queue, low"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn urgent_tasks_are_served_first_from_every_entrance_embedded() {
    every_way_in(embedded().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn urgent_tasks_are_served_first_from_every_entrance_redis() {
    let Some(venue) = over_redis().await else { return };
    every_way_in(venue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn within_a_session_the_begun_task_ends_before_an_urgent_one() {
    let rules = "[[rule]]\nwhen = { agent = \"clerk\", turn = 1 }\nthen = { calls = [{ tool = \"test_delay\", arguments = { delay = 400 } }] }\n\n[[rule]]\nthen = { text = \"done\" }\n";
    let (venue, _dir) = TestVenue::embedded_at(rules, Clock::system()).await;
    venue.agent("clerk", json!({"tools": ["v/ops/test/delay"]})).await;
    venue.worker();
    let into = |input: &str, priority| Submission {
        input: json!(input),
        session_id: Some("s".parse().unwrap()),
        priority,
        ..Submission::default()
    };
    let first = venue.arrive("clerk", "t1", true, into("first", Priority::Low)).await.job.unwrap();
    tokio::time::sleep(Duration::from_millis(150)).await;
    venue.arrive("clerk", "t2", true, into("as any", Priority::Normal)).await;
    let urgent = venue.arrive("clerk", "t3", true, into("urgent", Priority::High)).await.job.unwrap();
    let (first, urgent) = (venue.ended(&first).await, venue.ended(&urgent).await);
    assert!(first.updated <= urgent.updated, "what was begun is not torn in two");
    assert_eq!(served(&venue).await, ["first", "urgent", "as any"]);
}

#[tokio::test]
async fn unknown_priorities_are_refused_with_their_place() {
    let server = Server::start().await;
    server.echo_agent("clerk").await;
    for wrong in [json!(2), json!("1"), json!(0.5), json!(null), json!([1])] {
        let answer = server.post("/api/v1/agents/clerk/tasks", json!({"input": 1, "priority": wrong})).await;
        answer.is_problem(400, "`priority`");
    }
    server
        .post("/api/v1/agents/clerk/messages", json!({"input": 1, "priority": 1}))
        .await
        .is_problem(400, "`priority`");
    server.post("/api/v1/agents/clerk/messages", json!({"input": 1, "priority": 0})).await.body(202);
    let timer = json!({"input": 1, "priority": 1, "kind": "message", "after": "1h"});
    server.post("/api/v1/agents/clerk/timers", timer).await.is_problem(400, "`priority`");
    let job = server.post("/api/v1/agents/clerk/tasks", json!({"input": 1, "priority": -1})).await.body(202);
    let id: JobId = job["id"].as_str().unwrap().parse().unwrap();
    let shown = server.get(&format!("/api/v1/jobs/{id}")).await.body(200);
    assert_eq!(shown["priority"], -1);
}

#[test]
fn the_command_line_says_a_priority_and_lists_it() {
    let up = Up::start();
    up.agent("clerk", "echo");
    let id = up.run(&["submit", "clerk", "urgent", "--priority", "1"]).ok();
    up.run(&["submit", "clerk", "low", "--priority", "-1", "--wait"]).ok();
    up.run(&["submit", "clerk", "no", "--priority", "7"]).expect(2, "got 7");
    let record: Value = serde_json::from_str(&up.run(&["job", "get", &id, "--output", "json"]).ok()).unwrap();
    assert_eq!(record["priority"], 1);
    let table = up.run(&["job", "list"]).ok();
    assert!(table.contains("PRIORITY"), "{table}");
    let timer = ["timer", "set", "clerk", "later", "--after", "1h", "--priority=-1", "--output", "json"];
    up.run(&timer).ok();
    assert!(up.run(&["timer", "list", "--output", "json"]).ok().contains("\"priority\": -1"));
}
