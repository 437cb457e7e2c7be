//! A process that is killed while a server works on a call, and the one that goes on after it.

use super::questions::asking_server;
use super::{questions, until};
use crate::support::cli::Up;
use crate::support::mcp_server::{McpReply, McpTestServer, STATELESS, text_tool};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A process whose agent `buyer` calls a tool of the shop; returns it with the job.
fn start(server: &McpTestServer, tool: &str, settings: &[&str]) -> (Up, String) {
    let hosts = format!("http_client.allow_hosts=127.0.0.1:{}", server.port);
    let up = Up::start_with(&[&[hosts.as_str(), "http_client.allow_private=true"], settings].concat());
    let call = format!("calls = [{{ tool = \"shop__{tool}\", arguments = {{ q = \"tea\" }} }}]");
    let late: String = ["outcome unknown", "found it", "accept", "cancel"]
        .map(|text| format!("[[rule]]\nwhen = {{ text = \"{text}\" }}\nthen = {{ text = \"later: {text}\" }}\n\n"))
        .concat();
    let rules = format!(
        "[[rule]]\nwhen = {{ turn = 1 }}\nthen = {{ {call} }}\n\n{late}[[rule]]\nthen = {{ text = \"told: {{{{tool_result}}}}\" }}\n"
    );
    up.file("buyer.rules", &rules);
    let url = server.url();
    let agent = format!(
        "model = {{ provider = \"scripted\", name = \"buyer.rules\" }}\ndefaultTools = false\ntools = [\"v/ops/mcp/shop/*\"]\nmcp = [{{ name = \"shop\", url = \"{url}\", timeout = 60 }}]\n"
    );
    up.file("buyer.toml", &agent);
    up.run(&["agent", "apply", "buyer.toml"]).ok();
    let submitted = up.run(&["submit", "buyer", "go"]).ok();
    let job = submitted.lines().last().unwrap().trim().to_owned();
    (up, job)
}

/// Kills the process, and starts another.
fn kill(up: &mut Up) {
    up.process.signal("KILL");
    up.process.ended();
    up.start_again();
}

/// The end of a job.
fn wait(up: &Up, job: &str) -> Value {
    serde_json::from_str(&up.run(&["job", "wait", job, "--output", "json"]).ok()).unwrap()
}

/// Waits until the turn that made the call has committed: a kill before leaves the end of its call unknown.
async fn until_it_waits(up: &Up, job: &str) {
    let waiting = || {
        let record: Value = serde_json::from_str(&up.run(&["job", "get", job, "--output", "json"]).ok()).unwrap();
        record["waiting"].is_object()
    };
    until("a wait", waiting).await;
}

/// The open approval, once there is one.
async fn question(up: &Up) -> Value {
    for _ in 0..200 {
        let listed = up.run(&["approvals", "--output", "ndjson"]).ok();
        if let Some(line) = listed.lines().find(|line| line.starts_with('{')) {
            return serde_json::from_str(line).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("expected a question");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_while_a_person_is_asked_loses_neither_question_nor_answer() {
    let server =
        asking_server(json!({"q": questions::form("Size?", &json!({"size": {"type": "string"}}), &["size"])})).await;
    let (mut up, job) = start(&server, "pay", &[]);
    let asked = question(&up).await;
    until_it_waits(&up, &job).await;
    kill(&mut up);
    assert_eq!(question(&up).await["id"], asked["id"], "the question is still there, and is the same");
    let id = asked["id"].as_str().unwrap();
    up.run(&["answer", id, "size=L"]).ok();
    let ended = wait(&up, &job);
    assert!(ended.to_string().contains("accept"), "{ended}");
    let calls = server.asked("tools/call");
    assert_eq!(calls.len(), 2, "it was made once before the question, and once with the answer");
    assert_eq!(calls[1].params()["inputResponses"]["q"]["content"]["size"], "L");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_while_the_answer_is_sent_repeats_only_what_may_be_repeated() {
    for (tool, made, part) in [("pay", 2, "outcome unknown"), ("search", 3, "found it")] {
        let calls = AtomicUsize::new(0);
        let server = McpTestServer::start(STATELESS, questions::tools(), move |asked| {
            let asks = json!({"q": questions::form("Go on?", &json!({}), &[])});
            (asked.method() == "tools/call").then(|| match calls.fetch_add(1, Ordering::SeqCst) {
                0 => McpReply::Result(json!({"resultType": "input_required", "inputRequests": asks})),
                1 => McpReply::Hang,
                _ => McpReply::Result(json!({"content": [{"type": "text", "text": "found it"}]})),
            })
        })
        .await;
        let (mut up, job) = start(&server, tool, &["worker.lease=3s"]);
        let asked = question(&up).await;
        up.run(&["answer", asked["id"].as_str().unwrap(), "confirm=yes"]).ok();
        until("the call with the answer", || server.asked("tools/call").len() == 2).await;
        kill(&mut up);
        let ended = wait(&up, &job);
        assert!(ended.to_string().contains(part), "{tool}: {ended}");
        assert_eq!(server.asked("tools/call").len(), made, "{tool}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_nobody_answers_is_put_away() {
    let server = asking_server(json!({"q": questions::form("Go on?", &json!({}), &[])})).await;
    let (up, job) = start(&server, "pay", &["worker.approval_time=1s"]);
    let ended = wait(&up, &job);
    assert!(ended.to_string().contains("cancel"), "{ended}");
    assert_eq!(server.asked("tools/call")[1].params()["inputResponses"], json!({"q": {"action": "cancel"}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_while_a_task_runs_costs_nothing() {
    let looks = AtomicUsize::new(0);
    let server = McpTestServer::start(STATELESS, questions::tools(), move |asked| {
        let task = |status: &str| json!({"taskId": "t-1", "status": status, "pollIntervalMs": 500});
        let mut answer = match asked.method() {
            "tools/call" => task("working"),
            "tasks/get" if looks.fetch_add(1, Ordering::SeqCst) < 6 => task("working"),
            "tasks/get" => task("completed"),
            _ => return None,
        };
        answer["resultType"] = if asked.method() == "tools/call" { "task" } else { "complete" }.into();
        answer["result"] = json!({"content": [{"type": "text", "text": "found it"}]});
        Some(McpReply::Result(answer))
    })
    .await;
    let (mut up, job) = start(&server, "pay", &["worker.lease=3s"]);
    until_it_waits(&up, &job).await;
    until("a look", || !server.asked("tasks/get").is_empty()).await;
    kill(&mut up);
    let ended = wait(&up, &job);
    assert!(ended.to_string().contains("found it"), "{ended}");
    assert_eq!(server.asked("tools/call").len(), 1, "it was made once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_during_a_call_repeats_only_what_may_be_repeated() {
    for (tool, made, part) in [("pay", 1, "outcome unknown"), ("search", 2, "found it")] {
        let tools = vec![text_tool("search", json!({"readOnlyHint": true})), text_tool("pay", json!({}))];
        let calls = AtomicUsize::new(0);
        let server = McpTestServer::start(STATELESS, tools, move |asked| {
            let is_call = asked.method() == "tools/call";
            let is_first = is_call && calls.fetch_add(1, Ordering::SeqCst) == 0;
            let found = json!({"content": [{"type": "text", "text": "found it"}]});
            is_call.then(|| if is_first { McpReply::Hang } else { McpReply::Result(found) })
        })
        .await;
        let (mut up, job) = start(&server, tool, &[]);
        until("the call", || !server.asked("tools/call").is_empty()).await;
        kill(&mut up);
        let ended = wait(&up, &job);
        assert!(ended.to_string().contains(part), "{tool}: {ended}");
        assert_eq!(server.asked("tools/call").len(), made, "{tool}");
        let shown = up.run(&["mcp", "server", "shop", "--agent", "buyer"]).ok();
        assert!(shown.contains("v/ops/mcp/shop/pay") && shown.contains("read"), "{shown}");
        assert!(up.run(&["mcp", "servers", "--agent", "buyer"]).ok().contains("shop"));
    }
}
