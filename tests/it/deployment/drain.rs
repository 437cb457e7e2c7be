//! `trellis worker list` and `trellis worker drain`: an operator's order, which nobody else can give.

use crate::support::cli::{Process, Up, run};
use crate::support::fleet::Fleet;
use crate::support::nats;
use crate::support::operate::{boss, operate};
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use trellis::domain::worker_registry::{DrainTarget, WorkerRecord};
use trellis::venue::operation::OpError;
use trellis::venue::registry;

fn start(fleet: &Fleet, name: &str) -> Process {
    let name = format!("worker.name={name}");
    let args = ["worker", "--config", "fleet.toml", "--set", &name, "--set", "worker.crash_limit=1"];
    let mut worker = Process::start(fleet.path(), args);
    worker.says("worker `");
    worker
}

fn list(fleet: &Fleet) -> Vec<Value> {
    let list: Value = serde_json::from_str(&fleet.run(&["worker", "list", "--output", "json"]).ok()).unwrap();
    list["workers"].as_array().unwrap().clone()
}

/// Those that live, once there are so many.
fn names(fleet: &Fleet, count: usize) -> Vec<String> {
    loop {
        let workers = list(fleet);
        if workers.len() == count {
            return workers.iter().map(|worker| worker["name"].as_str().unwrap().to_owned()).collect();
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drained_workers_finish_their_turns_and_others_go_on() {
    let (Some(server), Some(nats)) = (RedisServer::start(), nats::shared()) else { return };
    let fleet = Fleet::new(nats, &server);
    fleet.slow_agent("slow", 3_000);
    let mut one = start(&fleet, "one");
    let mut serve = fleet.start("serve");
    let url = serve.says("HTTP API on ").split(' ').next().unwrap().to_owned();
    run(fleet.path(), &["agent", "apply", "slow.toml", "--url", &url]).ok();
    assert_eq!(names(&fleet, 1), ["one"]);
    for n in 0..4 {
        fleet.publish(&["submit", "slow", "x", "--id", &format!("t{n}")]).ok();
    }
    let mut two = start(&fleet, "two");
    assert_eq!(names(&fleet, 2), ["one", "two"]);
    for worker in list(&fleet) {
        assert_eq!((&worker["state"], &worker["version"]), (&json!("works"), &json!(env!("CARGO_PKG_VERSION"))));
    }
    fleet.run(&["worker", "drain", "three"]).expect(5, "no worker `three` lives; those that do: `one`, `two`");
    fleet.run(&["worker", "drain"]).expect(2, "required");

    let told = fleet.run(&["worker", "drain", "one", "--wait=1m", "--output", "json"]);
    assert!(told.err.contains("told to leave: one") && told.err.contains("one has left"), "{}", told.err);
    assert_eq!(serde_json::from_str::<Value>(&told.ok()).unwrap(), json!({"draining": ["one"], "left": []}));
    assert_eq!(one.ended().code(), Some(0), "{}", one.log());
    assert!(one.log().contains("told to leave by `trellis worker drain`: stopping"), "{}", one.log());
    assert_eq!(names(&fleet, 1), ["two"]);
    for n in 0..4 {
        let id = format!("t{n}");
        assert_eq!(fleet.publish(&["submit", "slow", "x", "--id", &id, "--wait=1m"]).ok(), "done");
    }
    // The order was for that one, and not for the next of its name.
    let mut again = start(&fleet, "one");
    assert_eq!(names(&fleet, 2), ["one", "two"]);

    // All of a machine, through the API.
    let host = list(&fleet)[0]["host"].as_str().unwrap().to_owned();
    let of = |host: &str| run(fleet.path(), &["worker", "drain", "--host", host, "--wait=1m", "--url", &url]);
    let elsewhere = of("elsewhere").expect(5, "no worker lives on `elsewhere`; there are some on `");
    assert!(elsewhere.err.contains(&host), "{}", elsewhere.err);
    of(&host).expect(0, "told to leave: one, two");
    for worker in [&mut again, &mut two] {
        assert_eq!(worker.ended().code(), Some(0), "{}", worker.log());
    }
    assert_eq!(list(&fleet), Vec::<Value>::new());
    fleet.run(&["worker", "drain", "two"]).expect(5, "no worker `two` lives; no worker does");
    serve.signal("TERM");
    assert_eq!(serve.ended().code(), Some(0), "{}", serve.log());
}

#[test]
fn a_drain_through_its_own_process_reports_the_end() {
    let mut up = Up::start_with(&["worker.name=one"]);
    up.agent("slow", "[[rule]]\nthen = { text = \"done\", delay_ms = 1500 }\n");
    let job = up.run(&["submit", "slow", "x"]).ok();
    while !up.run(&["job", "get", &job]).ok().contains("STARTED") {}
    let told = up.run(&["worker", "drain", "one", "--wait=1m", "--output", "json"]);
    assert!(told.err.contains("one has left"), "{}", told.err);
    assert_eq!(serde_json::from_str::<Value>(&told.ok()).unwrap(), json!({"draining": ["one"], "left": []}));
    assert_eq!(up.process.ended().code(), Some(0), "{}", up.process.log());
}

#[tokio::test]
async fn a_workers_status_survives_the_end_of_its_predecessor() {
    let (venue, _dir) = TestVenue::embedded("").await;
    let venue = &venue.venue;
    let of = |since: u64, leaving: bool| -> WorkerRecord {
        let said = json!({"name": "one", "host": "h", "version": "1", "format": 1, "slots": 1, "busy": 0,
            "since": since, "seen": venue.now(), "leaving": leaving});
        serde_json::from_value(said).unwrap()
    };
    let all =
        async || -> Vec<_> { registry::list_workers(venue).await.unwrap().iter().map(|one| one.since.0).collect() };
    let ([before, leaving], after) = ([of(1, false), of(1, true)], of(2, false));
    registry::register(venue, &before).await.unwrap();
    registry::register(venue, &after).await.unwrap();
    assert_eq!(registry::register(venue, &leaving).await.unwrap(), None);
    assert_eq!(all().await, [2]);
    registry::unregister(venue, &leaving).await.unwrap();
    assert_eq!(all().await, [2]);
    // Told to leave meanwhile, it is still the same.
    let whom = DrainTarget { names: vec!["one".into()], host: None };
    registry::drain(venue, &whom, "me").await.unwrap();
    registry::unregister(venue, &after).await.unwrap();
    assert_eq!(all().await, [] as [u64; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_but_an_operator_sees_or_orders_workers() {
    let (venue, _dir) = TestVenue::embedded("[[rule]]\nthen = { text = \"done\" }\n").await;
    let user = boss(&venue.owner);
    for (path, input) in [("v/ops/worker/list", json!({})), ("v/ops/worker/drain", json!({"workers": ["test"]}))] {
        match operate(&venue.venue, &user, path, input).await {
            Err(OpError::Denied(text)) => assert!(text.contains("is for operators alone"), "{text}"),
            other => panic!("{other:?}"),
        }
    }
}
