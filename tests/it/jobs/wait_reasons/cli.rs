//! What the command line says while somebody waits.

use crate::support::cli::Up;
use serde_json::{Value, json};

#[test]
fn apply_warns_of_a_missing_key_and_wait_shows_it_once() {
    let up = Up::start();
    up.file("helper.toml", "model = { provider = \"mistral\", name = \"m\" }\n");
    let applied = up.run(&["agent", "apply", "helper.toml"]);
    let key = "`MISTRAL_API_KEY` is not set";
    assert!(applied.code == 0 && applied.err.contains(key), "{applied:?}");
    let why = format!("no API key: {key}");
    for args in [&["submit", "helper", "Say hello", "--wait=8s"][..], &["chat", "helper", "hello", "--timeout", "8s"]] {
        let said = up.run(args);
        assert_eq!(said.err.matches(&why).count() - usize::from(said.err.contains("is still")), 1, "{said:?}");
        assert!(
            said.err.contains("waits: agent `helper` is suspended") && said.err.contains("trellis agent resume helper"),
            "{said:?}"
        );
    }
    let jobs = up.run(&["job", "list", "--output", "ndjson"]).ok();
    let record: Value = serde_json::from_str(jobs.lines().next().unwrap()).unwrap();
    let shown = up.run(&["job", "get", record["id"].as_str().unwrap()]).ok();
    assert!(shown.contains(&why), "{shown}");
    let info: Value = serde_json::from_str(&up.run(&["agent", "get", "helper"]).ok()).unwrap();
    assert_eq!(info["waiting"]["kind"], json!("suspended"));
}
