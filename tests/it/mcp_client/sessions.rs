//! The older revisions: handshake, sessions that end, requests of the server, and broken streams.

use super::{ClientSite, told, until};
use crate::support::mcp_server::{HANDSHAKE, McpReply, McpTestServer, STATELESS, answer, text_tool};
use crate::support::operate::{boss, operate};
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn tools() -> Vec<Value> {
    vec![text_tool("search", json!({"readOnlyHint": true})), text_tool("pay", json!({}))]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_over_is_begun_anew_once() {
    let calls = AtomicUsize::new(0);
    let server = McpTestServer::start(HANDSHAKE, tools(), move |asked| {
        let is_first = asked.method() == "tools/call" && calls.fetch_add(1, Ordering::SeqCst) == 0;
        is_first.then_some(McpReply::Error(404, -32001))
    })
    .await;
    let site = ClientSite::new().await;
    site.agent("payer", &server, json!({})).await;
    let job = site.venue.run("payer", "t1", json!("go")).await;
    assert_eq!(site.outcomes(&job).await[0], ["ok"], "the server has surely not run it before");
    let sessions: Vec<_> =
        server.asked("tools/call").iter().map(|call| call.header("mcp-session-id").to_owned()).collect();
    assert!(sessions.len() == 2 && sessions[0] != sessions[1], "{sessions:?}");
    assert!(server.asked("initialize").iter().all(|asked| asked.header("mcp-session-id").is_empty()));
    assert!(server.sent(&Method::DELETE) > 0, "the session of the list is ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_always_over_is_an_error_at_once() {
    let server = McpTestServer::start(HANDSHAKE, tools(), |asked| {
        (asked.method() == "tools/call").then_some(McpReply::Error(404, -32001))
    })
    .await;
    let site = ClientSite::new().await;
    site.agent("payer", &server, json!({})).await;
    let job = site.venue.run("payer", "t1", json!("go")).await;
    assert_eq!(site.outcomes(&job).await[0], ["error"]);
    assert_eq!(server.asked("tools/call").len(), 2, "once, and once more");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_revision_is_found_out_and_can_be_set() {
    for (revision, setting, initialized) in [
        (HANDSHAKE, "auto", true),
        (HANDSHAKE, HANDSHAKE, true),
        (STATELESS, "auto", false),
        (STATELESS, STATELESS, false),
    ] {
        let server = McpTestServer::start(revision, tools(), |_| None).await;
        let site = ClientSite::new().await;
        site.agent("searcher", &server, json!({"revision": setting})).await;
        let job = site.venue.run("searcher", "t1", json!("go")).await;
        assert_eq!(site.outcomes(&job).await[0], ["ok"], "{revision} {setting}");
        assert_eq!(!server.asked("initialize").is_empty(), initialized, "{revision} {setting}");
    }
    let server = McpTestServer::start(HANDSHAKE, tools(), |_| None).await;
    let site = ClientSite::new().await;
    site.agent("searcher", &server, json!({"revision": STATELESS})).await;
    let job = site.venue.run("searcher", "t1", json!("go")).await;
    assert_eq!(site.outcomes(&job).await[0], ["unknown tool"], "a revision that is set is the only one that is tried");
    assert!(server.asked("initialize").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_gives_up_the_handshake_is_asked_without_it() {
    let server = McpTestServer::start(HANDSHAKE, tools(), |_| None).await;
    let site = ClientSite::new().await;
    site.agent("searcher", &server, json!({})).await;
    site.venue.run("searcher", "t1", json!("go")).await;
    server.set_revision(STATELESS);
    let job = site.venue.run("searcher", "t2", json!("go")).await;
    assert!(told(&job).contains("search"), "{}", told(&job));
    let calls = server.asked("tools/call");
    let revisions: Vec<_> = calls.iter().map(|call| call.header("mcp-protocol-version")).collect();
    assert_eq!(revisions, [HANDSHAKE, STATELESS]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_speaks_the_refused_revision_is_asked_again() {
    for (refusals, calls, outcome) in [(1, 2, "ok"), (9, 2, "error")] {
        let left = AtomicUsize::new(refusals);
        let server = McpTestServer::start(STATELESS, tools(), move |asked| {
            if asked.method() != "tools/call" || left.load(Ordering::SeqCst) == 0 {
                return None;
            }
            left.fetch_sub(1, Ordering::SeqCst);
            let error = json!({"code": -32022, "message": "no", "data": {"supported": [STATELESS]}});
            let body = json!({"jsonrpc": "2.0", "id": asked.message["id"], "error": error});
            Some(McpReply::Status(400, "x-refused", format!("yes\n{body}")))
        })
        .await;
        let site = ClientSite::new().await;
        site.agent("payer", &server, json!({})).await;
        let job = site.venue.run("payer", "t1", json!("go")).await;
        assert_eq!(site.outcomes(&job).await[0], [outcome], "{refusals}");
        assert_eq!(server.asked("tools/call").len(), calls, "{refusals}");
        assert!(server.asked("initialize").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_the_server_are_answered() {
    let server = McpTestServer::start(HANDSHAKE, tools(), |asked| {
        let ping = json!({"jsonrpc": "2.0", "id": "p", "method": "ping"});
        let ask = json!({"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": {"message": "Who?"}});
        let done = answer(asked, json!({"content": [{"type": "text", "text": "done"}]}));
        (asked.method() == "tools/call").then(|| McpReply::Stream(vec![ping, ask, done]))
    })
    .await;
    let site = ClientSite::new().await;
    site.agent("searcher", &server, json!({})).await;
    let job = site.venue.run("searcher", "t1", json!("go")).await;
    assert!(told(&job).contains("done"), "{}", told(&job));
    let replies: Vec<Value> = server.asked("").into_iter().map(|asked| asked.message).collect();
    assert!(replies.iter().any(|reply| reply["id"] == "p" && reply["result"] == json!({})), "{replies:?}");
    assert!(replies.iter().any(|reply| reply["id"] == 7 && reply["error"]["code"] == -32601), "{replies:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_task_cancels_the_call_at_the_server() {
    for revision in [HANDSHAKE, STATELESS] {
        let server =
            McpTestServer::start(revision, tools(), |asked| (asked.method() == "tools/call").then_some(McpReply::Hang))
                .await;
        let site = ClientSite::new().await;
        site.agent("payer", &server, json!({"timeout": 60})).await;
        let job = site.venue.submit("payer", "t1", json!("go")).await.job.unwrap();
        until("the call", || !server.asked("tools/call").is_empty()).await;
        let (venue, owner) = (&site.venue.venue, &site.venue.owner);
        let caller = boss(owner);
        let input = json!({"agentId": "payer", "taskId": job});
        operate(venue, &caller, "agent/cancel-task", input).await.unwrap();
        if revision == HANDSHAKE {
            until("the notification", || !server.asked("notifications/cancelled").is_empty()).await;
            let call = server.asked("tools/call")[0].message["id"].clone();
            assert_eq!(server.asked("notifications/cancelled")[0].params()["requestId"], call);
        }
        until("the end of the stream", || server.closed() > 0).await;
        assert_eq!(server.sent(&Method::GET), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_gets_no_session_of_one_that_had_its_name() {
    let (before, after) = (
        McpTestServer::start(HANDSHAKE, tools(), |_| None).await,
        McpTestServer::start(HANDSHAKE, tools(), |_| None).await,
    );
    let site = ClientSite::new().await;
    site.agent("payer", &before, json!({})).await;
    site.venue.run("payer", "t1", json!("go")).await;
    site.agent("payer", &after, json!({})).await;
    let job = site.venue.run("payer", "t2", json!("go")).await;
    assert!(told(&job).contains("pay"), "{}", told(&job));
    assert_eq!(after.asked("tools/call").len(), 1);
    assert_eq!(after.sent(&Method::DELETE), 1, "only the session of its own list is ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_is_sent_where_no_session_can_begin_now() {
    for status in [401, 503] {
        let is_down = Arc::new(AtomicBool::new(false));
        let down = Arc::clone(&is_down);
        let server = McpTestServer::start(HANDSHAKE, tools(), move |asked| {
            let refused = asked.method() == "initialize" && down.load(Ordering::SeqCst);
            refused.then(|| McpReply::Status(status, "retry-after", "9".into()))
        })
        .await;
        let site = ClientSite::new().await;
        site.agent("payer", &server, json!({})).await;
        site.venue.run("payer", "t1", json!("go")).await;
        is_down.store(true, Ordering::SeqCst);
        let job = site.venue.run("payer", "t2", json!("go")).await;
        assert!(told(&job).contains(&format!("status {status}")), "{}", told(&job));
        assert_eq!(server.asked("tools/call").len(), 1, "{status}: not without a session, either");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_the_server_take_no_more_than_the_calls_time() {
    let server = McpTestServer::start(HANDSHAKE, tools(), |asked| {
        let ping = json!({"jsonrpc": "2.0", "id": "p", "method": "ping"});
        let is_reply = asked.http == Method::POST && asked.method().is_empty();
        match asked.method() {
            "tools/call" => Some(McpReply::Stream(vec![ping; 30])),
            _ => is_reply.then_some(McpReply::Mute),
        }
    })
    .await;
    let site = ClientSite::new().await;
    site.agent("searcher", &server, json!({})).await;
    let job = site.venue.run("searcher", "t1", json!("go")).await;
    assert!(told(&job).contains("no answer and no progress within 2 s"), "{}", told(&job));
    let replies = server.asked("").into_iter().filter(|asked| asked.http == Method::POST).count();
    assert_eq!(replies, server.asked("tools/call").len(), "the first of each call takes all its time");
}
