//! The steps: one method for each thing that happens to a session. Each changes the record and returns what else is to
//! be done; a step that isn't allowed changes nothing.

use super::record::{LeaseRecord, LeasedEvents, SessionRecord};
use crate::dead::{Attempt, crash_error};
use crate::event::EventKind;
use crate::gate::GateStatus;
use crate::ids::JobId;
use crate::job::JobStatus;
use crate::limits::ATTEMPTS_KEPT;
use crate::time::Millis;
use std::time::Duration;

/// Time after which an admitted event is looked at, in case its message was lost.
pub const DUE_AFTER: Duration = Duration::from_secs(5);

/// Answer to a request for a session's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// This request holds it, and its answer was lost: the mailbox is handed out again.
    Yours,
    /// Another request holds it until this time.
    Held(Millis),
    /// The session has no work: it isn't looked at until an event arrives.
    Empty {
        /// Whether it stood in its agent's queue: a slot that was announced to it goes to another session.
        waited: bool,
    },
    /// It joins its agent's queue until the agent is resumed.
    Suspended,
    /// It backs off until this time.
    BackingOff(Millis),
    /// It is granted once a slot is free, else it joins the queue.
    Free,
}

/// Relation of a holder to the session that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HolderState {
    /// It holds the lease, which may have expired as long as nobody else acquired it.
    Holds,
    /// It released the lease, and nobody has acquired it after that.
    GaveBack,
    /// Another holder has, or had, the lease.
    Fenced,
}

/// Whether a checkpoint is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointState {
    /// The checkpoint belongs to the running turn.
    Now,
    /// The checkpoint belongs to a turn that was committed meanwhile, so it is ignored.
    Late,
    /// The writer isn't the holder.
    Fenced,
}

/// Whether a turn is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnClaim {
    /// The turn is the next one.
    Next,
    /// This very holder committed the turn before.
    Repeated {
        /// Whether the holder still has the lease.
        held: bool,
    },
    /// The turn isn't the next one, or isn't the holder's.
    Fenced,
}

/// Further use of a lease, with or without a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseUse {
    /// The holder goes on with the next turn.
    Keep,
    /// The lease is released, unless more than `arrivals` events have arrived: then it is kept, and the mailbox is
    /// handed out.
    Release {
        /// Number of arrivals that the holder has seen.
        arrivals: u64,
        /// Time of the next look at the session; `None` = when an event arrives.
        due: Option<Millis>,
        /// Whether only a cancellation is let through before `due`.
        backoff: bool,
    },
}

/// Result of a step to the next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseResult {
    /// The holder keeps the lease, and the current mailbox is handed out.
    Held,
    /// The lease is released, and sessions that wait for the slot are woken.
    Released,
}

/// An event that is handed out.
#[derive(Debug, Clone, Copy)]
pub struct Handout<'a> {
    /// Place of the event in storage form.
    pub place: &'a str,
    /// Kind of the event.
    pub kind: EventKind,
    /// Job of the event.
    pub job: Option<&'a JobId>,
    /// Status of that job.
    pub status: Option<JobStatus>,
}

/// Effect on the job of a task that is handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskStart {
    /// The task has killed too many workers, and fails with this error text.
    Dead(String),
    /// The job starts.
    Starts,
    /// The job has started or ended before.
    GoesOn,
}

/// A change of a session's state from outside its turns.
#[derive(Debug, Clone, Copy)]
pub struct StateAmendment<'a> {
    /// Number of turns that it had when it was read.
    pub version: u64,
    /// State that was read.
    pub was: Option<&'a [u8]>,
    /// State that is written; `None`: the session is deleted.
    pub then: Option<&'a [u8]>,
    /// Number of arrivals at the time of reading; counts for a deletion.
    pub arrivals: u64,
}

/// Whether a session is changed from outside its turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateChange {
    /// The change is made.
    Allowed,
    /// This very call made the change before.
    Repeated,
    /// A worker holds the lease, or held it and never released it.
    Held,
    /// The session has changed after it was read.
    Changed,
}

/// Steps of the mailbox.
impl SessionRecord {
    /// Appends an event at `place` (storage form). It gets a look soon, unless the end of the lease, the end of the
    /// backoff or the agent's queue leads to one.
    pub fn append(&mut self, now: Millis, place: &str) {
        self.touched = now;
        self.arrivals += 1;
        if self.head.as_deref().is_none_or(|head| place < head) {
            self.head = Some(place.to_owned());
        }
        if self.live_until(now).is_none() && self.backoff_until(now).is_none() && self.waiting.is_none() {
            let soon = now.plus(DUE_AFTER);
            self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
        }
    }

    /// Removes the event at `place` (storage form) from the mailbox; `was_there` says whether it was in it.
    pub fn consume(&mut self, place: &[u8], was_there: bool) {
        self.consumed += u64::from(was_there);
        self.task.take_if(|task| task.as_bytes() == place);
    }

    /// Hands the mailbox to the holder, who serves the first task and all other events. Returns the index of that task,
    /// whose job is to [`start`](Self::task_fate).
    pub fn serve<'a>(&mut self, mail: impl Iterator<Item = Handout<'a>>) -> Option<usize> {
        let (mut last, mut first) = ("", None);
        for (at, event) in mail.enumerate() {
            match event.kind {
                EventKind::Task => first = first.or(Some((at, event))),
                EventKind::Message | EventKind::Result => last = event.place.max(last),
            }
        }
        // A paused task is not served, nor are those behind it.
        let task = first.filter(|(_, task)| task.status != Some(JobStatus::Paused));
        if let Some((_, task)) = &task {
            self.task = Some(task.place.to_owned());
        }
        if let Some(lease) = &mut self.lease {
            let task = task.map(|(_, task)| (task.place.to_owned(), task.job.cloned()));
            lease.serving = LeasedEvents { arrivals: self.arrivals, last: last.to_owned(), task };
        }
        self.nudged = false;
        task.map(|(at, _)| at)
    }

    /// Returns the effect on `job` when its task is handed out after `crashes` crashes; without a limit the job never
    /// fails.
    pub fn task_fate(&self, job: &JobId, status: Option<JobStatus>, crashes: u32, limit: Option<u32>) -> TaskStart {
        let has_ended = status.is_some_and(JobStatus::is_terminal);
        if !has_ended && limit.is_some_and(|limit| crashes > 0 && crashes >= limit) {
            let attempts: Vec<_> = self.attempts.iter().filter(|attempt| attempt.job.as_ref() == Some(job)).collect();
            return TaskStart::Dead(crash_error(crashes, &attempts));
        }
        if status == Some(JobStatus::Pending) { TaskStart::Starts } else { TaskStart::GoesOn }
    }
}

/// Steps of the lease.
impl SessionRecord {
    /// Answers a request with `token` for a lease until `until`. Without an agent, or with one that has ended, there is
    /// nothing to run.
    pub fn request_lease(
        &mut self,
        now: Millis,
        token: &str,
        until: Millis,
        agent: Option<GateStatus>,
    ) -> Availability {
        if self.lease.as_ref().is_some_and(|lease| lease.token == token) {
            self.extend(until);
            return Availability::Yours;
        }
        if let Some(end) = self.live_until(now) {
            return Availability::Held(end);
        }
        match agent.filter(|_| self.pending_events() > 0) {
            None | Some(GateStatus::Terminated) => {
                // An expired lease is kept while the mailbox has events: its crash still counts.
                if self.pending_events() == 0 {
                    self.lease = None;
                }
                (self.due, self.backoff) = (None, None);
                Availability::Empty { waited: self.waiting.take().is_some() }
            }
            Some(GateStatus::Suspended) => Availability::Suspended,
            Some(GateStatus::Active) => self.backoff_until(now).map_or(Availability::Free, Availability::BackingOff),
        }
    }

    /// Puts the session into its agent's queue by the rank of its tasks, behind those of that rank, unless it is in it
    /// already. Returns whether it is new there.
    pub fn enqueue(&mut self, rank: i8, ticket: impl FnOnce() -> u64) -> bool {
        let is_new = self.waiting.is_none();
        (self.due, self.rank) = (None, rank);
        self.waiting = self.waiting.or_else(|| Some(ticket()));
        is_new
    }

    /// Grants `lease` to a session that is [`Availability::Free`]; the first epoch of a session is above `floor`.
    /// Returns the events that an expired lease served: its crash counts against them.
    ///
    /// The epoch contains the time, so that a store that was set back gives nobody the epoch of a holder that it has
    /// lost and that still runs.
    pub fn grant(&mut self, now: Millis, lease: LeaseRecord, floor: u64) -> Option<LeasedEvents> {
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

    /// Notes that the holder of `epoch`, which another has replaced, is alive. If the last crash was counted for that
    /// holder, it is uncounted; returns the events that the holder served.
    pub fn uncount_crash(&mut self, epoch: u64) -> Option<LeasedEvents> {
        self.attempts.last().filter(|last| last.epoch == epoch)?;
        let served = self.charged.take()?;
        self.attempts.pop();
        Some(served)
    }

    /// Renews the lease of the holder of `epoch`; returns whether `epoch` is the holder's.
    pub fn renew(&mut self, epoch: u64, until: Millis) -> bool {
        let held = self.is_held_by(epoch);
        if held {
            self.extend(until);
        }
        held
    }

    /// Extends the lease; its holder waits for no slot.
    fn extend(&mut self, until: Millis) {
        if let Some(lease) = &mut self.lease {
            lease.until = until;
        }
        (self.due, self.waiting) = (Some(until), None);
    }

    /// Notes the holder of a lease that expired without release.
    fn note_crash(&mut self, lapsed: LeaseRecord, now: Millis) -> LeasedEvents {
        let LeaseRecord { until, worker, serving, .. } = lapsed;
        // A void lease doesn't say when it ended.
        let lapsed = if until == Millis(0) { now } else { until };
        let job = serving.task.as_ref().and_then(|(_, job)| job.clone());
        self.attempts.push(Attempt { worker, epoch: self.epoch, turn: self.version + 1, lapsed, job });
        let over = self.attempts.len().saturating_sub(ATTEMPTS_KEPT);
        self.attempts.drain(..over);
        serving
    }

    /// Returns the relation of the holder of `epoch` to the session.
    pub const fn holder_state(&self, epoch: u64) -> HolderState {
        match self.lease {
            _ if self.epoch != epoch => HolderState::Fenced,
            Some(_) => HolderState::Holds,
            None => HolderState::GaveBack,
        }
    }

    /// Whether `epoch` is the holder's.
    pub const fn is_held_by(&self, epoch: u64) -> bool {
        matches!(self.holder_state(epoch), HolderState::Holds)
    }

    /// Returns whether the holder of `epoch` may write a checkpoint of its turn.
    pub const fn checkpoint_state(&self, epoch: u64, turn: u64) -> CheckpointState {
        match self.holder_state(epoch) {
            HolderState::Holds if turn == self.version + 1 => CheckpointState::Now,
            HolderState::Holds => CheckpointState::Late,
            HolderState::GaveBack | HolderState::Fenced => CheckpointState::Fenced,
        }
    }

    /// Returns whether the holder of `epoch` may commit its turn.
    pub fn claim_turn(&self, epoch: u64, turn: u64) -> TurnClaim {
        let held = self.is_held_by(epoch);
        if self.last == Some((epoch, turn)) {
            return TurnClaim::Repeated { held };
        }
        if held && turn == self.version + 1 { TurnClaim::Next } else { TurnClaim::Fenced }
    }

    /// Commits the turn that is [`TurnClaim::Next`]: crashes before it don't count after it.
    pub fn commit(&mut self, now: Millis, turn: u64) {
        (self.version, self.touched, self.last) = (turn, now, Some((self.epoch, turn)));
        (self.crashed, self.checkpointed, self.calls) = (false, false, 0);
        self.attempts.clear();
        self.charged = None;
    }

    /// Keeps or releases the lease of its holder, which [`holder_state`](Self::holder_state) has confirmed.
    pub fn keep_or_release(&mut self, now: Millis, after: LeaseUse) -> LeaseResult {
        match after {
            LeaseUse::Release { arrivals, due, backoff } if self.arrivals <= arrivals => {
                // A job ended during the lease and its entry is still here, so the session gets a look at once.
                let again = self.nudged && self.pending_events() > 0;
                (self.lease, self.waiting, self.nudged) = (None, None, false);
                self.due = if again { Some(now) } else { due };
                self.backoff = due.filter(|_| backoff && !again);
                LeaseResult::Released
            }
            LeaseUse::Release { .. } | LeaseUse::Keep => LeaseResult::Held,
        }
    }

    /// Voids the lease after a restart of the process, as if it had expired without release. A session with work is due
    /// at once (time 0 is before any `now`), unless it waits for time or for a slot.
    pub fn void_lease(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.until = Millis(0);
            self.due = Some(Millis(0));
        } else if self.pending_events() > 0 && self.backoff.is_none() && self.waiting.is_none() {
            self.due = Some(Millis(0));
        }
    }
}

/// Steps from outside the lease.
impl SessionRecord {
    /// Notes that a job was ended whose task or messages are in the mailbox. Returns whether they are removed now; else
    /// the holder drops them.
    pub fn end_job(&mut self, now: Millis) -> bool {
        let is_held = self.live_until(now).is_some();
        self.nudged |= is_held;
        (self.due, self.backoff) = (Some(now), None);
        !is_held
    }

    /// Notes that a paused job was resumed. A leased session gets a look at the end of its lease.
    pub fn resume_job(&mut self, now: Millis) {
        if self.live_until(now).is_some() {
            self.nudged = true;
        } else if self.pending_events() > 0 && self.waiting.is_none() {
            self.due = Some(now);
        }
    }

    /// Whether it may be set to a turn: it has neither turns nor events, or no events and just that turn.
    pub const fn is_vacant(&self, version: u64, is_same_state: bool) -> bool {
        self.arrivals == 0 && (self.version == 0 || self.version == version && is_same_state)
    }

    /// Sets the session to the turn `version`.
    pub fn restore(&mut self, now: Millis, version: u64) {
        (self.version, self.touched) = (version, now);
    }

    /// Returns whether a change of the session is made; `state` is its current state.
    pub fn check_amendment(&self, state: Option<&[u8]>, amending: &StateAmendment<'_>) -> StateChange {
        let StateAmendment { version, was, then, arrivals } = *amending;
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
        if is_known && is_version && state == was && fits { StateChange::Allowed } else { StateChange::Changed }
    }
}
