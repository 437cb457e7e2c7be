//! Two builds side by side: processes of one are replaced by those of the other under load, and back again.
//!
//! `TRELLIS_BEFORE` names the binary of before; `tests/upgrade.sh` builds it. Without it this build plays both, which
//! proves the replacing and not the difference.

use crate::support::cli::{Process, command_of, run};
use crate::support::fleet::Fleet;
use crate::support::nats;
use crate::support::redis::RedisServer;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Tasks that are sent while each process is replaced.
const TASKS: usize = 6;

fn before() -> PathBuf {
    std::env::var_os("TRELLIS_BEFORE").map_or_else(|| env!("CARGO_BIN_EXE_trellis").into(), PathBuf::from)
}

/// The processes of a fleet, each of some build.
struct Processes<'f> {
    fleet: &'f Fleet,
    workers: Vec<Process>,
    serve: Process,
    url: String,
}

fn start(fleet: &Fleet, binary: &Path, role: &str) -> Process {
    let mut command = command_of(binary, fleet.path());
    command.args([role, "--config", "fleet.toml", "--set", "worker.crash_limit=1"]);
    let mut process = Process::of(command);
    if role == "worker" {
        process.says("worker `");
    }
    process
}

fn serve(fleet: &Fleet, binary: &Path) -> (Process, String) {
    let mut serve = start(fleet, binary, "serve");
    let url = serve.says("HTTP API on ").split(' ').next().unwrap().to_owned();
    (serve, url)
}

fn ends(process: &mut Process) {
    process.signal("TERM");
    assert_eq!(process.ended().code(), Some(0), "{}", process.log());
    let log = process.log();
    assert!(!log.contains("panicked") && !log.contains("invalid record or reply"), "{log}");
}

impl<'f> Processes<'f> {
    fn of(fleet: &'f Fleet, binary: &Path) -> Self {
        let (serve, url) = serve(fleet, binary);
        Self { fleet, workers: (0..2).map(|_| start(fleet, binary, "worker")).collect(), serve, url }
    }

    /// One after the other; `load` sends something before each.
    fn replace(&mut self, binary: &Path, load: impl Fn()) {
        for at in 0..self.workers.len() {
            load();
            let new = start(self.fleet, binary, "worker");
            ends(&mut std::mem::replace(&mut self.workers[at], new));
        }
        load();
        let (new, url) = serve(self.fleet, binary);
        ends(&mut std::mem::replace(&mut self.serve, new));
        self.url = url;
        load();
    }
}

fn json(fleet: &Fleet, args: &[&str]) -> Value {
    serde_json::from_str(&fleet.run(&[args, &["--output", "json"]].concat()).ok()).unwrap()
}

/// How many turns each session of an agent has had.
fn turns(fleet: &Fleet, url: &str, agent: &str) -> Vec<u64> {
    let (mut turns, mut after) = (Vec::new(), Vec::new());
    loop {
        let list =
            [&["session", "list", agent, "--limit", "200", "--url", url, "--output", "json"], &after[..]].concat();
        let page: Value = serde_json::from_str(&run(fleet.path(), &list).ok()).unwrap();
        let sessions = page["sessions"].as_array().unwrap_or_else(|| panic!("{page}"));
        turns.extend(sessions.iter().map(|session| session["turns"].as_u64().unwrap()));
        match page["next"].as_str() {
            Some(next) => after = vec!["--after", String::leak(next.to_owned())],
            None => return turns,
        }
    }
}

#[test]
fn an_upgrade_and_a_rollback_under_load_lose_and_double_nothing() {
    let (Some(server), Some(nats)) = (RedisServer::start(), nats::shared()) else { return };
    let fleet = Fleet::new(nats, &server);
    fleet.slow_agent("slow", 1_500);
    let (old, new) = (before(), PathBuf::from(env!("CARGO_BIN_EXE_trellis")));
    let mut processes = Processes::of(&fleet, &old);
    run(fleet.path(), &["agent", "apply", "echo.toml", "slow.toml", "--url", &processes.url]).ok();

    // One that goes on all the time, and some that are sure to run when a process is told to end.
    let (over, all) = (AtomicBool::new(false), std::sync::atomic::AtomicUsize::new(0));
    let send = |agent: &str| {
        let n = all.fetch_add(1, Ordering::SeqCst);
        let (id, session) = (format!("t{n}"), format!("s{n}"));
        fleet.publish(&["submit", agent, "x", "--id", &id, "--session", &session]).ok();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                send("echo");
            }
        });
        let load = || (0..TASKS).for_each(|_| send("slow"));
        processes.replace(&new, load);
        processes.replace(&old, load);
        processes.replace(&new, load);
        over.store(true, Ordering::SeqCst);
    });

    let count = all.load(Ordering::SeqCst) as u64;
    let began = Instant::now();
    let books = loop {
        let books = json(&fleet, &["audit"]);
        if books["completed"] == count {
            break books;
        }
        assert!(began.elapsed() < Duration::from_mins(2), "{count} were sent: {books}");
        std::thread::sleep(Duration::from_millis(200));
    };
    assert_eq!((&books["accepted"], &books["unaccounted"]), (&count.into(), &0.into()), "{books}");
    let mut counted = turns(&fleet, &processes.url, "slow");
    counted.extend(turns(&fleet, &processes.url, "echo"));
    assert_eq!(counted, vec![1; usize::try_from(count).unwrap()], "each has one turn");
    eprintln!("{count} tasks over three replacements of all processes: {books}");
    processes.workers.iter_mut().for_each(ends);
    ends(&mut processes.serve);
}
