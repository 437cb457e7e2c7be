//! The cases.

use super::Fixture;
use bytes::Bytes;
use futures::StreamExt;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use trellis::bus::{Bus, Delivery, LivePiece, LiveSubject, RECEIVE_BYTES, WhenEmpty};
use trellis::domain::ids::{JobId, Owner};
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::process::clock::Clock;

/// Short, so that redelivery can be waited for.
const ACK_WAIT: Duration = Duration::from_millis(500);
/// Long, so that a machine that stands still brings no redelivery that nobody waits for.
const NO_REDELIVERY: Duration = Duration::from_mins(10);
/// Cases about redelivery.
const REDELIVERED: [&str; 5] = [
    "an_acknowledged_message_is_gone",
    "an_unsettled_message_comes_again",
    "progress_starts_the_ack_wait_again",
    "a_wake_arrives",
    "accepted_messages_survive_a_restart",
];
/// Something that comes has come by then.
const LIMIT: Duration = Duration::from_mins(1);
/// Something that would come again has come by then, mostly.
const QUIET: Duration = Duration::from_millis(900);

/// The ack wait of a case.
pub fn ack_wait(case: &str) -> Duration {
    if REDELIVERED.contains(&case) { ACK_WAIT } else { NO_REDELIVERY }
}

fn owner() -> Owner {
    "acme/jo.x".parse().unwrap()
}

fn incoming(kind: InboundKind, id: &str) -> BusMessage {
    let to = MessageAddress::In { owner: owner(), agent: "help*er".parse().unwrap(), kind };
    BusMessage { to, id: Some(id.to_owned()), body: json!({"input": id}), trace: None }
}

fn task(id: &str) -> BusMessage {
    incoming(InboundKind::Task, id)
}

/// Receives until `n` messages came; fewer when they don't come at all.
async fn receive(bus: &dyn Bus, n: usize) -> Vec<Delivery> {
    let start = Instant::now();
    let mut got = Vec::new();
    while got.len() < n && start.elapsed() < LIMIT {
        got.extend(bus.receive(n - got.len(), WhenEmpty::Wait).await.unwrap());
    }
    got
}

fn ids(got: &[Delivery]) -> Vec<&str> {
    got.iter().map(|d| d.id.as_deref().unwrap_or("-")).collect()
}

/// What is delivered within `wait`.
async fn within(bus: &dyn Bus, wait: Duration) -> Vec<Delivery> {
    let end = tokio::time::Instant::now() + wait;
    while let Ok(got) = tokio::time::timeout_at(end, bus.receive(10, WhenEmpty::Wait)).await {
        let got = got.unwrap();
        if !got.is_empty() {
            return got;
        }
    }
    Vec::new()
}

/// Acknowledges a message, which then stays away. Where the machine stands still, the ack wait may
/// be over before the acknowledgement is there; one that had no effect would bring it every time.
async fn acknowledge(bus: &dyn Bus, mut delivery: Delivery) {
    for _ in 0..10 {
        delivery.settle.ack().await;
        match within(bus, QUIET).await.pop() {
            None => return,
            Some(again) => delivery = again,
        }
    }
    panic!("it comes again and again: {:?}", delivery.id);
}

/// The next signal.
async fn heard(stream: &mut (impl StreamExt<Item = Bytes> + Unpin)) -> Bytes {
    tokio::time::timeout(LIMIT, stream.next()).await.expect("a signal").unwrap()
}

pub async fn messages_come_in_order_with_their_facts(f: impl Fixture) {
    let bus = f.bus();
    let kinds = [InboundKind::Task, InboundKind::Message, InboundKind::Result, InboundKind::Cancel];
    for (n, kind) in kinds.into_iter().enumerate() {
        bus.publish(&incoming(kind, &format!("e{n}"))).await.unwrap();
    }
    let got = receive(&*bus, 4).await;
    assert_eq!(ids(&got), ["e0", "e1", "e2", "e3"]);
    assert_eq!(got.iter().map(|d| d.kind).collect::<Vec<_>>(), kinds);
    assert!(got.windows(2).all(|w| w[0].sequence < w[1].sequence));
    let now = Clock::system().now();
    for delivery in &got {
        assert_eq!((&delivery.owner, delivery.agent.as_str(), delivery.delivered), (&owner(), "help*er", 1));
        assert!(delivery.published <= now && now.elapsed_since(delivery.published) < LIMIT * 10);
    }
    assert_eq!(&got[0].body[..], br#"{"input":"e0"}"#);
}

pub async fn an_empty_queue_answers_with_nothing(f: impl Fixture) {
    let answer = tokio::time::timeout(LIMIT, f.bus().receive(5, WhenEmpty::Wait)).await.expect("an answer");
    assert!(answer.unwrap().is_empty());
}

pub async fn a_receive_returns_no_more_than_asked(f: impl Fixture) {
    let bus = f.bus();
    for n in 0..5 {
        bus.publish(&task(&format!("e{n}"))).await.unwrap();
    }
    for expected in [2, 2, 1] {
        let got = receive(&*bus, expected).await;
        assert_eq!(got.len(), expected);
        for delivery in got {
            delivery.settle.ack().await;
        }
    }
}

pub async fn a_receive_is_bounded_in_bytes(f: impl Fixture) {
    let (bus, most) = (f.bus(), 14);
    let text = "x".repeat(900_000);
    for n in 0..most {
        let message = BusMessage { body: json!({"input": text}), ..task(&format!("e{n}")) };
        bus.publish(&message).await.unwrap();
    }
    let (mut seen, start) = (Vec::new(), Instant::now());
    while seen.len() < most && start.elapsed() < LIMIT {
        let got = bus.receive(256, WhenEmpty::Wait).await.unwrap();
        let bytes: usize = got.iter().map(|delivery| delivery.body.len()).sum();
        // A message that was waited for comes before what is there.
        assert!(bytes <= RECEIVE_BYTES + text.len() * 2, "{} messages of {bytes} bytes at once", got.len());
        for delivery in got {
            seen.extend(delivery.id);
            delivery.settle.ack().await;
        }
    }
    assert_eq!(seen, (0..most).map(|n| format!("e{n}")).collect::<Vec<_>>());
}

pub async fn one_id_of_two_owners_is_two_messages(f: impl Fixture) {
    let bus = f.bus();
    for owner in ["acme/jo", "acme/ann"] {
        let to =
            MessageAddress::In { owner: owner.parse().unwrap(), agent: "a".parse().unwrap(), kind: InboundKind::Task };
        bus.publish(&BusMessage { to, ..task("same") }).await.unwrap();
    }
    let got = receive(&*bus, 2).await;
    let owners: BTreeSet<_> = got.iter().map(|delivery| delivery.owner.to_string()).collect();
    let both = BTreeSet::from(["acme/jo".to_owned(), "acme/ann".to_owned()]);
    assert_eq!((owners, ids(&got)), (both, vec!["same", "same"]));
}

pub async fn a_waiting_receiver_gets_a_message(f: impl Fixture) {
    let bus = f.bus();
    let waiting = {
        let bus = bus.clone();
        tokio::spawn(async move { receive(&*bus, 1).await })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    bus.publish(&task("e1")).await.unwrap();
    assert_eq!(ids(&waiting.await.unwrap()), ["e1"]);
}

pub async fn an_acknowledged_message_is_gone(f: impl Fixture) {
    let bus = f.bus();
    bus.publish(&task("e1")).await.unwrap();
    acknowledge(&*bus, receive(&*bus, 1).await.remove(0)).await;
    assert!(bus.in_transit().await.unwrap().is_empty());
}

pub async fn an_unsettled_message_comes_again(f: impl Fixture) {
    let bus = f.bus();
    bus.publish(&task("e1")).await.unwrap();
    let start = Instant::now();
    for delivered in 1..=3 {
        let got = receive(&*bus, 1).await;
        assert_eq!((ids(&got), got[0].delivered), (vec!["e1"], delivered));
    }
    assert!(start.elapsed() >= ACK_WAIT * 2, "{:?}", start.elapsed());
}

pub async fn progress_starts_the_ack_wait_again(f: impl Fixture) {
    let bus = f.bus();
    let mut early = Vec::new();
    // Where the machine stands still between two of them, progress comes too late.
    for n in 0..10 {
        let id = format!("e{n}");
        bus.publish(&task(&id)).await.unwrap();
        let start = Instant::now();
        let first = receive(&*bus, 1).await;
        for _ in 0..3 {
            tokio::time::sleep(ACK_WAIT / 2).await;
            first[0].settle.progress().await;
        }
        let again = receive(&*bus, 1).await.remove(0);
        assert!(again.id == Some(id) && again.delivered > 1, "{:?} {}", again.id, again.delivered);
        let took = start.elapsed();
        acknowledge(&*bus, again).await;
        if took >= ACK_WAIT / 2 * 5 {
            return;
        }
        early.push(took);
    }
    panic!("it comes again after {early:?}");
}

pub async fn a_nak_delays_redelivery(f: impl Fixture) {
    let bus = f.bus();
    bus.publish(&task("e1")).await.unwrap();
    bus.publish(&task("e2")).await.unwrap();
    let first = receive(&*bus, 2).await;
    first[1].settle.ack().await;
    let (start, delay) = (Instant::now(), Duration::from_secs(1));
    first[0].settle.nak(delay).await;
    let again = receive(&*bus, 1).await;
    assert_eq!((ids(&again), again[0].delivered), (vec!["e1"], 2));
    assert!(start.elapsed() >= delay, "{:?}", start.elapsed());
}

pub async fn a_nak_without_delay_redelivers_at_once(f: impl Fixture) {
    let bus = f.bus();
    bus.publish(&task("e1")).await.unwrap();
    let first = receive(&*bus, 1).await;
    first[0].settle.nak(Duration::ZERO).await;
    assert_eq!(ids(&receive(&*bus, 1).await), ["e1"]);
}

pub async fn two_receivers_share_the_queue(f: impl Fixture) {
    const ALL: usize = 40;
    let bus = f.bus();
    let (taken, end) = (Arc::new(AtomicUsize::new(0)), Instant::now() + LIMIT);
    let worker = |bus: Arc<dyn Bus>| {
        let taken = Arc::clone(&taken);
        async move {
            let mut got = Vec::new();
            while taken.load(Ordering::SeqCst) < ALL && Instant::now() < end {
                for delivery in bus.receive(3, WhenEmpty::Wait).await.unwrap() {
                    delivery.settle.ack().await;
                    got.push(delivery.id.clone().unwrap());
                    taken.fetch_add(1, Ordering::SeqCst);
                }
            }
            got
        }
    };
    let workers = [tokio::spawn(worker(bus.clone())), tokio::spawn(worker(bus.clone()))];
    for n in 0..ALL {
        bus.publish(&task(&format!("e{n}"))).await.unwrap();
    }
    let mut all = Vec::new();
    for worker in workers {
        all.extend(worker.await.unwrap());
    }
    let different: BTreeSet<_> = all.iter().collect();
    assert_eq!((all.len(), different.len()), (ALL, ALL));
}

pub async fn a_receive_given_up_loses_nothing(f: impl Fixture) {
    let bus = f.bus();
    for n in 0..10 {
        bus.publish(&task(&format!("e{n}"))).await.unwrap();
    }
    let mut came = BTreeSet::new();
    for n in 0..20 {
        let limit = Duration::from_micros(n * 25);
        for delivery in
            tokio::time::timeout(limit, bus.receive(1, WhenEmpty::Wait)).await.unwrap_or(Ok(vec![])).unwrap()
        {
            came.insert(delivery.id.clone());
            delivery.settle.ack().await;
        }
    }
    let start = Instant::now();
    while came.len() < 10 && start.elapsed() < LIMIT {
        for delivery in bus.receive(5, WhenEmpty::Wait).await.unwrap() {
            came.insert(delivery.id.clone());
            delivery.settle.ack().await;
        }
    }
    assert_eq!(came.len(), 10);
}

pub async fn a_wake_arrives(f: impl Fixture) {
    let bus = f.bus();
    let wake = BusMessage { id: None, body: json!({"session": "main"}), ..incoming(InboundKind::Wake, "") };
    bus.publish(&wake).await.unwrap();
    let got = receive(&*bus, 1).await;
    assert_eq!((got[0].kind, &got[0].id, &got[0].body[..]), (InboundKind::Wake, &None, &br#"{"session":"main"}"#[..]));
    let again = receive(&*bus, 1).await.remove(0);
    assert_eq!(again.delivered, 2);
    acknowledge(&*bus, again).await;
    // The same again is another one.
    bus.publish(&wake).await.unwrap();
    assert_eq!(receive(&*bus, 1).await[0].delivered, 1);
}

pub async fn messages_in_transit_are_listed(f: impl Fixture) {
    let bus = f.bus();
    for id in ["e1", "e2", "e3"] {
        bus.publish(&task(id)).await.unwrap();
    }
    let got = receive(&*bus, 2).await;
    got[1].settle.ack().await;
    let end = Instant::now() + LIMIT;
    loop {
        let mut listed = bus.in_transit().await.unwrap();
        listed.sort();
        if listed == ["e1", "e3"] {
            break;
        }
        assert!(Instant::now() < end, "taken or not, what isn't acknowledged is in transit: {listed:?}");
    }
}

pub async fn accepted_messages_survive_a_restart(f: impl Fixture) {
    let bus = f.bus();
    for id in ["done", "taken", "waiting"] {
        bus.publish(&task(id)).await.unwrap();
    }
    let got = receive(&*bus, 2).await;
    got[0].settle.ack().await;
    drop((got, bus));
    let f = f.reopen().await;
    let bus = f.bus();
    // New ones come after them.
    bus.publish(&task("new")).await.unwrap();
    let mut got = BTreeMap::new();
    let end = Instant::now() + LIMIT;
    while got.len() < 3 && Instant::now() < end {
        got.extend(
            bus.receive(1, WhenEmpty::Wait).await.unwrap().into_iter().map(|d| (d.sequence, d.id.clone().unwrap())),
        );
    }
    assert_eq!(got.values().map(String::as_str).collect::<Vec<_>>(), ["taken", "waiting", "new"]);
}

pub async fn signals_reach_their_listeners(f: impl Fixture) {
    let bus = f.bus();
    let job = LiveSubject::Job(JobId::new(&"0f".repeat(16)).unwrap());
    let (mut one, mut two) = (bus.listen(&job).await.unwrap(), bus.listen(&job).await.unwrap());
    let mut other = bus.listen(&LiveSubject::Job(JobId::new(&"1f".repeat(16)).unwrap())).await.unwrap();
    for body in ["a", "b"] {
        bus.signal(&job, Bytes::from(body)).await.unwrap();
    }
    for stream in [&mut one, &mut two] {
        for expected in ["a", "b"] {
            assert_eq!(heard(stream).await, expected);
        }
    }
    assert!(tokio::time::timeout(Duration::from_millis(50), other.next()).await.is_err());
}

pub async fn live_text_continues_after_a_position(f: impl Fixture) {
    let bus = f.bus();
    let (job, other) = (JobId::new(&"0f".repeat(16)).unwrap(), JobId::new(&"1f".repeat(16)).unwrap());
    let mut first = bus.live_feed().follow(&job, None).await.unwrap();
    for (of, body) in [(&job, "a"), (&other, "x"), (&job, "b"), (&job, "c")] {
        bus.signal(&LiveSubject::Job(of.clone()), Bytes::from(body)).await.unwrap();
    }
    let mut pieces = Vec::new();
    while pieces.len() < 3 {
        pieces.push(tokio::time::timeout(LIMIT, first.next()).await.expect("a piece").unwrap());
    }
    let said = |pieces: &[LivePiece]| pieces.iter().map(|piece| piece.body.clone()).collect::<Vec<_>>();
    assert_eq!(said(&pieces), ["a", "b", "c"]);
    assert!(pieces.is_sorted_by_key(|piece| piece.sequence), "{pieces:?}");
    // One that comes back has what it missed, and then what is new; one that comes late has all of it.
    let mut again = bus.live_feed().follow(&job, Some(pieces[0].sequence)).await.unwrap();
    let mut late = bus.live_feed().follow(&job, None).await.unwrap();
    bus.signal(&LiveSubject::Job(job.clone()), Bytes::from("d")).await.unwrap();
    for expected in ["b", "c", "d"] {
        let piece = tokio::time::timeout(LIMIT, again.next()).await.expect("a piece").unwrap();
        assert_eq!(piece.body, expected);
    }
    let mut astray = bus.live_feed().follow(&job, Some(u64::MAX)).await.unwrap();
    for stream in [&mut late, &mut astray] {
        for expected in ["a", "b", "c", "d"] {
            let piece = tokio::time::timeout(LIMIT, stream.next()).await.expect("a piece").unwrap();
            assert_eq!(piece.body, expected);
        }
    }
    assert_eq!(bus.live_feed().last_piece(&other).await.unwrap(), Some(pieces[0].sequence + 1));
    assert!(bus.live_feed().last_piece(&job).await.unwrap() > Some(pieces[2].sequence));
    assert_eq!(bus.live_feed().last_piece(&JobId::new(&"2f".repeat(16)).unwrap()).await.unwrap(), None);
}

pub async fn control_signals_of_every_owner_arrive_with_the_owner(f: impl Fixture) {
    let bus = f.bus();
    let mut all = bus.listen_control().await.unwrap();
    let mut mine = bus.listen(&LiveSubject::Control(owner())).await.unwrap();
    bus.signal(&LiveSubject::Control("b/c".parse().unwrap()), Bytes::from_static(b"theirs")).await.unwrap();
    bus.signal(&LiveSubject::Control(owner()), Bytes::from_static(b"mine")).await.unwrap();
    let mut heard = BTreeSet::new();
    for _ in 0..2 {
        let signal = tokio::time::timeout(LIMIT, all.next()).await.expect("a signal").unwrap();
        heard.insert((signal.owner.to_string(), signal.body));
    }
    let said = |owner: &str, body| (owner.to_owned(), Bytes::from_static(body));
    assert_eq!(heard, BTreeSet::from([said("b/c", b"theirs"), said(&owner().to_string(), b"mine")]));
    assert_eq!(self::heard(&mut mine).await, "mine");
}

pub async fn signals_without_a_listener_are_lost(f: impl Fixture) {
    let bus = f.bus();
    let to = LiveSubject::Control(owner());
    drop(bus.listen(&to).await.unwrap());
    bus.signal(&to, Bytes::from_static(b"early")).await.unwrap();
    let mut late = bus.listen(&to).await.unwrap();
    bus.signal(&to, Bytes::from_static(b"now")).await.unwrap();
    assert_eq!(heard(&mut late).await, "now");
}

pub async fn every_address_can_be_published_to(f: impl Fixture) {
    let bus = f.bus();
    let out = MessageAddress::Out { owner: owner(), agent: "helper".parse().unwrap(), job: "j1".to_owned() };
    for to in [out, MessageAddress::Reply("_INBOX.abc.1".to_owned())] {
        let message = BusMessage { to, id: Some("o1".to_owned()), body: json!({"status": "COMPLETE"}), trace: None };
        for _ in 0..2 {
            bus.publish(&message).await.unwrap();
        }
    }
    assert_eq!(ids(&within(&*bus, Duration::from_millis(50)).await), Vec::<&str>::new());
    assert!(bus.in_transit().await.unwrap().is_empty());
}

pub async fn bus_settings_are_reported(f: impl Fixture) {
    let settings = f.bus().settings().await.unwrap();
    assert!(!settings.is_empty() && settings.iter().all(|s| !s.name.is_empty() && !s.value.is_empty()));
}
