//! The worker registry: the record of each worker, and the order to drain one.

use crate::ids::Owner;
use crate::time::Millis;
use crate::unknown_fields::UnknownFields;
use crate::visible::quote_names;
use crate::wait::WaitReason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// Longest time between two heartbeats of a worker.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

/// Time without a heartbeat after which a worker counts as silent: two heartbeats.
const SILENCE_LIMIT: Duration = Duration::from_secs(2 * HEARTBEAT.as_secs());

/// Number of owners at their share of the slots that a worker names at most.
pub const AT_SHARE: usize = 64;

/// Time after which the record of a silent worker is deleted.
const RECORD_KEPT: Duration = Duration::from_hours(24);

/// An order to drain a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DrainOrder {
    /// Time of the order, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub at: Millis,
    /// Name of the operator.
    pub by: String,
}

/// Record of a worker, written by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerRecord {
    /// Name of the worker, as in leases.
    pub name: String,
    /// Name of its machine.
    pub host: String,
    /// Version of its build.
    pub version: String,
    /// Store format that it writes, see [`crate::format`].
    pub format: u32,
    /// Number of sessions that it runs at once.
    pub slots: u32,
    /// Number of sessions that run.
    pub busy: u32,
    /// Time of its start.
    pub since: Millis,
    /// Time of this heartbeat.
    pub seen: Millis,
    /// Whether it accepts no new work.
    #[serde(default)]
    pub leaving: bool,
    /// Order to drain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainOrder>,
    /// Number of sessions of one owner that it lets run at once in the fleet; absent = any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_cap: Option<u32>,
    /// Owners whose sessions wait here because others of theirs hold their share of its slots, [`AT_SHARE`] at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_share: Vec<String>,
    /// Whether approvals of its turns get entries in the list of open ones; an older build knows no such entries.
    #[serde(default)]
    pub lists_approvals: bool,
    /// Fields that a newer build wrote.
    #[serde(flatten)]
    pub kept: UnknownFields,
}

impl WorkerRecord {
    /// Whether its last heartbeat is recent.
    pub fn is_live(&self, now: Millis) -> bool {
        now.elapsed_since(self.seen) < SILENCE_LIMIT
    }

    /// Whether both records are of the same process: another of the same name differs in start or machine.
    pub fn is_same_process(&self, other: &Self) -> bool {
        (self.since, &self.host) == (other.since, &other.host)
    }

    /// Whether the record is old enough to be deleted.
    pub fn is_expired(&self, now: Millis) -> bool {
        now.elapsed_since(self.seen) >= RECORD_KEPT
    }

    /// Returns the state of the worker, in words for operators.
    pub fn state(&self, now: Millis) -> &'static str {
        match (self.is_live(now), self.leaving, &self.drain) {
            (false, ..) => "silent",
            (true, true, _) => "leaving",
            (true, false, Some(_)) => "told to leave",
            (true, false, None) => "works",
        }
    }
}

/// Sums over the records of all workers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetState {
    /// Number of workers that are live and accept work.
    pub workers: usize,
    /// Number of their slots.
    pub slots: u64,
    /// Number of their slots in which sessions run.
    pub busy: u64,
    /// Number of sessions of one owner that run at once; absent = any number.
    pub owner_cap: Option<u32>,
    /// Name and time of the newest heartbeat.
    pub last: Option<(String, Millis)>,
    /// Whether a live worker doesn't list its approvals.
    pub has_older: bool,
    at_share: Vec<String>,
}

impl FleetState {
    /// Sums the records of the registry.
    pub fn new(all: &[WorkerRecord], now: Millis) -> Self {
        let live: Vec<_> = all.iter().filter(|worker| worker.is_live(now) && !worker.leaving).collect();
        let last = all.iter().max_by_key(|worker| worker.seen).map(|worker| (worker.name.clone(), worker.seen));
        Self {
            workers: live.len(),
            slots: live.iter().map(|worker| u64::from(worker.slots)).sum(),
            busy: live.iter().map(|worker| u64::from(worker.busy.min(worker.slots))).sum(),
            owner_cap: live.iter().filter_map(|worker| worker.owner_cap).min(),
            last,
            has_older: all.iter().any(|worker| worker.is_live(now) && !worker.lists_approvals),
            at_share: live.iter().flat_map(|worker| worker.at_share.iter().cloned()).collect(),
        }
    }

    /// Returns the wait reason of work that needs a worker, if no worker is live.
    pub fn no_worker(&self) -> Option<WaitReason> {
        (self.workers == 0).then(|| WaitReason::NoWorker { last: self.last.clone() })
    }

    /// Returns why a due session of this owner doesn't run.
    pub fn due_reason(&self, owner: &Owner) -> WaitReason {
        let owner = owner.to_string();
        if self.at_share.contains(&owner) {
            WaitReason::OwnerShare
        } else if self.busy >= self.slots {
            WaitReason::SlotsTaken { slots: self.slots }
        } else {
            WaitReason::Due
        }
    }
}

/// Workers that an order is for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DrainTarget {
    /// Names of the workers.
    pub names: Vec<String>,
    /// Name of a machine, for all workers on it.
    pub host: Option<String>,
}

/// Reason why an order is for no worker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DrainTargetError {
    /// No worker of a name is live.
    #[error("no worker `{name}` lives; {}", describe_live(.live))]
    NoWorker {
        /// Name of the worker.
        name: String,
        /// Names of the live workers.
        live: Vec<String>,
    },
    /// No worker of a machine is live.
    #[error("no worker lives on `{host}`{}", describe_hosts(.hosts))]
    NoHost {
        /// Name of the machine.
        host: String,
        /// Names of the machines with live workers.
        hosts: Vec<String>,
    },
    /// The order names nothing.
    #[error("name a worker, or a host; {}", describe_live(.live))]
    Empty {
        /// Names of the live workers.
        live: Vec<String>,
    },
}

fn describe_live(names: &[String]) -> String {
    if names.is_empty() { "no worker does".to_owned() } else { format!("those that do: {}", quote_names(names)) }
}

fn describe_hosts(names: &[String]) -> String {
    if names.is_empty() {
        ", and none elsewhere".to_owned()
    } else {
        format!("; there are some on {}", quote_names(names))
    }
}

/// Returns names in order, each once.
fn sorted_names<'n>(names: impl Iterator<Item = &'n String>) -> Vec<String> {
    names.collect::<BTreeSet<_>>().into_iter().cloned().collect()
}

impl DrainTarget {
    /// Returns the names of the live workers among them; the error lists those that are live.
    pub fn resolve(&self, all: &[WorkerRecord], now: Millis) -> Result<Vec<String>, DrainTargetError> {
        let live: Vec<&WorkerRecord> = all.iter().filter(|worker| worker.is_live(now)).collect();
        let live_names = || sorted_names(live.iter().map(|worker| &worker.name));
        if let Some(name) = self.names.iter().find(|name| !live.iter().any(|worker| worker.name == **name)) {
            return Err(DrainTargetError::NoWorker { name: name.clone(), live: live_names() });
        }
        let of_host = live.iter().filter(|worker| self.host.as_ref() == Some(&worker.host));
        let mut names: Vec<String> = of_host.map(|worker| worker.name.clone()).collect();
        if let Some(host) = self.host.as_ref().filter(|_| names.is_empty()) {
            let hosts = sorted_names(live.iter().map(|worker| &worker.host));
            return Err(DrainTargetError::NoHost { host: host.clone(), hosts });
        }
        names.extend(self.names.iter().cloned());
        names.sort_unstable();
        names.dedup();
        if names.is_empty() { Err(DrainTargetError::Empty { live: live_names() }) } else { Ok(names) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(name: &str, host: &str, seen: u64) -> WorkerRecord {
        let (name, host, version) = (name.into(), host.into(), "1.0.0".into());
        let (since, seen, kept) = (Millis(1), Millis(seen), UnknownFields::default());
        WorkerRecord {
            name,
            host,
            version,
            format: 1,
            slots: 16,
            busy: 0,
            since,
            seen,
            leaving: false,
            drain: None,
            owner_cap: None,
            at_share: Vec::new(),
            lists_approvals: true,
            kept,
        }
    }

    #[test]
    fn an_order_is_for_those_that_live() {
        let now = Millis(100_000);
        let all =
            [worker("a-1", "a", 99_000), worker("a-2", "a", 90_000), worker("b-1", "b", 99_000), worker("c-1", "c", 1)];
        let check = |names: &[&str], host: Option<&str>, expected: Result<&[&str], &str>| {
            let whom =
                DrainTarget { names: names.iter().map(ToString::to_string).collect(), host: host.map(str::to_owned) };
            let found = whom.resolve(&all, now);
            match expected {
                Ok(names) => assert_eq!(found.unwrap(), names.to_vec()),
                Err(text) => assert_eq!(found.unwrap_err().to_string(), text),
            }
        };
        check(&["b-1"], None, Ok(&["b-1"]));
        check(&["b-1", "b-1"], Some("a"), Ok(&["a-1", "a-2", "b-1"]));
        check(&["b-1", "x"], None, Err("no worker `x` lives; those that do: `a-1`, `a-2`, `b-1`"));
        check(&["c-1"], None, Err("no worker `c-1` lives; those that do: `a-1`, `a-2`, `b-1`"));
        check(&[], Some("c"), Err("no worker lives on `c`; there are some on `a`, `b`"));
        check(&[], None, Err("name a worker, or a host; those that do: `a-1`, `a-2`, `b-1`"));
        let none = DrainTarget { names: vec!["x".into()], host: None };
        assert_eq!(none.resolve(&[], now).unwrap_err().to_string(), "no worker `x` lives; no worker does");
    }

    #[test]
    fn a_worker_shows_operators_its_actual_state() {
        let mut shown = worker("a-1", "a", 60_000);
        let mut check = |change: fn(&mut WorkerRecord), now: u64, expected: &str| {
            change(&mut shown);
            assert_eq!(shown.state(Millis(now)), expected);
        };
        check(|_| {}, 70_000, "works");
        check(|worker| worker.drain = Some(DrainOrder { at: Millis(1), by: "me".into() }), 70_000, "told to leave");
        check(|worker| worker.leaving = true, 70_000, "leaving");
        check(|_| {}, 79_999, "leaving");
        check(|_| {}, 80_000, "silent");
    }

    #[test]
    fn a_fleet_says_why_due_work_does_not_run() {
        let owner: Owner = "t/u".parse().unwrap();
        let now = Millis(100_000);
        let of = |all: &[WorkerRecord]| FleetState::new(all, now);
        let (idle, silent) = (worker("a-1", "a", 99_000), worker("b-1", "b", 1));
        let full = WorkerRecord { busy: 16, ..idle.clone() };
        let shared = WorkerRecord { at_share: vec!["t/u".into()], ..idle.clone() };
        let leaving = WorkerRecord { leaving: true, ..idle.clone() };
        assert_eq!(of(&[]).no_worker(), Some(WaitReason::NoWorker { last: None }));
        for gone in [&silent, &leaving] {
            let last = Some((gone.name.clone(), gone.seen));
            assert_eq!(of(std::slice::from_ref(gone)).no_worker(), Some(WaitReason::NoWorker { last }));
        }
        assert_eq!(of(&[idle.clone(), silent]).no_worker(), None);
        for (all, expected) in [
            (vec![idle.clone()], WaitReason::Due),
            (vec![full.clone()], WaitReason::SlotsTaken { slots: 16 }),
            (vec![full, idle], WaitReason::Due),
            (vec![shared], WaitReason::OwnerShare),
        ] {
            assert_eq!(of(&all).due_reason(&owner), expected);
        }
    }
}
