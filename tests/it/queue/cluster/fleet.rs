//! Workers and an API as operators run them, on a cluster whose servers are killed while tasks come and run.

use super::LIMIT;
use crate::support::cli::run;
use crate::support::fleet::Fleet;
use crate::support::nats_cluster::NatsCluster;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use trellis::bus::Bus;
use trellis::bus::nats::{NatsBus, NatsOptions};
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};

const TASKS: u64 = 60;

/// Publishes a task as any producer would: again until it is acknowledged.
async fn submit(bus: &NatsBus, n: u64) {
    let to = MessageAddress::In {
        owner: "local/me".parse().unwrap(),
        agent: "slow".parse().unwrap(),
        kind: InboundKind::Task,
    };
    let message = BusMessage { to, id: Some(format!("t{n}")), body: json!({"input": n}), trace: None };
    let end = Instant::now() + LIMIT;
    while let Err(error) = bus.publish(&message).await {
        assert!(Instant::now() < end, "t{n}: {error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_end_once_while_the_servers_that_have_them_are_killed() {
    let Some(mut cluster) = NatsCluster::start() else { return };
    let Some(fleet) = Fleet::on_shared_redis(cluster.url()) else { return };
    let file = fleet.path().join("fleet.toml");
    let text = std::fs::read_to_string(&file).unwrap().replace("[bus]\n", "[bus]\nreplicas = 3\n");
    std::fs::write(&file, text + "[worker]\nlease = \"3s\"\n").unwrap();
    fleet.slow_agent("slow", 200);
    let (worker, serve, url) = fleet.start_all();
    let mut other = fleet.start("worker");
    other.says("worker `");
    run(fleet.path(), &["agent", "apply", "slow.toml", "--url", &url]).ok();
    let stream = fleet.prefix.to_uppercase();
    cluster.in_step(&stream).await;
    let bus = NatsBus::open(&NatsOptions { prefix: fleet.prefix.clone(), ..cluster.options() }).await.unwrap();
    for n in 0..TASKS {
        submit(&bus, n).await;
        // Two servers after each other, while tasks wait, run and end.
        if n == TASKS / 3 || n == 2 * TASKS / 3 {
            let leader = cluster.leader(&stream).await;
            cluster.nodes[leader].kill();
            submit(&bus, n).await;
            cluster.nodes[leader].restart();
            cluster.in_step(&stream).await;
        }
    }
    let end = Instant::now() + LIMIT;
    let books = loop {
        // A command doesn't wait long for a cluster that is busy with itself.
        let told = fleet.run(&["audit", "--output", "json"]);
        let books = serde_json::from_str::<Value>(&told.out).unwrap_or_else(|_| json!(told.err));
        if books["completed"] == TASKS {
            break books;
        }
        assert!(Instant::now() < end, "{books}: {}", worker.log());
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    assert_eq!([&books["accepted"], &books["failed"], &books["unaccounted"]], [&json!(TASKS), &json!(0), &json!(0)]);
    for mut process in [worker, other, serve] {
        process.signal("TERM");
        assert_eq!(process.ended().code(), Some(0), "{}", process.log());
    }
}
