//! Whom workers look after by themselves: the owners of their share, and seldom those that rest.

use crate::recovery::repair::lost;
use crate::support::venue::TestVenue;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::embedded::EmbeddedBus;
use trellis::domain::ids::{JobId, Owner, SessionKey};
use trellis::domain::job::JobStatus;
use trellis::domain::quota::QuotaUsage;
use trellis::domain::retention::RetentionRules;
use trellis::domain::session::SessionState;
use trellis::domain::shard::{Shards, Share};
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::{
    Doc, DocKey, DocWrite, DocumentStore, Layer, SessionSnapshot, SetSessionOutcome, Store, StoreError, StoreMethod,
    keys,
};
use trellis::venue::upkeep::audit::AuditWatch;
use trellis::venue::upkeep::owner_scan::PacedOwnerScan;
use trellis::venue::upkeep::retention::Janitor;

const START: Millis = Millis(1_767_225_600_000);
const MINUTE: Duration = Duration::from_mins(1);
const DAY: Duration = Duration::from_hours(24);
const OWNERS: u32 = 40;

/// Counts what a store is asked for, and has one owner's lists damaged.
struct Counted {
    inner: Arc<dyn Store>,
    calls: Mutex<BTreeMap<&'static str, u64>>,
    damaged: Mutex<Option<Owner>>,
}

impl Counted {
    /// Counts a call, which fails for the owner that is damaged.
    fn ask(&self, method: &'static str, owners: &[Owner]) -> Result<(), StoreError> {
        *self.calls.lock().entry(method).or_default() += 1;
        if self.damaged.lock().as_ref().is_some_and(|damaged| owners.contains(damaged)) {
            return Err(StoreError::Corrupt { store: "test".to_owned(), record: None, reason: "damaged".to_owned() });
        }
        Ok(())
    }
}

impl Layer for Counted {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn around<T: Send, F: Future<Output = Result<T, StoreError>> + Send>(
        &self,
        method: StoreMethod,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T, StoreError> {
        self.ask(method.name, &[])?;
        call().await
    }

    async fn scan(
        &self,
        owner: &Owner,
        prefix: &str,
        after: Option<&str>,
        reverse: bool,
        limit: usize,
    ) -> Result<Vec<(DocKey, Doc)>, StoreError> {
        self.ask("scan", std::slice::from_ref(owner))?;
        self.inner.scan(owner, prefix, after, reverse, limit).await
    }

    async fn usages(&self, owners: &[Owner]) -> Result<Vec<QuotaUsage>, StoreError> {
        self.ask("kept", owners)?;
        self.inner.usages(owners).await
    }
}

/// Owners with a job each that has ended.
struct Resting {
    venue: TestVenue,
    counted: Arc<Counted>,
    _dir: tempfile::TempDir,
}

impl Resting {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (store, clock) = (EmbeddedStore::open(dir.path()).unwrap(), Clock::manual(START));
        let bus = EmbeddedBus::new(Arc::clone(&store), Duration::from_secs(2), clock.clone()).unwrap();
        let counted = Arc::new(Counted { inner: store, calls: Mutex::default(), damaged: Mutex::default() });
        let venue = TestVenue::at(Arc::clone(&counted) as Arc<dyn Store>, Arc::new(bus), dir.path(), "", clock).await;
        let mut resting = Self { venue, counted, _dir: dir };
        for owner in 0..OWNERS {
            let job = resting.lost(owner, "ended").await;
            let ended = keys::encode_status(JobStatus::Complete, START);
            resting.write(&owner_of(owner), DocWrite::put(keys::job_status(&job), ended)).await;
        }
        resting
    }

    /// A task of which everything is there but its place in a mailbox.
    async fn lost(&mut self, owner: u32, id: &str) -> JobId {
        self.venue.owner = owner_of(owner);
        self.venue.agent("helper", json!({})).await;
        lost(&self.venue, id, json!({})).await
    }

    async fn write(&self, owner: &Owner, write: DocWrite) {
        self.venue.venue.store.write(self.venue.venue.now(), owner, &[write]).await.unwrap();
    }

    /// What the store was asked for since the last time.
    fn calls(&self) -> BTreeMap<&'static str, u64> {
        std::mem::take(&mut *self.counted.calls.lock())
    }

    /// Has an audit look for so long, every twenty seconds; whose tasks it has put back, and when.
    async fn audit(&self, watch: &mut AuditWatch, share: &Share, minutes: u32) -> Vec<(String, Duration)> {
        let (clock, mut found) = (&self.venue.venue.clock, Vec::new());
        let began = clock.now();
        for _ in 0..minutes * 3 {
            clock.advance(MINUTE / 3);
            let mut repaired = Vec::new();
            watch.check_share(&self.venue.venue, share, &mut repaired).await.unwrap();
            found.extend(repaired.into_iter().map(|repair| (repair.owner, clock.now().elapsed_since(began))));
        }
        found
    }
}

fn owner_of(number: u32) -> Owner {
    format!("acme/u{number}").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_owner_is_scanned_once_in_some_minutes() {
    let mut resting = Resting::new().await;
    let (mut watch, all) = (AuditWatch::default(), Share::default());
    assert_eq!(resting.audit(&mut watch, &all, 12).await, []);
    resting.calls();
    assert_eq!(resting.audit(&mut watch, &all, 8).await, []);
    assert_eq!(resting.calls(), BTreeMap::from([("owners", 1), ("kept", 1)]));
    resting.lost(7, "first").await;
    resting.lost(8, "first").await;
    let found = resting.audit(&mut watch, &all, 10).await;
    let owners: BTreeSet<_> = found.iter().map(|(owner, _)| owner.as_str()).collect();
    assert_eq!((found.len(), owners), (2, BTreeSet::from(["acme/u7", "acme/u8"])));
    // Of an owner with work the next is found within a minute.
    resting.lost(7, "second").await;
    let found = resting.audit(&mut watch, &all, 1).await;
    assert_eq!(found.into_iter().map(|(owner, _)| owner).collect::<Vec<_>>(), ["acme/u7"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_divide_the_owners_that_they_audit() {
    let mut resting = Resting::new().await;
    let live = ["a".to_owned(), "b".to_owned()];
    let shares = live.clone().map(|worker| Share::new(Shards::default(), &live, &worker));
    for owner in 0..8 {
        resting.lost(owner, "lost").await;
    }
    let mut found = BTreeSet::new();
    for share in &shares {
        let mut watch = AuditWatch::default();
        for (owner, _) in resting.audit(&mut watch, share, 1).await {
            assert!(share.holds(&owner.parse().unwrap()), "{owner}");
            assert!(found.insert(owner));
        }
        assert!((1..8).contains(&found.len()) || share == &shares[1], "{found:?}");
    }
    assert_eq!(found.len(), 8);
    // Whoever gets more shards looks at their owners at once.
    resting.lost(3, "again").await;
    let mut watch = AuditWatch::default();
    let other = shares.iter().find(|share| !share.holds(&owner_of(3))).unwrap();
    assert_eq!(resting.audit(&mut watch, other, 2).await, []);
    let found = resting.audit(&mut watch, &Share::default(), 2).await;
    assert_eq!(found.into_iter().map(|(owner, _)| owner).collect::<Vec<_>>(), ["acme/u3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_owner_keeps_nobody_from_being_audited() {
    let mut resting = Resting::new().await;
    for owner in 4..7 {
        resting.lost(owner, "lost").await;
    }
    *resting.counted.damaged.lock() = Some(owner_of(5));
    let found = resting.audit(&mut AuditWatch::default(), &Share::default(), 1).await;
    assert_eq!(found.into_iter().map(|(owner, _)| owner).collect::<Vec<_>>(), ["acme/u4", "acme/u6"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_with_nothing_to_expire_are_swept_once_a_day() {
    let resting = Resting::new().await;
    let clock = &resting.venue.venue.clock;
    let mut janitor = Janitor::new(RetentionRules { jobs: Some(DAY * 30), turns: None });
    let mut look = async |share: &Share| janitor.tidy_share(&resting.venue.venue, share).await.unwrap().jobs;
    let all = Share::default();
    resting.calls();
    assert_eq!(look(&all).await, 0);
    // One is of the venue's own books.
    let whole = resting.calls()["scan"] - 1;
    assert!(whole >= u64::from(OWNERS), "{whole}");
    for _ in 0..288 {
        clock.advance(MINUTE * 5);
        assert_eq!(look(&all).await, 0);
    }
    let calls = resting.calls();
    assert_eq!((calls["scan"], calls["owners"]), (whole + 288, 1), "{calls:?}");
    // One share of two first; who has had something to forget is looked at with the next look.
    clock.advance(DAY * 30);
    let live = ["a".to_owned(), "b".to_owned()];
    let [one, other] = live.clone().map(|worker| Share::new(Shards::default(), &live, &worker));
    let count = |share: &Share| (0..OWNERS).filter(|owner| share.holds(&owner_of(*owner))).count() as u64;
    assert_eq!(look(&one).await, count(&one));
    resting.calls();
    clock.advance(MINUTE);
    assert_eq!(look(&one).await, 0);
    assert_eq!(resting.calls()["scan"], whole / u64::from(OWNERS) * count(&one) + 1);
    clock.advance(MINUTE);
    assert_eq!(look(&one).await, 0);
    assert_eq!(resting.calls()["scan"], 1, "nobody else's turn has come");
    clock.advance(DAY);
    assert_eq!(look(&other).await, count(&other));
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_are_scanned_evenly_despite_frequent_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    for owner in 0..1_050 {
        store.write(START, &owner_of(owner), &[DocWrite::put("w/a", "")]).await.unwrap();
    }
    let (step, cycle) = (Duration::from_secs(20), MINUTE * 10);
    let pages = async |stroll: &mut PacedOwnerScan, now| {
        stroll.count_due(now);
        let mut pages: Vec<Vec<Owner>> = Vec::new();
        while let Some(page) = stroll.next(&*store).await.unwrap() {
            pages.push(page);
        }
        pages
    };
    let all = |pages: &[Vec<Owner>]| pages.concat().into_iter().collect::<BTreeSet<_>>().len();
    let (mut stroll, mut now) = (PacedOwnerScan::new(cycle), START);
    let first = pages(&mut stroll, now).await;
    assert_eq!((first.len(), all(&first)), (11, 1_050));
    for _ in 0..3 {
        let mut round = Vec::new();
        for _ in 0..30 {
            now = now.plus(step);
            let due = pages(&mut stroll, now).await;
            assert!(due.len() <= 1, "{}", due.len());
            round.extend(due);
        }
        assert_eq!((round.len(), all(&round)), (11, 1_050));
    }
    // What is added is kept up with.
    for owner in 1_050..3_050 {
        store.write(START, &owner_of(owner), &[DocWrite::put("w/a", "")]).await.unwrap();
    }
    let mut round = Vec::new();
    for _ in 0..30 {
        now = now.plus(step);
        round.extend(pages(&mut stroll, now).await);
    }
    assert_eq!(all(&round), 3_050);
    // What time has brought comes at once, but nothing twice; a clock that was set back brings nothing.
    now = now.plus(cycle * 5);
    let late = pages(&mut stroll, now).await;
    assert_eq!((late.len(), all(&late)), (31, 3_050));
    assert_eq!(pages(&mut stroll, START).await.len(), 0);
    // Each lives for two minutes.
    let mut seen = Vec::new();
    for _ in 0..7 {
        let mut stroll = PacedOwnerScan::new(cycle);
        pages(&mut stroll, now).await;
        for _ in 0..6 {
            now = now.plus(step);
            seen.extend(pages(&mut stroll, now).await);
        }
    }
    assert_eq!(all(&seen), 3_050);
    stroll.restart();
    assert_eq!(pages(&mut stroll, now).await.len(), 31);
    // No more than a page in a second and a half, however short it is.
    let mut stroll = PacedOwnerScan::new(Duration::from_secs(1));
    pages(&mut stroll, now).await;
    let mut passed = 0;
    for _ in 0..15 {
        now = now.plus(Duration::from_secs(3));
        passed += pages(&mut stroll, now).await.len();
    }
    assert_eq!(passed, 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_of_many_sessions_is_gone_through_in_one_look() {
    let resting = Resting::new().await;
    let (venue, owner) = (&resting.venue.venue, owner_of(3));
    let state = serde_json::to_vec(&SessionState::default()).unwrap();
    for session in 0..170 {
        let key = SessionKey { agent: "helper".parse().unwrap(), session: format!("s{session}").parse().unwrap() };
        let snapshot = SessionSnapshot { version: 1, state: state.clone().into(), quota: None };
        assert_eq!(
            venue.store.set_session(venue.now(), &owner, &key, Some(&snapshot), &[]).await.unwrap(),
            SetSessionOutcome::Done
        );
    }
    venue.clock.advance(DAY * 100);
    let mut janitor = Janitor::new(RetentionRules { jobs: None, turns: Some(DAY * 90) });
    assert_eq!(janitor.tidy_share(venue, &Share::default()).await.unwrap().sessions, 170);
    assert!(janitor.is_through(&owner));
}
