//! The metrics of a real worker: those that the dashboard and the rules name are there, and promtool accepts all.

use crate::support::cli::{Process, run};
use crate::support::fleet::Fleet;
use crate::support::{nats, port};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/observability");
const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/observability.md");

fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(FOLDER).join(file)).unwrap()
}

/// promtool; without it (after a printed line) the test is skipped, and fails when `CI` is set.
fn promtool() -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/prometheus/usr/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = std::env::split_paths(&path).chain([tools]).map(|dir| dir.join("promtool"));
    let found = all.find(|file| file.exists());
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "no promtool; `tests/run.sh` installs it");
        println!("skipped: no promtool; `tests/run.sh` installs it");
    }
    found
}

/// Runs promtool in the folder of the rules, with this on stdin.
fn check(promtool: &Path, args: &[&str], input: &str) {
    let mut command = Command::new(promtool);
    command.args(args).current_dir(FOLDER).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "promtool {args:?}: {said}");
}

/// Names of metrics in a text, without the suffixes of a histogram.
fn named_metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let names = words.filter(|word| word.starts_with("trellis_"));
    names.map(|name| name.strip_suffix("_bucket").unwrap_or(name).to_owned()).collect()
}

/// Expressions of the rules, or their names, by what stands before them.
fn lines_after<'a>(rules: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    rules.lines().filter_map(move |line| line.trim().trim_start_matches("- ").strip_prefix(key))
}

fn scrape(url: &str) -> String {
    let text = async { reqwest::get(url).await.unwrap().text().await.unwrap() };
    tokio::runtime::Runtime::new().unwrap().block_on(text)
}

#[test]
fn metrics_of_rules_and_dashboard_are_in_a_scrape() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let health = format!("127.0.0.1:{}", port::lasting());
    let args = [
        "worker",
        "--config",
        "fleet.toml",
        "--set",
        &format!("worker.listen={health}"),
        "--set",
        "metrics.agents=echo",
    ];
    let mut worker = Process::start(fleet.path(), args);
    worker.says("worker `");
    let mut serve = fleet.start("serve");
    let url = format!("http{}", serve.says("HTTP API on http").split_whitespace().next().unwrap());
    run(fleet.path(), &["agent", "apply", "echo.toml", "--url", &url]).ok();
    run(fleet.path(), &["submit", "echo", "x", "--wait=60s", "--url", &url]).ok();
    let (address, end) = (format!("http://{health}/metrics"), Instant::now() + Duration::from_mins(1));
    let text = loop {
        let text = scrape(&address);
        let is_told =
            ["trellis_jobs_ended_total{status=\"complete\"} 1\n", "trellis_agent_turns_total{agent=\"echo\"} 1\n"];
        if is_told.iter().all(|line| text.contains(line)) || Instant::now() > end {
            break text;
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    let there: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let asked = named_metrics(&read("rules.yml"));
    assert!(asked.len() > 30, "{asked:?}");
    let missing: Vec<_> = asked.iter().filter(|name| !there.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "not in the scrape: {missing:?}\n{text}");
    assert!(text.contains("trellis_jobs_ended_total{status=\"complete\"} 1\n"), "{text}");
    assert!(text.contains("trellis_agent_turns_total{agent=\"echo\"} 1\n"), "{text}");
    assert!(text.contains("trellis_bus_call_seconds_count{method=\"publish\"}"), "{text}");
    assert!(text.contains("trellis_store_call_seconds_count{method=\"commit\"}"), "{text}");
    let ids =
        text.lines().filter(|line| line.contains("tenant=") || line.contains("job=") || line.contains("session="));
    assert_eq!(ids.count(), 0, "no label names an owner, a job or a session");
    if let Some(promtool) = promtool() {
        check(&promtool, &["check", "metrics"], &text);
    }
}

#[test]
fn promtool_accepts_the_rules_and_their_tests() {
    let Some(promtool) = promtool() else { return };
    check(&promtool, &["check", "rules", "rules.yml"], "");
    check(&promtool, &["test", "rules", "rules.test.yml"], "");
}

#[test]
fn the_expression_of_each_panel_is_a_recording_rule() {
    let (rules, dashboard) = (read("rules.yml"), read("dashboard.json"));
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let recorded: BTreeSet<&str> = lines_after(rules.split_once("trellis-alerts").unwrap().0, "expr: ").collect();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let shown: BTreeSet<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert_eq!(shown, recorded);
}

#[test]
fn each_alert_has_a_line_in_the_guide() {
    let (rules, guide) = (read("rules.yml"), std::fs::read_to_string(GUIDE).unwrap());
    let alerts: Vec<&str> = lines_after(&rules, "alert: ").collect();
    assert!(alerts.len() > 10);
    for alert in alerts {
        assert!(guide.lines().any(|line| line.starts_with(&format!("| `{alert}` |"))), "{alert}");
    }
}
