//! Processes: a Trellis fleet, and the worker of the examples.

use crate::support::cli::{Process, run};
use crate::support::fleet::Fleet;
use crate::support::{nats, python};
use async_nats::jetstream;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const WORKER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/examples/external_worker.py");

const RULES: &str = r#"
[[rule]]
when = { agent = "clerk", turn = 1 }
then = { calls = [{ tool = "queue_publish", arguments = { queue = "words", input = { text = "{{input.text}}" }, wait = "{{input.wait}}" } }] }

[[rule]]
when = { text = "words: 3" }
then = { text = "three words" }

[[rule]]
when = { tool_result = "words" }
then = { text = "three words, at once" }

[[rule]]
then = { text = "something else" }
"#;

/// A fleet with the agent `clerk`.
struct Office {
    fleet: Fleet,
    url: String,
    worker: Process,
    _serve: Process,
}

impl Office {
    fn open() -> Option<Self> {
        let fleet = nats::shared().and_then(Fleet::on_shared_redis)?;
        let config = fleet.path().join("fleet.toml");
        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, format!("{text}[worker]\nlease = \"3s\"\n")).unwrap();
        std::fs::write(fleet.path().join("clerk.rules"), RULES).unwrap();
        let agent = "model = { provider = \"scripted\", name = \"clerk.rules\" }\ntools = [\"v/ops/queue/publish\"]\ndefaultTools = false\n";
        std::fs::write(fleet.path().join("clerk.toml"), agent).unwrap();
        let (worker, serve, url) = fleet.start_all();
        run(fleet.path(), &["agent", "apply", "clerk.toml", "--url", &url]).ok();
        Some(Self { fleet, url, worker, _serve: serve })
    }

    fn http(&self, args: &[&str]) -> String {
        run(self.fleet.path(), &[args, &["--url", &self.url]].concat()).ok()
    }

    fn submit(&self, input: &str) -> String {
        self.http(&["submit", "clerk", input]).lines().next().unwrap().to_owned()
    }

    /// What a job says at its end.
    fn ended(&self, job: &str) -> String {
        self.http(&["job", "wait", job, "--timeout", "3m"])
    }

    /// Jobs of external workers.
    fn outbound(&self) -> Vec<Value> {
        let all = self.http(&["job", "list", "--output", "ndjson"]);
        let all = all.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|job| job["op"] == "v/ops/queue/publish").collect()
    }

    /// Waits until the stream has got so many messages for external workers, and gives the number.
    async fn published(&self, least: u64) -> u64 {
        let context = jetstream::new(async_nats::connect(&self.fleet.nats).await.unwrap());
        let stream = context.get_stream(format!("{}_JOBS", self.fleet.prefix.to_uppercase())).await.unwrap();
        for _ in 0..1_200 {
            let stored = stream.get_info().await.unwrap().state.last_sequence;
            if stored >= least {
                return stored;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{least} jobs are not published within a minute: {}", self.worker.log());
    }
}

/// The example, at work; killed when dropped.
struct External(Child);

impl External {
    fn start(office: &Office) -> Option<Self> {
        let python = python::with("nats")?;
        let mut command = Command::new(python);
        command.args([WORKER, &office.fleet.nats, "words", &office.fleet.prefix]).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("waiting for jobs"), "{line}");
        Some(Self(child))
    }
}

impl Drop for External {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_of_the_examples_does_what_agents_publish() {
    let Some(office) = Office::open() else { return };
    let Some(_external) = External::start(&office) else { return };
    let job = office.submit(r#"{"text": "one two three", "wait": 0}"#);
    let done = office.ended(&job);
    assert!(done.starts_with("three words"), "{done}");
    let [outbound] = &office.outbound()[..] else { panic!("one job: {:?}", office.outbound()) };
    assert_eq!((&outbound["status"], &outbound["output"]["words"]), (&"COMPLETE".into(), &3.into()));
    // It says why it can't.
    let job = office.submit(r#"{"text": {"not": "a text"}, "wait": 0}"#);
    office.ended(&job);
    let failed = office.outbound().into_iter().find(|job| job["status"] == "FAILED").expect("the second failed");
    assert!(failed["error"].as_str().unwrap().contains("AttributeError"), "{failed}");
    let report = office.fleet.run(&["doctor"]).expect(0, "").out;
    assert!(report.contains("jobs for external workers"), "{report}");
    let audit = office.fleet.run(&["audit"]).expect(0, "").out;
    assert!(audit.contains("unaccounted"), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_publish_and_result_repeats_and_loses_nothing() {
    let Some(mut office) = Office::open() else { return };
    // The turn waits for its result, so that it is never committed before the kill.
    let job = office.submit(r#"{"text": "one two three", "wait": 200000}"#);
    assert_eq!(office.published(1).await, 1);
    office.worker.signal("KILL");
    office.worker.ended();
    let mut next = office.fleet.start("worker");
    next.says("worker `");
    office.worker = next;
    let Some(_external) = External::start(&office) else { return };
    let done = office.ended(&job);
    assert!(done.starts_with("three words"), "{done}");
    let outbound = office.outbound();
    assert_eq!(outbound.len(), 1, "{outbound:?}");
    assert_eq!(outbound[0]["output"]["words"], 3);
    // A later one shows that nothing came in between.
    let job = office.submit(r#"{"text": "one two three", "wait": 200000}"#);
    office.ended(&job);
    assert_eq!(office.published(2).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_sent_while_no_worker_runs_is_taken_later() {
    let Some(mut office) = Office::open() else { return };
    let job = office.submit(r#"{"text": "one two three", "wait": 0}"#);
    office.published(1).await;
    office.worker.signal("KILL");
    office.worker.ended();
    let Some(external) = External::start(&office) else { return };
    let context = jetstream::new(async_nats::connect(&office.fleet.nats).await.unwrap());
    let stream = context.get_stream(format!("{}_JOBS", office.fleet.prefix.to_uppercase())).await.unwrap();
    let mut left = stream.get_info().await.unwrap().state.messages;
    for _ in 0..1_200 {
        if left == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        left = stream.get_info().await.unwrap().state.messages;
    }
    assert_eq!(left, 0, "it is done, and acknowledged");
    drop(external);
    let mut next = office.fleet.start("worker");
    next.says("worker `");
    office.worker = next;
    let done = office.ended(&job);
    assert!(done.starts_with("three words"), "{done}");
}
