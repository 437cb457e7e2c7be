//! `trellis dead`: when a task died as people read it, and what it says commands no terminal.

use crate::support::cli::Up;
use serde_json::Value;

#[test]
fn the_list_says_when_a_task_died_in_a_time_that_people_read() {
    let mut up = Up::start_with(&["worker.crash_limit=1", "worker.lease=500ms"]);
    up.agent("killer", "never");
    let job = up.run(&["submit", "killer", "\u{1b}[2J\u{202e}evil"]).ok();
    while up.run(&["job", "get", &job, "--output", "ndjson"]).ok().contains("\"PENDING\"") {}
    up.process.signal("KILL");
    up.process.ended();
    up.start_again();
    up.run(&["job", "wait", &job, "--timeout", "60s"]).expect(3, "FAILED (DEAD)");

    let listed = up.run(&["dead", "list"]).ok();
    let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..5], ["JOB", "AGENT", "SESSION", "DIED", "CRASHES"], "{listed}");
    assert_eq!((lines.len(), lines[1][0], lines[1][1], lines[1][4]), (2, job.as_str(), "killer", "1"), "{listed}");
    let page: Value = serde_json::from_str(&up.run(&["dead", "list", "--output", "json"]).ok()).unwrap();
    let died = page["items"][0]["died"].as_u64().unwrap();
    let shown = humantime::parse_rfc3339(lines[1][3]).unwrap();
    assert_eq!(shown.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis(), u128::from(died), "{listed}");

    let shown = up.run(&["dead", "show", &job]).ok();
    assert!(shown.contains("\\u001b[2J\\u202eevil") && !shown.contains('\u{1b}'), "{shown}");
}

#[test]
fn a_failed_job_that_killed_no_worker_is_told_apart() {
    let up = Up::start();
    up.agent("refused", "[[rule]]\nthen = { text = \"x\", fault = \"bad_request\" }\n");
    let job = up.run(&["submit", "refused", "x"]).ok();
    up.run(&["job", "wait", &job]).expect(3, "FAILED (MODEL_ERROR)");
    let said = up.run(&["dead", "show", &job]).expect(5, "is no dead letter");
    assert!(said.err.contains(&format!("`trellis job get {job}` shows how it stands")), "{said:?}");
    up.run(&["dead", "show", "0123456789abcdef0123456789abcdef"])
        .expect(5, "no job `0123456789abcdef0123456789abcdef`;");
}
