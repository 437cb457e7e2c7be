//! Each kind of change at the store's seam, acknowledged and then lost with every process: it is in force again, or it
//! is named, and nothing else is.

use crate::support::nats::{self, options};
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use trellis::bus::Bus;
use trellis::bus::nats::{NatsBus, NatsOptions};
use trellis::domain::ids::{EventId, JobId, Owner, SessionKey, sha256_hex};
use trellis::domain::job::JobStatus;
use trellis::domain::time::Millis;
use trellis::store::journaled::JournaledStore;
use trellis::store::redis::{RedisOptions, RedisStore, ServerOrInjected};
use trellis::store::{
    Admit, Amend, AmendOutcome, Amendment, Commit, CommitOutcome, DocWrite, EventKind, ForgetOutcome, ForgetRequest,
    HistoryCheck, Intake, JobFinish, LeaseOutcome, LeaseRequest, LeaseUse, NewEvent, NewJob, SessionSnapshot,
    SetSessionOutcome, Store, WriteOutcome, keys,
};
use trellis::venue::history::History;
use trellis::venue::load_or_make_key;
use trellis::venue::upkeep::audit;

pub(super) fn owner() -> Owner {
    "acme/ada".parse().unwrap()
}

pub(super) fn session(name: &str) -> SessionKey {
    SessionKey { agent: "clerk".parse().unwrap(), session: name.parse().unwrap() }
}

pub(super) fn job(n: u8) -> JobId {
    JobId::new(&format!("{n:032x}")).unwrap()
}

pub(super) struct Opened {
    pub venue: TestVenue,
    pub journaled: Arc<JournaledStore>,
    _dir: tempfile::TempDir,
}

/// A venue as a process opens it; what protects is in force.
pub(super) async fn open(store: &RedisOptions, bus: &NatsOptions, rules: &str) -> Opened {
    let dir = tempfile::tempdir().unwrap();
    let redis = RedisStore::open(store.clone()).await.unwrap();
    let nats = Arc::new(NatsBus::open(bus).await.unwrap());
    let key = load_or_make_key(&*redis, Millis(0)).await.unwrap();
    let journaled = Arc::new(JournaledStore::new(Arc::clone(&redis) as Arc<dyn Store>, nats.clone(), "test", &key));
    let check = Arc::clone(&journaled) as Arc<dyn HistoryCheck>;
    redis.set_check(Arc::downgrade(&check));
    check.check_history().await.unwrap();
    let mut venue =
        TestVenue::new(Arc::clone(&journaled) as Arc<dyn Store>, nats as Arc<dyn Bus>, dir.path(), rules).await;
    let history = History::new(None, None).with_journal(Arc::clone(&journaled));
    Arc::get_mut(&mut venue.venue).unwrap().history = history;
    Opened { venue, journaled, _dir: dir }
}

fn event(id: &str, kind: EventKind, opens: Option<JobId>) -> NewEvent {
    NewEvent {
        body_hash: sha256_hex(id.as_bytes()),
        id: EventId::new(id).unwrap(),
        kind,
        job: opens.clone(),
        order: id.to_owned(),
        body: Bytes::from_static(b"{}"),
        open: opens.map(|job| NewJob { job, head: Bytes::from_static(b"{}"), parent: None }),
        finish: None,
        outbox: Vec::new(),
        quota: None,
        may_replace: false,
    }
}

async fn admit(store: &dyn Store, to: &str, event: Option<NewEvent>) {
    let admit = Admit { owner: owner(), session: session(to), event, lease: None };
    assert_eq!(store.admit(Millis(0), &admit).await.unwrap().intake, Intake::New);
}

/// A turn of a session that serves all that waits.
async fn turn(store: &dyn Store, of: &str, writes: Vec<DocWrite>) {
    let lease = LeaseRequest {
        token: format!("{of}-token"),
        worker: "w1".to_owned(),
        ttl: Duration::from_secs(30),
        mailbox_limit: 8,
        crash_limit: 3,
        owner_cap: 0,
    };
    let ask = Admit { owner: owner(), session: session(of), event: None, lease: Some(lease) };
    let LeaseOutcome::Run(grant) = store.admit(Millis(0), &ask).await.unwrap().lease else { panic!("no lease") };
    let commit = Commit {
        turn: grant.version + 1,
        consume: grant.mailbox.iter().map(|entry| entry.key.clone()).collect(),
        writes,
        status: None,
        finish: Vec::new(),
        outbox: Vec::new(),
        state: Bytes::from_static(b"{}"),
        unless_cancelled: None,
        after_commit: LeaseUse::Release { arrivals: grant.arrivals, due: None, backoff: false },
    };
    let committed = store.commit(Millis(0), &grant.lease, &commit).await.unwrap();
    assert!(matches!(committed, CommitOutcome::Done(_)), "{committed:?}");
}

async fn set_session(store: &dyn Store, name: &str, is_there: bool) {
    let snapshot = SessionSnapshot { version: 1, state: Bytes::from_static(b"{}"), quota: None };
    let outcome =
        store.set_session(Millis(0), &owner(), &session(name), is_there.then_some(&snapshot), &[]).await.unwrap();
    assert_eq!(outcome, SetSessionOutcome::Done, "{name}");
}

async fn amend(store: &dyn Store, name: &str, then: Amendment) {
    let amend =
        Amend { version: 1, expected_state: Some(Bytes::from_static(b"{}")), amendment: then, writes: Vec::new() };
    assert_eq!(store.amend(Millis(0), &owner(), &session(name), &amend).await.unwrap(), AmendOutcome::Done, "{name}");
}

async fn write(store: &dyn Store, writes: Vec<DocWrite>) {
    assert_eq!(store.write(Millis(0), &owner(), &writes).await.unwrap(), WriteOutcome::Done);
}

/// What is there before the seconds that are lost.
pub(super) async fn prepare(store: &dyn Store) {
    let gate = DocWrite::put(keys::agent_gate(&session("main").agent), "ACTIVE 8 1000000 queue");
    let [nested, changed] = ["w.e/a/old", "w/a"].map(|key| DocWrite::put(key, "1"));
    write(store, vec![gate, nested, changed]).await;
    for (to, n) in [("cancelled", 1), ("resumed", 2), ("deleted-job", 3)] {
        admit(store, to, Some(event(to, EventKind::Task, Some(job(n))))).await;
    }
    store.set_job_paused(Millis(0), &owner(), &session("resumed"), &job(2), true).await.unwrap();
    for name in ["old", "titled", "gone"] {
        set_session(store, name, true).await;
    }
    admit(store, "main", Some(event("first", EventKind::Message, None))).await;
    turn(store, "main", Vec::new()).await;
}

const WRITTEN: [&str; 9] = ["w.e/a/new", "o/x", "m/0f", "h/0f", "u/0f", "i/0f", "a/0f", "q/0f", "v/project"];

/// One change of each kind.
async fn change(store: &dyn Store) {
    write(store, vec![DocWrite::put(keys::POLICY, "{\"roots\":null}")]).await;
    for key in WRITTEN {
        write(store, vec![DocWrite::put(key, "{}").at_version(0)]).await;
    }
    write(store, vec![DocWrite::put("w/a", "2")]).await;
    write(store, vec![DocWrite::delete("w.e/a/old").at_version(1)]).await;
    let result = Bytes::from_static(b"{}");
    let finish = JobFinish { job: job(1), status: JobStatus::Cancelled, result };
    store.finish(Millis(0), &owner(), &session("cancelled"), &finish, None, &[]).await.unwrap();
    store.set_job_paused(Millis(0), &owner(), &session("resumed"), &job(2), false).await.unwrap();
    set_session(store, "fork", true).await;
    set_session(store, "old", false).await;
    amend(store, "titled", Amendment::State(Bytes::from_static(b"{\"title\":1}"))).await;
    amend(store, "gone", Amendment::Remove { arrivals: 0 }).await;
    let forget =
        ForgetRequest { documents: vec![keys::job_head(&job(3))], requested_by_user: true, ..ForgetRequest::default() };
    assert_eq!(store.forget(Millis(0), &owner(), &forget).await.unwrap(), ForgetOutcome::Done);
    admit(store, "waiting", Some(event("task", EventKind::Task, Some(job(4))))).await;
    admit(store, "main", Some(event("message", EventKind::Message, None))).await;
    turn(store, "main", Vec::new()).await;
}

/// In words, sorted.
fn expected() -> Vec<String> {
    let mut all: Vec<String> = WRITTEN.map(|key| format!("`{key}` was written")).to_vec();
    all.extend(
        [
            "`w/a` was written",
            "`w.e/a/old` was deleted",
            "session `clerk/fork` was changed",
            "session `clerk/old` was deleted",
            "session `clerk/titled` was changed",
            "session `clerk/gone` was deleted",
            "event `task` of `clerk/waiting`",
            "event `message` of `clerk/main`",
            "turn 2 of `clerk/main`",
        ]
        .map(ToOwned::to_owned),
    );
    all.push(format!("`j/{}` was deleted", job(3)));
    all.sort();
    all
}

/// What is lost, in words, sorted, once it is told.
async fn lost(opened: &Opened, count: u64) -> (Vec<String>, Vec<String>) {
    let end = Instant::now() + Duration::from_mins(1);
    loop {
        let books = audit::audit_all(&opened.venue.venue).await.unwrap();
        if books.lost_total >= count {
            // What was put in force is listed, too.
            let is_gone = |line: &&String| line.contains(": lost, ");
            let part = |line: &String| Some(line.split_once(": ")?.1.split_once(", acknowledged at ")?.0.to_owned());
            let mut named: Vec<String> = books.lost.iter().filter(is_gone).filter_map(part).collect();
            named.sort();
            return (named, books.lost);
        }
        assert!(Instant::now() < end, "{:#?}", books.lost);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn is_unsettled(opened: &Opened) -> bool {
    let venue = &opened.venue.venue;
    audit::is_unsettled(venue, &audit::set_backs(venue).await.unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_change_is_in_force_again_or_named() {
    let (Some(mut server), Some(url)) = (RedisServer::start(), nats::shared()) else { return };
    let (store, bus) = (server.options(ServerOrInjected::Server), options(&url));
    let watch = |opened: &Opened, by: &str, stop: &CancellationToken| {
        let (venue, by, stop) = (Arc::clone(&opened.venue.venue), by.to_owned(), stop.clone());
        tokio::spawn(audit::losses::watch(venue, by, stop))
    };
    let first = open(&store, &bus, "").await;
    let stop = CancellationToken::new();
    let watching = watch(&first, "first", &stop);
    prepare(&*first.journaled).await;
    // The safe point is behind what was prepared.
    let end = Instant::now() + Duration::from_mins(1);
    while first.venue.venue.store.doc(&trellis::venue::venue_owner(), keys::SAFE_POINT).await.unwrap().version == 0 {
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stop.cancel();
    watching.await.unwrap();
    first.journaled.flush().await.unwrap();
    let before = server.log_file();
    change(&*first.journaled).await;
    first.journaled.flush().await.unwrap();
    drop(first);
    server.lose_tail(before);

    let second = open(&store, &bus, "").await;
    let read = async |key: String| second.venue.venue.store.doc(&owner(), &key).await.unwrap();
    assert_eq!(read(keys::POLICY.to_owned()).await.value.unwrap(), Bytes::from_static(b"{\"roots\":null}"));
    assert_eq!(read(keys::job_status(&job(1))).await.status().unwrap().0, JobStatus::Cancelled);
    assert_eq!(read(keys::job_status(&job(2))).await.status().unwrap().0, JobStatus::Pending);
    let stop = CancellationToken::new();
    let watching = watch(&second, "second", &stop);
    let expected = expected();
    let (named, lines) = lost(&second, expected.len() as u64).await;
    assert_eq!(named, expected, "{lines:#?}");
    assert!(lines[0].starts_with(&format!("{} lost in all: ", expected.len())), "{lines:#?}");
    stop.cancel();
    watching.await.unwrap();

    // An operator settles it, and the list stays readable.
    assert!(is_unsettled(&second).await);
    audit::settle(&second.venue.venue, "ann").await.unwrap();
    assert!(!is_unsettled(&second).await);
    assert!(lost(&second, expected.len() as u64).await.1.iter().any(|line| line.ends_with("by `ann`")));

    // A restart without a loss tells nothing new.
    second.journaled.flush().await.unwrap();
    drop(second);
    server.kill();
    assert!(server.start_again());
    let third = open(&store, &bus, "").await;
    let safe =
        async || third.venue.venue.store.doc(&trellis::venue::venue_owner(), keys::SAFE_POINT).await.unwrap().version;
    let known = safe().await;
    let stop = CancellationToken::new();
    let watching = watch(&third, "third", &stop);
    let end = Instant::now() + Duration::from_mins(1);
    while safe().await == known {
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stop.cancel();
    watching.await.unwrap();
    assert!(!is_unsettled(&third).await);
    assert!(third.journaled.take_forced().is_empty());
}
