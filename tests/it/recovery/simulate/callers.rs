//! What callers, persons and workers outside do in a simulation, and what they were told.

use super::bus::{FarQueue, send};
use super::fleet::Fleet;
use super::plan::{FAULT_TIME, Plan};
use super::queue::Job;
use super::simulated_agents::{ALONE, HIRED};
use crate::support::dice::Dice;
use crate::support::operate::{boss, operate_once};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;
use trellis::domain::approval::ApprovalVerdict;
use trellis::domain::authority::Authority;
use trellis::domain::budget::Budget;
use trellis::domain::event::Submission;
use trellis::domain::ids::{EventId, JobId};
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::principal::Principal;
use trellis::domain::timer::TimerId;
use trellis::venue::ingress::{self, Arrival, SubmitError};
use trellis::venue::operation::Caller;
use trellis::venue::{approvals, jobs, timers};

/// Pause before a caller sends again.
const AGAIN: Duration = Duration::from_millis(300);

/// A task or a message that somebody sends, the same bytes each time.
#[derive(Clone)]
pub struct Sent {
    pub agent: &'static str,
    pub task: bool,
    pub submission: Submission,
    pub way: Way,
}

/// How a submission was received.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Way {
    Accepted,
    Refused,
    /// Through the queue: the answer comes later.
    Queued,
}

/// A timer that somebody has set.
pub struct Alarm {
    pub id: String,
    pub every: bool,
}

/// Everything that callers have done.
#[derive(Default)]
pub struct Diary {
    pub sent: Mutex<BTreeMap<String, Sent>>,
    pub cancelled: Mutex<BTreeSet<JobId>>,
    /// Of these nobody knows: the store, asked for it, was away in the end.
    pub maybe_cancelled: Mutex<BTreeSet<JobId>>,
    pub timers: Mutex<Vec<Alarm>>,
}

/// What one caller sends, by the seed.
fn letters(fleet: &Fleet) -> Vec<(Duration, String, Sent, bool, bool)> {
    let mut dice = Dice(fleet.seed ^ 0x1e77_e125);
    let number = 5 + dice.below(14);
    let end = u64::try_from(FAULT_TIME.as_millis()).unwrap();
    // By the seed alone: the same letters go out when faults are left out.
    let faults = Plan::new(fleet.seed, fleet.workers).faults;
    let letter = |n| {
        let agent = *dice.pick(&HIRED);
        let name = format!("e{n:03}");
        let session = if dice.below(3) == 0 || ALONE.contains(&agent) {
            format!("of-{name}")
        } else {
            format!("s{}", dice.below(3))
        };
        let budget = match agent {
            "spender" => Budget { turns: Some(2 + u32::try_from(dice.below(3)).unwrap()), ..Budget::default() },
            _ => Budget::default(),
        };
        let submission = Submission {
            input: json!({"name": name}),
            session_id: Some(session.parse().unwrap()),
            budget,
            ..Submission::default()
        };
        let task = agent != "chat" || dice.below(3) == 0;
        // Most of them where something goes wrong, or is about to.
        let at = match dice.below(3) {
            0 => Duration::from_millis(dice.below(end)),
            _ => dice.pick(&faults).at.saturating_sub(Duration::from_millis(dice.below(3_000))),
        };
        let sent = Sent { agent, task, submission, way: Way::Queued };
        (at, name, sent, dice.below(3) == 0, dice.below(4) == 0)
    };
    (0..number).map(letter).collect()
}

/// All of them, until everything is accepted or refused.
pub async fn work(fleet: Arc<Fleet>, diary: Arc<Diary>) {
    let mut hands = tokio::task::JoinSet::new();
    for (n, letter) in letters(&fleet).into_iter().enumerate() {
        hands.spawn(post(Arc::clone(&fleet), Arc::clone(&diary), n as u64, letter));
    }
    hands.spawn(cancel(Arc::clone(&fleet), Arc::clone(&diary)));
    hands.spawn(set_timers(Arc::clone(&fleet), Arc::clone(&diary)));
    while let Some(done) = hands.join_next().await {
        done.unwrap();
    }
}

/// Sends one letter, by the queue or straight to the store, perhaps twice.
async fn post(
    fleet: Arc<Fleet>,
    diary: Arc<Diary>,
    n: u64,
    (at, name, mut sent, direct, again): (Duration, String, Sent, bool, bool),
) {
    sleep(at).await;
    let (bus, venue) = fleet.caller(&format!("caller of {name}"), n);
    for _ in 0..=u32::from(again) {
        if direct && sent.way != Way::Accepted {
            sent.way = submit(&fleet, &venue, &name, &sent).await;
        } else {
            by_queue(&fleet, &bus, &name, &sent).await;
        }
        diary.sent.lock().unwrap().insert(name.clone(), sent.clone());
        if sent.way == Way::Refused {
            return;
        }
        sleep(Duration::from_millis(bus.link.below(4_000))).await;
    }
}

async fn by_queue(fleet: &Fleet, bus: &FarQueue, name: &str, sent: &Sent) {
    let kind = if sent.task { InboundKind::Task } else { InboundKind::Message };
    let to = MessageAddress::In { owner: fleet.owner.clone(), agent: sent.agent.parse().unwrap(), kind };
    let body = serde_json::to_value(&sent.submission).unwrap();
    send(bus, &BusMessage { to, id: Some(name.to_owned()), body, trace: None }).await;
}

async fn submit(fleet: &Fleet, venue: &trellis::venue::Venue, name: &str, sent: &Sent) -> Way {
    let arrival = Arrival {
        owner: fleet.owner.clone(),
        agent: sent.agent.parse().unwrap(),
        task: sent.task,
        id: EventId::new(name).unwrap(),
        submission: sent.submission.clone(),
        received: venue.now(),
        sequence: 0,
        by: Principal::ANYBODY,
        may_override: false,
        trace: None,
    };
    loop {
        match ingress::submit(venue, &arrival).await {
            Ok(_) => return Way::Accepted,
            Err(SubmitError::Refused { .. }) => return Way::Refused,
            Err(_) => sleep(AGAIN).await,
        }
    }
}

/// Cancels a few jobs.
async fn cancel(fleet: Arc<Fleet>, diary: Arc<Diary>) {
    let (bus, venue) = fleet.caller("canceller", 900);
    for _ in 0..bus.link.below(4) {
        sleep(Duration::from_millis(bus.link.below(12_000))).await;
        let Ok(page) = jobs::list(&venue, &fleet.owner, 0, 30).await else { continue };
        let open: Vec<_> = page.items.into_iter().filter(|job| !job.status.is_terminal()).collect();
        let Some(job) = open.get(usize::try_from(bus.link.below(open.len() as u64 + 1)).unwrap()) else { continue };
        let told = match jobs::cancel(&venue, &fleet.owner, &job.head.id, None).await {
            Ok(jobs::CancelOutcome::Done(_)) => &diary.cancelled,
            Ok(_) => continue,
            Err(_) => &diary.maybe_cancelled,
        };
        told.lock().unwrap().insert(job.head.id.clone());
    }
}

/// Sets timers, each until it is known to be set: under a key, so that it is set once.
async fn set_timers(fleet: Arc<Fleet>, diary: Arc<Diary>) {
    let (bus, venue) = fleet.caller("planner", 901);
    for n in 0..bus.link.below(4) {
        sleep(Duration::from_millis(bus.link.below(8_000))).await;
        let every = bus.link.below(2) == 0;
        let mut input = json!({"agentId": "bell", "input": {"name": "ring"}, "catchUp": "all"});
        if every {
            input["every"] = json!(format!("{}s", 5 + bus.link.below(9)));
        } else {
            let at = fleet.now().plus(Duration::from_secs(1 + bus.link.below(30)));
            input["at"] = json!(at.rfc3339());
        }
        let key = EventId::new(format!("timer-{n}")).unwrap();
        let id = loop {
            let path = "v/ops/agent/trigger";
            match operate_once(&venue, &boss(&fleet.owner), Some(key.clone()), path, input.clone()).await {
                Ok(set) => break set["timer"].as_str().unwrap().to_owned(),
                Err(_) => sleep(AGAIN).await,
            }
        };
        diary.timers.lock().unwrap().push(Alarm { id, every });
    }
}

/// Cancels what would fire for ever. When its last time was is for the timer itself to say.
pub async fn end_timers(fleet: &Fleet, diary: &Diary) {
    let ids: Vec<_> = diary.timers.lock().unwrap().iter().filter(|alarm| alarm.every).map(|a| a.id.clone()).collect();
    for id in ids {
        timers::cancel(&fleet.venue, &fleet.owner, &TimerId::new(&id).unwrap()).await.unwrap();
    }
}

/// A person decides on what is asked, sooner or later.
pub async fn decide(fleet: Arc<Fleet>) {
    let (bus, venue) = fleet.caller("person", 902);
    let person = Caller::new(fleet.owner.clone(), "a person".into(), Authority::without_limits());
    loop {
        sleep(Duration::from_millis(500 + bus.link.below(5_000))).await;
        let Ok(asked) = approvals::list(&venue, &fleet.owner, false, 0, 100).await else { continue };
        for approval in asked.items {
            let verdict = match bus.link.below(3) {
                0 => ApprovalVerdict::Rejected { reason: None },
                _ => ApprovalVerdict::Approved { arguments: None, scopes: None },
            };
            let _ = approvals::decide(&venue, &person, &approval.id, verdict, None).await;
        }
    }
}

/// Workers outside do what is published, and say so, some of them twice.
pub async fn serve(fleet: Arc<Fleet>) {
    let (bus, _) = fleet.caller("outside", 903);
    loop {
        sleep(Duration::from_millis(700)).await;
        for Job { owner, agent, body } in fleet.queue.take_jobs() {
            sleep(Duration::from_millis(bus.link.below(3_000))).await;
            let answer = json!({
                "job": body["job"], "token": body["token"], "status": "COMPLETE", "output": {"words": 3}
            });
            for n in 0..=bus.link.below(2) {
                let id = format!("{}-{n}", body["job"].as_str().unwrap_or_default());
                let to = MessageAddress::In { owner: owner.clone(), agent: agent.clone(), kind: InboundKind::Result };
                send(&bus, &BusMessage { to, id: Some(id), body: Value::clone(&answer), trace: None }).await;
            }
        }
    }
}
