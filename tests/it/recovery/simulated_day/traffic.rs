//! What callers do all day, and what they were told.

use super::day_process::Life;
use super::simulated_agents::{self, WEATHER};
use crate::support::dice::Dice;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use trellis::bus::Bus;
use trellis::domain::agent::AgentStatus;
use trellis::domain::approval::ApprovalVerdict;
use trellis::domain::authority::Authority;
use trellis::domain::authority::trail::Trail;
use trellis::domain::event::Submission;
use trellis::domain::ids::{AgentId, EventId, JobId};
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::time::Millis;
use trellis::store::faulty::{FaultAt, FaultPlan};
use trellis::venue::agents;
use trellis::venue::agents::lifecycle::{self, AgentEditor};
use trellis::venue::approvals;
use trellis::venue::ingress::{self, Arrival, SubmitError};
use trellis::venue::jobs;
use trellis::venue::operation::Caller;

/// A suspended agent is resumed after so long.
const SUSPENDED: Duration = Duration::from_hours(1);

/// A task or a message that somebody sends, the same bytes each time.
#[derive(Clone)]
pub struct Sent {
    pub agent: String,
    pub task: bool,
    pub submission: Submission,
    pub way: Way,
}

/// How it went in.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Way {
    /// Answered at once: accepted.
    Accepted,
    /// Answered at once: refused.
    Refused,
    /// Through the queue: the answer comes later.
    Queued,
}

/// All of it.
#[derive(Default)]
pub struct Traffic {
    pub sent: BTreeMap<String, Sent>,
    pub suspended: Vec<(Millis, AgentId)>,
    pub duplicates: u64,
    pub cancels: u64,
    pub decisions: u64,
    pub suspensions: u64,
    pub failures: u64,
    /// Events that were cancelled by a caller in time.
    pub cancelled: BTreeSet<JobId>,
}

impl Traffic {
    /// One thing that happens, to a process that goes on or that is to die.
    pub async fn happen(&mut self, life: &Life, dice: &mut Dice, mortal: bool) {
        match dice.below(100) {
            0..60 => self.send(life, dice).await,
            60..66 => self.send_again(life, dice).await,
            66..78 => self.cancel(life, dice).await,
            78..90 => self.decide(life, dice).await,
            90..94 => self.suspend(life, dice).await,
            _ if mortal => {}
            _ => self.fail_once(life, dice),
        }
    }

    async fn send(&mut self, life: &Life, dice: &mut Dice) {
        let burst = 1 + dice.below(3);
        for _ in 0..burst {
            let agent = *dice.pick(&simulated_agents::HIRED);
            let name = format!("e{:05}", self.sent.len());
            let weather = if simulated_agents::is_out(agent) { *dice.pick(&WEATHER) } else { "fair" };
            let session = format!("s{}", dice.below(20));
            let own = agent == "sleeper" || dice.below(3) == 0;
            let session = if own { format!("of-{name}") } else { session };
            let task = agent != "chat" || dice.below(3) > 0;
            let submission = Submission {
                input: json!({"name": name, "say": format!("weather {weather}")}),
                session_id: Some(session.parse().unwrap()),
                ..Submission::default()
            };
            let mut sent = Sent { agent: agent.into(), task, submission, way: Way::Queued };
            sent.way = go(life, &name, &sent, dice.below(3) == 0).await;
            self.sent.insert(name, sent);
        }
    }

    /// A caller who didn't get the answer sends the same again, some of them by another door.
    async fn send_again(&mut self, life: &Life, dice: &mut Dice) {
        if self.sent.is_empty() {
            return;
        }
        let name = (*dice.pick(&self.sent.keys().collect::<Vec<_>>())).clone();
        let sent = self.sent[&name].clone();
        // One that was refused would be a new one.
        if sent.way != Way::Refused {
            let queued = sent.way == Way::Queued || dice.below(2) == 0;
            assert_ne!(go(life, &name, &sent, queued).await, Way::Refused, "{name} was accepted before");
            self.duplicates += 1;
        }
    }

    async fn cancel(&mut self, life: &Life, dice: &mut Dice) {
        let (venue, owner) = (&life.door.venue, &life.door.owner);
        let newest = jobs::list(venue, owner, 0, 30).await.unwrap().items;
        let open: Vec<_> = newest.into_iter().filter(|job| !job.status.is_terminal()).collect();
        if !open.is_empty() {
            let job = &dice.pick(&open).head.id;
            if let jobs::CancelOutcome::Done(job) = jobs::cancel(venue, owner, job, None).await.unwrap() {
                self.cancelled.insert(job.head.id);
            }
            self.cancels += 1;
        }
    }

    async fn decide(&mut self, life: &Life, dice: &mut Dice) {
        let (venue, owner) = (&life.door.venue, &life.door.owner);
        let asked = approvals::list(venue, owner, false, 0, 1_000).await.unwrap().items;
        if asked.is_empty() {
            return;
        }
        let verdict = match dice.below(3) {
            0 => ApprovalVerdict::Rejected { reason: None },
            _ => ApprovalVerdict::Approved { arguments: None, scopes: None },
        };
        let person = Caller::new(owner.clone(), "a person".into(), Authority::without_limits());
        // It may have expired, or its task may be cancelled: then it is refused, which is an answer, too.
        if approvals::decide(venue, &person, &dice.pick(&asked).id, verdict, None).await.is_ok() {
            self.decisions += 1;
        }
    }

    async fn suspend(&mut self, life: &Life, dice: &mut Dice) {
        let agent: AgentId = dice.pick(&simulated_agents::agents()).0.parse().unwrap();
        let (venue, owner) = (&life.door.venue, &life.door.owner);
        let (_, changed) = lifecycle::suspend(venue, owner, &agent, "a key was refused").await.unwrap();
        if changed {
            self.suspended.push((venue.now().plus(SUSPENDED), agent));
            self.suspensions += 1;
        }
    }

    /// Lets those run again whose time has come, whether callers or their model had stopped them.
    pub async fn resume(&mut self, life: &Life, now: Millis) {
        for agent in agents::list(&life.door.venue, &life.door.owner, None, 1_000).await.unwrap() {
            let is_new = !self.suspended.iter().any(|(_, known)| *known == agent.id);
            if agent.status == AgentStatus::Suspended && is_new {
                self.suspended.push((life.door.venue.now().plus(SUSPENDED), agent.id));
                self.suspensions += 1;
            }
        }
        let (due, left) = self.suspended.drain(..).partition(|(at, _)| *at <= now);
        self.suspended = left;
        let due: Vec<(Millis, AgentId)> = due;
        for (_, agent) in due {
            let authority = Authority::without_limits();
            let by = AgentEditor { authority: &authority, trail: &Trail::default(), turn: false };
            lifecycle::resume(&life.door.venue, &life.door.owner, &agent, by).await.unwrap();
        }
    }

    /// One call of the store fails, soon, and the process goes on.
    fn fail_once(&mut self, life: &Life, dice: &mut Dice) {
        let at = *dice.pick(&[FaultAt::Before, FaultAt::After]);
        life.plan(FaultPlan::Nth { n: 1 + dice.below(25), at });
        self.failures += 1;
    }
}

/// Sends it by the queue, or straight to the store.
async fn go(life: &Life, name: &str, sent: &Sent, queued: bool) -> Way {
    let (venue, owner) = (&life.door.venue, life.door.owner.clone());
    let agent: AgentId = sent.agent.parse().unwrap();
    if queued {
        let kind = if sent.task { InboundKind::Task } else { InboundKind::Message };
        let to = MessageAddress::In { owner, agent, kind };
        let body = serde_json::to_value(&sent.submission).unwrap();
        life.bus.publish(&BusMessage { to, id: Some(name.to_owned()), body, trace: None }).await.unwrap();
        return Way::Queued;
    }
    let arrival = Arrival {
        owner,
        agent,
        task: sent.task,
        id: EventId::new(name).unwrap(),
        submission: sent.submission.clone(),
        received: venue.now(),
        sequence: 0,
        by: trellis::domain::principal::Principal::ANYBODY,
        may_override: false,
        trace: None,
    };
    match ingress::submit(venue, &arrival).await {
        Ok(_) => Way::Accepted,
        Err(SubmitError::Refused { .. }) => Way::Refused,
        Err(error) => panic!("{name}: {error}"),
    }
}
