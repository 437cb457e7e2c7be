//! Retention of the parts of prompts: those of turns that are gone go, and no others.

use crate::store::retention::{DAY, ECHO, START, ended, patient, rest, send, tidy, venue};
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use futures::future::join_all;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use trellis::bus::embedded::EmbeddedBus;
use trellis::domain::context::record::period::Period;
use trellis::domain::ids::{JobId, Owner, SessionKey};
use trellis::domain::job::JobStatus;
use trellis::domain::retention::RetentionRules;
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::faulty::{FaultPlan, FaultyStore};
use trellis::store::{DocEffect, DocWrite, ForgetRequest, Layer, Store, StoreError, WriteOutcome, keys};
use trellis::venue::agents::lifecycle;
use trellis::venue::ledger;
use trellis::venue::upkeep::retention::Janitor;

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

/// The period of a turn's record.
async fn period_of(venue: &TestVenue, session_id: &str, turn: u64) -> Period {
    let key = keys::ledger(&session(session_id), turn);
    let manifest = venue.venue.store.doc(&venue.owner, &key).await.unwrap().value.unwrap();
    let head = std::str::from_utf8(&manifest).unwrap().lines().next().unwrap();
    Period::parse(head.strip_prefix("ledger 2 ").unwrap()).unwrap()
}

/// What a build that knew no periods had stored in the stead of what is stored, or one that took another period.
async fn stored_in(venue: &TestVenue, session_id: &str, turn: u64, to: Period) {
    let (store, owner) = (&*venue.venue.store, &venue.owner);
    let period = period_of(venue, session_id, turn).await;
    let key = keys::ledger(&session(session_id), turn);
    let manifest = String::from_utf8(store.doc(owner, &key).await.unwrap().value.unwrap().to_vec()).unwrap();
    let (_, rest) = manifest.split_once('\n').unwrap();
    let head = if to == Period::NO_PERIOD { "ledger 1".into() } else { format!("ledger 2 {}", to.number()) };
    let mut writes = vec![DocWrite::put(key, format!("{head}\n{rest}"))];
    for (key, doc) in store.scan(owner, &keys::parts(period), None, false, 1_000).await.unwrap() {
        let name = keys::part_name(period, &key).unwrap();
        writes.push(DocWrite::put(keys::part(to, &name), doc.value.unwrap()));
    }
    store.write(venue.venue.now(), owner, &writes).await.unwrap();
}

async fn parts_go(venue: TestVenue) {
    venue.agent("a", json!({"systemPrompt": "Be exact. ".repeat(2_000)})).await;
    venue.worker();
    ask(&venue, "left", "left-early").await;
    ask(&venue, "used", "used-early").await;
    stored_in(&venue, "used", 1, Period::NO_PERIOD).await;
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
async fn parts_go_with_the_last_turn_that_names_them_on_embedded() {
    let (venue, _dir) = venue().await;
    parts_go(venue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_go_with_the_last_turn_that_names_them_in_redis() {
    let Some(server) = RedisServer::shared() else { return };
    let (venue, _dir, _prefix) = TestVenue::redis_at(server, ECHO, Clock::manual(START)).await;
    parts_go(patient(venue)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_period_that_is_not_over_is_left_alone() {
    let (venue, _dir) = venue().await;
    venue.agent("a", json!({})).await;
    venue.worker();
    ask(&venue, "s", "early").await;
    let period = Period::from_start(venue.venue.now());
    let day = RetentionRules { turns: Some(DAY), ..RetentionRules::default() };
    let janitor = Janitor::new(day);
    while Period::from_start(venue.venue.now()).number() < period.number() + 2 {
        assert!(texts(&venue, keys::PARTS).await.contains("early"));
        assert_eq!(tidy(&venue, &janitor).await.parts, 0);
        venue.venue.clock.advance(DAY);
    }
    let tidied = tidy(&venue, &janitor).await;
    assert!(tidied.parts > 0, "{tidied:?}");
    assert!(!texts(&venue, ALL).await.contains("early"));
}

/// Its first call hangs until its time is over, while the week ends.
const HANGS: &str = r#"
[[rule]]
when = { agent = "slow", text = "this is your last turn" }
then = { text = "late" }

[[rule]]
when = { agent = "slow" }
then = { fault = "hang" }

[[rule]]
then = { text = "done {{input}}" }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_has_its_parts_in_the_week_in_which_it_begins() {
    let (venue, _dir) = TestVenue::embedded_at(HANGS, Clock::manual(START)).await;
    let venue = patient(venue);
    venue.agent("slow", json!({"limits": {"wallClock": 1, "windDown": true}})).await;
    venue.worker();
    let week = Period::from_start(venue.venue.now());
    venue.venue.clock.advance(DAY * 6 + Duration::from_secs(24 * 3_600 - 30));
    let job = send(&venue, "slow", "s", "go", true).await;
    while venue.model_calls().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    venue.venue.clock.advance(Duration::from_mins(1));
    assert_eq!(ended(&venue, &job.unwrap()).await.status, JobStatus::Complete);
    let turn = venue.turns("slow", "s").await.remove(0);
    assert_eq!(Period::from_start(turn.start), week);
    let key = keys::ledger(&SessionKey { agent: "slow".parse().unwrap(), ..session("s") }, 1);
    let manifest = venue.venue.store.doc(&venue.owner, &key).await.unwrap().value.unwrap();
    assert!(manifest.starts_with(format!("ledger 2 {}\n", week.number()).as_bytes()), "{manifest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_stored_late_by_older_builds_stay_with_their_turn() {
    let (venue, _dir) = venue().await;
    venue.agent("a", json!({})).await;
    venue.worker();
    venue.venue.clock.advance(DAY * 6);
    ask(&venue, "used", "early").await;
    let late = Period::from_start(venue.venue.now().plus(DAY * 7));
    stored_in(&venue, "used", 1, late).await;
    venue.venue.clock.advance(DAY * 120);
    ask(&venue, "used", "late").await;
    tidy(&venue, &Janitor::new(RetentionRules::default())).await;
    assert!(is_whole(&venue, "used", 1).await && is_whole(&venue, "used", 2).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn late_parts_without_a_period_live_as_long_as_their_turn() {
    let (venue, _dir) = venue().await;
    venue.agent("a", json!({})).await;
    venue.worker();
    ask(&venue, "left", "first-left").await;
    venue.venue.clock.advance(DAY * 30);
    // The build was rolled back for a while.
    for session in ["used", "gone"] {
        ask(&venue, session, &format!("{session}-text")).await;
        stored_in(&venue, session, 1, Period::NO_PERIOD).await;
    }
    venue.venue.clock.advance(DAY * 91);
    ask(&venue, "used", "again").await;
    let janitor = Janitor::new(RetentionRules::default());
    tidy(&venue, &janitor).await;
    assert!(is_whole(&venue, "used", 1).await, "it is later than all of the oldest period");
    let before = texts(&venue, "p/").await;
    assert!(before.contains("used-text") && !before.contains("gone-text"), "{before}");
    // Also where nothing else is left.
    let parts = venue.venue.store.scan(&venue.owner, keys::PARTS, None, false, 1_000).await.unwrap();
    let documents = parts.into_iter().map(|(key, _)| key).collect();
    let forget = ForgetRequest { documents, ..ForgetRequest::default() };
    venue.venue.store.forget(venue.venue.now(), &venue.owner, &forget).await.unwrap();
    venue.venue.clock.advance(DAY * 100);
    assert_eq!(tidy(&venue, &janitor).await.sessions, 1);
    let left = venue.venue.store.scan(&venue.owner, ALL, None, false, 10).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}

const CALLS: &str = r#"
[[rule]]
when = { agent = "a", text = "read-it", turn = 1 }
then = { calls = [{ tool = "lattice_read", arguments = { path = "w/x" } }] }

[[rule]]
then = { text = "done" }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_recorded_weeks_ago_can_be_resumed() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Clock::manual(START));
    let store = EmbeddedStore::open(&dir.path().join("store")).unwrap();
    let bus = Arc::new(EmbeddedBus::new(Arc::clone(&store), Duration::from_millis(150), Clock::system()).unwrap());
    let healthy = patient(TestVenue::at(store.clone(), bus.clone(), dir.path(), CALLS, clock.clone()).await);
    healthy.agent("a", json!({"systemPrompt": "Be exact. ".repeat(2_000)})).await;
    let faulty = FaultyStore::new(store, FaultPlan::Never);
    let mortal = patient(TestVenue::at(faulty.clone(), bus, dir.path(), CALLS, clock.clone()).await);
    mortal.worker();
    ask(&healthy, "left", "left").await;
    // It dies after the reply was recorded, and most of its prompt was stored just before.
    faulty.set_plan(FaultPlan::FromMethod("commit"));
    let job: JobId = send(&healthy, "a", "used", "read-it", true).await.unwrap();
    while faulty.injected_faults().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(mortal);
    let week = Period::from_start(clock.now());
    clock.advance(DAY * 30);
    let rules = RetentionRules { jobs: Some(DAY * 365), turns: Some(DAY * 7) };
    let janitor = Janitor::new(rules);
    let tidied = tidy(&healthy, &janitor).await;
    assert!(tidied.sessions == 1 && tidied.parts > 0, "{tidied:?}");
    healthy.worker();
    assert_eq!(ended(&healthy, &job).await.status, JobStatus::Complete);
    assert_eq!(period_of(&healthy, "used", 1).await, week, "the turn goes on");
    assert!(is_whole(&healthy, "used", 1).await);
    // Its parts are looked through again, by its turn.
    let looked = healthy.venue.store.doc(&healthy.owner, &keys::part_scan(week)).await.unwrap();
    assert_eq!(looked.value, None);
    tidy(&healthy, &janitor).await;
    assert!(is_whole(&healthy, "used", 1).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_keeps_only_the_parts_of_its_period() {
    let (venue, _dir) = venue().await;
    venue.agent("a", json!({})).await;
    venue.agent("b", json!({})).await;
    venue.worker();
    let job = send(&venue, "b", "hurt", &format!("{:-<110}", "early-hurt"), true).await.unwrap();
    ended(&venue, &job).await;
    rest(&venue, "b").await;
    ask(&venue, "left", "early-left").await;
    let week = Period::from_start(venue.venue.now());
    // The next week may have turns of this one.
    venue.venue.clock.advance(DAY * 15);
    ask(&venue, "left", "late-left").await;
    let hurt = SessionKey { agent: "b".parse().unwrap(), ..session("hurt") };
    let damaged = DocWrite::put(keys::ledger(&hurt, 1), &b"\xff"[..]);
    venue.venue.store.write(venue.venue.now(), &venue.owner, &[damaged]).await.unwrap();
    // It has mail, so that it stays.
    lifecycle::suspend(&venue.venue, &venue.owner, &hurt.agent, "for the test").await.unwrap();
    send(&venue, "b", "hurt", "waits", true).await;
    venue.venue.clock.advance(DAY * 110);
    let janitor = Janitor::new(RetentionRules::default());
    let tidied = tidy(&venue, &janitor).await;
    assert!(tidied.sessions == 1 && tidied.parts > 0, "{tidied:?}");
    let left = texts(&venue, keys::PARTS).await;
    assert!(left.contains("early-hurt") && left.contains("early-left"), "nothing of its period goes");
    assert!(!left.contains("late-left"));
    let looked: Option<u64> = venue.venue.store.get(&venue.owner, &keys::part_scan(week)).await.unwrap();
    assert!(looked.is_some(), "it is not looked through again at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_one_of_concurrent_sweeps_scans_a_period() {
    let (venue, _dir) = venue().await;
    venue.agent("a", json!({"systemPrompt": "Be exact. ".repeat(2_000)})).await;
    venue.worker();
    for n in 0..20 {
        ask(&venue, &format!("s{n}"), &format!("t{n}")).await;
    }
    let count = async || venue.venue.store.scan(&venue.owner, keys::PARTS, None, false, 10_000).await.unwrap().len();
    let stored = count().await;
    venue.venue.clock.advance(DAY * 120);
    ask(&venue, "s0", "again").await;
    let new = count().await - stored;
    let janitors: Vec<_> = (0..4).map(|_| Janitor::new(RetentionRules::default())).collect();
    let tidied = join_all(janitors.iter().map(|janitor| tidy(&venue, janitor))).await;
    let gone: u64 = tidied.iter().map(|tidied| tidied.parts).sum();
    assert!(gone > 0 && is_whole(&venue, "s0", 1).await);
    assert_eq!(usize::try_from(gone).unwrap(), stored + new - count().await, "{tidied:?}");
    // Of a period without parts, because they were erased, nothing stays.
    let parts = venue.venue.store.scan(&venue.owner, keys::PARTS, None, false, 1_000).await.unwrap();
    let documents = parts.into_iter().map(|(key, _)| key).collect();
    let forget = ForgetRequest { documents, ..ForgetRequest::default() };
    venue.venue.store.forget(venue.venue.now(), &venue.owner, &forget).await.unwrap();
    venue.venue.clock.advance(DAY * 2);
    tidy(&venue, &janitors[0]).await;
    let left = venue.venue.store.scan(&venue.owner, ALL, None, false, 10).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}

/// A store in which a late turn is committed just before the first parts are deleted.
struct Late {
    inner: Arc<dyn Store>,
    is_over: AtomicBool,
}

impl Layer for Late {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn write(&self, now: Millis, owner: &Owner, writes: &[DocWrite]) -> Result<WriteOutcome, StoreError> {
        let part = writes.iter().find(|write| write.change == DocEffect::Delete && write.key.starts_with(keys::PARTS));
        if let Some(part) = part
            && !self.is_over.swap(true, Ordering::SeqCst)
        {
            let period = keys::period_of_part(&part.key).unwrap();
            self.inner.write(now, owner, &[DocWrite::delete(keys::part_scan(period))]).await?;
        }
        self.inner.write(now, owner, writes).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_part_goes_that_a_late_turn_may_name() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Clock::manual(START));
    let inner = EmbeddedStore::open(&dir.path().join("store")).unwrap();
    let bus = EmbeddedBus::new(Arc::clone(&inner), Duration::from_secs(2), clock.clone()).unwrap();
    let store = Arc::new(Late { inner, is_over: AtomicBool::new(false) });
    let venue = patient(TestVenue::at(store, Arc::new(bus), dir.path(), CALLS, clock).await);
    venue.agent("a", json!({})).await;
    venue.worker();
    ask(&venue, "left", "left").await;
    venue.venue.clock.advance(DAY * 120);
    let janitor = Janitor::new(RetentionRules::default());
    let before = texts(&venue, keys::PARTS).await;
    let step = janitor.tidy_step(&venue.venue, &venue.owner).await.unwrap();
    assert_eq!((step.parts, texts(&venue, keys::PARTS).await), (0, before));
    assert!(tidy(&venue, &janitor).await.parts > 0, "it is looked through again");
    assert!(texts(&venue, ALL).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_period_with_many_parts_takes_several_passes() {
    let (venue, _dir) = venue().await;
    venue.agent("a", json!({})).await;
    venue.worker();
    ask(&venue, "used", "used").await;
    let prefix = keys::parts(Period::from_start(venue.venue.now()));
    let needed = texts(&venue, &prefix).await;
    let fill = async |numbers: std::ops::Range<u32>| {
        let writes: Vec<_> = numbers.map(|n| DocWrite::put(format!("{prefix}{n:021}A"), "x")).collect();
        venue.venue.store.write(venue.venue.now(), &venue.owner, &writes).await.unwrap();
    };
    for thousand in 0..60 {
        fill(thousand * 1_000..(thousand + 1) * 1_000).await;
    }
    venue.venue.clock.advance(DAY * 120);
    ask(&venue, "used", "again").await;
    let janitor = Janitor::new(RetentionRules::default());
    let steps = [(); 3].map(|()| janitor.tidy_step(&venue.venue, &venue.owner));
    let mut gone = Vec::new();
    for step in steps {
        gone.push(step.await.unwrap().parts);
    }
    // Where between them its own parts lie depends on the venue's key.
    assert!((49_000..=50_000).contains(&gone[0]) && gone[0] + gone[1] == 60_000 && gone[2] == 0, "{gone:?}");
    assert_eq!(texts(&venue, &prefix).await, needed);
    assert!(is_whole(&venue, "used", 1).await);
}
