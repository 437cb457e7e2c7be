//! What callers leave in the store beside values and tasks: it counts, and beyond a quota it is refused before it is
//! written. What was accepted still ends.

use crate::support::both_stores::{On, on_both};
use crate::support::http::Server;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use trellis::domain::ids::JobId;
use trellis::domain::invocation::InvokedOperation;
use trellis::domain::job::JobStatus;
use trellis::domain::quota::{ByteLimit, QuotaKind, QuotaSettings, QuotaUsage};
use trellis::domain::secret::KeyRing;
use trellis::http::HttpOptions;
use trellis::process::clock::Clock;
use trellis::store::{DocWrite, keys};
use trellis::venue::secrets::Vault;
use trellis::venue::upkeep::audit;
use trellis::venue::{jobs, quotas};

const RULES: &str = r#"
[[rule]]
then = { text = "done" }
"#;

/// Bytes of one large value: more than all room that these cases leave.
const LARGE: usize = 40_000;

on_both! {
    an_operation_is_refused_before_its_job_is_written
    an_answer_that_ends_work_is_refused_only_when_it_is_large
    an_operation_with_effects_waits_for_room
    an_output_without_room_fails_a_job_that_only_reads
    timers_that_are_set_at_once_share_the_quota
    values_of_a_tenant_have_a_quota
    concurrent_creations_stay_within_the_quota
    forks_of_a_conversation_at_once_share_the_quota
    assets_that_find_no_room_leave_nothing
}

async fn site(on: On, quota: QuotaSettings) -> Option<(TestVenue, tempfile::TempDir, Server)> {
    let (mut venue, dir) = on.venue(RULES, Clock::system()).await?;
    let inner = Arc::get_mut(&mut venue.venue).unwrap();
    inner.secrets = Vault::new(KeyRing::parse(&"01".repeat(32)).unwrap());
    inner.quota = quota;
    venue.agent("a", json!({})).await;
    let limits = |options| HttpOptions { body_limit: 2_000_000, ..options };
    let api = Server::changed(Arc::clone(&venue.venue), Arc::default(), limits).await;
    Some((venue, dir, api))
}

async fn used(venue: &TestVenue) -> QuotaUsage {
    venue.venue.store.usage(&venue.owner).await.unwrap().used
}

/// Leaves the owner so many bytes of room.
async fn leave(venue: &TestVenue, more: u64) {
    // Its own number is a document, too: the second write replaces a line of the same length.
    for _ in 0..2 {
        let limit = Some(used(venue).await.bytes + more);
        quotas::set_limits(&venue.venue, &venue.owner, &[(QuotaKind::Bytes, limit)]).await.unwrap();
    }
}

async fn lift(venue: &TestVenue) {
    quotas::set_limits(&venue.venue, &venue.owner, &[(QuotaKind::Bytes, None)]).await.unwrap();
}

async fn counts_are_right(venue: &TestVenue) {
    assert_eq!(audit::audit_all(&venue.venue).await.unwrap().drift, Vec::<String>::new());
}

fn large() -> String {
    "x".repeat(LARGE)
}

async fn an_operation_is_refused_before_its_job_is_written(on: On) {
    let Some((venue, _dir, api)) = site(on, QuotaSettings::default()).await else { return };
    venue.write("w/big", json!(large())).await;
    for (operation, input) in [
        ("v/ops/json/merge", json!({"values": [{"a": large()}]})),
        ("v/ops/lattice/read", json!({"path": "w/big"})),
        ("v/ops/test/echo", json!({"a": large()})),
        ("v/ops/test/once", json!({"a": large()})),
        ("v/ops/secret/set", json!({"name": "mail", "value": large()})),
        ("v/ops/http/post", json!({"url": format!("https://a.example/?{}", "x".repeat(8_000)), "body": "secret"})),
    ] {
        leave(&venue, 5_000).await;
        let before = used(&venue).await;
        for _ in 0..3 {
            let answer = api.post("/api/v1/invoke", json!({"operation": operation, "input": input})).await;
            let said = answer.body["error"].as_str().unwrap_or("it was taken");
            assert_eq!(answer.status.as_u16(), 507, "{operation}: {said}");
            answer.is_problem(507, "QUOTA_EXCEEDED: this owner's quota of bytes");
        }
        assert_eq!(used(&venue).await, before, "{operation}");
        lift(&venue).await;
    }
    // What was recorded counts, and counts no more when it is deleted.
    let before = used(&venue).await;
    let input = json!({"values": [{"a": large()}]});
    let job = api.post("/api/v1/invoke", json!({"operation": "v/ops/json/merge", "input": input, "wait": true})).await;
    let id = job.body(200)["id"].as_str().unwrap().to_owned();
    assert!(used(&venue).await.bytes > before.bytes + 2 * LARGE as u64, "input and output");
    let deleted = api.put(&format!("/api/v1/jobs/{id}/delete"), json!({})).await;
    assert!(deleted.status.is_success(), "{}", deleted.body);
    assert_eq!(used(&venue).await, before);
    counts_are_right(&venue).await;
}

async fn task(api: &Server) -> JobId {
    let accepted = api.post("/api/v1/agents/a/tasks", json!({"input": "x"})).await.body(202);
    accepted["job"].as_str().unwrap().parse().unwrap()
}

async fn an_answer_that_ends_work_is_refused_only_when_it_is_large(on: On) {
    let Some((venue, _dir, api)) = site(on, QuotaSettings::default()).await else { return };
    // No worker runs: what is open stays so until somebody ends it.
    let (first, second, third) = (task(&api).await, task(&api).await, task(&api).await);
    let outcome: JobId = "0f".repeat(16).parse().unwrap();
    let unknown = json!({"id": outcome, "operation": "v/ops/http/request", "at": 1});
    let asked: JobId = "0e".repeat(16).parse().unwrap();
    let approval = json!({
        "id": asked, "agent": "a", "session": "s", "turn": 1, "index": 0, "tool": "human_ask", "digest": "d",
        "asked": 1, "expires": 1_u64 << 50,
        "questions": {"title": "t", "asks": [{"id": "q", "type": "text", "prompt": "?"}]},
    });
    for (key, value) in [(keys::outcome(&outcome), unknown), (keys::approval(&asked), approval)] {
        venue.venue.store.write(venue.venue.now(), &venue.owner, &[DocWrite::json(key, &value)]).await.unwrap();
    }
    for (operation, input, answer) in [
        ("v/ops/agent/complete-task", json!({"taskId": first}), "result"),
        ("v/ops/agent/fail-task", json!({"taskId": second}), "error"),
        ("v/ops/job/settle", json!({"id": outcome, "done": true}), "result"),
        ("v/ops/approval/reject", json!({"id": asked}), "reason"),
    ] {
        let run = async |text: String| {
            let mut input = input.clone();
            input[answer] = text.into();
            api.post("/api/v1/run", json!({"operation": operation, "input": input})).await
        };
        leave(&venue, 0).await;
        let before = used(&venue).await;
        let refused = run(large()).await;
        assert_eq!(refused.status.as_u16(), 507, "{operation}");
        assert_eq!(used(&venue).await, before, "{operation}");
        let ended = run("short".to_owned()).await;
        assert!(ended.status.is_success(), "{operation}: {}", ended.body);
        lift(&venue).await;
    }
    leave(&venue, 0).await;
    let cancelled = api.put(&format!("/api/v1/jobs/{third}/cancel"), json!({"reason": large()})).await;
    assert!(cancelled.status.is_success(), "a cancel is never refused: {}", cancelled.body);
    assert!(cancelled.body.to_string().len() < LARGE / 2, "its reason is cut");
    counts_are_right(&venue).await;
}

async fn status(venue: &TestVenue, id: &JobId) -> JobStatus {
    jobs::get(&venue.venue, &venue.owner, id).await.unwrap().unwrap().status
}

async fn an_operation_with_effects_waits_for_room(on: On) {
    let Some((venue, _dir, api)) = site(on, QuotaSettings::default()).await else { return };
    let order = json!({"operation": "v/ops/http/post", "input": {"url": "http://127.0.0.1:9/"}});
    let id: JobId = api.post("/api/v1/invoke", order).await.body(201)["id"].as_str().unwrap().parse().unwrap();
    leave(&venue, 0).await;
    let record = async || {
        venue.venue.store.get::<InvokedOperation>(&venue.owner, &keys::invocation(&id)).await.unwrap().unwrap()
    };
    let first = record().await.due;
    venue.worker();
    while record().await.due == first {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((status(&venue, &id).await, record().await.begun), (JobStatus::Pending, 0), "nothing has begun");
    lift(&venue).await;
    assert_eq!(venue.ended(&id).await.status, JobStatus::Failed, "nothing listens there");
    counts_are_right(&venue).await;
}

async fn an_output_without_room_fails_a_job_that_only_reads(on: On) {
    let Some((venue, _dir, api)) = site(on, QuotaSettings::default()).await else { return };
    leave(&venue, LARGE as u64 + 10_000).await;
    // Too slow to be run by who accepts it.
    let order = json!({"operation": "v/ops/test/delay", "input": {"delay": 1_000, "a": large()}});
    let id: JobId = api.post("/api/v1/invoke", order).await.body(201)["id"].as_str().unwrap().parse().unwrap();
    venue.worker();
    let job = venue.ended(&id).await;
    let result = job.result.unwrap();
    assert_eq!(job.status, JobStatus::Failed, "{result:?}");
    assert!(result.error.unwrap().contains("QUOTA_EXCEEDED: this owner's quota of bytes"));
    counts_are_right(&venue).await;
}

async fn timers_that_are_set_at_once_share_the_quota(on: On) {
    let Some((venue, _dir, api)) = site(on, QuotaSettings::default()).await else { return };
    leave(&venue, LARGE as u64 / 2).await;
    let limit = used(&venue).await.bytes + LARGE as u64 / 2;
    let set = |n: usize| {
        let body = json!({"name": format!("t{n}"), "every": "1h", "input": "x".repeat(LARGE / 4)});
        let api = &api;
        async move { api.post("/api/v1/agents/a/timers", body).await.status.as_u16() }
    };
    let answers = futures::future::join_all((0..12).map(set)).await;
    assert!(answers.iter().all(|status| [201, 507].contains(status)), "{answers:?}");
    assert!(answers.contains(&201) && used(&venue).await.bytes <= limit, "{answers:?}");
    counts_are_right(&venue).await;
}

async fn values_of_a_tenant_have_a_quota(on: On) {
    let quota = QuotaSettings { bytes: ByteLimit::Number(LARGE as u64), ..QuotaSettings::default() };
    let Some((_venue, _dir, api)) = site(on, quota).await else { return };
    let write = async |path: &str, value: Value| {
        let input = json!({"path": path, "value": value});
        api.post("/api/v1/run", json!({"operation": "v/ops/lattice/write", "input": input})).await
    };
    write("v/context/project/a", json!("small")).await.body(200);
    write("v/context/users/ann/a", json!(large())).await.is_problem(507, "this owner's quota of bytes");
    write("v/context/users/ann/a", json!("small")).await.body(200);
}

/// Each entrance by which something new is kept: a hundred at once, of which the quota has room for a few.
async fn concurrent_creations_stay_within_the_quota(on: On) {
    /// Path and body of a request, by its number.
    type Request<'a> = &'a dyn Fn(usize) -> (String, Value);
    const ROOM: u64 = 200_000;
    let Some((venue, _dir, api)) = site(on, QuotaSettings::default()).await else { return };
    let run = |operation: &str, input: Value| ("run".to_owned(), json!({"operation": operation, "input": input}));
    let big = |n: usize| format!("{n:04}{}", "x".repeat(LARGE));
    venue.agent("big", json!({"systemPrompt": big(0)})).await;
    let with_model = |prompt| json!({"model": {"provider": "scripted", "name": "echo"}, "systemPrompt": prompt});
    let kinds: [(&str, Request<'_>); 10] = [
        ("values", &|n| run("v/ops/lattice/write", json!({"path": format!("w/v{n}"), "value": big(n)}))),
        ("assets", &|n| ("assets".to_owned(), json!({"content": big(n)}))),
        ("assets of several parts", &|n| ("assets".to_owned(), json!({"content": big(n).repeat(8)}))),
        ("agents", &|n| run("v/ops/agent/create", json!({"agentId": format!("a{n}"), "config": with_model(big(n))}))),
        ("tasks", &|n| ("agents/a/tasks".to_owned(), json!({"input": big(n)}))),
        ("messages", &|n| ("agents/a/messages".to_owned(), json!({"input": big(n), "sessionId": format!("m{n}")}))),
        ("timers", &|n| {
            ("agents/a/timers".to_owned(), json!({"input": big(n), "after": "3h", "name": format!("t{n}")}))
        }),
        ("operations", &|n| {
            ("invoke".to_owned(), json!({"operation": "v/ops/json/merge", "input": {"values": [{"a": big(n)}]}}))
        }),
        ("forks", &|n| ("agents/big/fork".to_owned(), json!({"to": format!("f{n}")}))),
        ("secrets", &|n| {
            run("v/ops/secret/set", json!({"name": format!("S{n}"), "value": big(n), "hosts": ["a.example"]}))
        }),
    ];
    for (kind, of) in kinds {
        leave(&venue, ROOM).await;
        let limit = used(&venue).await.bytes + ROOM;
        let one = |n: usize| {
            let (api, (path, body)) = (&api, of(n));
            async move { api.post(&format!("/api/v1/{path}"), body).await }
        };
        let answers = futures::future::join_all((0..100).map(one)).await;
        let taken = answers.iter().filter(|answer| answer.status.is_success()).count();
        let other = answers.iter().find(|answer| !answer.status.is_success() && answer.status.as_u16() != 507);
        assert!(other.is_none(), "{kind}: {other:?}");
        let kept = used(&venue).await.bytes;
        assert!(kept <= limit, "{kind}: {taken} taken, {} bytes beyond the quota", kept - limit);
        // The largest of these take more than all room.
        assert!((1..50).contains(&taken) || kind == "assets of several parts", "{kind}: {taken} taken");
        lift(&venue).await;
    }
    counts_are_right(&venue).await;
}

async fn forks_of_a_conversation_at_once_share_the_quota(on: On) {
    let Some((venue, _dir, api)) = site(on, QuotaSettings::default()).await else { return };
    venue.worker();
    let task = json!({"input": large(), "sessionId": "long"});
    api.post("/api/v1/agents/a/tasks?wait=60000", task).await.body(202);
    leave(&venue, 5 * LARGE as u64).await;
    let limit = used(&venue).await.bytes + 5 * LARGE as u64;
    let fork = async |n: usize| {
        let input = json!({"agentId": "a", "sessionId": "long", "at": 1, "to": format!("s{n}")});
        let body = json!({"operation": "v/ops/agent/session-fork", "input": input});
        api.post("/api/v1/run", body).await.status.as_u16()
    };
    let answers = futures::future::join_all((0..60).map(fork)).await;
    assert!(answers.iter().all(|status| [200, 507].contains(status)), "{answers:?}");
    let taken = answers.iter().filter(|status| **status == 200).count();
    let kept = used(&venue).await.bytes;
    assert!((1..6).contains(&taken) && kept <= limit, "{taken} taken, {kept} of {limit} bytes");
    counts_are_right(&venue).await;
}

async fn assets_that_find_no_room_leave_nothing(on: On) {
    let Some((venue, _dir, api)) = site(on, QuotaSettings::default()).await else { return };
    let content = |n: usize| format!("{n}{}", "x".repeat(400_000));
    leave(&venue, 1_000_000).await;
    // Several of the same content, too: none of them takes away what another has stored.
    let store = async |n: usize| api.post("/api/v1/assets", json!({"content": content(n % 5)})).await;
    let answers = futures::future::join_all((0..30).map(store)).await;
    let mut whole = 0;
    for answer in &answers {
        if answer.status.is_success() {
            let hash = answer.body.as_str().unwrap();
            let read = api.get(&format!("/api/v1/assets/{hash}/content")).await;
            assert_eq!(read.status.as_u16(), 200, "{}", read.body);
            whole += 1;
        } else {
            answer.is_problem(507, "QUOTA_EXCEEDED: this owner's quota of bytes");
        }
    }
    let listed = api.get("/api/v1/assets").await.body(200)["total"].as_u64().unwrap();
    assert!((1..=2).contains(&listed) && whole >= 1, "{listed} listed, {whole} taken");
    let kept = venue.venue.store.docs(&venue.owner, "a.c/").keys().await.unwrap().unwrap_or_default();
    assert_eq!(kept.len() as u64, 2 * listed, "nothing is left of those that were refused: {kept:?}");
    counts_are_right(&venue).await;
}
