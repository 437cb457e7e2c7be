//! The simulated server of the queue: a work queue of what comes in, what goes out, jobs for external workers, alarms.

use super::plan::{FaultKind, Plan};
use super::world::{Sabotage, World};
use crate::support::dice::Dice;
use bytes::Bytes;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, broadcast};
use trellis::bus::{Alarm, LivePiece, LiveSubject, RECEIVE_BYTES};
use trellis::domain::generation::GenerationMark;
use trellis::domain::ids::{AgentId, JobId, Owner};
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::time::Millis;
use trellis::domain::timer::TimerId;
use trellis::process::clock::Clock;

/// What goes out under the same id within this time goes out once.
const DUPLICATES: Duration = Duration::from_mins(10);
/// Listeners that are so far behind lose the oldest.
const BEHIND: usize = 4096;

/// A message in the work queue.
#[derive(Debug, Clone)]
pub struct Queued {
    pub owner: Owner,
    pub agent: AgentId,
    pub kind: InboundKind,
    pub id: Option<String>,
    pub body: Bytes,
    pub published: Millis,
    pub delivered: u64,
    /// Ready then.
    ready: Duration,
}

/// A job of external workers.
#[derive(Debug, Clone)]
pub struct Job {
    pub owner: Owner,
    pub agent: AgentId,
    pub body: Value,
}

#[derive(Default)]
struct Kept {
    last: u64,
    entries: BTreeMap<u64, Queued>,
    out: Vec<BusMessage>,
    seen: BTreeMap<String, Duration>,
    jobs: Vec<Job>,
    alarms: BTreeMap<(Owner, String), Alarm>,
    ringing: BTreeMap<u64, (Alarm, Duration)>,
    pieces: Vec<(JobId, LivePiece)>,
    pub mark: Option<GenerationMark>,
    forgotten: BTreeSet<JobId>,
}

/// The server.
pub struct Queue {
    pub world: Arc<World>,
    pub clock: Clock,
    pub ack_wait: Duration,
    kept: Mutex<Kept>,
    dice: Mutex<Dice>,
    /// Wakes whoever waits, in the order of their coming: a watch would do it by chance.
    pub changed: Notify,
    /// What is said live.
    pub live: broadcast::Sender<(LiveSubject, Bytes)>,
    /// What has gone out.
    pub told: broadcast::Sender<BusMessage>,
}

impl Queue {
    pub fn new(world: &Arc<World>, clock: Clock, ack_wait: Duration, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            world: Arc::clone(world),
            clock,
            ack_wait,
            kept: Mutex::default(),
            dice: Mutex::new(Dice(seed)),
            changed: Notify::new(),
            live: broadcast::channel(BEHIND).0,
            told: broadcast::channel(BEHIND).0,
        })
    }

    /// Returns the plan, and the simulated time since the beginning.
    fn plan_and_time(&self) -> (&Plan, Duration) {
        (&self.world.plan, self.world.now())
    }

    fn below(&self, end: u64) -> u64 {
        self.dice.lock().unwrap().below(end)
    }

    fn change(&self) {
        self.changed.notify_waiters();
    }

    /// Whether it loses on purpose what goes there.
    fn loses(&self, to: &MessageAddress) -> bool {
        match (self.world.sabotage, to) {
            (Some(Sabotage::LoseMessages(one_in)), MessageAddress::In { kind, .. }) if *kind != InboundKind::Wake => {
                self.below(one_in) == 0
            }
            (Some(Sabotage::LoseCompletions(one_in)), MessageAddress::Out { .. }) => self.below(one_in) == 0,
            _ => false,
        }
    }

    /// Takes a message for good.
    pub fn publish(&self, message: &BusMessage) {
        let now = self.clock.steady();
        let mut kept = self.kept.lock().unwrap();
        if let (Some(id), MessageAddress::Out { .. } | MessageAddress::Event { .. } | MessageAddress::Job { .. }) =
            (&message.id, &message.to)
        {
            if kept.seen.get(id).is_some_and(|at| now < *at + DUPLICATES) {
                self.world.note(format_args!("  again {id}"));
                return;
            }
            kept.seen.insert(id.clone(), now);
        }
        self.world.note(format_args!("  publish {:?} {:?} {}", message.to, message.id, message.body));
        if self.loses(&message.to) {
            return;
        }
        match &message.to {
            MessageAddress::In { owner, agent, kind } => {
                kept.last += 1;
                let queued = Queued {
                    owner: owner.clone(),
                    agent: agent.clone(),
                    kind: *kind,
                    id: message.id.clone(),
                    body: serde_json::to_vec(&message.body).unwrap().into(),
                    published: self.clock.now(),
                    delivered: 0,
                    ready: now,
                };
                let last = kept.last;
                kept.entries.insert(last, queued);
            }
            MessageAddress::Out { .. } => {
                kept.out.push(message.clone());
                let _ = self.told.send(message.clone());
            }
            MessageAddress::Event { .. } => {}
            MessageAddress::Job { owner, agent, .. } => {
                kept.jobs.push(Job { owner: owner.clone(), agent: agent.clone(), body: message.body.clone() });
            }
            MessageAddress::Reply(subject) => {
                let body = serde_json::to_vec(&message.body).unwrap().into();
                let _ = self.live.send((LiveSubject::Reply(subject.clone()), body));
            }
        }
        drop(kept);
        self.change();
    }

    /// Up to `max` ready messages, with their sequences.
    pub fn take(&self, max: usize) -> Vec<(u64, Queued)> {
        let now = self.clock.steady();
        let (plan, at) = self.plan_and_time();
        let twice =
            plan.active(at).find_map(|kind| if let FaultKind::Twice(percent) = kind { Some(percent) } else { None });
        let shuffled = plan.active(at).any(|kind| kind == FaultKind::Shuffled);
        let mut kept = self.kept.lock().unwrap();
        let ready = kept.entries.iter().filter(|(_, entry)| entry.ready <= now);
        let mut ready: Vec<u64> = ready.map(|(sequence, _)| *sequence).collect();
        if shuffled && ready.len() > 1 {
            self.world.count_fault("shuffled");
            for end in (1..ready.len()).rev() {
                ready.swap(end, usize::try_from(self.below(end as u64 + 1)).unwrap());
            }
        }
        let (mut taken, mut bytes) = (Vec::new(), 0);
        for sequence in ready.into_iter().take(max) {
            let Some(entry) = kept.entries.get_mut(&sequence) else { continue };
            bytes += entry.body.len();
            if bytes > RECEIVE_BYTES && !taken.is_empty() {
                break;
            }
            entry.delivered += 1;
            entry.ready = now + self.ack_wait;
            if twice.is_some_and(|percent| self.below(100) < percent) {
                self.world.count_fault("twice");
                entry.ready = now + Duration::from_millis(self.below(60));
            }
            taken.push((sequence, entry.clone()));
        }
        taken
    }

    /// When the next message is ready.
    pub fn next(&self) -> Option<Duration> {
        self.kept.lock().unwrap().entries.values().map(|entry| entry.ready).min()
    }

    pub fn ack(&self, sequence: u64) {
        self.kept.lock().unwrap().entries.remove(&sequence);
        self.world.note(format_args!("  ack {sequence}"));
    }

    /// Only the latest delivery may move the time of the next.
    pub fn put_off(&self, sequence: u64, delivered: u64, by: Duration) {
        let at = self.clock.steady() + by;
        let mut kept = self.kept.lock().unwrap();
        if let Some(entry) = kept.entries.get_mut(&sequence).filter(|entry| entry.delivered == delivered) {
            entry.ready = at;
        }
        drop(kept);
        self.change();
    }

    /// Ids of what isn't acknowledged.
    pub fn in_transit(&self) -> Vec<String> {
        self.kept.lock().unwrap().entries.values().filter_map(|entry| entry.id.clone()).collect()
    }

    /// Everything that isn't acknowledged.
    pub fn waiting(&self) -> usize {
        let kept = self.kept.lock().unwrap();
        kept.entries.len() + kept.ringing.len()
    }

    /// Everything that went out.
    pub fn out(&self) -> Vec<BusMessage> {
        self.kept.lock().unwrap().out.clone()
    }

    /// Jobs for external workers since the last time.
    pub fn take_jobs(&self) -> Vec<Job> {
        std::mem::take(&mut self.kept.lock().unwrap().jobs)
    }

    /// Keeps a piece of a job's live text.
    pub fn say(&self, job: &JobId, body: &Bytes) {
        let mut kept = self.kept.lock().unwrap();
        let sequence = kept.pieces.len() as u64 + 1;
        kept.pieces.push((job.clone(), LivePiece { sequence, body: body.clone() }));
        drop(kept);
        self.change();
    }

    /// The first piece of a job behind a place.
    pub fn piece(&self, job: &JobId, after: u64) -> Option<LivePiece> {
        let kept = self.kept.lock().unwrap();
        let mut pieces = kept.pieces.iter().filter(|(of, piece)| of == job && piece.sequence > after);
        pieces.next().map(|(_, piece)| piece.clone())
    }

    pub fn last_piece(&self, job: &JobId) -> Option<u64> {
        let kept = self.kept.lock().unwrap();
        kept.pieces.iter().rev().find(|(of, _)| of == job).map(|(_, piece)| piece.sequence)
    }

    /// Where the last piece of anything stands.
    pub fn pieces(&self) -> u64 {
        self.kept.lock().unwrap().pieces.len() as u64
    }

    pub fn set(&self, alarm: &Alarm) {
        let key = (alarm.owner.clone(), alarm.timer.as_str().to_owned());
        self.kept.lock().unwrap().alarms.insert(key, alarm.clone());
        self.change();
    }

    pub fn clear(&self, owner: &Owner, timer: &TimerId) {
        self.kept.lock().unwrap().alarms.remove(&(owner.clone(), timer.as_str().to_owned()));
    }

    /// An alarm whose time has come, or when the next one's does.
    pub fn ring(&self) -> Result<(u64, Alarm), Option<Duration>> {
        let (now, steady) = (self.clock.now(), self.clock.steady());
        let mut kept = self.kept.lock().unwrap();
        let due = kept.alarms.iter().find(|(_, alarm)| alarm.at <= now).map(|(key, _)| key.clone());
        if let Some(key) = due {
            let alarm = kept.alarms.remove(&key).unwrap();
            kept.last += 1;
            let last = kept.last;
            kept.ringing.insert(last, (alarm, steady));
        }
        let again = self.ack_wait;
        if let Some((sequence, (alarm, at))) = kept.ringing.iter_mut().find(|(_, (_, at))| *at <= steady) {
            *at = steady + again;
            self.world.note(format_args!("  ring {}", alarm.timer));
            return Ok((*sequence, alarm.clone()));
        }
        let alarms = kept.alarms.values().map(|alarm| steady + alarm.at.elapsed_since(now));
        Err(alarms.chain(kept.ringing.values().map(|(_, at)| *at)).min())
    }

    pub fn rung(&self, sequence: u64) {
        self.kept.lock().unwrap().ringing.remove(&sequence);
    }

    pub fn ring_again(&self, sequence: u64, by: Duration) {
        let at = self.clock.steady() + by;
        if let Some((_, again)) = self.kept.lock().unwrap().ringing.get_mut(&sequence) {
            *again = at;
        }
        self.change();
    }

    pub fn mark(&self) -> Option<GenerationMark> {
        self.kept.lock().unwrap().mark
    }

    pub fn leave(&self, mark: GenerationMark) {
        self.kept.lock().unwrap().mark = Some(mark);
    }

    pub fn forget(&self, job: &JobId) {
        self.kept.lock().unwrap().forgotten.insert(job.clone());
    }

    /// What was told of ended jobs and isn't forgotten.
    pub fn completed(&self) -> Vec<BusMessage> {
        let kept = self.kept.lock().unwrap();
        let known = |message: &&BusMessage| match &message.to {
            MessageAddress::Out { job, .. } => JobId::new(job).is_ok_and(|job| !kept.forgotten.contains(&job)),
            _ => false,
        };
        kept.out.iter().filter(known).cloned().collect()
    }
}
