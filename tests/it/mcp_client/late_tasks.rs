//! Tasks of servers as results that the session waits for, in both revisions.

use super::questions::{form, tools};
use super::{ClientSite, until};
use crate::mcp::Site;
use crate::support::mcp_server::{HANDSHAKE, McpAsked, McpReply, McpTestServer, STATELESS, answer};
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use trellis::venue::jobs;

/// A task as the stateless revision has it.
pub fn task(status: &str, more: &Value) -> Value {
    let mut task = json!({
        "taskId": "t-1", "status": status, "createdAt": "2026-11-28T00:00:00Z", "lastUpdatedAt": "2026-11-28T00:00:00Z",
        "ttlMs": 60_000, "pollIntervalMs": 1
    });
    task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    task
}

pub fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// A server that works on each call until it was looked at so often, and then answers `end`.
async fn task_server(looks: usize, end: Value) -> McpTestServer {
    let seen = AtomicUsize::new(0);
    McpTestServer::start(STATELESS, tools(), move |asked| match asked.method() {
        "tools/call" => Some(McpReply::Result(task("working", &json!({"resultType": "task"})))),
        "tasks/get" if seen.fetch_add(1, Ordering::SeqCst) < looks => {
            Some(McpReply::Result(task("working", &json!({}))))
        }
        "tasks/get" => Some(McpReply::Result(end.clone())),
        "tasks/cancel" | "tasks/update" => Some(McpReply::Result(json!({"resultType": "complete"}))),
        _ => None,
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_asked_for_until_it_has_ended() {
    let done = task("completed", &json!({"result": text("found it")}));
    let failed =
        task("completed", &json!({"result": {"content": [{"type": "text", "text": "no tea"}], "isError": true}}));
    let broken = task("failed", &json!({"error": {"code": -32603, "message": "it burns"}}));
    for (end, part) in [
        (done, "found it"),
        (failed, "`pay` of the MCP server `shop` at `127.0.0.1` failed: no tea"),
        (broken, "error -32603: it burns"),
        (
            task("cancelled", &json!({"statusMessage": "closing time"})),
            "the server has cancelled the task: closing time",
        ),
    ] {
        let server = task_server(1, end).await;
        let site = ClientSite::new().await;
        site.agent("payer", &server, json!({})).await;
        let job = site.venue.run("payer", "t1", json!("go")).await;
        let said = site.late_result(&job.head.id).await;
        assert!(said.contains(part), "{part}: {said}");
        assert_eq!(site.outcomes(&job).await[0], ["ok"], "the call has begun a task");
        let looks = server.asked("tasks/get");
        assert_eq!((looks.len(), server.asked("tools/call").len()), (2, 1));
        assert_eq!((looks[0].header("mcp-name"), looks[0].params()["taskId"].as_str()), ("t-1", Some("t-1")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_is_lost_counts_as_a_call_that_broke_off() {
    for (agent, part) in [("payer", "outcome unknown"), ("searcher", "its task is lost")] {
        let server = McpTestServer::start(STATELESS, tools(), |asked| match asked.method() {
            "tools/call" => Some(McpReply::Result(task("working", &json!({"resultType": "task"})))),
            "tasks/get" => Some(McpReply::Error(200, -32602)),
            _ => None,
        })
        .await;
        let site = ClientSite::new().await;
        site.agent(agent, &server, json!({})).await;
        let job = site.start(agent).await;
        let said = site.late_result(&job).await;
        assert!(said.contains(part), "{agent}: {said}");
        assert_eq!(server.asked("tools/call").len(), 1, "{agent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_cancels_its_task() {
    let server = task_server(usize::MAX, json!({})).await;
    let site = ClientSite::new().await;
    site.agent("payer", &server, json!({})).await;
    let job = site.start("payer").await;
    until("a look", || !server.asked("tasks/get").is_empty()).await;
    jobs::cancel(&site.venue.venue, &site.venue.owner, &job, None).await.unwrap();
    until("the cancellation", || !server.asked("tasks/cancel").is_empty()).await;
    assert_eq!(server.asked("tasks/cancel")[0].params()["taskId"], "t-1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_asks_a_person_and_goes_on_with_the_answer() {
    let answered = Arc::new(AtomicUsize::new(0));
    let updates = Arc::clone(&answered);
    let server = McpTestServer::start(STATELESS, tools(), move |asked| match asked.method() {
        "tools/call" => Some(McpReply::Result(task("working", &json!({"resultType": "task"})))),
        "tasks/get" if updates.load(Ordering::SeqCst) == 0 => {
            let requests =
                json!({"k": form("Which size?", &json!({"size": {"type": "string", "enum": ["S", "L"]}}), &["size"])});
            Some(McpReply::Result(task("input_required", &json!({"inputRequests": requests}))))
        }
        "tasks/get" => Some(McpReply::Result(task("completed", &json!({"result": text("one L")})))),
        "tasks/update" => {
            updates.fetch_add(1, Ordering::SeqCst);
            Some(McpReply::Result(json!({"resultType": "complete"})))
        }
        _ => None,
    })
    .await;
    let site = ClientSite::new().await;
    site.agent("payer", &server, json!({})).await;
    let job = site.start("payer").await;
    let question = site.question().await;
    site.decide("answer", &question, json!({"answers": {"size": "L"}})).await.unwrap();
    assert!(site.late_result(&job).await.contains("one L"));
    let update = &server.asked("tasks/update")[0];
    let given = json!({"k": {"action": "accept", "content": {"size": "L"}}});
    assert_eq!((&update.params()["taskId"], &update.params()["inputResponses"]), (&json!("t-1"), &given));
    assert_eq!((server.asked("tools/call").len(), answered.load(Ordering::SeqCst)), (1, 1));
}

/// The answers of a server with sessions that works on calls as tasks.
fn with_sessions(asked: &McpAsked) -> Option<McpReply> {
    let old = |status: &str| json!({"taskId": "t-1", "status": status, "ttl": null, "pollInterval": 1});
    Some(match asked.method() {
        "initialize" => {
            let result = json!({
                "protocolVersion": HANDSHAKE, "serverInfo": {"name": "test", "version": "1"},
                "capabilities": {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}
            });
            McpReply::Status(200, "mcp-session-id", format!("one\n{}", answer(asked, result)))
        }
        "tools/call" if asked.params()["task"].is_object() => McpReply::Result(json!({"task": old("working")})),
        "tools/call" => McpReply::Result(text("tea")),
        "tasks/get" => McpReply::Result(old("completed")),
        "tasks/result" => McpReply::Result(text("found it")),
        "notifications/initialized" | "notifications/cancelled" => McpReply::Status(202, "x-accepted", "yes".into()),
        "tools/list" => {
            let mut tools = tools();
            tools[1]["execution"] = json!({"taskSupport": "required"});
            McpReply::Result(json!({"tools": tools}))
        }
        _ => return None,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_of_the_older_revision_lives_in_one_session() {
    let server = McpTestServer::start(HANDSHAKE, Vec::new(), with_sessions).await;
    let site = ClientSite::new().await;
    site.agent("clerk", &server, json!({"revision": HANDSHAKE})).await;
    let job = site.start("clerk").await;
    assert!(site.late_result(&job).await.contains("found it"));
    let calls = server.asked("tools/call");
    assert!(calls.iter().all(|call| call.params()["name"] != "search" || call.params()["task"].is_null()));
    let begun = calls.iter().find(|call| call.params()["name"] == "pay").unwrap();
    assert!(begun.params()["task"]["ttl"].as_u64().unwrap() > 0, "{begun:?}");
    for method in ["tasks/get", "tasks/result"] {
        assert!(server.asked(method).iter().all(|asked| asked.header("mcp-session-id") == "one"), "{method}");
    }
    until("the end of the session", || server.sent(&Method::DELETE) > 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_venues_agent_asks_the_people_of_this_one() {
    let elsewhere = Site::new().await;
    let site = ClientSite::with_rules(
        "[[rule]]\nwhen = { turn = 1 }\nthen = { calls = [{ tool = \"shop__ask_payer\", arguments = { input = \"pay\" } }] }\n\n[[rule]]\nthen = { text = \"told: {{tool_result}}\" }\n",
    )
    .await;
    let config = super::shop_agent(&format!("{}/mcp", elsewhere.server.url), json!({"timeout": 20}));
    site.venue.agent("clerk", config).await;
    let job = site.start("clerk").await;
    let question = site.question().await;
    let title = question["questions"]["title"].as_str().unwrap();
    assert!(title.contains("`payer` wants to call `v/ops/lattice/write`"), "{title}");
    site.decide("answer", &question, json!({"answers": {"approve": true}})).await.unwrap();
    let said = site.late_result(&job).await;
    assert!(said.contains("done"), "{said}");
    assert_eq!(elsewhere.venue.read("w/paid").await, Some(json!(100)));
}
