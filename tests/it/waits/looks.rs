//! What it costs to look at approvals and at the queue, in calls.

use crate::support::venue::TestVenue;
use crate::turn_costs::counted::{CountedBus, CountedStore};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::Bus;
use trellis::bus::embedded::EmbeddedBus;
use trellis::domain::approval::{Answer, Approval, ApprovalSubject, CallPlace, Verdict};
use trellis::domain::event::Submission;
use trellis::domain::ids::{Owner, SessionKey};
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::{DocWrite, Store, keys};
use trellis::upkeep::audit;
use trellis::venue::approvals;

const RULES: &str = "[[rule]]\nthen = { text = \"done\" }\n";

struct Looked {
    venue: TestVenue,
    store: Arc<CountedStore>,
    bus: Arc<CountedBus>,
    _dir: tempfile::TempDir,
}

async fn venue() -> Looked {
    let dir = tempfile::tempdir().unwrap();
    let inner = EmbeddedStore::open(dir.path()).unwrap();
    let bus = EmbeddedBus::new(Arc::clone(&inner), Duration::from_secs(30), Clock::system()).unwrap();
    let (store, bus) = (CountedStore::new(inner), CountedBus::new(Arc::new(bus)));
    let (counted, queue): (Arc<dyn Store>, Arc<dyn Bus>) =
        (Arc::<CountedStore>::clone(&store), Arc::<CountedBus>::clone(&bus));
    let venue = TestVenue::new(counted, queue, dir.path(), RULES).await;
    Looked { venue, store, bus, _dir: dir }
}

fn approval(venue: &TestVenue, call: u32, answered: bool) -> Approval {
    let session = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
    let place = CallPlace { owner: &venue.owner, session: &session, turn: 1, call, start: None };
    let subject = ApprovalSubject::Questions { title: "t".into(), asks: Vec::new() };
    let now = venue.venue.now();
    let asked = Approval::new(&venue.venue.key, place, "ask", subject, now, now.plus(Duration::from_hours(1)));
    let answer = answered.then(|| Answer { by: "ann".into(), at: now, verdict: Verdict::Rejected { reason: None } });
    Approval { answer, ..asked }
}

async fn keep(venue: &TestVenue, calls: std::ops::Range<u32>, answered: bool) {
    let writes: Vec<DocWrite> = calls
        .map(|call| approval(venue, call, answered))
        .map(|approval| DocWrite::json(keys::approval(&approval.id), &approval))
        .collect();
    venue.venue.store.write(venue.venue.now(), &venue.owner, &writes).await.unwrap();
}

#[tokio::test]
async fn what_is_answered_costs_a_list_of_open_approvals_nothing() {
    let Looked { venue, store, _dir, .. } = venue().await;
    // As an older build has left them: without entries.
    keep(&venue, 0..3, false).await;
    let list = async || approvals::list(&venue.venue, &venue.owner, false, 0, 100).await.unwrap().items.len();
    assert_eq!(list().await, 3, "they are found all the same");
    store.take();
    assert_eq!(list().await, 3);
    let before = store.take();
    keep(&venue, 100..1_600, true).await;
    store.take();
    assert_eq!(list().await, 3);
    assert_eq!(store.take(), before, "1,500 more that are answered");
}

#[tokio::test]
async fn an_audit_lists_the_queue_once_and_not_once_for_each_owner() {
    let Looked { venue, bus, _dir, .. } = venue().await;
    let mut venues = Vec::new();
    for n in 0..8 {
        let owner: Owner = format!("t/u{n}").parse().unwrap();
        venues.push(owner);
    }
    let mut venue = venue;
    for owner in venues {
        venue.owner = owner;
        venue.agent("a", json!({})).await;
        venue.arrive("a", "t1", true, Submission { input: json!("go"), ..Submission::default() }).await;
    }
    bus.take();
    let books = audit::all(&venue.venue).await.unwrap();
    assert_eq!((books.accepted, books.unaccounted), (8, 0));
    let listed = bus.take().to_string();
    assert!(listed.contains("in_transit 1,"), "{listed}");
}
