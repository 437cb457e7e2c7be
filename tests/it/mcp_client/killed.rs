//! A process that is killed while a server works on a call, and the one that goes on after it.

use super::until;
use crate::support::cli::Up;
use crate::support::mcp_server::{McpReply, McpTestServer, STATELESS, text_tool};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_during_a_call_repeats_only_what_may_be_repeated() {
    for (tool, made, part) in [("pay", 1, "outcome unknown"), ("search", 2, "found it")] {
        let tools = vec![text_tool("search", json!({"readOnlyHint": true})), text_tool("pay", json!({}))];
        let calls = AtomicUsize::new(0);
        let server = McpTestServer::start(STATELESS, tools, move |asked| {
            let is_call = asked.method() == "tools/call";
            let is_first = is_call && calls.fetch_add(1, Ordering::SeqCst) == 0;
            let found = json!({"content": [{"type": "text", "text": "found it"}]});
            is_call.then(|| if is_first { McpReply::Hang } else { McpReply::Result(found) })
        })
        .await;
        let hosts = format!("http_client.allow_hosts=127.0.0.1:{}", server.port);
        let mut up = Up::start_with(&[&hosts, "http_client.allow_private=true"]);
        let rules = format!(
            "[[rule]]\nwhen = {{ turn = 1 }}\nthen = {{ calls = [{{ tool = \"shop__{tool}\", arguments = {{ q = \"tea\" }} }}] }}\n\n[[rule]]\nthen = {{ text = \"told: {{{{tool_result}}}}\" }}\n"
        );
        up.file("buyer.rules", &rules);
        let url = server.url();
        let agent = format!(
            "model = {{ provider = \"scripted\", name = \"buyer.rules\" }}\ndefaultTools = false\ntools = [\"v/ops/mcp/shop/*\"]\nmcp = [{{ name = \"shop\", url = \"{url}\", timeout = 60 }}]\n"
        );
        up.file("buyer.toml", &agent);
        up.run(&["agent", "apply", "buyer.toml"]).ok();
        let submitted = up.run(&["submit", "buyer", "go"]).ok();
        let job = submitted.lines().last().unwrap().trim().to_owned();
        until("the call", || !server.asked("tools/call").is_empty()).await;
        up.process.signal("KILL");
        up.process.ended();
        up.start_again();
        let ended = up.run(&["job", "wait", &job, "--output", "json"]).ok();
        let ended: Value = serde_json::from_str(&ended).unwrap();
        assert!(ended.to_string().contains(part), "{tool}: {ended}");
        assert_eq!(server.asked("tools/call").len(), made, "{tool}");
        let shown = up.run(&["mcp", "server", "shop", "--agent", "buyer"]).ok();
        assert!(shown.contains("v/ops/mcp/shop/pay") && shown.contains("read"), "{shown}");
        assert!(up.run(&["mcp", "servers", "--agent", "buyer"]).ok().contains("shop"));
    }
}
