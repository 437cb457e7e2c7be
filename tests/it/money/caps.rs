//! Caps on spending in real turns: of a session, of an owner's day and of a model's day; two workers that
//! race for one, a worker that dies with a hold, midnight, and what people are told.

use super::{DONE_RULES, ended, model, start, why};
use crate::support::both_stores::On;
use crate::support::cli::Up;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::embedded::EmbeddedBus;
use trellis::domain::cap::{CapPolicy, CapUse, Ceiling, SpendSettings, Zone, parse_prices};
use trellis::domain::event::Submission;
use trellis::domain::ids::{Owner, SessionKey};
use trellis::domain::job::{Job, JobStatus};
use trellis::domain::retention::RetentionRules;
use trellis::domain::shard::Share;
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::faulty::{FaultAt, FaultPlan, FaultyStore};
use trellis::store::keys;
use trellis::venue::agents;
use trellis::venue::jobs;
use trellis::venue::spending;
use trellis::venue::upkeep::retention::Janitor;
use trellis::venue::venue_owner;
use trellis::view::spend::CapTokensView;

fn ceiling(text: &str) -> Ceiling {
    Ceiling::parse(text).unwrap()
}

/// A venue with these caps, by a clock that stands still; `None` where there is no such server.
async fn venue(on: On, spend: SpendSettings) -> Option<(TestVenue, tempfile::TempDir)> {
    let clock = Clock::manual(start());
    let (mut venue, dir) = on.venue(DONE_RULES, clock).await?;
    Arc::get_mut(&mut venue.venue).unwrap().spend = spend;
    venue.sweep = Duration::from_millis(50);
    for name in ["a", "slow"] {
        venue.agent(name, json!({"model": model()})).await;
    }
    Some((venue, dir))
}

async fn in_session(venue: &TestVenue, agent: &str, session: &str, id: &str) -> Job {
    let session_id = Some(session.parse().unwrap());
    let submission = Submission { input: json!("go"), session_id, ..Submission::default() };
    let job = venue.arrive(agent, id, true, submission).await.job.unwrap();
    ended(venue, &job).await
}

/// Runs tasks of an agent until one fails: how many did not, and that one.
async fn until_one_fails(venue: &TestVenue, agent: &str, session: Option<&str>, name: &str) -> (usize, Job) {
    for n in 0..40 {
        let own = format!("{name}-{n}");
        let job = in_session(venue, agent, session.unwrap_or(&own), &own).await;
        if job.status == JobStatus::Failed {
            return (n, job);
        }
    }
    panic!("no cap is reached");
}

async fn book(venue: &TestVenue, owner: &Owner, key: String) -> Option<CapUse> {
    let doc = venue.venue.store.read(owner, &[key]).await.unwrap().remove(0);
    doc.value.map(|bytes| serde_json::from_slice(&bytes).unwrap())
}

async fn an_owner_s_day_ends_at_midnight_of_its_zone(on: On) {
    let zone = Zone::parse("Europe/Berlin").unwrap();
    let spend = SpendSettings { zone, owner: ceiling("tokens=12000"), ..SpendSettings::default() };
    let Some((mut venue, _dir)) = venue(on, spend).await else { return };
    venue.worker();
    let (made, failed) = until_one_fails(&venue, "a", None, "first").await;
    assert!(made > 0);
    let text = why(&failed);
    assert!(text.contains("the cap of owner `local/me` for a day is reached"), "{text}");
    assert!(text.contains("it resets at 2026-11-22T23:00:00.000Z (Europe/Berlin)"), "{text}");
    let today = book(&venue, &venue.owner, keys::owner_cap("2026-11-22")).await.unwrap();
    assert!(today.spent.tokens <= 12_000 && today.held.is_empty(), "{today:?}");
    assert_eq!(today.spent.turns as usize, made);
    // Another owner has a day of its own.
    venue.owner = "local/you".parse().unwrap();
    venue.agent("a", json!({"model": model()})).await;
    assert_eq!(in_session(&venue, "a", "s", "other").await.status, JobStatus::Complete);
    venue.owner = "local/me".parse().unwrap();
    // What was spent is shown, with what the cap leaves.
    let shown = spending::today(&venue.venue, &venue.owner, 1).await.unwrap();
    assert_eq!((shown.day.as_str(), shown.spent.calls as usize), ("2026-11-22", made));
    assert_eq!((shown.sessions_in_all, shown.sessions.len()), (made, 1));
    let used = shown.spent.input + shown.spent.output;
    let caps = spending::caps(&venue.venue, &venue.owner, "local/me", None, false).await.unwrap();
    assert_eq!(caps[0].tokens, Some(CapTokensView { limit: 12_000, used, held: 0 }), "{caps:?}");
    // An hour before midnight nothing has changed; just after it there is room again.
    venue.venue.clock.advance(Duration::from_hours(12));
    why(&in_session(&venue, "a", "late", "late").await);
    venue.venue.clock.advance(Duration::from_hours(1));
    assert_eq!(in_session(&venue, "a", "new", "new").await.status, JobStatus::Complete);
    assert_eq!(book(&venue, &venue.owner, keys::owner_cap("2026-11-23")).await.unwrap().spent.turns, 1);
    assert_eq!(spending::today(&venue.venue, &venue.owner, 9).await.unwrap().spent.calls, 1);
    // The books of old days are not kept for ever.
    venue.venue.clock.advance(Duration::from_hours(24 * 40));
    Janitor::new(RetentionRules::NEVER).tidy_share(&venue.venue, &Share::default()).await.unwrap();
    for (prefix, left) in [(keys::OWNER_CAPS, 1), (keys::SESSION_DAYS, 1)] {
        let kept = venue.venue.store.scan(&venue.owner, prefix, None, false, 100).await.unwrap();
        let kept: Vec<_> = kept.into_iter().map(|(key, _)| key).collect();
        assert_eq!(kept.len(), left, "{kept:?}");
        assert!(kept[0].contains("2026-11-23"), "{kept:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owners_day_ends_at_midnight_on_the_embedded_store() {
    an_owner_s_day_ends_at_midnight_of_its_zone(On::Embedded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owners_day_ends_at_midnight_on_redis() {
    an_owner_s_day_ends_at_midnight_of_its_zone(On::Redis).await;
}

/// Two workers, two owners, and more tasks than a model's day has room for.
async fn a_fleet_never_passes_a_cap(on: On) {
    // Room for several calls at once, and for some twenty of all: each is held with its tools, of which this
    // model counts nothing, and uses less, most of it for what it is told.
    const CAP: u64 = 30_000;
    let told = "go on ".repeat(700);
    let models = Ceiling::parse_models(&format!("scripted:tokens={CAP}")).unwrap();
    let spend = SpendSettings { models, ..SpendSettings::default() };
    let Some((mut venue, _dir)) = venue(on, spend).await else { return };
    let owners: [Owner; 2] = ["local/me".parse().unwrap(), "local/you".parse().unwrap()];
    let mut submitted = Vec::new();
    for owner in &owners {
        venue.owner = owner.clone();
        venue.agent("slow", json!({"model": model(), "concurrency": 16})).await;
        for n in 0..16 {
            let job = venue.submit("slow", &format!("t{n}"), json!(told)).await.job.unwrap();
            submitted.push((owner.clone(), job));
        }
    }
    venue.worker();
    venue.worker();
    let (mut made, mut failed, mut used) = (0, 0, 0);
    for (owner, job) in submitted {
        venue.owner = owner;
        let job = ended(&venue, &job).await;
        if job.status == JobStatus::Complete {
            let own = job.tally.unwrap().spent;
            (made, used) = (made + 1, used + own.input + own.output);
        } else {
            failed += 1;
            let text = why(&job);
            assert!(text.contains("the venue's cap of `scripted` for a day is reached: what is left is too"), "{text}");
            assert!(
                !text.contains(&format!("of {CAP}")) && text.contains("resets at 2026-11-23T00:00:00.000Z (UTC)"),
                "{text}"
            );
        }
    }
    assert!(made > 3 && failed > 3, "{made} made, {failed} failed");
    let book = book(&venue, &venue_owner(), keys::model_cap("2026-11-22", "scripted")).await.unwrap();
    assert_eq!((book.spent.tokens, book.spent.turns, book.held.len()), (used, made, 0));
    assert!(used <= CAP && used > CAP * 8 / 10, "{used} of {CAP}");
    let (mut asked, mut running, mut most) = (0, 0, 0);
    for call in venue.model_calls() {
        let begins = call["event"] == "started";
        (asked, running) = if begins { (asked + 1, running + 1) } else { (asked, running - 1) };
        most = most.max(running);
    }
    assert_eq!(asked, made, "nobody is asked who isn't paid");
    assert!(most > 1, "calls run beside each other");
    // How much all have used together only operators see.
    let caps = spending::caps(&venue.venue, &venue.owner, "local/me", None, false).await.unwrap();
    assert_eq!((caps[0].model.as_deref(), caps[0].tokens), (Some("scripted"), None));
    let caps = spending::caps(&venue.venue, &venue.owner, "local/me", None, true).await.unwrap();
    assert_eq!(caps[0].tokens.unwrap().used, used);
    venue.venue.clock.advance(Duration::from_hours(24 * 42));
    Janitor::new(RetentionRules::NEVER).tidy_share(&venue.venue, &Share::default()).await.unwrap();
    assert_eq!(venue.venue.store.scan(&venue_owner(), keys::MODEL_CAPS, None, false, 9).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_racing_workers_do_not_pass_a_cap_on_embedded() {
    a_fleet_never_passes_a_cap(On::Embedded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_racing_workers_do_not_pass_a_cap_on_redis() {
    a_fleet_never_passes_a_cap(On::Redis).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_the_lower_cap_of_venue_and_agent() {
    let spend = SpendSettings { session: ceiling("tokens=90000"), ..SpendSettings::default() };
    let (venue, _dir) = venue(On::Embedded, spend).await.unwrap();
    venue.agent("a", json!({"model": model(), "limits": {"session": {"tokens": 9_000}}})).await;
    venue.worker();
    let (made, failed) = until_one_fails(&venue, "a", Some("s1"), "one").await;
    assert!(made > 0);
    let text = why(&failed);
    assert!(text.contains("the cap of this session is reached"), "{text}");
    assert!(text.ends_with("a session's cap never resets, a new session has its own"), "{text}");
    assert_eq!(in_session(&venue, "a", "s2", "two").await.status, JobStatus::Complete, "another session");
    venue.venue.clock.advance(Duration::from_hours(48));
    why(&in_session(&venue, "a", "s1", "three").await);
    let session: SessionKey = SessionKey { agent: "a".parse().unwrap(), session: "s1".parse().unwrap() };
    let caps = spending::caps(&venue.venue, &venue.owner, "local/me", Some(&session), false).await.unwrap();
    assert_eq!((caps[0].of.as_str(), caps[0].tokens.unwrap().limit), ("session", 9_000));
    // Deleted, its book goes with it.
    assert!(agents::amend::delete(&venue.venue, &venue.owner, &session).await.unwrap());
    assert_eq!(book(&venue, &venue.owner, keys::session_cap(&session)).await, None);
    assert_eq!(in_session(&venue, "a", "s1", "four").await.status, JobStatus::Complete);
    // A lower one counts at once for what was spent before.
    venue.agent("a", json!({"model": model(), "limits": {"session": {"tokens": 10}}})).await;
    why(&in_session(&venue, "a", "s1", "five").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_venue_says_so_a_task_waits_for_the_next_day() {
    let reached = CapPolicy::Wait;
    let spend = SpendSettings { owner: ceiling("tokens=3500"), reached, ..SpendSettings::default() };
    let (venue, _dir) = venue(On::Embedded, spend).await.unwrap();
    venue.worker();
    let mut waits = None;
    for n in 0..9 {
        let job = venue.submit("a", &format!("t{n}"), json!("go")).await.job.unwrap();
        for _ in 0..500 {
            let shown = jobs::read_for_people(&venue.venue, &venue.owner, &job).await.unwrap().unwrap();
            if shown.status.is_terminal() {
                break;
            }
            if let Some(waiting) = shown.waiting {
                waits = Some((job.clone(), waiting.reason));
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if waits.is_some() {
            break;
        }
    }
    let (job, reason) = waits.expect("one waits");
    assert!(reason.contains("it resets at 2026-11-23T00:00:00.000Z (UTC)"), "{reason}");
    venue.venue.clock.advance(Duration::from_hours(13));
    let still = jobs::get(&venue.venue, &venue.owner, &job).await.unwrap().unwrap();
    assert!(!still.status.is_terminal());
    venue.venue.clock.advance(Duration::from_hours(1));
    assert_eq!(ended(&venue, &job).await.status, JobStatus::Complete);
    // What fits on no day doesn't wait for one.
    venue.agent("a", json!({"model": model(), "systemPrompt": "x".repeat(20_000)})).await;
    assert!(why(&in_session(&venue, "a", "s", "large").await).contains("for a day is reached"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_money_cap_uses_the_venues_price_and_names_a_missing_one() {
    let spend = SpendSettings {
        owner: ceiling("cost=0.01"),
        prices: parse_prices("scripted/rules:input=1:output=10").unwrap(),
        ..SpendSettings::default()
    };
    let (venue, _dir) = venue(On::Embedded, spend).await.unwrap();
    // What its author says doesn't count.
    let mut cheap = model();
    cheap["price"] = json!({"input": 0.0, "output": 0.0});
    venue.agent("a", json!({"model": cheap})).await;
    let other = json!({"model": {"provider": "scripted", "name": "echo", "price": {"input": 0.0, "output": 0.0}}});
    venue.agent("b", other.clone()).await;
    let record = venue.record("b").await;
    let warned = agents::config_warnings::warnings(&venue.venue, &venue.owner, &record.config);
    assert_eq!(
        warned,
        ["`model`: the cap of owner `local/me` for a day is in money, and model `scripted/echo` has no price in \
          `spend.prices`: it is not called"]
    );
    assert!(agents::config_warnings::check(&venue.venue, &venue.owner, &record.config, true).is_err());
    venue.worker();
    let job = in_session(&venue, "b", "s", "b").await;
    assert!(why(&job).contains("no price in `spend.prices`"));
    assert_eq!(venue.model_calls(), Vec::<Value>::new());
    let (made, failed) = until_one_fails(&venue, "a", None, "a").await;
    let text = why(&failed);
    assert!(made > 0 && (text.contains("of $0.01 are used") || text.contains("too little")), "{made} {text}");
    let book = book(&venue, &venue.owner, keys::owner_cap("2026-11-22")).await.unwrap();
    assert!(book.spent.nano > 0 && book.spent.nano <= 10_000_000, "{book:?}");
    let shown = spending::today(&venue.venue, &venue.owner, 5).await.unwrap();
    assert_eq!(shown.models[0].model, "scripted/rules");
    assert!((shown.spent.cost.unwrap() - trellis::domain::budget::dollars(book.spent.nano)).abs() < 1e-9);
}

/// One task, whose worker dies at the n-th write; another ends it. Whether it died, and what is in the books.
async fn dies_at(n: u64, at: FaultAt, dir: &Path) -> (bool, [CapUse; 3], usize) {
    let clock = Clock::manual(start());
    let store = EmbeddedStore::open(&dir.join("store")).unwrap();
    let bus = Arc::new(EmbeddedBus::new(Arc::clone(&store), Duration::from_millis(150), Clock::system()).unwrap());
    let spend = SpendSettings {
        session: ceiling("tokens=900000"),
        owner: ceiling("tokens=900000"),
        models: Ceiling::parse_models("scripted:tokens=900000").unwrap(),
        ..SpendSettings::default()
    };
    let mut healthy = TestVenue::at(store.clone(), bus.clone(), dir, DONE_RULES, clock.clone()).await;
    Arc::get_mut(&mut healthy.venue).unwrap().spend = spend.clone();
    healthy.sweep = Duration::from_millis(50);
    healthy.agent("a", json!({"model": model()})).await;
    let faulty = FaultyStore::new(store, FaultPlan::Never);
    let mut mortal = TestVenue::at(faulty.clone(), bus, dir, DONE_RULES, clock.clone()).await;
    Arc::get_mut(&mut mortal.venue).unwrap().spend = spend;
    mortal.sweep = Duration::from_hours(1);
    faulty.set_plan(FaultPlan::From { n, at });
    mortal.worker();
    let submission = Submission { input: json!("go"), session_id: Some("s".parse().unwrap()), ..Submission::default() };
    let job = healthy.arrive("a", "t", true, submission).await.job.unwrap();
    let mut died = false;
    for _ in 0..150 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        died = !faulty.injected_faults().is_empty();
        if died || jobs::get(&healthy.venue, &healthy.owner, &job).await.unwrap().unwrap().status.is_terminal() {
            break;
        }
    }
    drop(mortal);
    clock.advance(Duration::from_secs(40));
    healthy.worker();
    assert_eq!(ended(&healthy, &job).await.status, JobStatus::Complete);
    let session = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
    let (own, shared) = (healthy.owner.clone(), venue_owner());
    let day = "2026-11-22";
    let books = [
        book(&healthy, &own, keys::session_cap(&session)).await.unwrap_or_default(),
        book(&healthy, &own, keys::owner_cap(day)).await.unwrap_or_default(),
        book(&healthy, &shared, keys::model_cap(day, "scripted")).await.unwrap_or_default(),
    ];
    let paid = healthy.model_calls().iter().filter(|call| call["event"] == "replied").count();
    (died, books, paid)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_death_after_a_hold_loses_no_paid_reply() {
    let mut deaths = 0;
    for n in 1..12 {
        for at in [FaultAt::Before, FaultAt::After] {
            let dir = tempfile::tempdir().unwrap();
            let (died, books, paid) = dies_at(n, at, dir.path()).await;
            deaths += usize::from(died);
            for (name, book) in ["session", "owner", "model"].iter().zip(&books) {
                // At most what the dead one held is counted beyond what was paid, and never less.
                let counted = book.spent.turns as usize + book.held.len();
                assert!(counted >= paid && counted <= paid + 1, "{n} {at:?} {name}: {book:?}, {paid} paid");
            }
        }
    }
    assert!(deaths > 8, "{deaths} deaths");
}

#[test]
fn spending_is_shown_over_http_and_on_the_command_line() {
    let up = Up::start_with(&["spend.owner=tokens=900000:cost=5", "spend.prices=scripted/echo:input=1:output=2"]);
    up.agent("helper", "echo");
    up.run(&["submit", "helper", "hello", "--wait"]).ok();
    let shown: Value = serde_json::from_str(&up.run(&["spend", "--output", "json"]).ok()).unwrap();
    assert_eq!((&shown["spent"]["calls"], &shown["models"][0]["model"]), (&json!(1), &json!("scripted/echo")));
    assert_eq!((&shown["caps"][0]["of"], &shown["caps"][0]["calls"]), (&json!("owner"), &json!(1)));
    let text = up.run(&["spend"]).ok();
    assert!(text.contains("1 calls, ") && text.contains("scripted/echo") && text.contains("CAP"), "{text}");
    let list = up.run(&["job", "list"]).ok();
    assert!(list.contains("TOKENS") && list.contains('$'), "{list}");
    up.run(&["spend", "--agent", "helper"]).expect(2, "--session");
    // A cap that can't be kept is refused at the start.
    let refused = up.run(&["config", "check", "--set", "spend.owner=cost=1"]);
    assert!(
        refused.code != 0 && refused.err.contains("needs the prices of the models in `spend.prices`"),
        "{refused:?}"
    );
    let refused = up.run(&["config", "check", "--set", "spend.zone=Mars"]);
    assert!(refused.code != 0 && refused.err.contains("expected an IANA time zone"), "{refused:?}");
}
