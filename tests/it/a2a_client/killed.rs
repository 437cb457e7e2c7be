//! A process that is killed while an agent elsewhere works, and the one that goes on after it.

use crate::support::a2a_server::{A2aReply, A2aTestServer};
use crate::support::cli::Up;
use serde_json::Value;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const RULES: &str = r#"
[[rule]]
when = { turn = 1 }
then = { calls = [{ tool = "a2a__partner", arguments = { message = "an order" } }] }

[[rule]]
when = { text = "outcome unknown" }
then = { text = "later: outcome unknown" }

[[rule]]
when = { text = "status=COMPLETE" }
then = { text = "later: found it" }

[[rule]]
then = { text = "told: {{tool_result}}" }
"#;

/// A process whose agent `clerk` gives work to the agent elsewhere; returns it with the job.
fn start(server: &A2aTestServer, repeatable: bool) -> (Up, String) {
    let hosts = format!("http_client.allow_hosts=127.0.0.1:{}", server.port);
    let up = Up::start_with(&[&hosts, "http_client.allow_private=true", "worker.lease=3s"]);
    up.file("clerk.rules", RULES);
    let url = server.url();
    let agent = format!(
        "model = {{ provider = \"scripted\", name = \"clerk.rules\" }}\ndefaultTools = false\ntools = [\"v/ops/a2a/partner/send\"]\na2aAgents = [{{ name = \"partner\", url = \"{url}\", timeout = 60, repeatable = {repeatable} }}]\n"
    );
    up.file("clerk.toml", &agent);
    up.run(&["agent", "apply", "clerk.toml"]).ok();
    let submitted = up.run(&["submit", "clerk", "go"]).ok();
    let job = submitted.lines().last().unwrap().trim().to_owned();
    (up, job)
}

async fn until_asked(server: &A2aTestServer, operation: &str) {
    while server.asked(operation).is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Kills the process, starts another, and returns the end of the job.
fn kill_and_wait(up: &mut Up, job: &str) -> Value {
    up.process.signal("KILL");
    up.process.ended();
    up.start_again();
    let ended = up.run(&["job", "wait", job, "--output", "json"]).ok();
    serde_json::from_str(&ended).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_while_a_task_runs_costs_nothing() {
    let server = A2aTestServer::start("JSONRPC", 8, |_| None).await;
    let (mut up, job) = start(&server, false);
    until_asked(&server, "GetTask").await;
    let ended = kill_and_wait(&mut up, &job);
    assert!(ended.to_string().contains("found it"), "{ended}");
    assert_eq!(server.asked("SendMessage").len(), 1, "it was sent once");
    let shown = up.run(&["a2a", "agent", "partner", "--agent", "clerk"]).ok();
    assert!(shown.contains("Finds orders.") && shown.contains("orders"), "{shown}");
    assert!(up.run(&["a2a", "agents", "--agent", "clerk"]).ok().contains("partner"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_while_a_message_is_sent_repeats_only_what_is_harmless() {
    for (repeatable, sent, part) in [(false, 1, "outcome unknown"), (true, 2, "found it")] {
        let calls = AtomicUsize::new(0);
        let server = A2aTestServer::start("JSONRPC", 0, move |asked| {
            let is_first = asked.operation() == "SendMessage" && calls.fetch_add(1, Ordering::SeqCst) == 0;
            is_first.then_some(A2aReply::Hang)
        })
        .await;
        let (mut up, job) = start(&server, repeatable);
        until_asked(&server, "SendMessage").await;
        let ended = kill_and_wait(&mut up, &job);
        assert!(ended.to_string().contains(part), "{repeatable}: {ended}");
        let asked = server.asked("SendMessage");
        assert_eq!(asked.len(), sent, "{repeatable}");
        assert!(asked.iter().all(|one| one.message()["messageId"] == asked[0].message()["messageId"]));
    }
}
