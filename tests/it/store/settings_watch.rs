//! Settings of servers that somebody changes while processes run, and one figure of the work that waits or runs.

use crate::support::cli::{Done, Process, Up, run};
use crate::support::fleet::Fleet;
use crate::support::nats::{self, NatsServer};
use crate::support::port;
use crate::support::redis::RedisServer;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().unwrap().block_on(future)
}

fn get(url: &str) -> String {
    block_on(async { reqwest::get(url).await.unwrap().text().await.unwrap() })
}

#[test]
fn a_changed_server_setting_is_reported_once_and_counted() {
    let (Some(nats), Some(redis)) = (NatsServer::start(), RedisServer::start()) else { return };
    let fleet = Fleet::new(nats.url(), &redis);
    let health = format!("127.0.0.1:{}", port::lasting());
    let listen = format!("worker.listen={health}");
    let mut worker = Process::start(fleet.path(), ["worker", "--config", "fleet.toml", "--set", &listen]);
    worker.says("worker `");
    let set = |name: &str, value: &str| {
        block_on(async { redis.command(&["CONFIG", "SET", name, value]).await.unwrap() });
    };
    let changes = [("appendfsync", "no"), ("maxmemory-policy", "allkeys-lru"), ("appendonly", "no")];
    for (name, value) in changes {
        set(name, value);
    }
    let stream = fleet.prefix.to_uppercase();
    block_on(async {
        let context = async_nats::jetstream::new(async_nats::connect(nats.url()).await.unwrap());
        let info: Value = context.request(format!("STREAM.INFO.{stream}"), &json!({})).await.unwrap();
        let mut config = info["config"].clone();
        config["max_msgs_per_subject"] = json!(1);
        let _: Value = context.request(format!("STREAM.UPDATE.{stream}"), &config).await.unwrap();
    });
    for (name, value) in changes {
        worker.says(&format!("a guarantee doesn't hold any more: redis {name} is `{value}`"));
    }
    worker.says(&format!("a guarantee doesn't hold any more: nats settings of {stream}"));
    worker.says(&format!("stream `{stream}` was changed: `max_msgs_per_subject` is 1"));
    worker.says(&format!("nats settings of {stream} is right again"));
    let metrics = get(&format!("http://{health}/metrics"));
    assert!(metrics.contains("trellis_settings_wrong 3"), "{metrics}");
    assert!(metrics.contains("trellis_settings_found_wrong_total 4"), "{metrics}");
    for (name, value) in [("appendonly", "yes"), ("appendfsync", "always"), ("maxmemory-policy", "noeviction")] {
        set(name, value);
    }
    for (name, value) in changes {
        worker.says(&format!("redis {name} is right again"));
        assert_eq!(worker.log().matches(&format!("redis {name} is `{value}`")).count(), 1, "{}", worker.log());
    }
}

/// The figure, once it is as expected.
fn work_becomes(url: &str, expected: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + Duration::from_mins(2);
    loop {
        let work: Value = serde_json::from_str(&get(&format!("{url}/work"))).unwrap();
        if expected(&work) || Instant::now() > end {
            assert!(expected(&work), "{work}");
            return work;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

const SLOTS: &str = "worker.slots=2";

#[test]
fn work_over_http_counts_in_one_process() {
    let up = Up::start_with(&[SLOTS]);
    up.agent("slow", "[[rule]]\nthen = { text = \"done\", delay_ms = 600000 }\n");
    up.agent("quick", "echo");
    up.run(&["submit", "quick", "x", "--wait=60s"]).ok();
    work_becomes(&up.url, |work| work["work"] == 0);
    for n in 0..6 {
        up.run(&["submit", "slow", "x", "--session", &format!("s{n}")]).ok();
    }
    work_becomes(&up.url, |work| work["work"] == 6);
    assert!(get(&format!("{}/metrics", up.url)).contains("trellis_work 6"));
}

/// A suspended agent with tasks, as more workers wouldn't help it; and the same tasks when it is resumed.
fn work_of_a_suspended_agent(url: &str, cli: &dyn Fn(&[&str]) -> Done) {
    cli(&["agent", "apply", "echo.toml"]).ok();
    cli(&["agent", "suspend", "echo"]).ok();
    let jobs: Vec<String> = (0..3).map(|n| cli(&["submit", "echo", "x", "--session", &format!("s{n}")]).ok()).collect();
    // A figure from before the tasks is five seconds old by then.
    std::thread::sleep(Duration::from_secs(6));
    work_becomes(url, |work| work["work"] == 0);
    assert!(cli(&["job", "get", &jobs[0]]).ok().contains("is suspended"));
    cli(&["agent", "resume", "echo"]).ok();
    for job in &jobs {
        assert_eq!(cli(&["job", "wait", job]).ok(), "x");
    }
}

#[test]
fn sessions_of_a_suspended_agent_are_no_work() {
    let up = Up::start();
    up.file("echo.toml", "model = { provider = \"scripted\", name = \"echo\" }");
    work_of_a_suspended_agent(&up.url, &|args| up.run(args));
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let (_worker, _serve, url) = fleet.start_all();
    work_of_a_suspended_agent(&url, &|args| run(fleet.path(), &[args, &["--url", &url]].concat()));
}

/// An idle venue with an approval that nobody answers for an hour: more workers wouldn't help.
fn work_that_waits_for_a_person(url: &str, cli: &dyn Fn(&[&str]) -> Done) {
    cli(&["agent", "apply", "payer.toml"]).ok();
    let job = cli(&["submit", "payer", "go"]).ok();
    let end = Instant::now() + Duration::from_mins(1);
    while !cli(&["approvals"]).ok().contains("payer") {
        assert!(Instant::now() < end, "{}", cli(&["job", "get", &job]).ok());
        std::thread::sleep(Duration::from_millis(200));
    }
    // A figure from before is five seconds old by then.
    std::thread::sleep(Duration::from_secs(6));
    work_becomes(url, |work| work["work"] == 0);
}

#[test]
fn sessions_that_wait_for_a_person_are_no_work() {
    const RULES: &str =
        "[[rule]]\nthen = { calls = [{ tool = \"pay\", arguments = { path = \"w/paid\", value = 1 } }] }\n";
    const AGENT: &str = "model = { provider = \"scripted\", name = \"payer.rules\" }\n\
        [[tools]]\noperation = \"v/ops/lattice/append\"\nname = \"pay\"\napproval = \"ask\"\n";
    let up = Up::start();
    up.file("payer.rules", RULES);
    up.file("payer.toml", AGENT);
    work_that_waits_for_a_person(&up.url, &|args| up.run(args));
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    for (name, text) in [("payer.rules", RULES), ("payer.toml", AGENT)] {
        std::fs::write(fleet.path().join(name), text).unwrap();
    }
    let (_worker, _serve, url) = fleet.start_all();
    work_that_waits_for_a_person(&url, &|args| run(fleet.path(), &[args, &["--url", &url]].concat()));
}

#[test]
fn work_over_http_and_the_queue_counts_in_a_fleet() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    fleet.slow_agent("slow", 600_000);
    let health = format!("127.0.0.1:{}", port::lasting());
    let (listen, url) = (format!("worker.listen={health}"), format!("http://{health}"));
    let arguments = ["worker", "--config", "fleet.toml", "--set", &listen, "--set", SLOTS];
    let mut worker = Process::start(fleet.path(), arguments);
    let mut serve = fleet.start("serve");
    worker.says("worker `");
    let api = serve.says("HTTP API on ").split(' ').next().unwrap().to_owned();
    let http = |args: &[&str]| run(fleet.path(), &[args, &["--url", &api]].concat());
    http(&["agent", "apply", "slow.toml"]).ok();
    for n in 0..6 {
        http(&["submit", "slow", "x", "--session", &format!("s{n}")]).ok();
    }
    work_becomes(&url, |work| work["work"] == 6);
    work_becomes(&api, |work| work["work"] == 6);
    worker.signal("KILL");
    worker.ended();
    // Nobody takes what comes now: a server would stand in for the worker.
    serve.signal("TERM");
    serve.ended();
    for n in 0..3 {
        fleet.publish(&["submit", "slow", "x", "--id", &format!("q{n}")]).ok();
    }
    let mut serve = fleet.start("serve");
    let api = serve.says("HTTP API on ").split(' ').next().unwrap().to_owned();
    let work = work_becomes(&api, |work| work["messages"] == 3 && work["work"].as_i64() >= Some(9));
    assert!(work["oldestSeconds"].as_i64() >= Some(0), "{work}");
    let audit = fleet.run(&["audit"]);
    assert!(audit.out.contains("queued = 3") && audit.err.contains("queued: local/me: 3"), "{audit:?}");
    let doctor = fleet.run(&["doctor"]);
    assert!(doctor.out.contains("3 messages wait"), "{doctor:?}");
}
