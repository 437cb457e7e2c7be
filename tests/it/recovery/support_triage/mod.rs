//! A help desk on a fleet: a knowledge tree, orders and refunds as declared tools of a service with faults, an approval
//! by a person for each refund, a nightly digest, tickets from Python, and workers that are killed all the time.

mod person;
mod shop;

use crate::notifications::{HookServer, SECRET};
use crate::support::cli::{Process, run};
use crate::support::fleet::Fleet;
use crate::support::{nats, python};
use person::Person;
use serde_json::{Value, json};
use shop::Shop;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const ORDERS: [&str; 12] =
    ["ok-1", "slow-1", "hang-1", "drop-1", "ok-2", "slow-2", "hang-2", "drop-2", "ok-3", "slow-3", "ok-4", "ok-5"];

const RULES: &str = r#"
[[rule]]
when = { agent = "digest" }
then = { text = "all quiet" }

[[rule]]
when = { turn = 1 }
then = { calls = [{ tool = "get_order", arguments = { order_id = "{{input.order}}" } }] }

[[rule]]
when = { tool = "get_order", tool_result = "total" }
then = { calls = [{ tool = "refund", arguments = { order_id = "{{input.order}}", cents = 1200 } }] }

[[rule]]
then = { text = "{{tool_result}}" }
"#;

/// Workers of the fleet.
const WORKERS: usize = 3;
/// Workers that are killed in all.
const KILLS: usize = 9;

/// The agent of the tickets.
fn triage(shop: &Shop) -> Value {
    let order = json!({"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]});
    let refund = json!({
        "type": "object",
        "properties": {"order_id": {"type": "string"}, "cents": {"type": "integer"}},
        "required": ["order_id", "cents"],
    });
    let url = |path: &str| format!("http://127.0.0.1:{}{path}", shop.port);
    json!({
        "model": {"provider": "scripted", "name": "all.rules"},
        "context": ["w/knowledge"],
        "tools": [
            {"name": "get_order", "description": "Gets an order.", "input": order,
             "http": {"url": url("/orders/{order_id}"), "result": "/data/order", "timeout": 1_500}},
            {"name": "refund", "description": "Refunds an order.", "approval": "ask", "input": refund,
             "http": {"method": "POST", "url": url("/refunds"), "effect": "once", "timeout": 1_500,
                      "body": {"order": "{order_id}", "cents": "{cents}"}}},
        ],
    })
}

/// A fleet whose configuration lets agents call the shop, and webhooks go to the desk.
fn fleet(shop: &Shop, hook: &HookServer) -> Option<Fleet> {
    let fleet = nats::shared().and_then(Fleet::on_shared_redis)?;
    run(fleet.path(), &["secret", "keygen", "keys.txt"]).ok();
    let file = fleet.path().join("fleet.toml");
    let hosts = format!("127.0.0.1:{}, 127.0.0.1:{}", shop.port, hook.port);
    let more = format!(
        "[worker]\nlease = \"2s\"\nsweep = \"1s\"\n[secrets]\nkey_file = \"keys.txt\"\n[http_client]\nallow_hosts = \"{hosts}\"\nallow_private = true\n"
    );
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(file, config + &more).unwrap();
    let write = |name: &str, text: &str| std::fs::write(fleet.path().join(name), text).unwrap();
    write("all.rules", RULES);
    write("triage.json", &triage(shop).to_string());
    write("digest.json", &json!({"model": {"provider": "scripted", "name": "all.rules"}}).to_string());
    write("secret.txt", SECRET);
    Some(fleet)
}

/// Commands of an operator.
struct Desk<'a> {
    dir: &'a Path,
    url: &'a str,
}

impl Desk<'_> {
    fn run(&self, args: &[&str]) -> String {
        run(self.dir, &[args, &["--url", self.url]].concat()).ok()
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[args, &["--output", "json"]].concat())).unwrap()
    }

    /// The job of the digest and those of the tickets, that are known so far.
    fn jobs(&self) -> Vec<Value> {
        self.json(&["job", "list", "--limit", "100"])["items"].as_array().unwrap().clone()
    }
}

/// The minute after the next ten seconds, as a cron expression of one time of this night.
fn next_minute() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let at = (now + 10).div_ceil(60) % 1_440;
    format!("{} {} * * *", at % 60, at / 60)
}

fn start_worker(fleet: &Fleet) -> Process {
    let mut worker = fleet.start("worker");
    worker.says("worker `");
    worker
}

/// Kills workers one after the other, each time replaced by a new one. Meanwhile no job waits without a reason.
async fn kill_workers(fleet: &Fleet, desk: &Desk<'_>, workers: &mut [Process]) {
    for kill in 0..KILLS {
        tokio::time::sleep(Duration::from_millis(350)).await;
        for job in desk.jobs() {
            let is_waiting = matches!(job["status"].as_str(), Some("PENDING" | "INPUT_REQUIRED"));
            // The list and the record are two reads; a job that has gone on meanwhile waits for nothing.
            let record = if is_waiting { desk.json(&["job", "get", job["id"].as_str().unwrap()]) } else { json!(null) };
            let still_waits = matches!(record["status"].as_str(), Some("PENDING" | "INPUT_REQUIRED"));
            assert!(!still_waits || record["waiting"]["kind"].is_string(), "waits without a reason: {record}");
        }
        let worker = &mut workers[kill % WORKERS];
        worker.signal("KILL");
        worker.ended();
        *worker = start_worker(fleet);
    }
}

/// Submits the tickets from Python; returns the job of each order.
async fn submit_tickets(python: &Path, fleet: &Fleet) -> BTreeMap<String, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/triage_tickets.py");
    let mut command = tokio::process::Command::new(python);
    command.arg(script).args([&fleet.nats, &fleet.prefix]).args(ORDERS);
    let output = command.stderr(Stdio::piped()).output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().filter_map(|line| line.split_once(' ')).map(|(order, job)| (order.into(), job.into())).collect()
}

/// Each refund at most once, and each of unknown outcome is listed.
fn check_refunds(shop: &Shop, desk: &Desk<'_>, jobs: &BTreeMap<String, String>) {
    let listed = desk.json(&["job", "list", "--outcome", "unknown"]);
    let unknown: BTreeSet<&str> =
        listed["items"].as_array().unwrap().iter().filter_map(|entry| entry["job"].as_str()).collect();
    for order in ORDERS {
        let job = jobs[order].as_str();
        let told = desk.run(&["job", "wait", job, "--timeout", "120s"]);
        let asked = shop.refunds(order);
        assert!(asked <= 1, "{order} was refunded {asked} times");
        let is_unknown = told.contains("outcome unknown");
        assert_eq!(is_unknown, unknown.contains(job), "{order}: {told}, listed {listed}");
        // Of a call whose answer never comes nobody knows the end.
        assert!(is_unknown || (asked == 1 && told.contains(&format!("re-{order}"))), "{order}: {told}");
        assert!(is_unknown || order.starts_with("ok") || order.starts_with("slow"), "{order}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_help_desk_refunds_nothing_twice_while_workers_are_killed() {
    let (shop, hook) = (Shop::start().await, HookServer::willing().await);
    let (Some(python), Some(fleet)) = (python::with("nats"), fleet(&shop, &hook)) else { return };
    let mut serve = fleet.start("serve");
    let url = serve.says("HTTP API on ").split(' ').next().unwrap().to_owned();
    let desk = Desk { dir: fleet.path(), url: &url };
    desk.run(&["lattice", "write", "w/knowledge/refunds", "\"Refund what is late. Never twice.\""]);
    desk.run(&["lattice", "write", "w/knowledge/tone", "\"Be short.\""]);
    desk.run(&["agent", "apply", "triage.json", "digest.json", "--strict"]);
    desk.run(&["secret", "set", "HOOK", "@secret.txt"]);
    desk.run(&["webhook", "set", "desk", &hook.url(), "--secret", "s/HOOK"]);
    desk.run(&["timer", "set", "digest", "Write the digest", "--cron", &next_minute(), "--name", "nightly"]);
    let person = Person::listen(&fleet.nats, &fleet.prefix).await;
    let mut workers: Vec<Process> = (0..WORKERS).map(|_| start_worker(&fleet)).collect();
    let (jobs, ()) = tokio::join!(submit_tickets(&python, &fleet), kill_workers(&fleet, &desk, &mut workers));
    let ended: BTreeSet<&str> = jobs.values().map(String::as_str).collect();
    assert_eq!(ended.len(), ORDERS.len(), "{jobs:?}");
    for job in &ended {
        desk.run(&["job", "wait", job, "--timeout", "120s"]);
    }
    check_refunds(&shop, &desk, &jobs);
    // The person heard of each refund, by both ways and under the same ids.
    let asked = person.asked();
    let about: BTreeSet<&str> = asked.values().filter_map(|data| data["job"].as_str()).collect();
    assert_eq!(about, ended, "{asked:?}");
    let posted: BTreeSet<String> =
        hook.wait("approval-asked", asked.len()).await.iter().map(|post| post.headers["webhook-id"].clone()).collect();
    assert_eq!(posted, asked.into_keys().collect::<BTreeSet<_>>());
    for order in ["ok-1", "hang-1"] {
        let shown = desk.run(&["turn", "show", &format!("triage/ticket-{order}/1")]);
        assert!(shown.contains("context/w/knowledge"), "{shown}");
    }
    // The night has come once.
    for _ in 0..900 {
        if desk.jobs().iter().any(|job| job["agent"] == "digest" && job["status"] == "COMPLETE") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let nights: Vec<_> = desk.jobs().into_iter().filter(|job| job["agent"] == "digest").collect();
    assert_eq!(nights.len(), 1, "{nights:?}");
    assert_eq!(nights[0]["status"], "COMPLETE", "{nights:?}");
    fleet.run(&["audit"]).ok();
}
