//! Every page is strict: nothing inline, nothing from elsewhere, and reading changes nothing.

use super::Site;
use reqwest::Method;
use serde_json::json;
use std::fmt::Write;

/// The agent `clerk` with a timer, a secret and a value, and the id of its job.
async fn things(site: &Site, token: &str) -> String {
    site.agent(token, "clerk").await;
    site.timer(token, &json!({"input": "go", "cron": "*/5 * * * *", "timezone": "Europe/Berlin"})).await;
    let secret = json!({"value": "planted-value", "hosts": ["api.example.com"]});
    site.api(Method::PUT, "secrets/KEY", token, &secret).await;
    let write = json!({"operation": "v/ops/lattice/write", "input": {"path": "w/doc/rule", "value": "pay"}});
    site.api(Method::POST, "run", token, &write).await;
    site.job(token, "go").await
}

/// Pages of a venue with the agent `clerk` and this job.
fn paths(job: &str) -> Vec<String> {
    let job_paths = [format!("/jobs/{job}"), format!("/jobs/{job}?raw=input")];
    let others = [
        "/",
        "/?status=FAILED&q=x&agent=clerk",
        "/jobs/bulk?action=cancel",
        "/approvals",
        "/agents",
        "/agents/clerk",
        "/agents/clerk?session=main",
        "/failures",
        "/lattice",
        "/lattice/w",
        "/lattice/j",
        "/lattice/w/doc/rule",
        "/lattice/w/doc/rule?seen=1",
        "/lattice/w/doc?offset=0",
        "/timers",
        "/timers?agent=clerk&all=true",
        "/secrets",
        "/policy",
        "/fleet",
        "/sign-in",
        "/console.css",
        "/console.js",
    ];
    job_paths.into_iter().chain(others.map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_page_has_anything_inline_or_foreign() {
    let site = Site::new().await;
    let root = site.token("acme/root", &json!({}));
    let job = things(&site, &root).await;
    for path in paths(&job).into_iter().chain(["/jobs/0123456789abcdef0123456789abcdef".to_owned()]) {
        let page = site.open(&path, &root).await;
        let policy = page.header("content-security-policy").to_owned();
        for part in ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
        let strict = [page.header("cache-control"), page.header("x-content-type-options")];
        assert_eq!(strict, ["no-store", "nosniff"], "{path}");
        if page.header("content-type").starts_with("text/html") {
            let text = page.text;
            assert_eq!(text.matches("<script").count(), 1, "{path}: {text}");
            assert!(text.contains("<script src=\"/console.js\" defer></script>"), "{path}: {text}");
            for inline in ["style=", "onclick", "onload", "javascript:", "http://", "https://", "//cdn"] {
                assert!(!text.contains(inline), "{path} has `{inline}`: {text}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_pages_leaves_the_store_as_it_is() {
    let site = Site::new().await;
    let root = site.token("acme/root", &json!({}));
    let job = things(&site, &root).await;
    let dump = async || {
        let store = &site.server.venue.store;
        let mut all = String::new();
        for owner in store.owners(None, 1_000).await.unwrap() {
            let documents = store.scan(&owner, "", None, false, 10_000).await.unwrap();
            let sessions = store.sessions(&owner, None, None, 1_000).await.unwrap();
            let (usage, outbox) = (store.usage(&owner).await.unwrap(), store.outbox(&owner).await.unwrap());
            writeln!(all, "{owner}: {documents:?} {sessions:?} {usage:?} {outbox:?}").unwrap();
        }
        all
    };
    let before = dump().await;
    assert!(before.contains("acme/root") && before.len() > 1_000, "{before}");
    for path in paths(&job) {
        assert_eq!(site.open(&path, &root).await.status, 200, "{path}");
    }
    assert_eq!(dump().await, before);
}
