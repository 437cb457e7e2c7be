//! What becomes of tokens while they are replaced: calls that end before, refusals that repeat, other keys, narrower scopes.

use super::ClientSite;
use super::login_server::{LoginServer, Replaced, asked_scope, log_in, refresh};
use super::logins::start_by_clock;
use crate::support::mcp_server::{McpReply, McpTestServer, STATELESS, text_tool};
use crate::support::operate::{boss, operate};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use trellis::domain::secret::KeyRing;
use trellis::venue::key_rotation::rotate_keys;
use trellis::venue::secrets::Vault;

/// A pause after which a login server has answered that takes a second.
const ANSWERED: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_outlives_the_call_that_began_it() {
    let (login, server, site, clock) = start_by_clock().await;
    log_in(&site, "searcher").await.unwrap();
    clock.advance(Duration::from_secs(3_650));
    login.replace("/token", Replaced::Late(Duration::from_secs(1)));
    // The call is dropped while the login server replaces the token, as a cancellation does it.
    let dropped = tokio::time::timeout(Duration::from_millis(300), refresh(&site, "searcher")).await;
    assert!(dropped.is_err(), "{dropped:?}");
    login.restore("/token");
    tokio::time::sleep(ANSWERED).await;
    refresh(&site, "searcher").await.unwrap();
    assert_eq!(login.asked("/token").len(), 2);
    assert_eq!(server.asked("tools/list").last().unwrap().header("authorization"), "Bearer access-token-2");
    clock.advance(Duration::from_secs(3_650));
    refresh(&site, "searcher").await.unwrap();
    let form = login.asked("/token").pop().unwrap().body;
    assert!(form.contains("refresh_token=refresh-token-2"), "{form}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_each_token_has_none_replaced_again_at_once() {
    let (login, _server, site, clock) = start_by_clock().await;
    log_in(&site, "searcher").await.unwrap();
    login.replace("/token", Replaced::Keys(json!({"access_token": "not-accepted"})));
    login.revoke_all();
    for (asked, told) in [(2, "with a new token too"), (2, "replaced a moment ago"), (2, "replaced a moment ago")] {
        let error = refresh(&site, "searcher").await.unwrap_err();
        assert!(error.contains(told) && error.contains("run `trellis mcp login"), "{error}");
        assert_eq!(login.asked("/token").len(), asked);
    }
    clock.advance(Duration::from_secs(31));
    login.restore("/token");
    refresh(&site, "searcher").await.unwrap();
    assert_eq!(login.asked("/token").len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_login_server_repeats_of_a_request_is_masked() {
    let (login, _server, site, clock) = start_by_clock().await;
    log_in(&site, "searcher").await.unwrap();
    clock.advance(Duration::from_secs(3_650));
    for said in ["the token refresh-token-1 is unknown".to_owned(), format!("{}refresh-token-1", "x".repeat(66))] {
        let body = json!({"error": "server_error", "error_description": said}).to_string().into_bytes();
        login.replace("/token", Replaced::Body(400, body));
        let error = refresh(&site, "searcher").await.unwrap_err();
        assert!(error.contains("server_error") && !error.contains("refresh-to"), "{error}");
    }
}

/// Settings of a login of the venue itself.
async fn machine_auth(site: &ClientSite, login: &LoginServer, scopes: Option<Value>) -> Value {
    let host = login.base().trim_start_matches("http://");
    let key = json!({"name": "ROBOT", "value": "hunter2hunter2", "hosts": [host], "overwrite": true});
    operate(&site.venue.venue, &boss(&site.venue.owner), "secret/set", key).await.unwrap();
    let mut auth = json!({
        "grant": "client_credentials", "issuer": login.base(), "clientId": "robot",
        "clientSecret": {"$secret": "s/ROBOT"}
    });
    if let Some(scopes) = scopes {
        auth["scopes"] = scopes;
    }
    json!({"auth": auth})
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_scopes_are_all_that_the_venue_asks_for() {
    let login = LoginServer::start().await;
    let (accepts, prm) = (login.checker(), format!("resource_metadata=\"{}/prm\"", login.base()));
    let server = McpTestServer::start(STATELESS, vec![text_tool("pay", json!({}))], move |asked| {
        let token = asked.header("authorization").strip_prefix("Bearer ").unwrap_or_default();
        let refuse = |status, more| Some(McpReply::Status(status, "www-authenticate", format!("Bearer {more}, {prm}")));
        match (accepts(token), asked.method()) {
            (false, _) => refuse(401, "scope=\"read write admin\""),
            (true, "tools/call") => refuse(403, "error=\"insufficient_scope\", scope=\"admin\""),
            (true, _) => None,
        }
    })
    .await;
    login.set_server(&server);
    let site = ClientSite::new().await;
    let auth = machine_auth(&site, &login, Some(json!(["read", "write"]))).await;
    site.agent("payer", &server, auth).await;
    let job = site.venue.run("payer", "t1", json!("go")).await;
    let told = super::told(&job);
    assert!(told.contains("it wants the scopes `admin` too, and `auth.scopes`"), "{told}");
    // A token with scopes that the configuration has no more is used no more.
    let auth = machine_auth(&site, &login, Some(json!(["read"]))).await;
    site.agent("payer", &server, auth).await;
    refresh(&site, "payer").await.unwrap();
    let scopes: Vec<String> = login.asked("/token").iter().map(|asked| asked_scope(&asked.body)).collect();
    assert_eq!(scopes, ["read%20write", "read"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn logins_are_sealed_again_when_keys_are_rotated() {
    let (login, _server, mut site, _) = start_by_clock().await;
    log_in(&site, "searcher").await.unwrap();
    let (old, new) = ("01".repeat(32), "02".repeat(32));
    let both = Vault::new(KeyRing::parse(&format!("{new}\n{old}")).unwrap());
    let (store, now) = (Arc::clone(&site.venue.venue.store), site.venue.venue.now());
    let done = rotate_keys(&both, &*store, now).await.unwrap();
    assert_eq!((done.owners, done.rotated, done.failed.len()), (1, 1, 0), "{done:?}");
    let again = rotate_keys(&both, &*store, now).await.unwrap();
    assert_eq!((again.rotated, again.current), (0, 1), "{again:?}");
    Arc::get_mut(&mut site.venue.venue).unwrap().secrets = Vault::new(KeyRing::parse(&new).unwrap());
    refresh(&site, "searcher").await.unwrap();
    assert_eq!(login.asked("/token").len(), 1, "the login counts as before");
    // Without its key nothing of it can be opened, and a rotation says so.
    let lost = rotate_keys(&Vault::new(KeyRing::parse(&old).unwrap()), &*store, now).await.unwrap();
    assert!(lost.failed[0].contains("document `g/searcher/mcp.login/shop`"), "{:?}", lost.failed);
}
