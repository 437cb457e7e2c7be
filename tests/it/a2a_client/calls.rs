//! Messages to agents elsewhere, and what becomes of their tasks.

use super::{CallerSite, RULES, asked_of_model, partner_agent, told};
use crate::mcp_client::any_loopback;
use crate::support::a2a_server::{A2aAsked, A2aReply, A2aTestServer, task};
use crate::support::operate::{boss, limited, operate};
use crate::support::venue::{TestVenue, all_jobs};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use trellis::domain::job::{ErrorCode, JobStatus};
use trellis::venue::a2a_client::{A2aAgents, A2aEndpoint, VenueRemoteAgent};
use trellis::venue::jobs::{self, CancelOutcome};
use trellis::venue::operation::{Caller, OpError};
use trellis::venue::outside_tools::prepare_path;

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_waited_for_in_both_bindings() {
    for binding in ["JSONRPC", "HTTP+JSON"] {
        let server = A2aTestServer::start(binding, 1, |_| None).await;
        let site = CallerSite::new().await;
        site.agent("clerk", &server, json!({})).await;
        let job = site.venue.run("clerk", "t1", json!("an order")).await;
        let said = told(&job);
        assert!(said.contains("found it") && said.contains("t-1") && said.contains("c-1"), "{binding}: {said}");
        let sent = server.asked("SendMessage");
        assert_eq!(sent.len(), 1, "{binding}");
        assert_eq!((sent[0].header("a2a-version"), sent[0].message()["role"].as_str()), ("1.0", Some("ROLE_USER")));
        assert_eq!(sent[0].message()["parts"], json!([{"text": "an order"}]));
        assert_eq!(sent[0].header("idempotency-key"), sent[0].message()["messageId"].as_str().unwrap());
        assert_eq!(server.asked("GetTask").len(), 2, "{binding}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_task_ends_as_a_pending_result() {
    let server = A2aTestServer::start("JSONRPC", 6, |_| None).await;
    let site = CallerSite::new().await;
    site.agent("clerk", &server, json!({})).await;
    let job = site.venue.run("clerk", "t1", json!("an order")).await;
    assert_eq!(told(&job), "later: found it");
    assert_eq!(server.asked("SendMessage").len(), 1);
    let turns = site.venue.turns("clerk", job.head.session.as_str()).await;
    let outcomes: Vec<_> = turns.iter().flat_map(|turn| &turn.calls).map(|call| call.outcome.as_str()).collect();
    assert_eq!(outcomes, ["ok"], "the call was made once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_answered_in_the_same_task() {
    let answers = AtomicUsize::new(0);
    let server = A2aTestServer::start("JSONRPC", 0, move |asked| {
        let first = asked.operation() == "SendMessage" && answers.fetch_add(1, Ordering::SeqCst) == 0;
        first.then(|| A2aReply::Result(json!({"task": task("INPUT_REQUIRED", "Which size?")})))
    })
    .await;
    let site = CallerSite::new().await;
    site.agent("talker", &server, json!({})).await;
    let job = site.venue.run("talker", "t1", json!("a coffee")).await;
    assert!(told(&job).contains("found it"), "{}", told(&job));
    let sent = server.asked("SendMessage");
    assert_eq!((sent.len(), &sent[1].message()["taskId"]), (2, &json!("t-1")));
    assert_ne!(sent[0].message()["messageId"], sent[1].message()["messageId"]);
    let prompts = asked_of_model(&site, &job).await;
    assert!(prompts.contains("Which size?") && prompts.contains("input-required"), "the model reads the question");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_can_be_waited_for_without_a_message() {
    let server = A2aTestServer::start("HTTP+JSON", 0, |_| None).await;
    let site = CallerSite::new().await;
    site.agent("waiter", &server, json!({})).await;
    assert!(told(&site.venue.run("waiter", "t1", json!("go")).await).contains("found it"));
    assert_eq!((server.asked("SendMessage").len(), server.asked("GetTask").len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_end_of_a_task_is_told() {
    for (reply, part) in [
        (json!({"message": {"messageId": "a", "role": "ROLE_AGENT", "parts": [{"text": "at once"}]}}), "at once"),
        (json!({"task": task("FAILED", "no such order")}), "failed (task `t-1`): no such order"),
        (json!({"task": task("REJECTED", "not for you")}), "refused the task (task `t-1`): not for you"),
        (json!({"task": task("CANCELED", "closing time")}), "has cancelled the task itself"),
        (json!({"task": task("AUTH_REQUIRED", "log in")}), "A person must permit this"),
        (json!({"neither": 1}), "outcome unknown"),
    ] {
        let answer = reply.clone();
        let server = A2aTestServer::start("JSONRPC", 0, move |asked| {
            (asked.operation() == "SendMessage").then(|| A2aReply::Result(answer.clone()))
        })
        .await;
        let site = CallerSite::new().await;
        site.agent("clerk", &server, json!({})).await;
        let job = site.venue.run("clerk", "t1", json!("go")).await;
        assert!(told(&job).contains(part), "{reply}: {}", told(&job));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_error_of_the_protocol_says_what_to_do() {
    for (code, part) in [
        (-32_001, "send a message without `task`"),
        (-32_004, "leave out `task`"),
        (-32_005, "send a text alone"),
        (-32_008, "its operator must see to this"),
        (-32_009, "another version of the protocol"),
        (-32_602, "the agent refuses the request: no such luck"),
        (-32_603, "outcome unknown"),
        (-32_000, "outcome unknown"),
    ] {
        let server = A2aTestServer::start("JSONRPC", 0, move |asked| {
            (asked.operation() == "SendMessage").then_some(A2aReply::Error(code))
        })
        .await;
        let site = CallerSite::new().await;
        site.agent("clerk", &server, json!({})).await;
        let job = site.venue.run("clerk", "t1", json!("go")).await;
        assert!(told(&job).contains(part), "{code}: {}", told(&job));
        assert_eq!(server.asked("SendMessage").len(), 1, "{code}");
    }
}

/// Waits until the agent has been asked for something.
async fn until_asked(server: &A2aTestServer, operation: &str) {
    for _ in 0..500 {
        if !server.asked(operation).is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("expected {operation}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_cancels_its_task() {
    for binding in ["JSONRPC", "HTTP+JSON"] {
        let server = A2aTestServer::start(binding, 1_000, |_| None).await;
        let site = CallerSite::new().await;
        site.agent("clerk", &server, json!({})).await;
        let job = site.venue.submit("clerk", "t1", json!("go")).await.job.unwrap();
        until_asked(&server, "GetTask").await;
        let cancelled = jobs::cancel(&site.venue.venue, &site.venue.owner, &job, None).await.unwrap();
        assert!(matches!(cancelled, CancelOutcome::Done(_)), "{cancelled:?}");
        until_asked(&server, "CancelTask").await;
        let asked = &server.asked("CancelTask")[0];
        assert!(asked.path.contains("t-1") || asked.body["params"]["id"] == "t-1", "{binding}: {asked:?}");
    }
}

/// A venue with an agent elsewhere that all owners share.
async fn sharing_venue(server: &A2aTestServer) -> (TestVenue, TempDir) {
    let settings = serde_json::from_value(json!({"name": "partner", "url": server.url()})).unwrap();
    let endpoint = Arc::new(A2aEndpoint::of_venue(settings, any_loopback(), None).unwrap());
    let own = VenueRemoteAgent { endpoint, is_shared: true };
    let (mut venue, dir) = TestVenue::embedded(RULES).await;
    let inner = Arc::get_mut(&mut venue.venue).unwrap();
    inner.catalog = trellis::ops::catalog(true).with_a2a(A2aAgents::new([own]));
    venue.worker();
    (venue, dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_owner_reaches_tasks_of_another_at_a_shared_agent() {
    let server = A2aTestServer::start("JSONRPC", 0, |_| None).await;
    let (venue, _dir) = sharing_venue(&server).await;
    let (ann, bob) = (boss(&venue.owner), boss(&"local/you".parse().unwrap()));
    prepare_path(&venue.venue, &venue.owner, "a2a:partner:send").await.unwrap();
    let send = async |caller: &Caller, input: Value| operate(&venue.venue, caller, "a2a:partner:send", input).await;
    let found = send(&ann, json!({"message": "hi"})).await.unwrap();
    let (task, context) = (&found["output"]["taskId"], &found["output"]["contextId"]);
    for (who, caller, input) in [
        ("a stranger with the agent's id", &bob, json!({"task": "t-1"})),
        ("a stranger with the id of the first", &bob, json!({"task": task})),
        ("a stranger in the context of the first", &bob, json!({"message": "hi", "context": context})),
        ("the first with a context of its own making", &ann, json!({"message": "hi", "context": "c-1"})),
    ] {
        let refused = send(caller, input).await.unwrap_err().to_string();
        assert!(refused.contains("of an earlier result of this owner"), "{who}: {refused}");
    }
    assert_eq!((server.asked("SendMessage").len(), server.asked("GetTask").len()), (1, 1));
    let again = send(&ann, json!({"message": "more", "task": task, "context": context})).await.unwrap();
    assert_eq!(again["output"]["text"], "found it", "{again}");
    let messages = server.asked("SendMessage");
    let last = messages[1].message();
    assert_eq!((&last["taskId"], &last["contextId"]), (&json!("t-1"), &json!("c-1")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_may_have_left_stays_an_unknown_outcome() {
    let hang = |asked: &A2aAsked| (asked.operation() == "SendMessage").then_some(A2aReply::Hang);
    let server = A2aTestServer::start("JSONRPC", 0, hang).await;
    let site = CallerSite::new().await;
    site.agent("clerk", &server, json!({"timeout": 1, "repeatable": true})).await;
    site.venue.submit("clerk", "t1", json!("go")).await;
    until_asked(&server, "SendMessage").await;
    // The place changes while the answer to the first try is waited for.
    site.agent("clerk", &server, json!({"timeout": 1, "headers": {"X-Key": "k"}})).await;
    let all = all_jobs(&site.venue.venue, &site.venue.owner).await;
    let call = all.iter().find(|job| job.head.op.as_deref() == Some("v/ops/a2a/task")).unwrap();
    let ended = site.venue.ended(&call.head.id).await.result.unwrap();
    let why = ended.error.unwrap();
    assert!(why.contains("outcome unknown") && why.contains("since the call was made"), "{why}");
    assert_eq!(ended.error_code, Some(ErrorCode::OutcomeUnknown));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_outside_turns_gets_the_job() {
    let server = A2aTestServer::start("JSONRPC", 0, |_| None).await;
    let (venue, _dir) = sharing_venue(&server).await;
    let caller = boss(&venue.owner);
    prepare_path(&venue.venue, &venue.owner, "a2a:partner:send").await.unwrap();
    let found: Value = operate(&venue.venue, &caller, "a2a:partner:send", json!({"message": "hi"})).await.unwrap();
    assert_eq!((&found["status"], &found["a2aAgent"]), (&json!("COMPLETE"), &json!("partner")), "{found}");
    assert_eq!(found["output"]["text"], "found it");
    let job = found["id"].as_str().unwrap().parse().unwrap();
    let job = jobs::get(&venue.venue, &venue.owner, &job).await.unwrap().unwrap();
    assert_eq!((job.status, job.head.op.as_deref()), (JobStatus::Complete, Some("v/ops/a2a/task")));
    let listed = operate(&venue.venue, &caller, "a2a/agents", json!({})).await.unwrap();
    assert_eq!(listed["items"][0]["approvedBy"], "first use", "{listed}");
    let wrong = operate(&venue.venue, &caller, "a2a:partner:send", json!({})).await.unwrap_err();
    assert!(wrong.to_string().contains("expected a `message`"), "{wrong}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agents_own_that_is_away_hides_the_venues() {
    let server = A2aTestServer::start("JSONRPC", 0, |_| None).await;
    let (venue, _dir) = sharing_venue(&server).await;
    operate(&venue.venue, &boss(&venue.owner), "a2a/refresh", json!({"name": "partner"})).await.unwrap();
    venue.agent("clerk", partner_agent("http://127.0.0.1:9", json!({}))).await;
    let job = venue.run("clerk", "t1", json!("go")).await;
    let turns = venue.turns("clerk", job.head.session.as_str()).await;
    let outcomes: Vec<_> = turns.iter().flat_map(|turn| &turn.calls).map(|call| call.outcome.as_str()).collect();
    assert_eq!(outcomes, ["unknown tool"]);
    assert!(server.asked("SendMessage").is_empty(), "what was meant for one agent goes to no other");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_read_an_agent_sees_none_of_its_agents_elsewhere() {
    let site = CallerSite::new().await;
    site.venue.agent("clerk", partner_agent("http://127.0.0.1:9/?key=hunter2", json!({}))).await;
    let ask = async |caps: Value, operation: &str, input: Value| {
        let caller = limited(&site.venue.owner, caps);
        operate(&site.venue.venue, &caller, operation, input).await
    };
    let cards = json!({"with": "v/ops/a2a", "can": "crud/read"});
    let agent = json!({"with": "g/clerk", "can": "crud/read"});
    let named = json!({"name": "partner", "agent": "clerk"});
    for (operation, input) in
        [("a2a/agents", json!({"agent": "clerk"})), ("a2a/agent", named.clone()), ("a2a/refresh", named)]
    {
        let denied = ask(json!([cards]), operation, input.clone()).await;
        assert!(matches!(denied, Err(OpError::Denied(_))), "{operation}: {denied:?}");
        let answered = ask(json!([cards, agent]), operation, input).await;
        assert!(!matches!(answered, Err(OpError::Denied(_))), "{operation}: {answered:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_see_no_key_in_the_url_of_a_venues_agent() {
    let settings = serde_json::from_value(json!({"name": "partner", "url": "http://127.0.0.1:9/hunter2?key=hunter2"}));
    let endpoint = Arc::new(A2aEndpoint::of_venue(settings.unwrap(), any_loopback(), None).unwrap());
    let (mut venue, _dir) = TestVenue::embedded("").await;
    let own = VenueRemoteAgent { endpoint, is_shared: true };
    Arc::get_mut(&mut venue.venue).unwrap().catalog = trellis::ops::catalog(true).with_a2a(A2aAgents::new([own]));
    let shown = operate(&venue.venue, &boss(&venue.owner), "a2a/agents", json!({})).await.unwrap();
    assert_eq!(shown["items"][0]["url"], "http://127.0.0.1:9", "{shown}");
}
