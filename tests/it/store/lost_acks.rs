//! Redis comes back without its last seconds: one row for each kind of change that protects somebody, with living
//! processes and with dead ones. What protects is in force again before anything else runs.

mod connection_checks;
mod deleted_policies;
mod kinds;
mod large_changes;
mod lost_turns;
mod store_changes;
mod spending;

use crate::support::cli::Process;
use crate::support::fleet::Fleet;
use crate::support::nats;
use crate::support::redis::RedisServer;
use std::time::{Duration, Instant};

/// One kind of change: how it is made, and what shows that it holds.
struct Row {
    name: &'static str,
    change: &'static [&'static str],
    show: &'static [&'static str],
    holds: fn(&str) -> bool,
}

const CANCELLED: &str = "to-cancel";
const PAUSED: &str = "to-pause";

const ROWS: [Row; 6] = [
    Row {
        name: "revocation",
        change: &["policy", "revoke", "--path", "w/payroll"],
        show: &["policy", "show"],
        holds: |shown| shown.contains("w/payroll"),
    },
    Row {
        name: "root",
        change: &["policy", "roots", "[{\"with\": \"w\", \"can\": \"crud/read\"}]"],
        show: &["policy", "show"],
        holds: |shown| shown.contains("crud/read"),
    },
    Row {
        name: "suspension",
        change: &["agent", "suspend", "echo"],
        show: &["agent", "get", "echo", "--output", "json"],
        holds: |shown| shown.contains("SUSPENDED"),
    },
    Row {
        name: "deleted secret",
        change: &["secret", "delete", "STRIPE_KEY"],
        show: &["secret", "list"],
        holds: |shown| !shown.contains("STRIPE_KEY"),
    },
    Row {
        name: "cancel",
        change: &["job", "cancel", CANCELLED],
        show: &["job", "get", CANCELLED],
        holds: |shown| shown.contains("CANCELLED"),
    },
    Row {
        name: "pause",
        change: &["job", "pause", PAUSED],
        show: &["job", "get", PAUSED],
        holds: |shown| shown.contains("PAUSED"),
    },
];

struct Venue {
    fleet: Fleet,
    processes: Option<(Process, Process)>,
    url: String,
    jobs: [(&'static str, String); 2],
}

impl Venue {
    /// Two jobs wait for an agent that is suspended.
    fn start(nats: String, redis: &RedisServer) -> Self {
        let fleet = Fleet::new(nats, redis);
        crate::support::cli::run(fleet.path(), &["secret", "keygen", "keys.txt"]).ok();
        let config = std::fs::read_to_string(fleet.path().join("fleet.toml")).unwrap();
        let config = format!("{config}[secrets]\nkey_file = \"keys.txt\"\n");
        std::fs::write(fleet.path().join("fleet.toml"), config).unwrap();
        std::fs::write(fleet.path().join("key.txt"), "sk_live_0123456789").unwrap();
        fleet.slow_agent("idle", 1);
        let (worker, serve, url) = fleet.start_all();
        let mut venue = Self { fleet, processes: Some((worker, serve)), url, jobs: Default::default() };
        venue.run(&["agent", "apply", "echo.toml", "idle.toml"]);
        venue.run(&["agent", "suspend", "idle"]);
        venue.run(&["secret", "set", "STRIPE_KEY", "@key.txt", "--host", "api.stripe.com"]);
        venue.jobs = [CANCELLED, PAUSED].map(|id| {
            let job = venue.run(&["submit", "idle", "work", "--id", id]);
            (id, job.split_whitespace().last().unwrap().to_owned())
        });
        venue
    }

    fn run(&self, args: &[&str]) -> String {
        let job = |arg: &&str| self.jobs.iter().find(|(name, _)| name == arg).map(|(_, job)| job.clone());
        let args: Vec<_> = args.iter().map(|arg| job(arg).unwrap_or_else(|| (*arg).to_owned())).collect();
        let args: Vec<_> = args.iter().map(String::as_str).chain(["--url", &self.url]).collect();
        crate::support::cli::run(self.fleet.path(), &args).ok()
    }

    fn start_again(&mut self) {
        let (worker, serve, url) = self.fleet.start_all();
        (self.processes, self.url) = (Some((worker, serve)), url);
    }
}

fn protective_changes_survive_a_loss(with_living_processes: bool) {
    let (Some(url), Some(mut server)) = (nats::shared(), RedisServer::start()) else { return };
    let mut venue = Venue::start(url, &server);
    let before = server.log_file();
    for row in &ROWS {
        venue.run(row.change);
        assert!((row.holds)(&venue.run(row.show)), "{}", row.name);
    }
    // One that protects nobody is named.
    venue.run(&["lattice", "write", "w/vendors/acme", "{\"deep\": {\"er\": 1}}"]);
    // As long as the queue is behind the answers.
    std::thread::sleep(Duration::from_secs(2));
    if !with_living_processes {
        let (worker, serve) = venue.processes.take().unwrap();
        for process in [&worker, &serve] {
            process.signal("KILL");
        }
    }
    server.lose_tail(before);
    if !with_living_processes {
        venue.start_again();
    }
    // What waited runs as soon as anything runs: its agent may again, and a task behind it is done.
    venue.run(&["agent", "resume", "idle"]);
    venue.run(&["submit", "idle", "behind", "--session", "other", "--wait=60s"]);
    let shown: Vec<_> = ROWS.iter().map(|row| (row.name, venue.run(row.show))).collect();
    let gone: Vec<_> = ROWS.iter().zip(&shown).filter(|(row, (_, shown))| !(row.holds)(shown)).collect();
    let gone: Vec<_> = gone.iter().map(|(_, shown)| shown).collect();
    assert!(gone.is_empty(), "not in force: {gone:#?}");
    is_told_until_it_is_settled(&venue);
}

fn is_told_until_it_is_settled(venue: &Venue) {
    let end = Instant::now() + Duration::from_mins(2);
    while !venue.fleet.run(&["audit", "--after-loss"]).out.contains("lost in all: ") {
        assert!(Instant::now() < end, "{:?}", venue.fleet.run(&["audit", "--after-loss"]));
        std::thread::sleep(Duration::from_millis(500));
    }
    let told = venue.fleet.run(&["audit", "--after-loss"]);
    assert!(told.out.contains("`w.e/") || told.out.contains("`w/"), "{told:?}");
    let shown = venue.fleet.run(&["doctor"]).expect(1, "");
    assert!(shown.out.contains("`trellis audit --settle`"), "{shown:?}");
    venue.fleet.run(&["audit", "--settle"]);
    let shown = venue.fleet.run(&["doctor"]);
    assert!(!shown.out.contains("`trellis audit --settle`"), "{shown:?}");
    let told = venue.fleet.run(&["audit", "--after-loss"]);
    assert!(told.out.contains("settled at ") && told.out.contains("lost in all: "), "{told:?}");
}

#[test]
fn protective_changes_survive_a_loss_with_living_processes() {
    protective_changes_survive_a_loss(true);
}

#[test]
fn protective_changes_survive_a_loss_with_dead_processes() {
    protective_changes_survive_a_loss(false);
}
