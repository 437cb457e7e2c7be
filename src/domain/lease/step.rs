//! The steps: one method for each thing that happens to a session. Each changes the record and says what else is to
//! be done; what is not allowed changes nothing.

use super::record::{LeaseRecord, Serving, SessionRecord};
use crate::dead::{Attempt, verdict};
use crate::event::EventKind;
use crate::gate::GateStatus;
use crate::ids::JobId;
use crate::job::JobStatus;
use crate::limits::ATTEMPTS_KEPT;
use crate::time::Millis;
use std::time::Duration;

/// An admitted event is looked at after this, should its message be lost.
pub const DUE_AFTER: Duration = Duration::from_secs(5);

/// Answer to who asks for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// This request holds it, and its answer was lost: the mailbox is handed out again.
    Yours,
    /// Another holds it until then.
    Held(Millis),
    /// Nothing to do: it isn't looked at again until something comes.
    Empty {
        /// It stood in its agent's queue: the slot that it may have been told of is another's.
        waited: bool,
    },
    /// It joins its agent's queue until the agent is resumed.
    Suspended,
    /// It backs off until then.
    BackingOff(Millis),
    /// It is granted once there is a slot for it, else it joins the queue.
    Free,
}

/// What a holder is to the session that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The holder; its lease may have lapsed, as long as nobody else took it.
    Holds,
    /// It gave the lease back, and nobody came since.
    GaveBack,
    /// Another has, or had, the lease.
    Fenced,
}

/// Whether a checkpoint is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recording {
    /// It is of the turn that runs.
    Now,
    /// It is of a turn that was committed meanwhile: passed over.
    Late,
    /// Not by the holder.
    Fenced,
}

/// Whether a turn is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnClaim {
    /// It is the next one.
    Next,
    /// It was, by this very holder.
    Repeated {
        /// Who holds the session still.
        held: bool,
    },
    /// It isn't the next, or not the holder's.
    Fenced,
}

/// What happens to a lease with or without a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// The holder goes on with the next turn.
    Keep,
    /// Given back, unless more than `arrivals` events have arrived: then kept, with the mailbox.
    Release {
        /// What the holder has seen.
        arrivals: u64,
        /// When the session must be looked at again; `None` = when an event arrives.
        due: Option<Millis>,
        /// Nothing but a cancellation gets through before `due`.
        backoff: bool,
    },
}

/// How a holder goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Onward {
    /// With the mailbox of now, which is handed out.
    Held,
    /// Not at all: those who wait for the slot are told.
    Released,
}

/// An event that is handed out.
#[derive(Debug, Clone, Copy)]
pub struct Handout<'a> {
    /// Its place in storage form.
    pub place: &'a str,
    /// What it is.
    pub kind: EventKind,
    /// Its job.
    pub job: Option<&'a JobId>,
    /// Status of that job.
    pub status: Option<JobStatus>,
}

/// What becomes of the job of a task that is handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskStart {
    /// It has ended too many workers and fails, with this said of it.
    Dead(String),
    /// It starts.
    Starts,
    /// It has started, or ended.
    GoesOn,
}

/// A change of what a session remembers, from outside its turns.
#[derive(Debug, Clone, Copy)]
pub struct Amending<'a> {
    /// Turns that it had when it was seen.
    pub version: u64,
    /// What it remembered.
    pub was: Option<&'a [u8]>,
    /// What it is to remember; `None`: it is to be gone.
    pub then: Option<&'a [u8]>,
    /// Events that had arrived by then; counts for one that is to be gone.
    pub arrivals: u64,
}

/// Whether a session is changed from outside its turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateChange {
    /// Yes.
    Allowed,
    /// It was, by this very call.
    Repeated,
    /// A worker has it, or had and never gave it back.
    Held,
    /// It isn't as it was seen.
    Stirred,
}

/// The mailbox.
impl SessionRecord {
    /// An event is put at `place` (storage form). It is looked at soon, unless the lease's end, the backoff's end or
    /// the agent's queue see to it.
    pub fn append(&mut self, now: Millis, place: &str) {
        self.touched = now;
        self.arrivals += 1;
        if self.head.as_deref().is_none_or(|head| place < head) {
            self.head = Some(place.to_owned());
        }
        if self.live_until(now).is_none() && self.backing_off(now).is_none() && self.waiting.is_none() {
            let soon = now.plus(DUE_AFTER);
            self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
        }
    }

    /// The event at `place` (storage form) is taken out; `was_there`: it hadn't been before.
    pub fn consume(&mut self, place: &[u8], was_there: bool) {
        self.consumed += u64::from(was_there);
        self.task.take_if(|task| task.as_bytes() == place);
    }

    /// The mailbox is handed to the holder, who serves the first task and all that is no task. The index of that
    /// task, whose job is to [`start`](Self::start).
    pub fn serve<'a>(&mut self, mail: impl Iterator<Item = Handout<'a>>) -> Option<usize> {
        let (mut last, mut first) = ("", None);
        for (at, event) in mail.enumerate() {
            match event.kind {
                EventKind::Task => first = first.or(Some((at, event))),
                EventKind::Message | EventKind::Result => last = event.place.max(last),
            }
        }
        // A paused one is served by nobody, and so are those behind it.
        let task = first.filter(|(_, task)| task.status != Some(JobStatus::Paused));
        if let Some((_, task)) = &task {
            self.task = Some(task.place.to_owned());
        }
        if let Some(lease) = &mut self.lease {
            let task = task.map(|(_, task)| (task.place.to_owned(), task.job.cloned()));
            lease.serving = Serving { arrivals: self.arrivals, last: last.to_owned(), task };
        }
        self.nudged = false;
        task.map(|(at, _)| at)
    }

    /// What becomes of `job` as its task is handed out after so many crashes; without a limit it never fails.
    pub fn start(&self, job: &JobId, status: Option<JobStatus>, crashes: u32, limit: Option<u32>) -> TaskStart {
        let has_ended = status.is_some_and(JobStatus::is_terminal);
        if !has_ended && limit.is_some_and(|limit| crashes > 0 && crashes >= limit) {
            let attempts: Vec<_> = self.attempts.iter().filter(|attempt| attempt.job.as_ref() == Some(job)).collect();
            return TaskStart::Dead(verdict(crashes, &attempts));
        }
        if status == Some(JobStatus::Pending) { TaskStart::Starts } else { TaskStart::GoesOn }
    }
}

/// The lease.
impl SessionRecord {
    /// A request with `token` asks for the session until then. Without an agent, or one that has ended, there is
    /// nothing to run.
    pub fn ask(&mut self, now: Millis, token: &str, until: Millis, agent: Option<GateStatus>) -> Availability {
        if self.lease.as_ref().is_some_and(|lease| lease.token == token) {
            self.extend(until);
            return Availability::Yours;
        }
        if let Some(end) = self.live_until(now) {
            return Availability::Held(end);
        }
        match agent.filter(|_| self.pending() > 0) {
            None | Some(GateStatus::Terminated) => {
                // A lapsed lease is kept while there is mail: its crash still counts.
                if self.pending() == 0 {
                    self.lease = None;
                }
                (self.due, self.backoff) = (None, None);
                Availability::Empty { waited: self.waiting.take().is_some() }
            }
            Some(GateStatus::Suspended) => Availability::Suspended,
            Some(GateStatus::Active) => self.backing_off(now).map_or(Availability::Free, Availability::BackingOff),
        }
    }

    /// It stands in its agent's queue, by the rank of its tasks: behind those who do, or where it is already. Whether
    /// it is new there.
    pub fn wait(&mut self, rank: i8, ticket: impl FnOnce() -> u64) -> bool {
        let is_new = self.waiting.is_none();
        (self.due, self.rank) = (None, rank);
        self.waiting = self.waiting.or_else(|| Some(ticket()));
        is_new
    }

    /// `lease` begins, of a session that is [`Availability::Free`]; one that never had a lease begins behind `floor`.
    /// What a lapsed one served: its crash counts against that.
    ///
    /// The time is in the epoch, so that a store that was set back gives nobody the epoch of a holder that it has
    /// forgotten and that still runs.
    pub fn grant(&mut self, now: Millis, lease: LeaseRecord, floor: u64) -> Option<Serving> {
        let until = lease.until;
        let lapsed = self.lease.replace(lease).map(|lapsed| self.note_crash(lapsed, now));
        let before = if self.epoch > 0 { self.epoch } else { floor };
        self.epoch = now.0.max(before + 1);
        self.backoff = None;
        self.extend(until);
        if lapsed.is_some() {
            self.charged.clone_from(&lapsed);
        }
        lapsed
    }

    /// The holder of `epoch`, which another has taken it from, lives. Where the crash that was counted last was its
    /// own, it counts no more: what it served.
    pub fn acquit(&mut self, epoch: u64) -> Option<Serving> {
        self.attempts.last().filter(|last| last.epoch == epoch)?;
        let served = self.charged.take()?;
        self.attempts.pop();
        Some(served)
    }

    /// The holder of `epoch` has it until then; whether it is the holder.
    pub fn renew(&mut self, epoch: u64, until: Millis) -> bool {
        let held = self.is_held_by(epoch);
        if held {
            self.extend(until);
        }
        held
    }

    /// The holder has it until then, and waits for no slot.
    fn extend(&mut self, until: Millis) {
        if let Some(lease) = &mut self.lease {
            lease.until = until;
        }
        (self.due, self.waiting) = (Some(until), None);
    }

    /// Notes the holder of a lease that lapsed unreleased.
    fn note_crash(&mut self, lapsed: LeaseRecord, now: Millis) -> Serving {
        let LeaseRecord { until, worker, serving, .. } = lapsed;
        // A void lease doesn't say when it ended.
        let lapsed = if until == Millis(0) { now } else { until };
        let job = serving.task.as_ref().and_then(|(_, job)| job.clone());
        self.attempts.push(Attempt { worker, epoch: self.epoch, turn: self.version + 1, lapsed, job });
        let over = self.attempts.len().saturating_sub(ATTEMPTS_KEPT);
        self.attempts.drain(..over);
        serving
    }

    /// What the holder of `epoch` is to it.
    pub const fn claim(&self, epoch: u64) -> Claim {
        match self.lease {
            _ if self.epoch != epoch => Claim::Fenced,
            Some(_) => Claim::Holds,
            None => Claim::GaveBack,
        }
    }

    /// Whether `epoch` is the holder.
    pub const fn is_held_by(&self, epoch: u64) -> bool {
        matches!(self.claim(epoch), Claim::Holds)
    }

    /// The holder of `epoch` writes down a part of its turn.
    pub const fn checkpoint(&self, epoch: u64, turn: u64) -> Recording {
        match self.claim(epoch) {
            Claim::Holds if turn == self.version + 1 => Recording::Now,
            Claim::Holds => Recording::Late,
            Claim::GaveBack | Claim::Fenced => Recording::Fenced,
        }
    }

    /// The holder of `epoch` has come to the end of its turn.
    pub fn claim_turn(&self, epoch: u64, turn: u64) -> TurnClaim {
        let held = self.is_held_by(epoch);
        if self.last == Some((epoch, turn)) {
            return TurnClaim::Repeated { held };
        }
        if held && turn == self.version + 1 { TurnClaim::Next } else { TurnClaim::Fenced }
    }

    /// The turn that is [`TurnClaim::Next`] is committed: no crash before it counts any more.
    pub fn commit(&mut self, now: Millis, turn: u64) {
        (self.version, self.touched, self.last) = (turn, now, Some((self.epoch, turn)));
        (self.crashed, self.checkpointed, self.calls) = (false, false, 0);
        self.attempts.clear();
        self.charged = None;
    }

    /// The holder, as [`claim`](Self::claim) says, goes on or gives the lease back.
    pub fn go_on(&mut self, now: Millis, after: After) -> Onward {
        match after {
            After::Release { arrivals, due, backoff } if self.arrivals <= arrivals => {
                // A job ended during the lease and its entry is still here: look again at once.
                let again = self.nudged && self.pending() > 0;
                (self.lease, self.waiting, self.nudged) = (None, None, false);
                self.due = if again { Some(now) } else { due };
                self.backoff = due.filter(|_| backoff && !again);
                Onward::Released
            }
            After::Release { .. } | After::Keep => Onward::Held,
        }
    }

    /// What a restart of the process means: its leases have lapsed unreleased, and whatever has
    /// work is due at once (time 0 is before any `now`), unless it waits for time or for a slot.
    pub fn void(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.until = Millis(0);
            self.due = Some(Millis(0));
        } else if self.pending() > 0 && self.backoff.is_none() && self.waiting.is_none() {
            self.due = Some(Millis(0));
        }
    }
}

/// From outside.
impl SessionRecord {
    /// A job was ended whose task, or messages to it, lie here. Whether they leave now; else the holder drops them.
    pub fn end_job(&mut self, now: Millis) -> bool {
        let is_held = self.live_until(now).is_some();
        self.nudged |= is_held;
        (self.due, self.backoff) = (Some(now), None);
        !is_held
    }

    /// A paused job goes on. What is held is looked at again at the end of its lease.
    pub fn resume_job(&mut self, now: Millis) {
        if self.live_until(now).is_some() {
            self.nudged = true;
        } else if self.pending() > 0 && self.waiting.is_none() {
            self.due = Some(now);
        }
    }

    /// Whether it can be set to a turn: it has neither turns nor events, or no events and just that turn.
    pub const fn is_vacant(&self, version: u64, is_same_state: bool) -> bool {
        self.arrivals == 0 && (self.version == 0 || self.version == version && is_same_state)
    }

    /// It is set to a turn.
    pub fn seat(&mut self, now: Millis, version: u64) {
        (self.version, self.touched) = (version, now);
    }

    /// Whether it is changed; it remembers `state`.
    pub fn amend(&self, state: Option<&[u8]>, amending: &Amending<'_>) -> StateChange {
        let Amending { version, was, then, arrivals } = *amending;
        let is_known = *self != Self::default();
        if self.lease.is_some() {
            return StateChange::Held;
        }
        let is_version = self.version == version;
        let fits = match then {
            Some(then) if is_version && state == Some(then) => return StateChange::Repeated,
            None if !is_known => return StateChange::Repeated,
            Some(_) => version > 0,
            None => self.arrivals == arrivals,
        };
        if is_known && is_version && state == was && fits { StateChange::Allowed } else { StateChange::Stirred }
    }
}
