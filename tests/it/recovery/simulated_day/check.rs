//! What must be true after the day.

use super::calendar::Calendar;
use super::day_process::Life;
use super::traffic::{Traffic, Way};
use crate::support::venue::all_jobs;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use trellis::domain::event::Completion;
use trellis::domain::ids::{EventId, JobId};
use trellis::domain::job::{Job, JobStatus};
use trellis::domain::message::BusMessage;
use trellis::domain::session::TurnRecord;
use trellis::store::keys;
use trellis::venue::timers;
use trellis::venue::upkeep::audit;

/// Everything that is there is read at once.
const MANY: usize = 100_000;

/// What still moves, or is still to be done.
pub async fn moving(life: &Life) -> Option<String> {
    let (venue, owner) = (&life.door.venue, &life.door.owner);
    let outbox: Vec<_> = venue.store.outbox(owner).await.unwrap().into_iter().map(|entry| entry.id).collect();
    let transit = venue.bus.in_transit().await.unwrap();
    let sessions = venue.store.sessions(owner, None, None, MANY).await.unwrap();
    let full: Vec<_> = sessions.iter().filter(|s| !s.mailbox.is_empty()).map(|s| s.key.to_string()).collect();
    let wakes = timers::list(venue, owner, None, false, 0, 1_000).await.unwrap().items.len();
    let rests = outbox.len() + transit.len() + full.len() + wakes == 0;
    (!rests).then(|| format!("outbox {outbox:?}, queue {transit:?}, mailboxes {full:?}, {wakes} timers"))
}

/// All checks; the answer is a line about the day.
pub async fn all(life: &Life, traffic: &Traffic, calendar: &Calendar, (told, deaths): (&[BusMessage], u64)) -> String {
    let (venue, owner) = (&life.door.venue, &life.door.owner);
    let all_jobs = all_jobs(venue, owner).await;
    let total = all_jobs.len();
    let by_event: HashMap<&str, &Job> = all_jobs.iter().map(|job| (job.head.event.as_str(), job)).collect();
    assert_eq!(by_event.len(), total, "an event has two jobs");
    let open: Vec<_> = all_jobs.iter().filter(|job| !job.status.is_terminal()).collect();
    assert!(open.is_empty(), "not ended: {open:?}");
    let refused = completions(&all_jobs, told, deaths);
    let accepted = submissions(life, traffic, &by_event, &refused);
    let (task_fires, fires) = fires(calendar, &all_jobs);
    let children = all_jobs.iter().filter(|job| job.head.parent.is_some()).count();
    assert_eq!(total, accepted + task_fires + children, "jobs of submissions, timers and turns");
    let cancelled: BTreeSet<_> = with(&all_jobs, JobStatus::Cancelled).map(|job| &job.head.id).collect();
    assert!(traffic.cancelled.iter().all(|job| cancelled.contains(job)), "a cancelled job has gone on");
    effects(life, &all_jobs).await;
    let turns = turns(life).await;
    let books = audit::audit_all(venue).await.unwrap();
    assert_eq!(books.unaccounted, 0, "{books:?}");
    assert_eq!((books.pending, books.waiting), (0, 0), "{books:?}");
    assert_eq!(books.accepted, books.completed + books.failed + books.cancelled + books.rejected, "{books:?}");
    assert_eq!(books.accepted, total as u64, "{books:?}");
    format!(
        "unaccounted = 0 of {total} jobs ({} completed, {} failed, {} cancelled), {} events sent, {} again, \
         {} refused, {fires} fires, {turns} turns, {} model calls, {} decisions",
        books.completed,
        books.failed,
        books.cancelled,
        traffic.sent.len(),
        traffic.duplicates,
        refused.len() + traffic.sent.values().filter(|sent| sent.way == Way::Refused).count(),
        life.door.model_calls().len(),
        traffic.decisions,
    )
}

fn with(jobs: &[Job], status: JobStatus) -> impl Iterator<Item = &Job> {
    jobs.iter().filter(move |job| job.status == status)
}

/// Jobs that a process may have ended and not told of before it died: nobody is left who would hear it.
const UNTOLD: u64 = 4;

/// The completion of every job was told, with its result, but where the process died over it. Returns the events that
/// were refused instead.
fn completions(jobs: &[Job], said: &[BusMessage], deaths: u64) -> BTreeSet<EventId> {
    let said: Vec<Completion> =
        said.iter().map(|message| serde_json::from_value(message.body.clone()).unwrap()).collect();
    let mut of_jobs: BTreeMap<&JobId, &Completion> = BTreeMap::new();
    for one in &said {
        let Some(job) = &one.job else { continue };
        let before = of_jobs.insert(job, one);
        assert!(before.is_none_or(|before| before.result == one.result), "{job} has two ends");
    }
    let mut untold = 0;
    for job in jobs {
        match of_jobs.remove(&job.head.id) {
            Some(said) => assert_eq!(Some(&said.result), job.result.as_ref(), "{}", job.head.id),
            None => untold += 1,
        }
    }
    assert!(untold <= UNTOLD * deaths, "{untold} jobs ended untold in {deaths} lives");
    assert!(of_jobs.is_empty(), "completions of no job: {of_jobs:?}");
    said.into_iter().filter(|one| one.job.is_none()).map(|one| one.id).collect()
}

/// What was accepted has one job, what was refused has none. Returns how many have one.
fn submissions(life: &Life, traffic: &Traffic, by_event: &HashMap<&str, &Job>, refused: &BTreeSet<EventId>) -> usize {
    let mut accepted = 0;
    for (name, sent) in traffic.sent.iter().filter(|(_, sent)| sent.task) {
        let event = EventId::new(name.clone()).unwrap();
        let job = by_event.get(name.as_str());
        match (sent.way, job) {
            (Way::Accepted | Way::Queued, Some(job)) => {
                assert_eq!(job.head.id, JobId::derive(&life.door.venue.key, &life.door.owner, &event), "{name}");
                accepted += 1;
            }
            (Way::Refused, None) => {}
            (Way::Queued, None) => assert!(refused.contains(&event), "{name} to {} is lost", sent.agent),
            (Way::Accepted, None) => panic!("{name} was accepted and has no job"),
            (Way::Refused, Some(job)) => panic!("{name} was refused and has a job: {job:?}"),
        }
    }
    accepted
}

/// Every fire of a task timer is a job, and there are no others. Returns how many of them, and fires.
fn fires(calendar: &Calendar, jobs: &[Job]) -> (usize, u64) {
    let (mut of_tasks, mut all) = (0, 0);
    for entry in &calendar.entries {
        let prefix = format!("venue:timer-{}-", entry.id);
        let made: Vec<_> = jobs.iter().filter(|job| job.head.event.as_str().starts_with(&prefix)).collect();
        let fired = entry.found.expect("it was looked at when it was over").0;
        assert_eq!(made.len() as u64, if entry.is_task { fired } else { 0 }, "jobs of timer {}", entry.id);
        if entry.overlap_skip {
            alone(made.clone());
        }
        of_tasks += made.len();
        all += fired;
    }
    (of_tasks, all)
}

/// None of these began before the one before it had ended.
fn alone(mut jobs: Vec<&Job>) {
    jobs.sort_by_key(|job| job.head.created);
    for pair in jobs.windows(2) {
        assert!(pair[0].updated <= pair[1].head.created, "{pair:?} overlap");
    }
}

/// What clerks write down stands there once, and nothing of theirs is missing.
async fn effects(life: &Life, jobs: &[Job]) {
    let book = life.door.read("w/book").await.unwrap_or_default();
    let names: Vec<&str> = book.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let once: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(once.len(), names.len(), "an append was applied twice");
    for job in with(jobs, JobStatus::Complete).filter(|job| job.head.agent.as_str() == "clerk") {
        let output = job.result.as_ref().unwrap().output.as_ref().and_then(Value::as_str).unwrap_or_default();
        // In bad weather it may have said something else first.
        let fair = matches!(job.head.input["say"].as_str(), None | Some("weather fair"));
        assert!(!fair || once.contains(output), "`{output}` is complete and not in the book");
    }
}

/// Turns of all sessions; each wake was heard once.
async fn turns(life: &Life) -> usize {
    let (store, owner) = (&life.door.venue.store, &life.door.owner);
    let mut turns = 0;
    for session in store.sessions(owner, None, None, MANY).await.unwrap() {
        let found = store.scan(owner, &keys::turns(&session.key), None, false, MANY).await.unwrap();
        let read = |doc: trellis::store::Doc| serde_json::from_slice::<TurnRecord>(&doc.value.unwrap()).unwrap();
        let records: Vec<_> = found.into_iter().map(|(_, doc)| read(doc)).collect();
        turns += records.len();
        if session.key.agent.as_str() == "sleeper" {
            let called = records.iter().flat_map(|record| &record.calls).any(|call| call.outcome == "ok");
            let heard = records.iter().flat_map(|record| &record.heard);
            let woken = heard.filter(|heard| heard.text.contains("rise and shine")).count();
            assert!(woken == usize::from(called), "{} was woken {woken} times: {called}", session.key);
        }
    }
    turns
}
