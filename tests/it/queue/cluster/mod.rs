//! The NATS bus on a cluster of three servers that are killed, emptied and paused: nothing that was acknowledged is lost,
//! and everything goes on by itself.

mod fleet;
mod load;
mod tls_and_credentials;

use crate::support::nats::{NatsServer, options};
use crate::support::nats_cluster::NatsCluster;
use futures::StreamExt;
use load::{Load, task};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trellis::bus::nats::{BusOpenError, NatsBus, NatsOptions};
use trellis::bus::{Alarm, Alarms, Bus, BusError, WhenEmpty};
use trellis::domain::message::{BusMessage, MessageAddress};
use trellis::domain::timer::TimerId;
use trellis::process::clock::Clock;
use trellis::store::BackendSetting;

/// Something that comes has come by then.
const LIMIT: Duration = Duration::from_mins(2);

async fn open(options: &NatsOptions) -> NatsBus {
    NatsBus::open(options).await.unwrap()
}

/// Options whose lost deliveries come again soon, and the inbound stream that they make.
fn brief(cluster: &NatsCluster) -> (NatsOptions, String) {
    let options = NatsOptions { ack_wait: Duration::from_secs(3), ..cluster.options() };
    let stream = options.prefix.to_uppercase();
    (options, stream)
}

/// A bus whose first connection is to this server alone; it hears of the others from it.
fn through(options: &NatsOptions, cluster: &NatsCluster, node: usize) -> NatsOptions {
    NatsOptions { url: cluster.nodes[node].url(), ..options.clone() }
}

/// The lines about copies, by stream.
async fn copies(bus: &NatsBus) -> Vec<BackendSetting> {
    let settings = bus.settings().await.unwrap();
    settings.into_iter().filter(|setting| setting.name.starts_with("nats replicas")).collect()
}

/// Waits until `trellis doctor` says this of the inbound stream.
async fn shows(bus: &NatsBus, value: &str, problem: &str) {
    let (name, end) = (format!("nats replicas of {}", bus.prefix().to_uppercase()), Instant::now() + LIMIT);
    loop {
        let shown = bus.settings().await.unwrap_or_default();
        let found = shown.iter().find(|one| one.name == name);
        if found
            .is_some_and(|one| one.value.contains(value) && one.problem.as_ref().is_some_and(|p| p.contains(problem)))
        {
            return;
        }
        assert!(Instant::now() < end, "no `{value}`, `{problem}` in {found:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_starts_make_streams_with_three_replicas() {
    let Some(cluster) = NatsCluster::shared() else { return };
    let options = cluster.options();
    let buses = futures::future::join_all((0..4).map(|_| open(&options))).await;
    let shown = copies(&buses[0]).await;
    assert!(shown[0].value.starts_with("3 of each stream, in cluster `trellis`, by `n"), "{shown:?}");
    let names: BTreeSet<_> = shown[1..].iter().filter_map(|one| one.name.strip_prefix("nats replicas of ")).collect();
    let p = options.prefix.to_uppercase();
    let expected = ["", "_OUT", "_EVENTS", "_LIVE", "_TIMERS", "_JOBS", "_EPOCH", "_PROTECTION", "_JOURNAL"]
        .map(|end| format!("{p}{end}"));
    let consumers = [format!("{p}, consumer `workers`"), format!("{p}_TIMERS, consumer `timers`")];
    assert_eq!(names, expected.iter().chain(&consumers).map(String::as_str).collect());
    for stream in &expected {
        cluster.in_step(stream).await;
    }
    for one in copies(&buses[0]).await.into_iter().skip(1) {
        assert!(one.problem.is_none() && one.value.starts_with("3: n"), "{one:?}");
        assert!(["n0", "n1", "n2"].iter().all(|name| one.value.contains(name)), "{one:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_and_even_replica_counts_are_reported() {
    let Some(cluster) = NatsCluster::shared() else { return };
    for (replicas, words) in [(1, "takes accepted work with it: set `bus.replicas = 3`"), (2, "set an odd number")] {
        let bus = open(&NatsOptions { replicas, ..cluster.options() }).await;
        let shown = copies(&bus).await;
        let name = format!("nats replicas of {}", bus.prefix().to_uppercase());
        let inbound = shown.iter().find(|one| one.name == name).and_then(|one| one.problem.as_deref()).unwrap();
        assert!(inbound.contains(words), "{replicas}: {shown:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_on_a_single_server_are_refused_with_advice() {
    let Some(server) = NatsServer::start() else { return };
    let (one, three) = (options(&server.url()), |options: &NatsOptions| NatsOptions { replicas: 3, ..options.clone() });
    let new = NatsBus::open(&three(&one)).await.err().unwrap();
    open(&one).await.publish(&task("kept")).await.unwrap();
    let existing = NatsBus::open(&three(&one)).await.err().unwrap();
    for error in [new, existing] {
        assert!(matches!(error, BusOpenError::Setup { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("set `bus.replicas = 1`, or run three servers as a cluster"), "{text}");
    }
    assert_eq!(open(&one).await.in_transit().await.unwrap(), ["kept"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_starts_before_its_cluster_waits_for_it() {
    let Some(mut cluster) = NatsCluster::stopped(&[]) else { return };
    cluster.nodes[0].restart();
    let (options, stream) = brief(&cluster);
    let impatient = NatsOptions {
        connect: trellis::process::retry::RetryPolicy { total: Some(Duration::from_secs(2)), ..options.connect },
        ..options.clone()
    };
    let error = NatsBus::open(&impatient).await.err().unwrap();
    assert!(matches!(error, BusOpenError::NotYet { .. }), "{error:?}");
    assert!(error.to_string().contains("most servers of the cluster must be up"), "{error}");
    let opening = tokio::spawn(async move { open(&options).await });
    cluster.nodes[1].restart();
    cluster.nodes[2].restart();
    let bus = tokio::time::timeout(LIMIT, opening).await.expect("it opens").unwrap();
    bus.publish(&task("first")).await.unwrap();
    cluster.in_step(&stream).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_raises_one_replica_to_three_without_loss() {
    let Some(mut cluster) = NatsCluster::start() else { return };
    let (options, stream) = brief(&cluster);
    let single = NatsOptions { replicas: 1, ..options.clone() };
    let bus = open(&single).await;
    for n in 0..100 {
        bus.publish(&task(&format!("e{n}"))).await.unwrap();
    }
    let taken = bus.receive(10, WhenEmpty::Wait).await.unwrap();
    for delivery in &taken {
        delivery.settle.ack().await;
    }
    bus.close().await;
    let bus = open(&options).await;
    cluster.in_step(&stream).await;
    // Who had the only copy is lost with its disk.
    let holder = cluster.leader(&stream).await;
    cluster.nodes[holder].kill();
    cluster.nodes[holder].wipe();
    let mut left: BTreeSet<String> = (0..100).map(|n| format!("e{n}")).collect();
    for delivery in taken {
        left.remove(&delivery.id.unwrap());
    }
    let end = Instant::now() + LIMIT;
    while !left.is_empty() {
        assert!(Instant::now() < end, "lost: {left:?}");
        for delivery in bus.receive(20, WhenEmpty::Wait).await.unwrap_or_default() {
            left.remove(delivery.id.as_ref().unwrap());
            delivery.settle.ack().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_returns_with_or_without_its_disk() {
    let Some(mut cluster) = NatsCluster::start() else { return };
    let (options, stream) = brief(&cluster);
    let watch = open(&options).await;
    cluster.in_step(&stream).await;
    // Its connection stands when the leader dies: nothing tells it.
    let follower = cluster.follower(&stream).await;
    let load = Load::start(open(&through(&options, &cluster, follower)).await);
    load.wait_for_progress(30).await;
    let leader = cluster.leader(&stream).await;
    cluster.nodes[leader].kill();
    load.wait_for_progress(30).await;
    // A worker that starts now isn't held up by what is missing.
    open(&options).await.close().await;
    shows(&watch, &format!("n{leader} is down or "), "1 of 3 are missing or behind, with one more it stops").await;
    cluster.nodes[leader].restart();
    cluster.in_step(&stream).await;
    // And the one that it is connected to, with its disk.
    cluster.nodes[follower].kill();
    cluster.nodes[follower].wipe();
    load.wait_for_progress(30).await;
    cluster.nodes[follower].restart();
    cluster.in_step(&stream).await;
    // What it caught up with is all there is: the two others can't serve without it.
    let other = 3 - leader - follower;
    cluster.nodes[other].kill();
    load.wait_for_progress(30).await;
    load.ends_whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_paused_is_done_without_and_goes_on() {
    let Some(cluster) = NatsCluster::start() else { return };
    let (options, stream) = brief(&cluster);
    open(&options).await;
    cluster.in_step(&stream).await;
    let follower = cluster.follower(&stream).await;
    let load = Load::start(open(&through(&options, &cluster, follower)).await);
    load.wait_for_progress(20).await;
    // Who leads, which no connection tells of; then the one that it is connected to, which only stays silent.
    for paused in [cluster.leader(&stream).await, follower] {
        cluster.nodes[paused].pause(true);
        load.wait_for_progress(20).await;
        cluster.nodes[paused].pause(false);
        load.wait_for_progress(20).await;
        cluster.in_step(&stream).await;
    }
    load.ends_whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishes_fail_without_a_majority_and_recover_with_it() {
    let Some(mut cluster) = NatsCluster::start() else { return };
    let (options, stream) = brief(&cluster);
    let watch = open(&options).await;
    cluster.in_step(&stream).await;
    let load = Load::start(open(&through(&options, &cluster, 0)).await);
    load.wait_for_progress(20).await;
    cluster.nodes[1].kill();
    cluster.nodes[2].kill();
    let error = load.fails(&["nobody takes messages on `", "`: its stream has no leader"]).await;
    assert!(error.starts_with("bus `nats://127.0.0.1:"), "{error}");
    // Some servers of the rest still answer for what they have.
    match watch.settings().await {
        Err(error) => assert!(matches!(error, BusError::Unavailable { .. }), "{error}"),
        Ok(shown) => {
            let problems: Vec<_> = shown.into_iter().filter_map(|one| one.problem).collect();
            let says = |words: &str| problems.iter().any(|problem| problem.contains(words));
            assert!(says("it takes and gives nothing before 2") || says("most of the servers"), "{problems:?}");
        }
    }
    cluster.nodes[1].restart();
    load.wait_for_progress(20).await;
    cluster.nodes[2].restart();
    load.wait_for_progress(20).await;
    cluster.in_step(&stream).await;
    load.ends_whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alarm_rings_although_the_server_that_has_it_is_killed() {
    let Some(mut cluster) = NatsCluster::start() else { return };
    let (options, stream) = brief(&cluster);
    let timers = format!("{stream}_TIMERS");
    open(&options).await;
    cluster.in_step(&timers).await;
    let leader = cluster.leader(&timers).await;
    let bus = Arc::new(open(&through(&options, &cluster, (leader + 1) % 3)).await);
    let mut ringing = bus.listen_ringing().await.unwrap();
    let at = Clock::system().now().plus(Duration::from_secs(3));
    let alarm = Alarm { owner: "acme/ann".parse().unwrap(), timer: TimerId::from_text("t"), generation: 1, at };
    bus.set(&alarm).await.unwrap();
    cluster.nodes[leader].kill();
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(rang) = tokio::time::timeout_at(end.into(), ringing.next()).await.expect("it rings") {
            assert_eq!(rang.alarm, alarm);
            rang.settle.ack().await;
            return;
        }
        // A worker listens anew when it ends.
        while let Err(error) = bus.listen_ringing().await.map(|again| ringing = again) {
            assert!(Instant::now() < end, "{error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_stream_refuses_on_a_cluster_as_on_one_server() {
    let Some(cluster) = NatsCluster::shared() else { return };
    let bus = open(&NatsOptions { max_bytes: 1 << 20, ..cluster.options() }).await;
    let filler = "x".repeat(300_000);
    let end = Instant::now() + LIMIT;
    for n in 0.. {
        let message = BusMessage { body: filler.clone().into(), ..task(&format!("f{n}")) };
        match bus.publish(&message).await {
            Ok(()) => assert!(n < 4 && Instant::now() < end, "it takes more than it may"),
            Err(error) => {
                assert!(
                    matches!(&error, BusError::Refused { reason, .. } if reason.contains("maximum bytes")),
                    "{error}"
                );
                return;
            }
        }
    }
}

/// A job of an external worker fails when the queue refuses it: it mustn't when it is on its way and nobody knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_repeated_in_flight_is_stored_once() {
    let Some(cluster) = NatsCluster::start() else { return };
    let (options, stream) = brief(&cluster);
    let jobs = format!("{stream}_JOBS");
    open(&options).await;
    cluster.in_step(&jobs).await;
    let leader = cluster.leader(&jobs).await;
    let bus = open(&through(&options, &cluster, leader)).await;
    let (queue, owner) = ("words".parse().unwrap(), "acme/ann".parse().unwrap());
    let to = MessageAddress::Job { queue, owner, agent: "clerk".parse().unwrap() };
    let message = BusMessage { to, id: Some("job-1".to_owned()), body: json!({"n": 1}), trace: None };
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    for node in others {
        cluster.nodes[node].pause(true);
    }
    // It stays with the leader, which has nobody to agree with.
    let mut errors = Vec::new();
    for _ in 0..2 {
        let error = bus.publish(&message).await.unwrap_err();
        assert!(matches!(error, BusError::Unavailable { .. }), "{error}");
        errors.push(error.to_string());
    }
    assert!(errors[1].contains("duplicate message id is in process"), "{errors:?}");
    for node in others {
        cluster.nodes[node].pause(false);
    }
    let end = Instant::now() + LIMIT;
    while let Err(error) = bus.publish(&message).await {
        assert!(matches!(error, BusError::Unavailable { .. }) && Instant::now() < end, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    cluster.in_step(&jobs).await;
    let settings = bus.settings().await.unwrap();
    let row = settings.iter().find(|one| one.name.starts_with("nats jobs for external workers")).unwrap();
    assert!(row.value.starts_with("1 waiting or being done"), "{row:?}");
}
