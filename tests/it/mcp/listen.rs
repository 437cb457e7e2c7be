//! Subscriptions: a stream that tells of jobs, tasks and tools, whoever changes them.

use super::{Site, TASKS, stateless_request};
use serde_json::{Value, json};
use std::time::Duration;

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Reads messages of a stream until one of them is `wanted`; acts after the first.
async fn listen(site: &Site, notifications: &Value, wanted: &str, act: impl AsyncFn()) -> Vec<Value> {
    let capabilities = json!({"extensions": {TASKS: {}}});
    let (headers, body) =
        stateless_request("subscriptions/listen", json!({"notifications": notifications}), &capabilities);
    let mut request = site.server.client.post(format!("{}/mcp", site.server.url)).body(body.to_string());
    for (name, value) in &headers {
        request = request.header(*name, value);
    }
    let mut response = request.send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let (mut text, mut has_acted) = (String::new(), false);
    let read = async {
        loop {
            let piece = response.chunk().await.unwrap().expect("the stream goes on");
            text.push_str(std::str::from_utf8(&piece).unwrap());
            let whole = text.rsplit_once("\n\n").map(|(whole, _)| whole).unwrap_or_default();
            let data = whole.lines().filter_map(|line| line.strip_prefix("data: "));
            let all: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
            if !all.is_empty() && !has_acted {
                has_acted = true;
                act().await;
            }
            if all.iter().any(|message| message["method"] == wanted) {
                return all;
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(1), read).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_message_says_what_will_be_told() {
    let site = Site::new().await;
    let job = site.client().call("submit_task", json!({"agent": "slow", "input": "x"})).await;
    let job = job["structuredContent"]["job"].as_str().unwrap().to_owned();
    let (uri, unknown) = (format!("trellis://jobs/{job}"), format!("trellis://jobs/{}", "0".repeat(32)));
    let wanted = json!({
        "toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": [uri, unknown, "file:///x"],
        "taskIds": [job, "0".repeat(32)]
    });
    let all = listen(&site, &wanted, "notifications/tasks", async || {}).await;
    let agreed = json!({"toolsListChanged": true, "resourceSubscriptions": [uri], "taskIds": [job]});
    assert_eq!(all[0]["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(all[0]["params"]["notifications"], agreed);
    assert!(all.iter().all(|message| message["params"]["_meta"][SUBSCRIPTION] == 1), "{all:?}");
    let told = all.iter().find(|message| message["method"] == "notifications/tasks").unwrap();
    assert_eq!(told["params"]["taskId"], json!(job));
    let updated = all.iter().find(|message| message["method"] == "notifications/resources/updated").unwrap();
    assert_eq!(updated["params"]["uri"], json!(uri));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newly_published_agent_changes_the_list_of_tools() {
    let site = Site::new().await;
    let publish = async || site.venue.agent("new", json!({"published": true})).await;
    let all = listen(&site, &json!({"toolsListChanged": true}), "notifications/tools/list_changed", publish).await;
    assert_eq!(all.len(), 2, "{all:?}");
    let listed = site.client().result("tools/list", json!({})).await;
    assert!(listed.to_string().contains("ask_new"), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_ends_with_the_venue() {
    let mut site = Site::new().await;
    let (headers, body) = stateless_request("subscriptions/listen", json!({"notifications": {}}), &json!({}));
    let mut request = site.server.client.post(format!("{}/mcp", site.server.url)).body(body.to_string());
    for (name, value) in &headers {
        request = request.header(*name, value);
    }
    let response = request.send().await.unwrap();
    let reads = tokio::spawn(response.text());
    tokio::time::sleep(Duration::from_millis(200)).await;
    site.server.shut_down().await;
    let text = reads.await.unwrap().unwrap();
    let last = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!((&last["id"], &last["result"]["resultType"]), (&json!(1), &json!("complete")), "{text}");
}
