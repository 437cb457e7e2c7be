//! The rows of `turn show` and the body that the provider received: every byte is in one row.

use crate::support::attachments::png;
use crate::support::cli::Up;
use crate::support::model_server::ModelServer;
use serde_json::Value;
use std::sync::Arc;
use tokio::net::TcpListener;
use trellis::model::mock_server;
use trellis::model::rules::ScriptRules;
use trellis::model::scripted::Script;

const RULES: &str = r#"
[[rule]]
when = { tool = "lattice_read" }
then = { text = "SaidByTheModel" }

[[rule]]
when = { text = "look" }
then = { calls = [{ tool = "lattice_read", arguments = { path = "w/doc" } }] }

[[rule]]
then = { text = "SaidByTheModel" }
"#;

/// Provider, and what stands behind the address of the server.
const PROVIDERS: [(&str, &str); 5] =
    [("openai", "/v1/"), ("openai_resp", "/v1/"), ("anthropic", "/v1/"), ("gemini", "/v1beta/"), ("deepseek", "/v1/")];

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rows_of_a_turn_sum_to_the_body_that_was_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = ModelServer::in_front_of(listener.local_addr().unwrap());
    let script = Arc::new(Script::from_rules("test rules", ScriptRules::parse(RULES).unwrap()));
    let serving = tokio::spawn(mock_server::serve(listener, script, std::future::pending()));
    let settings = PROVIDERS.map(|(name, path)| format!("models.endpoints.{name}.base_url={}", server.url(path)));
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let up = Up::start_with(&settings);
    up.run(&["lattice", "write", "w/doc", r#"{"words": "DocumentWords \"x\""}"#]).ok();
    std::fs::write(up.dir.path().join("look.png"), png(3)).unwrap();
    for (provider, _) in PROVIDERS {
        let before = server.calls().len();
        let agent = format!("a_{provider}");
        up.file(
            "agent.toml",
            &format!(
                "id = \"{agent}\"\nsystemPrompt = \"SystemWords\"\ncontext = [\"w/doc\", \"LiteralWords, {{{{who}}}}\", \"w/none\"]\n\
                 model = {{ provider = \"{provider}\", name = \"m\" }}\n"
            ),
        );
        up.run(&["agent", "apply", "agent.toml"]).ok();
        let attached: &[&str] = if provider == "deepseek" { &[] } else { &["--attach", "look.png"] };
        up.run(&[&["submit", &agent, "look", "--session", "s", "--wait"][..], attached].concat()).ok();
        up.run(&["submit", &agent, "again", "--session", "s", "--wait"]).ok();
        let bodies: Vec<String> = server.calls()[before..].iter().map(|call| call.body.to_string()).collect();
        assert_eq!(bodies.len(), 3, "{provider}");
        for (turn, body) in (1..).zip(&bodies) {
            let shown = json(&up.run(&["turn", "show", &format!("{agent}/s/{turn}"), "--output", "json"]).ok());
            let (ledger, name) = (&shown["ledger"], format!("{agent}/s/{turn}"));
            assert_eq!(ledger["sent"]["bytes"], body.len(), "{name}: {}", ledger["sent"]);
            let rows = ledger["rows"].as_array().unwrap();
            let sum: u64 = rows.iter().map(|row| row["sent"].as_u64().unwrap()).sum();
            assert_eq!(sum, body.len() as u64, "{name}: {rows:#?}");
            for row in rows {
                assert!(row["source"].is_string() && row["allowed"].is_string(), "{name}: {row}");
                let is_named = row["version"].is_u64() || row["hash"].is_string();
                let is_shown = row["rendered"].as_u64() > Some(0) && row["status"] == "full";
                assert!(is_named || !is_shown, "{name}: {row}");
            }
            let tools = json(body)["tools"].to_string().len();
            let row = |key: &str| rows.iter().find(|row| row["key"] == key).unwrap_or_else(|| panic!("{name}: {key}"));
            assert_eq!(row("tools")["sent"], tools, "{name}");
            let text: u64 = rows.iter().map(|row| row["rendered"].as_u64().unwrap()).sum();
            assert!(text < sum, "{name}: {text} of {sum}");
            if turn == 3 {
                assert!(row("transcript/1")["sent"].as_u64() > row("transcript/2")["sent"].as_u64(), "{name}");
            }
        }
        let table = up.run(&["turn", "show", &format!("{agent}/s/1")]).ok();
        assert!(table.contains("SENT (B)") && table.contains(&format!("to {provider}/m as ")), "{table}");
    }
    serving.abort();
}
