//! The timers of the day: of every kind, with every rule for what was missed.

use super::GAP;
use super::calendar::{Calendar, CatchUp, Entry, Plan, at_night, hourly, office};
use super::day_process::Life;
use crate::support::dice::Dice;
use crate::support::operate::{boss, operate};
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::timer::TimerId;
use trellis::venue::timers;

const ALL: [CatchUp; 3] = [CatchUp::One, CatchUp::All, CatchUp::Skip];

/// Sets a timer as a caller does, and notes it down.
async fn set(life: &Life, calendar: &mut Calendar, how: Value, plan: Plan, catch_up: CatchUp) {
    let (venue, owner) = (&life.door.venue, &life.door.owner);
    let mut input = json!({"agentId": "bell", "input": {"name": "ring"}, "catchUp": catch_up.name()});
    input.as_object_mut().unwrap().extend(how.as_object().unwrap().clone());
    let set = operate(venue, &boss(owner), "v/ops/agent/trigger", input).await.unwrap();
    let id = TimerId::new(set["timer"].as_str().unwrap()).unwrap();
    let (skip, task) = (how["overlap"] == "skip", how["kind"] != "message");
    let entry = Entry::new(id, plan, catch_up, skip, task, venue.now());
    assert_eq!(set["next"], json!(entry.next().unwrap().rfc3339()), "{how}");
    calendar.entries.push(entry);
}

fn wall(zone: &str, fits: fn(jiff::civil::DateTime) -> bool) -> Plan {
    let zone = jiff::tz::TimeZoneDatabase::bundled().get(zone).unwrap();
    // Only Berlin's night is cut short.
    let instead = (zone.iana_name() == Some("Europe/Berlin")).then_some(GAP);
    Plan::Wall { zone, fits, instead }
}

async fn every(life: &Life, calendar: &mut Calendar, minutes: u64, more: Value, catch_up: CatchUp) {
    let mut how = json!({"every": format!("{minutes}m")});
    how.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let plan = Plan::Every { start: life.door.venue.now(), minutes };
    set(life, calendar, how, plan, catch_up).await;
}

async fn once(life: &Life, calendar: &mut Calendar, after: Duration, catch_up: CatchUp) {
    let at = life.door.venue.now().plus(after);
    set(life, calendar, json!({"at": at.rfc3339()}), Plan::At(at), catch_up).await;
}

/// Those that are there from the beginning.
pub async fn set_all(life: &Life, calendar: &mut Calendar) {
    for (catch_up, minutes) in ALL.into_iter().zip([20, 60, 30]) {
        every(life, calendar, minutes, json!({}), catch_up).await;
        let night = json!({"cron": "30 2 * * *", "timezone": "Europe/Berlin"});
        set(life, calendar, night, wall("Europe/Berlin", at_night), catch_up).await;
        let office_hours = json!({"cron": "*/30 8-17 * * MON-SAT", "timezone": "America/New_York"});
        set(life, calendar, office_hours, wall("America/New_York", office), catch_up).await;
        once(life, calendar, Duration::from_mins(minutes * 7), catch_up).await;
    }
    every(life, calendar, 50, json!({"kind": "message", "sessionId": "bells"}), CatchUp::All).await;
    every(life, calendar, 35, json!({"agentId": "slow", "overlap": "skip", "sessionId": "own"}), CatchUp::One).await;
    every(life, calendar, 45, json!({"agentId": "payer", "overlap": "skip"}), CatchUp::All).await;
    let hours = json!({"cron": "20 * * * *"});
    set(life, calendar, hours, Plan::Wall { zone: TimeZone::UTC, fits: hourly, instead: None }, CatchUp::One).await;
}

/// Somebody sets one more, or cancels one.
pub async fn change(life: &Life, calendar: &mut Calendar, dice: &mut Dice) {
    let active: Vec<_> = (0..calendar.entries.len()).filter(|at| calendar.entries[*at].next().is_some()).collect();
    let catch_up = *dice.pick(&ALL);
    match dice.below(4) {
        0 if active.len() > 12 => cancel(life, calendar, *dice.pick(&active)).await,
        1 => every(life, calendar, 20 + dice.below(60), json!({}), catch_up).await,
        _ => once(life, calendar, Duration::from_secs(1 + dice.below(4 * 3600)), catch_up).await,
    }
}

async fn cancel(life: &Life, calendar: &mut Calendar, at: usize) {
    timers::cancel(&life.door.venue, &life.door.owner, &calendar.entries[at].id).await.unwrap().unwrap();
    calendar.cancelled(at);
}

/// Nothing fires any more but the wakes that agents have set.
pub async fn cancel_all(life: &Life, calendar: &mut Calendar) {
    for at in 0..calendar.entries.len() {
        if calendar.entries[at].next().is_some() {
            cancel(life, calendar, at).await;
        }
    }
}
