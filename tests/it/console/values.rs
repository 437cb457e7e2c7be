//! Values in the console: edited under their versions, and who saw them.

use super::Site;
use super::forms::{Console, hidden_field};
use crate::support::venue::TestVenue;
use reqwest::Method;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// The text of the page after a form was refused.
async fn refused(console: &Console, path: &str, form: &[(&str, &str)], status: u16) -> String {
    let answer = console.answer(path, form).await;
    assert!(answer.header("content-security-policy").contains("script-src 'self'"));
    answer.body(status).as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_is_saved_under_the_version_that_was_shown() {
    let console = Console::new().await;
    console.venue.write("w/docs/rule", json!("pay\non time")).await;
    let path = "/lattice/w/docs/rule";
    let version = hidden_field(&console.page(path).await, "version");
    let form = |text, version| [("action", "write"), ("kind", "text"), ("text", text), ("version", version)];
    assert_eq!(console.post(path, &form("pay\r\nsoon", &version)).await, path);
    assert_eq!(console.venue.read("w/docs/rule").await, Some(json!("pay\nsoon")));
    let page = refused(&console, path, &form("<b>pay never</b>", &version), 409).await;
    for text in ["version conflict", "changed meanwhile", "&#60;b&#62;pay never", "pay\nsoon", "Not saved", "open>"] {
        assert!(page.contains(text), "no `{text}` in {page}");
    }
    assert_eq!(console.venue.read("w/docs/rule").await, Some(json!("pay\nsoon")));
    let newer = hidden_field(&page, "version");
    assert_ne!(newer, version);
    assert_eq!(console.post(path, &form("pay never", &newer)).await, path);
    assert_eq!(console.venue.read("w/docs/rule").await, Some(json!("pay never")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_json_is_told_and_kept() {
    let console = Console::new().await;
    console.venue.write("w/docs/rule", json!({"limit": 1})).await;
    let path = "/lattice/w/docs/rule";
    let version = hidden_field(&console.page(path).await, "version");
    let form = |text| [("action", "write"), ("kind", "json"), ("text", text), ("version", version.as_str())];
    let page = refused(&console, path, &form("{\"limit\": </textarea><script>"), 400).await;
    assert!(page.contains("not JSON") && page.contains("&#60;/textarea&#62;&#60;script&#62;"), "{page}");
    assert_eq!(page.matches("<script").count(), 1, "{page}");
    assert_eq!(console.venue.read("w/docs/rule").await, Some(json!({"limit": 1})));
    console.post(path, &form("{\"limit\": [2]}")).await;
    assert_eq!(console.venue.read("w/docs/rule").await, Some(json!({"limit": [2]})));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_created_once_and_deleted() {
    let console = Console::new().await;
    let form = |key, text| [("action", "create"), ("kind", "text"), ("key", key), ("text", text)];
    assert_eq!(console.post("/lattice/w", &form("docs/rule", "pay")).await, "/lattice/w/docs/rule");
    let page = refused(&console, "/lattice/w/docs", &form("rule", "never pay"), 409).await;
    assert!(page.contains("value=\"rule\"") && page.contains("never pay"), "{page}");
    assert_eq!(console.venue.read("w/docs/rule").await, Some(json!("pay")));
    refused(&console, "/lattice/w/docs", &form(" ", "x"), 400).await;
    console.venue.write("w/docs/list", json!(["a", "b"])).await;
    let page = console.page("/lattice/w/docs/list").await;
    assert!(page.contains("href=\"/lattice/w/docs/list/1\""), "{page}");
    let delete = [("action", "delete")];
    assert_eq!(console.post("/lattice/w/docs/rule", &delete).await, "/lattice/w/docs");
    assert_eq!(console.venue.read("w/docs/rule").await, None);
    // What the venue keeps itself has no form, and takes none.
    assert!(!console.page("/lattice/j").await.contains("name=\"action\""));
    assert_eq!(console.answer("/lattice/j/1", &delete).await.status.as_u16(), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn hidden_characters_of_a_value_are_edited_as_escapes() {
    let console = Console::new().await;
    let value = json!("pay \u{202e}1004\u{200b} <img src=x>");
    console.venue.write("w/docs/rule", value.clone()).await;
    let page = console.page("/lattice/w/docs/rule").await;
    assert!(page.contains("pay \\u202e1004\\u200b") && page.contains("value=\"json\" checked"), "{page}");
    assert!(!page.contains(['\u{202e}', '\u{200b}']) && !page.contains("<img"), "{page}");
    let version = hidden_field(&page, "version");
    let text = value.to_string();
    let form = [("action", "write"), ("kind", "json"), ("text", text.as_str()), ("version", version.as_str())];
    console.post("/lattice/w/docs/rule", &form).await;
    assert_eq!(console.venue.read("w/docs/rule").await, Some(value));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_names_the_turns_that_saw_it() {
    let console = Console::new().await;
    console.venue.write("w/docs/<b>rule", json!("pay on time")).await;
    let model = json!({"provider": "scripted", "name": "echo"});
    console.venue.agent("reader", json!({"model": model, "context": ["w/docs/<b>rule"]})).await;
    let job = console.venue.run("reader", "e1", json!("go")).await.head;
    let path = "/lattice/w/docs/%3Cb%3Erule";
    assert!(console.page(path).await.contains(&format!("{path}?seen=1")));
    let page = console.page(&format!("{path}?seen=1")).await;
    let turn = format!("href=\"/agents/reader/turns/{}/1\"", job.session);
    for text in [turn.as_str(), "version 1", "uses, by agent", "w/docs/&#60;b&#62;rule"] {
        assert!(page.contains(text), "no `{text}` in {page}");
    }
    assert!(!page.contains("<b>"), "{page}");
    console.post(path, &[("action", "delete")]).await;
    assert!(console.page(&format!("{path}?seen=1")).await.contains(&turn), "it is deleted, and was seen");
    assert!(console.page("/lattice/w/other?seen=1").await.contains("No turn has shown it to a model"));
    let behind = console.page(&format!("{path}?seen=1&offset=5")).await;
    assert!(!behind.contains(&turn), "{behind}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_saw_a_path_is_told_to_readers_of_all_agents() {
    let site = Site::new().await;
    let ann = site.token("acme/ann", &json!({}));
    let write = json!({"operation": "v/ops/lattice/write", "input": {"path": "w/doc/rule", "value": "pay"}});
    site.api(Method::POST, "run", &ann, &write).await;
    let att = json!([{"with": "w/doc", "can": "crud/read"}]);
    let reader = site.token("acme/ann", &json!({"att": att}));
    let page = site.open("/lattice/w/doc/rule", &reader).await.text(200);
    assert!(page.contains("pay") && !page.contains("?seen=1") && !page.contains("name=\"action\""), "{page}");
    site.open("/lattice/w/doc/rule?seen=1", &reader).await.text(403);
    assert_eq!(site.open("/lattice/w/doc/rule?seen=2", &ann).await.status, 400);
    let writer = site.token("acme/ann", &json!({"att": [{"with": "w/doc/rule", "can": "crud/write"}]}));
    let form = [("action", "write"), ("kind", "text"), ("text", "x"), ("version", "7")];
    let page = site.post("/lattice/w/doc/rule", &writer, &form).await.text(409);
    assert!(page.contains("version conflict") && !page.contains("pay"), "who may not read is told the reason: {page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn uses_that_a_reader_may_not_see_are_counted() {
    let (venue, _dir) = TestVenue::embedded("").await;
    venue.worker();
    let site = Site::of(Arc::clone(&venue.venue)).await;
    let ann = site.token("acme/ann", &json!({}));
    let write = json!({"operation": "v/ops/lattice/write", "input": {"path": "w/pay/salary", "value": "99,000"}});
    site.api(Method::POST, "run", &ann, &write).await;
    let agent = json!({"model": {"provider": "scripted", "name": "echo"}, "context": ["w/pay/salary"]});
    site.api(Method::PUT, "agents/clerk", &ann, &agent).await;
    let job = site.job(&ann, "go").await;
    let mut page = String::new();
    for _ in 0..1_000 {
        page = site.open(&format!("/jobs/{job}"), &ann).await.text(200);
        if page.contains("state complete") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(page.contains("state complete"), "{page}");
    let seen = "/lattice/w/pay/salary?seen=1";
    let all = site.open(seen, &ann).await.text(200);
    assert!(all.contains("version 1") && !all.contains("can't be shown"), "{all}");
    let reader = site.token("acme/ann", &json!({"att": [{"with": "g", "can": "crud/read"}]}));
    let some = site.open(seen, &reader).await.text(200);
    assert!(some.contains("1 more use can't be shown"), "{some}");
    assert!(!some.contains("version 1") && !some.contains("No turn has shown"), "{some}");
}
