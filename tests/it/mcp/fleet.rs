//! Two processes behind one address: each request may meet another one, and one of them may be killed.

use super::{STATELESS, TASKS, messages, stateless_request};
use crate::support::cli::{Process, run};
use crate::support::fleet::Fleet;
use crate::support::http::Answer;
use crate::support::nats;
use reqwest::Client;
use serde_json::{Value, json};
use std::time::Duration;

/// Processes of a fleet that take turns.
struct RoundRobin {
    client: Client,
    urls: Vec<String>,
    next: usize,
}

impl RoundRobin {
    async fn ask(&mut self, method: &str, params: Value) -> Value {
        let (headers, body) = stateless_request(method, params, &json!({"extensions": {TASKS: {}}, "elicitation": {}}));
        let url = self.urls[self.next % self.urls.len()].clone();
        self.next += 1;
        let mut request = self.client.post(format!("{url}/mcp")).body(body.to_string());
        for (name, value) in &headers {
            request = request.header(*name, value);
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        let mut message = messages(&Answer { status, headers, body }).pop().unwrap();
        assert!(message.get("error").is_none(), "{method} at {url}: {message}");
        message["result"].take()
    }

    async fn ended(&mut self, task: &Value) -> Value {
        for _ in 0..1200 {
            let found = self.ask("tasks/get", json!({"taskId": task})).await;
            if found["status"] == "completed" {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the task never ends")
    }
}

/// A worker and two processes with the API; `slow` takes three seconds.
fn start(fleet: &Fleet) -> (Process, Vec<Process>, RoundRobin) {
    // So that what a killed worker held is soon taken over.
    let file = fleet.path().join("fleet.toml");
    let settings = std::fs::read_to_string(&file).unwrap() + "[worker]\nlease = \"5s\"\nsweep = \"1s\"\n";
    std::fs::write(&file, settings).unwrap();
    let (worker, first, url) = fleet.start_all();
    let mut second = fleet.start("serve");
    let other = second.says("HTTP API on ").split(' ').next().unwrap().to_owned();
    fleet.slow_agent("slow", 3000);
    for agent in ["slow", "echo"] {
        let file = fleet.path().join(format!("{agent}.toml"));
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("published = true\n{text}\n")).unwrap();
        run(fleet.path(), &["agent", "apply", &format!("{agent}.toml"), "--url", &url]).ok();
    }
    (worker, vec![first, second], RoundRobin { client: Client::new(), urls: vec![url, other], next: 0 })
}

#[tokio::test(flavor = "multi_thread")]
async fn any_process_answers_for_a_task_of_any_other() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let (_worker, _serves, mut round) = tokio::task::block_in_place(|| start(&fleet));
    for _ in 0..2 {
        let discovered = round.ask("server/discover", json!({})).await;
        assert_eq!(discovered["supportedVersions"][0], STATELESS);
        let listed = round.ask("tools/list", json!({})).await;
        assert!(listed.to_string().contains("ask_slow"), "{listed}");
    }
    let created = round.ask("tools/call", json!({"name": "ask_slow", "arguments": {"input": "x"}})).await;
    assert_eq!(created["resultType"], "task", "{created}");
    let task = created["taskId"].clone();
    // The very next request meets the other process.
    assert_eq!(round.ask("tasks/get", json!({"taskId": task})).await["status"], "working");
    let done = round.ended(&task).await;
    assert_eq!(done["result"]["structuredContent"]["output"], "done");
    let cancelled = round.ask("tools/call", json!({"name": "ask_slow", "arguments": {"input": "y"}})).await;
    let task = cancelled["taskId"].clone();
    round.ask("tasks/cancel", json!({"taskId": task})).await;
    assert_eq!(round.ask("tasks/get", json!({"taskId": task})).await["status"], "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_outlives_the_process_that_created_it() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let (mut worker, mut serves, mut round) = tokio::task::block_in_place(|| start(&fleet));
    let created = round.ask("tools/call", json!({"name": "ask_slow", "arguments": {"input": "x"}})).await;
    let task = created["taskId"].clone();
    // Both are killed in the middle: the process that answered, and the worker whose turn runs.
    serves.remove(0).signal("KILL");
    worker.signal("KILL");
    round.urls.remove(0);
    let mut successor = fleet.start("worker");
    tokio::task::block_in_place(|| successor.says("worker `"));
    assert!(round.ask("tasks/get", json!({"taskId": task})).await["status"] != "failed");
    let done = round.ended(&task).await;
    assert_eq!(done["result"]["structuredContent"]["output"], "done");
    tokio::task::block_in_place(|| worker.ended());
}
