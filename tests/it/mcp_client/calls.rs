//! Calls of tools: what the server gets, what the model gets, and what may be called again.

use super::{ClientSite, RULES, shop_agent, told};
use crate::support::mcp_server::{
    HANDSHAKE, McpAsked, McpReply, McpTestServer, STATELESS, answer, plain_tool, text_tool,
};
use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use trellis::domain::mcp::name::ServerName;
use trellis::domain::mcp::server::McpServer;

fn tools() -> Vec<Value> {
    vec![text_tool("search", json!({"readOnlyHint": true})), text_tool("pay", json!({}))]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_calls_the_tools_of_a_server_in_both_revisions() {
    for revision in [HANDSHAKE, STATELESS] {
        let server = McpTestServer::start(revision, tools(), |_| None).await;
        // A preview of each turn has the same tools.
        let (venue, dir) = TestVenue::embedded(RULES).await;
        let site = ClientSite::of(venue.foreseen(), dir);
        site.agent("clerk", &server, json!({})).await;
        let job = site.venue.run("clerk", "t1", json!("go")).await;
        assert_eq!(site.outcomes(&job).await, [vec!["ok"], vec!["ok"], vec![]], "{revision}");
        let text = told(&job);
        assert!(text.contains("pay"), "{revision}: {text}");
        let calls = server.asked("tools/call");
        let named: Vec<_> = calls.iter().map(|call| call.params()["name"].as_str().unwrap().to_owned()).collect();
        assert_eq!(named, ["search", "pay"], "{revision}");
        assert_eq!(calls[0].params()["arguments"], json!({"q": "tea"}));
        let is_stateless = revision == STATELESS;
        assert_eq!(calls[0].header("mcp-session-id").is_empty(), is_stateless, "{revision}");
        assert_eq!(calls[0].header("mcp-name"), if is_stateless { "search" } else { "" });
        assert_eq!(calls[0].header("mcp-protocol-version"), revision);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_operations_of_the_agent_alone() {
    let server = McpTestServer::start(STATELESS, tools(), |_| None).await;
    let site = ClientSite::new().await;
    site.agent("searcher", &server, json!({})).await;
    site.venue.run("searcher", "t1", json!("go")).await;
    let (venue, owner) = (&site.venue.venue, &site.venue.owner);
    let own = venue.catalog_of_agent(owner, &"searcher".parse().unwrap());
    assert!(own.resolve("mcp:shop:search").is_some() && own.resolve("v/ops/mcp/shop/pay").is_some());
    assert!(venue.catalog_of_agent(owner, &"other".parse().unwrap()).resolve("mcp:shop:search").is_none());
    assert!(venue.catalog_view(owner).resolve("mcp:shop:search").is_none());
    assert!(venue.catalog_view(&"local/you".parse().unwrap()).resolve("mcp:shop:search").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_needs_the_ability_to_invoke_it() {
    let server = McpTestServer::start(STATELESS, tools(), |_| None).await;
    let site = ClientSite::new().await;
    let mut config = shop_agent(&server.url(), json!({}));
    config["caps"] = json!([{"with": "v/ops/mcp/shop/search", "can": "invoke"}]);
    site.venue.agent("clerk", config).await;
    let job = site.venue.run("clerk", "t1", json!("go")).await;
    assert_eq!(site.outcomes(&job).await, [vec!["ok"], vec!["denied"], vec![]]);
    assert_eq!(server.asked("tools/call").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_tools_that_the_configuration_allows_are_offered() {
    let server = McpTestServer::start(STATELESS, tools(), |_| None).await;
    let site = ClientSite::new().await;
    site.agent("clerk", &server, json!({"tools": ["sea*"]})).await;
    let job = site.venue.run("clerk", "t1", json!("go")).await;
    assert_eq!(site.outcomes(&job).await, [vec!["ok"], vec!["unknown tool"], vec![]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_say_what_they_are_and_failures_are_the_models() {
    for (result, expected, outcome) in [
        (
            json!({"content": [{"type": "text", "text": "x"}], "structuredContent": {"found": 3}}),
            "structuredContent",
            "ok",
        ),
        (json!({"content": [{"type": "text", "text": "plain"}]}), "{\"content\":\"plain\"}", "ok"),
        (json!({"content": [{"type": "text", "text": "no such tea"}], "isError": true}), "no such tea", "error"),
        (json!({"resultType": "question", "requestState": "x"}), "it answers `question`", "error"),
    ] {
        let answered = result.clone();
        let server = McpTestServer::start(STATELESS, tools(), move |asked| {
            (asked.method() == "tools/call").then(|| McpReply::Result(answered.clone()))
        })
        .await;
        let site = ClientSite::new().await;
        site.agent("searcher", &server, json!({})).await;
        let job = site.venue.run("searcher", "t1", json!("go")).await;
        assert!(told(&job).contains(expected), "{result}: {}", told(&job));
        assert_eq!(site.outcomes(&job).await[0], [outcome], "{result}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_a_result_become_an_asset() {
    let image = json!({"content": [{"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}]});
    let server = McpTestServer::start(STATELESS, tools(), move |asked| {
        (asked.method() == "tools/call").then(|| McpReply::Result(image.clone()))
    })
    .await;
    let site = ClientSite::new().await;
    site.agent("searcher", &server, json!({})).await;
    let job = site.venue.run("searcher", "t1", json!("go")).await;
    let text = told(&job);
    assert!(text.contains("\"asset\":\"a/") && !text.contains("aGVsbG8="), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_go_into_the_headers_that_the_schema_names() {
    let mut search = text_tool("search", json!({}));
    search["inputSchema"]["properties"]["q"]["x-mcp-header"] = "Query".into();
    let mut wrong = text_tool("pay", json!({}));
    wrong["inputSchema"]["properties"]["q"]["x-mcp-header"] = "not a name".into();
    let server = McpTestServer::start(STATELESS, vec![search, wrong], |_| None).await;
    let site = ClientSite::new().await;
    site.agent("clerk", &server, json!({})).await;
    let job = site.venue.run("clerk", "t1", json!("go")).await;
    assert_eq!(site.outcomes(&job).await, [vec!["ok"], vec!["unknown tool"], vec![]], "one bad tool, not its server");
    assert_eq!(server.asked("tools/call")[0].header("mcp-param-query"), "tea");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_may_have_happened_is_unknown_unless_repeatable() {
    for (tool, more, outcome) in [
        ("payer", json!({}), "outcome unknown"),
        ("payer", json!({"repeatable": ["pay"]}), "error"),
        ("searcher", json!({}), "error"),
        ("searcher", json!({"once": ["*"]}), "outcome unknown"),
    ] {
        // The stream ends without an answer.
        let server = McpTestServer::start(STATELESS, tools(), |asked| {
            (asked.method() == "tools/call").then(|| McpReply::Stream(Vec::new()))
        })
        .await;
        let site = ClientSite::new().await;
        site.agent(tool, &server, more.clone()).await;
        let job = site.venue.run(tool, "t1", json!("go")).await;
        assert_eq!(site.outcomes(&job).await[0], [outcome], "{tool} {more}");
        assert_eq!(server.asked("tools/call").len(), 1, "{tool} {more}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_with_progress_may_take_longer_than_one_without() {
    let progress = |asked: &McpAsked, steps: usize| {
        let token = &asked.params()["_meta"]["progressToken"];
        let step = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}});
        let mut messages: Vec<Value> = (0..steps).flat_map(|_| [Value::Null, step.clone()]).collect();
        messages.push(answer(asked, json!({"content": [{"type": "text", "text": "at last"}]})));
        messages
    };
    let server = McpTestServer::start(STATELESS, tools(), move |asked| {
        (asked.method() == "tools/call").then(|| McpReply::Stream(progress(asked, 5)))
    })
    .await;
    let site = ClientSite::new().await;
    site.agent("searcher", &server, json!({"timeout": 1})).await;
    let job = site.venue.run("searcher", "t1", json!("go")).await;
    assert!(told(&job).contains("at last"), "{}", told(&job));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_venues_servers_are_called_by_agents_that_name_them() {
    let server = McpTestServer::start(STATELESS, vec![plain_tool("ping")], |_| None).await;
    let settings = McpServer::at_url(ServerName::new("hub").unwrap(), server.url());
    let site = ClientSite::hub(settings).await;
    site.venue.agent("caller", json!({"tools": ["v/ops/mcp/hub/ping"], "defaultTools": false})).await;
    let job = site.venue.run("caller", "t1", json!("go")).await;
    assert_eq!(site.outcomes(&job).await[0], ["ok"]);
    let (venue, owner) = (&site.venue.venue, &site.venue.owner);
    let called = operate(venue, &boss(owner), "mcp:hub:ping", json!({})).await.unwrap();
    assert!(called["content"].as_str().unwrap().contains("ping"), "{called}");
    let by_name = json!({"server": "hub", "toolName": "ping", "arguments": {}});
    assert_eq!(operate(venue, &boss(owner), "mcp:tools:call", by_name).await.unwrap(), called);
    let listed = operate(venue, &boss(owner), "mcp:tools:list", json!({"server": "hub"})).await.unwrap();
    assert_eq!((listed["total"].clone(), listed["tools"][0]["name"].clone()), (json!(1), json!("ping")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_gets_an_owners_secret_is_that_owners_own() {
    let server = McpTestServer::start(STATELESS, vec![plain_tool("ping")], |_| None).await;
    let mut settings = McpServer::at_url(ServerName::new("hub").unwrap(), server.url());
    let header = serde_json::from_value(json!({"$secret": "s/HUB"})).unwrap();
    settings.headers.insert("X-Key".into(), header);
    let site = ClientSite::hub(settings).await;
    let (venue, caller) = (&site.venue.venue, boss(&site.venue.owner));
    let hosts = [format!("127.0.0.1:{}", server.port)];
    let secret = json!({"name": "HUB", "value": "hunter2hunter2", "hosts": hosts});
    operate(venue, &caller, "secret/set", secret).await.unwrap();
    let hub = json!({"server": "hub"});
    operate(venue, &caller, "mcp/refresh", hub.clone()).await.unwrap();
    operate(venue, &caller, "mcp:hub:ping", json!({})).await.unwrap();
    assert_eq!(server.asked("tools/call")[0].header("x-key"), "hunter2hunter2");
    let other = boss(&"local/you".parse().unwrap());
    assert!(operate(venue, &other, "mcp:hub:ping", json!({})).await.is_err(), "not in the other owner's catalogue");
    assert!(operate(venue, &other, "mcp/refresh", hub.clone()).await.is_err(), "who has no secret");
    let shown = operate(venue, &other, "mcp/server", hub).await.unwrap();
    assert_eq!(shown["tools"], json!([]));
    assert_eq!((server.asked("tools/list").len(), server.asked("tools/call").len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_first_files_of_a_result_become_assets() {
    let image = json!({"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"});
    let many = json!({"content": vec![image; 40]});
    let server = McpTestServer::start(STATELESS, vec![plain_tool("ping")], move |asked| {
        (asked.method() == "tools/call").then(|| McpReply::Result(many.clone()))
    })
    .await;
    let site = ClientSite::hub(McpServer::at_url(ServerName::new("hub").unwrap(), server.url())).await;
    let (venue, caller) = (&site.venue.venue, boss(&site.venue.owner));
    operate(venue, &caller, "mcp/refresh", json!({"server": "hub"})).await.unwrap();
    let shown = operate(venue, &caller, "mcp:hub:ping", json!({})).await.unwrap();
    let having = |key: &str| shown["content"].as_array().unwrap().iter().filter(|item| item.get(key).is_some()).count();
    assert_eq!((having("asset"), having("notKept"), having("base64Bytes")), (32, 8, 40), "{shown}");
}
