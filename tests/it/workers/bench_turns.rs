//! `trellis bench turns` runs the tasks that it is asked for, and refuses those that can't be.

use crate::support::cli::run;
use serde_json::Value;

#[test]
fn tasks_of_every_shape_come_to_their_end() {
    let shapes: [&[&str]; 3] =
        [&["--session", "same", "--turns", "3", "--tools", "2", "--shared"], &["--turns", "2"], &[]];
    for shape in shapes {
        let dir = tempfile::tempdir().unwrap();
        let args = [&["bench", "turns", "--tasks", "12", "--agents", "3", "--output", "json"], shape].concat();
        let report: Value = serde_json::from_str(&run(dir.path(), &args).ok()).unwrap();
        let result = &report["result"];
        assert_eq!((&result["tasks"], &result["unaccounted"]), (&12.into(), &0.into()), "{report}");
        assert!(result["tasks_per_second"].as_f64() > Some(0.0), "{report}");
        assert!(result["p50_ms"].as_f64() <= result["p999_ms"].as_f64(), "{report}");
        assert_eq!(result["shared"], shape.contains(&"--shared"), "{report}");
    }
}

#[test]
fn an_impossible_task_shape_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), &["bench", "turns", "--turns", "1", "--shared"]).expect(2, "`--shared`");
}
