//! Random operations on two backends with injected time, and on the lease machine of the core: every answer and all
//! that is readable afterwards must be equal.

mod oracle;
mod parts;

use crate::store::conformance::quota::recount;
use crate::support::dice::Dice;
use futures::FutureExt;
use oracle::{Around, Oracle};
use parts::{Case, REACHED, committed, comparable, entry, event_id, job, new_job, released, unmet, within};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use trellis::domain::ids::{JobId, Owner, SessionKey, sha256_hex};
use trellis::domain::job::JobStatus;
use trellis::domain::priority::{HIGH_PREFIX, LOW_PREFIX};
use trellis::domain::time::Millis;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::{
    Admit, Amend, Amendment, Checkpoint, Commit, CommitOutcome, Continuation, DocEffect, DocWrite, EventKind, Expect,
    Grant, JobFinish, Lease, LeaseOutcome, LeaseRequest, LeaseUse, MailboxEntry, NewEvent, ReleaseOutcome,
    SessionSnapshot, Store, StoreError, WriteOutcome, keys,
};

const STEPS: usize = 200;
const SEEDS: std::ops::Range<u64> = 0..24;
/// Everything is compared after so many steps; answers after each.
const COMPARED_EVERY: usize = 5;

/// What a renewal adds.
const TTL: Duration = Duration::from_secs(12);
const START: Millis = Millis(1_700_000_000_000);

/// What a worker knows of a lease that it was granted, perhaps long ago.
#[derive(Clone)]
struct Holding {
    lease: Lease,
    version: u64,
    arrivals: u64,
    mailbox: Vec<MailboxEntry>,
}

struct Run<'a> {
    stores: [&'a dyn Store; 2],
    dice: Dice,
    now: Millis,
    owner: Owner,
    holdings: Vec<Holding>,
    last: String,
    asked: Option<Admit>,
    step: usize,
    turns: u64,
    /// Sessions of the owner that run at once.
    cap: u32,
    reached: BTreeSet<&'static str>,
    oracle: Oracle,
}

/// Answers of both stores, which must be equal.
macro_rules! both {
    ($shown:path, $run:ident . $($call:tt)+) => {{
        let left = $shown($run.stores[0].$($call)+.await.unwrap());
        let right = $shown($run.stores[1].$($call)+.await.unwrap());
        $run.same(&left, &right);
        $run.tally(&left);
        left
    }};
    ($run:ident . $($call:tt)+) => {{
        let left = $run.stores[0].$($call)+.await.unwrap();
        let right = $run.stores[1].$($call)+.await.unwrap();
        $run.same(&left, &right);
        $run.tally(&left);
        left
    }};
}

impl Run<'_> {
    fn same<T: Debug + PartialEq>(&self, left: &T, right: &T) {
        assert!(left == right, "step {} at {}: {}\nleft  {left:?}\nright {right:?}", self.step, self.now, self.last);
    }

    fn tally(&mut self, answer: &impl Debug) {
        let text = format!("{answer:?}");
        self.reached.extend(REACHED.iter().copied().filter(|name| text.contains(name)));
    }

    /// Before `step`, which the machine follows.
    async fn look(&mut self, session: &SessionKey, step: &'static str, jobs: &[&JobId]) -> Around {
        self.oracle.look(self.stores[1], &self.owner, (self.now, session), (step, jobs)).await
    }

    fn session(&mut self) -> SessionKey {
        let agent = *self.dice.pick(&["clerk", "a.b"]);
        let session = *self.dice.pick(&["main", "s/2", "ü\"x"]);
        SessionKey { agent: agent.parse().unwrap(), session: session.replace('/', "_").parse().unwrap() }
    }

    async fn set_gate(&mut self) {
        let agent = self.session().agent;
        let gate = match self.dice.below(8) {
            0 => "SUSPENDED 2 5 queue",
            1 => "TERMINATED 2 5 queue",
            2 => "ACTIVE 1 5 reject",
            _ => "ACTIVE 2 5 queue",
        };
        self.last = format!("gate of {agent}: {gate}");
        let key = keys::agent_gate(&agent);
        let write = DocWrite { key, expect: Expect::Any, change: DocEffect::Put(gate.into()) };
        both!(self.write(self.now, &self.owner, std::slice::from_ref(&write)));
    }

    fn event(&mut self) -> NewEvent {
        let n = self.dice.below(60);
        let body = if self.dice.one_in(20) { format!("other {n}") } else { format!("body {n}") };
        let kind = *self.dice.pick(&[EventKind::Task, EventKind::Task, EventKind::Message, EventKind::Result]);
        let finish = (kind == EventKind::Result).then(|| JobFinish {
            job: job(200 + n),
            status: JobStatus::Complete,
            result: format!("{{\"r\":{n}}}").into(),
        });
        NewEvent {
            id: event_id(n),
            body_hash: sha256_hex(body.as_bytes()),
            kind,
            job: match kind {
                EventKind::Task => Some(job(n)),
                EventKind::Message => self.dice.one_in(3).then(|| job(n + 1)),
                EventKind::Result => Some(job(200 + n)),
            },
            order: format!("{}{:04}", *self.dice.pick(&["", "3-", "3-", HIGH_PREFIX, LOW_PREFIX]), self.dice.below(9)),
            body: body.into(),
            open: (kind == EventKind::Task).then(|| new_job(n)),
            finish: finish.filter(|_| self.dice.one_in(2)),
            outbox: if self.dice.one_in(4) { vec![entry(format!("admit-{n}"))] } else { Vec::new() },
            quota: within(&mut self.dice),
            may_replace: self.dice.one_in(2),
        }
    }

    async fn admit(&mut self) {
        let session = self.session();
        let event = if self.dice.one_in(3) { None } else { Some(self.event()) };
        let lease = (!self.dice.one_in(4)).then(|| LeaseRequest {
            token: format!("t{}", self.step),
            worker: "w".to_owned(),
            ttl: Duration::from_secs(10),
            mailbox_limit: 4,
            crash_limit: 2,
            owner_cap: self.cap,
        });
        let request = match &self.asked {
            // Its answer was lost, now or some time ago.
            Some(asked) if self.dice.one_in(8) => asked.clone(),
            Some(_) | None => Admit { owner: self.owner.clone(), session, event, lease },
        };
        if self.dice.one_in(3) {
            self.asked = Some(request.clone());
        }
        self.last = format!("{request:?}");
        let event = request.event.as_ref();
        let jobs: Vec<_> = event.and_then(|event| event.job.as_ref()).into_iter().collect();
        let around = self.look(&request.session, if event.is_some() { "admit" } else { "wake" }, &jobs).await;
        let answer = both!(self.admit(self.now, &request));
        self.oracle.admitted(around, &request, &answer);
        if let LeaseOutcome::Run(grant) = answer.lease {
            let Grant { lease, version, arrivals, mailbox, .. } = *grant;
            self.holdings.push(Holding { lease, version, arrivals, mailbox });
        }
    }

    /// Mostly a recent one, sometimes one that was lost long ago.
    fn holding(&mut self) -> Option<usize> {
        let many = self.holdings.len() as u64;
        if many == 0 {
            return None;
        }
        let back = if self.dice.one_in(6) { self.dice.below(many) } else { self.dice.below(many.min(4)) };
        Some(usize::try_from(many - 1 - back).unwrap())
    }

    fn after(&mut self, holding: &Holding) -> LeaseUse {
        if self.dice.one_in(3) {
            return LeaseUse::Keep;
        }
        let due = (!self.dice.one_in(3)).then(|| self.now.plus(Duration::from_millis(self.dice.below(20_000))));
        LeaseUse::Release { arrivals: holding.arrivals, due, backoff: due.is_some() && !self.dice.one_in(4) }
    }

    fn go_on(&mut self, at: usize, next: &Continuation) {
        match next {
            Continuation::Held { mailbox, arrivals, .. } => {
                self.holdings[at].mailbox.clone_from(mailbox);
                self.holdings[at].arrivals = *arrivals;
            }
            Continuation::Released { .. } if self.dice.one_in(3) => {
                self.holdings.remove(at);
            }
            Continuation::Released { .. } => {}
        }
    }

    async fn renew(&mut self) {
        let Some(at) = self.holding() else { return };
        let holding = self.holdings[at].clone();
        self.last = format!("renew {:?}", holding.lease);
        let around = self.look(&holding.lease.session, "renew", &[]).await;
        let answer = both!(self.renew(self.now, &holding.lease, TTL));
        self.oracle.renewed(&around, &holding.lease, self.now.plus(TTL), answer);
    }

    async fn checkpoint(&mut self) {
        let Some(at) = self.holding() else { return };
        let holding = self.holdings[at].clone();
        let n = self.dice.below(20);
        let write = Checkpoint {
            turn: holding.version + 1,
            reply: self.dice.one_in(2).then(|| format!("reply {n}").into()),
            calls: (0..self.dice.below(3)).map(|i| (u32::try_from(i * 7).unwrap(), format!("c{n}").into())).collect(),
            open: if self.dice.one_in(3) { vec![new_job(200 + n)] } else { Vec::new() },
            outbox: if self.dice.one_in(3) { vec![entry(format!("child-{n}"))] } else { Vec::new() },
            writes: match n {
                0..4 => vec![DocWrite::put("w/c", format!("checkpoint {n}"))],
                4..6 => vec![DocWrite::delete("w/c")],
                _ => Vec::new(),
            },
        };
        self.last = format!("checkpoint {:?} {write:?}", holding.lease);
        let around = self.look(&holding.lease.session, "checkpoint", &[]).await;
        let answer = both!(self.checkpoint(self.now, &holding.lease, &write));
        self.oracle.recorded(&around, &holding.lease, write.turn, answer);
    }

    fn write(&mut self) -> DocWrite {
        let key = format!("w/{}", *self.dice.pick(&["a", "b", "b/c", "c"]));
        let expect = if self.dice.one_in(4) { Expect::Version(self.dice.below(4)) } else { Expect::Any };
        let change = match self.dice.below(6) {
            0 | 1 => DocEffect::Delete,
            2 => DocEffect::Check,
            _ => DocEffect::Put(format!("value {}", self.step).into()),
        };
        DocWrite { key, expect, change }
    }

    async fn write_docs(&mut self) {
        let mut writes: Vec<_> = (0..=self.dice.below(3)).map(|_| self.write()).collect();
        let Some(quota) = within(&mut self.dice) else {
            self.last = format!("write {writes:?}");
            both!(self.write(self.now, &self.owner, &writes));
            return;
        };
        let more = DocEffect::Put("new".into());
        writes.push(DocWrite { key: format!("w/n{}", self.step), expect: Expect::Any, change: more });
        self.last = format!("write within {quota:?} {writes:?}");
        let told = |answer: Result<WriteOutcome, StoreError>| format!("{answer:?}");
        let left = told(self.stores[0].write_within(self.now, &self.owner, &writes, &quota).await);
        let right = told(self.stores[1].write_within(self.now, &self.owner, &writes, &quota).await);
        self.same(&left, &right);
        self.tally(&left);
    }

    async fn commit(&mut self) {
        let Some(at) = self.holding() else { return };
        let holding = self.holdings[at].clone();
        let consume: Vec<_> = holding.mailbox.iter().take(usize::try_from(self.dice.below(3)).unwrap()).collect();
        let finish = consume.iter().filter(|entry| entry.kind == EventKind::Task).filter_map(|entry| entry.job.clone());
        self.turns += 1;
        let commit = Commit {
            turn: holding.version + 1,
            finish: finish.map(|job| JobFinish { job, status: JobStatus::Complete, result: "{}".into() }).collect(),
            status: self.dice.one_in(4).then(|| holding.mailbox.iter().find_map(|e| e.job.clone())).flatten().map(
                |job| {
                    let waits = self.dice.one_in(2);
                    (job, if waits { JobStatus::InputRequired } else { JobStatus::Started })
                },
            ),
            consume: consume.iter().map(|entry| entry.key.clone()).collect(),
            writes: (0..self.dice.below(2)).map(|_| self.write()).collect(),
            outbox: if self.dice.one_in(2) { vec![entry(format!("turn-{}", self.turns))] } else { Vec::new() },
            state: format!("state {}", self.step).into(),
            unless_cancelled: if self.dice.one_in(4) {
                None
            } else {
                holding.mailbox.iter().find_map(|e| e.job.clone())
            },
            after_commit: self.after(&holding),
        };
        self.last = format!("commit {:?} {commit:?}", holding.lease);
        let jobs: Vec<_> = holding.mailbox.iter().filter_map(|entry| entry.job.as_ref()).collect();
        let around = self.look(&holding.lease.session, "commit", &jobs).await;
        let answer = both!(committed, self.commit(self.now, &holding.lease, &commit));
        self.oracle.committed(around, &holding.lease, &commit, &answer);
        if let CommitOutcome::Done(next) = answer {
            if self.dice.one_in(3) {
                let around = self.look(&holding.lease.session, "commit again", &jobs).await;
                let answer = both!(committed, self.commit(self.now, &holding.lease, &commit));
                self.oracle.committed(around, &holding.lease, &commit, &answer);
            }
            self.holdings[at].version += 1;
            self.go_on(at, &next);
        }
    }

    async fn release(&mut self) {
        let Some(at) = self.holding() else { return };
        let holding = self.holdings[at].clone();
        let then = self.after(&holding);
        self.last = format!("release {:?} {then:?}", holding.lease);
        let around = self.look(&holding.lease.session, "release", &[]).await;
        let answer = both!(released, self.release(self.now, &holding.lease, then));
        self.oracle.released(&around, &holding.lease, then, &answer);
        if let ReleaseOutcome::Done(next) = answer {
            self.go_on(at, &next);
        }
    }

    async fn finish(&mut self) {
        let n = if self.dice.one_in(5) { 300 + self.dice.below(9) } else { self.dice.below(60) };
        let session = self.session();
        let status = if self.dice.one_in(4) { JobStatus::Failed } else { JobStatus::Cancelled };
        let finish = JobFinish { job: job(n), status, result: "{\"ended\":1}".into() };
        let open = self.dice.one_in(3).then(|| new_job(n));
        let outbox = [entry(format!("finish-{n}"))];
        self.last = format!("finish {session} {finish:?} {open:?}");
        let around = self.look(&session, "finish", &[&finish.job]).await;
        let answer = both!(self.finish(self.now, &self.owner, &session, &finish, open.as_ref(), &outbox));
        self.oracle.finished(&around, &session, (&finish, open.is_some()), &answer);
    }

    async fn park(&mut self) {
        let n = if self.dice.one_in(8) { 300 + self.dice.below(9) } else { self.dice.below(60) };
        let (session, pause) = (self.session(), self.dice.one_in(2));
        self.last = format!("park {session} {n} {pause}");
        for _ in 0..if self.dice.one_in(3) { 2 } else { 1 } {
            let around = self.look(&session, if pause { "pause" } else { "resume" }, &[&job(n)]).await;
            let answer = both!(self.set_job_paused(self.now, &self.owner, &session, &job(n), pause));
            self.oracle.parked(&around, &session, (&job(n), pause), answer);
        }
    }

    /// Mostly as the session is, sometimes not.
    async fn amend(&mut self) {
        let session = self.session();
        let all = self.stores[0].sessions(&self.owner, None, None, 100).await.unwrap();
        let seen = all.into_iter().find(|facts| facts.key == session);
        let (version, was, arrivals) = seen.map_or((0, None, 0), |seen| (seen.version, seen.state, seen.arrivals));
        let then = match self.dice.below(3) {
            0 => Amendment::Remove { arrivals: arrivals + self.dice.below(4) / 3 },
            _ => Amendment::State(format!("amended {}", self.dice.below(3)).into()),
        };
        let was = was.filter(|_| !self.dice.one_in(6));
        // Of what documents there are the oracle knows nothing: no check.
        let writes = Some(self.write()).filter(|write| write.change != DocEffect::Check).into_iter().collect();
        let amend = Amend { version, expected_state: was, amendment: then, writes };
        self.last = format!("amend {session} {amend:?}");
        self.look(&session, "amend", &[]).await;
        let answer = both!(self.amend(self.now, &self.owner, &session, &amend));
        self.oracle.amended(&session, &amend, answer);
    }

    async fn replace_session(&mut self) {
        let session = self.session();
        let state = format!("replaced {}", self.dice.below(2)).into();
        let snapshot =
            (!self.dice.one_in(4)).then(|| SessionSnapshot { version: 1 + self.dice.below(2), state, quota: None });
        self.last = format!("set_session {session} {snapshot:?}");
        let around = self.look(&session, "set_session", &[]).await;
        let answer = both!(self.set_session(self.now, &self.owner, &session, snapshot.as_ref(), &[]));
        self.oracle.replaced(&around, &session, snapshot.as_ref(), answer);
    }

    async fn sweep(&mut self) {
        let grace = Duration::from_secs(3);
        self.last = String::from("sweep");
        let [left, right] = self.stores;
        let mut left = left.sweep(self.now, &self.owner, grace, 50).await.unwrap();
        let mut right = right.sweep(self.now, &self.owner, grace, 50).await.unwrap();
        left.due.sort();
        right.due.sort();
        self.oracle.swept(self.now, self.now.plus(grace), &right.due);
        self.same(&(left.due, comparable(left.outbox), left.more), &(right.due, comparable(right.outbox), right.more));
    }

    async fn publish(&mut self) {
        self.last = String::from("published");
        let keep = self.dice.below(3);
        for store in self.stores {
            let mut entries = store.outbox(&self.owner).await.unwrap();
            entries.sort_by(|a, b| a.message.cmp(&b.message));
            let ids: Vec<_> = entries.into_iter().skip(usize::try_from(keep).unwrap()).map(|entry| entry.id).collect();
            store.remove_published(&self.owner, &ids).await.unwrap();
        }
    }

    async fn compare_everything(&self) {
        let [left, right] = self.stores;
        let all = right.sessions(&self.owner, None, None, 100).await.unwrap();
        self.same(&left.sessions(&self.owner, None, None, 100).await.unwrap(), &all);
        self.oracle.compare(&all);
        for facts in all {
            let (a, b) = (left.pending_events(&self.owner, &facts.key), right.pending_events(&self.owner, &facts.key));
            self.same(&a.await.unwrap(), &b.await.unwrap());
        }
        let (a, b) = (left.outbox(&self.owner).await.unwrap(), right.outbox(&self.owner).await.unwrap());
        self.same(&comparable(a), &comparable(b));
        for (prefix, reverse) in [("", false), ("w/b", false), ("w/", true), ("l/", true)] {
            let a = left.scan(&self.owner, prefix, None, reverse, 1000).await.unwrap();
            let b = right.scan(&self.owner, prefix, None, reverse, 1000).await.unwrap();
            self.same(&a, &b);
        }
        self.same(&left.usage(&self.owner).await.unwrap(), &right.usage(&self.owner).await.unwrap());
        let some = ["w/a", "w/b", "w/b/c", "w/never"].map(str::to_owned);
        self.same(&left.read(&self.owner, &some).await.unwrap(), &right.read(&self.owner, &some).await.unwrap());
        let (a, b) = (left.owners(None, 100).await.unwrap(), right.owners(None, 100).await.unwrap());
        // Redis registers an owner before its first write, so even when that then conflicts.
        assert!(!a.contains(&self.owner) || b.contains(&self.owner), "right doesn't know the owner");
    }

    async fn step(&mut self) {
        self.now = self.now.plus(Duration::from_millis(self.dice.below(2_500)));
        match self.dice.below(23) {
            0 => self.set_gate().await,
            1..=6 => self.admit().await,
            7 => self.renew().await,
            8 | 9 => self.checkpoint().await,
            10..=12 => self.commit().await,
            13 | 14 => self.release().await,
            15 => self.finish().await,
            16 if self.dice.one_in(2) => self.amend().await,
            16 => self.write_docs().await,
            17 | 18 => self.sweep().await,
            19 | 20 => self.park().await,
            21 => self.replace_session().await,
            _ => self.publish().await,
        }
        if self.step.is_multiple_of(COMPARED_EVERY) {
            self.compare_everything().await;
        }
    }
}

/// Panics at the first difference, with the operation that showed it; what it reached.
async fn run(stores: [&dyn Store; 2], seed: u64) -> (BTreeSet<&'static str>, BTreeSet<Case>) {
    let mut run = Run {
        stores,
        dice: Dice(seed),
        now: START,
        owner: format!("acme/u{seed}").parse().unwrap(),
        holdings: Vec::new(),
        last: String::new(),
        asked: None,
        step: 0,
        turns: 0,
        cap: if seed % 3 == 2 { 2 } else { 0 },
        reached: BTreeSet::new(),
        oracle: Oracle::default(),
    };
    for step in 0..STEPS {
        run.step = step;
        if let Err(panic) = AssertUnwindSafe(run.step()).catch_unwind().await {
            eprintln!("seed {seed}, step {step} at {}: {}", run.now, run.last);
            std::panic::resume_unwind(panic);
        }
    }
    run.compare_everything().await;
    for store in stores {
        let (was, is) = recount(store, &run.owner, false).await;
        assert_eq!(was, is, "what was counted is what is there");
    }
    (run.reached, run.oracle.met)
}

async fn check(left: &dyn Store, right: &dyn Store) {
    let runs = SEEDS.map(|seed| run([left, right], seed));
    let (reached, met): (Vec<_>, Vec<_>) = futures::future::join_all(runs).await.into_iter().unzip();
    let (reached, met): (BTreeSet<_>, BTreeSet<_>) =
        (reached.into_iter().flatten().collect(), met.into_iter().flatten().collect());
    let missed: Vec<_> = REACHED.iter().filter(|name| !reached.contains(**name)).collect();
    assert!(missed.is_empty(), "never reached: {missed:?}");
    let unmet = unmet(&met);
    assert!(unmet.is_empty(), "never met: {unmet:?}");
}

#[tokio::test]
async fn embedded_and_redis_give_equal_answers() {
    let Some(redis) = crate::support::redis::store().await else { return };
    let dir = tempfile::tempdir().unwrap();
    let embedded = EmbeddedStore::open(dir.path()).unwrap();
    check(&*embedded, &*redis).await;
}

#[tokio::test]
async fn embedded_and_a_redis_cluster_give_equal_answers() {
    let Some(cluster) = crate::support::redis_cluster::store().await else { return };
    let dir = tempfile::tempdir().unwrap();
    let embedded = EmbeddedStore::open(dir.path()).unwrap();
    check(&*embedded, &*cluster).await;
}
