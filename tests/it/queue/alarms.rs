//! Alarms of timers on a real NATS server: at their time, one for each timer, each for one listener.

use crate::support::nats::{NatsServer, options, shared};
use futures::StreamExt;
use futures::stream::BoxStream;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::timeout;
use trellis::bus::nats::{BusOpenError, NatsBus, NatsOptions};
use trellis::bus::{Alarm, Alarms, Bus, RingingAlarm};
use trellis::domain::time::Millis;
use trellis::domain::timer::TimerId;
use trellis::process::clock::Clock;

/// Something that comes has come by then.
const LIMIT: Duration = Duration::from_mins(1);

fn now() -> Millis {
    Clock::system().now()
}

fn in_ms(ms: u64) -> Millis {
    now().plus(Duration::from_millis(ms))
}

fn alarm(timer: &str, generation: u64, at: Millis) -> Alarm {
    Alarm { owner: "acme/jo.x".parse().unwrap(), timer: TimerId::from_text(timer), generation, at }
}

async fn open(options: &NatsOptions) -> NatsBus {
    NatsBus::open(options).await.unwrap()
}

async fn next(ringing: &mut BoxStream<'static, RingingAlarm>) -> RingingAlarm {
    timeout(LIMIT, ringing.next()).await.expect("it rings").expect("the connection stands")
}

/// Alarms that the stream has, those to come and those that nobody has settled.
async fn stored(bus: &NatsBus) -> String {
    let settings = bus.settings().await.unwrap();
    settings.into_iter().find(|setting| setting.name == "nats timers").unwrap().value
}

/// The next `n` alarms, by timer; those that mustn't ring would be among them.
async fn rung(ringing: &mut BoxStream<'static, RingingAlarm>, n: usize) -> Vec<Alarm> {
    let mut rang = Vec::new();
    for _ in 0..n {
        let RingingAlarm { alarm, settle } = next(ringing).await;
        settle.ack().await;
        rang.push(alarm);
    }
    rang.sort_by(|a, b| a.timer.as_str().cmp(b.timer.as_str()));
    rang
}

/// Waits until none is left; acknowledgements take a moment.
async fn empty(bus: &NatsBus, ringing: &mut BoxStream<'static, RingingAlarm>) {
    while stored(bus).await.split(' ').next() != Some("0") {
        if let Ok(Some(left)) = timeout(Duration::from_millis(20), ringing.next()).await {
            left.settle.ack().await;
        }
    }
}

/// Alarms by timer.
fn sorted<const N: usize>(mut alarms: [Alarm; N]) -> Vec<Alarm> {
    alarms.sort_by(|a, b| a.timer.as_str().cmp(b.timer.as_str()));
    alarms.into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alarm_rings_at_its_time_or_at_once_if_overdue() {
    let Some(url) = shared() else { return };
    let bus = open(&options(&url)).await;
    let mut ringing = bus.listen_ringing().await.unwrap();
    let set = alarm("t", 3, in_ms(400));
    bus.set(&set).await.unwrap();
    let RingingAlarm { alarm: rang, settle } = next(&mut ringing).await;
    assert_eq!(rang, set);
    assert!(now() >= set.at);
    settle.ack().await;
    let late = alarm("late", 1, Millis(1_000));
    bus.set(&late).await.unwrap();
    let RingingAlarm { alarm: rang, settle } = next(&mut ringing).await;
    assert_eq!(rang, late);
    settle.ack().await;
    empty(&bus, &mut ringing).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alarm_set_again_rings_once_at_the_new_time() {
    let Some(url) = shared() else { return };
    let bus = open(&options(&url)).await;
    let mut ringing = bus.listen_ringing().await.unwrap();
    // Where the machine stands still meanwhile, the first ones ring before they are replaced.
    for _ in 0..10 {
        let (replaced, sooner, later) =
            (alarm("later", 1, in_ms(900)), alarm("sooner", 2, in_ms(700)), alarm("later", 2, in_ms(1_200)));
        bus.set(&alarm("sooner", 1, in_ms(1_500))).await.unwrap();
        bus.set(&replaced).await.unwrap();
        bus.set(&sooner).await.unwrap();
        bus.set(&later).await.unwrap();
        let in_time = now() < replaced.at;
        let marker = alarm("marker", 1, in_ms(2_000));
        bus.set(&marker).await.unwrap();
        let rang = rung(&mut ringing, 3).await;
        if in_time {
            assert_eq!(rang, sorted([sooner, later, marker]));
            return;
        }
        empty(&bus, &mut ringing).await;
    }
    panic!("never replaced in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alarm_taken_back_does_not_ring() {
    let Some(url) = shared() else { return };
    let bus = open(&options(&url)).await;
    let mut ringing = bus.listen_ringing().await.unwrap();
    // Where the machine stands still meanwhile, it rings before it is taken back.
    for _ in 0..10 {
        let (kept, taken) = (alarm("kept", 1, in_ms(600)), alarm("taken", 1, in_ms(600)));
        bus.set(&kept).await.unwrap();
        bus.set(&taken).await.unwrap();
        bus.clear(&taken.owner, &taken.timer).await.unwrap();
        bus.clear(&taken.owner, &TimerId::from_text("unknown")).await.unwrap();
        let in_time = now() < taken.at;
        let marker = alarm("marker", 1, in_ms(900));
        bus.set(&marker).await.unwrap();
        let rang = rung(&mut ringing, 2).await;
        if in_time {
            assert_eq!(rang, sorted([kept, marker]));
            return;
        }
        empty(&bus, &mut ringing).await;
    }
    panic!("never taken back in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alarm_that_nobody_settles_rings_again() {
    let Some(url) = shared() else { return };
    let bus = open(&NatsOptions { ack_wait: Duration::from_millis(500), ..options(&url) }).await;
    let set = alarm("t", 1, now());
    bus.set(&set).await.unwrap();
    let lost = next(&mut bus.listen_ringing().await.unwrap()).await;
    assert_eq!(lost.alarm, set);
    let mut ringing = bus.listen_ringing().await.unwrap();
    let again = next(&mut ringing).await;
    assert_eq!(again.alarm, set);
    again.settle.nak(Duration::ZERO).await;
    let again = next(&mut ringing).await;
    assert_eq!(again.alarm, set);
    again.settle.ack().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_alarm_rings_for_one_of_two_listeners() {
    let Some(url) = shared() else { return };
    let options = options(&url);
    let (one, other) = (open(&options).await, open(&options).await);
    let both = futures::stream::select(one.listen_ringing().await.unwrap(), other.listen_ringing().await.unwrap());
    let at = in_ms(300);
    let set: BTreeSet<String> = (0..50).map(|n| TimerId::from_text(&n.to_string()).to_string()).collect();
    for n in 0..50 {
        one.set(&alarm(&n.to_string(), 1, at)).await.unwrap();
    }
    let rang: Vec<RingingAlarm> = timeout(LIMIT, both.take(50).collect()).await.unwrap();
    let rang: BTreeSet<String> = rang.iter().map(|ringing| ringing.alarm.timer.to_string()).collect();
    assert_eq!(rang, set);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alarm_survives_kills_of_server_and_listener() {
    let Some(mut server) = NatsServer::start() else { return };
    let bus = open(&options(&server.url())).await;
    let mut ringing = bus.listen_ringing().await.unwrap();
    let set = alarm("t", 1, in_ms(1_000));
    bus.set(&set).await.unwrap();
    server.kill();
    assert!(timeout(LIMIT, ringing.next()).await.unwrap().is_none(), "the connection is lost");
    server.restart();
    let mut ringing = loop {
        match bus.listen_ringing().await {
            Ok(ringing) => break ringing,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    assert_eq!(next(&mut ringing).await.alarm, set);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedules_are_for_the_stream_of_timers_alone() {
    let Some(url) = shared() else { return };
    let options = options(&url);
    let context = async_nats::jetstream::new(async_nats::connect(&url).await.unwrap());
    let config = |name: String, subject: &str, schedules: bool| async_nats::jetstream::stream::Config {
        name,
        subjects: vec![format!("{}.{subject}.>", options.prefix)],
        retention: async_nats::jetstream::stream::RetentionPolicy::WorkQueue,
        allow_message_schedules: schedules,
        ..Default::default()
    };
    // One of timers that was made without them is mended.
    context.create_stream(config(format!("{}_TIMERS", options.prefix.to_uppercase()), "sched", false)).await.unwrap();
    let bus = open(&options).await;
    let set = alarm("t", 1, now());
    bus.set(&set).await.unwrap();
    assert_eq!(next(&mut bus.listen_ringing().await.unwrap()).await.alarm, set);
    context.delete_stream(options.prefix.to_uppercase()).await.unwrap();
    context.create_stream(config(options.prefix.to_uppercase(), "in", true)).await.unwrap();
    let error = NatsBus::open(&options).await.err().unwrap();
    assert!(matches!(&error, BusOpenError::Incompatible { .. }), "{error}");
    assert!(error.to_string().contains("`allow_msg_schedules` is true, expected not set"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_no_alarm_are_dropped() {
    let Some(url) = shared() else { return };
    let options = options(&url);
    let bus = open(&options).await;
    let context = async_nats::jetstream::new(async_nats::connect(&url).await.unwrap());
    let timer = TimerId::from_text("t");
    for (subject, body) in [("a.b.c".to_owned(), "{}"), (format!("a.b.{timer}"), "?")] {
        let subject = format!("{}.due.{subject}", options.prefix);
        context.publish(subject, body.into()).await.unwrap().await.unwrap();
    }
    let mut ringing = bus.listen_ringing().await.unwrap();
    let marker = alarm("marker", 1, now());
    bus.set(&marker).await.unwrap();
    assert_eq!(rung(&mut ringing, 1).await, [marker]);
}
