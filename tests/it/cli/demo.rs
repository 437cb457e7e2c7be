//! `trellis demo` through the binary, and its claims checked against what it leaves behind.

use crate::support::cli::{Done, Process, command};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const DECISIONS: [(&str, &str); 6] = [
    ("INV-1001", "approved"),
    ("INV-1002", "approved"),
    ("INV-1003", "escalated"),
    ("INV-1004", "approved"),
    ("INV-1005", "rejected"),
    ("INV-1006", "held"),
];

fn demo(dir: &Path, args: &[&str]) -> Command {
    let mut command = command(dir);
    // Somebody's settings for another server are not the demo's.
    command.env("TMPDIR", dir).env("TRELLIS__STORE__URL", "redis://127.0.0.1:1").arg("demo").args(args);
    command
}

fn run(mut command: Command) -> Done {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Done { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

fn left(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Lines of the calls log as (turn, process, event).
fn calls(folder: &Path) -> Vec<(String, u64, String)> {
    let text = std::fs::read_to_string(folder.join("calls.jsonl")).unwrap();
    let field = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let calls = lines.map(|line| (field(&line, "turn"), line["pid"].as_u64().unwrap(), field(&line, "event")));
    // The second part kills other agents' processes.
    let ours = |turn: &str| ["/accounts-payable/", "/vendor-enrichment/"].iter().any(|agent| turn.contains(agent));
    calls.filter(|(turn, _, _)| ours(turn)).collect()
}

fn alive(pid: u64) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Two processes asked; what the first left without a reply, the second asked for, and hardly more.
fn check_calls(folder: &Path) {
    let calls = calls(folder);
    let pids: BTreeSet<u64> = calls.iter().map(|(_, pid, _)| *pid).collect();
    let (first, second) = (calls[0].1, calls.last().unwrap().1);
    assert_eq!(pids, BTreeSet::from([first, second]), "two processes");
    assert!(first != second && !alive(first) && !alive(second), "both are gone");
    let turns = |pid: u64, event: &str| -> BTreeSet<String> {
        calls.iter().filter(|call| call.1 == pid && call.2 == event).map(|call| call.0.clone()).collect()
    };
    let cut: BTreeSet<_> = turns(first, "started").difference(&turns(first, "replied")).cloned().collect();
    assert!(!cut.is_empty(), "the kill was in the middle of a model call");
    assert!(cut.is_subset(&turns(second, "replied")), "what was cut off went on");
    assert_eq!(turns(second, "started"), turns(second, "replied"));
}

#[test]
fn the_demo_says_what_is_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let told = run(demo(dir.path(), &["--fast", "--keep"])).expect(0, "").out;
    let [folder] = left(dir.path()).try_into().unwrap();
    assert!(told.contains("kill -9") && told.contains("unaccounted 0"), "{told}");
    for line in told.lines().filter(|line| !line.contains(env!("CARGO_BIN_EXE_trellis"))) {
        assert!(line.chars().count() <= 100 && !line.contains('\x1b') && line.trim_end() == line, "`{line}`");
    }
    check_calls(&folder);
    let data = folder.join("data").display().to_string();
    let mut up = Process::start(dir.path(), ["up", "--data", &data, "--listen", "127.0.0.1:0"]);
    let url = up.says("HTTP API on ").split(' ').next().unwrap().to_owned();
    let read = |path: &str| -> Value {
        let mut command = command(dir.path());
        command.args(["lattice", "read", path, "--url", &url, "--output", "json"]);
        serde_json::from_str::<Value>(&run(command).ok()).unwrap()["value"].take()
    };
    for (invoice, decision) in DECISIONS {
        assert_eq!(read(&format!("w/decisions/{invoice}/decision")), decision);
        let row = told.lines().find(|line| line.starts_with(&format!("   {invoice}  ")) && line.contains(decision));
        assert!(row.is_some(), "{invoice} is not in\n{told}");
    }
    let ledger = read("w/ledger");
    let invoices: BTreeSet<_> = ledger.as_array().unwrap().iter().map(|line| line["invoice"].to_string()).collect();
    assert_eq!((ledger.as_array().unwrap().len(), invoices.len()), (8, 8), "{ledger}");
    let mut shown = 0;
    for agent in ["accounts-payable", "vendor-enrichment"] {
        let turns = read(&format!("g/{agent}/timeline"));
        let turns = turns.as_array().unwrap();
        let places: BTreeSet<_> =
            turns.iter().map(|turn| (turn["session"].to_string(), turn["turn"].as_u64())).collect();
        assert_eq!(places.len(), turns.len());
        shown += turns.len();
    }
    let lines = told.lines().filter(|line| line.contains("s  INV-") && line.contains('+')).count();
    assert_eq!(lines, shown, "every turn is shown once:\n{told}");
}

#[test]
fn the_demo_as_json_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let done = run(demo(dir.path(), &["--fast", "--output", "json"])).expect(0, "");
    let told: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!((&told["problems"], &told["audit"]["unaccounted"]), (&json!([]), &json!(0)));
    let books = ["accepted", "completed", "failed", "cancelled"].map(|kind| told["audit"][kind].as_u64().unwrap());
    assert_eq!(books, [12, 10, 1, 1]);
    let trouble = &told["trouble"];
    assert_eq!(trouble["typed"]["count"], 3, "a typed output, refused once");
    assert!(trouble["retried"].as_str().unwrap().contains("429"), "a retried provider error: {trouble}");
    assert_eq!(trouble["cancelled"], "CANCELLED", "a cancelled call");
    assert_eq!(
        (&trouble["dead"], &trouble["redriven"]),
        (&json!("DEAD"), &json!("12 pages")),
        "a dead letter redriven"
    );
    assert!(!told["kill"]["cut"].as_array().unwrap().is_empty(), "{told}");
    assert_eq!(told["calls"]["repeatedWithoutReason"], json!([]));
    assert_eq!((left(dir.path()), done.err.as_str()), (Vec::new(), ""));
}

#[test]
fn an_interrupted_demo_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = demo(dir.path(), &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let server = lines.find_map(|line| line.trim().strip_prefix("process ").map(str::trim).map(str::to_owned)).unwrap();
    let server: u64 = server.split(':').next().unwrap().parse().unwrap();
    lines.find(|line| line.contains("read ×3")).unwrap();
    assert!(alive(server));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    lines.for_each(drop);
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(1), "{}", String::from_utf8_lossy(&done.stderr));
    let deadline = Instant::now() + Duration::from_mins(1);
    while alive(server) {
        assert!(Instant::now() < deadline, "process {server} stayed behind");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(left(dir.path()), Vec::<PathBuf>::new());
}
