//! What `trellis bench` tells of costs: per task, of a fleet that has nothing to do, and per turn of a growing session.

use crate::support::cli::{command, run};
use crate::support::nats::NatsServer;
use crate::support::redis::RedisServer;
use serde_json::Value;

fn bench(args: &[&str]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let report: Value = serde_json::from_str(&run(dir.path(), &[args, &["--output", "json"]].concat()).ok()).unwrap();
    eprintln!("{report}");
    report["result"].clone()
}

fn processes(of: &Value) -> Vec<&str> {
    of["processes"].as_array().unwrap().iter().map(|process| process["process"].as_str().unwrap()).collect()
}

#[test]
fn a_task_costs_calls_and_fsyncs() {
    for kind in ["turns", "latency"] {
        let result = bench(&["bench", kind, "--tasks", "12", "--agents", "3"]);
        let by_method = &result["store_calls_per_task_by_method"];
        assert!(by_method["admit"].as_f64() >= Some(1.0) && by_method["commit"].as_f64() >= Some(1.0), "{result}");
        assert!(result["store_calls_per_task"].as_f64() >= Some(2.0), "{result}");
        // It is published, and its end is; it is acknowledged.
        assert!(result["bus_calls_per_task"].as_f64() >= Some(3.0), "{result}");
        assert!(result["fsyncs_per_task"].as_f64() > Some(0.0), "{result}");
        assert_eq!(processes(&result), ["trellis"]);
        let own = &result["processes"][0];
        assert!(own["cpu_seconds_per_1000_tasks"].is_f64() && own["written_bytes_per_task"].is_f64(), "{result}");
    }
}

#[test]
fn local_servers_are_found_and_fsyncs_are_not_guessed() {
    let (Some(redis), Some(nats)) = (RedisServer::start(), NatsServer::start()) else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut fleet = command(dir.path());
    fleet.env("TRELLIS__STORE__URL", redis.url()).env("TRELLIS__BUS__URL", nats.url());
    let output =
        fleet.args(["bench", "latency", "--tasks", "3", "--agents", "1", "--output", "json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let result = &report["result"];
    let at = |program: &str, url: &str| format!("{program} at {}", url.rsplit_once('/').unwrap().1);
    assert_eq!(processes(result), ["trellis", &at("redis", &redis.url()), &at("nats", &nats.url())]);
    for process in result["processes"].as_array().unwrap() {
        assert!(process["cpu_seconds_per_1000_tasks"].is_f64(), "{report}");
        assert!(process["written_bytes_per_task"].is_f64(), "{report}");
    }
    assert!(result["fsyncs_per_task"].is_null(), "{report}");
}

#[test]
fn a_fleet_that_has_nothing_to_do_is_swept() {
    let result = bench(&["bench", "idle", "--owners", "3", "--agents", "2", "--sessions", "4", "--seconds", "2"]);
    assert_eq!((&result["owners"], &result["agents_per_owner"]), (&3.into(), &2.into()));
    assert!(result["seconds"].as_f64() >= Some(2.0), "{result}");
    assert_eq!(result["sessions_per_agent"], 4);
    assert!(result["bytes_per_session"].is_u64() && result["open_seconds"].is_f64(), "{result}");
    assert!(result["store_calls_per_second_by_method"]["due_owners"].as_f64() > Some(0.0), "{result}");
    assert!(result["bus_calls_per_second"].is_f64(), "{result}");
    assert_eq!(processes(&result), ["trellis"]);
    assert!(result["processes"][0]["cpu_ms_per_second"].is_f64(), "{result}");
}

#[test]
fn owners_beside_one_that_submits_much_are_measured() {
    let args = ["--owners", "3", "--backlog", "50", "--rate", "10", "--seconds", "1", "--model-ms", "10"];
    let result = bench(&[&["bench", "fairness"][..], &args].concat());
    assert_eq!((&result["owners"], &result["backlog_published"]), (&3.into(), &50.into()));
    for times in [&result["alone"], &result["beside"]] {
        assert!(times["wait"]["p99_ms"].as_f64() > Some(0.0), "{result}");
        assert!(times["publish"]["p99_ms"].as_f64() > Some(0.0), "{result}");
    }
    assert!(result["p99_ratio"].as_f64() > Some(0.0), "{result}");
}

#[test]
fn a_session_that_grows_is_measured_at_its_turns() {
    let result = bench(&["bench", "growth", "--turns", "20"]);
    let turns = result["turns"].as_array().unwrap();
    assert_eq!(turns.iter().map(|turn| turn["turn"].as_u64().unwrap()).collect::<Vec<_>>(), [10, 20]);
    let tokens = |at: usize| turns[at]["prompt_tokens"].as_u64().unwrap();
    assert!(tokens(1) > tokens(0) + 10_000 / 5, "the context is in the prompt: {result}");
    for turn in turns {
        assert!(turn["written_bytes_per_turn"].is_f64(), "{result}");
        assert_eq!(processes(turn), ["trellis"]);
    }
    assert!(result["largest_to_smallest"].as_f64().is_none_or(|ratio| ratio >= 1.0), "{result}");
}

#[test]
fn impossible_measurements_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (args, why) in [
        ("idle --owners 0", "at least one owner"),
        ("idle --agents 0", "one agent of each"),
        ("idle --owners 1000000 --agents 2", "at most 1000000 agents"),
        ("idle --owners 1000 --agents 2 --sessions 501", "at most 1000000 sessions"),
        ("fairness --owners 0", "`--owners`: expected 1 to"),
        ("fairness --rate 0", "one task per second"),
        ("idle --seconds 0", "`--seconds`: expected 1 to"),
        ("growth --turns 19", "`--turns`: expected 20 to"),
        ("latency --tasks 0", "at least one task"),
    ] {
        let args: Vec<_> = ["bench"].into_iter().chain(args.split(' ')).collect();
        run(dir.path(), &args).expect(2, why);
    }
}

#[test]
fn costs_are_told_in_short_lines() {
    let dir = tempfile::tempdir().unwrap();
    let text = run(dir.path(), &["bench", "latency", "--tasks", "2", "--agents", "1"]).ok();
    assert!(
        text.lines().any(|line| line.starts_with("processes  process trellis, cpu seconds per 1000 tasks ")),
        "{text}"
    );
    assert!(text.lines().any(|line| line.starts_with("store calls per task by method  admit ")), "{text}");
}
