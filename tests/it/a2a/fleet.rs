//! Two processes over one store, each request at the other one, and a process that dies in a long call.

use super::client::{A2aClient, BINDINGS, Binding};
use super::{answer, at_once, becomes, text};
use crate::support::cli::{Up, run};
use crate::support::fleet::Fleet;
use crate::support::nats;
use serde_json::json;

const RULES: &str = r#"
[[rule]]
when = { agent = "asker", turn = 1 }
then = { calls = [{ tool = "human_ask", arguments = { title = "Size?", asks = [{ id = "size", type = "text", prompt = "Size?" }] } }] }

[[rule]]
when = { agent = "slow" }
then = { text = "late", delay_ms = 4000 }

[[rule]]
then = { text = "got {{tool_result}}" }
"#;

fn definition(agent: &str) -> String {
    let tools = if agent == "asker" { "tools = [\"v/ops/human/ask\"]\n" } else { "" };
    format!("model = {{ provider = \"scripted\", name = \"all.rules\" }}\n{tools}a2a = {{}}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn any_process_answers_for_a_task_of_another() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    std::fs::write(fleet.path().join("all.rules"), RULES).unwrap();
    std::fs::write(fleet.path().join("asker.toml"), definition("asker")).unwrap();
    let (_worker, _first, url) = fleet.start_all();
    run(fleet.path(), &["agent", "apply", "asker.toml", "--url", &url]).ok();
    let mut second = fleet.start("serve");
    let other = second.says("HTTP API on ").split(' ').next().unwrap().to_owned();
    for binding in BINDINGS {
        let clients = [&url, &other].map(|url| A2aClient::new(url, "local/me/asker", binding));
        let mut turn = clients.iter().cycle();
        let mut next = || turn.next().unwrap();
        let task = next().ok("SendMessage", text("m1", "a coffee")).await["task"]["id"].clone();
        let mut subscribed = next().open("SubscribeToTask", json!({"id": task})).await.unwrap();
        let asked = subscribed.next().await.unwrap();
        assert_eq!(asked.value["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{asked:?}");
        next().ok("GetTask", json!({"id": task})).await;
        let done = next().ok("SendMessage", answer("m2", &task, "L")).await["task"].clone();
        assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
        let mut last = None;
        while let Some(event) = subscribed.next().await {
            last = Some(event);
        }
        assert_eq!(last.unwrap().state(), "COMPLETED");
        assert_eq!(next().ok("GetTask", json!({"id": task})).await, done);
        let refused = next().refused("CancelTask", json!({"id": task})).await;
        assert_eq!(refused.reason, "TASK_NOT_CANCELABLE");
        assert_eq!(next().ok("GetTask", json!({"id": task})).await, done);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_survives_the_death_of_its_process() {
    let mut up = Up::start_with(&["worker.lease=3s"]);
    up.file("all.rules", RULES);
    up.file("slow.toml", &definition("slow"));
    up.run(&["agent", "apply", "slow.toml"]).ok();
    let client = A2aClient::new(&up.url, "local/me/slow", Binding::Rest);
    let sent = client.ok("SendMessage", at_once(text("m1", "hi"))).await["task"].clone();
    let task = becomes(&client, &sent["id"], "TASK_STATE_WORKING").await;
    let mut before = client.open("SubscribeToTask", json!({"id": task["id"]})).await.unwrap();
    assert_eq!(before.next().await.unwrap().kind(), "task");
    up.process.signal("KILL");
    up.process.ended();
    assert_eq!(before.next().await, None, "its stream ends with the process");
    up.start_again();
    let client = A2aClient::new(&up.url, "local/me/slow", Binding::Rest);
    let events = client.stream("SubscribeToTask", json!({"id": task["id"]})).await;
    let names: Vec<String> = events.iter().map(super::client::Event::name).collect();
    assert_eq!((names.first().unwrap().as_str(), names.last().unwrap().as_str()), ("task", "COMPLETED"), "{events:?}");
    let done = client.ok("GetTask", json!({"id": task["id"]})).await;
    assert_eq!(done["artifacts"][0]["parts"][0]["text"], "late", "{done}");
    assert_eq!(done["history"], task["history"], "what was sent is there, once");
    let again = client.ok("ListTasks", json!({})).await;
    assert_eq!(again["totalSize"], 1, "{again}");
}
