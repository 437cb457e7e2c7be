//! What this build doesn't know in the queue, while a newer one has worked on the store: it is left to that, for a day.

use crate::recovery::mixed_builds::set_format;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use trellis::domain::event::Submission;
use trellis::domain::format::FORMAT;
use trellis::domain::ids::JobId;
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::seal::seal_message;
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;

const RULES: &str = "[[rule]]\nthen = { text = \"done\" }\n";

/// Redelivery of what is left, and some more.
const LIMIT: Duration = Duration::from_mins(1);

fn job() -> JobId {
    JobId::new(&"0f".repeat(16)).unwrap()
}

async fn venue(clock: Clock) -> (TestVenue, tempfile::TempDir) {
    let (venue, dir) = TestVenue::embedded_at(RULES, clock).await;
    set_format(&*venue.venue.store, FORMAT + 1).await;
    venue.agent("helper", json!({})).await;
    venue.worker();
    (venue, dir)
}

async fn send(venue: &TestVenue, id: &str, kind: InboundKind, body: Value) {
    let to = MessageAddress::In { owner: venue.owner.clone(), agent: "helper".parse().unwrap(), kind };
    venue.venue.bus.publish(&BusMessage { to, id: Some(id.to_owned()), body, trace: None }).await.unwrap();
}

/// The ids that lie in the queue, of those with this beginning.
async fn lies(venue: &TestVenue, begin: &str) -> BTreeSet<String> {
    let all = venue.venue.bus.in_transit().await.unwrap();
    all.into_iter().filter(|id| id.starts_with(begin)).collect()
}

async fn all_settled(venue: &TestVenue, begin: &str) {
    let settled = async {
        while !lies(venue, begin).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let settled = tokio::time::timeout(LIMIT, settled).await;
    assert!(settled.is_ok(), "still there: {:?}", lies(venue, begin).await);
}

/// What came before it was looked at.
async fn looked_at(venue: &TestVenue) {
    let said = Submission { input: json!("x"), session_id: Some("s".parse().unwrap()), ..Submission::default() };
    let job = venue.arrive("helper", "after", true, said).await.job.unwrap();
    venue.ended(&job).await;
}

/// One of each kind that this build can read but for a key or a name that it doesn't know.
fn of_a_newer_build(venue: &TestVenue) -> Vec<(InboundKind, Value)> {
    let (owner, agent) = (venue.owner.clone(), "helper".parse().unwrap());
    let to = MessageAddress::In { owner: owner.clone(), agent, kind: InboundKind::Result };
    let of_venue =
        |body| seal_message(&venue.venue.key, BusMessage { to: to.clone(), id: None, body, trace: None }).body;
    let to_queue =
        MessageAddress::Job { queue: "q".parse().unwrap(), owner: owner.clone(), agent: "a".parse().unwrap() };
    let given =
        seal_message(&venue.venue.key, BusMessage { to: to_queue, id: None, body: json!({"job": job()}), trace: None });
    let ended = json!({"sessionId": "s", "job": job(), "result": {"status": "COMPLETE", "output": 1}, "newer": 1});
    let status = json!({"sessionId": "s", "job": job(), "result": {"status": "BRAND_NEW"}});
    vec![
        (InboundKind::Task, json!({"input": 1, "newer": 1})),
        (InboundKind::Message, json!({"input": 1, "newer": 1})),
        (InboundKind::Result, of_venue(ended)),
        (InboundKind::Result, of_venue(status)),
        (InboundKind::Result, json!({"job": job(), "token": given.body["token"], "status": "BRAND_NEW"})),
        (InboundKind::Cancel, json!({"job": job(), "newer": 1})),
        (InboundKind::Pause, json!({"job": job(), "newer": 1})),
        (InboundKind::Resume, json!({"job": job(), "newer": 1})),
        (InboundKind::Decide, json!({"approval": job(), "answer": {"brandNew": {}}})),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_messages_wait_after_a_newer_build_has_worked() {
    let (venue, _dir) = venue(Clock::system()).await;
    let newer = of_a_newer_build(&venue);
    for (n, (kind, body)) in newer.iter().enumerate() {
        send(&venue, &format!("newer-{n}"), *kind, body.clone()).await;
    }
    looked_at(&venue).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let left = lies(&venue, "newer-").await;
    let expected: BTreeSet<_> = (0..newer.len()).map(|n| format!("newer-{n}")).collect();
    assert_eq!(left, expected);
    // Nobody newer is there any more: they are refused as ever.
    set_format(&*venue.venue.store, FORMAT).await;
    all_settled(&venue, "newer-").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_messages_are_refused_despite_a_newer_build() {
    let (venue, _dir) = venue(Clock::system()).await;
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let kinds = [
        InboundKind::Task,
        InboundKind::Message,
        InboundKind::Result,
        InboundKind::Cancel,
        InboundKind::Pause,
        InboundKind::Decide,
        InboundKind::Wake,
    ];
    for kind in kinds {
        for (n, body) in [json!(5), json!({}), json!({"job": 5, "session": 5, "input": deep})].into_iter().enumerate() {
            // A task may be empty.
            if body != json!({}) {
                send(&venue, &format!("wrong-{kind:?}-{n}"), kind, body).await;
            }
        }
    }
    all_settled(&venue, "wrong-").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_messages_are_refused_after_a_day() {
    let clock = Clock::manual(Millis(1_700_000_000_000));
    let (venue, _dir) = venue(clock.clone()).await;
    send(&venue, "old-1", InboundKind::Task, json!({"input": 1, "newer": 1})).await;
    looked_at(&venue).await;
    clock.advance(Duration::from_hours(23));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(lies(&venue, "old-").await.len(), 1);
    clock.advance(Duration::from_hours(1));
    all_settled(&venue, "old-").await;
}
