//! Marks of calls that reach a server, by which both sides find them, and calls of an agent's tools by a person.

use super::{ClientSite, told};
use crate::support::cli::Up;
use crate::support::mcp_server::{HANDSHAKE, McpTestServer, STATELESS, text_tool};
use serde_json::{Value, json};

fn tools() -> Vec<Value> {
    vec![text_tool("search", json!({"readOnlyHint": true})), text_tool("pay", json!({}))]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_with_an_effect_is_marked_as_the_ledger_says() {
    for revision in [HANDSHAKE, STATELESS] {
        let server = McpTestServer::start(revision, tools(), |_| None).await;
        let site = ClientSite::new().await;
        site.agent("clerk", &server, json!({})).await;
        let job = site.venue.run("clerk", "t1", json!("go")).await;
        assert!(told(&job).contains("pay"), "{}", told(&job));
        let calls = server.asked("tools/call");
        let turns = site.venue.turns("clerk", job.head.session.as_str()).await;
        let sent: Vec<_> = turns.iter().flat_map(|turn| &turn.calls).map(|call| call.sent.clone()).collect();
        assert_eq!(sent[0], None, "a read is not marked");
        let marks = sent[1].clone().unwrap();
        let [search, pay] = calls.as_slice() else { panic!("{calls:?}") };
        assert_eq!(pay.header("idempotency-key"), marks.key.unwrap(), "{revision}");
        assert_eq!(pay.header("trellis-job"), job.head.id.as_str());
        assert_eq!(pay.header("traceparent"), marks.traceparent);
        assert_eq!(pay.params()["_meta"]["traceparent"], marks.traceparent);
        let others = ["initialize", "notifications/initialized", "tools/list"].map(|method| server.asked(method));
        for other in others.iter().flatten().chain([search]) {
            assert_eq!(other.header("idempotency-key"), "", "{}: the key is of the one call", other.method());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_tries_a_tool_of_an_agents_server() {
    let server = McpTestServer::start(STATELESS, tools(), |_| None).await;
    let hosts = format!("http_client.allow_hosts=127.0.0.1:{}", server.port);
    let up = Up::start_with(&[&hosts, "http_client.allow_private=true"]);
    up.file("buyer.rules", "[[rule]]\nthen = { text = \"done\" }\n");
    let url = server.url();
    let agent = format!(
        "model = {{ provider = \"scripted\", name = \"buyer.rules\" }}\ndefaultTools = false\ntools = [\"v/ops/mcp/shop/*\"]\nmcp = [{{ name = \"shop\", url = \"{url}\" }}]\n"
    );
    up.file("buyer.toml", &agent);
    up.run(&["agent", "apply", "buyer.toml"]).ok();
    let tried = up.run(&["tool", "try", "mcp:shop:search", r#"{"q": "tea"}"#, "--agent", "buyer"]).ok();
    assert!(tried.contains("search"), "{tried}");
    up.run(&["tool", "try", "mcp:shop:search", r#"{"q": "tea"}"#]).expect(5, "no operation");
    assert_eq!(server.asked("tools/call").len(), 1);
}
