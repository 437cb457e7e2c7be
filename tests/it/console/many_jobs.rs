//! Actions on many jobs: their number is said first, and what was not done is named.

use super::forms::{Console, hidden_field};
use serde_json::json;

/// Gives a suspended agent tasks; returns the addresses of their jobs.
async fn waiting_jobs(console: &Console, agent: &str, texts: &[&str]) -> Vec<String> {
    console.venue.agent(agent, json!({"model": {"provider": "scripted", "name": "echo"}})).await;
    console.post(&format!("/agents/{agent}/suspend"), &[]).await;
    let mut jobs = Vec::new();
    for text in texts {
        jobs.push(console.post(&format!("/agents/{agent}/tasks"), &[("input", text)]).await);
    }
    jobs
}

#[tokio::test(flavor = "multi_thread")]
async fn all_jobs_of_a_filter_are_cancelled_once_their_number_was_said() {
    let console = Console::new().await;
    let jobs = waiting_jobs(&console, "echo", &["red one", "red two", "blue"]).await;
    let list = console.page("/?q=red&status=PENDING,STARTED").await;
    assert!(list.contains("/jobs/bulk?action=cancel&#38;status=PENDING%2CSTARTED&#38;q=red"), "{list}");
    assert!(!list.contains("action=redrive") && !list.contains("action=resume"), "{list}");
    let asked = console.page("/jobs/bulk?action=cancel&status=PENDING,STARTED&q=red").await;
    assert!(asked.contains("2 jobs would be cancelled") && asked.contains("can&#39;t be undone"), "{asked}");
    let (expected, until) = (hidden_field(&asked, "expected"), hidden_field(&asked, "until"));
    let later = console.post("/agents/echo/tasks", &[("input", "red three")]).await;
    let fields = |expected| [("action", "cancel"), ("q", "red"), ("until", until.as_str()), ("expected", expected)];
    let other = console.answer("/jobs/bulk", &fields("3")).await;
    assert_eq!(other.status.as_u16(), 409, "{}", other.body);
    let misspelt = [("action", "cancel"), ("agnet", "echo"), ("expected", "3")];
    assert_eq!(console.answer("/jobs/bulk", &misspelt).await.status.as_u16(), 400);
    let done = console.answer("/jobs/bulk", &fields(&expected)).await;
    let said = done.body(200);
    assert!(said.as_str().unwrap().contains("2 jobs cancelled."), "{said}");
    for (job, state) in jobs.iter().zip(["cancelled", "cancelled", "pending"]) {
        assert!(console.page(job).await.contains(&format!("</span> {state}</span>")), "{job} is not {state}");
    }
    assert!(console.page(&later).await.contains("</span> pending</span>"), "it came behind the count");
}

#[tokio::test(flavor = "multi_thread")]
async fn selected_jobs_are_paused_and_those_left_have_a_reason() {
    let console = Console::new().await;
    let jobs = waiting_jobs(&console, "echo", &["one", "two", "three"]).await;
    let ids: Vec<&str> = jobs.iter().map(|job| job.strip_prefix("/jobs/").unwrap()).collect();
    let list = console.page("/").await;
    assert!(ids.iter().all(|id| list.contains(&format!("name=\"id\" value=\"{id}\""))), "{list}");
    console.post(&format!("{}/cancel", jobs[2]), &[]).await;
    let mut form = vec![("action", "pause"), ("id", ids[0]), ("id", ids[1]), ("id", ids[2])];
    let asked = console.answer("/jobs/selected", &form).await.body(200).as_str().unwrap().to_owned();
    assert!(asked.contains("2 jobs of 3 selected would be paused"), "{asked}");
    assert!(console.page(&jobs[0]).await.contains("</span> pending</span>"), "asking changes nothing");
    form.push(("sure", "yes"));
    let done = console.answer("/jobs/selected", &form).await.body(200).as_str().unwrap().to_owned();
    assert!(done.contains("2 jobs paused; 1 failed.") && done.contains("is CANCELLED"), "{done}");
    assert!(console.page(&jobs[1]).await.contains("</span> paused</span>"));
    assert_eq!(console.answer("/jobs/selected", &[("action", "pause")]).await.status.as_u16(), 400);
    let wrong = [("action", "explode"), ("id", ids[0])];
    assert_eq!(console.answer("/jobs/selected", &wrong).await.status.as_u16(), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn named_jobs_go_with_no_filter() {
    let console = Console::new().await;
    let jobs = waiting_jobs(&console, "echo", &["one"]).await;
    let id = jobs[0].strip_prefix("/jobs/").unwrap();
    let unknown = "0123456789abcdef0123456789abcdef";
    let bulk = async |body| console.server.post("/api/v1/jobs", body).await;
    let filtered = bulk(json!({"action": "cancel", "only": [id], "agent": "echo"})).await;
    assert!(filtered.body(400).to_string().contains("`only`"));
    assert_eq!(bulk(json!({"action": "cancel", "only": []})).await.status.as_u16(), 400);
    let counted = bulk(json!({"action": "cancel", "only": [id, id, unknown], "dryRun": true})).await;
    assert_eq!(counted.body(200)["matched"], json!(1));
    let done = bulk(json!({"action": "cancel", "only": [id, id, unknown]})).await;
    let sums = done.body(200);
    assert_eq!((&sums["done"], &sums["failed"], &sums["matched"]), (&json!(1), &json!(1), &json!(2)), "{sums}");
    assert_eq!(sums["reasons"][0]["error"], json!(format!("no job `{unknown}`")));
}
