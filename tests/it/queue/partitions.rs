//! `bus.partitions`: messages for agents spread by their owner over several streams, on a real server.

use crate::support::nats::{NatsServer, fresh_prefix, options, shared};
use async_nats::jetstream;
use futures::TryStreamExt;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use trellis::bus::nats::{NatsBus, NatsOptions};
use trellis::bus::{Bus, Delivery, WhenEmpty, subject};
use trellis::domain::ids::Owner;
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::store::BackendSetting;

/// Something that comes has come by then.
const LIMIT: Duration = Duration::from_mins(1);

const OWNERS: usize = 24;

fn owner(n: usize) -> Owner {
    format!("acme/jo.{n}@x").parse().unwrap()
}

fn part(partitions: usize, owner: &Owner) -> usize {
    subject::partition_of(partitions, &owner.tenant().token(), &owner.user().token())
}

fn task(of: &Owner, id: &str) -> BusMessage {
    let to = MessageAddress::In { owner: of.clone(), agent: "helper".parse().unwrap(), kind: InboundKind::Task };
    BusMessage { to, id: Some(id.to_owned()), body: json!({"input": id}), trace: None }
}

async fn open(options: &NatsOptions) -> NatsBus {
    NatsBus::open(options).await.unwrap()
}

/// As a producer that knows nothing of partitions.
async fn publish_plainly(context: &jetstream::Context, prefix: &str, message: &BusMessage) {
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("Trellis-Id", message.id.clone().unwrap());
    let body = serde_json::to_vec(&message.body).unwrap().into();
    let sent = context.publish_with_headers(subject::for_address(prefix, &message.to), headers, body).await;
    sent.unwrap().await.unwrap();
}

async fn context(url: &str) -> jetstream::Context {
    jetstream::new(async_nats::connect(url).await.unwrap())
}

/// Receives and settles until `n` have come; fewer when they don't come at all.
async fn settle_n(bus: &NatsBus, n: usize) -> Vec<Delivery> {
    let start = Instant::now();
    let mut got = Vec::new();
    while got.len() < n && start.elapsed() < LIMIT {
        let came = bus.receive(n, WhenEmpty::Wait).await.unwrap_or_default();
        for delivery in &came {
            delivery.settle.ack().await;
        }
        got.extend(came);
    }
    got
}

async fn row(bus: &NatsBus) -> Option<BackendSetting> {
    bus.settings().await.unwrap().into_iter().find(|setting| setting.name == "nats partitions")
}

/// Messages of a stream by their subject.
async fn subjects(context: &jetstream::Context, stream: &str) -> BTreeMap<String, usize> {
    let stream = context.get_stream(stream).await.unwrap();
    stream.info_with_subjects(">").await.unwrap().try_collect().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_messages_go_to_the_mapped_partition() {
    let prefix = fresh_prefix();
    let shipped = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/config/nats.conf")).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{shipped}\n{}\n", subject::server_mapping(&prefix, 3))).unwrap();
    let Some(server) = NatsServer::start_as(file.path().to_str().unwrap(), &[]) else { return };
    let bus = open(&NatsOptions { partitions: 3, prefix: prefix.clone(), ..options(&server.url()) }).await;
    let context = context(&server.url()).await;
    for n in 0..OWNERS {
        bus.publish(&task(&owner(n), &format!("ours {n}"))).await.unwrap();
        publish_plainly(&context, &prefix, &task(&owner(n), &format!("theirs {n}"))).await;
    }
    let all = prefix.to_uppercase();
    let mut seen = BTreeSet::new();
    for part in 0..3 {
        let there = subjects(&context, &format!("{all}_PART_{part}")).await;
        assert!(!there.is_empty(), "24 owners and none of them in partition {part}");
        for (subject, count) in there {
            assert_eq!(count, 2, "{subject}: ours and theirs");
            assert!(subject.starts_with(&format!("{prefix}.part.{part}.acme.")), "{subject}");
            seen.insert(subject);
        }
    }
    assert_eq!((seen.len(), subjects(&context, &all).await.len()), (OWNERS, 0));
    let setting = row(&bus).await.unwrap();
    assert_eq!(setting.value, format!("3 streams beside `{all}`; the server spreads as Trellis does"));
    assert_eq!(setting.problem, None);

    let transit = bus.in_transit().await.unwrap();
    let got = settle_n(&bus, 2 * OWNERS).await;
    let ids: BTreeSet<_> = got.iter().map(|delivery| delivery.id.clone().unwrap()).collect();
    assert_eq!((ids.len(), ids), (2 * OWNERS, transit.into_iter().collect()));
    let places: BTreeSet<_> = got.iter().map(|delivery| delivery.sequence).collect();
    assert_eq!(places.len(), got.len(), "ids are made of places");
    // What it spreads otherwise than somebody else's settings say, has no place.
    let one = open(&NatsOptions { partitions: 1, prefix: prefix.clone(), ..options(&server.url()) }).await;
    assert!(row(&one).await.unwrap().problem.unwrap().contains("take the mapping away"));
    let fewer = open(&NatsOptions { partitions: 2, prefix, ..options(&server.url()) }).await;
    let problem = row(&fewer).await.unwrap().problem.unwrap();
    assert!(
        problem.contains("its mapping shall be `mappings = {") && problem.contains("partition(2,1,2)"),
        "{problem}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_mapping_messages_arrive_and_doctor_shows_it() {
    let Some(url) = shared() else { return };
    let options = NatsOptions { partitions: 2, ..options(&url) };
    let bus = open(&options).await;
    let context = context(&url).await;
    publish_plainly(&context, &options.prefix, &task(&owner(1), "theirs")).await;
    bus.publish(&task(&owner(1), "ours")).await.unwrap();
    let ids: BTreeSet<_> = settle_n(&bus, 2).await.into_iter().map(|delivery| delivery.id.unwrap()).collect();
    assert_eq!(ids, BTreeSet::from(["ours".to_owned(), "theirs".to_owned()]));
    let problem = row(&bus).await.unwrap().problem.unwrap();
    assert!(problem.contains(&subject::server_mapping(&options.prefix, 2)), "{problem}");
    let one = open(&NatsOptions { partitions: 1, prefix: fresh_prefix(), ..options }).await;
    assert!(row(&one).await.is_none(), "nobody spreads anything");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_that_are_not_wanted_any_more_are_emptied() {
    let Some(url) = shared() else { return };
    let options = NatsOptions { partitions: 4, ..options(&url) };
    let before = open(&options).await;
    for n in 0..OWNERS {
        before.publish(&task(&owner(n), &format!("e{n}"))).await.unwrap();
    }
    before.close().await;
    let fewer = open(&NatsOptions { partitions: 2, ..options.clone() }).await;
    fewer.publish(&task(&owner(0), "new")).await.unwrap();
    let got = settle_n(&fewer, OWNERS + 1).await;
    assert_eq!(got.iter().filter_map(|delivery| delivery.id.clone()).collect::<BTreeSet<_>>().len(), OWNERS + 1);
    let (all, context) = (options.prefix.to_uppercase(), context(&url).await);
    let setting = row(&fewer).await.unwrap();
    assert!(setting.problem.unwrap().starts_with(&format!("`{all}_PART_3` is only emptied")));
    fewer.close().await;
    for part in [3, 2] {
        let start = Instant::now();
        while !subjects(&context, &format!("{all}_PART_{part}")).await.is_empty() {
            assert!(start.elapsed() < LIMIT, "partition {part} isn't emptied");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        context.delete_stream(format!("{all}_PART_{part}")).await.unwrap();
    }
    let fewer = open(&NatsOptions { partitions: 2, ..options.clone() }).await;
    assert!(row(&fewer).await.unwrap().value.starts_with("2 streams"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_owners_flood_does_not_delay_other_partitions() {
    let Some(url) = shared() else { return };
    for (partitions, is_behind) in [(1, true), (5, false)] {
        let options = NatsOptions { partitions, ..options(&url) };
        let bus = open(&options).await;
        let flood = owner(0);
        let other = (1..OWNERS).map(owner).find(|other| part(5, other) != part(5, &flood)).unwrap();
        let publish = async |n: usize| bus.publish(&task(&flood, &format!("flood {n}"))).await.unwrap();
        futures::future::join_all((0..600).map(publish)).await;
        bus.publish(&task(&other, "mine")).await.unwrap();
        let first = bus.receive(64, WhenEmpty::Wait).await.unwrap();
        let is_there = first.iter().any(|delivery| delivery.owner == other);
        assert_eq!(is_there, !is_behind, "{partitions} partitions, {} messages", first.len());
        // Streams with nothing to give take little from the one that has all.
        bus.receive(64, WhenEmpty::Wait).await.unwrap();
        let third = bus.receive(64, WhenEmpty::Wait).await.unwrap();
        assert!(third.len() >= 56, "{}", third.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_partition_blocks_no_other_and_is_recreated() {
    let Some(url) = shared() else { return };
    let options = NatsOptions { partitions: 2, ..options(&url) };
    let bus = open(&options).await;
    let (all, context) = (options.prefix.to_uppercase(), context(&url).await);
    context.delete_stream(format!("{all}_PART_1")).await.unwrap();
    let [here, gone] = [0, 1].map(|wanted| (0..OWNERS).map(owner).find(|owner| part(2, owner) == wanted).unwrap());
    bus.publish(&task(&here, "here")).await.unwrap();
    assert_eq!(settle_n(&bus, 1).await[0].id.as_deref(), Some("here"));
    // The first finds that there is none, and makes it.
    let start = Instant::now();
    while bus.publish(&task(&gone, "gone")).await.is_err() {
        assert!(start.elapsed() < LIMIT, "it isn't made again");
    }
    assert_eq!(settle_n(&bus, 1).await[0].id.as_deref(), Some("gone"));
}
