//! The lease machine of the core beside the stores: what each answer about a session must be by it, and what must be
//! seen of the session afterwards. What it is told of: documents (gates, statuses of jobs), which events were seen
//! before, and whether there was a slot.

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use trellis::domain::event::EventKind;
use trellis::domain::gate::{Gate, GateStatus};
use trellis::domain::ids::{JobId, Owner, SessionKey};
use trellis::domain::job::JobStatus;
use trellis::domain::lease::{
    Availability, CheckpointState, Handout, HolderState, LeaseRecord, LeaseResult, LeaseUse, LeasedEvents,
    SessionRecord, StateAmendment, StateChange, TaskStart, TurnClaim,
};
use trellis::domain::time::Millis;
use trellis::store::{
    AdmissionOutcome, Admit, Amend, AmendOutcome, Amendment, Commit, CommitOutcome, Continuation, FinishOutcome, Grant,
    Intake, JobFinish, Lease, LeaseCheck, LeaseOutcome, LeaseRequest, MailboxEntry, NewEvent, ParkOutcome,
    ReleaseOutcome, SessionFacts, SessionSnapshot, SetSessionOutcome, Store, keys,
};

/// An event in a mailbox.
struct Mail {
    kind: EventKind,
    job: Option<JobId>,
    arrival: u64,
    crashes: u32,
}

#[derive(Default)]
struct Session {
    record: SessionRecord,
    /// By place in storage form.
    mail: BTreeMap<String, Mail>,
    state: Option<Bytes>,
}

/// What stood around a session before an operation.
pub struct Around {
    now: Millis,
    gate: Option<GateStatus>,
    statuses: BTreeMap<JobId, JobStatus>,
}

/// All sessions of an owner as the machine has them.
#[derive(Default)]
pub struct Oracle {
    sessions: BTreeMap<SessionKey, Session>,
    /// The highest epoch of those that are gone.
    floor: u64,
    /// Cases met: what the session was, and what was done.
    pub met: BTreeSet<(&'static str, &'static str)>,
}

/// A mailbox as it is handed out: places, crashes, statuses.
type Handed = Vec<(String, u32, Option<JobStatus>)>;

fn handed(mailbox: &[MailboxEntry]) -> Handed {
    mailbox.iter().map(|entry| (entry.key.clone(), entry.crashes, entry.job_status)).collect()
}

fn stored(key: &str) -> String {
    key.replacen('|', "\0", 1)
}

impl Around {
    fn status(&self, job: Option<&JobId>) -> Option<JobStatus> {
        job.and_then(|job| self.statuses.get(job)).copied()
    }

    fn has_ended(&self, job: Option<&JobId>) -> bool {
        self.status(job).is_some_and(JobStatus::is_terminal)
    }

    fn end(&mut self, finish: &JobFinish) {
        if !self.has_ended(Some(&finish.job)) {
            self.statuses.insert(finish.job.clone(), finish.status);
        }
    }
}

impl Session {
    fn phase(&self, now: Millis) -> &'static str {
        let record = &self.record;
        match &record.lease {
            Some(_) if record.live_until(now).is_some() => "held",
            Some(_) => "lapsed",
            None if *record == SessionRecord::default() => "new",
            None if record.waiting.is_some() => "waiting",
            None if record.backoff_until(now).is_some() => "backing off",
            None if record.pending_events() > 0 => "pending",
            None => "idle",
        }
    }

    fn append(&mut self, now: Millis, event: &NewEvent) {
        let place = format!("{}\0{}", event.order, event.id);
        self.record.append(now, &place);
        let mail = Mail { kind: event.kind, job: event.job.clone(), arrival: self.record.arrivals, crashes: 0 };
        self.mail.insert(place, mail);
    }

    fn consume(&mut self, place: &str) {
        let was_there = self.mail.remove(place).is_some();
        self.record.consume(place.as_bytes(), was_there);
    }

    /// The mailbox as it must be handed out; which events and in which order, `mailbox` says.
    fn serve(&mut self, around: &Around, mailbox: &[MailboxEntry], crash_limit: Option<u32>) -> Handed {
        let places: Vec<_> = mailbox.iter().map(|entry| stored(&entry.key)).collect();
        let mail: Vec<_> = places.iter().map(|place| (place, &self.mail[place])).collect();
        let handouts = mail.iter().map(|(place, mail)| Handout {
            place,
            kind: mail.kind,
            job: mail.job.as_ref(),
            status: around.status(mail.job.as_ref()),
        });
        let served = self.record.serve(handouts);
        let handed = mail.iter().zip(mailbox).enumerate().map(|(at, ((_, mail), entry))| {
            let before = around.status(mail.job.as_ref());
            let job = mail.job.as_ref().filter(|_| served == Some(at));
            let status = match job.map(|job| self.record.task_fate(job, before, mail.crashes, crash_limit)) {
                Some(TaskStart::Dead(_)) => Some(JobStatus::Failed),
                Some(TaskStart::Starts) => Some(JobStatus::Started),
                Some(TaskStart::GoesOn) | None => before,
            };
            (entry.key.clone(), mail.crashes, status)
        });
        handed.collect()
    }

    fn hand_out(&mut self, around: &Around, grant: &Grant, crash_limit: Option<u32>) {
        let mailbox = self.serve(around, &grant.mailbox, crash_limit);
        let Self { record, state, .. } = self;
        let until = record.lease.as_ref().unwrap().until;
        let is = (grant.lease.epoch, grant.until, grant.version, grant.last_commit, grant.arrivals);
        assert_eq!(is, (record.epoch, until, record.version, record.last, record.arrivals));
        assert_eq!((&grant.attempts, &grant.state), (&record.attempts, &*state));
        assert_eq!(handed(&grant.mailbox), mailbox);
    }

    fn grant(&mut self, around: &Around, ask: &LeaseRequest, floor: u64, grant: &Grant) {
        let lease = LeaseRecord {
            until: around.now.plus(ask.ttl),
            token: ask.token.clone(),
            worker: ask.worker.clone(),
            limit: ask.mailbox_limit,
            serving: LeasedEvents::default(),
        };
        if let Some(served) = self.record.grant(around.now, lease, floor) {
            for (place, mail) in &mut self.mail {
                mail.crashes += u32::from(served.covers(place, mail.kind == EventKind::Task, mail.arrival));
            }
        }
        self.hand_out(around, grant, Some(ask.crash_limit));
    }

    fn go_on(&mut self, around: &Around, after: LeaseUse, next: &Continuation) {
        match (self.record.keep_or_release(around.now, after), next) {
            (LeaseResult::Held, Continuation::Held { .. }) => self.held(around, next),
            (LeaseResult::Released, Continuation::Released { .. }) => {}
            (onward, next) => panic!("expected {onward:?}, got {next:?}"),
        }
    }

    fn held(&mut self, around: &Around, next: &Continuation) {
        let Continuation::Held { mailbox, arrivals, .. } = next else { panic!("expected to hold on, got {next:?}") };
        let expected = self.serve(around, mailbox, None);
        assert_eq!((handed(mailbox), *arrivals), (expected, self.record.arrivals));
    }

    fn lease_check(&self, around: &Around, holds: bool) -> LeaseCheck {
        if !holds {
            return LeaseCheck::Fenced;
        }
        LeaseCheck::Held { cancelled: around.has_ended(self.record.served_job()), policy: 0 }
    }
}

fn released_before() -> Continuation {
    Continuation::Released { wakes: Vec::new() }
}

impl Oracle {
    /// Before an operation on a session, which names these jobs.
    pub async fn look(
        &mut self,
        store: &dyn Store,
        owner: &Owner,
        (now, session): (Millis, &SessionKey),
        (step, jobs): (&'static str, &[&JobId]),
    ) -> Around {
        let known = self.sessions.entry(session.clone()).or_default();
        self.met.insert((known.phase(now), step));
        let mine = known.mail.values().filter_map(|mail| mail.job.as_ref()).chain(known.record.served_job());
        let jobs: BTreeSet<JobId> = mine.chain(jobs.iter().copied()).cloned().collect();
        let places: Vec<_> =
            std::iter::once(keys::agent_gate(&session.agent)).chain(jobs.iter().map(keys::job_status)).collect();
        let mut values = store.read(owner, &places).await.unwrap().into_iter().map(|doc| doc.value);
        let gate = values.next().flatten().map(|gate| Gate::decode(&gate).unwrap().status);
        let statuses = jobs.into_iter().zip(values).filter_map(|(job, value)| {
            let text = String::from_utf8(value?.to_vec()).unwrap();
            Some((job, JobStatus::parse(text.split(' ').next()?).unwrap()))
        });
        Around { now, gate, statuses: statuses.collect() }
    }

    fn of(&mut self, session: &SessionKey) -> &mut Session {
        self.sessions.get_mut(session).expect("looked at before")
    }

    fn erase(&mut self, session: &SessionKey) {
        self.floor = self.floor.max(self.of(session).record.epoch);
        self.sessions.remove(session);
    }

    pub fn admitted(&mut self, mut around: Around, request: &Admit, answer: &AdmissionOutcome) {
        let floor = self.floor;
        let session = self.of(&request.session);
        let is_taken = match answer.intake {
            Intake::Nothing | Intake::New | Intake::Duplicate => true,
            Intake::Conflict | Intake::ReplaceRunning | Intake::Refused(_) => false,
        };
        if let Some(event) = request.event.as_ref().filter(|_| answer.intake == Intake::New) {
            session.append(around.now, event);
            if let Some(open) = &event.open {
                around.statuses.entry(open.job.clone()).or_insert(JobStatus::Pending);
            }
            if let Some(finish) = &event.finish {
                around.end(finish);
            }
        }
        let Some(ask) = request.lease.as_ref().filter(|_| is_taken) else {
            return assert_eq!(answer.lease, LeaseOutcome::NotAsked);
        };
        let until = around.now.plus(ask.ttl);
        let is_free = match session.record.request_lease(around.now, &ask.token, until, around.gate) {
            Availability::Held(until) => return assert_eq!(answer.lease, LeaseOutcome::Busy(until)),
            Availability::BackingOff(until) => return assert_eq!(answer.lease, LeaseOutcome::Backoff(until)),
            Availability::Empty { .. } => return assert_eq!(answer.lease, LeaseOutcome::Empty),
            Availability::Suspended => {
                session.record.enqueue(0, || 1);
                return assert_eq!(answer.lease, LeaseOutcome::Suspended);
            }
            Availability::Yours => false,
            Availability::Free => true,
        };
        match &answer.lease {
            LeaseOutcome::Run(grant) if is_free => session.grant(&around, ask, floor, grant),
            LeaseOutcome::Run(grant) => session.hand_out(&around, grant, None),
            LeaseOutcome::Waiting if is_free => drop(session.record.enqueue(0, || 1)),
            other => panic!("expected a lease, got {other:?}"),
        }
    }

    pub fn renewed(&mut self, around: &Around, lease: &Lease, until: Millis, answer: LeaseCheck) {
        let session = self.of(&lease.session);
        let holds = session.record.renew(lease.epoch, until);
        assert_eq!(answer, session.lease_check(around, holds));
    }

    pub fn recorded(&mut self, around: &Around, lease: &Lease, turn: u64, answer: LeaseCheck) {
        let session = self.of(&lease.session);
        let holds = match session.record.checkpoint_state(lease.epoch, turn) {
            CheckpointState::Now | CheckpointState::Late => true,
            CheckpointState::Fenced => false,
        };
        assert_eq!(answer, session.lease_check(around, holds));
    }

    pub fn committed(&mut self, mut around: Around, lease: &Lease, commit: &Commit, answer: &CommitOutcome) {
        let session = self.of(&lease.session);
        match session.record.claim_turn(lease.epoch, commit.turn) {
            TurnClaim::Fenced => return assert_eq!(*answer, CommitOutcome::Fenced),
            TurnClaim::Repeated { held: false } => return assert_eq!(*answer, CommitOutcome::Done(released_before())),
            TurnClaim::Repeated { held: true } => {
                let CommitOutcome::Done(next) = answer else { panic!("expected a repetition, got {answer:?}") };
                return session.held(&around, next);
            }
            TurnClaim::Next => {}
        }
        if around.has_ended(commit.unless_cancelled.as_ref()) {
            return assert_eq!(*answer, CommitOutcome::Cancelled);
        }
        let next = match answer {
            CommitOutcome::Done(next) => next,
            // Of documents the machine knows nothing.
            CommitOutcome::Conflict(_) => return,
            other @ (CommitOutcome::Fenced | CommitOutcome::Cancelled) => panic!("expected a commit, got {other:?}"),
        };
        for key in &commit.consume {
            session.consume(&stored(key));
        }
        if let Some((job, status)) = &commit.status
            && !around.has_ended(Some(job))
            && around.status(Some(job)) != Some(JobStatus::Paused)
        {
            around.statuses.insert(job.clone(), *status);
        }
        for finish in &commit.finish {
            around.end(finish);
        }
        session.record.commit(around.now, commit.turn);
        for mail in session.mail.values_mut() {
            mail.crashes = 0;
        }
        session.state = Some(commit.state.clone());
        session.go_on(&around, commit.after_commit, next);
    }

    pub fn released(&mut self, around: &Around, lease: &Lease, after: LeaseUse, answer: &ReleaseOutcome) {
        let session = self.of(&lease.session);
        match (session.record.holder_state(lease.epoch), answer) {
            (HolderState::Holds, ReleaseOutcome::Done(next)) => session.go_on(around, after, next),
            (HolderState::GaveBack, ReleaseOutcome::Done(next)) => assert_eq!(*next, released_before()),
            (HolderState::Fenced, ReleaseOutcome::Fenced) => {
                if let Some(served) = session.record.uncount_crash(lease.epoch) {
                    for (place, mail) in &mut session.mail {
                        let is_served = served.covers(place, mail.kind == EventKind::Task, mail.arrival);
                        mail.crashes = mail.crashes.saturating_sub(u32::from(is_served));
                    }
                }
            }
            (claim, answer) => panic!("{claim:?} got {answer:?}"),
        }
    }

    pub fn finished(
        &mut self,
        around: &Around,
        session: &SessionKey,
        (finish, is_opened): (&JobFinish, bool),
        answer: &FinishOutcome,
    ) {
        let session = self.of(session);
        match around.status(Some(&finish.job)) {
            Some(status) if status.is_terminal() => return assert_eq!(*answer, FinishOutcome::Already(status)),
            None if !is_opened => return assert_eq!(*answer, FinishOutcome::Unknown),
            Some(_) | None => assert_eq!(*answer, FinishOutcome::Done),
        }
        let is_its = |mail: &Mail| mail.kind != EventKind::Result && mail.job.as_ref() == Some(&finish.job);
        let its = session.mail.iter().filter(|(_, mail)| is_its(mail)).map(|(place, _)| place.clone());
        let its: Vec<String> = its.collect();
        if !its.is_empty() && session.record.end_job(around.now) {
            for place in &its {
                session.consume(place);
            }
        }
    }

    pub fn parked(&mut self, around: &Around, session: &SessionKey, (job, pause): (&JobId, bool), answer: ParkOutcome) {
        let expected = match around.status(Some(job)) {
            None => ParkOutcome::Unknown,
            Some(status) if status.is_terminal() || pause == (status == JobStatus::Paused) => {
                ParkOutcome::Already(status)
            }
            Some(_) => ParkOutcome::Done,
        };
        assert_eq!(answer, expected);
        if expected == ParkOutcome::Done && !pause {
            self.of(session).record.resume_job(around.now);
        }
    }

    pub fn amended(&mut self, session: &SessionKey, amend: &Amend, answer: AmendOutcome) {
        let known = self.of(session);
        let (then, arrivals) = match &amend.amendment {
            Amendment::State(then) => (Some(&**then), 0),
            Amendment::Remove { arrivals } => (None, *arrivals),
        };
        let amending = StateAmendment { version: amend.version, was: amend.expected_state.as_deref(), then, arrivals };
        let change = known.record.check_amendment(known.state.as_deref(), &amending);
        let expected = match change {
            StateChange::Allowed | StateChange::Repeated => AmendOutcome::Done,
            StateChange::Held => AmendOutcome::Held,
            StateChange::Changed => AmendOutcome::Changed,
        };
        assert_eq!(answer, expected);
        match &amend.amendment {
            _ if change != StateChange::Allowed => {}
            Amendment::State(then) => known.state = Some(then.clone()),
            Amendment::Remove { .. } => self.erase(session),
        }
    }

    pub fn replaced(
        &mut self,
        around: &Around,
        session: &SessionKey,
        snapshot: Option<&SessionSnapshot>,
        answer: SetSessionOutcome,
    ) {
        let known = self.of(session);
        if let Some(until) = known.record.live_until(around.now) {
            return assert_eq!(answer, SetSessionOutcome::Held(until));
        }
        let Some(snapshot) = snapshot else {
            assert_eq!(answer, SetSessionOutcome::Done);
            return self.erase(session);
        };
        let is_same = known.state.as_ref() == Some(&snapshot.state);
        if !known.record.is_vacant(snapshot.version, is_same) {
            return assert_eq!(answer, SetSessionOutcome::Taken);
        }
        assert_eq!(answer, SetSessionOutcome::Done);
        known.record.restore(around.now, snapshot.version);
        known.state = Some(snapshot.state.clone());
    }

    /// `due` is sorted.
    pub fn swept(&mut self, now: Millis, next: Millis, due: &[SessionKey]) {
        let overdue = self.sessions.iter_mut().filter(|(_, session)| session.record.due.is_some_and(|at| at <= now));
        let found: Vec<_> = overdue
            .map(|(key, session)| {
                session.record.due = Some(next);
                key.clone()
            })
            .collect();
        assert_eq!(due, found);
    }

    /// All sessions as a store shows them.
    pub fn compare(&self, all: &[SessionFacts]) {
        let known = self.sessions.iter().filter(|(_, session)| session.record != SessionRecord::default());
        let mut expected: Vec<_> = known.collect();
        expected.sort_by_key(|(key, _)| key.token());
        assert_eq!(all.len(), expected.len());
        for (facts, (key, Session { record, mail, state })) in all.iter().zip(expected) {
            assert_eq!(facts.key, *key);
            let numbers = (facts.version, facts.epoch, facts.arrivals, facts.consumed);
            assert_eq!(numbers, (record.version, record.epoch, record.arrivals, record.consumed), "{key}");
            let times = (facts.lease_until, facts.due, facts.touched);
            assert_eq!(times, (record.lease.as_ref().map(|lease| lease.until), record.due, record.touched), "{key}");
            assert_eq!(facts.state, *state, "{key}");
            let seen = facts.mailbox.iter().map(|entry| (stored(&entry.key), (entry.kind, &entry.job, entry.crashes)));
            let mail = mail.iter().map(|(place, mail)| (place.clone(), (mail.kind, &mail.job, mail.crashes)));
            assert_eq!(seen.collect::<BTreeMap<_, _>>(), mail.collect(), "{key}");
        }
    }
}
