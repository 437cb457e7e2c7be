//! A turn that the store lost is run again under the ids towards the outside that it had.

use crate::notifications::HookServer;
use crate::support::cli::run;
use crate::support::fleet::Fleet;
use crate::support::nats;
use crate::support::redis::RedisServer;
use futures::StreamExt;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_mins(2);

/// What the agent sends: a request, a job for an external worker, and a question to a person, each by a task of its own.
const RULES: &str = r#"
[[rule]]
when = { turn = 1, text = "post" }
then = { calls = [{ tool = "http_post", arguments = { url = "URL", body = {} } }] }

[[rule]]
when = { turn = 1, text = "publish" }
then = { calls = [{ tool = "queue_publish", arguments = { queue = "ocr", input = {}, wait = 0 } }] }

[[rule]]
when = { turn = 1, text = "pay" }
then = { calls = [{ tool = "pay", arguments = { path = "w/paid", value = 40 } }] }

[[rule]]
then = { text = "done" }
"#;

/// Reads messages until `count` different ids came, and none for so long that a second one would have come; returns the
/// ids in their order.
async fn ids(
    mut messages: impl futures::Stream<Item = async_nats::Message> + Unpin,
    id: &str,
    count: usize,
) -> Vec<Value> {
    let mut found = Vec::new();
    while found.len() < count {
        let message = timeout(LIMIT, messages.next()).await.unwrap_or_else(|_| panic!("only {found:?}")).unwrap();
        let body: Value = serde_json::from_slice(&message.payload).unwrap();
        found.push(body[id].clone());
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_is_run_again_sends_under_the_same_ids() {
    let (Some(url), Some(mut server)) = (nats::shared(), RedisServer::start()) else { return };
    let hook = HookServer::willing().await;
    let fleet = Fleet::new(url, &server);
    let file = fleet.path().join("fleet.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    let more = format!("[http_client]\nallow_hosts = \"127.0.0.1:{}\"\nallow_private = true\n", hook.port);
    std::fs::write(file, config + &more).unwrap();
    std::fs::write(fleet.path().join("all.rules"), RULES.replace("URL", &hook.url())).unwrap();
    let tools = json!(["v/ops/http/post", "v/ops/queue/publish",
        {"operation": "v/ops/lattice/append", "name": "pay", "approval": "ask"}]);
    let agent = json!({"model": {"provider": "scripted", "name": "all.rules"}, "tools": tools});
    std::fs::write(fleet.path().join("sender.json"), agent.to_string()).unwrap();
    let (_worker, _serve, url) = fleet.start_all();
    run(fleet.path(), &["agent", "apply", "sender.json", "--url", &url]).ok();
    let client = async_nats::connect(&fleet.nats).await.unwrap();
    let jobs = client.subscribe(format!("{}.jobs.ocr", fleet.prefix)).await.unwrap();
    let events = client.subscribe(format!("{}.events.local.me.sender.approval-asked", fleet.prefix)).await.unwrap();
    client.flush().await.unwrap();
    let before = server.log_file();
    for task in ["post", "publish", "pay"] {
        run(fleet.path(), &["submit", "sender", task, "--session", task, "--url", &url]).ok();
    }
    let key = |post: &crate::notifications::HookPost| post.headers["idempotency-key"].clone();
    while hook.all().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Processes remember what was acknowledged for some seconds, so the loss comes at once.
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.lose_tail(before);
    let (published, asked) = tokio::join!(ids(jobs, "job", 2), ids(events, "id", 2));
    assert_eq!(published[0], published[1], "the external job");
    assert_eq!(asked[0], asked[1], "the notification of the approval");
    while hook.all().len() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let keys: BTreeSet<String> = hook.all().iter().map(key).collect();
    assert_eq!(keys.len(), 1, "the request's key");
}
