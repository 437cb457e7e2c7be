//! What an owner has set up, in the console: timers, secrets, policy.

use super::Site;
use reqwest::Method;
use serde_json::json;

/// A value that no page may have.
const VALUE: &str = "sk-planted-9a+Zq";

#[track_caller]
fn assert_harmless(page: &str) {
    assert_eq!(page.matches("<script").count(), 1, "{page}");
    for markup in ["<img", "<b>bold", "\u{202e}", "\u{200b}"] {
        assert!(!page.contains(markup), "`{}` in {page}", markup.escape_unicode());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_are_listed_and_cancelled() {
    let site = Site::new().await;
    let ann = site.token("acme/ann", &json!({}));
    assert!(site.open("/timers", &ann).await.text(200).contains("No timer is set"));
    site.agent(&ann, "clerk").await;
    let hostile = json!({
        "input": {"<img src=x>": "a\u{202e}b"}, "name": "<b>bold</b>", "cron": "*/5 * * * *", "timezone": "Europe/Berlin",
    });
    let timer = site.timer(&ann, &hostile).await;
    let page = site.open("/timers", &ann).await.text(200);
    for text in ["*/5 * * * *", "Europe/Berlin", "href=\"/agents/clerk\"", "in ", "0 events", "acme/ann"] {
        assert!(page.contains(text), "no `{text}` in {page}");
    }
    assert_harmless(&page);
    let cancel = format!("/timers/{timer}/cancel");
    assert!(page.contains(&format!("action=\"{cancel}\"")), "{page}");
    for (next, expected) in [("/timers?agent=clerk", "/timers?agent=clerk"), ("//evil.example", "/timers")] {
        let answer = site.post(&cancel, &ann, &[("next", next)]).await;
        assert_eq!((answer.status, answer.header("location")), (303, expected));
    }
    assert!(!site.open("/timers", &ann).await.text(200).contains("*/5 * *"));
    let all = site.open("/timers?agent=clerk&all=true", &ann).await.text(200);
    assert!(all.contains("*/5 * *") && all.contains("cancelled") && !all.contains(&cancel), "{all}");
    assert_eq!(site.post("/timers/none/cancel", &ann, &[("next", "/")]).await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_list_of_timers_has_pages() {
    let site = Site::new().await;
    let ann = site.token("acme/ann", &json!({}));
    site.agent(&ann, "clerk").await;
    for minutes in 1..=51 {
        site.timer(&ann, &json!({"input": "go", "after": format!("{minutes}m")})).await;
    }
    let page = site.open("/timers", &ann).await.text(200);
    assert!(page.contains("51 timers") && page.contains("offset=50\" rel=\"next\""), "{page}");
    assert_eq!(page.matches("/cancel\"").count(), 50);
    let rest = site.open("/timers?agent=&all=false&offset=50", &ann).await.text(200);
    assert_eq!((rest.matches("/cancel\"").count(), rest.contains("rel=\"next\"")), (1, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_set_and_never_shown() {
    let site = Site::new().await;
    let ann = site.token("acme/ann", &json!({}));
    let mut pages = vec![site.open("/secrets", &ann).await.text(200)];
    let form =
        |value, overwrite| [("name", "KEY"), ("value", value), ("hosts", "api.example.com"), ("overwrite", overwrite)];
    let set = site.post("/secrets", &ann, &form(VALUE, "")).await;
    assert_eq!((set.status, set.header("location")), (303, "/secrets"));
    pages.push(site.open("/secrets", &ann).await.text(200));
    assert!(pages[1].contains("KEY") && pages[1].contains("api.example.com"), "{}", pages[1]);
    let exists = site.post("/secrets", &ann, &form(VALUE, "")).await.text(409);
    assert!(exists.contains("secret `KEY` exists") && exists.contains("value=\"KEY\""), "{exists}");
    let short = site.post("/secrets", &ann, &form("planted", "1")).await.text(400);
    assert!(short.contains("Not stored") && short.contains("checked") && !short.contains("planted"), "{short}");
    let illegal = [("name", "<b>bold</b>"), ("value", VALUE), ("hosts", "http://[::1")];
    let illegal = site.post("/secrets", &ann, &illegal).await.text(400);
    assert_harmless(&illegal);
    let unread = site.post("/secrets", &ann, &[("value", VALUE)]).await;
    assert!([400, 422].contains(&unread.status), "{}", unread.status);
    pages.extend([exists, short, illegal, unread.text]);
    assert_eq!(site.post("/secrets", &ann, &form(VALUE, "1")).await.status, 303);
    pages.push(site.open("/lattice/s", &ann).await.text(200));
    pages.push(site.open("/secrets", &ann).await.text(200));
    for page in &pages {
        assert!(!page.contains("planted"), "{page}");
    }
    assert_eq!(site.post("/secrets/KEY/delete", &ann, &[]).await.header("location"), "/secrets");
    assert!(site.open("/secrets", &ann).await.text(200).contains("There are no secrets yet"));
    assert_eq!(site.post("/secrets/KEY/delete", &ann, &[]).await.status, 404);
    let lister = site.token("acme/ann", &json!({"att": [{"with": "s", "can": "secret/list"}]}));
    let page = site.open("/secrets", &lister).await.text(200);
    assert!(!page.contains("type=\"password\""), "{page}");
    let setter = site.token("acme/ann", &json!({"att": [{"with": "s/OWN", "can": "secret/set"}]}));
    let form = [("name", "OWN"), ("value", "planted"), ("hosts", "")];
    let refused = site.post("/secrets", &setter, &form).await.text(400);
    assert!(refused.contains("at least 8 bytes") && !refused.contains("planted"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_is_shown_and_not_changed() {
    let site = Site::new().await;
    let root = site.token("acme/root", &json!({}));
    let caps = json!([{"with": "w/rule", "can": "crud/read"}]);
    let agent = json!({"model": {"provider": "scripted", "name": "echo"}, "caps": caps});
    site.api(Method::PUT, "agents/narrow", &root, &agent).await;
    site.agent(&root, "clerk").await;
    let page = site.open("/policy", &root).await.text(200);
    for text in
        ["No limit.", "Nothing is revoked.", "crud/read on w/rule", "no limit of its own", "href=\"/agents/clerk\""]
    {
        assert!(page.contains(text), "no `{text}` in {page}");
    }
    let run = async |name: &str, input| {
        let call = json!({"operation": format!("v/ops/policy/{name}"), "input": input});
        site.api(Method::POST, "run", &root, &call).await
    };
    let reason = "<img src=x> \u{202e}why";
    run("revoke", json!({"path": "w/pay/<b>bold", "holder": "agent:narrow", "reason": reason})).await;
    run("roots", json!({"caps": [{"with": "", "can": "*"}]})).await;
    run("approvals", json!({"caps": [{"with": "w/prod", "can": "crud/write"}]})).await;
    let page = site.open("/policy", &root).await.text(200);
    for text in
        ["* on everything", "crud/write on w/prod", "w/pay/&#60;b&#62;bold", "holder agent:narrow", "⟨U+202E⟩why"]
    {
        assert!(page.contains(text), "no `{text}` in {page}");
    }
    assert_harmless(&page);
    assert!(!page.contains("<main id=\"main\">") || !page.split("<main").nth(1).unwrap().contains("<form"), "{page}");
    let shows = json!([{"with": "", "can": "policy/show"}]);
    let narrow = site.token("acme/root", &json!({"att": shows}));
    let page = site.open("/policy", &narrow).await.text(200);
    assert!(page.contains("They are not listed") && page.contains("policy/show on everything"), "{page}");
}
