//! Agents that cause each other's turns: chains have no cycle, a depth and a number, and an origin has an hour's limit.

use crate::support::both_stores::{On, on_both};
use crate::support::venue::TestVenue;
use serde_json::json;
use std::time::Duration;
use trellis::domain::event::Submission;
use trellis::domain::job::{ErrorCode, Job, JobStatus};
use trellis::domain::retention::RetentionRules;
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::store::keys;
use trellis::venue::jobs;
use trellis::venue::timers;
use trellis::venue::upkeep::retention::Janitor;

const RULES: &str = r#"
[[rule]]
when = { turn = 2 }
then = { text = "told: {{tool_result}}" }

[[rule]]
when = { agent = "ping" }
then = { calls = [{ tool = "agent_message", arguments = { agentId = "pong", message = "your turn" } }] }

[[rule]]
when = { agent = "pong" }
then = { calls = [{ tool = "agent_message", arguments = { agentId = "ping", message = "your turn" } }] }

[[rule]]
when = { agent = "chatter" }
then = { calls = [{ tool = "agent_chat", arguments = { agentId = "chatter", message = "and I?" } }] }

[[rule]]
when = { agent = "asker" }
then = { calls = [{ tool = "agent_message", arguments = { agentId = "worker", message = "do it" } }] }

[[rule]]
when = { agent = "worker" }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "asker", input = "what?", wait = 0 } }] }

[[rule]]
when = { agent = "setter" }
then = { calls = [{ tool = "agent_trigger", arguments = { agentId = "getter", input = "x", after = "10s" } }] }

[[rule]]
when = { agent = "getter" }
then = { calls = [{ tool = "agent_trigger", arguments = { agentId = "setter", input = "x", after = "10s" } }] }

[[rule]]
when = { agent = "clock" }
then = { calls = [
    { tool = "agent_trigger", arguments = { agentId = "clock", input = "tick", after = "10s" } },
    { tool = "agent_trigger", arguments = { agentId = "clock", input = "tock", after = "10s" } },
] }

[[rule]]
when = { agent = "sleeper" }
then = { calls = [{ tool = "agent_wake", arguments = { after = "10s" } }] }

[[rule]]
then = { text = "done" }
"#;

const START: Millis = Millis(1_767_225_600_000);

async fn venue(on: On, rules: &str) -> Option<(TestVenue, tempfile::TempDir)> {
    let clock = Clock::manual(START);
    let (mut venue, dir) = on.venue(rules, clock).await?;
    venue.sweep = Duration::from_secs(1);
    let tools = json!({"tools": ["agent/message", "agent/chat", "agent/request", "agent/trigger", "agent/wake"]});
    let agents =
        ["ping", "pong", "chatter", "asker", "worker", "setter", "getter", "clock", "sleeper", "spammer", "sink"];
    for agent in agents {
        venue.agent(agent, tools.clone()).await;
    }
    Some((venue, dir))
}

async fn message(venue: &TestVenue, agent: &str, id: &str) {
    venue.arrive(agent, id, false, Submission { input: json!("go"), ..Submission::default() }).await;
}

/// Replies of the model; each call has two lines.
fn calls(venue: &TestVenue) -> usize {
    venue.model_calls().iter().filter(|call| call["event"] == "replied").count()
}

/// Waits until nothing happens any more; the clock goes on meanwhile.
async fn calm(venue: &TestVenue) {
    let (mut before, mut still) = (usize::MAX, 0);
    for _ in 0..3_000 {
        venue.venue.clock.advance(Duration::from_secs(1));
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = calls(venue);
        still = if now == before { still + 1 } else { 0 };
        before = now;
        if still >= 40 {
            return;
        }
    }
    panic!("it never ends: {before} model calls");
}

async fn said(venue: &TestVenue, agent: &str, session: &str) -> String {
    let turns = venue.turns(agent, session).await;
    turns.iter().map(|turn| json!(turn.said).to_string()).collect()
}

async fn counts(venue: &TestVenue) -> usize {
    venue.venue.store.scan(&venue.owner, keys::ORIGINS, None, false, 100).await.unwrap().len()
}

async fn agents_that_answer_each_other_stop(on: On) {
    let Some((venue, _dir)) = venue(on, RULES).await else { return };
    venue.worker();
    message(&venue, "ping", "m1").await;
    calm(&venue).await;
    assert_eq!(calls(&venue), 4, "two each: {:?}", venue.model_calls());
    let pong = said(&venue, "pong", "main").await;
    assert!(pong.contains("agent `ping` is already part of this chain of requests: ping -> pong -> ping"), "{pong}");
    assert_eq!(counts(&venue).await, 1, "only what was caused is counted");
    message(&venue, "chatter", "m2").await;
    calm(&venue).await;
    let chatter = said(&venue, "chatter", "main").await;
    assert!(chatter.contains("chain of requests: chatter -> chatter"), "{chatter}");
    // What was begun by a message doesn't become another chain by a request.
    message(&venue, "asker", "m3").await;
    calm(&venue).await;
    let worker = said(&venue, "worker", "main").await;
    assert!(worker.contains("chain of requests: asker -> worker -> asker"), "{worker}");
    assert_eq!(counts(&venue).await, 2);
}

async fn timers_do_not_hide_a_chain(on: On) {
    let Some((venue, _dir)) = venue(on, RULES).await else { return };
    venue.worker();
    let job = venue.submit("setter", "t1", json!("go")).await.job.unwrap();
    venue.ended(&job).await;
    calm(&venue).await;
    let getter = all(&venue).await.into_iter().find(|job| job.head.agent.as_str() == "getter").unwrap();
    let said = said(&venue, "getter", getter.head.session.as_str()).await;
    assert!(said.contains("chain of requests: setter -> getter -> setter"), "{said}");
    assert_eq!(all(&venue).await.len(), 2);
}

async fn all(venue: &TestVenue) -> Vec<Job> {
    jobs::list(&venue.venue, &venue.owner, 0, 1_000).await.unwrap().items
}

async fn an_origin_has_an_hours_turns(on: On) {
    let Some((mut venue, _dir)) = venue(on, RULES).await else { return };
    venue.turns_per_origin = 5;
    venue.worker();
    let job = venue.submit("clock", "t1", json!("go")).await.job.unwrap();
    venue.ended(&job).await;
    calm(&venue).await;
    let all = all(&venue).await;
    let of = |status| all.iter().filter(|job| job.status == status).count();
    // Turns that begin at the same moment may all be the last.
    assert!((3..=20).contains(&of(JobStatus::Complete)), "{} complete", of(JobStatus::Complete));
    let refused: Vec<_> = all.iter().filter(|job| job.status == JobStatus::Failed).collect();
    assert!(!refused.is_empty() && of(JobStatus::Complete) + refused.len() == all.len(), "{all:#?}");
    for job in refused {
        let result = job.result.as_ref().unwrap();
        assert_eq!(result.error_code, Some(ErrorCode::LimitReached));
        let text = result.error.as_deref().unwrap();
        assert!(text.contains("request `t1` has caused") && text.contains("at most 5"), "{text}");
    }
    assert!(
        timers::list(&venue.venue, &venue.owner, None, false, 0, 100).await.unwrap().items.is_empty(),
        "it is over"
    );
    // Another request isn't touched by it, and counts are forgotten when their hour is over.
    let other = venue.submit("clock", "t2", json!("go")).await.job.unwrap();
    assert_eq!(venue.ended(&other).await.status, JobStatus::Complete);
    calm(&venue).await;
    assert!(counts(&venue).await >= 2);
    venue.venue.clock.advance(Duration::from_hours(3));
    let janitor = Janitor::new(RetentionRules { jobs: Some(Duration::from_hours(24)), turns: None });
    assert!(janitor.tidy_step(&venue.venue, &venue.owner).await.unwrap().counts >= 2);
    assert_eq!(counts(&venue).await, 0);
}

async fn a_wake_goes_on_within_its_origin(on: On) {
    let Some((mut venue, _dir)) = venue(on, RULES).await else { return };
    venue.turns_per_origin = 8;
    venue.worker();
    message(&venue, "sleeper", "m1").await;
    calm(&venue).await;
    let turns = venue.turns("sleeper", "main").await;
    // Two for the message, two for each of four wakes, and one that is refused.
    assert_eq!(turns.len(), 2 + 8 + 1, "{turns:#?}");
    let last = json!(turns.last().unwrap().said).to_string();
    assert!(last.contains("request `m1` has caused 8 turns"), "{last}");
    assert_eq!(calls(&venue), 10);
}

async fn messages_count_against_the_run(on: On) {
    let call = r#"{ tool = "agent_message", arguments = { agentId = "sink", message = "x" } },"#;
    let rule = format!(
        "[[rule]]\nwhen = {{ turn = 2 }}\nthen = {{ text = \"enough\" }}\n\n\
         [[rule]]\nwhen = {{ agent = \"spammer\" }}\nthen = {{ calls = [{}] }}\n\n[[rule]]\nthen = {{ text = \"done\" }}\n",
        call.repeat(60)
    );
    let Some((venue, _dir)) = venue(on, &rule).await else { return };
    venue.worker();
    let job = venue.run("spammer", "t1", json!("go")).await;
    let turns = venue.turns("spammer", job.head.session.as_str()).await;
    let outcome = |of: &str| turns[0].calls.iter().filter(|call| call.outcome == of).count();
    assert_eq!((outcome("ok"), outcome("limit reached")), (50, 10));
    assert!(json!(turns[0].said).to_string().contains("at most 50 may be"));
}

async fn a_request_from_outside_costs_no_count(on: On) {
    let Some((venue, _dir)) = venue(on, RULES).await else { return };
    venue.worker();
    assert_eq!(venue.run("sink", "t1", json!("go")).await.status, JobStatus::Complete);
    assert_eq!(counts(&venue).await, 0);
}

on_both! {
    agents_that_answer_each_other_stop
    timers_do_not_hide_a_chain
    an_origin_has_an_hours_turns
    a_wake_goes_on_within_its_origin
    messages_count_against_the_run
    a_request_from_outside_costs_no_count
}
