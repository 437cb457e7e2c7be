//! Servers that attack or fail: each costs its own tools, and nothing else.

use super::{ClientSite, RULES, any_loopback, shop_agent, told};
use crate::support::mcp_server::{McpReply, McpTestServer, STATELESS, text_tool};
use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use trellis::venue::outbound::HttpPolicy;

fn tools() -> Vec<Value> {
    vec![text_tool("search", json!({"readOnlyHint": true})), text_tool("pay", json!({}))]
}

/// What a server answers to a request for its list.
type Page = Box<dyn Fn(&Value) -> McpReply + Send + Sync>;

/// The failure of the agent's server, as people see it.
async fn failure(site: &ClientSite) -> String {
    let input = json!({"agent": "searcher"});
    let caller = boss(&site.venue.owner);
    let shown = operate(&site.venue.venue, &caller, "mcp/servers", input).await.unwrap();
    shown["items"][0]["failure"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_none_offers_no_tools_and_says_why() {
    let endless = || {
        let count = AtomicUsize::new(0);
        move |_: &Value| {
            let next = count.fetch_add(1, Ordering::SeqCst);
            McpReply::Result(
                json!({"tools": [text_tool(&format!("t{next}"), json!({}))], "nextCursor": format!("c{next}")}),
            )
        }
    };
    let many: Vec<Value> = (0..300).map(|n| text_tool(&format!("t{n}"), json!({}))).collect();
    let pages: Vec<(&str, Page)> = vec![
        ("goes on after 32 pages", Box::new(endless())),
        ("a cursor comes twice", Box::new(|_| McpReply::Result(json!({"tools": [], "nextCursor": "again"})))),
        ("expected at most 256", Box::new(move |_| McpReply::Result(json!({"tools": many})))),
        ("expected a list `tools`", Box::new(|_| McpReply::Result(json!({"tools": 1})))),
        ("bytes", Box::new(|_| McpReply::Raw(vec![b' '; 100 << 20]))),
        ("can't be read", Box::new(|_| McpReply::Raw(b"<html>".to_vec()))),
        ("can't be read", Box::new(|_| McpReply::Raw("[".repeat(100_000).into_bytes()))),
        ("goes on after", Box::new(|_| McpReply::Endless(format!(": {}\n", "x".repeat(60_000))))),
        ("without an answer", Box::new(|_| McpReply::Stream(Vec::new()))),
        ("status 503", Box::new(|_| McpReply::Status(503, "retry-after", "9".into()))),
        ("redirects", Box::new(|_| McpReply::Status(302, "location", "http://169.254.169.254/".into()))),
        (
            "wants another login",
            Box::new(|_| {
                let challenge = "Bearer resource_metadata=\"http://169.254.169.254/latest/meta-data\"";
                McpReply::Status(401, "www-authenticate", challenge.into())
            }),
        ),
    ];
    for (part, page) in pages {
        let server = McpTestServer::start(STATELESS, tools(), move |asked| {
            (asked.method() == "tools/list").then(|| page(&asked.message))
        })
        .await;
        let site = ClientSite::new().await;
        site.agent("searcher", &server, json!({"revision": STATELESS})).await;
        let job = site.venue.run("searcher", "t1", json!("go")).await;
        assert_eq!(site.outcomes(&job).await[0], ["unknown tool"], "{part}");
        let failure = failure(&site).await;
        assert!(failure.contains(part), "expected `{part}`: {failure}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_tool_leaves_the_others_of_its_server() {
    let deep =
        (0..40).fold(json!({"type": "string"}), |inner, _| json!({"type": "object", "properties": {"a": inner}}));
    let headers: Map<String, Value> =
        (0..400).map(|n| (format!("p{n}"), json!({"type": "string", "x-mcp-header": format!("H{n}")}))).collect();
    let bad = |name: &str, schema: Value| json!({"name": name, "inputSchema": schema});
    let mut listed = vec![
        bad("remote", json!({"$ref": "http://169.254.169.254/schema"})),
        bad("wrong", json!({"type": 7})),
        bad("deep", deep),
        bad("large", json!({"type": "object", "description": "x".repeat(20_000)})),
        bad("headers", json!({"type": "object", "properties": headers})),
        bad("null", Value::Null),
        bad("", json!({})),
        bad("search", json!({"type": "object"})),
    ];
    listed.splice(0..0, tools());
    let server = McpTestServer::start(STATELESS, listed, |_| None).await;
    let site = ClientSite::new().await;
    site.agent("searcher", &server, json!({})).await;
    let job = site.venue.run("searcher", "t1", json!("go")).await;
    assert_eq!(site.outcomes(&job).await[0], ["ok"]);
    let caller = boss(&site.venue.owner);
    let input = json!({"server": "shop", "agent": "searcher"});
    let shown = operate(&site.venue.venue, &caller, "mcp/server", input).await.unwrap();
    let skipped: Vec<_> = shown["skipped"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    for name in ["remote", "wrong", "deep", "large", "headers", "null", "", "search"] {
        assert!(skipped.contains(&json!(name)), "{name}: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_a_call_is_bounded_in_bytes_and_time() {
    let huge = json!({"content": [{"type": "text", "text": "x".repeat(3 << 20)}]});
    for (reply, part) in [
        (0, "has more than 4194304 bytes"),
        (1, "no answer and no progress within 2 s"),
        (2, "goes on after"),
        (3, "[cut to "),
    ] {
        let huge = huge.clone();
        let server = McpTestServer::start(STATELESS, tools(), move |asked| {
            (asked.method() == "tools/call").then(|| match reply {
                0 => McpReply::Raw(vec![b' '; 100 << 20]),
                1 => McpReply::Hang,
                2 => {
                    let padded =
                        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": "x".repeat(60_000)});
                    McpReply::Endless(format!("data: {padded}\n\n"))
                }
                _ => McpReply::Result(huge.clone()),
            })
        })
        .await;
        let site = ClientSite::new().await;
        site.agent("searcher", &server, json!({})).await;
        let job = site.venue.run("searcher", "t1", json!("go")).await;
        let text = told(&job);
        assert!(text.contains(part) && text.len() < 100_000, "expected `{part}`: {}", &text[..text.len().min(500)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_delays_its_own_agents_alone() {
    let server = McpTestServer::start(STATELESS, tools(), |_| Some(McpReply::Hang)).await;
    let well = McpTestServer::start(STATELESS, tools(), |_| None).await;
    let site = ClientSite::new().await;
    site.agent("searcher", &server, json!({})).await;
    site.agent("payer", &well, json!({})).await;
    let slow = site.venue.submit("searcher", "t1", json!("go")).await.job.unwrap();
    let begun = Instant::now();
    let job = site.venue.run("payer", "t2", json!("go")).await;
    assert_eq!(site.outcomes(&job).await[0], ["ok"]);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let job = site.venue.ended(&slow).await;
    assert_eq!(site.outcomes(&job).await[0], ["unknown tool"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_at_a_private_address_is_not_called() {
    let only_public = HttpPolicy { allow_private: false, ..any_loopback() };
    for (policy, part) in
        [(HttpPolicy::default(), "is not one that this venue allows"), (only_public, "not a public address")]
    {
        let server = McpTestServer::start(STATELESS, tools(), |_| None).await;
        let (mut venue, _dir) = TestVenue::embedded(RULES).await;
        Arc::get_mut(&mut venue.venue).unwrap().catalog = trellis::ops::catalog_with(true, policy);
        venue.worker();
        venue.agent("searcher", shop_agent(&server.url(), json!({}))).await;
        venue.run("searcher", "t1", json!("go")).await;
        assert_eq!(server.sent(&Method::POST), 0, "{part}");
        let input = json!({"agent": "searcher"});
        let shown = operate(&venue.venue, &boss(&venue.owner), "mcp/servers", input).await.unwrap();
        assert!(shown["items"][0]["failure"].as_str().unwrap_or_default().contains(part), "expected `{part}`: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_failure_of_a_list_shows_no_secret() {
    let server = McpTestServer::start(STATELESS, tools(), |asked| {
        let error = json!({"code": -32000, "message": format!("wrong key: {}", asked.header("authorization"))});
        let body = json!({"jsonrpc": "2.0", "id": asked.message["id"], "error": error});
        Some(McpReply::Status(400, "x-refused", format!("yes\n{body}")))
    })
    .await;
    let site = ClientSite::new().await;
    let input = json!({"name": "KEY", "value": "hunter2hunter2", "hosts": [format!("127.0.0.1:{}", server.port)]});
    operate(&site.venue.venue, &boss(&site.venue.owner), "secret/set", input).await.unwrap();
    let headers = json!({"Authorization": {"$secret": "s/KEY", "prefix": "Bearer "}});
    site.agent("searcher", &server, json!({"revision": STATELESS, "headers": headers})).await;
    site.venue.run("searcher", "t1", json!("go")).await;
    let failure = failure(&site).await;
    assert!(failure.contains("wrong key: Bearer [secret KEY]"), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_repeats_a_secret_shows_it_nowhere() {
    let server = McpTestServer::start(STATELESS, tools(), |asked| {
        let said = asked.header("authorization").to_owned();
        let mut search = text_tool("search", json!({"title": said}));
        search["description"] = json!(format!("your key is {said}"));
        search["inputSchema"] = json!({"type": "object", "properties": {(said.clone()): {"enum": [said]}}});
        let broken = json!({"name": said, "inputSchema": {"type": "object"}});
        (asked.method() == "tools/list").then(|| McpReply::Result(json!({"tools": [search, broken]})))
    })
    .await;
    let site = ClientSite::new().await;
    let caller = boss(&site.venue.owner);
    let input = json!({"name": "KEY", "value": "hunter2hunter2", "hosts": [format!("127.0.0.1:{}", server.port)]});
    operate(&site.venue.venue, &caller, "secret/set", input).await.unwrap();
    let headers = json!({"Authorization": {"$secret": "s/KEY"}});
    site.agent("searcher", &server, json!({"revision": STATELESS, "headers": headers})).await;
    site.venue.run("searcher", "t1", json!("go")).await;
    let input = json!({"server": "shop", "agent": "searcher"});
    let shown = operate(&site.venue.venue, &caller, "mcp/server", input).await.unwrap().to_string();
    assert!(shown.contains("your key is [secret KEY]"), "{shown}");
    let stored = site.venue.venue.store.scan(&site.venue.owner, "", None, false, 10_000).await.unwrap();
    let text = |bytes: &bytes::Bytes| String::from_utf8_lossy(bytes).into_owned();
    let stored: Vec<String> = stored.iter().filter_map(|(_, doc)| doc.value.as_ref().map(text)).collect();
    for text in stored.iter().chain([&shown]) {
        assert!(!text.contains("hunter2"), "{text}");
    }
}
