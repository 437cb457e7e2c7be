//! The NATS bus on a real server: what only this backend has.

use crate::support::nats::{NatsServer, options, shared};
use async_nats::jetstream::context::PublishErrorKind;
use bytes::Bytes;
use futures::StreamExt;
use serde_json::json;
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};
use trellis::bus::{
    Bus, BusError, Delivery, LiveSubject, Signal, WhenEmpty,
    nats::{BusOpenError, NatsBus, NatsOptions},
};
use trellis::domain::ids::{AgentId, Owner};
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};

fn owner() -> Owner {
    "acme/jo.x".parse().unwrap()
}

fn agent() -> AgentId {
    AgentId::new("helper").unwrap()
}

fn task(id: &str) -> BusMessage {
    let to = MessageAddress::In { owner: owner(), agent: agent(), kind: InboundKind::Task };
    BusMessage { to, id: Some(id.to_owned()), body: json!({"input": id}) }
}

async fn open(options: &NatsOptions) -> NatsBus {
    NatsBus::open(options).await.unwrap()
}

/// Something that comes has come by then.
const LIMIT: Duration = Duration::from_mins(1);

/// Receives until `n` messages came; fewer when they don't come at all.
async fn receive_n(bus: &NatsBus, n: usize) -> Vec<Delivery> {
    let start = Instant::now();
    let mut got = Vec::new();
    while got.len() < n && start.elapsed() < LIMIT {
        got.extend(bus.receive(n - got.len(), WhenEmpty::Wait).await.unwrap_or_default());
    }
    got
}

fn ids(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|delivery| delivery.id.as_deref().unwrap_or("-")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_arrive_with_metadata_and_within_the_limit() {
    let Some(url) = shared() else { return };
    // Who waits would come back with nothing, were the message not brought to it.
    let bus = Arc::new(open(&NatsOptions { poll: LIMIT, ..options(&url) }).await);
    let waiting = Arc::clone(&bus);
    let first = tokio::spawn(async move { waiting.receive(8, WhenEmpty::Wait).await.unwrap() });
    tokio::time::sleep(Duration::from_millis(100)).await;
    bus.publish(&task("e1")).await.unwrap();
    let got = first.await.unwrap();
    let delivery = &got[0];
    assert_eq!((&delivery.owner, &delivery.agent, delivery.kind), (&owner(), &agent(), InboundKind::Task));
    assert_eq!((delivery.id.as_deref(), delivery.delivered), (Some("e1"), 1));
    assert_eq!(&delivery.body[..], br#"{"input":"e1"}"#);
    let now = trellis::process::clock::Clock::system().now();
    assert!(now.elapsed_since(delivery.published) < LIMIT * 2 && delivery.published <= now);
    for n in 0..5 {
        bus.publish(&task(&format!("m{n}"))).await.unwrap();
    }
    let two = receive_n(&bus, 2).await;
    assert_eq!(ids(&two), ["m0", "m1"]);
    let other = open(&NatsOptions { prefix: prefix_of(&bus), ..options(&url) }).await;
    assert_eq!(ids(&receive_n(&other, 3).await), ["m2", "m3", "m4"], "nothing was prefetched");
}

fn prefix_of(bus: &NatsBus) -> String {
    bus.prefix().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redelivery_comes_after_the_ack_wait_unless_in_progress() {
    let Some(url) = shared() else { return };
    let bus = open(&NatsOptions { ack_wait: Duration::from_millis(600), ..options(&url) }).await;
    let mut came = Vec::new();
    // Where the machine stands still between two of them, progress comes too late.
    for n in 0..10 {
        let (lost, kept) = (format!("lost-{n}"), format!("kept-{n}"));
        bus.publish(&task(&lost)).await.unwrap();
        bus.publish(&task(&kept)).await.unwrap();
        let first = receive_n(&bus, 2).await;
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(200)).await;
            first[1].settle.progress().await;
        }
        let again = receive_n(&bus, 1).await;
        for delivery in first.iter().chain(&again) {
            delivery.settle.ack().await;
        }
        let right = ids(&first) == [&lost, &kept] && ids(&again) == [&lost] && again[0].delivered == 2;
        came.push((lost, again[0].id.clone(), again[0].delivered));
        let end = Instant::now() + LIMIT;
        while !bus.in_transit().await.unwrap().is_empty() {
            assert!(Instant::now() < end, "all were acknowledged");
            for late in bus.receive(4, WhenEmpty::Wait).await.unwrap_or_default() {
                late.settle.ack().await;
            }
        }
        if right {
            return;
        }
    }
    panic!("what came again: {came:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nak_puts_a_message_off_by_its_delay() {
    let Some(url) = shared() else { return };
    let bus = open(&options(&url)).await;
    for (id, delay) in [("soon", Duration::ZERO), ("later", Duration::from_millis(400))] {
        bus.publish(&task(id)).await.unwrap();
        let start = Instant::now();
        receive_n(&bus, 1).await[0].settle.nak(delay).await;
        let again = receive_n(&bus, 1).await;
        assert_eq!((ids(&again), again[0].delivered), (vec![id], 2));
        let took = start.elapsed();
        assert!(took >= delay, "{id}: {took:?}");
        again[0].settle.ack().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbound_message_published_twice_is_stored_once() {
    let Some(url) = shared() else { return };
    let options = options(&url);
    let bus = open(&options).await;
    let to = MessageAddress::Out { owner: owner(), agent: agent(), job: "j1".to_owned() };
    let message = BusMessage { to, id: Some("out-1".to_owned()), body: json!({"status": "COMPLETE"}) };
    bus.publish(&message).await.unwrap();
    bus.publish(&message).await.unwrap();
    let client = async_nats::connect(&url).await.unwrap();
    let name = format!("{}_OUT", options.prefix.to_uppercase());
    let stream = async_nats::jetstream::new(client).get_stream(name).await.unwrap();
    assert_eq!(stream.cached_info().state.messages, 1);
    let stored = stream.get_raw_message(1).await.unwrap();
    assert_eq!(stored.subject.as_str(), format!("{}.out.acme.jo%2Ex.helper.j1", options.prefix));
    assert_eq!(stored.headers.get("Trellis-Id").unwrap().as_str(), "out-1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_and_signals_reach_who_listens() {
    let Some(url) = shared() else { return };
    let options = options(&url);
    let (bus, other) = (open(&options).await, open(&options).await);
    let mut one = other.listen(&LiveSubject::Control(owner())).await.unwrap();
    let mut all = other.listen_control().await.unwrap();
    bus.signal(&LiveSubject::Control(owner()), Bytes::from_static(b"job")).await.unwrap();
    let got = tokio::time::timeout(LIMIT, one.next()).await.unwrap();
    assert_eq!(got.as_deref(), Some(&b"job"[..]));
    let got = tokio::time::timeout(LIMIT, all.next()).await.unwrap();
    assert_eq!(got, Some(Signal { owner: owner(), body: Bytes::from_static(b"job") }));
    let client = async_nats::connect(&url).await.unwrap();
    let inbox = client.new_inbox();
    let mut replies = client.subscribe(inbox.clone()).await.unwrap();
    client.request("$JS.API.INFO", Bytes::new()).await.unwrap();
    let message =
        BusMessage { to: MessageAddress::Reply(inbox), id: Some("r".to_owned()), body: json!({"status": "FAILED"}) };
    bus.publish(&message).await.unwrap();
    let reply = tokio::time::timeout(LIMIT, replies.next()).await.unwrap().unwrap();
    assert_eq!(&reply.payload[..], br#"{"status":"FAILED"}"#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_any_client_are_read_or_set_aside() {
    let Some(url) = shared() else { return };
    let options = options(&url);
    let bus = open(&options).await;
    let context = async_nats::jetstream::new(async_nats::connect(&url).await.unwrap());
    let p = &options.prefix;
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("Trellis-Id", "by-hand");
    for end in ["t.u.a.tusk", "t.u.task", "t.u.a.b.task", "t.u.a.tasks", "t.u.a.Task", "t.u.a"] {
        let sent = context.publish(format!("{p}.in.{end}"), "{}".into()).await.unwrap().await;
        assert_eq!(sent.unwrap_err().kind(), PublishErrorKind::StreamNotFound, "{end}: no acknowledgement");
    }
    for agent in ["%ff", "%2"] {
        context.publish(format!("{p}.in.t.u.{agent}.task"), "{}".into()).await.unwrap().await.unwrap();
    }
    context.publish_with_headers(format!("{p}.in.t.u.a.message"), headers, "hi".into()).await.unwrap().await.unwrap();
    context.publish(format!("{p}.in.t.u.a.wake"), "{}".into()).await.unwrap().await.unwrap();
    assert_eq!(bus.in_transit().await.unwrap(), ["by-hand"]);
    let got = receive_n(&bus, 2).await;
    assert_eq!(ids(&got), ["by-hand", "-"]);
    assert_eq!((got[0].kind, got[1].kind), (InboundKind::Message, InboundKind::Wake));
    assert_eq!(options.metrics.messages_unreadable.get(), 2);
    let aside = bus.take_unreadable();
    assert_eq!(
        aside.iter().map(|message| message.owner.clone()).collect::<Vec<_>>(),
        vec![Some("t/u".parse().unwrap()); 2]
    );
    assert!(aside[0].reason.contains("`%ff` is not percent-encoded text") && bus.take_unreadable().is_empty());
    for message in &aside {
        message.settle.ack().await;
    }
    got[0].settle.nak(Duration::ZERO).await;
    let again = receive_n(&bus, 1).await;
    assert_eq!(ids(&again), ["by-hand"], "what was seen to doesn't come back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_stream_and_an_oversized_message_are_refused() {
    let Some(url) = shared() else { return };
    let bus = open(&NatsOptions { max_bytes: 1 << 20, ..options(&url) }).await;
    let filler = "x".repeat(300_000);
    let mut refused = None;
    for n in 0..5 {
        let message = BusMessage { body: json!(filler), ..task(&format!("f{n}")) };
        if let Err(error) = bus.publish(&message).await {
            refused = Some((n, error));
            break;
        }
    }
    let (n, error) = refused.unwrap();
    assert!(n == 3 && matches!(error, BusError::Refused { .. }), "{n}: {error}");
    let long = BusMessage { body: json!("x".repeat(2 << 20)), ..task("long") };
    let error = bus.publish(&long).await.unwrap_err();
    assert!(matches!(&error, BusError::TooLarge { reason, .. } if reason.contains("max_payload")), "{error}");
    assert_eq!(bus.in_transit().await.unwrap(), ["f0", "f1", "f2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reopening_updates_settings_and_refuses_a_foreign_stream() {
    let Some(url) = shared() else { return };
    let first = options(&url);
    open(&first).await.publish(&task("kept")).await.unwrap();
    let longer = NatsOptions { out_max_age: Duration::from_secs(7), ack_wait: Duration::from_secs(9), ..first.clone() };
    let bus = open(&longer).await;
    assert_eq!(ids(&receive_n(&bus, 1).await), ["kept"]);
    let foreign = options(&url);
    let context = async_nats::jetstream::new(async_nats::connect(&url).await.unwrap());
    let name = foreign.prefix.to_uppercase();
    let config = async_nats::jetstream::stream::Config { name: name.clone(), max_bytes: 1 << 20, ..Default::default() };
    context.create_stream(config).await.unwrap();
    let error = NatsBus::open(&foreign).await.err().unwrap();
    assert!(matches!(&error, BusOpenError::Incompatible { .. }), "{error}");
    assert!(error.to_string().contains("`retention` is \"limits\", expected \"workqueue\""), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_streams_and_consumers_are_made_again() {
    let Some(url) = shared() else { return };
    let options = options(&url);
    let bus = open(&options).await;
    let name = options.prefix.to_uppercase();
    let context = async_nats::jetstream::new(async_nats::connect(&url).await.unwrap());
    context.delete_consumer_from_stream("workers", &name).await.unwrap();
    bus.publish(&task("e1")).await.unwrap();
    assert_eq!(ids(&receive_n(&bus, 1).await), ["e1"]);
    assert_eq!(streams_made_again(&bus).await, Vec::<String>::new());
    tokio::time::sleep(Duration::from_secs(1)).await;
    context.delete_stream(&name).await.unwrap();
    let error = bus.publish(&task("e2")).await.unwrap_err();
    assert!(matches!(&error, BusError::Unavailable { .. }), "{error}");
    bus.publish(&task("e2")).await.unwrap();
    assert_eq!(ids(&receive_n(&bus, 1).await), ["e2"]);
    let told = [format!("nats stream made again of {name}")];
    assert_eq!(streams_made_again(&bus).await, told);
    // A later process knows it by the stream, also after another look and another start.
    let reader = open(&NatsOptions { reads_only: true, ..options.clone() }).await;
    assert_eq!(streams_made_again(&reader).await, told);
    assert_eq!(streams_made_again(&open(&options).await).await, told);
}

/// Streams of which `trellis doctor` says that they were made again.
async fn streams_made_again(bus: &NatsBus) -> Vec<String> {
    let all = bus.settings().await.unwrap().into_iter();
    all.map(|setting| setting.name).filter(|name| name.starts_with("nats stream made again")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_janitor_removes_nothing_that_is_not_acknowledged() {
    let Some(url) = shared() else { return };
    let bus = open(&options(&url)).await;
    for id in ["a", "b", "c"] {
        bus.publish(&task(id)).await.unwrap();
    }
    let got = receive_n(&bus, 3).await;
    got[0].settle.ack().await;
    got[2].settle.ack().await;
    bus.remove_stuck().await.unwrap();
    assert_eq!(bus.in_transit().await.unwrap(), ["b"]);
    got[1].settle.ack().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receive_that_is_given_up_loses_no_message() {
    let Some(url) = shared() else { return };
    let bus = open(&options(&url)).await;
    let mut came = BTreeSet::new();
    for n in 0..40 {
        bus.publish(&task(&format!("m{n}"))).await.unwrap();
        // Given up at every possible point of the two round trips.
        let limit = Duration::from_micros(n * 25);
        for delivery in
            tokio::time::timeout(limit, bus.receive(4, WhenEmpty::Wait)).await.unwrap_or(Ok(vec![])).unwrap()
        {
            came.insert(delivery.id.clone());
            delivery.settle.ack().await;
        }
    }
    let start = Instant::now();
    while came.len() < 40 && start.elapsed() < LIMIT {
        for delivery in bus.receive(8, WhenEmpty::Wait).await.unwrap_or_default() {
            came.insert(delivery.id.clone());
            delivery.settle.ack().await;
        }
    }
    assert_eq!(came.len(), 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_unstarted_at_close_go_to_another_worker_at_once() {
    let Some(url) = shared() else { return };
    // Long enough that the request has reached the server, and the message the worker.
    for pause in [50, 500, 5_000] {
        let pause = Duration::from_millis(pause);
        let options = NatsOptions { poll: LIMIT, ..options(&url) };
        let (one, other) = (open(&options).await, open(&options).await);
        let given_up = tokio::time::timeout(pause, one.receive(4, WhenEmpty::Wait)).await;
        assert!(given_up.is_err(), "nothing is there yet");
        other.publish(&task("e1")).await.unwrap();
        tokio::time::sleep(pause).await;
        one.close().await;
        let got = receive_n(&other, 1).await;
        assert_eq!(ids(&got), ["e1"]);
        if got[0].delivered == 2 {
            return;
        }
    }
    panic!("the closing worker never took it");
}

/// The driver waits for a server for ever, and a process that was told to stop would, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bus_closes_without_its_server() {
    let Some(mut server) = NatsServer::start() else { return };
    let bus = open(&options(&server.url())).await;
    bus.publish(&task("e1")).await.unwrap();
    let taken = receive_n(&bus, 1).await;
    server.kill();
    taken[0].settle.ack().await;
    tokio::time::timeout(LIMIT, bus.close()).await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_name_the_version_and_what_is_not_guaranteed() {
    let Some(url) = shared() else { return };
    let bus = open(&options(&url)).await;
    let settings = bus.settings().await.unwrap();
    let value = |name: &str| settings.iter().find(|setting| setting.name == name).map(|s| s.value.as_str());
    assert!(value("nats version").is_some_and(|version| version.starts_with("2.")), "{settings:?}");
    let limit = "1048576 bytes; a completion with a larger output names its job";
    assert_eq!(value("nats max_payload"), Some(limit), "config/nats.conf sets it");
    assert!(value("nats replicas").is_some_and(|replicas| replicas.starts_with('1')));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_server_is_one_clear_error_without_credentials() {
    let options = NatsOptions {
        connect: trellis::process::retry::RetryPolicy {
            total: Some(Duration::from_millis(200)),
            ..trellis::process::retry::RetryPolicy::CONNECT
        },
        ..options("nats://user:secret@127.0.0.1:1")
    };
    let error = NatsBus::open(&options).await.err().unwrap().to_string();
    assert!(error.starts_with("can't connect to NATS at `nats://***@127.0.0.1:1`: "), "{error}");
    assert!(error.contains("refused") && !error.contains("secret"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_credentials_are_refused_at_once_and_right_ones_work() {
    let Some(server) = NatsServer::start_with(&["--user", "u", "--pass", "r@ght"]) else { return };
    let patient = trellis::process::retry::RetryPolicy { total: None, ..trellis::process::retry::RetryPolicy::CONNECT };
    let with = |password: &str| NatsOptions {
        connect: patient,
        ..options(&server.url().replace("//", &format!("//u:{password}@")))
    };
    let wrong = with("wrong");
    let refused = tokio::time::timeout(LIMIT, NatsBus::open(&wrong)).await.expect("it isn't tried for ever");
    let error = refused.err().unwrap().to_string();
    assert!(error.contains("authorization violation") && !error.contains("wrong"), "{error}");
    open(&with("r%40ght")).await.publish(&task("e1")).await.unwrap();
}

/// What was acknowledged to the producer is delivered although the server is killed meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let Some(mut server) = NatsServer::start() else { return };
    let bus = Arc::new(open(&NatsOptions { ack_wait: Duration::from_secs(1), ..options(&server.url()) }).await);
    let producer = Arc::clone(&bus);
    let accepted = tokio::spawn(async move {
        let mut accepted = BTreeSet::new();
        for n in 0..400 {
            let id = format!("e{n}");
            // As an outbox does: again under the same id until it is acknowledged.
            while let Err(error) = producer.publish(&task(&id)).await {
                assert!(matches!(error, BusError::Unavailable { .. }), "{error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            accepted.insert(id);
        }
        accepted
    });
    let consumer = Arc::clone(&bus);
    let finished = tokio_util::sync::CancellationToken::new();
    let done = finished.clone();
    let taken = tokio::spawn(async move {
        let mut taken = BTreeSet::new();
        while !done.is_cancelled() || taken.len() < 400 {
            for delivery in consumer.receive(8, WhenEmpty::Wait).await.unwrap_or_default() {
                taken.insert(delivery.id.clone().unwrap());
                delivery.settle.ack().await;
            }
        }
        taken
    });
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(60)).await;
        server.kill();
        tokio::time::sleep(Duration::from_millis(50)).await;
        server.restart();
    }
    let accepted = tokio::time::timeout(Duration::from_mins(1), accepted).await.unwrap().unwrap();
    finished.cancel();
    let taken = tokio::time::timeout(Duration::from_mins(1), taken).await.unwrap().unwrap();
    assert_eq!(accepted.difference(&taken).count(), 0);
    assert_eq!(accepted.len(), 400);
}

/// Passes bytes on to a server; the first connection is cut when it asks for a stream.
async fn cutting_proxy(to: String) -> std::net::SocketAddr {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut first = true;
        while let Ok((client, _)) = listener.accept().await {
            let server = tokio::net::TcpStream::connect(&to).await.unwrap();
            let ((mut from, mut back), (mut answers, mut on)) = (client.into_split(), server.into_split());
            let answering = tokio::spawn(async move { copy(&mut answers, &mut back).await });
            let cut = std::mem::take(&mut first);
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                while let Ok(n @ 1..) = from.read(&mut bytes).await {
                    if cut && String::from_utf8_lossy(&bytes[..n]).contains("$JS.API") {
                        break;
                    }
                    on.write_all(&bytes[..n]).await.unwrap();
                }
                answering.abort();
            });
        }
    });
    address
}

#[tokio::test]
async fn a_server_that_dies_while_the_streams_are_made_is_waited_for() {
    let Some(url) = shared() else { return };
    let mut took = Vec::new();
    // A busy machine may be slow, but not each time.
    for _ in 0..5 {
        let proxy = cutting_proxy(url.trim_start_matches("nats://").to_owned()).await;
        let start = Instant::now();
        NatsBus::open(&options(&format!("nats://{proxy}"))).await.unwrap();
        took.push(start.elapsed());
        if start.elapsed() < Duration::from_secs(4) {
            return;
        }
    }
    panic!("it waited for an answer that could not come: {took:?}");
}
