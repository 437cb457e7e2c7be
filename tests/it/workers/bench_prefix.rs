//! `trellis bench prefix`: how much of a request a provider's cache keeps, in real turns.

use crate::support::cli::run;
use serde_json::Value;

#[test]
fn a_session_keeps_most_of_its_prompt_from_turn_to_turn() {
    let dir = tempfile::tempdir().unwrap();
    let report: Value = serde_json::from_str(&run(dir.path(), &["bench", "prefix", "--output", "json"]).ok()).unwrap();
    let check = |session: &str, least: f64| {
        let kept = &report["result"][session];
        assert_eq!(kept["percent"].as_array().map(Vec::len), Some(23), "{report}");
        assert!(kept["min_percent"].as_f64().is_some_and(|percent| percent >= least), "{session}: {report}");
    };
    check("growing", 95.0);
    check("changing_load", 85.0);
}
