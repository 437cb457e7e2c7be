//! Push notifications: set, read without secrets, delivered in order with the client's `Authorization`, tried again,
//! and to no address that the venue may not call.

use super::client::{A2aClient, BINDINGS, Binding};
use super::text;
use crate::support::cli::Up;
use crate::support::provider::{Asked, ProviderServer, answer, refusal};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const AGENT: &str =
    "model = { provider = \"scripted\", name = \"asker.rules\" }\ntools = [\"v/ops/human/ask\"]\na2a = {}\n";
const RULES: &str = r#"
[[rule]]
when = { turn = 1 }
then = { calls = [{ tool = "human_ask", arguments = { title = "Size?", asks = [{ id = "size", type = "text", prompt = "Size?" }] } }] }

[[rule]]
then = { text = "ordered" }
"#;

/// A venue with an agent that asks before it answers; it may call this host.
fn up(host: &str) -> Up {
    let up = Up::start_with(&[&format!("http_client.allow_hosts={host}"), "http_client.allow_private=true"]);
    up.file("asker.rules", RULES);
    up.file("asker.toml", AGENT);
    up.run(&["agent", "apply", "asker.toml"]).ok();
    up
}

/// A server that takes posts after it has failed so often.
async fn hook(failures: u32) -> ProviderServer {
    let left = Arc::new(AtomicU32::new(failures));
    ProviderServer::start(move |_| {
        let fails = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        if fails { refusal(503, &json!({})) } else { answer(&json!({})) }
    })
    .await
}

/// What was posted, once it is so much.
async fn posted(hook: &ProviderServer, count: usize) -> Vec<Asked> {
    for _ in 0..3_000 {
        if hook.count() >= count {
            return hook.all();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{} posts, expected {count}: {:?}", hook.count(), hook.all());
}

fn state(body: &Value) -> &str {
    let state = body["statusUpdate"]["status"]["state"].as_str();
    state.unwrap_or_else(|| body.as_object().unwrap().keys().next().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_are_posted_in_order_with_the_clients_token() {
    let hook = hook(1).await;
    let up = up(&format!("127.0.0.1:{}", hook.port));
    for (at, binding) in BINDINGS.into_iter().enumerate() {
        let client = A2aClient::new(&up.url, "local/me/asker", binding);
        let url = format!("http://127.0.0.1:{}/{at}", hook.port);
        let mut message = text("m1", "a coffee");
        message["configuration"] = json!({"taskPushNotificationConfig": {
            "id": "mine", "url": url, "authentication": {"scheme": "Bearer", "credentials": "s3cret-4711"},
        }});
        let before = hook.count();
        let task = client.ok("SendMessage", message).await["task"].clone();
        // One post fails, and comes again.
        let failed = usize::from(at == 0);
        posted(&hook, before + 2 + failed).await;
        client.ok("SendMessage", super::answer("m2", &task["id"], "L")).await;
        let posts = posted(&hook, before + 5 + failed).await.split_off(before + failed);
        let states: Vec<&str> = posts.iter().map(|(_, body)| state(body)).collect();
        assert_eq!(
            states,
            [
                "TASK_STATE_WORKING",
                "TASK_STATE_INPUT_REQUIRED",
                "TASK_STATE_WORKING",
                "artifactUpdate",
                "TASK_STATE_COMPLETED"
            ]
        );
        for (headers, body) in &posts {
            assert_eq!(headers["authorization"], "Bearer s3cret-4711");
            assert_eq!(
                (headers["content-type"].as_str(), headers["a2a-version"].as_str()),
                ("application/json", "1.0")
            );
            let content = body.as_object().unwrap().values().next().unwrap();
            assert_eq!(content["taskId"], task["id"], "{body}");
        }
        let mut keys: Vec<&String> = posts.iter().map(|(headers, _)| &headers["idempotency-key"]).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 5, "one for each event");
    }
    let data = walk(&up.dir.path().join("data"));
    assert!(!data.windows(11).any(|bytes| bytes == b"s3cret-4711"), "the store has no credentials in the clear");
}

/// The bytes of all files of a folder.
fn walk(dir: &std::path::Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        all.extend(if path.is_dir() { walk(&path) } else { std::fs::read(&path).unwrap_or_default() });
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_are_set_listed_and_deleted() {
    let hook = hook(0).await;
    let up = up(&format!("127.0.0.1:{}", hook.port));
    for binding in BINDINGS {
        let client = A2aClient::new(&up.url, "local/me/asker", binding);
        let task = client.ok("SendMessage", text("m1", "a coffee")).await["task"]["id"].clone();
        let url = format!("http://127.0.0.1:{}/", hook.port);
        let set = json!({"taskId": task, "url": url, "token": "t0ken", "id": "a"});
        let expected = json!({"id": "a", "taskId": task, "url": url, "authentication": {"scheme": "Bearer"}});
        assert_eq!(client.ok("CreateTaskPushNotificationConfig", set.clone()).await, expected);
        // Setting it anew is no second one.
        client.ok("CreateTaskPushNotificationConfig", set).await;
        let unnamed = client.ok("CreateTaskPushNotificationConfig", json!({"taskId": task, "url": url})).await;
        assert!(unnamed["id"].as_str().is_some_and(|id| !id.is_empty()) && unnamed.get("authentication").is_none());
        let all = client.ok("ListTaskPushNotificationConfigs", json!({"taskId": task})).await;
        assert_eq!((all["configs"].as_array().unwrap().len(), &all["nextPageToken"]), (2, &json!("")), "{all}");
        assert!(!all.to_string().contains("t0ken"), "{all}");
        let one = json!({"taskId": task, "id": "a"});
        assert_eq!(client.ok("GetTaskPushNotificationConfig", one.clone()).await, expected);
        for _ in 0..2 {
            assert_eq!(client.ok("DeleteTaskPushNotificationConfig", one.clone()).await, json!({}));
        }
        let refused = client.refused("GetTaskPushNotificationConfig", one).await;
        assert_eq!(refused.reason, "TASK_NOT_FOUND", "{refused:?}");
        client.ok("SendMessage", super::answer("m2", &task, "L")).await;
        let posts = posted(&hook, 2).await;
        assert!(posts.iter().all(|(headers, _)| !headers.contains_key("authorization")), "the deleted one is silent");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirected_post_is_no_delivered_one() {
    let left = AtomicU32::new(1);
    let hook = ProviderServer::start(move |_| {
        if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err() {
            return answer(&json!({}));
        }
        let mut redirect = refusal(302, &json!({}));
        redirect.headers_mut().insert("location", "/login".parse().unwrap());
        redirect
    })
    .await;
    let up = up(&format!("127.0.0.1:{}", hook.port));
    let client = A2aClient::new(&up.url, "local/me/asker", Binding::Rpc);
    let mut message = text("m1", "a coffee");
    let url = format!("http://127.0.0.1:{}/", hook.port);
    message["configuration"] = json!({"taskPushNotificationConfig": {"url": url}});
    client.ok("SendMessage", message).await;
    let posts = posted(&hook, 3).await;
    let states: Vec<&str> = posts.iter().map(|(_, body)| state(body)).collect();
    assert_eq!(states, ["TASK_STATE_WORKING", "TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_that_is_set_after_the_end_tells_the_end() {
    let hook = hook(0).await;
    let up = up(&format!("127.0.0.1:{}", hook.port));
    for binding in BINDINGS {
        let client = A2aClient::new(&up.url, "local/me/asker", binding);
        let task = client.ok("SendMessage", text("m1", "a coffee")).await["task"]["id"].clone();
        client.ok("SendMessage", super::answer("m2", &task, "L")).await;
        let before = hook.count();
        let set = json!({"taskId": task, "url": format!("http://127.0.0.1:{}/", hook.port), "id": "late"});
        client.ok("CreateTaskPushNotificationConfig", set.clone()).await;
        let posts = posted(&hook, before + 2).await.split_off(before);
        let states: Vec<&str> = posts.iter().map(|(_, body)| state(body)).collect();
        assert_eq!(states, ["artifactUpdate", "TASK_STATE_COMPLETED"]);
        // What was delivered isn't delivered again by one that replaces it.
        tokio::time::sleep(Duration::from_secs(1)).await;
        client.ok("CreateTaskPushNotificationConfig", set).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(hook.count(), before + 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_comes_again_sets_no_second_notification() {
    let hook = hook(0).await;
    let up = up(&format!("127.0.0.1:{}", hook.port));
    for binding in BINDINGS {
        let client = A2aClient::new(&up.url, "local/me/asker", binding);
        let client = client.with_header("Idempotency-Key", &format!("key-{binding:?}"));
        let mut message = text("m1", "a coffee");
        let url = format!("http://127.0.0.1:{}/", hook.port);
        message["configuration"] = json!({"taskPushNotificationConfig": {"url": url}});
        let task = client.ok("SendMessage", message.clone()).await["task"]["id"].clone();
        assert_eq!(client.ok("SendMessage", message).await["task"]["id"], task);
        let all = client.ok("ListTaskPushNotificationConfigs", json!({"taskId": task})).await;
        assert_eq!(all["configs"].as_array().map(Vec::len), Some(1), "{all}");
        client.ok("CancelTask", json!({"id": task})).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_may_not_be_called_is_refused_at_once() {
    let up = up("hooks.example.com");
    let client = A2aClient::new(&up.url, "local/me/asker", Binding::Rpc);
    let task = client.ok("SendMessage", text("m1", "a coffee")).await["task"]["id"].clone();
    for url in [
        "http://127.0.0.1:9/x",
        "https://elsewhere.example/x",
        "file:///etc/passwd",
        "ftp://hooks.example.com/",
        "nonsense",
    ] {
        let set = json!({"taskId": task, "url": url});
        let refused = client.ask("CreateTaskPushNotificationConfig", set).await.err();
        assert!(refused.is_some_and(|error| error.code == -32000 || error.code == -32602), "{url}");
        let mut message = text("m2", "another");
        message["configuration"] = json!({"taskPushNotificationConfig": {"url": url}});
        client.refused("SendMessage", message).await;
    }
    assert_eq!(client.ok("ListTasks", json!({})).await["totalSize"], 1, "a refused notification begins no task");
    let all = client.ok("ListTaskPushNotificationConfigs", json!({"taskId": task})).await;
    assert_eq!(all["configs"], json!([]));
}
