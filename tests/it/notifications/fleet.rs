//! A fleet: events on NATS with the subject and the body that answer them, a webhook of the venue, and a worker that is
//! killed.

use super::{HookServer, RULES, SECRET, definition};
use crate::support::cli::{Process, command, run};
use crate::support::fleet::Fleet;
use crate::support::nats;
use futures::StreamExt;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_mins(1);

/// A fleet with the agent `payer`, and a webhook `ops` in its configuration.
fn fleet(hook: &HookServer) -> Option<Fleet> {
    let fleet = nats::shared().and_then(Fleet::on_shared_redis)?;
    std::fs::write(fleet.path().join("all.rules"), RULES).unwrap();
    std::fs::write(fleet.path().join("payer.toml"), definition("payer")).unwrap();
    let file = fleet.path().join("fleet.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    let more = format!(
        "[worker]\nlease = \"2s\"\n[notifications.webhooks.ops]\nurl = \"{}\"\nsecret_env = \"OPS_HOOK\"\nallow_private = true\n",
        hook.url()
    );
    std::fs::write(file, config + &more).unwrap();
    Some(fleet)
}

fn start(fleet: &Fleet, role: &str) -> Process {
    let mut command = command(fleet.path());
    command.args([role, "--config", "fleet.toml"]).env("OPS_HOOK", SECRET);
    Process::of(command)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_answered_over_nats_as_its_event_says() {
    let hook = HookServer::willing().await;
    let Some(fleet) = fleet(&hook) else { return };
    let (mut worker, mut serve) = (start(&fleet, "worker"), start(&fleet, "serve"));
    worker.says("worker `");
    let url = serve.says("HTTP API on ").split(' ').next().unwrap().to_owned();
    run(fleet.path(), &["agent", "apply", "payer.toml", "--url", &url]).ok();
    let client = async_nats::connect(&fleet.nats).await.unwrap();
    let mut events = client.subscribe(format!("{}.events.local.me.>", fleet.prefix)).await.unwrap();
    client.flush().await.unwrap();
    let job = run(fleet.path(), &["submit", "payer", "pay 40", "--url", &url]).ok();
    let message = timeout(LIMIT, events.next()).await.unwrap().unwrap();
    assert_eq!(message.subject.as_str(), format!("{}.events.local.me.payer.approval-asked", fleet.prefix));
    let event: Value = serde_json::from_slice(&message.payload).unwrap();
    assert_eq!(event["data"]["approval"]["call"]["arguments"]["value"], json!(40), "{event}");
    let nats = &event["data"]["answer"]["nats"];
    let subject = nats["subject"].as_str().unwrap().to_owned();
    assert_eq!(subject, format!("{}.in.local.me.payer.decide", fleet.prefix));
    client.publish(subject, nats["bodies"][0].to_string().into()).await.unwrap();
    client.flush().await.unwrap();
    run(fleet.path(), &["job", "wait", &job, "--timeout", "60s", "--url", &url]).ok();
    let message = timeout(LIMIT, events.next()).await.unwrap().unwrap();
    assert!(message.subject.as_str().ends_with(".payer.approval-decided"), "{}", message.subject);
    // The venue's webhook hears of it without the arguments, and its address is not shown to owners.
    let asked = hook.wait("approval-asked", 1).await.remove(0);
    asked.verify();
    let data = asked.json()["data"].clone();
    assert_eq!((&data["owner"], &data["approval"]["call"]), (&json!("local/me"), &Value::Null), "{data}");
    assert_eq!(data["answer"], Value::Null, "who doesn't see the question is not told how to answer it");
    let listed = run(fleet.path(), &["webhook", "list", "--output", "json", "--url", &url]).ok();
    assert!(listed.contains("\"ops\"") && !listed.contains("127.0.0.1"), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_loses_no_notification() {
    let hook = HookServer::willing().await;
    let Some(fleet) = fleet(&hook) else { return };
    let mut serve = start(&fleet, "serve");
    let url = serve.says("HTTP API on ").split(' ').next().unwrap().to_owned();
    run(fleet.path(), &["agent", "apply", "payer.toml", "--url", &url]).ok();
    let client = async_nats::connect(&fleet.nats).await.unwrap();
    let mut events = client.subscribe(format!("{}.events.>", fleet.prefix)).await.unwrap();
    client.flush().await.unwrap();
    let mut asked = std::collections::BTreeSet::new();
    let mut last = String::new();
    for nth in 0..3 {
        let mut worker = start(&fleet, "worker");
        worker.says("worker `");
        let session = format!("s{nth}");
        last = run(fleet.path(), &["submit", "payer", "pay 40", "--session", &session, "--url", &url]).ok();
        tokio::time::sleep(Duration::from_millis(100 * nth)).await;
        worker.signal("KILL");
        worker.ended();
    }
    let mut worker = start(&fleet, "worker");
    worker.says("worker `");
    while asked.len() < 3 {
        let message = timeout(LIMIT, events.next()).await.unwrap_or_else(|_| panic!("{asked:?}, last {last}")).unwrap();
        let event: Value = serde_json::from_slice(&message.payload).unwrap();
        asked.insert(event["id"].as_str().unwrap().to_owned());
    }
    let posted: std::collections::BTreeSet<_> =
        hook.wait("approval-asked", 3).await.iter().map(|post| post.headers["webhook-id"].clone()).collect();
    assert_eq!(posted, asked, "the ids of events are those of the posts");
}
