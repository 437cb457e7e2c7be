//! Servers and login servers that attack a login: each ends it, says why, and gets nothing.

use super::ClientSite;
use super::login_server::{LoginServer, REDIRECT, Replaced, begin, finish, log_in, refresh};
use crate::support::operate::{boss, operate};
use serde_json::{Value, json};

const METADATA: &str = "/.well-known/oauth-authorization-server";

/// A site with an agent whose server wants a login, with a challenge of its own.
async fn start(challenge: Option<String>) -> (LoginServer, ClientSite) {
    let login = LoginServer::start().await;
    let server = login.guard(challenge).await;
    let site = ClientSite::new().await;
    site.agent("searcher", &server, json!({})).await;
    // The server of tools goes on until the end of the test.
    std::mem::forget(server);
    (login, site)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_challenge_to_another_host_is_followed_nowhere() {
    for (url, part) in [
        ("http://169.254.169.254/latest/meta-data", "host `169.254.169.254` port 80 is not one that this venue allows"),
        ("file:///etc/passwd", "it isn't asked"),
        ("http://user:key@127.0.0.1:1/", "it isn't asked"),
        ("javascript:alert(1)", "it isn't asked"),
    ] {
        let (login, site) = start(Some(format!("Bearer resource_metadata=\"{url}\""))).await;
        let error = begin(&site, "searcher").await.unwrap_err().to_string();
        assert!(error.contains(part), "{url}: {error}");
        assert!(login.asked("/prm").is_empty() && login.asked(METADATA).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_metadata_begins_no_login() {
    let keys = |keys: Value| Replaced::Keys(keys);
    for (path, with, part) in [
        (METADATA, Replaced::Body(200, vec![b' '; 100 << 20]), "answer has more than 262144 bytes"),
        ("/prm", Replaced::Body(200, vec![b' '; 100 << 20]), "answer has more than 262144 bytes"),
        (METADATA, Replaced::Body(200, "[".repeat(100_000).into_bytes()), "can't be read"),
        ("/prm", Replaced::Redirect("/prm".to_owned()), "redirects, which is not followed"),
        (METADATA, Replaced::Redirect("http://169.254.169.254/".to_owned()), "redirects, which is not followed"),
        ("/prm", keys(json!({"resource": "https://bank.example/mcp"})), "its metadata is of "),
        (
            "/prm",
            keys(json!({"authorization_servers": ["http://169.254.169.254"]})),
            "is not one that this venue allows",
        ),
        ("/prm", keys(json!({"scopes_supported": ["x".repeat(1 << 17)]})), "`scopes_supported`: expected at most 64"),
        (METADATA, keys(json!({"issuer": "https://bank.example"})), "says that it is"),
        (METADATA, keys(json!({"authorization_endpoint": "javascript:alert(1)"})), "nothing was opened"),
        (METADATA, keys(json!({"code_challenge_methods_supported": ["plain"]})), "proves codes by S256"),
        (METADATA, keys(json!({"registration_endpoint": "http://169.254.169.254/"})), "is not one that this venue"),
        ("/register", Replaced::Body(403, b"no \x1b[2J".to_vec()), "registers no client: status 403"),
    ] {
        let (login, site) = start(None).await;
        login.replace(path, with);
        let error = begin(&site, "searcher").await.unwrap_err().to_string();
        assert!(error.contains(part) && !error.contains('\u{1b}'), "expected `{part}`: {error}");
        assert!(login.asked("/go").is_empty() && login.asked("/token").is_empty(), "{part}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_challenge_with_endless_scopes_asks_for_none() {
    let scopes = "x".repeat(20_000);
    let (login, site) = start(Some(format!("Bearer scope=\"{scopes}\", resource_metadata=\"BASE/prm\""))).await;
    let error = begin(&site, "searcher").await.unwrap_err().to_string();
    assert!(error.contains("its scopes: expected at most 64 scopes"), "{error}");
    assert!(login.asked("/go").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_another_login_server_gives_no_token() {
    let (login, site) = start(None).await;
    for (iss, part) in [
        (Some("https://evil.example".to_owned()), "its code isn't used"),
        (Some(format!("{}/", login.base())), "its code isn't used"),
        (None, "doesn't say that it is of it"),
    ] {
        let mut answer = begin(&site, "searcher").await.unwrap();
        answer.remove("iss");
        answer.extend(iss.map(|iss| ("iss".to_owned(), Value::from(iss))));
        let error = finish(&site, "searcher", answer.clone()).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        // The code is lost with it: whoever brings it again learns nothing.
        answer.insert("iss".to_owned(), login.base().into());
        let error = finish(&site, "searcher", answer).await.unwrap_err().to_string();
        assert!(error.contains("no login with this `state`"), "{error}");
    }
    let answer = begin(&site, "searcher").await.unwrap();
    let refused = json!({"state": answer["state"], "iss": login.base(), "error": "access_denied: \u{1b}[2J"});
    let error = finish(&site, "searcher", refused.as_object().unwrap().clone()).await.unwrap_err().to_string();
    assert!(error.contains("refuses: ") && error.contains("access_denied") && !error.contains('\u{1b}'), "{error}");
    assert!(login.asked("/token").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_tokens_are_not_kept() {
    for (keys, part) in [
        (json!({"access_token": "token-1234\r\nX-Evil: 1"}), "`access_token`: expected printable"),
        (json!({"access_token": "x".repeat(100_000)}), "`access_token`: expected at most 8192 bytes"),
        (json!({"refresh_token": "token 1234"}), "`refresh_token`: expected printable"),
        (json!({"token_type": "DPoP"}), "expected `Bearer`"),
        (json!({"scope": "x".repeat(100_000)}), "`scope`: expected at most 64"),
    ] {
        let (login, site) = start(None).await;
        login.replace("/token", Replaced::Keys(keys));
        let error = log_in(&site, "searcher").await.unwrap_err().to_string();
        assert!(error.contains(part) && !error.contains("X-Evil"), "expected `{part}`: {error}");
        let error = refresh(&site, "searcher").await.unwrap_err();
        assert!(error.contains("run `trellis mcp login"), "{error}");
    }
    let (login, site) = start(None).await;
    login.replace("/token", Replaced::Keys(json!({"expires_in": 1_000_000_000_000_000_000_u64})));
    let found = log_in(&site, "searcher").await.unwrap();
    let (since, until) = (found["since"].as_u64().unwrap(), found["until"].as_u64().unwrap());
    assert_eq!(until - since, 365 * 24 * 3_600 * 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn logins_that_never_end_are_bounded() {
    let (_login, site) = start(None).await;
    let ask = async |redirect: &str| {
        let input = json!({"server": "shop", "agent": "searcher", "redirect": redirect});
        operate(&site.venue.venue, &boss(&site.venue.owner), "mcp/login", input).await
    };
    for redirect in ["https://evil.example/callback", "http://127.0.0.1:1/other", "http://evil.example:1/callback"] {
        let error = ask(redirect).await.unwrap_err().to_string();
        assert!(error.contains("a page of the person's own machine"), "{error}");
    }
    for _ in 0..16 {
        ask(REDIRECT).await.unwrap();
    }
    let error = ask(REDIRECT).await.unwrap_err().to_string();
    assert!(error.contains("expected at most 16 logins"), "{error}");
}
