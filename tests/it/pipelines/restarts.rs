//! Workers of a fleet that are killed between and within the steps of a pipeline.

use crate::support::cli::run;
use crate::support::fleet::Fleet;
use crate::support::nats;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const RULES: &str = r#"
[[rule]]
when = { prompt = "SLOW" }
then = { text = "slow", delay_ms = 1500 }

[[rule]]
then = { text = "quick" }
"#;

/// Two quick steps, two slow branches, a quick step.
fn manifest() -> Value {
    let agent = |prompt: &str| {
        let model = json!({"provider": "scripted", "name": "flow.rules"});
        json!({"model": model, "systemPrompt": prompt, "defaultTools": false})
    };
    let step = |key: &str, prompt: &str| json!({"stateKey": key, "agent": agent(prompt)});
    let branches = json!({"kind": "parallel", "steps": [step("a", "SLOW"), step("b", "SLOW")]});
    json!({"pipeline": {
        "kind": "sequential",
        "steps": [step("one", "x"), step("two", "x"), {"stateKey": "both", "agent": {"pipeline": branches}}, step("last", "x")],
        "output": {"two": "{{two}}", "both": "{{both}}", "last": "{{last}}"}
    }})
}

#[test]
fn a_killed_worker_loses_and_repeats_no_step() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let config = fleet.path().join("fleet.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}[worker]\nlease = \"3s\"\n")).unwrap();
    std::fs::write(fleet.path().join("flow.rules"), RULES).unwrap();
    std::fs::write(fleet.path().join("flow.json"), manifest().to_string()).unwrap();
    let (mut worker, _serve, url) = fleet.start_all();
    let http = |args: &[&str]| run(fleet.path(), &[args, &["--url", &url]].concat()).ok();
    http(&["agent", "apply", "flow.json"]);
    let job = http(&["submit", "flow", "go"]).lines().next().unwrap().to_owned();
    let listed = || -> Vec<Value> {
        let all = http(&["job", "list", "--output", "ndjson"]);
        all.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    for open in [2, 4] {
        let start = Instant::now();
        while listed().len() < open && start.elapsed() < Duration::from_mins(1) {
            std::thread::sleep(Duration::from_millis(20));
        }
        worker.signal("KILL");
        worker = fleet.start("worker");
        worker.says("worker `");
    }
    let ended = http(&["job", "wait", &job, "--timeout", "3m", "--output", "json"]);
    let ended: Value = serde_json::from_str(&ended).unwrap_or_else(|_| panic!("{ended}"));
    let expected = json!({"two": "quick", "both": {"a": "slow", "b": "slow"}, "last": "quick"});
    assert_eq!((&ended["status"], &ended["output"]), (&json!("COMPLETE"), &expected), "{ended}");
    assert_eq!(listed().len(), 7, "the task, four steps, two branches: none twice");
}
