//! What must be true when everything is healed and nothing moves any more.

use super::callers::{Diary, Way};
use super::fleet::Fleet;
use super::model::Calls;
use super::plan::FaultKind;
use crate::support::venue::all_jobs;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trellis::domain::budget::Account;
use trellis::domain::event::Completion;
use trellis::domain::ids::{EventId, JobId, SessionKey};
use trellis::domain::job::{ErrorCode, Job, JobStatus};
use trellis::domain::lattice::Path;
use trellis::domain::lattice::layout::Scope;
use trellis::domain::session::TurnRecord;
use trellis::domain::timer::{Timer, TimerId};
use trellis::store::keys;
use trellis::venue::timers;
use trellis::venue::upkeep::audit;
use trellis::venue::workspace::Workspace;

/// Everything that is there is read at once.
const MANY: usize = 100_000;

/// What still moves.
pub async fn moving(fleet: &Fleet) -> Option<String> {
    let (venue, owner) = (&fleet.venue, &fleet.owner);
    let outbox: Vec<_> = venue.store.outbox(owner).await.unwrap().into_iter().map(|entry| entry.id).collect();
    let waiting = fleet.queue.waiting();
    let sessions = fleet.store.inner.sessions(owner, None, None, MANY).await.unwrap();
    let full: Vec<_> = sessions.iter().filter(|s| !s.mailbox.is_empty()).map(|s| s.key.to_string()).collect();
    let held: Vec<_> = sessions.iter().filter(|s| s.lease_until.is_some()).map(|s| s.key.to_string()).collect();
    let wakes = timers::list(venue, owner, None, false, 0, 1_000).await.unwrap().items.len();
    let open: Vec<_> = all_jobs(venue, owner).await.into_iter().filter(|job| !job.status.is_terminal()).collect();
    let open: Vec<_> = open.iter().map(|job| format!("{} {:?}", job.head.event, job.status)).collect();
    let rests = outbox.len() + waiting + full.len() + held.len() + wakes + open.len() == 0;
    (!rests).then(|| {
        format!(
            "outbox {outbox:?}, {waiting} in the queue, mailboxes {full:?}, held {held:?}, {wakes} timers, jobs {open:?}"
        )
    })
}

/// Everything at hand.
struct Evidence<'a> {
    fleet: &'a Fleet,
    diary: &'a Diary,
    jobs: Vec<Job>,
    records: Vec<(SessionKey, TurnRecord)>,
    /// The store lost something that it had acknowledged.
    lost: bool,
    wrong: Vec<String>,
}

/// All checks: what is wrong, and how much was done.
pub async fn all(fleet: &Fleet, diary: &Diary) -> (Vec<String>, BTreeMap<&'static str, u64>) {
    let jobs = all_jobs(&fleet.venue, &fleet.owner).await;
    let lost = fleet.world.plan.has(|kind| kind == FaultKind::LostTail);
    let mut evidence =
        Evidence { fleet, diary, jobs, records: records(fleet).await, lost, wrong: fleet.world.violations() };
    evidence.books().await;
    let refused = evidence.completions();
    evidence.submissions(&refused);
    evidence.ends();
    evidence.effects().await;
    evidence.messages();
    evidence.timers().await;
    evidence.budgets().await;
    evidence.turns();
    let calls = fleet.provider.calls.lock().unwrap().clone();
    let sum = |of: fn(&Calls) -> u32| calls.values().map(|calls| u64::from(of(calls))).sum();
    let count = |n: usize| n as u64;
    let done = BTreeMap::from([
        ("jobs", count(evidence.jobs.len())),
        ("turns", count(evidence.records.len())),
        ("model calls", sum(|calls| calls.begun)),
        ("model replies", sum(|calls| calls.answered)),
        ("completions", count(fleet.queue.out().len())),
        ("dead", count(evidence.jobs.iter().filter(|job| code(job) == Some(ErrorCode::Dead)).count())),
        ("events refused", count(refused.len())),
    ]);
    (evidence.wrong, done)
}

async fn records(fleet: &Fleet) -> Vec<(SessionKey, TurnRecord)> {
    let (store, owner) = (&fleet.venue.store, &fleet.owner);
    let mut records = Vec::new();
    for session in store.sessions(owner, None, None, MANY).await.unwrap() {
        for (_, doc) in store.scan(owner, &keys::turns(&session.key), None, false, MANY).await.unwrap() {
            records.push((session.key.clone(), serde_json::from_slice(&doc.value.unwrap()).unwrap()));
        }
    }
    records
}

fn code(job: &Job) -> Option<ErrorCode> {
    job.result.as_ref().and_then(|result| result.error_code)
}

impl Evidence<'_> {
    fn must(&mut self, is: bool, otherwise: impl FnOnce() -> String) {
        if !is {
            self.wrong.push(otherwise());
        }
    }

    async fn books(&mut self) {
        let books = audit::audit_all(&self.fleet.venue).await.unwrap();
        let closed = books.unaccounted + books.pending + books.waiting == 0
            && books.accepted == books.completed + books.failed + books.cancelled + books.rejected
            && books.accepted == self.jobs.len() as u64
            && books.drift.is_empty();
        self.must(closed, || format!("the books don't close: {books:?}"));
    }

    /// The end of every job was told, and each time the same. The events that were refused instead.
    fn completions(&mut self) -> BTreeSet<EventId> {
        let said = self.fleet.queue.out().into_iter();
        let said: Vec<Completion> = said.map(|message| serde_json::from_value(message.body).unwrap()).collect();
        let mut of_jobs: BTreeMap<JobId, Completion> = BTreeMap::new();
        for one in said.iter().filter(|one| one.job.is_some()) {
            let job = one.job.clone().unwrap();
            if let Some(before) = of_jobs.insert(job.clone(), one.clone()) {
                let same = before.result == one.result || self.lost;
                self.must(same, || format!("{job} has two ends: {before:?} and {one:?}"));
            }
        }
        for job in self.jobs.clone() {
            let told = of_jobs.remove(&job.head.id);
            let right = told.as_ref().is_some_and(|told| Some(&told.result) == job.result.as_ref());
            // The end of a job for somebody outside is told to who asked alone.
            let right = right || self.lost && told.is_some() || job.head.op.is_some() && told.is_none();
            self.must(right, || format!("the end of {} was told as {told:?}: {:?}", job.head.event, job.result));
        }
        let rest = of_jobs.into_keys().collect::<Vec<_>>();
        self.must(rest.is_empty() || self.lost, || format!("completions of no job: {rest:?}"));
        said.into_iter().filter(|one| one.job.is_none()).map(|one| one.id).collect()
    }

    fn killed(&self) -> bool {
        self.fleet.world.plan.has(|kind| matches!(kind, FaultKind::Kill(_)))
    }

    /// What was accepted has one job, what was refused has none.
    fn submissions(&mut self, refused: &BTreeSet<EventId>) {
        let of: BTreeMap<String, usize> = self.jobs.iter().fold(BTreeMap::new(), |mut all, job| {
            *all.entry(job.head.event.to_string()).or_default() += 1;
            all
        });
        let twice: Vec<_> = of.iter().filter(|(_, n)| **n > 1).collect();
        self.must(twice.is_empty(), || format!("events with several jobs: {twice:?}"));
        let sent = self.diary.sent.lock().unwrap().clone();
        for (name, sent) in sent.iter().filter(|(_, sent)| sent.task) {
            let (has, event) = (of.contains_key(name), EventId::new(name.clone()).unwrap());
            let right = match sent.way {
                Way::Accepted => has,
                Way::Refused => !has,
                // Who had taken it may have died before the store was found without it.
                Way::Queued => has || refused.contains(&event) || self.lost && self.killed(),
            };
            self.must(right, || format!("{name} to {} was {:?}, and there is a job: {has}", sent.agent, sent.way));
        }
    }

    /// Every job ended as its agent ends one.
    fn ends(&mut self) {
        let cancelled = self.diary.cancelled.lock().unwrap().clone();
        let gone: Vec<_> = cancelled
            .iter()
            .filter(|id| !self.jobs.iter().any(|job| job.head.id == **id && job.status == JobStatus::Cancelled))
            .cloned()
            .collect();
        self.must(gone.is_empty() || self.lost, || format!("cancelled, and gone on: {gone:?}"));
        let maybe = self.diary.maybe_cancelled.lock().unwrap().clone();
        for job in self.jobs.clone() {
            let right = match (job.status, code(&job)) {
                (JobStatus::Complete, _) => true,
                // By a caller, or with the task that started it.
                (JobStatus::Cancelled, _) => {
                    let by_caller = [&cancelled, &maybe].iter().any(|all| all.contains(&job.head.id));
                    by_caller || job.head.parent.is_some() || self.lost
                }
                (JobStatus::Failed, Some(ErrorCode::Dead)) => self.fleet.world.plan.faults.len() > 1,
                (JobStatus::Failed, Some(ErrorCode::BudgetExceeded)) => job.head.agent.as_str() == "spender",
                (JobStatus::Rejected, _) => job.head.agent.as_str() == "slow",
                _ => false,
            };
            self.must(right, || {
                format!("{} of {} ended {:?}: {:?}", job.head.event, job.head.agent, job.status, job.result)
            });
        }
    }

    /// What is written down stands there once, and nothing that must is missing.
    async fn effects(&mut self) {
        let tree = Workspace::new(Arc::clone(&self.fleet.venue.store), self.fleet.owner.clone(), Scope::default());
        for (path, agent) in [("w/book", "clerk"), ("w/log", "writer"), ("w/paid", "payer")] {
            let value = tree.get(&Path::parse(path).unwrap()).await.unwrap().unwrap_or_default();
            let names: Vec<&str> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let once: BTreeSet<&str> = names.iter().copied().collect();
            self.must(once.len() == names.len(), || format!("an append to `{path}` was applied twice: {names:?}"));
            // The rules count the turns of a session in which a task was cancelled as those of the next one, too.
            let place = |job: &Job| (job.head.agent.clone(), job.head.session.clone());
            let gone = self.jobs.iter().filter(|job| job.status == JobStatus::Cancelled);
            let mixed: BTreeSet<_> = gone.map(place).collect();
            let done = |job: &&Job| {
                job.status == JobStatus::Complete && job.head.agent.as_str() == agent && !mixed.contains(&place(job))
            };
            let missing: Vec<_> = self
                .jobs
                .iter()
                .filter(done)
                .filter_map(|job| job.head.input["name"].as_str())
                .filter(|name| agent != "payer" && !once.contains(name))
                .map(str::to_owned)
                .collect();
            self.must(missing.is_empty(), || format!("complete, and not in `{path}`: {missing:?}"));
        }
    }

    /// Every message was heard, and heard once.
    fn messages(&mut self) {
        let sent = self.diary.sent.lock().unwrap().clone();
        for (name, _) in sent.iter().filter(|(_, sent)| !sent.task && sent.way != Way::Refused) {
            let of = |record: &TurnRecord| record.events.iter().filter(|event| event.as_str() == name).count();
            let heard: usize = self.records.iter().map(|(_, record)| of(record)).sum();
            self.must(heard == 1 || self.lost && heard > 1, || format!("message {name} was heard {heard} times"));
        }
    }

    /// Timers have fired as often as their schedules say, each time once.
    async fn timers(&mut self) {
        let alarms: Vec<_> =
            self.diary.timers.lock().unwrap().iter().map(|alarm| (alarm.id.clone(), alarm.every)).collect();
        for (id, every) in alarms {
            let (timer, _) =
                timers::get(&self.fleet.venue, &self.fleet.owner, &TimerId::new(&id).unwrap()).await.unwrap();
            let Some(timer) = timer else {
                self.must(self.lost, || format!("timer {id} is gone"));
                continue;
            };
            let moments = fires(&timer, &self.jobs);
            let once = moments.iter().collect::<BTreeSet<_>>().len() == moments.len();
            self.must(once, || format!("timer {id} has fired twice at a time: {moments:?}"));
            let fired = moments.len() as u64;
            // Cancelled while times were being sent, it doesn't count those.
            let counted = fired == timer.fired || every && fired > timer.fired;
            self.must(counted || self.lost, || format!("timer {id} fired {fired} times: {timer:?}"));
            self.must(every || fired == 1, || format!("timer {id} of one time fired {fired} times"));
            let steps: BTreeSet<u64> = moments.windows(2).map(|pair| pair[1] - pair[0]).collect();
            self.must(steps.len() <= 1, || format!("timer {id} left times out: {moments:?}"));
        }
    }

    /// No budget was overspent.
    async fn budgets(&mut self) {
        let calls = self.fleet.provider.calls.lock().unwrap().clone();
        for job in self.jobs.clone().iter().filter(|job| job.head.agent.as_str() == "spender") {
            let [_, request] = keys::job_accounts(&job.head.id);
            let account: Option<Account> = self.fleet.venue.store.get(&self.fleet.owner, &request).await.unwrap();
            let Some(account) = account else { continue };
            let limit = account.limits.turns.unwrap_or(u32::MAX);
            let prefix = format!("{}/{}/{}/", self.fleet.owner, job.head.agent, job.head.session);
            let of_job = calls.iter().filter(|(turn, _)| turn.starts_with(&prefix));
            let paid: u32 = of_job.map(|(_, calls)| calls.begun - calls.failed).sum();
            let within = account.spent.turns <= limit && (paid <= limit || self.lost);
            self.must(within, || format!("{} spent {account:?} in {paid} calls", job.head.event));
        }
    }

    /// The turns of a session come in order (one that only hears what it knew has no record), and no task ended in two
    /// of them.
    fn turns(&mut self) {
        let mut last: BTreeMap<SessionKey, u64> = BTreeMap::new();
        let mut ended: BTreeMap<JobId, usize> = BTreeMap::new();
        let mut gaps = Vec::new();
        for (session, record) in &self.records {
            let before = last.insert(session.clone(), record.turn).unwrap_or(0);
            if record.turn <= before {
                gaps.push(format!("turn {} of {session} comes after {before}", record.turn));
            }
            for (job, _) in &record.ended {
                *ended.entry(job.clone()).or_default() += 1;
            }
        }
        self.wrong.extend(gaps);
        let twice: Vec<_> = ended.into_iter().filter(|(_, n)| *n > 1).collect();
        self.must(twice.is_empty(), || format!("ended in several turns: {twice:?}"));
    }
}

/// The planned times at which a timer has sent a task, in milliseconds, sorted.
fn fires(timer: &Timer, jobs: &[Job]) -> Vec<u64> {
    let prefix = format!("venue:timer-{}-{}-", timer.id, timer.generation);
    let of = |job: &Job| job.head.event.as_str().strip_prefix(&prefix)?.split('-').next()?.parse().ok();
    let mut fires: Vec<u64> = jobs.iter().filter_map(of).collect();
    fires.sort_unstable();
    fires
}
