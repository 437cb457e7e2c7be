//! Restarting everything replays what was unfinished and nothing else; a loss shows in the books.

use super::check;
use super::fleet::lock;
use super::site::{Kind, Site};
use super::workload::Task;
use crate::support::nats;
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::nats::NatsBus;
use trellis::domain::event::Submission;
use trellis::domain::ids::{JobId, SessionKey};
use trellis::store::redis::{RedisStore, ServerOrInjected};
use trellis::venue::upkeep::audit;

/// So many that some are unfinished whenever somebody looks whether a few are finished.
const TASKS_END: usize = 150;

/// Turns of the log of calls with how often each was begun.
fn begun(dir: &Path) -> BTreeMap<String, usize> {
    let text = std::fs::read_to_string(dir.join("calls.jsonl")).unwrap_or_default();
    let mut begun = BTreeMap::new();
    for line in text.lines() {
        let Some(call) = check::entry(line) else { continue };
        if call["event"] == "started" {
            *begun.entry(call["turn"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    begun
}

/// Calls of the turns of one session.
fn of_session(begun: &BTreeMap<String, usize>, task: &Task) -> BTreeMap<String, usize> {
    let session = trellis::domain::event::new_session_id(task.job.as_ref().unwrap());
    let part = format!("/{}/{session}/", task.agent);
    begun.iter().filter(|(turn, _)| turn.contains(&part)).map(|(turn, n)| (turn.clone(), *n)).collect()
}

/// Waits for the end of so many of these jobs; says which have ended.
pub(super) async fn ended(site: &Site, jobs: &[JobId], at_least: usize) -> Vec<JobId> {
    for _ in 0..6000 {
        let ended = site.ended(jobs).await;
        if ended.len() >= at_least {
            return ended;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("not {at_least} of {} jobs ended", jobs.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_restart_resumes_only_unfinished_work() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut site) = Site::servers(dir.path(), 2, 50).await else { return };
    let door = site.door();
    let mut tasks: Vec<Task> = (50..TASKS_END).map(|n| Task::new(n, 50)).collect();
    for task in &mut tasks {
        task.job = Some(door.send(task).await.unwrap().0);
    }
    let jobs: Vec<JobId> = tasks.iter().filter_map(|task| task.job.clone()).collect();
    ended(&site, &jobs, 3).await;
    site.kill_all();
    let Kind::Servers { nats, redis, .. } = &site.kind else { unreachable!("it was started with servers") };
    lock(nats)[0].kill();
    lock(redis)[0].kill();
    lock(nats)[0].restart();
    assert!(lock(redis)[0].start_again());
    let finished = ended(&site, &jobs, 3).await;
    assert!(finished.len() < jobs.len(), "nothing was unfinished");
    let before = begun(dir.path());
    site.processes = vec![site.fleet.start(), site.fleet.start()];
    ended(&site, &jobs, jobs.len()).await;
    let after = begun(dir.path());
    let mut resumed = 0;
    for task in &tasks {
        let (was, is) = (of_session(&before, task), of_session(&after, task));
        assert!(is.len() >= 3, "{} took {} turns", task.name, is.len());
        if finished.contains(task.job.as_ref().unwrap()) {
            assert_eq!(was, is, "{} had ended and was asked again", task.name);
        }
        // All turns but the one that was under way are done.
        let again: Vec<_> = was.iter().filter(|(turn, n)| is[*turn] > **n).collect();
        let last = was.keys().next_back();
        assert!(again.is_empty() || (again.len() == 1 && Some(again[0].0) == last), "{}: {was:?}, {is:?}", task.name);
        resumed += usize::from(!was.is_empty() && was.len() < is.len());
    }
    assert!(resumed > 0, "no task was interrupted between two turns");
    site.kill_all();
    let trail = std::mem::take(&mut *lock(&site.fleet.trail));
    assert_eq!((trail.asked_after_record(), trail.trouble), (Vec::new(), Vec::new()));
}

/// A venue without a worker: what is submitted stays in its mailbox.
async fn stopped(dir: &Path) -> Option<(TestVenue, &'static RedisServer, String)> {
    let (url, server) = (nats::shared()?, RedisServer::shared()?);
    let options = server.options(ServerOrInjected::Server);
    let prefix = options.prefix.clone();
    let bus = NatsBus::open(&nats::options(&url)).await.unwrap();
    let venue = TestVenue::new(RedisStore::open(options).await.unwrap(), Arc::new(bus), dir, "").await;
    venue.agent("helper", json!({})).await;
    Some((venue, server, prefix))
}

/// Deletes one entry of a mailbox behind the system's back.
async fn lose_one(server: &RedisServer, venue: &TestVenue, prefix: &str, session: &SessionKey) {
    let key = format!("{}:mailbox:{}", RedisServer::base(prefix, &venue.owner), session.token());
    let removed = server.command(&["ZREMRANGEBYRANK", &key, "0", "0"]).await.unwrap();
    assert_eq!(removed, redis::Value::Int(1), "no entry in `{key}`");
}

#[tokio::test]
async fn a_task_that_vanishes_from_its_mailbox_is_one_unaccounted() {
    let dir = tempfile::tempdir().unwrap();
    let Some((venue, server, prefix)) = stopped(dir.path()).await else { return };
    let lost = venue.submit("helper", "t1", json!("first")).await;
    venue.submit("helper", "t2", json!("second")).await;
    let books = audit::audit_all(&venue.venue).await.unwrap();
    assert_eq!((books.accepted, books.pending, books.unaccounted), (2, 2, 0));
    lose_one(server, &venue, &prefix, &lost.session).await;
    let books = audit::audit_all(&venue.venue).await.unwrap();
    assert_eq!((books.accepted, books.pending, books.unaccounted), (2, 1, 1));
    assert!(books.missing[0].contains(lost.job.unwrap().as_str()), "{:?}", books.missing);
}

#[tokio::test]
async fn a_message_that_vanishes_from_its_mailbox_is_one_unaccounted() {
    let dir = tempfile::tempdir().unwrap();
    let Some((venue, server, prefix)) = stopped(dir.path()).await else { return };
    let message = |text: &str| Submission { input: json!(text), ..Submission::default() };
    let lost = venue.arrive("helper", "m1", false, message("first")).await;
    venue.arrive("helper", "m2", false, message("second")).await;
    let books = audit::audit_all(&venue.venue).await.unwrap();
    assert_eq!((books.waiting, books.unaccounted), (2, 0));
    lose_one(server, &venue, &prefix, &lost.session).await;
    let books = audit::audit_all(&venue.venue).await.unwrap();
    assert_eq!((books.waiting, books.unaccounted), (1, 1));
    assert!(books.missing[0].contains("2 events arrived"), "{:?}", books.missing);
}
