//! The protocol's own compatibility kit: as it is, and with what 1.0.1 and its own text say otherwise (`kit.patch`).
//!
//! Its results are compared with `expected.json`: a requirement that fails anew, or no longer, fails the test.

use crate::support::cli::Up;
use crate::support::port;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const EXPECTED: &str = include_str!("expected.json");

/// Requirements that pass at least; a kit that tests nothing isn't a kit that passes.
const PASSED_MIN: usize = 60;

/// A copy of the kit that `tests/run.sh` made; `None` (after a printed line) where it had none to copy.
fn copy(name: &str) -> Option<PathBuf> {
    let kit = Path::new(ROOT).join(".tools").join(name);
    if kit.join("run_tck.py").is_file() {
        return Some(kit);
    }
    println!("skipped: no `.tools/{name}`; `tests/run.sh` copies the kit from `TRELLIS_A2A_TCK`");
    None
}

/// Runs the kit against an agent that plays its scenarios, and returns its report.
fn report(kit: &Path) -> Value {
    let hook = port::lasting();
    let hosts = format!("http_client.allow_hosts=example.com, localhost:{hook}");
    let up = Up::start_with(&[&hosts, "http_client.allow_private=true"]);
    up.file("tck.rules", include_str!("kit.rules.toml"));
    up.file("tck.toml", include_str!("kit.agent.toml"));
    up.run(&["agent", "apply", "tck.toml"]).ok();
    let report = kit.join("reports/compatibility.json");
    let _ = std::fs::remove_file(&report);
    let run = Command::new(Path::new(ROOT).join(".tools/venv-a2a/bin/python"))
        .args(["run_tck.py", "--sut-host", &format!("{}/a2a/local/me/tck", up.url), "--level", "must"])
        .args(["--", "-p", "a2a_kit_port"])
        .current_dir(kit)
        .env("PYTHONPATH", Path::new(ROOT).join("tests/clients"))
        .env("TCK_WEBHOOK_PORT", hook.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    let text = std::fs::read_to_string(&report).unwrap_or_else(|error| panic!("no report, {error}: {said}"));
    println!("{said}");
    serde_json::from_str(&text).unwrap()
}

/// The requirements that must be met and have this status.
fn musts<'a>(results: &'a Map<String, Value>, status: &str) -> BTreeSet<&'a str> {
    let found = results.iter().filter(|(_, result)| result["level"] == "MUST" && result["status"] == status);
    found.map(|(id, _)| id.as_str()).collect()
}

fn check(kind: &str, copied: &str) {
    let Some(kit) = copy(copied) else { return };
    let report = report(&kit);
    let results = report["per_requirement"].as_object().unwrap();
    let expected: Value = serde_json::from_str(EXPECTED).unwrap();
    let expected: BTreeSet<&str> = expected[kind]["failed"].as_object().unwrap().keys().map(String::as_str).collect();
    let failed = musts(results, "FAIL");
    for id in &failed {
        println!("{id}: {}", results[*id]["errors"]);
    }
    assert_eq!(failed, expected, "{kind}");
    let passed = musts(results, "PASS");
    assert!(passed.len() >= PASSED_MIN, "{kind}: {passed:?}");
}

#[test]
fn the_kit_fails_where_1_0_1_says_otherwise() {
    check("unpatched", "a2a-tck");
}

#[test]
fn the_kit_passes_with_what_1_0_1_says() {
    check("patched", "a2a-tck-patched");
}
