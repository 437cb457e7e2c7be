//! Settings of servers: what is refused, which rights they need, and the forms of other systems.

use super::{ClientSite, any_loopback, shop_agent, told};
use crate::support::mcp_server::{McpTestServer, STATELESS, plain_tool, text_tool};
use crate::support::operate::{boss, limited, operate};
use serde_json::{Value, json};
use std::sync::Arc;
use trellis::domain::agent::AgentConfig;
use trellis::domain::mcp::name::ServerName;
use trellis::domain::mcp::server::McpServer;
use trellis::venue::mcp_client::{McpEndpoint, McpProgram, VenueServer};
use trellis::venue::operation::OpError;

fn tools() -> Vec<Value> {
    vec![text_tool("search", json!({"readOnlyHint": true})), text_tool("pay", json!({}))]
}

#[test]
fn illegal_servers_are_refused_with_their_place() {
    for (mcp, part) in [
        (json!([{"name": "a b", "url": "https://h/"}]), "expected 1 to 32 letters"),
        (json!([{"name": "a"}]), "missing field `url`"),
        (json!([{"name": "a", "url": "h"}]), "`mcp[0]`: `url`: expected"),
        (
            json!([{"name": "a", "url": "https://h/"}, {"name": "A", "url": "https://i/"}]),
            "`mcp[1].name`: `A` is the name",
        ),
        (json!([{"name": "a", "url": "https://h/", "headers": {"Mcp-Name": "x"}}]), "`headers.Mcp-Name`"),
        (json!({"name": "a"}), "mcp"),
    ] {
        let config = json!({"model": "scripted/echo", "mcp": mcp});
        let error = AgentConfig::parse(&config).unwrap_err().to_string();
        assert!(error.contains(part), "{mcp}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_post_to_a_server_configures_no_agent_with_it() {
    let site = ClientSite::new().await;
    let create = async |caps: Value| {
        let caller = limited(&site.venue.owner, caps);
        let mut config = shop_agent("http://127.0.0.1:9/mcp", json!({"headers": {"X-Key": {"$secret": "s/KEY"}}}));
        config["model"] = "scripted/echo".into();
        operate(&site.venue.venue, &caller, "agent/create", json!({"agentId": "a", "config": config})).await
    };
    let may = |more: Vec<Value>| {
        let mut caps = vec![json!({"with": "g", "can": "agent/create"})];
        caps.extend(more);
        json!(caps)
    };
    let (post, secret) =
        (json!({"with": "http://127.0.0.1:9/mcp", "can": "http/post"}), json!({"with": "s/KEY", "can": "secret/use"}));
    for (caps, part) in [(may(vec![post.clone()]), "secret/use"), (may(vec![secret.clone()]), "http/post")] {
        let denied = create(caps).await;
        assert!(matches!(&denied, Err(OpError::Denied(text)) if text.contains(part)), "{part}: {denied:?}");
    }
    create(may(vec![post, secret])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_goes_to_the_server_that_it_is_bound_to() {
    let server = McpTestServer::start(STATELESS, tools(), |_| None).await;
    let site = ClientSite::new().await;
    let (venue, owner) = (&site.venue.venue, &site.venue.owner);
    let bound = async |hosts: Vec<String>| {
        let input = json!({"name": "KEY", "value": "hunter2hunter2", "hosts": hosts, "overwrite": true});
        operate(venue, &boss(owner), "secret/set", input).await.unwrap();
    };
    let headers = json!({"headers": {"Authorization": {"$secret": "s/KEY", "prefix": "Bearer "}}});
    bound(vec!["api.example.com".into()]).await;
    site.agent("searcher", &server, headers.clone()).await;
    site.venue.run("searcher", "t1", json!("go")).await;
    assert!(server.asked("tools/list").is_empty(), "the secret is bound to another host");
    bound(vec![format!("127.0.0.1:{}", server.port)]).await;
    site.agent("clerk", &server, headers).await;
    let job = site.venue.run("clerk", "t2", json!("go")).await;
    assert_eq!(site.outcomes(&job).await[0], ["ok"]);
    let sent = server.asked("tools/call");
    assert!(sent.iter().all(|call| call.header("authorization") == "Bearer hunter2hunter2"));
    let kept = json!([site.venue.model_calls(), venue.catalog.providers()]).to_string();
    assert!(!kept.contains("hunter2"), "no prompt has it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_of_agntz_calls_its_wrapped_tools() {
    let server = McpTestServer::start(STATELESS, tools(), |_| None).await;
    let site = ClientSite::with_rules(
        "[[rule]]\nwhen = { turn = 1 }\nthen = { calls = [{ tool = \"find\", arguments = {} }] }\n\n[[rule]]\nthen = { text = \"told: {{tool_result}}\" }\n",
    )
    .await;
    let manifest = json!({
        "kind": "llm", "instruction": "Help.", "model": {"provider": "scripted", "name": "rules"},
        "tools": [{
            "kind": "mcp", "server": server.url(),
            "tools": ["pay", {"tool": "search", "name": "find", "description": "Find it.", "params": {"q": "coffee"}}]
        }]
    });
    site.venue.agent("reader", manifest).await;
    let job = site.venue.run("reader", "t1", json!("go")).await;
    assert_eq!(site.outcomes(&job).await[0], ["ok"], "{}", told(&job));
    let calls = server.asked("tools/call");
    assert_eq!(calls[0].params()["arguments"], json!({"q": "coffee"}), "the model doesn't choose it");
    assert!(ServerName::from_url(&server.url()).as_str().starts_with("127-0-0-1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_without_a_server_is_a_warning() {
    let site = ClientSite::new().await;
    let config = json!({"model": "scripted/echo", "tools": ["v/ops/mcp/nobody/search"]});
    let input = json!({"agentId": "a", "config": config});
    let made = operate(&site.venue.venue, &boss(&site.venue.owner), "agent/create", input).await.unwrap();
    assert!(made["warnings"].to_string().contains("no server of this name"), "{made}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_can_not_be_used_yet_is_a_warning() {
    let site = ClientSite::new().await;
    let far = json!({"name": "far", "url": "https://example.com/mcp"});
    let shop = json!({"name": "shop", "url": "http://127.0.0.1:9/mcp", "headers": {"X-Key": {"$secret": "s/KEY"}}});
    let input = json!({"agentId": "a", "config": {"model": "scripted/echo", "mcp": [far, shop]}});
    let made = operate(&site.venue.venue, &boss(&site.venue.owner), "agent/create", input).await.unwrap();
    let warnings = made["warnings"].to_string();
    assert!(warnings.contains("`mcp[0]`: ") && warnings.contains("http_client.allow_hosts"), "{warnings}");
    assert!(warnings.contains("`mcp[1]`: no secret `s/KEY`"), "{warnings}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agents_server_that_is_away_hides_the_venues() {
    let server = McpTestServer::start(STATELESS, vec![plain_tool("ping")], |_| None).await;
    let site = ClientSite::hub(McpServer::at_url(ServerName::new("hub").unwrap(), server.url())).await;
    let caller = boss(&site.venue.owner);
    operate(&site.venue.venue, &caller, "mcp/refresh", json!({"server": "hub"})).await.unwrap();
    let away = json!({"name": "hub", "url": "http://127.0.0.1:9/mcp"});
    site.venue.agent("caller", json!({"mcp": [away], "tools": ["v/ops/mcp/hub/ping"], "defaultTools": false})).await;
    let job = site.venue.run("caller", "t1", json!("go")).await;
    assert_eq!(site.outcomes(&job).await[0], ["unknown tool"]);
    assert!(server.asked("tools/call").is_empty(), "what was meant for one server goes to no other");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_read_an_agent_sees_none_of_its_servers() {
    let site = ClientSite::new().await;
    site.venue.agent("searcher", shop_agent("http://127.0.0.1:9/mcp?key=hunter2", json!({}))).await;
    let ask = async |caps: Value, operation: &str, input: Value| {
        let caller = limited(&site.venue.owner, caps);
        operate(&site.venue.venue, &caller, operation, input).await
    };
    let tools = json!({"with": "v/ops/mcp", "can": "crud/read"});
    let agent = json!({"with": "g/searcher", "can": "crud/read"});
    let server = json!({"server": "shop", "agent": "searcher"});
    for (operation, input) in [
        ("mcp/servers", json!({"agent": "searcher"})),
        ("mcp/server", server.clone()),
        ("mcp/tools-list", server.clone()),
        ("mcp/refresh", server),
    ] {
        let denied = ask(json!([tools]), operation, input.clone()).await;
        assert!(matches!(denied, Err(OpError::Denied(_))), "{operation}: {denied:?}");
        let answered = ask(json!([tools, agent]), operation, input).await;
        assert!(!matches!(answered, Err(OpError::Denied(_))), "{operation}: {answered:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_see_no_key_in_the_place_of_a_venues_server() {
    let name = || ServerName::new("hub").unwrap();
    let at_url = McpServer::at_url(name(), "http://127.0.0.1:9/hunter2?key=hunter2");
    let at_url = McpEndpoint::of_venue(at_url, any_loopback(), None).unwrap();
    let command = ["serve", "--at", "http://hunter2/"].map(str::to_owned).to_vec();
    let program = McpServer::of_program(name(), &command);
    let program = McpEndpoint::of_program(program, McpProgram { command, env: Vec::new(), may_start: false }).unwrap();
    for (endpoint, place) in [(at_url, "http://127.0.0.1:9"), (program, "stdio:serve")] {
        let site = ClientSite::with_server(VenueServer { endpoint: Arc::new(endpoint), is_shared: true }).await;
        let shown = operate(&site.venue.venue, &boss(&site.venue.owner), "mcp/servers", json!({})).await.unwrap();
        assert_eq!(shown["items"][0]["url"], place, "{shown}");
    }
}
