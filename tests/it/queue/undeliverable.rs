//! Messages that nobody can get: the stream doesn't take them, or they are answered and counted.

use crate::recovery::mixed_builds::set_format;
use crate::support::nats::{NatsServer, options};
use crate::support::operate::{boss, operate_once};
use crate::support::venue::TestVenue;
use async_nats::jetstream::{self, consumer::pull, stream};
use futures::StreamExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use trellis::bus::nats::{NatsBus, NatsOptions};
use trellis::domain::format::FORMAT;
use trellis::store::embedded::EmbeddedStore;
use trellis::venue::operation::Caller;
use trellis::venue::upkeep::audit;

const LIMIT: Duration = Duration::from_mins(1);

async fn venue(options: &NatsOptions) -> (TestVenue, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(&dir.path().join("store")).unwrap();
    let bus = Arc::new(NatsBus::open(options).await.unwrap());
    (TestVenue::new(store, bus, dir.path(), "[[rule]]\nthen = { text = \"done\" }\n").await, dir)
}

async fn counted(venue: &TestVenue, n: u64) -> trellis::domain::audit::AuditTotals {
    for _ in 0..600 {
        // The connection may just be gone.
        if let Ok(books) = audit::audit_all(&venue.venue).await
            && books.unreadable >= n
        {
            return books;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not counted within half a minute");
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_messages_are_answered_counted_and_listed() {
    let Some(server) = NatsServer::start() else { return };
    let options = options(&server.url());
    let (venue, _dir) = venue(&options).await;
    venue.worker();
    let client = async_nats::connect(server.url()).await.unwrap();
    let context = jetstream::new(client.clone());
    let inbox = client.new_inbox();
    let mut replies = client.subscribe(inbox.clone()).await.unwrap();
    let body = |to: &str| json!({"input": "x", "replyTo": to}).to_string();
    let p = &options.prefix;
    for (subject, body) in [
        (format!("{p}.in.local.me.%ff.task"), body(&inbox)),
        (format!("{p}.in.%ff.me.a.task"), body(&inbox)),
        // That of a session which can't be one.
        (format!("{p}.in.local.me.a.wake"), json!({"session": 5, "replyTo": inbox, "seal": "00"}).to_string()),
        // Nobody's word goes where others listen.
        (format!("{p}.in.%ff.me.a.message"), body("trellis.reply.acme.ann.x")),
    ] {
        context.publish(subject, body.into()).await.unwrap().await.unwrap();
    }
    let mut reasons = Vec::new();
    for _ in 0..3 {
        let reply = tokio::time::timeout(LIMIT, replies.next()).await.unwrap().unwrap();
        let reply: Value = serde_json::from_slice(&reply.payload).unwrap();
        assert_eq!((&reply["status"], &reply["errorCode"]), (&json!("REJECTED"), &json!("REFUSED")));
        reasons.push(reply["error"].as_str().unwrap().to_owned());
    }
    let about = |part: &str| reasons.iter().filter(|reason| reason.contains(part)).count();
    assert_eq!((about("`%ff` is not percent-encoded text"), about("malformed wake")), (2, 1), "{reasons:?}");
    let books = counted(&venue, 4).await;
    assert_eq!((books.unreadable, books.unaccounted, books.accepted), (4, 0, 0), "{books:?}");
    let known = |line: &String| line.contains("illegal subject") || line.contains("malformed wake");
    assert!(books.unreadable_subjects.iter().all(known), "{books:?}");
    // An operator sees those of nobody, too; a caller of another owner sees none.
    let list = async |caller: &Caller| operate_once(&venue.venue, caller, None, "v/ops/dead/list", json!({})).await;
    let listed = list(&Caller { operator: true, ..boss(&venue.owner) }).await.unwrap();
    assert_eq!(listed["unreadable"]["total"], 4, "{listed}");
    let nobodys = |item: &&Value| item["subject"].as_str().unwrap().contains("in.%ff.me.a.");
    assert_eq!(listed["unreadable"]["items"].as_array().unwrap().iter().filter(nobodys).count(), 2, "{listed}");
    assert_eq!(list(&boss(&"acme/ann".parse().unwrap())).await.unwrap()["unreadable"]["total"], 0);
    let listed = list(&boss(&venue.owner)).await.unwrap();
    let own = &listed["unreadable"];
    assert_eq!(own["total"], 2, "{listed}");
    for item in own["items"].as_array().unwrap() {
        assert_eq!(item["told"], json!(["completions", inbox]), "{listed}");
        let body = item["body"].as_str().unwrap();
        assert!(body.contains("replyTo") && !body.contains(r#""seal":"00""#), "{listed}");
    }
    // Completions have it, too; and none of it makes owners.
    let out = context.get_stream(format!("{}_OUT", p.to_uppercase())).await.unwrap();
    let mut told = Vec::new();
    for at in 1..=2 {
        told.push(out.get_raw_message(at).await.unwrap().subject.to_string());
    }
    for agent in ["%25ff", "a"] {
        assert!(told.iter().any(|told| told.starts_with(&format!("{p}.out.local.me.{agent}."))), "{told:?}");
    }
    let owners = venue.venue.store.owners(None, 100).await.unwrap();
    assert_eq!(owners.iter().filter(|owner| !trellis::venue::is_reserved(owner)).count(), 0, "{owners:?}");
    assert!(venue.venue.bus.in_transit().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_stream_is_upgraded_and_its_messages_handled() {
    let Some(server) = NatsServer::start() else { return };
    let options = options(&server.url());
    let context = jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let p = options.prefix.clone();
    let old = stream::Config {
        name: p.to_uppercase(),
        subjects: vec![format!("{p}.in.>")],
        retention: stream::RetentionPolicy::WorkQueue,
        discard: stream::DiscardPolicy::New,
        duplicate_window: Duration::from_millis(100),
        ..stream::Config::default()
    };
    let old = context.create_stream(old).await.unwrap();
    let workers = pull::Config {
        durable_name: Some("workers".into()),
        filter_subject: format!("{p}.in.>"),
        ack_wait: options.ack_wait,
        max_ack_pending: 100_000,
        max_waiting: 4096,
        ..pull::Config::default()
    };
    old.create_consumer(workers).await.unwrap();
    for end in ["local.me.a.tasks", "local.me.b.task"] {
        context
            .publish(format!("{p}.in.{end}"), json!({"input": "x"}).to_string().into())
            .await
            .unwrap()
            .await
            .unwrap();
    }
    let (venue, _dir) = venue(&options).await;
    venue.agent("b", json!({})).await;
    let settings = venue.venue.bus.settings().await.unwrap();
    let subjects = settings.iter().find(|setting| setting.name == "nats inbound subjects").unwrap();
    assert!(subjects.problem.is_none() && subjects.value.contains(&format!("{p}.in.*.*.*.task")), "{subjects:?}");
    assert!(context.publish(format!("{p}.in.local.me.b.tasks"), "{}".into()).await.unwrap().await.is_err());
    venue.worker();
    let books = counted(&venue, 1).await;
    assert!(books.unreadable_subjects[0].contains("got the kind `tasks`"), "{books:?}");
    for _ in 0..600 {
        if audit::audit_all(&venue.venue).await.unwrap().completed == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the task that lay in it isn't done");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_newer_build_stay_in_the_stream() {
    let Some(server) = NatsServer::start() else { return };
    let options = options(&server.url());
    let (venue, _dir) = venue(&options).await;
    let p = &options.prefix;
    set_format(&*venue.venue.store, FORMAT + 1).await;
    // The newer build has a subject more.
    let context = jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let stream = async || context.get_stream(p.to_uppercase()).await.unwrap();
    let mut newer = stream().await.cached_info().config.clone();
    newer.subjects.push(format!("{p}.in.*.*.*.fork"));
    context.update_stream(&newer).await.unwrap();
    drop(NatsBus::open(&options).await.unwrap());
    assert_eq!(stream().await.cached_info().config.subjects, newer.subjects, "an older one that starts keeps it");
    let settings = venue.venue.bus.settings().await.unwrap();
    let subjects = settings.iter().find(|setting| setting.name == "nats inbound subjects").unwrap();
    assert!(subjects.problem.is_none(), "{subjects:?}");
    for (agent, body) in [("a", r#"{"of": "it"}"#), ("b", "{")] {
        context.publish(format!("{p}.in.local.me.{agent}.fork"), body.into()).await.unwrap().await.unwrap();
    }
    venue.worker();
    let books = counted(&venue, 1).await;
    assert!(books.unreadable_subjects[0].contains(".b.fork"), "{books:?}");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(counted(&venue, 1).await.unreadable, 1);
    assert_eq!(stream().await.cached_info().state.messages, 1);
    set_format(&*venue.venue.store, FORMAT).await;
    assert_eq!(counted(&venue, 2).await.unreadable, 2);
}

/// A message with headers as they come, over a connection of its own that no driver makes legal.
async fn publish_raw(url: &str, messages: &[(String, Vec<u8>)]) {
    let address = url.trim_start_matches("nats://").to_owned();
    let mut wire = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut bytes = b"CONNECT {\"verbose\":false,\"headers\":true}\r\n".to_vec();
    for (subject, headers) in messages {
        let length = headers.len();
        bytes.extend(format!("HPUB {subject} {length} {}\r\n", length + 2).into_bytes());
        bytes.extend_from_slice(headers);
        bytes.extend_from_slice(b"{}\r\n");
    }
    bytes.extend_from_slice(b"PING\r\n");
    wire.write_all(&bytes).await.unwrap();
    let mut got = Vec::new();
    while !got.ends_with(b"PONG\r\n") {
        assert_ne!(wire.read_buf(&mut got).await.unwrap(), 0, "{}", String::from_utf8_lossy(&got));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_break_connections_are_set_aside() {
    const EACH: usize = 100;
    let Some(server) = NatsServer::start() else { return };
    let options = NatsOptions { ack_wait: Duration::from_secs(2), ..options(&server.url()) };
    let (venue, _dir) = venue(&options).await;
    venue.agent("b", json!({})).await;
    let client = async_nats::connect(server.url()).await.unwrap();
    let context = jetstream::new(client.clone());
    let kinds: [&[u8]; 4] = [
        b"NATS/2.0\r\nTrellis-Id: p\r\n\r\n",
        b"NATS/1.0\r\nno colon\r\n\r\n",
        b"NATS/1.0\r\nTrellis-Id: \xff\r\n\r\n",
        // The driver panics at it.
        b"NATS/1.0\r\nX: a\rb\r\n\r\n",
    ];
    let subject = format!("{}.in.local.me.b.task", options.prefix);
    let broken: Vec<_> = (0..EACH).flat_map(|_| kinds).map(|headers| (subject.clone(), headers.to_vec())).collect();
    let task = |id: &str| {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Trellis-Id", id);
        context.publish_with_headers(subject.clone(), headers, json!({"input": id}).to_string().into())
    };
    task("before").await.unwrap().await.unwrap();
    publish_raw(&server.url(), &broken).await;
    task("after").await.unwrap().await.unwrap();
    assert_eq!(venue.venue.bus.in_transit().await.unwrap(), ["before", "after"], "the audit reads past them");
    venue.worker();
    let books = counted(&venue, broken.len() as u64).await;
    assert_eq!((books.unreadable, books.unaccounted), (broken.len() as u64, 0), "{books:?}");
    let listed = operate_once(&venue.venue, &boss(&venue.owner), None, "v/ops/dead/list", json!({})).await.unwrap();
    let reason = listed["unreadable"]["items"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("expected `NATS/1.0`") || reason.contains("header"), "{listed}");
    for _ in 0..600 {
        let stream = context.get_stream(options.prefix.to_uppercase()).await.unwrap();
        if audit::audit_all(&venue.venue).await.is_ok_and(|books| books.completed == 2)
            && stream.cached_info().state.messages == 0
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the tasks beside them aren't done, or some of them are still there");
}
