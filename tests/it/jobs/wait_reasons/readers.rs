//! What a reader learns from why work waits: of jobs and agents that he may not read, the kind of the reason and no more.

use crate::support::both_stores::{On, on_both};
use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::authority::{Authority, Capability};
use trellis::domain::event::Submission;
use trellis::domain::ids::{EventId, JobId};
use trellis::domain::principal::Principal;
use trellis::process::clock::Clock;
use trellis::venue::approvals;
use trellis::venue::ingress::{Arrival, submit};
use trellis::venue::operation::Caller;

const RULES: &str = r#"
[[rule]]
when = { agent = "parent", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "asker", input = "go", wait = 0 } }] }

[[rule]]
when = { agent = "asker", turn = 1 }
then = { calls = [{ tool = "human_ask", arguments = { title = "The order", expires = 3600, asks = [{ id = "size", type = "text", prompt = "Which?" }] } }] }

[[rule]]
when = { agent = "limited" }
then = { text = "never", fault = "rate_limit", retry_after_ms = 600000 }

[[rule]]
then = { text = "done" }
"#;

/// Looks at what must come about, 20 ms apart.
const TRIES: u32 = 3_000;

fn caller(venue: &TestVenue, name: &str, caps: &[(&str, &str)]) -> Caller {
    let caps: Vec<_> = caps.iter().map(|(with, can)| Capability { with: (*with).into(), can: (*can).into() }).collect();
    let principal = Principal::bearer(name, None, Some(&caps));
    let authority = Authority::new(Some(caps));
    Caller { principal, ..Caller::new(venue.owner.clone(), name.into(), authority) }
}

/// A task of a caller in a session that others use as well.
async fn submit_as(venue: &TestVenue, by: &Caller, agent: &str, id: &str) -> JobId {
    let submission = Submission { input: json!("go"), session_id: Some("s".parse().unwrap()), ..Submission::default() };
    let arrival = Arrival {
        owner: venue.owner.clone(),
        agent: agent.parse().unwrap(),
        task: true,
        id: EventId::new(id).unwrap(),
        submission,
        received: venue.venue.now(),
        sequence: 0,
        by: by.principal.clone(),
        may_override: false,
        trace: None,
    };
    submit(&venue.venue, &arrival).await.unwrap().job.unwrap()
}

async fn record(venue: &TestVenue, by: &Caller, job: &JobId) -> Value {
    operate(&venue.venue, by, "v/ops/job/result", json!({"id": job})).await.unwrap()
}

async fn info(venue: &TestVenue, by: &Caller, agent: &str) -> Value {
    let info = operate(&venue.venue, by, "v/ops/agent/info", json!({"agentId": agent})).await.unwrap();
    info["waiting"].clone()
}

async fn conversation(venue: &TestVenue, by: &Caller, agent: &str) -> Value {
    let ask = json!({"agentId": agent, "sessionId": "s", "after": 0});
    let read = operate(&venue.venue, by, "v/ops/agent/session-read", ask).await;
    read.map_or(Value::Null, |read| read["waiting"].clone())
}

on_both! {
    a_later_task_does_not_say_whose_comes_first
    provider_messages_to_others_are_hidden
    an_agents_reader_does_not_see_a_childs_approval
}

async fn a_later_task_does_not_say_whose_comes_first(on: On) {
    let Some((venue, _dir)) = on.venue(RULES, Clock::system()).await else { return };
    venue.agent("plain", json!({})).await;
    let ann = caller(&venue, "ann", &[("j", "*"), ("g/plain", "*")]);
    let bob = caller(&venue, "bob", &[("g/plain", "*")]);
    let (first, second) = (submit_as(&venue, &ann, "plain", "t1").await, submit_as(&venue, &bob, "plain", "t2").await);
    operate(&venue.venue, &boss(&venue.owner), "v/ops/job/pause", json!({"id": first})).await.unwrap();
    assert!(
        operate(&venue.venue, &bob, "v/ops/job/result", json!({"id": first})).await.is_err(),
        "hers he can't read at all"
    );
    let waits = record(&venue, &bob, &second).await["waiting"].clone();
    let text = waits.to_string();
    assert_eq!((&waits["kind"], &waits["waiting"]["kind"]), (&json!("behind"), &json!("paused")), "{waits}");
    assert!(!text.contains(first.as_str()) && !text.contains("local/me"), "{waits}");
    // Who may read hers reads it here as well.
    let whole = record(&venue, &boss(&venue.owner), &second).await["waiting"].clone();
    assert_eq!((&whole["job"], &whole["waiting"]["by"]), (&json!(first), &json!("local/me")), "{whole}");
    for shown in [info(&venue, &bob, "plain").await, conversation(&venue, &bob, "plain").await] {
        assert_eq!(shown["kind"], "paused", "{shown}");
        assert!(!shown.to_string().contains(first.as_str()) && shown.get("by").is_none(), "{shown}");
        assert!(!shown.to_string().contains("local/me"), "{shown}");
    }
    assert_eq!(info(&venue, &boss(&venue.owner), "plain").await["by"], "local/me");
}

async fn provider_messages_to_others_are_hidden(on: On) {
    let Some((mut venue, _dir)) = on.venue(RULES, Clock::system()).await else { return };
    venue.retry.total = Some(Duration::from_hours(1));
    venue.retry.max = Duration::from_hours(1);
    venue.agent("limited", json!({})).await;
    let (ann, bob) = (caller(&venue, "ann", &[("g/limited", "*")]), caller(&venue, "bob", &[("g/limited", "*")]));
    let (first, second) =
        (submit_as(&venue, &ann, "limited", "t1").await, submit_as(&venue, &bob, "limited", "t2").await);
    venue.worker();
    let mut hers = Value::Null;
    for _ in 0..TRIES {
        hers = record(&venue, &ann, &first).await["waiting"].clone();
        if hers["kind"] == "backing-off" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(hers["reason"].as_str().unwrap().contains("429"), "{hers}");
    for shown in [
        record(&venue, &bob, &second).await["waiting"].clone(),
        info(&venue, &bob, "limited").await,
        conversation(&venue, &bob, "limited").await,
    ] {
        assert!(shown.to_string().contains("backing-off"), "its kind is told: {shown}");
        // Ids may contain the digits of the status, so that the whole reason is looked for.
        let reason = hers["reason"].as_str().unwrap();
        assert!(!shown.to_string().contains(reason) && !shown.to_string().contains(first.as_str()), "{shown}");
    }
}

async fn an_agents_reader_does_not_see_a_childs_approval(on: On) {
    let Some((venue, _dir)) = on.venue(RULES, Clock::system()).await else { return };
    venue.agent("parent", json!({})).await;
    venue.agent("asker", json!({"tools": ["v/ops/human/ask"]})).await;
    venue.worker();
    let ann = caller(&venue, "ann", &[("j", "*"), ("g", "*")]);
    let job = submit_as(&venue, &ann, "parent", "t1").await;
    for _ in 0..TRIES {
        if record(&venue, &boss(&venue.owner), &job).await["waiting"]["waiting"]["kind"] == "person" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let asked = approvals::list(&venue.venue, &venue.owner, false, 0, 10).await.unwrap().items;
    let hers = record(&venue, &boss(&venue.owner), &job).await["waiting"].clone();
    assert_eq!(hers["waiting"]["approvals"], json!([asked[0].id]), "{hers}");
    let bob = caller(&venue, "bob", &[("g/parent", "*")]);
    let next = submit_as(&venue, &bob, "parent", "t2").await;
    // A worker looks at its session once more, and lets it go.
    for _ in 0..TRIES {
        if record(&venue, &bob, &next).await["waiting"]["kind"] == "behind"
            && !info(&venue, &bob, "parent").await.is_null()
        {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for shown in [
        info(&venue, &bob, "parent").await,
        conversation(&venue, &bob, "parent").await,
        record(&venue, &bob, &next).await["waiting"].clone(),
    ] {
        let text = shown.to_string();
        assert!(text.contains("person"), "that a person is needed is told: {shown}");
        for secret in ["asker", asked[0].id.as_str(), job.as_str()] {
            assert!(!text.contains(secret), "`{secret}`: {shown}");
        }
    }
}
