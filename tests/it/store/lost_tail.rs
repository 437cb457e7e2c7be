//! A server of the store that is back, or replaced, without what it acknowledged last.

use crate::support::fleet::Fleet;
use crate::support::nats::{self, options};
use crate::support::redis::RedisServer;
use crate::support::redis_cluster::{PRIMARIES, RedisCluster};
use crate::support::venue::TestVenue;
use bytes::Bytes;
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use trellis::bus::nats::NatsBus;
use trellis::domain::ids::{EventId, JobId, Owner, SessionKey, sha256_hex};
use trellis::domain::job::JobStatus;
use trellis::domain::journal::{JournaledChange, content_mark};
use trellis::domain::losses::{Loss, Losses};
use trellis::domain::shard::Shards;
use trellis::domain::time::Millis;
use trellis::store::ack_log::AckLogStore;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::redis::{RedisStore, ServerOrInjected};
use trellis::store::{
    Admit, Commit, CommitOutcome, Doc, DocKey, DocWrite, DocumentStore, EventKind, ForgetRequest, Grant, Intake,
    JobFinish, LeaseOutcome, LeaseRequest, LeaseUse, NewEvent, NewJob, Store, StoreError, keys,
};
use trellis::venue::history::History;
use trellis::venue::upkeep::audit;

const NOW: Millis = Millis(1_767_225_600_000);

fn owner() -> Owner {
    "acme/ada".parse().unwrap()
}

fn session() -> SessionKey {
    SessionKey { agent: "clerk".parse().unwrap(), session: "main".parse().unwrap() }
}

fn at(ms: u64) -> Millis {
    Millis(NOW.0 + ms)
}

/// A message and who asks for the lease, if anybody does.
fn admit(id: &str, worker: Option<&str>) -> Admit {
    let event = NewEvent {
        body_hash: sha256_hex(id.as_bytes()),
        id: EventId::new(id).unwrap(),
        kind: EventKind::Message,
        job: None,
        order: id.to_owned(),
        body: Bytes::from(id.to_owned()),
        open: None,
        finish: None,
        outbox: Vec::new(),
        quota: None,
        may_replace: false,
    };
    let lease = worker.map(|worker| LeaseRequest {
        token: worker.to_owned(),
        worker: worker.to_owned(),
        ttl: Duration::from_secs(30),
        mailbox_limit: 8,
        crash_limit: 3,
        owner_cap: 0,
    });
    Admit { owner: owner(), session: session(), event: Some(event), lease }
}

/// The first turn, with this record.
fn first_turn(grant: &Grant, record: &str) -> Commit {
    Commit {
        turn: grant.version + 1,
        consume: grant.mailbox.iter().map(|entry| entry.key.clone()).collect(),
        writes: vec![DocWrite::put(keys::turn(&session(), grant.version + 1), record.to_owned())],
        status: None,
        finish: Vec::new(),
        outbox: Vec::new(),
        state: Bytes::from_static(b"{}"),
        unless_cancelled: None,
        after_commit: LeaseUse::Keep,
    }
}

async fn granted(store: &dyn Store, now: Millis, admit: &Admit) -> Grant {
    match store.admit(now, admit).await.unwrap().lease {
        LeaseOutcome::Run(grant) => *grant,
        other => panic!("expected a grant, got {other:?}"),
    }
}

async fn end_of_a_job(store: &dyn Store, now: Millis) {
    let job = JobId::new(&format!("{:032x}", 7)).unwrap();
    let finish = JobFinish { job: job.clone(), status: JobStatus::Cancelled, result: Bytes::from_static(b"{}") };
    let open = NewJob { job, head: Bytes::from_static(b"{}"), parent: None };
    store.finish(now, &owner(), &session(), &finish, Some(&open), &[]).await.unwrap();
}

/// In words; which of them are there again.
fn shown(losses: &[Loss]) -> Vec<(&str, bool)> {
    losses.iter().map(|loss| (loss.what.as_str(), loss.lost.is_none())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_missing_on_a_replica_are_restored_or_reported() {
    let Some(cluster) = RedisCluster::start().await else { return };
    let redis = RedisStore::open(cluster.options(ServerOrInjected::Injected)).await.unwrap();
    let tail = AckLogStore::new(redis);
    let gate = DocWrite::put(keys::agent_gate(&session().agent), "ACTIVE 8 1000000 queue");
    let [deleted, tidied] = ["j/deleted/h", "j/tidied/h"].map(|key| DocWrite::put(key, "{}"));
    tail.write(NOW, &owner(), &[gate, deleted.clone(), tidied.clone()]).await.unwrap();
    assert_eq!(tail.compare(NOW, || panic!("the first look")).await.unwrap(), None);
    tail.admit(at(1), &admit("e0", None)).await.unwrap();
    let shard = Shards::default().shard_of(&owner().token());
    let primary = RedisCluster::primary_of(cluster.slot(&format!("{{{shard}}}")).await);
    cluster.cut_off(PRIMARIES + primary).await;

    let holder = granted(&tail, at(2), &admit("e1", Some("w1"))).await;
    assert!(matches!(
        tail.commit(at(3), &holder.lease, &first_turn(&holder, "first")).await.unwrap(),
        CommitOutcome::Done(_)
    ));
    for policy in ["{ }", "{}"] {
        let writes = [DocWrite::put(keys::POLICY, policy), DocWrite::put("b/x", "an account")];
        tail.write(at(4), &owner(), &writes).await.unwrap();
    }
    end_of_a_job(&tail, at(5)).await;
    for (write, asked) in [(deleted, true), (tidied, false)] {
        let forget = ForgetRequest { documents: vec![write.key], requested_by_user: asked, ..ForgetRequest::default() };
        tail.forget(at(6), &owner(), &forget).await.unwrap();
    }
    assert_eq!(tail.compare(at(6), || panic!("nothing happened")).await.unwrap(), None);

    cluster.take_over(PRIMARIES + primary).await;
    let found = until_found(&tail).await;
    assert_eq!(
        shown(&found),
        [
            ("event `e1` of `clerk/main`", true),
            ("turn 1 of `clerk/main`", false),
            ("`policy` was written", false),
            ("job `00000000000000000000000000000007` was CANCELLED", true),
            ("`j/deleted/h` was deleted", false),
        ]
    );
    assert_eq!(
        found[0].to_string(),
        "acme/ada: event `e1` of `clerk/main`, acknowledged at 2026-01-01T00:00:00.002Z: it was missing and is put back"
    );
    assert_eq!(tail.compare(at(7), || panic!("it is told once")).await.unwrap(), None);
    assert_eq!(tail.admit(at(8), &admit("e1", None)).await.unwrap().intake, Intake::Duplicate);

    // The holder that the store has forgotten still runs, and the next one begins at the same turn.
    let next = granted(&tail, at(9), &admit("e2", Some("w2"))).await;
    assert_eq!((next.version, next.mailbox.len()), (0, 3));
    assert!(next.lease.epoch > holder.lease.epoch);
    for late in ["first", "second"] {
        let late = tail.commit(at(10), &holder.lease, &first_turn(&holder, late)).await.unwrap();
        assert_eq!(late, CommitOutcome::Fenced);
    }
    tail.commit(at(11), &next.lease, &first_turn(&next, "another")).await.unwrap();
    let late = tail.commit(at(12), &holder.lease, &first_turn(&holder, "first")).await.unwrap();
    assert_eq!(late, CommitOutcome::Fenced, "nobody takes the other's turn for his");
}

#[tokio::test(flavor = "multi_thread")]
async fn forgotten_records_are_not_restored_after_a_loss() {
    let Some(mut server) = RedisServer::start() else { return };
    let options = server.options(ServerOrInjected::Injected);
    let tail = AckLogStore::new(RedisStore::open(options.clone()).await.unwrap());
    let gate = DocWrite::put(keys::agent_gate(&session().agent), "ACTIVE 8 1000000 queue");
    tail.write(NOW, &owner(), &[gate]).await.unwrap();
    assert_eq!(tail.compare(NOW, || panic!("the first look")).await.unwrap(), None);
    tail.admit(at(1), &admit("old", None)).await.unwrap();
    assert_eq!(tail.compare(at(20_000), || panic!("nothing happened")).await.unwrap(), None);
    tail.admit(at(20_001), &admit("new", None)).await.unwrap();
    // By another process, which this one doesn't hear of.
    let other = RedisStore::open(options).await.unwrap();
    let events = vec![EventId::new("old").unwrap()];
    other.forget(at(20_002), &owner(), &ForgetRequest { events, ..ForgetRequest::default() }).await.unwrap();
    // One that was cancelled and then deleted, and one that was deleted and then submitted again.
    end_of_a_job(&tail, at(20_002)).await;
    let asked = |job: &JobId| ForgetRequest {
        documents: vec![keys::job_head(job)],
        requested_by_user: true,
        ..ForgetRequest::default()
    };
    let [cancelled, again] = [7, 8].map(|n| JobId::new(&format!("{n:032x}")).unwrap());
    for job in [&cancelled, &again] {
        tail.forget(at(20_002), &owner(), &asked(job)).await.unwrap();
    }
    let mut task = admit("again", None);
    let event = task.event.as_mut().unwrap();
    event.kind = EventKind::Task;
    event.job = Some(again.clone());
    event.open = Some(NewJob { job: again, head: Bytes::from_static(b"{}"), parent: None });
    tail.admit(at(20_003), &task).await.unwrap();
    server.kill();
    assert!(server.start_again());
    let end = Instant::now() + Duration::from_mins(1);
    let found = loop {
        match tail.compare(at(20_003), || ()).await.unwrap() {
            Some(found) if found.left == 0 => break found,
            found => assert!(Instant::now() < end, "{found:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!((found.is_another, found.losses), (true, Vec::new()));
    let head = tail.read(&owner(), &[keys::job_head(&cancelled)]).await.unwrap();
    assert_eq!(head[0].value, None, "it stayed deleted");
    assert_eq!(tail.admit(at(20_004), &admit("old", None)).await.unwrap().intake, Intake::New, "it stayed forgotten");
}

/// A call that the driver sends to the old primary may be under way: then some of it is found later.
async fn until_found(tail: &AckLogStore) -> Vec<Loss> {
    let (begin, end, mut all) = (Instant::now(), Instant::now() + Duration::from_mins(1), Vec::new());
    loop {
        let late = u64::try_from(begin.elapsed().as_millis()).unwrap();
        match tail.compare(at(7 + late), || ()).await {
            Ok(Some(found)) => {
                all.extend(found.losses);
                if !all.is_empty() && found.left == 0 {
                    all.sort_by_key(|loss| loss.acknowledged);
                    return all;
                }
            }
            found => assert!(Instant::now() < end, "{found:?}, {all:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_is_set_back_alone_is_named() {
    let (Some(mut cluster), Some(url)) = (RedisCluster::start().await, nats::shared()) else { return };
    let store = cluster.options(ServerOrInjected::Server);
    let dir = tempfile::tempdir().unwrap();
    let bus = Arc::new(NatsBus::open(&options(&url)).await.unwrap());
    let redis = RedisStore::open(store).await.unwrap();
    let mut venue = TestVenue::new(redis, bus, dir.path(), "").await;
    Arc::get_mut(&mut venue.venue).unwrap().history = History::new(None, Some(Shards::default()));
    let venue = &venue.venue;
    assert_eq!(audit::advance_mark(venue).await.unwrap(), None);
    let before = cluster.nodes[1].log_file();
    assert_eq!(audit::advance_mark(venue).await.unwrap(), None);
    assert_eq!(venue.store.owners(None, 1_000).await.unwrap().len(), 256);
    assert_eq!(venue.next_owner(None).await.unwrap(), None, "they are the venue's own");

    for node in [PRIMARIES + 1, 1] {
        cluster.nodes[node].kill();
    }
    cluster.nodes[1].lose_tail(before);
    let end = Instant::now() + Duration::from_mins(1);
    let found = loop {
        match audit::set_backs(venue).await {
            Ok(found) if !found.is_empty() => break found,
            other => assert!(Instant::now() < end, "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let mut theirs = Vec::new();
    for shard in 0..256 {
        if RedisCluster::primary_of(cluster.slot(&format!("{{{shard:03x}}}")).await) == 1 {
            theirs.push(shard);
        }
    }
    assert_eq!((found.len(), &found[0].parts), (1, &theirs), "the shards of that node, and no others");
    assert_eq!((found[0].store.epoch, found[0].queue.epoch), (1, 2));
    assert_eq!(audit::advance_mark(venue).await.unwrap().map(|found| found.parts), Some(theirs));
    assert_eq!(audit::advance_mark(venue).await.unwrap(), None, "it is told once");
}

/// A lost change that a process has found; `change`: what the audit asks the store for.
fn lost(n: usize, change: Option<JournaledChange>) -> Loss {
    let (owner, what) = ("local/me".parse().unwrap(), format!("change {n}"));
    Loss { owner, acknowledged: NOW, kind: "changes".into(), what, lost: Some("it is as before".into()), change }
}

#[tokio::test]
async fn an_audit_lists_as_lost_only_what_is_missing_now() {
    let (venue, _dir) = TestVenue::embedded("[[rule]]\nthen = { text = \"done\" }\n").await;
    venue.worker();
    venue.agent("clerk", json!({})).await;
    let job = venue.run("clerk", "t1", json!(1)).await.head.id;
    let store = &*venue.venue.store;
    let key = keys::agent(&"clerk".parse().unwrap());
    let mark = content_mark(&store.doc(&venue.owner, &key).await.unwrap().value.unwrap());
    let other = JobId::new(&"9".repeat(32)).unwrap();
    let (session, id) = ("clerk/s".to_owned(), EventId::new("t1").unwrap());
    let event =
        |job| JournaledChange::Event { id: id.clone(), session: session.clone(), job: Some(job), repeated: false };
    let end = |job: &JobId, status| JournaledChange::End { job: job.clone(), status };
    let document = |key: &str, mark: Option<&str>| JournaledChange::Document {
        key: key.to_owned(),
        mark: mark.map(str::to_owned),
        version: Some(1),
    };
    let deletion = |key: &str| JournaledChange::Deletion { key: key.to_owned(), events: Vec::new() };
    let changes = [
        (event(job.clone()), true),
        (event(other.clone()), false),
        (end(&job, JobStatus::Complete), true),
        (end(&job, JobStatus::Cancelled), false),
        (end(&other, JobStatus::Complete), false),
        (JournaledChange::Hold { job: job.clone(), paused: true }, false),
        (JournaledChange::Hold { job: job.clone(), paused: false }, false),
        (document(&key, Some(&mark)), true),
        (document(&key, Some("0123456789abcdef")), false),
        (document("w/none", None), true),
        (deletion("w/none"), true),
        (deletion(&key), false),
        (JournaledChange::Turn { session: session.clone(), turn: 1 }, false),
        (JournaledChange::Session { session, turns: 1, mark: None }, false),
    ];
    // A later find has put the last one back, and tells nothing of the one before.
    let mut found: Vec<_> = changes.iter().enumerate().map(|(n, (change, _))| lost(n, Some(change.clone()))).collect();
    found.extend([lost(100, None), lost(101, None)]);
    let later = Loss { lost: None, ..lost(101, None) };
    for (at, by, losses) in [(at(1), "w1", found), (at(2), "w2", vec![later])] {
        let parts = Losses::split(at, by, losses, Vec::new());
        let write = DocWrite::json(keys::losses_part(at, by, 0), &parts[0]);
        store.write(at, &keys::venue_owner(), &[write]).await.unwrap();
    }
    let totals = audit::report(&venue.venue, false).await.unwrap().totals;
    let expected =
        changes.iter().enumerate().map(|(n, (_, is_there))| (n, *is_there)).chain([(100, false), (101, true)]);
    let mut missing = 0;
    for (n, is_there) in expected {
        let own: Vec<_> = totals.lost.iter().filter(|line| line.contains(&format!(": change {n}, "))).collect();
        let told = if is_there { ": it was missing and is put back" } else { ": lost, it is as before" };
        assert!(!own.is_empty() && own.iter().all(|line| line.contains(told)), "{n}: {own:?}, not {told:?}");
        missing += u64::from(!is_there);
    }
    assert_eq!(totals.lost[0], format!("{missing} lost in all: {missing} changes"));
    assert_eq!(totals.lost_total, missing);
}

#[test]
fn a_fleet_works_on_after_a_cut_log_and_reports_it() {
    let (Some(url), Some(mut server)) = (nats::shared(), RedisServer::start()) else { return };
    let fleet = Fleet::new(url, &server);
    let (mut worker, _serve, url) = fleet.start_all();
    let url = ["--url", &url];
    let http = |args: &[&str]| crate::support::cli::run(fleet.path(), &[args, &url].concat());
    http(&["agent", "apply", "echo.toml"]).ok();
    assert_eq!(fleet.publish(&["submit", "echo", "kept", "--id", "kept", "--wait=60s"]).ok(), "kept");
    let before = server.log_file();
    assert_eq!(fleet.publish(&["submit", "echo", "gone", "--id", "gone", "--wait=60s"]).ok(), "gone");
    server.lose_tail(before);
    // The event is put back, unless its message was still in the queue and has brought it again before.
    worker.says("was replaced or restarted without its last changes: ");
    worker.says(" put back, 1 lost");
    // Its caller can't tell: the task is there under its id and has run again.
    assert_eq!(fleet.publish(&["submit", "echo", "gone", "--id", "gone", "--wait=60s"]).ok(), "gone");
    let told = fleet.run(&["audit", "--after-loss"]).expect(0, "");
    assert!(told.out.contains("lost: local/me: turn 1 of `echo/"), "{told:?}");
    assert!(told.out.contains("unaccounted = 0") && !told.out.contains("accepted"), "{told:?}");
    let jobs = http(&["job", "list"]).ok();
    assert!(jobs.matches("COMPLETE").count() == 2, "{jobs}");
}

/// A server that is another each time that it is asked, and whose reader breaks down once.
struct Unsteady {
    inner: Arc<EmbeddedStore>,
    asked: AtomicU64,
    broken: AtomicBool,
}

impl trellis::store::Layer for Unsteady {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn history(&self) -> Result<Vec<String>, StoreError> {
        Ok(vec![self.asked.fetch_add(1, Ordering::SeqCst).min(1).to_string()])
    }

    async fn read(&self, owner: &Owner, keys: &[DocKey]) -> Result<Vec<Doc>, StoreError> {
        assert!(!self.broken.swap(false, Ordering::SeqCst), "on purpose");
        self.inner.read(owner, keys).await
    }
}

/// A cluster with a new primary, of which one node doesn't know yet: it still answers for the old one.
struct LateNews {
    old: Arc<EmbeddedStore>,
    new: Arc<EmbeddedStore>,
    names: Mutex<[&'static str; 2]>,
    is_known: AtomicBool,
}

impl trellis::store::Layer for LateNews {
    fn inner(&self) -> &dyn Store {
        if self.is_known.load(Ordering::SeqCst) { &*self.new } else { &*self.old }
    }

    async fn history(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.names.lock().unwrap().map(str::to_owned).to_vec())
    }
}

#[tokio::test]
async fn what_an_old_primary_still_answers_is_looked_at_again() {
    let (old, new) = (EmbeddedStore::in_memory(), EmbeddedStore::in_memory());
    let (names, is_known) = (Mutex::new(["a", "b"]), AtomicBool::new(false));
    let cluster = Arc::new(LateNews { old, new, names, is_known });
    let tail = AckLogStore::new(Arc::clone(&cluster) as Arc<dyn Store>);
    assert_eq!(tail.compare(NOW, || panic!("the first look")).await.unwrap(), None);
    tail.write(at(1), &owner(), &[DocWrite::put(keys::POLICY, "{}")]).await.unwrap();
    *cluster.names.lock().unwrap() = ["a", "c"];
    let found = tail.compare(at(2), || ()).await.unwrap().unwrap();
    assert_eq!((found.is_another, found.losses.len()), (true, 0), "the old primary lacks nothing");
    cluster.is_known.store(true, Ordering::SeqCst);
    assert_eq!(tail.compare(at(3), || ()).await.unwrap(), None);
    let found = tail.compare(at(5_002), || ()).await.unwrap().unwrap();
    assert_eq!((found.is_another, shown(&found.losses)), (false, vec![("`policy` was written", false)]));
    assert_eq!(tail.compare(at(6_000), || ()).await.unwrap(), None, "it is told once");
}

#[tokio::test]
async fn an_interrupted_comparison_is_repeated() {
    let (inner, broken) = (EmbeddedStore::in_memory(), AtomicBool::new(true));
    let unsteady = Unsteady { inner: Arc::clone(&inner), asked: AtomicU64::new(0), broken };
    let tail = Arc::new(AckLogStore::new(Arc::new(unsteady)));
    assert_eq!(tail.compare(NOW, || panic!("the first look")).await.unwrap(), None);
    tail.write(at(1), &owner(), &[DocWrite::put(keys::POLICY, "{}")]).await.unwrap();
    // The server loses it.
    inner.write(at(2), &owner(), &[DocWrite::delete(keys::POLICY)]).await.unwrap();
    let look = || {
        let tail = Arc::clone(&tail);
        tokio::spawn(async move { tail.compare(at(3), || ()).await.unwrap() })
    };
    assert!(look().await.unwrap_err().is_panic());
    let found = look().await.unwrap().unwrap();
    assert_eq!(shown(&found.losses), [("`policy` was written", false)]);
    assert_eq!(look().await.unwrap(), None, "it is told once");
}
