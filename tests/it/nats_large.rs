//! Outputs that are larger than a message of NATS may be.

use crate::support::cli::run;
use crate::support::fleet::Fleet;
use crate::support::nats::{self, NatsServer};
use std::time::Duration;

/// What `long` answers has 1.6 MB, and NATS takes 1 MB.
const RULES: &str = r#"
[[rule]]
when = { agent = "long" }
then = { text = "TEXT" }

[[rule]]
when = { agent = "boss", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "long", input = "{{input}}" } }] }

[[rule]]
then = { text = "heard" }
"#;
const INPUT_BYTES: usize = 20_000;
const TIMES: usize = 80;

#[test]
fn an_output_above_max_payload_is_announced_and_read_elsewhere() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let rules = RULES.replace("TEXT", &"{{input}}".repeat(TIMES));
    std::fs::write(fleet.path().join("large.rules"), rules).unwrap();
    std::fs::write(fleet.path().join("input.txt"), "x".repeat(INPUT_BYTES)).unwrap();
    let (worker, _serve, url) = fleet.start_all();
    let http = |args: &[&str]| run(fleet.path(), &[args, &["--url", &url]].concat());
    for name in ["long", "boss"] {
        let model = "model = { provider = \"scripted\", name = \"large.rules\", maxTokens = 30000 }";
        let agent = format!("{model}\ntools = [\"v/ops/agent/request\"]\n");
        std::fs::write(fleet.path().join(format!("{name}.toml")), agent).unwrap();
        http(&["agent", "apply", &format!("{name}.toml")]).ok();
    }
    let told = fleet.publish(&["submit", "long", "@input.txt", "--id", "t", "--wait=90s"]);
    assert!(told.err.contains("more than NATS takes; `trellis job get "), "{}: {}", told.code, told.err);
    assert_eq!(told.code, 0, "{}", told.err);
    let job = told.err.split("job get ").nth(1).unwrap().split('`').next().unwrap();
    assert_eq!(http(&["job", "wait", job]).ok().len(), TIMES * INPUT_BYTES);
    // The session that waits for such a job gets the whole of it.
    assert_eq!(http(&["submit", "boss", "@input.txt", "--wait=90s"]).ok(), "heard");
    let child = http(&["job", "list", "--agent", "boss", "--output", "json"]).ok();
    assert!(child.contains("COMPLETE"), "{child}");
    // Nothing is left that is tried again and again.
    std::thread::sleep(Duration::from_secs(7));
    assert!(!worker.log().contains("max_payload"), "{}", worker.log());
}

#[test]
fn doctor_says_when_a_task_may_not_fit_into_a_message() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("nats.conf");
    std::fs::write(&config, "max_payload: 65536\njetstream {}\n").unwrap();
    let Some(server) = NatsServer::start_as(&config.display().to_string(), &[]) else { return };
    let Some(fleet) = Fleet::on_shared_redis(server.url()) else { return };
    let report = fleet.run(&["doctor"]);
    assert!(report.out.contains("set `max_payload: 1MB`"), "{}{}", report.out, report.err);
}
