//! The reasons one by one, on both stores, as any process tells them.

use crate::support::both_stores::{On, on_both};
use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use trellis::domain::approval::ApprovalVerdict;
use trellis::domain::authority::Authority;
use trellis::domain::cap::{Ceiling, SpendSettings};
use trellis::domain::event::Submission;
use trellis::domain::ids::{JobId, SessionKey};
use trellis::domain::job::JobStatus;
use trellis::domain::rate::RateLimit;
use trellis::domain::worker_registry::HEARTBEAT;
use trellis::process::clock::Clock;
use trellis::store::{DocEffect, DocWrite, keys};
use trellis::venue::operation::Caller;
use trellis::venue::rates::RateSettings;
use trellis::venue::{approvals, jobs};

const RULES: &str = r#"
[[rule]]
when = { agent = "stuck" }
then = { fault = "hang" }

[[rule]]
when = { agent = "limited" }
then = { text = "never", fault = "rate_limit", retry_after_ms = 600000 }

[[rule]]
when = { agent = "unpaid" }
then = { text = "never", fault = "unauthorized" }

[[rule]]
when = { agent = "parent", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "asker", input = "go", wait = 0 } }] }

[[rule]]
when = { agent = "asker", turn = 1 }
then = { calls = [{ tool = "human_ask", arguments = { title = "The order", expires = 3600, asks = [{ id = "size", type = "text", prompt = "Which?" }] } }] }

[[rule]]
when = { agent = "payer", turn = 1 }
then = { calls = [{ tool = "pay", arguments = { delay = 600000 } }] }

[[rule]]
then = { text = "done" }
"#;

/// Longer than any of these waits, however busy the machine is.
const TRIES: u32 = 3_000;

async fn venue(on: On, clock: Clock) -> Option<(TestVenue, tempfile::TempDir)> {
    let (mut venue, dir) = on.venue(RULES, clock).await?;
    venue.retry.total = Some(Duration::from_hours(1));
    for agent in ["limited", "unpaid", "parent", "plain"] {
        venue.agent(agent, json!({})).await;
    }
    venue.agent("asker", json!({"tools": ["v/ops/human/ask"]})).await;
    venue.agent("stuck", json!({"concurrency": 1})).await;
    let pay = json!({"operation": "v/ops/test/delay", "name": "pay", "approval": "ask"});
    venue.agent("payer", json!({"tools": [pay], "defaultTools": false})).await;
    Some((venue, dir))
}

async fn record(venue: &TestVenue, job: &JobId) -> Value {
    operate(&venue.venue, &boss(&venue.owner), "v/ops/job/result", json!({"id": job})).await.unwrap()
}

/// What the job waits for, once it is of this kind.
async fn waiting(venue: &TestVenue, job: &JobId, kind: &str) -> Value {
    let mut last = Value::Null;
    for _ in 0..TRIES {
        last = record(venue, job).await;
        if last["waiting"]["kind"] == kind {
            return last["waiting"].clone();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it never waits for `{kind}`: {last}");
}

async fn submit(venue: &TestVenue, agent: &str, id: &str) -> JobId {
    venue.submit(agent, id, json!("go")).await.job.unwrap()
}

async fn submit_to(venue: &TestVenue, agent: &str, session: &str, id: &str) -> JobId {
    let session_id = Some(session.parse().unwrap());
    let said = Submission { input: json!("go"), session_id, ..Submission::default() };
    venue.arrive(agent, id, true, said).await.job.unwrap()
}

async fn until_started(venue: &TestVenue, job: &JobId) {
    for _ in 0..TRIES {
        if record(venue, job).await["status"] == "STARTED" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it never starts: {}", record(venue, job).await);
}

on_both! {
    without_a_worker_it_says_so_and_names_the_last_one
    an_agent_at_its_limit_says_how_many
    a_provider_that_fails_says_the_try_and_the_time
    a_rate_limit_says_until_when
    a_suspended_agent_says_why
    who_has_paused_a_job_is_named
    a_later_task_waits_behind_the_first
    a_parent_says_that_its_child_waits_for_a_person
    while_an_approved_call_runs_nobody_is_asked
    a_damaged_document_is_named
}

async fn a_damaged_document_is_named(on: On) {
    let Some((mut venue, _dir)) = venue(on, Clock::system()).await else { return };
    let session = Ceiling::parse("tokens=90000").unwrap();
    Arc::get_mut(&mut venue.venue).unwrap().spend = SpendSettings { session, ..SpendSettings::default() };
    let cap = keys::session_cap(&SessionKey { agent: "plain".parse().unwrap(), session: "s".parse().unwrap() });
    let write = |write: DocWrite| {
        let venue = &venue;
        async move { venue.venue.store.write(venue.venue.now(), &venue.owner, &[write]).await.unwrap() }
    };
    write(DocWrite::put(cap.clone(), "{s3cret")).await;
    venue.worker();
    let job = submit_to(&venue, "plain", "s", "t1").await;
    let waits = waiting(&venue, &job, "damaged").await;
    assert_eq!(waits["reason"], format!("document `{cap}` can't be read"), "{waits}");
    assert!(waits["until"].is_u64() && waits["advice"].as_str().unwrap().contains("trellis audit"), "{waits}");
    write(DocWrite { change: DocEffect::Delete, ..DocWrite::put(cap, "") }).await;
    assert_eq!(venue.ended(&job).await.status, JobStatus::Complete);
}

async fn without_a_worker_it_says_so_and_names_the_last_one(on: On) {
    let clock = Clock::manual(trellis::domain::time::Millis(1_767_225_600_000));
    let Some((venue, _dir)) = venue(on, clock).await else { return };
    let job = submit(&venue, "plain", "t1").await;
    let waits = waiting(&venue, &job, "no-worker").await;
    assert!(waits["reason"].as_str().unwrap().starts_with("no worker runs"), "{waits}");
    assert!(waits["advice"].as_str().unwrap().contains("trellis worker"), "{waits}");
    // One that was killed is known to be gone two heartbeats later.
    let me: trellis::domain::worker_registry::WorkerRecord = serde_json::from_value(json!({
        "name": "w-1", "host": "h", "version": "1", "format": 1, "slots": 16, "busy": 0,
        "since": venue.venue.now(), "seen": venue.venue.now(),
    }))
    .unwrap();
    trellis::venue::registry::register(&venue.venue, &me).await.unwrap();
    assert_eq!(record(&venue, &job).await["waiting"]["kind"], "due");
    venue.venue.clock.advance(2 * HEARTBEAT);
    let waits = record(&venue, &job).await["waiting"].clone();
    assert!(waits["reason"].as_str().unwrap().contains("`w-1` gave the last sign of life at 2026-01-01"), "{waits}");
    let list = trellis::venue::registry::workers_view(&venue.venue).await.unwrap();
    assert_eq!(list.workers[0].state, "silent");
}

async fn an_agent_at_its_limit_says_how_many(on: On) {
    let Some((venue, _dir)) = venue(on, Clock::system()).await else { return };
    venue.worker();
    let first = submit(&venue, "stuck", "t1").await;
    until_started(&venue, &first).await;
    let busy = async || trellis::venue::registry::workers_view(&venue.venue).await.unwrap().workers[0].busy;
    for _ in 0..TRIES {
        if busy().await == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(busy().await, 1, "the list of workers counts its turn");
    let runs = record(&venue, &first).await["running"].clone();
    assert_eq!((&runs["turn"], &runs["worker"]), (&json!(1), &json!("test")), "{runs}");
    let since = runs["since"].as_u64().unwrap();
    assert!(since <= venue.venue.now().0 && since + 600_000 > venue.venue.now().0, "{runs}");
    let second = submit(&venue, "stuck", "t2").await;
    let waits = waiting(&venue, &second, "agent-limit").await;
    assert_eq!(record(&venue, &second).await["running"], Value::Null, "what waits doesn't run");
    assert_eq!((&waits["agent"], &waits["limit"]), (&json!("stuck"), &json!(1)), "{waits}");
    assert_eq!(record(&venue, &first).await["waiting"], Value::Null, "what runs doesn't wait");
    let info =
        operate(&venue.venue, &boss(&venue.owner), "v/ops/agent/info", json!({"agentId": "stuck"})).await.unwrap();
    assert_eq!(info["waiting"]["kind"], "agent-limit", "{info}");
    // Without a limit of its own it runs as many as there are slots.
    venue.agent("free", json!({"model": {"provider": "scripted", "name": "never"}})).await;
    let config = venue.record("free").await.config;
    assert_eq!(config.concurrency, None);
    assert_eq!(json!(config).get("concurrency"), None);
}

async fn a_provider_that_fails_says_the_try_and_the_time(on: On) {
    let Some((mut venue, _dir)) = venue(on, Clock::system()).await else { return };
    venue.retry.max = Duration::from_hours(1);
    venue.worker();
    let job = submit(&venue, "limited", "t1").await;
    let waits = waiting(&venue, &job, "backing-off").await;
    assert_eq!(waits["tries"], 1, "{waits}");
    assert!(waits["until"].as_u64().unwrap() > venue.venue.now().0, "{waits}");
    assert!(waits["reason"].as_str().unwrap().contains("429"), "{waits}");
    // Of a session without a task too.
    let said = Submission { input: json!("hello"), session_id: Some("talk".parse().unwrap()), ..Submission::default() };
    venue.arrive("limited", "m1", false, said).await;
    let ask = json!({"agentId": "limited", "sessionId": "talk", "after": 0});
    for _ in 0..TRIES {
        let shown = operate(&venue.venue, &boss(&venue.owner), "v/ops/agent/session-read", ask.clone()).await.unwrap();
        if shown["waiting"]["kind"] == "backing-off" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the session never says why it waits");
}

async fn a_rate_limit_says_until_when(on: On) {
    let Some((mut venue, _dir)) = venue(on, Clock::system()).await else { return };
    venue.rates = RateSettings { limits: RateLimit::list("scripted/one:requests=1").unwrap(), hold: venue.lease };
    venue.agent("narrow", json!({"model": {"provider": "scripted", "name": "one"}})).await;
    venue.worker();
    let (first, second) = (submit(&venue, "narrow", "t1").await, submit(&venue, "narrow", "t2").await);
    let mut found = None;
    for _ in 0..TRIES {
        for job in [&first, &second] {
            let shown = record(&venue, job).await;
            if shown["waiting"]["kind"] == "provider-limit" {
                found = Some(shown["waiting"].clone());
            }
        }
        if found.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let waits = found.expect("one of them waits for the limit");
    assert!(waits["reason"].as_str().unwrap().contains("1 requests per minute"), "{waits}");
    assert!(waits["until"].is_u64(), "{waits}");
}

async fn a_suspended_agent_says_why(on: On) {
    let Some((venue, _dir)) = venue(on, Clock::system()).await else { return };
    venue.worker();
    let job = submit(&venue, "unpaid", "t1").await;
    let waits = waiting(&venue, &job, "suspended").await;
    assert!(waits["reason"].as_str().unwrap().contains("`trellis agent resume unpaid`"), "{waits}");
}

async fn who_has_paused_a_job_is_named(on: On) {
    let Some((venue, _dir)) = venue(on, Clock::system()).await else { return };
    let (first, second) = (submit_to(&venue, "plain", "s", "t1").await, submit_to(&venue, "plain", "s", "t2").await);
    let ann = Caller::new(venue.owner.clone(), "ann".into(), Authority::without_limits());
    operate(&venue.venue, &ann, "v/ops/job/pause", json!({"id": first})).await.unwrap();
    let shown = record(&venue, &first).await;
    assert_eq!((&shown["status"], &shown["waiting"]["by"]), (&json!("PAUSED"), &json!("ann")), "{shown}");
    let behind = waiting(&venue, &second, "behind").await;
    assert_eq!((&behind["job"], &behind["waiting"]["by"]), (&json!(first), &json!("ann")), "{behind}");
    operate(&venue.venue, &ann, "v/ops/job/resume", json!({"id": first})).await.unwrap();
    assert_eq!(record(&venue, &first).await["waiting"]["kind"], "no-worker", "of the pause nothing is left");
}

async fn a_later_task_waits_behind_the_first(on: On) {
    let Some((venue, _dir)) = venue(on, Clock::system()).await else { return };
    venue.worker();
    let first = submit_to(&venue, "stuck", "s", "t1").await;
    until_started(&venue, &first).await;
    let second = submit_to(&venue, "stuck", "s", "t2").await;
    let behind = waiting(&venue, &second, "behind").await;
    assert_eq!((&behind["job"], &behind["waiting"]), (&json!(first), &Value::Null), "{behind}");
}

async fn a_parent_says_that_its_child_waits_for_a_person(on: On) {
    let Some((venue, _dir)) = venue(on, Clock::system()).await else { return };
    venue.worker();
    let job = submit(&venue, "parent", "t1").await;
    let mut waits = Value::Null;
    for _ in 0..TRIES {
        waits = waiting(&venue, &job, "child").await;
        if waits["waiting"]["kind"] == "person" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let asked = approvals::list(&venue.venue, &venue.owner, false, 0, 10).await.unwrap().items;
    assert_eq!(waits["waiting"]["approvals"], json!([asked[0].id]), "{waits}");
    assert_eq!(waits["agent"], "asker");
    assert!(waits["advice"].as_str().unwrap().contains("`trellis approvals`"), "{waits}");
}

async fn while_an_approved_call_runs_nobody_is_asked(on: On) {
    let Some((venue, _dir)) = venue(on, Clock::system()).await else { return };
    venue.worker();
    let job = submit(&venue, "payer", "t1").await;
    let waits = waiting(&venue, &job, "person").await;
    let approval: JobId = waits["approvals"][0].as_str().unwrap().parse().unwrap();
    assert_eq!(record(&venue, &job).await["status"], "INPUT_REQUIRED");
    let verdict = ApprovalVerdict::Approved { arguments: None, scopes: None };
    approvals::decide(&venue.venue, &boss(&venue.owner), &approval, verdict, None).await.unwrap();
    let shown = record(&venue, &job).await;
    assert_eq!((&shown["status"], shown.get("approvals")), (&json!("STARTED"), None), "{shown}");
    for _ in 0..TRIES {
        let now = jobs::get(&venue.venue, &venue.owner, &job).await.unwrap().unwrap();
        assert_eq!(now.status, JobStatus::Started, "the call takes ten minutes");
        if record(&venue, &job).await["waiting"].is_null() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    jobs::cancel(&venue.venue, &venue.owner, &job, None).await.unwrap();
}
