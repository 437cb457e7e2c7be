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
when = { agent = "later", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "long", input = "{{input}}", wait = 0 } }] }

[[rule]]
then = { text = "heard" }
"#;

/// Sends its input on, by a task and by a message.
const RELAY: &str = r#"
[[rule]]
when = { agent = "relay", turn = 1 }
then = { calls = [{ tool = "agent_message", arguments = { agentId = "echo", message = "{{input}}" } }, { tool = "agent_request", arguments = { agentId = "echo", input = "{{input}}", wait = 0 } }] }

[[rule]]
then = { text = "told" }
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
    for name in ["long", "boss", "later"] {
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
    // Who asks again is answered again.
    let again = fleet.publish(&["submit", "long", "@input.txt", "--id", "t", "--wait=90s"]);
    assert!(again.err.contains("more than NATS takes; `trellis job get "), "{}: {}", again.code, again.err);
    // The session that waits for such a job gets the whole of it, in its call and later.
    for name in ["boss", "later"] {
        assert_eq!(http(&["submit", name, "@input.txt", "--wait=90s"]).ok(), "heard");
    }
    let child = http(&["job", "list", "--agent", "boss", "--output", "json"]).ok();
    assert!(child.contains("COMPLETE"), "{child}");
    // Nothing is left that is tried again and again.
    std::thread::sleep(Duration::from_secs(7));
    assert!(!worker.log().contains("max_payload"), "{}", worker.log());
}

#[test]
fn an_undeliverable_message_fails_its_job_or_is_kept() {
    let Some((fleet, _nats)) = narrow() else { return };
    std::fs::write(fleet.path().join("relay.rules"), RELAY).unwrap();
    std::fs::write(fleet.path().join("input.txt"), "x".repeat(INPUT_BYTES)).unwrap();
    let (worker, _serve, url) = fleet.start_all();
    let http = |args: &[&str]| run(fleet.path(), &[args, &["--url", &url]].concat());
    let tools = "[\"v/ops/agent/request\", \"v/ops/agent/message\"]";
    for (name, model) in [("relay", "relay.rules"), ("echo", "echo")] {
        let agent =
            format!("model = {{ provider = \"scripted\", name = \"{model}\", maxTokens = 60000 }}\ntools = {tools}\n");
        std::fs::write(fleet.path().join(format!("{name}.toml")), agent).unwrap();
        http(&["agent", "apply", &format!("{name}.toml")]).ok();
    }
    assert_eq!(http(&["submit", "relay", "@input.txt", "--wait=90s"]).ok(), "told");
    let jobs = http(&["job", "list", "--agent", "echo", "--output", "json"]).ok();
    assert!(jobs.contains("QUEUE_UNAVAILABLE") && jobs.contains("max_payload"), "{jobs}");
    let kept = http(&["dead", "list", "--output", "json"]).ok();
    assert!(kept.contains("in.local.me.echo.message") && kept.contains("max_payload"), "{kept}");
    let told = http(&["dead", "list"]);
    assert!(told.err.contains("a message to agent `echo` was never sent: "), "{}", told.err);
    // Nothing is left that is tried again and again.
    let tries = || worker.log().matches("not published yet").count();
    std::thread::sleep(Duration::from_secs(7));
    assert_eq!(tries(), 0, "{}", worker.log());
}

/// A fleet of which the queue takes 16 KiB in a message.
fn narrow() -> Option<(Fleet, NatsServer)> {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("nats.conf");
    std::fs::write(&config, "max_payload: 16384\njetstream {}\n").unwrap();
    let server = NatsServer::start_as(&config.display().to_string(), &[])?;
    Some((Fleet::on_shared_redis(server.url())?, server))
}

#[test]
fn doctor_says_when_a_task_may_not_fit_into_a_message() {
    let Some((fleet, _nats)) = narrow() else { return };
    let report = fleet.run(&["doctor"]);
    assert!(report.out.contains("set `max_payload: 1MB`"), "{}{}", report.out, report.err);
}
