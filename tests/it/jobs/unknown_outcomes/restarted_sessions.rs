//! A session that begins anew under its old name: what its calls send bears ids of its own.

use super::{Site, venue};
use crate::support::both_stores::{On, on_both};
use crate::support::operate::{boss, operate};
use crate::support::venue::{TestVenue, all_jobs};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tempfile::TempDir;
use trellis::domain::approval::ApprovalVerdict;
use trellis::domain::event::Submission;
use trellis::domain::ids::JobId;
use trellis::domain::job::{Job, JobStatus};
use trellis::venue::{approvals, timers};

fn rules(site: &Site) -> String {
    format!(
        r#"
[[rule]]
when = {{ agent = "payer", turn = 1 }}
then = {{ calls = [
    {{ tool = "http_post", arguments = {{ url = "{url}", body = "10 EUR" }} }},
    {{ tool = "agent_request", arguments = {{ agentId = "clerk", input = "count", wait = 20000 }} }},
] }}

[[rule]]
when = {{ agent = "buyer", turn = 1 }}
then = {{ calls = [{{ tool = "buy", arguments = {{ url = "{url}", body = "20 EUR" }} }}] }}

[[rule]]
when = {{ agent = "sleeper", turn = 1, text = "wake first" }}
then = {{ calls = [{{ tool = "agent_wake", arguments = {{ after = "2h", note = "the first" }} }}] }}

[[rule]]
when = {{ agent = "sleeper", turn = 1, text = "wake second" }}
then = {{ calls = [{{ tool = "agent_wake", arguments = {{ after = "3h", note = "the second" }} }}] }}

[[rule]]
then = {{ text = "done" }}
"#,
        url = site.url("/ok")
    )
}

const PAYER: &str = r#"{"tools": ["v/ops/http/post", "v/ops/agent/request"]}"#;

async fn anew(on: On) -> Option<(Site, TestVenue, TempDir)> {
    let site = Site::start().await;
    let (venue, dir) = venue(on, &site, &rules(&site)).await?;
    venue.agent("payer", serde_json::from_str(PAYER).unwrap()).await;
    let buy = json!([{"operation": "v/ops/http/post", "name": "buy", "approval": "ask"}]);
    venue.agent("buyer", json!({"tools": buy})).await;
    venue.agent("sleeper", json!({"tools": ["v/ops/agent/wake"]})).await;
    venue.agent("clerk", json!({})).await;
    venue.worker();
    Some((site, venue, dir))
}

/// A task of session `s1`.
async fn submit(venue: &TestVenue, agent: &str, id: &str, input: &str) -> JobId {
    let session_id = Some("s1".parse().unwrap());
    let submission = Submission { input: json!(input), session_id, ..Submission::default() };
    venue.arrive(agent, id, true, submission).await.job.unwrap()
}

async fn run(venue: &TestVenue, agent: &str, id: &str, input: &str) -> Job {
    let job = submit(venue, agent, id, input).await;
    let job = venue.ended(&job).await;
    assert_eq!(job.status, JobStatus::Complete, "{agent} {id}: {:?}", job.result);
    job
}

async fn ask(venue: &TestVenue, operation: &str, input: Value) {
    operate(&venue.venue, &boss(&venue.owner), operation, input).await.unwrap();
}

async fn delete_session(venue: &TestVenue, agent: &str) {
    ask(venue, "v/ops/agent/delete-session", json!({"agentId": agent, "sessionId": "s1"})).await;
}

async fn requests_and_children_of_a_session_begun_anew_are_new(on: On) {
    let Some((site, venue, _dir)) = anew(on).await else { return };
    let mut keys = BTreeSet::new();
    for round in 0..3 {
        run(&venue, "payer", &format!("t{round}"), "pay").await;
        assert_eq!(site.posts(), round + 1);
        keys.insert(site.last_key().expect("a key"));
        if round == 0 {
            delete_session(&venue, "payer").await;
        } else {
            ask(&venue, "v/ops/agent/delete", json!({"agentId": "payer", "remove": true})).await;
            venue.agent("payer", serde_json::from_str(PAYER).unwrap()).await;
        }
    }
    assert_eq!(keys.len(), 3, "each session's request has its own key: {keys:?}");
    let children = all_jobs(&venue.venue, &venue.owner).await;
    assert_eq!(children.iter().filter(|job| job.head.agent.as_str() == "clerk").count(), 3, "each has its own child");
}

async fn approvals_of_a_session_begun_anew_are_asked_for_anew(on: On) {
    let Some((site, venue, _dir)) = anew(on).await else { return };
    let mut asked = BTreeSet::new();
    for round in 0..2 {
        let job = submit(&venue, "buyer", &format!("t{round}"), "buy").await;
        let waiting = async || approvals::list(&venue.venue, &venue.owner, false, 0, 10).await.unwrap().items;
        let mut items = waiting().await;
        for _ in 0..1_000 {
            if !items.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            items = waiting().await;
        }
        assert_eq!((items.len(), site.posts()), (1, round), "round {round}: a person is asked before it is sent");
        let approval = items.remove(0);
        let verdict = ApprovalVerdict::Approved { arguments: None, scopes: None };
        approvals::decide(&venue.venue, &boss(&venue.owner), &approval.id, verdict, None).await.unwrap();
        assert_eq!(venue.ended(&job).await.status, JobStatus::Complete);
        assert_eq!(site.posts(), round + 1);
        asked.insert((approval.id, site.last_key()));
        delete_session(&venue, "buyer").await;
    }
    assert_eq!(asked.len(), 2, "each session asks for itself: {asked:?}");
}

async fn the_wake_of_a_session_begun_anew_is_set(on: On) {
    let Some((_site, venue, _dir)) = anew(on).await else { return };
    let active = async || {
        let list = timers::list(&venue.venue, &venue.owner, None, false, 0, 10).await.unwrap().items;
        list.iter().map(|timer| timer.submission.input.clone()).collect::<Vec<_>>()
    };
    for (id, input) in [("t1", "hello"), ("t2", "hello"), ("t3", "wake first")] {
        run(&venue, "sleeper", id, input).await;
    }
    assert_eq!(active().await, [json!("the first")]);
    delete_session(&venue, "sleeper").await;
    assert_eq!(active().await, [Value::Null; 0]);
    run(&venue, "sleeper", "t4", "wake second").await;
    assert_eq!(active().await, [json!("the second")]);
}

on_both! {
    requests_and_children_of_a_session_begun_anew_are_new
    approvals_of_a_session_begun_anew_are_asked_for_anew
    the_wake_of_a_session_begun_anew_is_set
}
