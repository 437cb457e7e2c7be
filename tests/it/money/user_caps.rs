//! Caps of the users behind one owner: each has a day of his own, which what agents do for him counts for, too.

use super::{DONE_RULES, ended, model, start, sum_completed, why};
use crate::support::both_stores::{On, on_both};
use crate::support::http::Server;
use crate::support::operate::operate;
use crate::support::venue::{TestVenue, job_record};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use trellis::domain::authority::Authority;
use trellis::domain::authority::envelope::Envelope;
use trellis::domain::cap::{CapUse, Ceiling, SpendSettings};
use trellis::domain::event::Submission;
use trellis::domain::ids::JobId;
use trellis::domain::job::JobStatus;
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::store::keys;
use trellis::venue::operation::{Caller, OpError};

/// Rule of an agent that gives another a task, before [`DONE_RULES`].
const BOSS_RULE: &str = r#"
[[rule]]
when = { agent = "boss", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "a", input = "go", wait = 60000 } }] }
"#;

on_both! {
    each_user_of_an_owner_has_a_day_of_his_own
    agents_calls_for_a_user_count_to_that_user
    workers_that_race_for_a_users_cap_do_not_pass_it
}

async fn site(on: On, cap: &str) -> Option<(TestVenue, tempfile::TempDir)> {
    let rules = format!("{BOSS_RULE}{DONE_RULES}");
    let (mut venue, dir) = on.venue(&rules, Clock::manual(start())).await?;
    let user = Ceiling::parse(cap).unwrap();
    Arc::get_mut(&mut venue.venue).unwrap().spend = SpendSettings { user, ..SpendSettings::default() };
    venue.sweep = Duration::from_millis(50);
    for name in ["a", "slow", "boss"] {
        venue.agent(name, json!({"model": model(), "concurrency": 16})).await;
    }
    Some((venue, dir))
}

/// A request that a token makes for this user.
fn of_user(user: &str, input: &str) -> Submission {
    let claims = json!({"user_id": user}).as_object().cloned().unwrap();
    let envelope = Envelope { claims, holders: vec!["local/me".into()], ..Envelope::default() };
    Submission { input: json!(input), envelope, ..Submission::default() }
}

async fn submit(venue: &TestVenue, agent: &str, user: &str, id: &str) -> JobId {
    venue.arrive(agent, id, true, of_user(user, "go")).await.job.unwrap()
}

async fn book(venue: &TestVenue, user: &str) -> CapUse {
    let key = keys::user_cap(&venue.venue.day().1, user);
    venue.venue.store.get(&venue.owner, &key).await.unwrap().unwrap_or_default()
}

async fn each_user_of_an_owner_has_a_day_of_his_own(on: On) {
    let Some((mut venue, _dir)) = site(on, "tokens=9000").await else { return };
    venue.worker();
    let mut made = 0;
    let failed = loop {
        let job = submit(&venue, "a", "ann", &format!("t{made}")).await;
        let job = ended(&venue, &job).await;
        if job.status == JobStatus::Failed {
            break job;
        }
        made += 1;
    };
    let text = why(&failed);
    assert!(made > 0 && text.contains("the cap of user `ann` for a day is reached"), "{text}");
    assert!(text.contains("it resets at 2026-11-23T00:00:00.000Z (UTC)"), "{text}");
    let of_ann = book(&venue, "ann").await;
    assert!(of_ann.spent.tokens <= 9_000 && of_ann.held.is_empty(), "{of_ann:?}");
    assert_eq!(of_ann.spent.turns, made);
    // Others of the same owner, and one of the same name elsewhere.
    let job = submit(&venue, "a", "bob", "bob").await;
    assert_eq!(ended(&venue, &job).await.status, JobStatus::Complete);
    // Whoever is named by no claim is the one who sent it.
    let nameless = venue.submit("a", "nameless", json!("go")).await.job.unwrap();
    assert_eq!(ended(&venue, &nameless).await.status, JobStatus::Complete);
    assert_eq!(book(&venue, "local/me").await.spent.turns, 1);
    let api = Server::of(Arc::clone(&venue.venue)).await;
    let shown = api.get("/api/v1/spend").await.body(200);
    assert_eq!((&shown["caps"][0]["of"], &shown["caps"][0]["user"]), (&json!("user"), &json!("local/me")));
    let shown = api.get("/api/v1/spend?user=ann").await.body(200);
    let used = of_ann.spent.tokens;
    assert_eq!(shown["caps"][0]["tokens"], json!({"limit": 9_000, "used": used, "held": 0}), "{shown}");
    assert_eq!(shown["caps"][0]["resets"], json!(Millis::parse("2026-11-23T00:00:00Z").unwrap()));
    // Whoever is no operator sees his own.
    let bob = Caller::new(venue.owner.clone(), "bob".into(), Authority::without_limits());
    let spend = async |input: Value| operate(&venue.venue, &bob, "v/ops/spend/today", input).await;
    assert_eq!(spend(json!({})).await.unwrap()["caps"][0]["tokens"]["used"], book(&venue, "bob").await.spent.tokens);
    assert!(matches!(spend(json!({"user": "ann"})).await, Err(OpError::Denied(_))));
    venue.owner = "local/you".parse().unwrap();
    venue.agent("a", json!({"model": model()})).await;
    let job = submit(&venue, "a", "ann", "elsewhere").await;
    assert_eq!(ended(&venue, &job).await.status, JobStatus::Complete);
    venue.owner = "local/me".parse().unwrap();
    venue.venue.clock.advance(Duration::from_hours(14));
    let job = submit(&venue, "a", "ann", "tomorrow").await;
    assert_eq!(ended(&venue, &job).await.status, JobStatus::Complete);
}

async fn agents_calls_for_a_user_count_to_that_user(on: On) {
    let Some((venue, _dir)) = site(on, "tokens=1000000").await else { return };
    venue.worker();
    let of_ann = submit(&venue, "boss", "ann", "claimed").await;
    let nameless = venue.submit("boss", "nameless", json!("go")).await.job.unwrap();
    for (job, user) in [(of_ann, "ann"), (nameless, "local/me")] {
        let job = ended(&venue, &job).await;
        assert_eq!(job.status, JobStatus::Complete);
        let tree = job_record(&job)["spend"]["tree"].clone();
        let spent = book(&venue, user).await.spent;
        assert_eq!((tree["calls"].as_u64(), spent.turns), (Some(3), 3), "two turns, and one of the child: {tree}");
        assert_eq!(tree["input"].as_u64().unwrap() + tree["output"].as_u64().unwrap(), spent.tokens);
    }
}

async fn workers_that_race_for_a_users_cap_do_not_pass_it(on: On) {
    const CAP: u64 = 30_000;
    let Some((venue, _dir)) = site(on, &format!("tokens={CAP}")).await else { return };
    let mut submitted = Vec::new();
    for n in 0..24 {
        let submission = of_user("ann", &"go on ".repeat(700));
        submitted.push(venue.arrive("slow", &format!("t{n}"), true, submission).await.job.unwrap());
    }
    venue.worker();
    venue.worker();
    let mut jobs = Vec::new();
    for job in &submitted {
        jobs.push(ended(&venue, job).await);
    }
    let (made, used) = sum_completed(&jobs, "the cap of user `ann`");
    assert!(made > 3 && made < 24, "{made} made");
    let of_ann = book(&venue, "ann").await;
    assert_eq!((of_ann.spent.tokens, of_ann.spent.turns, of_ann.held.len()), (used, made, 0));
    assert!(used <= CAP, "{used} of {CAP}");
}
