//! Retention: nothing grows without bound, and nothing goes that is still needed.

use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use trellis::domain::authority::Authority;
use trellis::domain::authority::trail::Trail;
use trellis::domain::event::Submission;
use trellis::domain::ids::{AgentId, JobId, SessionKey};
use trellis::domain::job::{Job, JobStatus};
use trellis::domain::retention::RetentionRules;
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::store::{ForgetRequest, keys};
use trellis::venue::agents::lifecycle::{self, AgentEditor};
use trellis::venue::jobs;
use trellis::venue::upkeep::audit;
use trellis::venue::upkeep::retention::{Janitor, RetentionCounts};

/// 2026-01-01T00:00:00Z.
pub const START: Millis = Millis(1_767_225_600_000);
pub const DAY: Duration = Duration::from_hours(24);

pub const ECHO: &str = "[[rule]]\nthen = { text = \"done {{input}}\" }\n";

pub async fn venue() -> (TestVenue, tempfile::TempDir) {
    let (venue, dir) = TestVenue::embedded_at(ECHO, Clock::manual(START)).await;
    (patient(venue), dir)
}

/// Its time passes faster than that of its workers: no lease lapses because of it.
pub fn patient(mut venue: TestVenue) -> TestVenue {
    venue.lease = Duration::from_hours(1);
    venue
}

/// Every document of the owner, once its notifications are sent: those that are due go whenever a worker looks.
async fn documents(venue: &TestVenue) -> BTreeSet<String> {
    for _ in 0..6_000 {
        let all = venue.venue.store.scan(&venue.owner, "", None, false, 100_000).await.unwrap();
        if !all.iter().any(|(key, _)| key.starts_with(keys::NOTIFICATIONS_DUE)) {
            return all.into_iter().map(|(key, _)| key).collect();
        }
        venue.venue.clock.advance(Duration::from_millis(100));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the notifications were not sent");
}

async fn sessions(venue: &TestVenue) -> Vec<String> {
    let all = venue.venue.store.sessions(&venue.owner, None, None, 1_000).await.unwrap();
    all.into_iter().map(|facts| facts.key.to_string()).collect()
}

/// Waits until no session of an agent has mail or a lease. Time goes on meanwhile: sweeps need it.
pub async fn rest(venue: &TestVenue, agent: &str) {
    let agent: AgentId = agent.parse().unwrap();
    for _ in 0..6_000 {
        let all = venue.venue.store.sessions(&venue.owner, Some(&agent), None, 1_000).await.unwrap();
        if all.iter().all(|facts| facts.mailbox.is_empty() && facts.lease_until.is_none() && facts.due.is_none()) {
            return;
        }
        venue.venue.clock.advance(Duration::from_millis(100));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the sessions did not come to rest");
}

/// The job once it has ended. Time goes on meanwhile.
pub async fn ended(venue: &TestVenue, job: &JobId) -> Job {
    for _ in 0..6_000 {
        let found = jobs::get(&venue.venue, &venue.owner, job).await.unwrap().unwrap();
        if found.status.is_terminal() {
            return found;
        }
        venue.venue.clock.advance(Duration::from_millis(100));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("job {job} did not end");
}

/// Forgets until a whole round finds nothing.
pub async fn tidy(venue: &TestVenue, janitor: &Janitor) -> RetentionCounts {
    let mut all = RetentionCounts::default();
    let mut quiet = false;
    loop {
        let step = janitor.tidy_step(&venue.venue, &venue.owner).await.unwrap();
        all += step;
        let through = janitor.is_through(&venue.owner);
        if through && quiet && step.is_zero() {
            return all;
        }
        quiet = if through { true } else { quiet && step.is_zero() };
    }
}

pub async fn send(venue: &TestVenue, agent: &str, session: &str, id: &str, task: bool) -> Option<JobId> {
    let session_id = Some(session.parse().unwrap());
    let submission = Submission { input: json!(id), session_id, ..Submission::default() };
    let submitted = venue.arrive(agent, id, task, submission).await;
    assert!(!submitted.duplicate, "{id} was known");
    submitted.job
}

/// Fifty tasks and ten messages come and go, and one task is left waiting; then years pass.
async fn course(venue: &TestVenue) {
    venue.agent("a", json!({})).await;
    venue.agent("later", json!({})).await;
    venue.worker();
    let first = send(venue, "later", "s", "old", true).await.unwrap();
    ended(venue, &first).await;
    rest(venue, "later").await;
    let later: AgentId = "later".parse().unwrap();
    lifecycle::suspend(&venue.venue, &venue.owner, &later, "for the test").await.unwrap();
    let waiting = send(venue, "later", "s", "waits", true).await.unwrap();
    let base = documents(venue).await;
    let mut tasks = Vec::new();
    for n in 0..50 {
        tasks.extend(send(venue, "a", &format!("s{}", n % 5), &format!("t{n}"), true).await);
    }
    for job in &tasks {
        assert_eq!(ended(venue, job).await.status, JobStatus::Complete);
    }
    for n in 0..10 {
        send(venue, "a", "talk", &format!("m{n}"), false).await;
    }
    rest(venue, "a").await;
    let full = documents(venue).await;
    assert!(full.len() > base.len() + 200, "{} documents of {}", full.len(), base.len());
    let janitor = Janitor::new(RetentionRules::default());
    venue.venue.clock.advance(DAY * 29);
    assert!(tidy(venue, &janitor).await.is_zero());
    assert_eq!(documents(venue).await, full);
    venue.venue.clock.advance(DAY * 2);
    let tidied = tidy(venue, &janitor).await;
    assert_eq!((tidied.jobs, tidied.turns, tidied.sessions), (51, 0, 0), "{tidied:?}");
    let turns = documents(venue).await;
    assert!(turns.iter().all(|key| !key.starts_with("j/") || key.starts_with(&keys::job_head(&waiting))), "{turns:?}");
    venue.venue.clock.advance(DAY * 60);
    let tidied = tidy(venue, &janitor).await;
    assert_eq!((tidied.jobs, tidied.sessions), (0, 6), "{tidied:?}");
    assert_eq!(sessions(venue).await, ["later/s"]);
    let left = documents(venue).await;
    // Books of days that were long ago go by themselves.
    let is_book = |key: &String| key.starts_with(keys::OWNER_CAPS) || key.starts_with(keys::SESSION_DAYS);
    let lasting = base.iter().filter(|key| !is_book(key));
    let (gone, kept): (Vec<_>, Vec<_>) = lasting.partition(|key| key.contains(first.as_str()));
    assert!(gone.iter().all(|key| !left.contains(*key)), "the job of a session that lives on goes, too");
    let lost: Vec<_> = kept.iter().filter(|key| !left.contains(**key)).collect();
    assert!(lost.is_empty(), "what waits, and its session, stay: {lost:?}");
    let new: Vec<_> = left.difference(&base).filter(|key| !key.starts_with(keys::PARTS)).collect();
    assert_eq!(new, Vec::<&String>::new(), "nothing of the fifty is left but shared parts of prompts");
    let books = audit::audit_all(&venue.venue).await.unwrap();
    assert_eq!((books.accepted, books.pending, books.unaccounted), (1, 1, 0), "{books:?}");
    assert_eq!(venue.turns("later", "s").await.len(), 1);
    let by = AgentEditor { authority: &Authority::without_limits(), trail: &Trail::default(), turn: false };
    lifecycle::resume(&venue.venue, &venue.owner, &later, by).await.unwrap();
    assert_eq!(ended(venue, &waiting).await.status, JobStatus::Complete);
    assert_eq!(venue.turns("later", "s").await.len(), 2, "its conversation goes on");
    // Every id is new again.
    let again = send(venue, "a", "s0", "t0", true).await.unwrap();
    assert_eq!(again, tasks[0]);
    assert_eq!(ended(venue, &again).await.status, JobStatus::Complete);
    send(venue, "a", "talk", "m0", false).await;
    rest(venue, "a").await;
    assert_eq!(audit::audit_all(&venue.venue).await.unwrap().unaccounted, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_tasks_leave_nothing_in_the_embedded_store() {
    let (venue, _dir) = venue().await;
    course(&venue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_tasks_leave_nothing_in_redis() {
    let Some(server) = RedisServer::shared() else { return };
    let (venue, _dir, prefix) = TestVenue::redis_at(server, ECHO, Clock::manual(START)).await;
    let venue = patient(venue);
    course(&venue).await;
    let base = format!("{}:", RedisServer::base(&prefix, &venue.owner));
    let number = async |words: &[&str]| match server.command(words).await.unwrap() {
        redis::Value::Int(n) => n,
        other => panic!("{other:?}"),
    };
    let owner = venue.owner.clone();
    let heads = venue.venue.store.scan(&owner, keys::JOB_LIST, None, false, 100).await.unwrap();
    assert_eq!(heads.len(), 2, "the one that waited, and the one that came again");
    // Of those two jobs, and the message that came again.
    assert_eq!(number(&["HLEN", &format!("{base}seen")]).await, 3);
    assert_eq!(number(&["ZCARD", &format!("{base}sessions")]).await, 3);
    let redis::Value::Array(all) = server.command(&["KEYS", &format!("{prefix}:*:session:*")]).await.unwrap() else {
        panic!("expected keys")
    };
    assert_eq!(all.len(), 3, "sessions that were forgotten leave no key behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_in_use_keeps_its_newest_turns() {
    let (venue, _dir) = venue().await;
    venue.agent("a", json!({})).await;
    venue.worker();
    for n in 0..120 {
        let job = send(&venue, "a", "s", &format!("t{n}"), true).await.unwrap();
        ended(&venue, &job).await;
    }
    rest(&venue, "a").await;
    venue.venue.clock.advance(DAY * 91);
    // It is used again: it doesn't go whole.
    let job = send(&venue, "a", "s", "new", true).await.unwrap();
    ended(&venue, &job).await;
    rest(&venue, "a").await;
    let key = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
    let newest = venue.venue.store.sessions(&venue.owner, None, None, 10).await.unwrap()[0].version;
    let tidied = tidy(&venue, &Janitor::new(RetentionRules::default())).await;
    assert_eq!((tidied.sessions, tidied.jobs), (0, 120));
    for prefix in [keys::turns(&key), keys::ledgers(&key), keys::timeline(&key.agent)] {
        let left = venue.venue.store.scan(&venue.owner, &prefix, None, false, 1_000).await.unwrap();
        let numbers: Vec<u64> =
            left.iter().map(|(key, _)| key.rsplit(['/', '-']).next().unwrap().parse().unwrap()).collect();
        let (first, last) = (numbers.iter().min().unwrap(), numbers.iter().max().unwrap());
        assert!(first % 50 == 1 && newest - first >= 50 && newest - first < 100, "{prefix}: {first} to {newest}");
        assert_eq!(*last, newest);
    }
    // What is left of the records of its prompts can be read.
    for (_, record) in
        trellis::venue::ledger::list_turns(&*venue.venue.store, &venue.owner, &key.agent, Some(&key), 100)
            .await
            .unwrap()
    {
        let past = trellis::venue::ledger::load(&*venue.venue.store, &venue.owner, &key, record.turn).await.unwrap();
        assert!(past.and_then(|past| past.seen).is_some(), "turn {}", record.turn);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_stays_readable_after_its_old_turns_go() {
    let (venue, _dir) = venue().await;
    venue.agent("a", json!({})).await;
    venue.worker();
    for n in 0..130 {
        if n == 30 {
            // Of the same week, and old enough three days later.
            venue.venue.clock.advance(DAY * 3);
        }
        let job = send(&venue, "a", "s", &format!("t{n}"), true).await.unwrap();
        ended(&venue, &job).await;
    }
    rest(&venue, "a").await;
    let key = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
    let janitor = Janitor::new(RetentionRules::default());
    for days in [88, 1] {
        venue.venue.clock.advance(DAY * days);
        tidy(&venue, &janitor).await;
        for record in venue.turns("a", "s").await {
            let past = trellis::venue::ledger::load(&*venue.venue.store, &venue.owner, &key, record.turn).await;
            assert!(past.unwrap().unwrap().seen.is_some_and(|seen| seen.inputs.is_ok()), "turn {}", record.turn);
        }
    }
    // Those that are all old go.
    let job = send(&venue, "a", "s", "new", true).await.unwrap();
    ended(&venue, &job).await;
    rest(&venue, "a").await;
    venue.venue.clock.advance(DAY * 3);
    tidy(&venue, &janitor).await;
    assert_eq!(venue.turns("a", "s").await[0].turn, 51);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_old_unfinished_jobs_do_not_stand_in_the_way() {
    let (venue, _dir) = venue().await;
    venue.agent("a", json!({})).await;
    venue.agent("later", json!({})).await;
    let later: AgentId = "later".parse().unwrap();
    lifecycle::suspend(&venue.venue, &venue.owner, &later, "for the test").await.unwrap();
    for n in 0..450 {
        send(&venue, "later", &format!("s{n}"), &format!("old{n}"), true).await;
    }
    venue.worker();
    venue.venue.clock.advance(DAY);
    let job = send(&venue, "a", "s", "t", true).await.unwrap();
    ended(&venue, &job).await;
    venue.venue.clock.advance(DAY * 31);
    let tidied = tidy(&venue, &Janitor::new(RetentionRules::default())).await;
    assert_eq!(tidied.jobs, 1);
    assert!(jobs::get(&venue.venue, &venue.owner, &job).await.unwrap().is_none());
    assert_eq!(audit::audit_all(&venue.venue).await.unwrap().pending, 450);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_task_whose_entry_lies_in_a_mailbox_still_stays() {
    let (venue, _dir) = venue().await;
    venue.agent("a", json!({})).await;
    let job = send(&venue, "a", "s", "t", true).await.unwrap();
    // Ended behind the protocol's back: the entry is not taken out, as when its holder died.
    let status = keys::encode_status(JobStatus::Cancelled, venue.venue.now());
    let write = trellis::store::DocWrite {
        key: keys::job_status(&job),
        expect: trellis::store::Expect::Any,
        change: trellis::store::DocEffect::Put(status.into()),
    };
    venue.venue.store.write(venue.venue.now(), &venue.owner, &[write]).await.unwrap();
    venue.venue.clock.advance(DAY * 40);
    let janitor = Janitor::new(RetentionRules::default());
    assert!(tidy(&venue, &janitor).await.is_zero());
    venue.worker();
    rest(&venue, "a").await;
    assert_eq!(tidy(&venue, &janitor).await.jobs, 1);
    assert_eq!(venue.model_calls().len(), 0, "it never ran");
}

#[tokio::test(flavor = "multi_thread")]
async fn records_kept_forever_are_not_scanned() {
    let (mut venue, _dir) = venue().await;
    venue.retention = RetentionRules::default();
    venue.agent("a", json!({})).await;
    let job = send(&venue, "a", "s", "t", true).await.unwrap();
    let forget = ForgetRequest { documents: vec!["w/none".into()], ..ForgetRequest::default() };
    venue.venue.store.forget(venue.venue.now(), &venue.owner, &forget).await.unwrap();
    venue.worker();
    ended(&venue, &job).await;
    rest(&venue, "a").await;
    venue.venue.clock.advance(DAY * 3_650);
    let tidied = tidy(&venue, &Janitor::new(RetentionRules::NEVER)).await;
    assert!(RetentionCounts { counts: 0, ..tidied }.is_zero(), "books of days go by themselves: {tidied:?}");
    // The worker's own janitor follows its rules.
    for _ in 0..6_000 {
        venue.venue.clock.advance(Duration::from_mins(1));
        if sessions(&venue).await.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the worker did not tidy up");
}
