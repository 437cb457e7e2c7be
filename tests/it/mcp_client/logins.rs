//! Logins at servers of tools: of a person, and of the venue itself.

use super::login_server::{LoginServer, Replaced, asked_scope, begin, finish, log_in, refresh};
use super::{ClientSite, RULES, any_loopback, shop_agent, told};
use crate::support::mcp_server::{McpReply, McpTestServer, STATELESS, text_tool};
use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use trellis::domain::mcp::oauth::client::ClientMetadata;
use trellis::domain::mcp::oauth::location::client_metadata_url;
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;

/// A site with an agent `searcher` whose server wants a login.
async fn start(more: Value) -> (LoginServer, McpTestServer, ClientSite) {
    let login = LoginServer::start().await;
    let server = login.guard(None).await;
    let site = ClientSite::new().await;
    site.agent("searcher", &server, more).await;
    (login, server, site)
}

/// The first server of an agent, as people see it.
async fn shown(site: &ClientSite) -> Value {
    let input = json!({"agent": "searcher"});
    let listed = operate(&site.venue.venue, &boss(&site.venue.owner), "mcp/servers", input).await.unwrap();
    listed["items"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_logs_in_and_the_agent_uses_the_tools() {
    let (login, server, site) = start(json!({})).await;
    let job = site.venue.run("searcher", "t1", json!("go")).await;
    assert_eq!(site.outcomes(&job).await[0], ["unknown tool"]);
    let failure = shown(&site).await["failure"].as_str().unwrap().to_owned();
    assert!(failure.contains("run `trellis mcp login shop --agent searcher`"), "{failure}");
    assert!(login.asked("/prm").is_empty(), "no call looks for a login server");

    let found = log_in(&site, "searcher").await.unwrap();
    assert_eq!((&found["issuer"], &found["by"]), (&json!(login.base()), &json!("local/me")));
    assert_eq!((&found["ended"], &found["renewable"]), (&json!(false), &json!(true)));
    let form = login.asked("/token")[0].body.clone();
    assert!(form.contains("code_verifier=") && form.contains("&client_id=client-1"), "{form}");
    assert!(form.contains("resource=http%3A%2F%2F127.0.0.1%3A"), "{form}");
    let job = site.venue.run("searcher", "t2", json!("go")).await;
    assert_eq!(site.outcomes(&job).await[0], ["ok"]);
    assert_eq!(server.asked("tools/call")[0].header("authorization"), "Bearer access-token-1");
    let told = shown(&site).await;
    assert_eq!((&told["login"]["ended"], &told["login"]["renewable"]), (&json!(false), &json!(true)));
    assert!(!told.to_string().contains("token-1"), "{told}");

    let input = json!({"server": "shop", "agent": "searcher"});
    let out = operate(&site.venue.venue, &boss(&site.venue.owner), "mcp/logout", input).await.unwrap();
    assert_eq!(out, json!({"ended": true}));
    assert!(refresh(&site, "searcher").await.unwrap_err().contains("run `trellis mcp login"));
    assert_eq!(shown(&site).await["login"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_of_its_owner_and_agent_alone() {
    let (login, server, site) = start(json!({})).await;
    log_in(&site, "searcher").await.unwrap();
    refresh(&site, "searcher").await.unwrap();
    site.agent("payer", &server, json!({})).await;
    assert!(refresh(&site, "payer").await.unwrap_err().contains("run `trellis mcp login shop --agent payer`"));
    // Another URL under the name, or another login server in its settings, is another login.
    let other = login.guard(None).await;
    for (server, more) in [(&other, json!({})), (&server, json!({"auth": {"issuer": "http://127.0.0.1:9"}}))] {
        site.agent("searcher", server, more).await;
        let error = refresh(&site, "searcher").await.unwrap_err();
        assert!(error.contains("run `trellis mcp login"), "{error}");
    }
    assert!(server.asked("tools/list").last().unwrap().header("authorization").is_empty());
    assert!(other.asked("tools/list").iter().all(|asked| asked.header("authorization").is_empty()));
}

/// A site by a clock that the test sets.
pub async fn start_by_clock() -> (LoginServer, McpTestServer, ClientSite, Clock) {
    let (login, clock) = (LoginServer::start().await, Clock::manual(Millis(1_800_000_000_000)));
    let server = login.guard(None).await;
    let (mut venue, dir) = TestVenue::embedded_at(RULES, clock.clone()).await;
    Arc::get_mut(&mut venue.venue).unwrap().catalog = trellis::ops::catalog_with(true, any_loopback());
    let site = ClientSite::with_catalog(venue, dir);
    site.agent("searcher", &server, json!({})).await;
    (login, server, site, clock)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_calls_renew_a_token_once_before_it_ends() {
    let (login, server, site, clock) = start_by_clock().await;
    log_in(&site, "searcher").await.unwrap();
    refresh(&site, "searcher").await.unwrap();
    clock.advance(Duration::from_secs(3_550));
    let asked = futures::future::join_all((0..8).map(|_| refresh(&site, "searcher"))).await;
    assert!(asked.iter().all(Result::is_ok), "{asked:?}");
    clock.advance(Duration::from_secs(3_650));
    let asked = futures::future::join_all((0..8).map(|_| refresh(&site, "searcher"))).await;
    assert!(asked.iter().all(Result::is_ok), "{asked:?}");
    let forms: Vec<_> = login.asked("/token").into_iter().map(|asked| asked.body).collect();
    assert_eq!(forms.len(), 3, "{forms:?}");
    assert!(forms[1].contains("refresh_token=refresh-token-1"), "{forms:?}");
    assert!(forms[2].contains("refresh_token=refresh-token-2"), "{forms:?}");
    assert!(forms[1..].iter().all(|form| form.contains("resource=")), "{forms:?}");
    assert_eq!(server.asked("tools/list").last().unwrap().header("authorization"), "Bearer access-token-3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_cannot_be_renewed_is_sent_no_more() {
    let (login, server, site, clock) = start_by_clock().await;
    log_in(&site, "searcher").await.unwrap();
    // A login server that fails for a while costs nothing as long as the token lasts.
    clock.advance(Duration::from_secs(3_590));
    login.replace("/token", Replaced::Body(503, Vec::new()));
    refresh(&site, "searcher").await.unwrap();
    clock.advance(Duration::from_secs(20));
    let error = refresh(&site, "searcher").await.unwrap_err();
    assert!(error.contains("status 503"), "{error}");
    let refused = json!({"error": "invalid_grant", "error_description": "gone"}).to_string().into_bytes();
    login.replace("/token", Replaced::Body(400, refused));
    let error = refresh(&site, "searcher").await.unwrap_err();
    assert!(error.contains("invalid_grant: gone") && error.contains("run `trellis mcp login"), "{error}");
    let (asked, sent) = (login.asked("/token").len(), server.asked("tools/list").len());
    for _ in 0..3 {
        let error = refresh(&site, "searcher").await.unwrap_err();
        assert!(error.contains("run `trellis mcp login shop --agent searcher`"), "{error}");
    }
    assert_eq!((login.asked("/token").len(), server.asked("tools/list").len()), (asked, sent), "nothing is sent");
    assert_eq!(shown(&site).await["login"]["ended"], true);
    login.restore("/token");
    log_in(&site, "searcher").await.unwrap();
    refresh(&site, "searcher").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_token_is_renewed_once_and_then_given_up() {
    let (login, server, site, clock) = start_by_clock().await;
    log_in(&site, "searcher").await.unwrap();
    login.revoke_all();
    refresh(&site, "searcher").await.unwrap();
    assert_eq!(login.asked("/token").len(), 2);
    clock.advance(Duration::from_secs(31));
    // A server that takes no token gets two requests for a call, and no more.
    let keys = Replaced::Keys(json!({"access_token": "not-accepted"}));
    login.replace("/token", keys);
    login.revoke_all();
    let before = server.asked("tools/list").len();
    let error = refresh(&site, "searcher").await.unwrap_err();
    assert!(error.contains("status 401, with a new token too: run `trellis mcp login"), "{error}");
    assert_eq!(server.asked("tools/list").len(), before + 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_venue_logs_in_by_itself_with_a_secret_bound_to_its_login_server() {
    let login = LoginServer::start().await;
    let server = login.guard(None).await;
    let site = ClientSite::new().await;
    let auth = json!({
        "grant": "client_credentials", "issuer": login.base(), "clientId": "robot", "scopes": ["read"],
        "clientSecret": {"$secret": "s/ROBOT"}
    });
    site.agent("searcher", &server, json!({"auth": auth})).await;
    let bind = async |host: &str| {
        let input = json!({"name": "ROBOT", "value": "hunter2hunter2", "hosts": [host], "overwrite": true});
        operate(&site.venue.venue, &boss(&site.venue.owner), "secret/set", input).await.unwrap();
    };
    bind("127.0.0.1:9").await;
    let error = refresh(&site, "searcher").await.unwrap_err();
    assert!(error.contains("secret `ROBOT` may not go to"), "{error}");
    assert!(login.asked("/token").is_empty());
    bind(login.base().trim_start_matches("http://")).await;
    refresh(&site, "searcher").await.unwrap();
    let job = site.venue.run("searcher", "t1", json!("go")).await;
    assert_eq!(site.outcomes(&job).await[0], ["ok"]);
    let asked = login.asked("/token");
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert!(asked[0].body.contains("grant_type=client_credentials") && asked[0].body.contains("scope=read"));
    assert!(asked[0].authorization.starts_with("Basic ") && !asked[0].body.contains("hunter2"), "{asked:?}");
    login.revoke_all();
    refresh(&site, "searcher").await.unwrap();
    let refused = begin(&site, "searcher").await.unwrap_err().to_string();
    assert!(refused.contains("the venue logs in there by itself"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn scopes_that_a_call_lacks_are_asked_for_once() {
    let login = LoginServer::start().await;
    let (accepts, prm) = (login.checker(), format!("resource_metadata=\"{}/prm\"", login.base()));
    let server = McpTestServer::start(STATELESS, vec![text_tool("pay", json!({}))], move |asked| {
        let token = asked.header("authorization").strip_prefix("Bearer ").unwrap_or_default();
        let refuse = |status: u16, more: &str| {
            Some(McpReply::Status(status, "www-authenticate", format!("Bearer {more}, {prm}")))
        };
        match (accepts(token), asked.method(), token) {
            (false, ..) => refuse(401, "scope=\"read\""),
            (true, "tools/call", "access-token-1") => refuse(403, "error=\"insufficient_scope\", scope=\"write\""),
            (true, "tools/call", "access-token-3") => refuse(403, "error=\"insufficient_scope\", scope=\"read\""),
            (true, ..) => None,
        }
    })
    .await;
    login.set_server(&server);
    let key =
        json!({"name": "ROBOT", "value": "hunter2hunter2", "hosts": [login.base().trim_start_matches("http://")]});
    let site = ClientSite::new().await;
    operate(&site.venue.venue, &boss(&site.venue.owner), "secret/set", key).await.unwrap();
    let auth = json!({
        "grant": "client_credentials", "issuer": login.base(), "clientId": "robot",
        "clientSecret": {"$secret": "s/ROBOT"}
    });
    site.agent("payer", &server, json!({"auth": auth})).await;
    let job = site.venue.run("payer", "t1", json!("go")).await;
    assert_eq!(site.outcomes(&job).await[0], ["ok"]);
    let scopes = || -> Vec<String> { login.asked("/token").iter().map(|asked| asked_scope(&asked.body)).collect() };
    assert_eq!(scopes(), ["read", "write%20read"]);
    assert_eq!(server.asked("tools/call").len(), 2, "the call was sent once more");
    // Scopes that the token was asked for already are no reason for another one.
    login.revoke_all();
    refresh(&site, "payer").await.unwrap();
    let job = site.venue.run("payer", "t2", json!("go")).await;
    let told = told(&job);
    assert!(told.contains("so another one changes nothing"), "{told}");
    assert_eq!((scopes().len(), server.asked("tools/call").len()), (3, 3));
}

#[test]
fn the_venue_describes_itself_to_login_servers() {
    let url = client_metadata_url("https://venue.example/").unwrap();
    let expected = json!({
        "client_id": "https://venue.example/client-metadata.json", "client_name": "Trellis (home)",
        "redirect_uris": ["http://127.0.0.1/callback", "http://[::1]/callback", "http://localhost/callback"],
        "grant_types": ["authorization_code", "refresh_token"], "response_types": ["code"],
        "token_endpoint_auth_method": "none", "application_type": "native"
    });
    assert_eq!(json!(ClientMetadata::at_url("home", url)), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_people_log_in_and_a_code_counts_once() {
    let (login, server, site) = start(json!({})).await;
    let answer = begin(&site, "searcher").await.unwrap();
    // The answer of another owner's login is no answer here.
    let other = boss(&"local/other".parse().unwrap());
    let mut config = shop_agent(&server.url(), json!({}));
    config["model"] = "scripted/echo".into();
    let create = json!({"agentId": "searcher", "config": config});
    operate(&site.venue.venue, &other, "agent/create", create).await.unwrap();
    let mut input = json!({"server": "shop", "agent": "searcher"});
    input.as_object_mut().unwrap().extend(answer.clone());
    let stolen = operate(&site.venue.venue, &other, "mcp/login-finish", input).await.unwrap_err().to_string();
    assert!(stolen.contains("no login with this `state`"), "{stolen}");
    finish(&site, "searcher", answer.clone()).await.unwrap();
    let again = finish(&site, "searcher", answer).await.unwrap_err().to_string();
    assert!(again.contains("no login with this `state`"), "{again}");
    assert_eq!(login.asked("/token").len(), 1);
    let agent = trellis::venue::operation::Caller { name: "agent:searcher".into(), ..boss(&site.venue.owner) };
    let input = json!({"server": "shop", "agent": "searcher", "redirect": super::login_server::REDIRECT});
    let denied = operate(&site.venue.venue, &agent, "mcp/login", input).await.unwrap_err().to_string();
    assert!(denied.contains("no agent may call it"), "{denied}");
}
