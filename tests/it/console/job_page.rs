//! The page of a job and the pages behind it: its time, the jobs under it, the same task again, the prompt built again.

use super::forms::{Console, hidden_field};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_shows_its_time_and_the_jobs_under_it() {
    let console = Console::new().await;
    console.venue.agent("echo", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
    console.venue.agent("boss", json!({"tools": ["agent/request"]})).await;
    let job = console.post("/agents/boss/tasks", &[("input", "go")]).await;
    let page = console.page_with(&job, "Jobs under it</h2>").await;
    assert!(page.contains("</span> echo <a href=\"/jobs/") || page.contains("</span> complete</span>"), "{page}");
    let page = console.page_with(&job, "</span> complete</span> <code").await;
    assert!(page.contains("class=\"strip-turn\"") && page.contains("2 turns in "), "{page}");
    let id = job.strip_prefix("/jobs/").unwrap();
    let record = console.server.get(&format!("/api/v1/jobs/{id}")).await;
    let children = &record.body(200)["children"];
    assert_eq!((&children[0]["agent"], &children[0]["status"]), (&json!("echo"), &json!("COMPLETE")), "{children}");
    let child = format!("/jobs/{}", children[0]["id"].as_str().unwrap());
    assert!(page.contains(&child) && console.page(&child).await.contains(&job), "each leads to the other");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_given_again_with_another_input() {
    let console = Console::new().await;
    console.venue.agent("echo", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
    let job = console.post("/agents/echo/tasks", &[("input", "{\"total\": 100}")]).await;
    let page = console.page_with(&job, "Delete").await;
    let again = format!("/agents/echo?again={}", job.strip_prefix("/jobs/").unwrap());
    assert!(page.contains(&format!("{again}#task")), "{page}");
    let form = console.page(&again).await;
    assert!(form.contains("{\n  &#34;total&#34;: 100\n}</textarea>") && form.contains("stays as it is"), "{form}");
    let key = hidden_field(&form, "key");
    let other = console.post("/agents/echo/tasks", &[("input", "{\"total\": 7}"), ("key", &key)]).await;
    assert_ne!(other, job);
    assert!(console.page_with(&other, "Delete").await.contains("&#34;total&#34;: 7"));
    assert!(console.page(&job).await.contains("&#34;total&#34;: 100"));
    console.post(&format!("{job}/delete"), &[]).await;
    assert_eq!(console.answer(&format!("{job}/delete"), &[]).await.status.as_u16(), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_is_built_again_and_without_a_part() {
    let console = Console::new().await;
    console.venue.write("w/rule", json!("Pay on the last day.")).await;
    console.venue.agent("clerk", json!({"context": ["w/rule"]})).await;
    let job = console.venue.run("clerk", "e1", json!("go")).await.head;
    let turn = format!("/agents/clerk/turns/{}/1", job.session);
    let shown = console.page(&turn).await;
    assert!(shown.contains(&format!("{turn}/replay?without=w%2Frule")), "{shown}");
    let same = console.page(&format!("{turn}/replay")).await;
    assert!(same.contains("the same prompt") && same.contains("Pay on the last day."), "{same}");
    let without = console.page(&format!("{turn}/replay?without=w%2Frule")).await;
    assert!(without.contains("Without <code>w/rule</code>") && !without.contains("Pay on the last day."), "{without}");
    assert!(without.contains("the first difference") || without.contains("Only in the turn as it was"), "{without}");
    let nothing = console.server.get(&format!("{turn}/replay?without=w/none")).await;
    assert_eq!(nothing.status.as_u16(), 404, "{}", nothing.body);
}
