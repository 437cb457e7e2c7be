//! What must be true after everything was killed over and over.

use super::site::Outbound;
use super::worker_logs::Trail;
use super::workload::Task;
use crate::support::venue::all_jobs;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use trellis::domain::audit::AuditTotals;
use trellis::domain::chat::ChatMessage;
use trellis::domain::ids::{Owner, SessionKey};
use trellis::domain::job::{Job, JobStatus};
use trellis::domain::lattice::Path;
use trellis::domain::lattice::layout::Scope;
use trellis::domain::session::TurnRecord;
use trellis::process::retry::{AttemptFailure, RetryPolicy, retry};
use trellis::store::keys;
use trellis::venue::Venue;
use trellis::venue::upkeep::audit;
use trellis::venue::workspace::Workspace;

/// Elections of clusters are over by then.
pub const PATIENCE: RetryPolicy = RetryPolicy { total: Some(Duration::from_mins(2)), ..RetryPolicy::CONNECT };

/// Faults of one kind that are listed.
const LISTED: usize = 5;

/// What was found.
#[derive(Debug, Default)]
pub struct Findings {
    /// Everything that is wrong.
    pub faults: Vec<String>,
    /// Jobs of tasks, and child jobs.
    pub jobs: (usize, usize),
    /// Messages on `out`, and how many of them are there twice.
    pub outbound: (usize, usize),
    /// Turns that were committed with a reply.
    pub turns: usize,
    /// Calls that were begun, and answered.
    pub calls: (usize, usize),
    /// Calls of a turn that had an earlier call: its reply had not been recorded.
    pub repeated: usize,
    /// Calls of a turn whose reply had been recorded.
    pub asked_again: usize,
    pub books: AuditTotals,
}

/// One line of the log of model calls.
struct Call {
    turn: String,
    number: u64,
    replied: bool,
}

/// Everything at hand.
pub struct Evidence<'a> {
    pub venue: &'a Venue,
    pub owner: &'a Owner,
    pub tasks: &'a [Task],
    /// Where somebody else than the process itself can hear it.
    pub outbound: Option<&'a [Outbound]>,
    pub calls_log: &'a str,
    pub trail: &'a Trail,
}

impl Findings {
    /// Keeps the first few of a kind, and how many there are.
    fn fault(&mut self, what: &str, all: &[String]) {
        if !all.is_empty() {
            let shown: Vec<_> = all.iter().take(LISTED).cloned().collect();
            self.faults.push(format!("{what} ({}): {}", all.len(), shown.join("; ")));
        }
    }
}

/// What still moves; servers that were killed may have no leader yet.
pub async fn moving(venue: &Venue, owner: &Owner) -> Option<String> {
    let looked = async {
        let outbox = venue.store.outbox(owner).await?.len();
        let transit = venue.bus.in_transit().await?.len();
        let sessions = venue.store.sessions(owner, None, None, 100_000).await?;
        let full: Vec<_> = sessions.iter().filter(|s| !s.mailbox.is_empty()).map(|s| s.key.to_string()).collect();
        let rests = outbox + transit + full.len() == 0;
        let moves = format!("{outbox} in the outbox, {transit} in the queue, mailboxes with events: {full:?}");
        Ok::<_, audit::AuditError>((!rests).then_some(moves))
    };
    looked.await.unwrap_or_else(|error| Some(format!("unknown: {error}")))
}

/// The books, as soon as servers that were killed can be asked.
async fn books(venue: &Venue) -> AuditTotals {
    let closed = || async { audit::audit_all(venue).await.map_err(AttemptFailure::Transient) };
    retry(PATIENCE, "the books", closed).await.unwrap()
}

/// All checks.
pub async fn all(evidence: &Evidence<'_>) -> Findings {
    let mut found = Findings::default();
    let all_jobs = all_jobs(evidence.venue, evidence.owner).await;
    let by_event: HashMap<&str, &Job> = all_jobs.iter().map(|job| (job.head.event.as_str(), job)).collect();
    results(evidence, &all_jobs, &by_event, &mut found);
    if let Some(said) = evidence.outbound {
        outbound(said, &all_jobs, &mut found);
    }
    tree(evidence, &mut found).await;
    let records = records(evidence).await;
    turns(evidence, &records, &by_event, &mut found);
    calls(evidence, &records, &mut found);
    found.fault("errors in logs", &evidence.trail.trouble);
    found.books = books(evidence.venue).await;
    let books = found.books.clone();
    if books.unaccounted + books.pending + books.waiting > 0 || books.completed != all_jobs.len() as u64 {
        found.faults.push(format!("the books: {books:?}"));
    }
    found
}

/// Every task has exactly one result, and it is the right one; so has every child job.
fn results(evidence: &Evidence<'_>, jobs: &[Job], by_event: &HashMap<&str, &Job>, found: &mut Findings) {
    let mut wrong = Vec::new();
    for task in evidence.tasks {
        let Some(job) = by_event.get(task.name.as_str()) else {
            wrong.push(format!("{} has no job", task.name));
            continue;
        };
        let output = job.result.as_ref().and_then(|result| result.output.as_ref()).and_then(Value::as_str);
        let right = output.is_some_and(|output| output.starts_with(&task.output()));
        if job.status != JobStatus::Complete || !right || Some(&job.head.id) != task.job.as_ref() {
            wrong.push(format!(
                "{} is {:?} with {:?}, expected `{}…`",
                task.name,
                job.status,
                job.result,
                task.output()
            ));
        }
    }
    let children: Vec<_> = jobs.iter().filter(|job| job.head.parent.is_some()).collect();
    let asked = evidence.tasks.iter().filter(|task| task.asks).count();
    if children.len() != asked || jobs.len() != asked + evidence.tasks.len() || by_event.len() != jobs.len() {
        wrong.push(format!(
            "{} jobs with {} children, expected {} and {asked}",
            jobs.len(),
            children.len(),
            evidence.tasks.len() + asked
        ));
    }
    wrong.extend(
        children
            .iter()
            .filter(|job| job.status != JobStatus::Complete)
            .map(|job| format!("child {} is {:?}", job.head.id, job.status)),
    );
    found.jobs = (evidence.tasks.len(), children.len());
    found.fault("results", &wrong);
}

/// Every job was announced once, with its result.
fn outbound(all: &[Outbound], jobs: &[Job], found: &mut Findings) {
    let mut seen: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for message in all {
        seen.entry(&message.id).or_default().push(&message.stored);
    }
    let twice: Vec<_> =
        seen.iter().filter(|(_, at)| at.len() > 1).map(|(id, at)| format!("{id} at {}", at.join(" and "))).collect();
    found.outbound = (all.len(), twice.len());
    found.fault("outbound messages seen more than once", &twice);
    let said: HashMap<_, _> =
        all.iter().map(|Outbound { completion, .. }| (completion.job.clone().unwrap(), completion)).collect();
    let missing = jobs.iter().filter(|job| said.get(&job.head.id).map(|said| &said.result) != job.result.as_ref());
    let missing: Vec<_> = missing.map(|job| job.head.event.to_string()).collect();
    found.fault("jobs whose completion is missing or differs", &missing);
    if all.len() != jobs.len() {
        found.faults.push(format!("{} completions for {} jobs", all.len(), jobs.len()));
    }
}

/// Every write is there; every append is there once.
async fn tree(evidence: &Evidence<'_>, found: &mut Findings) {
    let tree = Workspace::new(Arc::clone(&evidence.venue.store), evidence.owner.clone(), Scope::default());
    let mut wrong = Vec::new();
    let mut expected: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for task in evidence.tasks {
        expected.entry(format!("w/logs/{}", task.group)).or_default().insert(&task.name);
        if task.asks {
            expected.entry(format!("w/helped/{}", task.group)).or_default().insert(&task.name);
        }
        let path = format!("w/notes/{}", task.name);
        let note = tree.get(&Path::parse(&path).unwrap()).await.unwrap();
        if note.as_ref().and_then(|note| note["n"].as_u64()) != Some(task.n as u64) {
            wrong.push(format!("`{path}` is {note:?}"));
        }
    }
    for (path, names) in expected {
        let value = tree.get(&Path::parse(&path).unwrap()).await.unwrap().unwrap_or_default();
        let held: Vec<_> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let set: BTreeSet<_> = held.iter().copied().collect();
        if set != names || held.len() != names.len() {
            let missing: Vec<_> = names.difference(&set).collect();
            wrong.push(format!("`{path}` has {} elements, expected {}; missing {missing:?}", held.len(), names.len()));
        }
    }
    found.fault("the tree", &wrong);
}

async fn records(evidence: &Evidence<'_>) -> Vec<(SessionKey, TurnRecord)> {
    let store = &evidence.venue.store;
    let mut records = Vec::new();
    for session in store.sessions(evidence.owner, None, None, 100_000).await.unwrap() {
        for (_, doc) in store.scan(evidence.owner, &keys::turns(&session.key), None, false, 10_000).await.unwrap() {
            records.push((session.key.clone(), serde_json::from_slice(&doc.value.unwrap()).unwrap()));
        }
    }
    records
}

/// Every task took at least three turns and ended in exactly one of them.
fn turns(
    evidence: &Evidence<'_>,
    records: &[(SessionKey, TurnRecord)],
    by_event: &HashMap<&str, &Job>,
    found: &mut Findings,
) {
    let mut wrong = Vec::new();
    for task in evidence.tasks {
        let Some(job) = by_event.get(task.name.as_str()) else { continue };
        let of_task: Vec<_> = records.iter().filter(|(_, record)| record.job.as_ref() == Some(&job.head.id)).collect();
        let ended = of_task.iter().filter(|(_, record)| !record.ended.is_empty()).count();
        let failed: Vec<_> = of_task.iter().flat_map(|(_, r)| &r.calls).filter(|call| call.outcome != "ok").collect();
        if of_task.len() != 3 || ended != 1 || !failed.is_empty() {
            wrong.push(format!(
                "{} took {} turns, ended in {ended}, calls that failed: {failed:?}",
                task.name,
                of_task.len()
            ));
        }
    }
    found.turns = records.len();
    found.fault("turns", &wrong);
}

/// An entry of the log of model calls. A kill may cut a write short where a page of the file ends;
/// the entry of the next process then follows on the same line, and the cut one was never finished.
pub fn entry(line: &str) -> Option<Value> {
    serde_json::from_str(line).ok().or_else(|| {
        let (at, _) = line.rmatch_indices("{\"turn\":").next().filter(|(at, _)| *at > 0)?;
        serde_json::from_str(&line[at..]).ok()
    })
}

/// The reply of a committed turn is one that was given for it, not always the last: whoever stood
/// still while its lease lapsed may get its own after its successor. After a recorded one nobody
/// asked.
fn calls(evidence: &Evidence<'_>, records: &[(SessionKey, TurnRecord)], found: &mut Findings) {
    let mut of_turn: HashMap<String, Vec<Call>> = HashMap::new();
    for value in evidence.calls_log.lines().filter_map(entry) {
        let call = Call {
            turn: value["turn"].as_str().unwrap().to_owned(),
            number: value["call"].as_u64().unwrap(),
            replied: value["event"] == "replied",
        };
        of_turn.entry(call.turn.clone()).or_default().push(call);
    }
    let begun = of_turn.values().flatten().filter(|call| !call.replied).count();
    found.calls = (begun, of_turn.values().flatten().filter(|call| call.replied).count());
    found.repeated = begun.saturating_sub(of_turn.len());
    let mut wrong = Vec::new();
    for (session, record) in records {
        let turn = format!("{}/{session}/{}", evidence.owner, record.turn);
        let replied: Vec<_> =
            of_turn.get(&turn).into_iter().flatten().filter(|call| call.replied).map(|call| call.number).collect();
        let said = record.said.iter().find_map(|message| match message {
            ChatMessage::Assistant { text, .. } => text.rsplit("call ").next().and_then(|number| number.parse().ok()),
            ChatMessage::User { .. } | ChatMessage::Tool { .. } => None,
        });
        if said.is_none_or(|said| !replied.contains(&said)) {
            wrong.push(format!("turn {turn} was committed with call {said:?}, those that replied were {replied:?}"));
        }
    }
    found.fault("committed replies", &wrong);
    let asked = evidence.trail.asked_after_record();
    found.asked_again = asked.len();
    found.fault("asked again after the reply was recorded", &asked);
}

#[test]
fn an_entry_behind_a_cut_one_is_found_and_a_cut_one_is_none() {
    let whole = r#"{"turn":"a","call":2,"event":"started"}"#;
    let cut = r#"{"turn":"a","call":1,"ev"#;
    assert_eq!(entry(whole).unwrap()["call"], 2);
    assert_eq!(entry(&format!("{cut}{whole}")).unwrap()["call"], 2);
    assert_eq!(entry(cut), None);
}
