//! Every method of both revisions: a table of requests and what is answered.

use super::{Site, TASKS, includes, messages, plain_headers, stateless_request};
use crate::support::http::Answer;
use reqwest::Method;
use serde_json::{Value, json};

const JOB: &str = "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f";

async fn send(site: &Site, headers: &[(&'static str, String)], body: &Value) -> Answer {
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    site.server.send(Method::POST, "/mcp", &headers, body.to_string()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_of_the_handshake_revision_answers() {
    let site = Site::new().await;
    let capabilities = json!({"tools": {}, "resources": {}});
    for (method, params, expected) in [
        (
            "initialize",
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
            json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {"name": "trellis"}}),
        ),
        ("initialize", json!({"protocolVersion": "2025-06-18"}), json!({"protocolVersion": "2025-06-18"})),
        ("initialize", json!({"protocolVersion": "1999-01-01"}), json!({"protocolVersion": "2025-11-25"})),
        ("ping", json!({}), json!({})),
        ("tools/list", json!({}), json!({"tools": [{"name": "submit_task"}, {"name": "get_job"}]})),
        (
            "tools/call",
            json!({"name": "ask_echo", "arguments": {"input": "hi"}}),
            json!({"content": [{"type": "text", "text": "hi"}], "structuredContent": {"status": "COMPLETE", "output": "hi"}}),
        ),
        (
            "tools/call",
            json!({"name": "ask_typed", "arguments": {"town": "Ulm"}}),
            json!({"isError": true, "content": [{"type": "text"}]}),
        ),
        (
            "tools/call",
            json!({"name": "submit_task", "arguments": {"agent": "nobody", "input": 1}}),
            json!({"isError": true}),
        ),
        ("tools/call", json!({"name": "get_job", "arguments": {"job": JOB}}), json!({"isError": true})),
        ("resources/list", json!({}), json!({"resources": [{"uri": "trellis://lattice/w"}]})),
        (
            "resources/templates/list",
            json!({}),
            json!({"resourceTemplates": [{"uriTemplate": "trellis://jobs/{job}", "mimeType": "application/json"}]}),
        ),
    ] {
        let body = json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": params});
        let answer = send(&site, &plain_headers(), &body).await;
        assert_eq!(answer.status, 200, "{body}: {answer:?}");
        let message = messages(&answer).pop().unwrap();
        assert!(message["id"] == "a" && includes(&message["result"], &expected), "{body}: {message}");
        let is_free = message["result"].get("resultType").is_none() && message["result"].get("ttlMs").is_none();
        assert!(is_free, "a field of another revision: {message}");
    }
    for (method, params, code) in [
        ("tools/call", json!({"name": "ask_secret", "arguments": {"input": "x"}}), -32602),
        ("tools/call", json!({}), -32602),
        ("tools/list", json!({"cursor": "a/b"}), -32602),
        ("resources/list", json!({"cursor": "x"}), -32602),
        ("resources/read", json!({"uri": "trellis://nothing"}), -32002),
        ("resources/read", json!({"uri": format!("trellis://jobs/{JOB}")}), -32002),
        ("prompts/list", json!({}), -32601),
        ("tasks/get", json!({"taskId": JOB}), -32601),
        ("server/nothing", json!({}), -32601),
    ] {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let answer = send(&site, &plain_headers(), &body).await;
        assert_eq!((answer.status.as_u16(), &answer.body["error"]["code"]), (200, &json!(code)), "{body}: {answer:?}");
    }
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let answer = send(&site, &plain_headers(), &note).await;
    assert_eq!((answer.status.as_u16(), answer.body), (202, json!("")));
    let response = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
    assert_eq!(send(&site, &plain_headers(), &response).await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_of_the_stateless_revision_answers() {
    let site = Site::new().await;
    let listed = json!({"resultType": "complete", "cacheScope": "private", "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "trellis"}}});
    for (method, params, expected) in [
        (
            "server/discover",
            json!({}),
            json!({"supportedVersions": ["2026-07-28", "2025-11-25"], "ttlMs": 60000, "capabilities": {
                "tools": {"listChanged": true}, "resources": {"subscribe": true}, "extensions": {TASKS: {}}
            }}),
        ),
        ("tools/list", json!({}), json!({"tools": [{"name": "submit_task"}], "ttlMs": 5000})),
        ("resources/list", json!({}), json!({"resources": [{"uri": "trellis://lattice/w"}], "ttlMs": 5000})),
        ("resources/templates/list", json!({}), json!({"ttlMs": 5000})),
        (
            "tools/call",
            json!({"name": "ask_echo", "arguments": {"input": "hi"}, "task": {"ttl": 1}}),
            json!({"resultType": "complete", "structuredContent": {"output": "hi"}}),
        ),
    ] {
        let message = site.client().ask(method, params.clone()).await;
        assert!(includes(&message["result"], &expected), "{method} {params}: {message}");
        if method != "tools/call" {
            assert!(includes(&message["result"], &listed), "{method}: {message}");
        }
    }
    for (method, params, status, code) in [
        ("initialize", json!({"protocolVersion": "2025-11-25"}), 404, -32601),
        ("ping", json!({}), 404, -32601),
        ("logging/setLevel", json!({"level": "info"}), 404, -32601),
        ("resources/subscribe", json!({"uri": "trellis://lattice/w"}), 404, -32601),
        ("prompts/list", json!({}), 404, -32601),
        ("tasks/result", json!({"taskId": JOB}), 404, -32601),
        ("tasks/list", json!({}), 404, -32601),
        ("tasks/get", json!({"taskId": JOB}), 400, -32021),
        ("tasks/update", json!({"taskId": JOB, "inputResponses": {}}), 400, -32021),
        ("tasks/cancel", json!({"taskId": JOB}), 400, -32021),
        ("subscriptions/listen", json!({"notifications": {"taskIds": [JOB]}}), 400, -32021),
        ("tools/call", json!({"name": "nothing"}), 200, -32602),
        ("resources/read", json!({"uri": "test://nothing"}), 200, -32602),
    ] {
        let answer = site.client().send(method, params.clone()).await;
        let found = (answer.status.as_u16(), answer.body["error"]["code"].as_i64(), &answer.body["id"]);
        assert_eq!(found, (status, Some(code), &json!(1)), "{method} {params}: {}", answer.body);
    }
    let missing = site.client().ask("resources/read", json!({"uri": "test://nothing"})).await;
    assert_eq!(missing["error"]["data"]["uri"], "test://nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_that_differs_from_the_body_is_refused() {
    let site = Site::new().await;
    let call = || json!({"name": "ask_echo", "arguments": {"input": "hi"}});
    for (header, value, status, code) in [
        ("MCP-Protocol-Version", Some("2025-11-25"), 400, -32020),
        ("MCP-Protocol-Version", None, 400, -32020),
        ("Mcp-Method", Some("tools/list"), 400, -32020),
        ("Mcp-Method", Some("Tools/Call"), 400, -32020),
        ("Mcp-Method", None, 400, -32020),
        ("Mcp-Name", Some("ask_typed"), 400, -32020),
        ("Mcp-Name", Some("=?base64?%%?="), 400, -32020),
        ("Mcp-Name", None, 400, -32020),
    ] {
        let (mut headers, body) = stateless_request("tools/call", call(), &json!({}));
        headers.retain(|(name, _)| *name != header);
        headers.extend(value.map(|value| (header, value.to_owned())));
        let answer = send(&site, &headers, &body).await;
        let found = (answer.status.as_u16(), answer.body["error"]["code"].as_i64());
        assert_eq!(found, (status, Some(code)), "{header}: {value:?}: {}", answer.body);
    }
    let (mut headers, body) = stateless_request("tools/call", call(), &json!({}));
    headers.retain(|(name, _)| *name != "Mcp-Name");
    headers.push(("mcp-name", "=?base64?YXNrX2VjaG8=?=".to_owned()));
    assert_eq!(send(&site, &headers, &body).await.body["result"]["structuredContent"]["output"], "hi");
    let mut body = stateless_request("server/discover", json!({}), &json!({})).1;
    body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("v999");
    let mut headers = plain_headers();
    headers.push(("MCP-Protocol-Version", "v999".to_owned()));
    let answer = send(&site, &headers, &body).await;
    assert_eq!((answer.status.as_u16(), &answer.body["error"]["code"]), (400, &json!(-32022)));
    assert_eq!(answer.body["error"]["data"]["requested"], "v999");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_call_streams_its_progress_and_ends_with_the_answer() {
    let site = Site::new().await;
    let params = json!({"name": "ask_slow", "arguments": {"input": "x"}, "_meta": {"progressToken": "p1"}});
    let answer = site.client().send("tools/call", params).await;
    assert_eq!(answer.header("content-type"), "text/event-stream");
    assert_eq!(answer.header("x-accel-buffering"), "no");
    let messages = messages(&answer);
    let (last, before) = messages.split_last().unwrap();
    assert_eq!(last["result"]["structuredContent"]["output"], "at last");
    assert!(!before.is_empty(), "{messages:?}");
    for note in before {
        assert!(note["method"] == "notifications/progress" && note["params"]["progressToken"] == "p1", "{note}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_job_tools_submit_wait_cancel_and_answer() {
    let site = Site::new().await;
    let client = site.client();
    let submitted = client.call("submit_task", json!({"agent": "slow", "input": "x", "key": "k1"})).await;
    let job = submitted["structuredContent"]["job"].clone();
    let again = client.call("submit_task", json!({"agent": "slow", "input": "x", "key": "k1"})).await;
    assert_eq!(again["structuredContent"]["job"], job);
    let waited = client.call("wait_for_job", json!({"job": job, "seconds": 50})).await;
    assert_eq!(waited["structuredContent"]["output"], "at last");
    let late = client.call("cancel_job", json!({"job": job})).await;
    assert!(late["isError"] == true && late["content"][0]["text"].as_str().unwrap().contains("COMPLETE"), "{late}");
    let other = client.call("submit_task", json!({"agent": "slow", "input": "y"})).await;
    let other = other["structuredContent"]["job"].clone();
    let cancelled = client.call("cancel_job", json!({"job": other, "reason": "enough"})).await;
    assert_eq!(cancelled["structuredContent"]["status"], "CANCELLED");
    let asked = client.call("ask_payer", json!({"input": "pay"})).await;
    assert_eq!(asked["structuredContent"]["status"], "INPUT_REQUIRED", "{asked}");
    let approval = asked["structuredContent"]["approvals"][0]["id"].clone();
    assert!(asked["content"][0]["text"].as_str().unwrap().contains("answer_approval"), "{asked}");
    let both = client.call("answer_approval", json!({"approval": approval, "approve": true, "answers": {}})).await;
    assert_eq!(both["isError"], true);
    let answered = client.call("answer_approval", json!({"approval": approval, "approve": true})).await;
    assert_eq!(answered["structuredContent"]["answer"]["verdict"], "approved", "{answered}");
    let paid = asked["structuredContent"]["job"].clone();
    let ended = client.call("wait_for_job", json!({"job": paid})).await;
    assert_eq!(ended["structuredContent"]["output"], "done", "{ended}");
    let failed = client.call("ask_broken", json!({"input": "x"})).await;
    assert!(failed["isError"] == true && failed["structuredContent"]["status"] == "FAILED", "{failed}");
}
