//! How calls that go on end when something is in their way: a login, a fault of the server, the configuration, the agent.

use super::late_tasks::{task, text};
use super::login_server::{LoginServer, Replaced, log_in};
use super::questions::{form, tools};
use super::{ClientSite, shop_agent, until};
use crate::support::mcp_server::{HANDSHAKE, McpAsked, McpReply, McpTestServer, STATELESS, answer};
use crate::support::operate::{boss, operate};
use crate::support::venue::all_jobs;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use trellis::domain::event::Submission;
use trellis::domain::ids::{EventId, JobId};
use trellis::domain::invocation::InvokedOperation;
use trellis::domain::mcp::pending::PENDING_CALL;
use trellis::venue::jobs;
use trellis::venue::operation_jobs::{find_tool_call, keep_child};

/// A server that works on each call as a task, and answers looks and cancellations as the test says.
async fn task_server(more: impl Fn(&McpAsked) -> Option<McpReply> + Send + Sync + 'static) -> McpTestServer {
    McpTestServer::start(STATELESS, tools(), move |asked| {
        more(asked).or_else(|| {
            Some(McpReply::Result(match asked.method() {
                "tools/call" => task("working", &json!({"resultType": "task"})),
                "tasks/get" => task("working", &json!({})),
                "tasks/cancel" | "tasks/update" => json!({"resultType": "complete"}),
                _ => return None,
            }))
        })
    })
    .await
}

fn done() -> McpReply {
    McpReply::Result(task("completed", &json!({"result": text("found it")})))
}

fn one_question() -> Value {
    json!({"k": form("Go on?", &json!({}), &[])})
}

/// A site whose agent `payer` has logged in at a server that answers those who have a token as `more` says.
async fn logged_in(
    login: &LoginServer,
    more: impl Fn(&McpAsked) -> Option<McpReply> + Send + Sync + 'static,
) -> (McpTestServer, ClientSite) {
    let (accepts, challenge) = (login.checker(), format!("Bearer resource_metadata=\"{}/prm\"", login.base()));
    let server = task_server(move |asked| {
        let token = asked.header("authorization").strip_prefix("Bearer ").unwrap_or_default();
        if !accepts(token) {
            return Some(McpReply::Status(401, "www-authenticate", challenge.clone()));
        }
        more(asked)
    })
    .await;
    login.set_server(&server);
    let site = ClientSite::new().await;
    site.agent("payer", &server, json!({})).await;
    log_in(&site, "payer").await.unwrap();
    (server, site)
}

impl ClientSite {
    async fn unknown_outcomes(&self) -> usize {
        let listed =
            operate(&self.venue.venue, &boss(&self.venue.owner), "v/ops/job/outcomes", json!({})).await.unwrap();
        listed["items"].as_array().unwrap().len()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_may_not_be_followed_any_more_is_an_unknown_outcome() {
    for (agent, is_unknown) in [("payer", true), ("searcher", false)] {
        let server = task_server(|_| None).await;
        let site = ClientSite::new().await;
        site.agent(agent, &server, json!({})).await;
        let job = site.start(agent).await;
        until("a look", || !server.asked("tasks/get").is_empty()).await;
        site.agent(agent, &McpTestServer::start(STATELESS, tools(), |_| None).await, json!({})).await;
        let said = site.late_result(&job).await;
        assert!(said.contains("since the call was made"), "{agent}: {said}");
        assert_eq!(said.contains("outcome unknown"), is_unknown, "{agent}: {said}");
        assert_eq!(site.unknown_outcomes().await, usize::from(is_unknown), "{agent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_task_is_unknown_only_if_the_server_refuses() {
    for is_refused in [true, false] {
        let server = task_server(move |asked| {
            (is_refused && asked.method() == "tasks/cancel").then_some(McpReply::Error(200, -32602))
        })
        .await;
        let site = ClientSite::new().await;
        site.agent("payer", &server, json!({})).await;
        let job = site.start("payer").await;
        until("a look", || !server.asked("tasks/get").is_empty()).await;
        jobs::cancel(&site.venue.venue, &site.venue.owner, &job, None).await.unwrap();
        until("the cancellation", || !server.asked("tasks/cancel").is_empty()).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(site.unknown_outcomes().await, usize::from(is_refused), "{is_refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_token_loses_no_task() {
    let login = LoginServer::start().await;
    let looks = AtomicUsize::new(0);
    let (server, site) = logged_in(&login, move |asked| {
        (asked.method() == "tasks/get" && looks.fetch_add(1, Ordering::SeqCst) > 0).then(done)
    })
    .await;
    let job = site.start("payer").await;
    until("a look", || !server.asked("tasks/get").is_empty()).await;
    login.revoke_all();
    let said = site.late_result(&job).await;
    assert!(said.contains("found it"), "{said}");
    assert_eq!(server.asked("tasks/get").last().unwrap().header("authorization"), "Bearer access-token-2");

    // Without a login, too: who refuses a look doesn't say that the task is lost.
    let looks = AtomicUsize::new(0);
    let server = task_server(move |asked| {
        (asked.method() == "tasks/get").then(|| match looks.fetch_add(1, Ordering::SeqCst) {
            0 => McpReply::Status(401, "www-authenticate", "Bearer".into()),
            _ => done(),
        })
    })
    .await;
    let site = ClientSite::new().await;
    site.agent("payer", &server, json!({})).await;
    let job = site.start("payer").await;
    assert!(site.late_result(&job).await.contains("found it"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_outlives_a_login_server_that_fails() {
    let login = LoginServer::start().await;
    login.replace("/token", Replaced::Keys(json!({"expires_in": 4})));
    let (server, site) = logged_in(&login, |asked| {
        (asked.method() == "tools/call").then(|| {
            McpReply::Result(if asked.params()["inputResponses"].is_null() {
                let state = asked.header("authorization");
                json!({"resultType": "input_required", "inputRequests": one_question(), "requestState": state})
            } else {
                text("found it")
            })
        })
    })
    .await;
    let job = site.start("payer").await;
    let question = site.question().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = login.asked("/token").len();
    login.replace("/token", Replaced::Body(503, Vec::new()));
    site.decide("answer", &question, json!({"answers": {"confirm": true}})).await.unwrap();
    until("a renewal that fails", || login.asked("/token").len() > before).await;
    login.restore("/token");
    let said = site.late_result(&job).await;
    assert!(said.contains("found it"), "{said}");
    let calls = server.asked("tools/call");
    let again = calls.last().unwrap();
    assert_eq!(again.params()["requestState"], calls[0].header("authorization"), "the state goes back as it came");
    assert_eq!(again.params()["inputResponses"], json!({"k": {"action": "accept", "content": {}}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_busy_gets_the_answer_later() {
    for status in [429, 503] {
        let refused = AtomicBool::new(false);
        let server = task_server(move |asked| {
            if asked.method() != "tools/call" {
                return None;
            }
            if asked.params()["inputResponses"].is_null() {
                return Some(McpReply::Result(
                    json!({"resultType": "input_required", "inputRequests": one_question()}),
                ));
            }
            let is_again = refused.swap(true, Ordering::SeqCst);
            Some(if is_again {
                McpReply::Result(text("found it"))
            } else {
                McpReply::Status(status, "retry-after", "1".into())
            })
        })
        .await;
        let site = ClientSite::new().await;
        site.agent("payer", &server, json!({})).await;
        let job = site.start("payer").await;
        let question = site.question().await;
        site.decide("answer", &question, json!({"answers": {"confirm": true}})).await.unwrap();
        let said = site.late_result(&job).await;
        assert!(said.contains("found it"), "{status}: {said}");
        assert_eq!(server.asked("tools/call").len(), 3, "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_gets_its_answers_once() {
    let updated = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&updated);
    let server = task_server(move |asked| match asked.method() {
        // It has taken the answers, and fails to say so.
        "tasks/update" => {
            updated.store(true, Ordering::SeqCst);
            Some(McpReply::Status(500, "x-broken", "yes".into()))
        }
        "tasks/get" if seen.load(Ordering::SeqCst) => Some(done()),
        "tasks/get" => Some(McpReply::Result(task("input_required", &json!({"inputRequests": one_question()})))),
        _ => None,
    })
    .await;
    let site = ClientSite::new().await;
    site.agent("payer", &server, json!({})).await;
    let job = site.start("payer").await;
    let question = site.question().await;
    site.decide("answer", &question, json!({"answers": {"confirm": true}})).await.unwrap();
    let said = site.late_result(&job).await;
    assert!(said.contains("found it"), "{said}");
    assert_eq!(server.asked("tasks/update").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_nobody_can_answer_is_ended_at_once() {
    let server = McpTestServer::start(HANDSHAKE, Vec::new(), |asked| {
        let old = |status: &str| json!({"taskId": "t-1", "status": status, "ttl": null, "pollInterval": 1});
        Some(match asked.method() {
            "initialize" => {
                let result = json!({
                    "protocolVersion": HANDSHAKE, "serverInfo": {"name": "test", "version": "1"},
                    "capabilities": {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}
                });
                McpReply::Status(200, "mcp-session-id", format!("one\n{}", answer(asked, result)))
            }
            "tools/call" => McpReply::Result(json!({"task": old("working")})),
            "tasks/get" => McpReply::Result(old("input_required")),
            "tasks/cancel" => McpReply::Result(old("cancelled")),
            "tools/list" => {
                let mut tools = tools();
                tools[1]["execution"] = json!({"taskSupport": "required"});
                McpReply::Result(json!({"tools": tools}))
            }
            "notifications/initialized" => McpReply::Status(202, "x-accepted", "yes".into()),
            _ => return None,
        })
    })
    .await;
    let site = ClientSite::new().await;
    site.agent("payer", &server, json!({"revision": HANDSHAKE})).await;
    let job = site.start("payer").await;
    let said = site.late_result(&job).await;
    assert!(said.contains("nothing of it was offered") && said.contains("asked to cancel"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_ends_with_the_rights_to_make_it() {
    let server = task_server(|_| None).await;
    let site = ClientSite::new().await;
    site.agent("payer", &server, json!({})).await;
    let job = site.start("payer").await;
    until("a look", || !server.asked("tasks/get").is_empty()).await;
    // Its configuration names the tool no more.
    let mut config = shop_agent(&server.url(), json!({"tools": ["search"]}));
    config["tools"] = json!(["v/ops/mcp/shop/*"]);
    site.venue.agent("payer", config).await;
    let said = site.late_result(&job).await;
    assert!(said.contains("is not in the `tools`") && !said.contains("outcome unknown"), "{said}");
    assert_eq!(server.asked("tasks/cancel").len(), 1, "the server has taken the cancellation");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_an_agent_that_was_deleted_is_stopped() {
    let server = task_server(|asked| {
        (asked.method() == "tools/call")
            .then(|| McpReply::Result(json!({"resultType": "input_required", "inputRequests": one_question()})))
    })
    .await;
    let site = ClientSite::new().await;
    site.agent("payer", &server, json!({})).await;
    let message = Submission { input: json!("go"), ..Submission::default() };
    site.venue.arrive("payer", "m1", false, message).await;
    let question = site.question().await;
    let delete = json!({"agentId": "payer"});
    operate(&site.venue.venue, &boss(&site.venue.owner), "v/ops/agent/delete", delete).await.unwrap();
    site.decide("answer", &question, json!({"answers": {"confirm": true}})).await.ok();
    let calls = async || {
        let all = all_jobs(&site.venue.venue, &site.venue.owner).await;
        all.into_iter()
            .filter(|job| job.head.op.as_deref() == Some(PENDING_CALL))
            .map(|job| job.status)
            .collect::<Vec<_>>()
    };
    for left in (0..500).rev() {
        if calls().await.iter().all(|status| status.is_terminal()) {
            break;
        }
        assert!(left > 0, "the call is stopped: {:?}", calls().await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(server.asked("tools/call").len(), 1, "it is not made again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_is_made_again_has_its_own_task_followed() {
    let site = ClientSite::new().await;
    let (venue, owner, now) = (&site.venue.venue, &site.venue.owner, site.venue.venue.now());
    let job = JobId::new(&"0f".repeat(16)).unwrap();
    for task in ["t-1", "t-2"] {
        let call = json!({
            "call": {"server": "shop", "place": "p", "tool": "search", "called": "shop__search", "turn": 1, "index": 0,
                "arguments": {}, "isRepeatable": true},
            "phase": {"working": {"task": task, "pollMs": 1}}, "deadline": 1
        });
        let event = EventId::new("e-1").unwrap();
        let invoked = InvokedOperation::new(job.clone(), event, boss(owner).asker(None), now);
        let invoked = InvokedOperation { tool_call: Some(serde_json::from_value(call).unwrap()), ..invoked };
        keep_child(venue, owner, &invoked, now.plus(Duration::from_mins(1))).await.unwrap();
    }
    let kept = find_tool_call(venue, owner, &job).await.unwrap().unwrap();
    assert_eq!(kept.task(), Some("t-2"));
}
