//! Tasks through a real worker: what becomes of them, over every pair of backends.

use crate::support::nats;
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use crate::support::watched_store::{Watch, Watched};
use async_trait::async_trait;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use trellis::bus::embedded::EmbeddedBus;
use trellis::bus::nats::NatsBus;
use trellis::domain::event::Submission;
use trellis::domain::ids::SessionKey;
use trellis::domain::job::{ErrorCode, JobStatus};
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::redis::{RedisStore, ServerOrInjected};
use trellis::store::{Checkpoint, DocEffect, DocWrite, Expect, Lease, LeaseCheck, keys};
use trellis::venue::agents;
use trellis::venue::jobs::{self, CancelOutcome};

const RULES: &str = r#"
[[rule]]
when = { agent = "writer", turn = 1 }
then = { calls = [{ tool = "lattice_write", arguments = { path = "w/notes/{{input.name}}", value = "{{input.text}}" } }, { tool = "lattice_append", arguments = { path = "w/log", value = "{{input.name}}" } }] }

[[rule]]
when = { agent = "writer", turn = 2 }
then = { calls = [{ tool = "lattice_read", arguments = { path = "w/notes/{{input.name}}" } }] }

[[rule]]
when = { agent = "writer", turn = 3 }
then = { text = "wrote {{tool_result.value}}" }

[[rule]]
when = { agent = "boss", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "slow", input = { message = "work" }, wait = 0 } }] }

[[rule]]
when = { agent = "boss", text = "Pending job results" }
then = { text = "the helper is done" }

[[rule]]
when = { agent = "hopeful", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "hanging", sessionId = "taken", input = {}, wait = 0 } }] }

[[rule]]
when = { agent = "hopeful", text = "status=REJECTED" }
then = { text = "the helper is busy" }

# The child was refused before its parent had parked.
[[rule]]
when = { agent = "hopeful", tool_result = "REJECTED" }
then = { text = "the helper is busy" }

[[rule]]
when = { agent = "stuck", text = "hang" }
then = { text = "never", fault = "hang" }

[[rule]]
when = { agent = "stuck" }
then = { text = "worked" }

[[rule]]
when = { agent = "slow" }
then = { text = "worked", delay_ms = 300 }

[[rule]]
when = { agent = "payer", turn = 1 }
then = { calls = [{ tool = "test_once", arguments = { delay = 60000 } }] }

[[rule]]
when = { agent = "payer", tool_result = "outcome unknown" }
then = { text = "I look before I pay again" }

[[rule]]
when = { agent = "hanging" }
then = { text = "never", fault = "hang" }

[[rule]]
when = { agent = "flaky" }
then = { text = "at last", fault = "overloaded", times = 2 }

[[rule]]
when = { agent = "refused" }
then = { text = "no", fault = "bad_request" }

[[rule]]
when = { agent = "looping" }
then = { calls = [{ tool = "lattice_read", arguments = { path = "w/x" } }] }

[[rule]]
when = { agent = "confused", turn = 1 }
then = { calls = [{ tool = "no_such_tool", arguments = {} }, { tool = "lattice_write", arguments = { path = "w/secret/x", value = 1 } }, { tool = "lattice_read", arguments = { path = 7 } }] }

[[rule]]
when = { agent = "confused", turn = 2 }
then = { text = "I see" }
"#;

async fn fleet() -> Option<(TestVenue, tempfile::TempDir)> {
    let (venue, dir) = idle_fleet().await?;
    venue.worker();
    Some((venue, dir))
}

/// Without a worker.
async fn idle_fleet() -> Option<(TestVenue, tempfile::TempDir)> {
    let (url, server) = (nats::shared()?, RedisServer::shared()?);
    let dir = tempfile::tempdir().unwrap();
    let store = RedisStore::open(server.options(ServerOrInjected::Server)).await.unwrap();
    let mut options = nats::options(&url);
    options.ack_wait = Duration::from_secs(2);
    let bus = NatsBus::open(&options).await.unwrap();
    let venue = TestVenue::new(store, Arc::new(bus), dir.path(), RULES).await;
    Some((venue, dir))
}

async fn idle_laptop() -> (TestVenue, tempfile::TempDir) {
    let (venue, dir) = TestVenue::embedded(RULES).await;
    (venue, dir)
}

#[tokio::test]
async fn a_task_of_three_turns_writes_reads_and_completes() {
    let Some((venue, _dir)) = fleet().await else { return };
    venue.agent("writer", json!({})).await;
    let job = venue.run("writer", "t1", json!({"name": "a", "text": "hello"})).await;
    assert_eq!(job.status, JobStatus::Complete);
    assert_eq!(job.result.unwrap().output, Some(json!("wrote hello")));
    assert_eq!(venue.read("w/log").await, Some(json!(["a"])));
    let turns = venue.turns("writer", job.head.session.as_str()).await;
    assert_eq!(turns.len(), 3);
    assert_eq!(turns[0].calls.iter().map(|c| c.outcome.as_str()).collect::<Vec<_>>(), ["ok", "ok"]);
    assert_eq!(venue.model_calls().iter().filter(|c| c["event"] == "replied").count(), 3);
}

#[tokio::test]
async fn the_same_submission_twice_is_one_job() {
    let Some((venue, _dir)) = fleet().await else { return };
    venue.agent("echo", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
    let first = venue.submit("echo", "same", json!({"message": "hi"})).await;
    let second = venue.submit("echo", "same", json!({"message": "hi"})).await;
    assert_eq!((first.job.clone(), second.duplicate), (second.job, true));
    let job = venue.ended(&first.job.unwrap()).await;
    assert_eq!(job.result.unwrap().output, Some(json!("hi")));
}

#[tokio::test]
async fn the_next_task_runs_with_a_changed_configuration() {
    let Some((venue, _dir)) = fleet().await else { return };
    for (n, model, expected) in [(1, "echo", "hi"), (2, "echo", "hi"), (3, "rules", "worked")] {
        venue.agent("slow", json!({"model": {"provider": "scripted", "name": model}})).await;
        let job = venue.run("slow", &format!("t{n}"), json!({"message": "hi"})).await;
        assert_eq!(job.result.unwrap().output, Some(json!(expected)), "task {n}");
    }
}

#[tokio::test]
async fn a_child_job_parks_its_parent_and_wakes_it() {
    let Some((venue, _dir)) = fleet().await else { return };
    venue.agent("boss", json!({})).await;
    venue.agent("slow", json!({})).await;
    let job = venue.run("boss", "t1", json!({})).await;
    assert_eq!(job.result.unwrap().output, Some(json!("the helper is done")));
    let all = jobs::list(&venue.venue, &venue.owner, 0, 10).await.unwrap().items;
    let child = all.iter().find(|job| job.head.agent.as_str() == "slow").unwrap();
    assert_eq!(child.status, JobStatus::Complete);
    assert_eq!(child.head.parent.as_ref().unwrap().job.as_ref(), Some(&job.head.id));
    assert_eq!(child.head.caller.as_deref(), Some("agent:boss"));
}

#[tokio::test]
async fn a_child_job_that_is_refused_wakes_its_parent() {
    let Some((venue, _dir)) = fleet().await else { return };
    venue.agent("hopeful", json!({})).await;
    venue.agent("hanging", json!({"busy": "reject"})).await;
    let submission = Submission { session_id: Some("taken".parse().unwrap()), ..Submission::default() };
    venue.arrive("hanging", "t0", true, submission).await;
    let job = venue.run("hopeful", "t1", json!({})).await;
    assert_eq!(job.result.unwrap().output, Some(json!("the helper is busy")));
}

#[tokio::test]
async fn a_cancel_stops_its_own_task_and_not_the_next_of_the_session() {
    let Some((venue, _dir)) = fleet().await else { return };
    venue.agent("stuck", json!({})).await;
    let session = Some("s".parse().unwrap());
    let mut ids = Vec::new();
    for n in 0..4 {
        let submission = Submission {
            session_id: session.clone(),
            input: json!({"do": if n == 0 { "hang" } else { "work" }}),
            ..Submission::default()
        };
        ids.push(venue.arrive("stuck", &format!("t{n}"), true, submission).await.job.unwrap());
    }
    // One that waits and one that runs.
    jobs::cancel(&venue.venue, &venue.owner, &ids[2], None).await.unwrap();
    while venue.model_calls().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    jobs::cancel(&venue.venue, &venue.owner, &ids[0], None).await.unwrap();
    for (id, expected) in
        ids.iter().zip([JobStatus::Cancelled, JobStatus::Complete, JobStatus::Cancelled, JobStatus::Complete])
    {
        assert_eq!(venue.ended(id).await.status, expected);
    }
}

#[tokio::test]
async fn work_of_a_removed_agent_stays_pending_in_the_audit() {
    let (venue, _dir) = idle_laptop().await;
    venue.agent("hanging", json!({})).await;
    let submitted = venue.submit("hanging", "t1", json!({})).await;
    let agent = submitted.session.agent.clone();
    let gone = [keys::agent(&agent), keys::agent_gate(&agent)].map(|key| DocWrite {
        key,
        expect: Expect::Any,
        change: DocEffect::Delete,
    });
    venue.venue.store.write(venue.venue.now(), &venue.owner, &gone).await.unwrap();
    venue.worker();
    let rests = async || {
        let facts = venue.venue.store.sessions(&venue.owner, Some(&agent), None, 10).await.unwrap();
        facts[0].due.is_none() && facts[0].lease_until.is_none()
    };
    for _ in 0..3000 {
        if rests().await {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let books = trellis::venue::upkeep::audit::audit_owner(&venue.venue, &venue.owner).await.unwrap();
    assert_eq!((books.accepted, books.pending, books.unaccounted), (1, 1, 0), "{books:?}");
    // Its caller can still end it.
    let job = submitted.job.unwrap();
    jobs::cancel(&venue.venue, &venue.owner, &job, None).await.unwrap();
    assert_eq!(venue.ended(&job).await.status, JobStatus::Cancelled);
}

#[tokio::test]
async fn a_cancel_drops_a_hanging_model_call() {
    let Some((venue, _dir)) = fleet().await else { return };
    venue.agent("hanging", json!({})).await;
    let submitted = venue.submit("hanging", "t1", json!({})).await;
    let id = submitted.job.unwrap();
    while venue.model_calls().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    venue.agent("idle", json!({})).await;
    let listed = agents::list(&venue.venue, &venue.owner, None, 1_000).await.unwrap();
    let statuses = agents::statuses(&venue.venue, &venue.owner, &listed).await.unwrap();
    assert_eq!(statuses.iter().map(|status| status.as_str()).collect::<Vec<_>>(), ["RUNNING", "SLEEPING"]);
    for (record, status) in listed.iter().zip(statuses) {
        let info = agents::info(&venue.venue, &venue.owner, &record.id).await.unwrap().unwrap();
        assert_eq!(info.status, status, "{}", record.id);
    }
    let cancelled = jobs::cancel(&venue.venue, &venue.owner, &id, Some("enough")).await.unwrap();
    assert!(matches!(cancelled, CancelOutcome::Done(_)));
    let job = venue.ended(&id).await;
    assert_eq!(job.status, JobStatus::Cancelled);
    assert_eq!(job.result.unwrap().error.as_deref(), Some("cancelled: enough"));
    // The session is free again.
    let key = SessionKey { agent: "hanging".parse().unwrap(), session: submitted.session.session };
    for _ in 0..3000 {
        let facts = venue.venue.store.sessions(&venue.owner, Some(&key.agent), None, 10).await.unwrap();
        if facts[0].mailbox.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the cancelled task is still in its mailbox");
}

#[tokio::test]
async fn overload_is_retried_and_a_refusal_fails_the_task() {
    let Some((venue, _dir)) = fleet().await else { return };
    venue.agent("flaky", json!({})).await;
    venue.agent("refused", json!({})).await;
    let job = venue.run("flaky", "t1", json!({})).await;
    assert_eq!(job.result.unwrap().output, Some(json!("at last")));
    let job = venue.run("refused", "t2", json!({})).await;
    assert_eq!(job.result.unwrap().error_code, Some(ErrorCode::ModelError));
}

#[tokio::test]
async fn a_loop_of_tool_calls_ends_at_the_limit_of_turns() {
    let Some((venue, _dir)) = fleet().await else { return };
    venue.agent("looping", json!({"limits": {"turns": 4}})).await;
    let job = venue.run("looping", "t1", json!({})).await;
    assert_eq!(job.result.unwrap().error_code, Some(ErrorCode::LimitReached));
    assert_eq!(venue.turns("looping", job.head.session.as_str()).await.len(), 4);
}

#[tokio::test]
async fn bad_calls_are_told_to_the_model_and_the_run_goes_on() {
    let Some((venue, _dir)) = fleet().await else { return };
    venue.agent("confused", json!({"caps": [{"with": "w/open", "can": "crud"}]})).await;
    let job = venue.run("confused", "t1", json!({})).await;
    assert_eq!(job.status, JobStatus::Complete);
    let turns = venue.turns("confused", job.head.session.as_str()).await;
    let outcomes: Vec<_> = turns[0].calls.iter().map(|c| c.outcome.as_str()).collect();
    assert_eq!(outcomes, ["unknown tool", "denied", "bad arguments"]);
    assert_eq!(venue.read("w/secret/x").await, None);
}

#[tokio::test]
async fn a_message_is_consumed_by_the_turn_that_shows_it() {
    let Some((venue, _dir)) = fleet().await else { return };
    venue.agent("echo", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
    let submission = Submission { input: json!("ping"), ..Submission::default() };
    venue.arrive("echo", "m1", false, submission).await;
    for _ in 0..3000 {
        let turns = venue.turns("echo", "main").await;
        if let Some(turn) = turns.first() {
            assert_eq!(turn.events[0].as_str(), "m1");
            assert!(serde_json::to_string(&turn.said).unwrap().contains("ping"));
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the message was not shown");
}

/// Sixty sessions of an agent that runs two at once; the next sweep comes when the test has failed.
async fn slots_are_handed_to_waiting_sessions(mut venue: TestVenue) {
    venue.sweep = Duration::from_mins(10);
    venue.worker();
    venue.agent("echo", json!({"model": {"provider": "scripted", "name": "echo"}, "concurrency": 2})).await;
    let started = std::time::Instant::now();
    let mut submitted = Vec::new();
    for n in 0..60 {
        submitted.push(venue.submit("echo", &format!("t{n}"), json!({"message": n.to_string()})).await);
    }
    let ended = submitted.iter().map(|submitted| venue.ended(submitted.job.as_ref().unwrap()));
    let ended = futures::future::join_all(ended).await;
    for (n, job) in ended.into_iter().enumerate() {
        assert_eq!(job.result.unwrap().output, Some(json!(n.to_string())));
    }
    eprintln!("60 tasks in {:?}", started.elapsed());
}

/// Tells of the first call of a turn that is recorded.
struct Intents(Arc<Notify>);

#[async_trait]
impl Watch for Intents {
    async fn checkpointed(&self, _lease: &Lease, write: &Checkpoint, _held: &LeaseCheck) {
        if !write.calls.is_empty() {
            self.0.notify_one();
        }
    }
}

#[tokio::test]
async fn a_successor_sees_an_unrepeatable_call_as_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let bus = EmbeddedBus::new(Arc::clone(&store), Duration::from_secs(2), Clock::system()).unwrap();
    let intent = Arc::new(Notify::new());
    let store = Watched { inner: store, watch: Intents(Arc::clone(&intent)) };
    let first = TestVenue::new(Arc::new(store), Arc::new(bus), dir.path(), RULES).await;
    first.worker();
    first.agent("payer", json!({"tools": ["v/ops/test/once"]})).await;
    let job = first.submit("payer", "t1", json!({})).await.job.unwrap();
    tokio::time::timeout(Duration::from_mins(1), intent.notified()).await.expect("the intent is recorded");
    first.shutdown.trigger();
    first.shutdown.cancel_token().cancel();
    let second = TestVenue::new(Arc::clone(&first.venue.store), Arc::clone(&first.venue.bus), dir.path(), RULES).await;
    second.worker();
    let job = second.ended(&job).await;
    assert_eq!(job.result.unwrap().output, Some(json!("I look before I pay again")));
    let turns = second.turns("payer", job.head.session.as_str()).await;
    assert_eq!(turns[0].calls[0].outcome, "outcome unknown");
    let replies = second.model_calls().iter().filter(|call| call["event"] == "replied").count();
    assert_eq!(replies, 2, "the recorded reply is not asked for again");
}

#[tokio::test]
async fn waiting_sessions_of_a_fleet_need_no_sweep() {
    let Some((venue, _dir)) = idle_fleet().await else { return };
    slots_are_handed_to_waiting_sessions(venue).await;
}

#[tokio::test]
async fn waiting_sessions_of_a_laptop_need_no_sweep() {
    let (venue, _dir) = idle_laptop().await;
    slots_are_handed_to_waiting_sessions(venue).await;
}
