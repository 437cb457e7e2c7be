//! Users of a tenant together: no more than its number are registered, and they share what it may spend in a day.

use super::{DONE_RULES, ended, model, start, sum_completed, why};
use crate::support::both_stores::{On, on_both};
use crate::support::cli::{Up, run};
use crate::support::http::{Answer, Server};
use crate::support::venue::TestVenue;
use futures::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::LiveSubject;
use trellis::domain::cap::{CapUse, Ceiling, SpendSettings};
use trellis::domain::ids::Owner;
use trellis::domain::job::{Job, JobStatus};
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::retention::RetentionRules;
use trellis::domain::shard::Share;
use trellis::domain::tenant_users::TenantUserLimits;
use trellis::process::clock::Clock;
use trellis::store::keys;
use trellis::store::tenants::TenantStore;
use trellis::venue::spending;
use trellis::venue::tenant_owner;
use trellis::venue::upkeep::retention::Janitor;

const REFUSED: &str =
    "QUOTA_EXCEEDED: tenant `local` may have 1 users, 1 are registered and `local/you` would be one more";

on_both! {
    a_user_beyond_the_tenants_number_is_refused
    an_operator_adds_a_user_to_a_full_tenant
    a_queue_submission_registers_no_user_of_a_full_tenant
    users_of_a_tenant_share_its_day
    users_that_race_for_their_tenants_cap_do_not_pass_it
    a_damaged_account_of_a_tenant_stops_no_call
}

fn owner(name: &str) -> Owner {
    name.parse().unwrap()
}

/// A venue where the tenant of its owner may have one user, who is registered.
async fn full_tenant(on: On) -> Option<(TestVenue, tempfile::TempDir)> {
    let (mut venue, dir) = on.venue(DONE_RULES, Clock::system()).await?;
    let limits = TenantUserLimits { general: 0, named: TenantUserLimits::parse_named("local:1").unwrap() };
    let inner = Arc::get_mut(&mut venue.venue).unwrap();
    inner.store = Arc::new(TenantStore::new(Arc::clone(&inner.store), limits.clone()));
    inner.quota.tenant_users = limits;
    venue.agent("a", json!({})).await;
    Some((venue, dir))
}

async fn send(api: &Server, owner: &str, method: Method, path: &str, body: Value) -> Answer {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    api.send(method, &format!("/api/v1/{path}"), &[("x-trellis-owner", owner)], body).await
}

async fn listed(venue: &TestVenue) -> Vec<Owner> {
    let mut owners = venue.venue.store.owners(None, 100).await.unwrap();
    owners.retain(|owner| owner.user().as_str() != "_venue");
    owners
}

async fn a_user_beyond_the_tenants_number_is_refused(on: On) {
    let Some((venue, _dir)) = full_tenant(on).await else { return };
    let api = Server::of(Arc::clone(&venue.venue)).await;
    let call = |operation: &str, input: Value| json!({"operation": format!("v/ops/{operation}"), "input": input});
    let agent = json!({"model": {"provider": "scripted", "name": "echo"}});
    let write = call("lattice/write", json!({"path": "w/x", "value": 1}));
    for (method, path, body) in [
        (Method::PUT, "agents/new", agent.clone()),
        (Method::POST, "run", write.clone()),
        (Method::POST, "run", call("asset/store", json!({"content": "x"}))),
        // Its record comes before it, whatever the quota.
        (Method::POST, "run", call("test/once", json!({}))),
        (Method::POST, "invoke", write.clone()),
    ] {
        for _ in 0..2 {
            let answer = send(&api, "local/you", method.clone(), path, body.clone()).await;
            answer.is_problem(507, REFUSED);
            assert_eq!(answer.body["code"], "QUOTA_EXCEEDED", "{path}");
            assert_eq!(answer.header("retry-after"), "", "time alone makes no room");
        }
    }
    // Without an agent nothing is submitted, and what is read registers nobody.
    assert_eq!(send(&api, "local/you", Method::POST, "agents/a/tasks", json!({"input": 1})).await.status.as_u16(), 404);
    let shown = send(&api, "local/you", Method::GET, "quota", Value::Null).await.body(200);
    assert_eq!((&shown["tenantUsers"], &shown["documents"]["used"]), (&json!({"used": 1, "limit": 1}), &json!(0)));
    assert_eq!(listed(&venue).await, [owner("local/me")]);
    // The registered user goes on, and so do other tenants with any number of users.
    send(&api, "local/me", Method::POST, "run", write.clone()).await.body(200);
    for other in ["other/x", "other/y", "local2/you"] {
        send(&api, other, Method::POST, "run", write.clone()).await.body(200);
    }
    let shown = send(&api, "other/x", Method::GET, "quota", Value::Null).await.body(200);
    assert_eq!(shown["tenantUsers"], Value::Null, "any number");
}

async fn an_operator_adds_a_user_to_a_full_tenant(on: On) {
    let Some((venue, _dir)) = full_tenant(on).await else { return };
    let api = Server::of(Arc::clone(&venue.venue)).await;
    let agent = json!({"model": {"provider": "scripted", "name": "echo"}});
    send(&api, "local/you", Method::PUT, "agents/new", agent.clone()).await.is_problem(507, REFUSED);
    let shown = send(&api, "local/you", Method::PUT, "quota", json!({"documents": 100})).await.body(200);
    assert_eq!(shown["tenantUsers"], json!({"used": 2, "limit": 1}));
    assert!(send(&api, "local/you", Method::PUT, "agents/new", agent.clone()).await.status.is_success());
    let third = send(&api, "local/eve", Method::PUT, "agents/new", agent).await;
    third.is_problem(507, "tenant `local` may have 1 users, 2 are registered and `local/eve` would be one more");
}

async fn a_queue_submission_registers_no_user_of_a_full_tenant(on: On) {
    let Some((venue, _dir)) = full_tenant(on).await else { return };
    venue.worker();
    let answer = through_queue(&venue, "local/you", "_INBOX.tenant.1").await;
    assert_eq!(answer["status"], "REJECTED", "{answer}");
    assert!(answer["error"].as_str().unwrap().contains("no such agent"), "{answer}");
    assert_eq!(listed(&venue).await, [owner("local/me")]);
}

/// Sends a task through the queue, and returns what comes to its inbox.
async fn through_queue(venue: &TestVenue, name: &str, inbox: &str) -> Value {
    let bus = &venue.venue.bus;
    let mut answers = bus.listen(&LiveSubject::Reply(inbox.into())).await.unwrap();
    let to = MessageAddress::In { owner: owner(name), agent: "a".parse().unwrap(), kind: InboundKind::Task };
    let body = json!({"input": "go", "replyTo": inbox});
    bus.publish(&BusMessage { to, id: Some("queued".into()), body, trace: None }).await.unwrap();
    let answer = tokio::time::timeout(Duration::from_mins(1), answers.next()).await.unwrap().unwrap();
    serde_json::from_slice(&answer).unwrap()
}

/// A venue whose tenant `local` has this cap, with agents of two of its users and of another tenant's.
async fn capped_tenant(on: On, cap: &str) -> Option<(TestVenue, tempfile::TempDir)> {
    let (mut venue, dir) = on.venue(DONE_RULES, Clock::manual(start())).await?;
    let tenants = Ceiling::parse_tenants(&format!("local:{cap}")).unwrap();
    Arc::get_mut(&mut venue.venue).unwrap().spend = SpendSettings { tenants, ..SpendSettings::default() };
    venue.sweep = Duration::from_millis(50);
    for name in ["other/x", "local/you", "local/me"] {
        venue.owner = owner(name);
        for agent in ["a", "slow"] {
            venue.agent(agent, json!({"model": model(), "concurrency": 16})).await;
        }
    }
    Some((venue, dir))
}

/// Runs a task of an owner.
async fn run_for(venue: &mut TestVenue, name: &str, id: &str) -> Job {
    venue.owner = owner(name);
    let job = venue.submit("a", id, json!("go")).await.job.unwrap();
    ended(venue, &job).await
}

async fn account(venue: &TestVenue) -> CapUse {
    let key = keys::owner_cap(&venue.venue.day().1);
    venue.venue.store.get(&tenant_owner(&owner("local/me")), &key).await.unwrap().unwrap_or_default()
}

async fn users_of_a_tenant_share_its_day(on: On) {
    let Some((mut venue, _dir)) = capped_tenant(on, "tokens=12000").await else { return };
    venue.worker();
    let (mut made, mut failed) = (0, 0);
    // Until neither of them has room.
    for n in 0..80 {
        let job = run_for(&mut venue, ["local/me", "local/you"][n % 2], &format!("t{n}")).await;
        if job.status == JobStatus::Complete {
            (made, failed) = (made + 1, 0);
            continue;
        }
        let text = why(&job);
        assert!(text.contains("the cap of tenant `local` for a day is reached"), "{text}");
        assert!(text.contains("it resets at 2026-11-23T00:00:00.000Z (UTC)"), "{text}");
        failed += 1;
        if failed == 2 {
            break;
        }
    }
    assert!(made > 1 && failed == 2, "{made} made, {failed} failed");
    let spent = account(&venue).await;
    assert_eq!((spent.spent.turns, spent.held.len()), (made, 0), "{spent:?}");
    assert!(spent.spent.tokens <= 12_000);
    // Over the queue both users are told the same; another tenant goes on.
    for name in ["local/me", "local/you"] {
        let told = through_queue(&venue, name, &format!("_INBOX.tenant.{}", name.len())).await;
        assert_eq!((&told["status"], &told["errorCode"]), (&json!("FAILED"), &json!("LIMIT_REACHED")), "{told}");
        assert!(told["error"].as_str().unwrap().contains("the cap of tenant `local`"), "{told}");
    }
    assert_eq!(run_for(&mut venue, "other/x", "other").await.status, JobStatus::Complete);
    // Both see what is left of it, over HTTP, too.
    let api = Server::of(Arc::clone(&venue.venue)).await;
    for (name, expected) in [("local/me", true), ("local/you", true), ("other/x", false)] {
        let shown = send(&api, name, Method::GET, "spend", Value::Null).await.body(200);
        let caps = shown["caps"].as_array().unwrap();
        assert_eq!(caps.iter().any(|cap| cap["of"] == "tenant"), expected, "{name}: {shown}");
        let limit = caps.iter().find(|cap| cap["of"] == "tenant").map(|cap| cap["tokens"].clone());
        let used = json!({"limit": 12_000, "used": spent.spent.tokens, "held": 0});
        assert_eq!(limit, expected.then_some(used), "{name}");
    }
    // The next day has room, and old days are not kept for ever.
    venue.venue.clock.advance(Duration::from_hours(14));
    assert_eq!(run_for(&mut venue, "local/you", "tomorrow").await.status, JobStatus::Complete);
    venue.venue.clock.advance(Duration::from_hours(24 * 40));
    Janitor::new(RetentionRules::NEVER).tidy_share(&venue.venue, &Share::default()).await.unwrap();
    let tenant = tenant_owner(&owner("local/me"));
    let kept = venue.venue.store.scan(&tenant, keys::OWNER_CAPS, None, false, 9).await.unwrap();
    let kept: Vec<_> = kept.into_iter().map(|(key, _)| key).collect();
    assert_eq!(kept, [keys::owner_cap("2026-11-23")]);
}

async fn users_that_race_for_their_tenants_cap_do_not_pass_it(on: On) {
    const CAP: u64 = 30_000;
    let Some((mut venue, _dir)) = capped_tenant(on, &format!("tokens={CAP}")).await else { return };
    let mut submitted = Vec::new();
    for n in 0..24 {
        venue.owner = owner(["local/me", "local/you"][n % 2]);
        let job = venue.submit("slow", &format!("t{n}"), json!("go on ".repeat(700))).await.job.unwrap();
        submitted.push((venue.owner.clone(), job));
    }
    venue.worker();
    venue.worker();
    let mut jobs = Vec::new();
    for (of, job) in submitted {
        venue.owner = of;
        jobs.push(ended(&venue, &job).await);
    }
    let (made, used) = sum_completed(&jobs, "the cap of tenant `local`");
    assert!(made > 3 && made < 24, "{made} made");
    let spent = account(&venue).await;
    assert_eq!((spent.spent.tokens, spent.spent.turns, spent.held.len()), (used, made, 0));
    assert!(used <= CAP, "{used} of {CAP}");
    // A call that its tenant's cap refuses holds nothing of its owner's caps.
    let caps = spending::caps(&venue.venue, &venue.owner, "local/me", None, false).await.unwrap();
    assert_eq!(caps.iter().map(|cap| cap.of.as_str()).collect::<Vec<_>>(), ["tenant"]);
}

async fn a_damaged_account_of_a_tenant_stops_no_call(on: On) {
    let Some((mut venue, _dir)) = capped_tenant(on, "tokens=90000").await else { return };
    let key = keys::owner_cap(&venue.venue.day().1);
    let damaged = [trellis::store::DocWrite::put(key, "{")];
    venue.venue.store.write(venue.venue.now(), &tenant_owner(&venue.owner), &damaged).await.unwrap();
    venue.worker();
    assert_eq!(run_for(&mut venue, "local/me", "t1").await.status, JobStatus::Complete);
    assert_eq!(account(&venue).await.spent.turns, 1, "it counts from nothing again");
    let told = venue.venue.store.scan(&trellis::venue::venue_owner(), keys::LOSSES, None, false, 9).await.unwrap();
    assert_eq!(told.len(), 1, "operators are told");
}

#[test]
fn wrong_limits_of_tenants_are_refused_by_config_check() {
    let dir = tempfile::tempdir().unwrap();
    for (setting, err) in [
        ("quota.tenant_users=-1", "expected 0 to 1000000000, got `-1`"),
        ("quota.tenant_users=1000000001", "expected 0 to 1000000000"),
        ("quota.tenants=acme", "expected tenants with numbers of users"),
        ("quota.tenants=acme/ann:5", "expected tenants with numbers of users"),
        ("spend.tenant=5", "`spend.tenant`"),
        ("spend.tenant=tokens=0", "`spend.tenant`"),
        ("spend.tenants=acme/ann:tokens=5", "expected tenants with commas between"),
        ("spend.tenants=acme:tokens=5, acme:none", "expected tenants with commas between"),
        ("spend.tenant=cost=5", "needs the prices of the models"),
        ("spend.tenants=acme:cost=5", "needs the prices of the models"),
    ] {
        run(dir.path(), &["config", "check", "--set", setting]).expect(2, err);
    }
    let legal = ["quota.tenant_users=100", "quota.tenants=acme:500, did:0", "spend.tenants=acme:tokens=5, globex:none"];
    for setting in legal {
        run(dir.path(), &["config", "check", "--set", setting]).ok();
    }
}

#[test]
fn the_command_line_shows_the_users_of_a_tenant() {
    let up = Up::start_with(&["quota.tenant_users=1"]);
    up.agent("clerk", "echo");
    up.run(&["lattice", "write", "w/x", "1", "--owner", "local/you"]).expect(6, REFUSED);
    up.run(&["lattice", "write", "w/x", "1"]).ok();
    let table = up.run(&["quota"]).ok();
    let row = table.lines().find(|line| line.starts_with("users of the tenant")).unwrap();
    assert_eq!(row.split_whitespace().skip(4).collect::<Vec<_>>(), ["1", "1", "the", "venue"], "{table}");
}
