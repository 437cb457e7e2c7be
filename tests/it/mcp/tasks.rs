//! Tasks: jobs by another name, which are there before the answer, and whose approvals a client answers.

use super::{McpClient, Site};
use serde_json::{Value, json};
use std::time::Duration;

/// The task once its status is this one.
pub async fn until(client: &McpClient<'_>, task: &Value, status: &str) -> Value {
    for _ in 0..600 {
        let found = client.result("tasks/get", json!({"taskId": task})).await;
        if found["status"] == status {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the task is never {status}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_becomes_a_task_only_for_clients_that_take_one() {
    let site = Site::new().await;
    let client = site.client().with_tasks(false);
    let created = client.call("ask_slow", json!({"input": "x"})).await;
    assert_eq!((&created["resultType"], &created["status"]), (&json!("task"), &json!("working")), "{created}");
    assert!(created.get("content").is_none() && created["ttlMs"].is_null() && created.get("result").is_none());
    assert!(created["pollIntervalMs"].is_u64() && created["createdAt"].as_str().unwrap().ends_with('Z'), "{created}");
    let task = &created["taskId"];
    let working = client.result("tasks/get", json!({"taskId": task})).await;
    assert_eq!((&working["resultType"], &working["status"]), (&json!("complete"), &json!("working")));
    let done = until(&client, task, "completed").await;
    assert_eq!(done["result"]["structuredContent"]["output"], "at last");
    // It is a job like any other.
    let job = site.server.get(&format!("/api/v1/jobs/{}", task.as_str().unwrap())).await.body(200);
    assert_eq!(job["status"], "COMPLETE");
    let plain = site.client().call("ask_slow", json!({"input": "x"})).await;
    assert_eq!((&plain["resultType"], &plain["isError"]), (&json!("complete"), &Value::Null), "{plain}");
    let failed = client.call("ask_broken", json!({"input": "x"})).await;
    let failed = if failed["resultType"] == "task" {
        until(&client, &failed["taskId"], "completed").await["result"].clone()
    } else {
        failed
    };
    assert_eq!(failed["isError"], true, "a failed job is no failed task: {failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_task_is_a_cancelled_job() {
    let site = Site::new().await;
    let client = site.client().with_tasks(false);
    let task = client.call("ask_slow", json!({"input": "x"})).await["taskId"].clone();
    assert_eq!(client.result("tasks/cancel", json!({"taskId": task})).await["resultType"], "complete");
    until(&client, &task, "cancelled").await;
    // Again, and after the end: nothing more happens.
    client.result("tasks/cancel", json!({"taskId": task})).await;
    assert_eq!(client.code("tasks/get", json!({"taskId": "0".repeat(32)})).await, -32602);
    assert_eq!(client.code("tasks/get", json!({"taskId": "../x"})).await, -32602);
    assert_eq!(client.code("tasks/cancel", json!({"taskId": "0".repeat(32)})).await, -32602);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_a_question_to_the_client_of_the_task() {
    let site = Site::new().await;
    let silent = site.client().with_tasks(false);
    let client = site.client().with_tasks(true);
    let task = client.call("ask_payer", json!({"input": "pay"})).await["taskId"].clone();
    let asking = until(&client, &task, "input_required").await;
    let (key, question) = asking["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["requestedSchema"]["required"], json!(["approve"]), "{question}");
    let working = silent.result("tasks/get", json!({"taskId": task})).await;
    assert!(working["status"] == "working" && working.get("inputRequests").is_none(), "{working}");
    let update = |responses: Value| json!({"taskId": task, "inputResponses": responses});
    // Nothing that is asked; a person who puts the form away; nonsense.
    client.result("tasks/update", update(json!({"other": {"action": "accept"}}))).await;
    client.result("tasks/update", update(json!({key: {"action": "cancel"}}))).await;
    assert_eq!(client.code("tasks/update", update(json!({key: {"action": "accept", "content": {}}}))).await, -32602);
    until(&client, &task, "input_required").await;
    client.result("tasks/update", update(json!({key: {"action": "accept", "content": {"approve": true}}}))).await;
    let done = until(&client, &task, "completed").await;
    assert_eq!(done["result"]["structuredContent"]["output"], "done");
    assert_eq!(site.venue.read("w/paid").await, Some(json!(100)));
    // Answered questions are ignored.
    client.result("tasks/update", update(json!({key: {"action": "decline"}}))).await;
}
