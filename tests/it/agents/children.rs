//! Child jobs in real turns: what becomes of them when the job above is cancelled.

use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use serde_json::{Map, Value, json};
use std::time::Duration;
use trellis::domain::event::Submission;
use trellis::domain::ids::{EventId, JobId, VenueIdSubject};
use trellis::domain::job::{Job, JobStatus};
use trellis::domain::limits::LOADS;
use trellis::domain::load::Load;
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::principal::Principal;
use trellis::domain::seal::{self, SubmissionAddress};
use trellis::venue::ingress::{self, Arrival};
use trellis::venue::jobs;

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
when = { agent = "loader", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "bottom", input = "go", wait = 0, loads = "{{input}}" } }, { tool = "agent_message", arguments = { agentId = "bottom", message = "go", loads = "{{input}}" } }] }

[[rule]]
when = { agent = "loader", turn = 2 }
then = { text = "{{tool_result}}" }

[[rule]]
then = { text = "done" }
"#;

async fn venue() -> (TestVenue, tempfile::TempDir) {
    let (venue, dir) = TestVenue::embedded(RULES).await;
    for agent in ["top", "busy", "middle", "bottom", "loader"] {
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
        venue.worker();
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
    venue.worker();
    let job: JobId = venue.submit("top", "t1", json!("go")).await.job.unwrap();
    at_the_bottom(&venue).await;
    let bottom = all(&venue).await.into_iter().find(|job| job.head.agent.as_str() == "bottom").unwrap();
    jobs::cancel(&venue.venue, &venue.owner, &bottom.head.id, None).await.unwrap();
    assert_eq!(venue.ended(&job).await.status, JobStatus::Complete, "it hears of it and goes on");
}

#[tokio::test]
async fn a_request_refused_on_arrival_is_an_error_of_the_call() {
    let (venue, _dir) = venue().await;
    venue.worker();
    let loads: Map<String, Value> = (0..=LOADS).map(|n| (format!("w/{n}"), Value::Null)).collect();
    let ended = venue.run("loader", "t1", Value::Object(loads)).await;
    let said = ended.result.unwrap().output.unwrap().to_string();
    assert!(said.contains("at `/loads`: expected at most 100 paths, got 101"), "{said}");
    assert_eq!(all(&venue).await.len(), 1, "nothing was begun");
}

#[tokio::test]
async fn a_child_whose_task_is_refused_ends() {
    let (venue, _dir) = venue().await;
    let (owner, key) = (venue.owner.clone(), venue.venue.key.clone());
    let id = EventId::of_venue(&key, VenueIdSubject::Operation { owner: &owner, key: &EventId::new("k").unwrap() });
    let arrival = Arrival {
        owner: owner.clone(),
        agent: "bottom".parse().unwrap(),
        task: true,
        id: id.clone(),
        submission: Submission::default(),
        received: venue.venue.now(),
        sequence: 0,
        by: Principal::ANYBODY,
        may_override: false,
        trace: None,
    };
    let job = ingress::submit(&venue.venue, &arrival).await.unwrap().job.unwrap();
    let load = |n| Load { path: format!("w/{n}"), label: None, budget: 500 };
    let wrong = Submission { loads: (0..=LOADS).map(load).collect(), ..Submission::default() };
    let to = SubmissionAddress { owner: &owner, agent: &arrival.agent, kind: InboundKind::Task };
    let publish = async |key: &[u8]| {
        let body = serde_json::to_value(seal::seal_submission(key, to, &id, wrong.clone())).unwrap();
        let to = MessageAddress::In { owner: owner.clone(), agent: arrival.agent.clone(), kind: InboundKind::Task };
        venue.venue.bus.publish(&BusMessage { to, id: Some(id.to_string()), body, trace: None }).await.unwrap();
    };
    operate(&venue.venue, &boss(&owner), "v/ops/agent/suspend", json!({"agentId": "bottom"})).await.unwrap();
    venue.worker();
    publish(&[7; 32]).await;
    while !venue.venue.bus.in_transit().await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let status = jobs::get(&venue.venue, &owner, &job).await.unwrap().unwrap().status;
    assert_eq!(status, JobStatus::Pending, "a forger's word doesn't count");
    publish(&key).await;
    let ended = venue.ended(&job).await;
    assert_eq!(ended.status, JobStatus::Rejected);
    assert!(ended.result.unwrap().error.unwrap().contains("at most 100 paths"));
}

const REQUESTS: &str = r#"
[[rule]]
when = { agent = "kid", turn = 1, text = "slow" }
then = { calls = [{ tool = "test_delay", arguments = { ms = 7000 } }] }

[[rule]]
when = { agent = "kid" }
then = { text = "here" }

[[rule]]
when = { text = "ids", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "kid", input = "q", contextIds = ["gamma"] } }] }

[[rule]]
when = { text = "values", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "kid", input = "q", sessionContext = { u = "U1" } } }] }

[[rule]]
when = { text = "message", turn = 1 }
then = { calls = [{ tool = "agent_message", arguments = { agentId = "kid", message = "q", contextIds = ["gamma"] } }] }

[[rule]]
when = { text = "chat", turn = 1 }
then = { calls = [{ tool = "agent_chat", arguments = { agentId = "kid", message = "q", sessionContext = { u = "U1" } } }] }

[[rule]]
when = { text = "timer", turn = 1 }
then = { calls = [{ tool = "agent_trigger", arguments = { agentId = "kid", input = "q", after = 60000, contextIds = ["gamma"] } }] }

[[rule]]
when = { text = "patient", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "kid", input = "slow", timeout = 60000 } }] }

[[rule]]
then = { text = "{{tool_result}}" }
"#;

async fn request_venue() -> (TestVenue, tempfile::TempDir) {
    let (venue, dir) = TestVenue::embedded(REQUESTS).await;
    venue.worker();
    let tools = ["request", "message", "chat", "trigger"].map(|name| format!("v/ops/agent/{name}"));
    venue.agent("boss", json!({"tools": tools})).await;
    venue.agent("kid", json!({"tools": ["v/ops/test/delay"]})).await;
    (venue, dir)
}

/// The model's value never counts, and a call without it would be another one.
#[tokio::test(flavor = "multi_thread")]
async fn what_only_trusted_code_gives_is_refused_by_name() {
    let (venue, _dir) = request_venue().await;
    for (input, key) in [
        ("ids", "contextIds"),
        ("values", "sessionContext"),
        ("message", "contextIds"),
        ("chat", "sessionContext"),
        ("timer", "contextIds"),
    ] {
        let answer = venue.run("boss", input, json!(input)).await.result.unwrap().output.unwrap().to_string();
        assert!(answer.contains(&format!("`{key}`")), "{input}: {answer}");
        assert!(answer.contains("leave it out") && answer.contains("toolArgInjection"), "{input}: {answer}");
    }
    assert!(all(&venue).await.iter().all(|job| job.head.agent.as_str() == "boss"), "nothing was sent");
    assert!(venue.turns("kid", "main").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_a_turn_waits_as_long_as_timeout_says() {
    let (venue, _dir) = request_venue().await;
    let answer = venue.run("boss", "patient", json!("patient")).await.result.unwrap().output.unwrap().to_string();
    assert!(answer.contains("here") && answer.contains("COMPLETE"), "{answer}");
}
