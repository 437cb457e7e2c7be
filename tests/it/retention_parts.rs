//! Retention of the parts of prompts: those of turns that are gone go, and no others.

use crate::retention::{DAY, ended, rest, send, tidy, venue};
use crate::support::venue::TestVenue;
use serde_json::json;
use trellis::domain::context::record::period::Period;
use trellis::domain::ids::SessionKey;
use trellis::domain::retention::RetentionRules;
use trellis::store::{DocWrite, keys};
use trellis::upkeep::retention::Janitor;
use trellis::venue::ledger;

/// Prefix of the parts of all periods, and of when they were looked through.
const ALL: &str = "p";

fn session(id: &str) -> SessionKey {
    SessionKey { agent: "a".parse().unwrap(), session: id.parse().unwrap() }
}

/// A task whose input is longer than what stands in a manifest, to its end.
async fn ask(venue: &TestVenue, session: &str, id: &str) {
    let job = send(venue, "a", session, &format!("{id:-<110}"), true).await.unwrap();
    ended(venue, &job).await;
    rest(venue, "a").await;
}

/// The texts of the stored parts.
async fn texts(venue: &TestVenue, prefix: &str) -> String {
    let parts = venue.venue.store.scan(&venue.owner, prefix, None, false, 10_000).await.unwrap();
    let texts = parts.iter().filter_map(|(_, doc)| doc.value.as_ref());
    texts.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
}

async fn is_whole(venue: &TestVenue, session_id: &str, turn: u64) -> bool {
    let past = ledger::load(&*venue.venue.store, &venue.owner, &session(session_id), turn).await.unwrap();
    past.and_then(|past| past.seen).expect("the turn has a record").inputs.is_ok()
}

/// What a build that knew no periods had stored in the stead of what is stored.
async fn as_before(venue: &TestVenue, session_id: &str, turn: u64) {
    let (store, owner) = (&*venue.venue.store, &venue.owner);
    let key = keys::ledger(&session(session_id), turn);
    let manifest = String::from_utf8(store.doc(owner, &key).await.unwrap().value.unwrap().to_vec()).unwrap();
    let (head, rest) = manifest.split_once('\n').unwrap();
    let period = Period::parse(head.strip_prefix("ledger 2 ").unwrap()).unwrap();
    let mut writes = vec![DocWrite::put(key, format!("ledger 1\n{rest}"))];
    for (key, doc) in store.scan(owner, &keys::parts(period), None, false, 1_000).await.unwrap() {
        let name = keys::part_of(period, &key).unwrap();
        writes.push(DocWrite::put(keys::part(Period::BEFORE, &name), doc.value.unwrap()));
    }
    store.write(venue.venue.now(), owner, &writes).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_go_with_the_last_turn_that_names_them() {
    let (venue, _dir) = venue().await;
    venue.agent("a", json!({"systemPrompt": "Be exact. ".repeat(2_000)})).await;
    venue.worker().await;
    ask(&venue, "left", "left-early").await;
    ask(&venue, "used", "used-early").await;
    as_before(&venue, "used", 1).await;
    venue.venue.clock.advance(DAY * 8);
    ask(&venue, "left", "left-late").await;
    venue.venue.clock.advance(DAY * 60);
    ask(&venue, "used", "used-late").await;
    let janitor = Janitor::new(RetentionRules::default());
    assert_eq!(tidy(&venue, &janitor).await.parts, 0, "no turn is old enough");
    assert!(is_whole(&venue, "left", 1).await && is_whole(&venue, "left", 2).await);

    venue.venue.clock.advance(DAY * 50);
    let tidied = tidy(&venue, &janitor).await;
    assert!(tidied.parts > 4 && tidied.sessions == 1, "{tidied:?}");
    let left = texts(&venue, ALL).await;
    assert!(!left.contains("left-early") && !left.contains("left-late"), "what it was asked is gone with it");
    assert!(left.contains("used-early") && left.contains("used-late"));
    assert!(is_whole(&venue, "used", 1).await && is_whole(&venue, "used", 2).await);
    let before = texts(&venue, "p/").await;
    assert!(before.contains("used-early") && !before.contains("left-early"));

    // Nothing of the session is kept any more. A period with parts is looked through once a day.
    venue.venue.clock.advance(DAY * 100);
    let tidied = tidy(&venue, &janitor).await;
    assert!(tidied.parts > 4 && tidied.sessions == 1, "{tidied:?}");
    let left = venue.venue.store.scan(&venue.owner, ALL, None, false, 10).await.unwrap();
    let left: Vec<_> = left.into_iter().map(|(key, _)| key).collect();
    assert_eq!(left, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_period_that_is_not_over_is_left_alone() {
    let (venue, _dir) = venue().await;
    venue.agent("a", json!({})).await;
    venue.worker().await;
    ask(&venue, "s", "early").await;
    let period = Period::at(venue.venue.now());
    let day = RetentionRules { turns: Some(DAY), ..RetentionRules::default() };
    let janitor = Janitor::new(day);
    while Period::at(venue.venue.now()).number() < period.number() + 2 {
        assert!(texts(&venue, keys::PARTS).await.contains("early"));
        assert_eq!(tidy(&venue, &janitor).await.parts, 0);
        venue.venue.clock.advance(DAY);
    }
    let tidied = tidy(&venue, &janitor).await;
    assert!(tidied.parts > 0, "{tidied:?}");
    assert!(!texts(&venue, ALL).await.contains("early"));
}
