//! Memory of many sessions, measured in a process of its own; `trellis bench sessions` is the long form.

use crate::support::cli::run;
use serde_json::Value;

#[test]
fn sleeping_and_running_sessions_stay_within_their_memory() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "sessions", "--sleeping", "1000", "--running", "100", "--output", "json"];
    let report: Value = serde_json::from_str(&run(dir.path(), &args).ok()).unwrap();
    let result = &report["result"];
    eprintln!("{result}");
    assert_eq!((&result["sleeping"], &result["running"]), (&1000.into(), &100.into()));
    assert_eq!(result["unaccounted"], 0, "{report}");
    // Several times what was measured: debug builds and other allocators need more.
    let (sleeping, running) = (result["bytes_per_sleeping"].as_u64(), result["bytes_per_running"].as_u64());
    assert!(sleeping.is_some_and(|bytes| bytes < 256 * 1024), "{report}");
    assert!(running.is_some_and(|bytes| bytes < 1024 * 1024), "{report}");
}
