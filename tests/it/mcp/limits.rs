//! Bad input by hand: each is an error with its reason, and the venue goes on.

use super::{Site, plain_headers, stateless_request};
use crate::support::http::{Answer, BODY_LIMIT};
use reqwest::Method;
use serde_json::{Value, json};

async fn send(site: &Site, headers: &[(&str, &str)], body: String) -> Answer {
    site.server.send(Method::POST, "/mcp", headers, body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_no_message_are_refused() {
    let site = Site::new().await;
    let json = [("Content-Type", "application/json")];
    let nested = |depth: usize| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    for (body, status, code) in [
        (String::new(), 400, -32700),
        ("{".to_owned(), 400, -32700),
        (format!("[{list},{list}]"), 400, -32600),
        ("[]".to_owned(), 400, -32600),
        ("5".to_owned(), 400, -32600),
        (list.replace("2.0", "1.0"), 400, -32600),
        (list.replace(":1,", ":null,"), 400, -32600),
        (list.replace(":1,", ":1.5,"), 400, -32600),
        (list.replace(":1,", &format!(":\"{}\",", "x".repeat(300))), 400, -32600),
        (list.replace("\"id\":1", "\"id\":1,\"id\":2"), 400, -32700),
        (list.replace("\"tools/list\"", "7"), 400, -32600),
        (list.replace('}', ",\"params\":[1]}"), 400, -32600),
        (list.replace('}', &format!(",\"params\":{}}}", nested(100))), 400, -32700),
        (list.replace('}', ",\"params\":{\"cursor\":{\"a\":1}}}"), 200, -32602),
        (list.replace('}', ",\"params\":{\"cursor\":\"a b\"}}"), 200, -32602),
    ] {
        let answer = send(&site, &json, body.clone()).await;
        let found = (answer.status.as_u16(), answer.body["error"]["code"].as_i64());
        assert_eq!(found, (status, Some(code)), "{body:.200}: {}", answer.body);
        assert_eq!(answer.header("content-type"), "application/json", "{body:.200}");
    }
    let huge = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"x": "y".repeat(BODY_LIMIT)}});
    send(&site, &json, huge.to_string()).await.is_problem(413, "more than 100000 bytes");
    for media in ["text/plain", "application/x-www-form-urlencoded"] {
        let answer = send(&site, &[("Content-Type", media)], list.to_owned()).await;
        answer.is_problem(415, "expected `application/json`");
    }
    for method in [Method::GET, Method::DELETE, Method::PUT] {
        site.server.send(method, "/mcp", &[], "").await.is_problem(405, "expected POST");
    }
    assert_eq!(
        site.client().call("ask_echo", json!({"input": "still here"})).await["structuredContent"]["output"],
        "still here"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_without_meaning_are_ignored_up_to_their_limit() {
    let site = Site::new().await;
    let (given, body) = stateless_request("tools/list", json!({}), &json!({}));
    let names: Vec<String> = (0..400).map(|at| format!("mcp-param-p{at}")).collect();
    let given: Vec<(&str, &str)> = given.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let with = |count: usize| {
        let more = names.iter().take(count).map(|name| (name.as_str(), "1"));
        given.iter().copied().chain(more).chain([("mcp-session-id", "s"), ("last-event-id", "7")]).collect::<Vec<_>>()
    };
    assert_eq!(send(&site, &with(20), body.to_string()).await.status, 200);
    // More than the server reads: an answer, or a closed connection.
    let mut many = site.server.client.post(format!("{}/mcp", site.server.url)).body(body.to_string());
    for (name, value) in with(400) {
        many = many.header(name, value);
    }
    let many = many.send().await;
    assert!(many.as_ref().is_ok_and(|answer| answer.status() == 431) || many.is_err(), "{many:?}");
    assert_eq!(send(&site, &with(0), body.to_string()).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_large_schemas_comes_in_pages() {
    let site = Site::new().await;
    let large = json!({"type": "object", "description": "x".repeat(60_000)});
    let config = json!({
        "model": {"provider": "scripted", "name": "echo"}, "published": true, "outputs": {"complete": {"schema": large}}
    });
    for at in 0..12 {
        site.venue.agent(&format!("large-{at}"), config.clone()).await;
    }
    let (mut pages, mut found, mut params) = (0, 0, json!({}));
    loop {
        let page = site.client().result("tools/list", params.clone()).await;
        let text = page.to_string();
        assert!(text.len() < 700_000, "{} bytes", text.len());
        found += text.matches("\"ask_large-").count();
        pages += 1;
        let Some(next) = page["nextCursor"].as_str() else { break };
        params = json!({"cursor": next});
    }
    assert!((2..5).contains(&pages) && found == 12, "{pages} pages, {found} tools");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_repeats_little_of_a_request() {
    let site = Site::new().await;
    let long = "x".repeat(50_000);
    let version =
        json!({"io.modelcontextprotocol/protocolVersion": long, "io.modelcontextprotocol/clientCapabilities": {}});
    for (method, params) in [
        (long.as_str(), json!({})),
        ("tools/call", json!({"name": long})),
        ("tools/call", json!({"name": "ask_echo", "arguments": {long.as_str(): 1}})),
        ("tools/list", json!({"_meta": version})),
    ] {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let headers = [("Content-Type", "application/json"), ("MCP-Protocol-Version", "2025-11-25")];
        let answer = send(&site, &headers, body).await;
        let said = answer.body.to_string();
        assert!(said.len() < 5_000, "{method:.20}: {} bytes", said.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_arguments_are_read_by_the_model() {
    let site = Site::new().await;
    let client = site.client();
    for (tool, arguments, part) in [
        ("submit_task", json!({}), "agent"),
        ("submit_task", json!({"agent": "echo", "input": 1, "sesion": "x"}), "sesion"),
        ("submit_task", json!({"agent": "echo", "input": 1, "key": "a b"}), "`key`"),
        ("submit_task", json!({"agent": "a/b", "input": 1}), "`/` is not allowed"),
        ("get_job", json!({"job": "x"}), "32 hexadecimal digits"),
        ("wait_for_job", json!({"job": "0".repeat(32), "seconds": -1}), "seconds"),
        ("ask_echo", json!({"inputs": "x"}), "input"),
        ("ask_echo", json!({"input": "x", "session": "a/b"}), "session"),
        ("ask_typed", json!({"city": 5}), "city"),
        ("answer_approval", json!({"approval": "0".repeat(32)}), "`approve` or `answers`"),
        (
            "answer_approval",
            json!({"approval": "0".repeat(32), "approve": false, "arguments": {}}),
            "`arguments` counts",
        ),
    ] {
        let result = client.call(tool, arguments.clone()).await;
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(result["isError"] == true && text.contains(part), "{tool} {arguments}: {result}");
    }
    for params in [json!({"name": "get_job", "arguments": [1]}), json!({"name": 5}), json!({"arguments": {}})] {
        assert_eq!(client.code("tools/call", params.clone()).await, -32602, "{params}");
    }
    let many: Vec<Value> = (0..101).map(|at| json!(format!("trellis://jobs/{at:032x}"))).collect();
    let params = json!({"notifications": {"resourceSubscriptions": many}});
    assert_eq!(client.code("subscriptions/listen", params).await, -32602);
    // A session id of another revision, and a body without a version, are the older revision.
    let headers = plain_headers();
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(send(&site, &headers, body.to_owned()).await.body["result"], json!({}));
}
