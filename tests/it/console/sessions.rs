//! Sessions of browsers: a cookie that a token makes, and what it is good for.

use super::Site;
use crate::support::http::Server;
use reqwest::Method;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_token_becomes_a_session_of_the_console_alone() {
    let site = Site::new().await;
    let refused = site.send(Method::GET, "/?status=FAILED", &[], &[]).await.text(401);
    assert!(refused.contains("action=\"/sign-in\"") && refused.contains("value=\"/?status=FAILED\""), "{refused}");
    let (ann, origin) = (site.token("acme/ann", &json!({})), site.server.url.clone());
    let from_page = [("origin", origin.as_str())];
    let wrong = site.send(Method::POST, "/sign-in", &from_page, &[("token", "a.b.c"), ("next", "/")]).await;
    assert_eq!((wrong.status, wrong.header("set-cookie")), (401, ""));
    for (next, expected) in [("/approvals", "/approvals"), ("//evil.example", "/")] {
        let form = [("token", ann.as_str()), ("next", next)];
        let signed_in = site.send(Method::POST, "/sign-in", &from_page, &form).await;
        assert_eq!((signed_in.status, signed_in.header("location")), (303, expected));
        let cookie = format!("trellis-session={ann}; Path=/; HttpOnly; SameSite=Strict");
        assert_eq!(signed_in.header("set-cookie"), cookie);
    }
    let page = site.open("/", &ann).await.text(200);
    assert!(page.contains("acme/ann") && page.contains("action=\"/sign-out\""), "{page}");
    // Programs send the token itself: a page of another site can't make them.
    assert_eq!(site.open("/api/v1/jobs", &ann).await.status, 401);
    let out = site.post("/sign-out", &ann, &[]).await;
    let ends = out.headers.get_all("set-cookie").iter().filter(|cookie| cookie.as_bytes().ends_with(b"; Max-Age=0"));
    assert_eq!(ends.count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tokens_nobody_is_asked_to_sign_in() {
    let server = Server::start().await;
    let page = server.get("/").await;
    let text = page.body(200).as_str().unwrap().to_owned();
    assert!(text.contains("local/me") && !text.contains("sign-out"), "{text}");
    // As of the API, a page of another origin is refused.
    let evil = [("origin", "https://evil.example")];
    assert_eq!(server.send(Method::GET, "/", &evil, "").await.status, 403);
    assert_eq!(server.send(Method::GET, "/", &[("host", "rebound.example")], "").await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_looks_at_another_owner_and_nobody_else_does() {
    let site = Site::new().await;
    let (ann, root) = (site.token("acme/ann", &json!({})), site.token("acme/root", &json!({})));
    site.agent(&ann, "clerk").await;
    let job = site.job(&ann, "go").await;
    assert!(!site.open("/", &root).await.text(200).contains(&job));
    let switched = site.post("/owner", &root, &[("owner", "acme/ann")]).await;
    let expected = "trellis-owner=acme/ann; Path=/; HttpOnly; SameSite=Strict";
    assert_eq!((switched.status, switched.header("set-cookie")), (303, expected));
    let both = |token: &str| format!("trellis-session={token}; trellis-owner=acme/ann");
    let page = site.send(Method::GET, "/", &[("cookie", both(&root).as_str())], &[]).await.text(200);
    assert!(page.contains(&job) && page.contains("acme/root for acme/ann"), "{page}");
    let bob = site.token("acme/bob", &json!({}));
    let refused = site.post("/owner", &bob, &[("owner", "acme/ann")]).await;
    assert_eq!((refused.status, refused.header("set-cookie")), (403, ""));
    let page = site.send(Method::GET, "/", &[("cookie", both(&bob).as_str())], &[]).await.text(403);
    assert!(page.contains("Back to your own owner"), "{page}");
    let (cookie, origin) = (both(&bob), site.server.url.clone());
    let headers = [("cookie", cookie.as_str()), ("origin", origin.as_str())];
    let back = site.send(Method::POST, "/owner", &headers, &[("owner", "")]).await;
    assert!(back.header("set-cookie").ends_with("; Max-Age=0"));
}
