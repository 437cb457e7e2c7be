//! A damaged record costs its own session at most: the audit names it, and everything else goes on.

use super::{command, texts};
use crate::recovery::repair::lost;
use crate::support::nats;
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::nats::NatsBus;
use trellis::domain::ids::{JobId, Owner};
use trellis::domain::retention::RetentionRules;
use trellis::domain::shard::Share;
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::store::redis::{RedisStore, ServerOrInjected};
use trellis::venue::jobs;
use trellis::venue::upkeep::audit::{self, AuditWatch};
use trellis::venue::upkeep::retention::Janitor;

const START: Millis = Millis(1_767_225_600_000);
const ECHO: &str = "[[rule]]\nthen = { text = \"done {{input}}\" }\n";

/// A way to damage one record, and a word by which the audit must name it.
struct Damage {
    name: &'static str,
    /// The key behind the owner's base; `{s}` is the session.
    key: &'static str,
    /// The field or member; `{s}`, `{j}`, `{due}` stand for what their names say, `*` for the first one there.
    field: &'static str,
    /// What it becomes; `None`: nothing.
    value: Option<&'static str>,
    /// Empty of what is harmless: it stands for nothing, and is passed over.
    named: &'static str,
}

const fn damage(
    name: &'static str,
    key: &'static str,
    field: &'static str,
    value: Option<&'static str>,
    named: &'static str,
) -> Damage {
    Damage { name, key, field, value, named }
}

const DAMAGES: [Damage; 17] = [
    damage("an event without its body", ":event:{s}", "*", None, "{s}"),
    damage("an event that was cut", ":event:{s}", "*", Some("t"), "{s}"),
    damage("an event of junk", ":event:{s}", "*", Some("\u{1}\u{2} junk"), "{s}"),
    damage("an event of a job that is none", ":event:{s}", "*", Some("t 0123 {}"), "{s}"),
    damage("a mailbox of another type", ":mailbox:{s}", "", Some("junk"), "{s}"),
    damage("a session record of another type", ":session:{s}", "", Some("junk"), "{s}"),
    damage("a state of junk", ":session:{s}", "state", Some("junk"), "{s}"),
    damage("a count of junk", ":session:{s}", "arrivals", Some("junk"), "{s}"),
    damage("a job's head of junk", ":doc", "j/{j}", Some("1 junk"), "{j}"),
    damage("a job's head without its version", ":doc", "j/{j}", Some("junk"), "{j}"),
    damage("a job's head that is gone", ":doc", "j/{j}", None, "{j}"),
    damage("a job's status of junk", ":doc", "j/{j}/s", Some("1 JUNK x"), "{j}"),
    damage("an outbox entry of junk", ":outbox", "o1", Some("junk"), "o1"),
    damage("a place in the outbox without its message", ":relay", "o2", Some("0"), "o2"),
    damage("a due session of junk", ":due", "junk", Some("0"), ""),
    damage("a listed session of junk", ":sessions", "junk", Some("0"), ""),
    damage("an agent's gate of junk", ":doc", "g/helper/gate", Some("1 junk"), "helper"),
];

async fn strike(server: &RedisServer, base: &str, damage: &Damage, session: &str, job: &JobId) {
    let named = |text: &str| text.replace("{s}", session).replace("{j}", job.as_str());
    let (key, mut field) = (format!("{base}{}", named(damage.key)), named(damage.field).into_bytes());
    let of = |name: &str| damage.key == name;
    if field == b"*" {
        field = texts(command(server, &[b"HKEYS", key.as_bytes()]).await).remove(0);
    }
    let answer = match damage.value {
        Some(value) if field.is_empty() => command(server, &[b"SET", key.as_bytes(), value.as_bytes()]).await,
        Some(score) if of(":relay") || of(":due") || of(":sessions") => {
            command(server, &[b"ZADD", key.as_bytes(), score.as_bytes(), &field]).await
        }
        Some(value) => command(server, &[b"HSET", key.as_bytes(), &field, value.as_bytes()]).await,
        None => command(server, &[b"HDEL", key.as_bytes(), &field]).await,
    };
    assert_ne!(answer, redis::Value::Nil, "{}", damage.name);
}

/// All owners have lost a task; one of them has a damaged record, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_costs_its_own_session_at_most() {
    let Some(server) = RedisServer::shared() else { return };
    let mut wrong = Vec::new();
    for damage in &DAMAGES {
        if let Err(why) = isolated(server, damage).await {
            wrong.push(format!("{}: {why}", damage.name));
        }
    }
    assert!(wrong.is_empty(), "{} of {}\n{}", wrong.len(), DAMAGES.len(), wrong.join("\n"));
}

async fn isolated(server: &RedisServer, damage: &Damage) -> Result<(), String> {
    let (mut venue, _dir, prefix) = TestVenue::redis_at(server, ECHO, Clock::manual(START)).await;
    venue.lease = Duration::from_hours(1);
    let (other, mine): (Owner, Owner) = ("local/other".parse().unwrap(), venue.owner.clone());
    let mut tasks = Vec::new();
    for owner in [&other, &mine] {
        venue.owner = owner.clone();
        venue.agent("helper", json!({})).await;
        venue.agent("second", json!({})).await;
        tasks.push(lost(&venue, "lost", json!({})).await);
    }
    let there = venue.submit("helper", "there", json!("x")).await;
    let (session, job) = (there.session.token(), there.job.unwrap());
    let beside = venue.submit("second", "beside", json!("x")).await.job.unwrap();
    strike(server, &RedisServer::base(&prefix, &mine), damage, &session, &job).await;
    venue.venue.clock.advance(Duration::from_secs(21));
    let books = audit::audit_all(&venue.venue).await.map_err(|error| format!("no books: {error}"))?;
    let shown = json!(books).to_string();
    let word = damage.named.replace("{s}", &session).replace("{j}", job.as_str());
    let is_told = books.unaccounted > 2 || json!(books)["damaged"].as_u64().is_some_and(|count| count > 0);
    let lines = format!("{}{}", json!(books)["missing"], json!(books)["damagedRecords"]);
    if !word.is_empty() && (!is_told || !lines.contains(&word)) {
        return Err(format!("not named: {shown}"));
    }
    let mut repaired = Vec::new();
    let looked = AuditWatch::default().check_share(&venue.venue, &Share::default(), &mut repaired).await;
    looked.map_err(|error| format!("no look: {error}"))?;
    // What stands for its own agent alone may keep the tasks of that agent.
    let wanted = if damage.named == "helper" { &tasks[..1] } else { &tasks[..] };
    for task in wanted {
        if !repaired.iter().any(|repair| repair.found.contains(task.as_str())) {
            return Err(format!("{task} is not put back: {repaired:?}"));
        }
    }
    let now = venue.venue.now();
    let swept = venue.venue.store.sweep(now, &mine, Duration::from_secs(1), 100).await;
    swept.map_err(|error| format!("no sweep: {error}"))?;
    let mut sessions = venue.venue.store.all_sessions(&mine, None);
    while sessions.next().await.map_err(|error| format!("no sessions: {error}"))?.is_some() {}
    jobs::list(&venue.venue, &mine, 0, 100).await.map_err(|error| format!("no jobs: {error}"))?;
    let rules = RetentionRules { jobs: Some(Duration::from_secs(1)), turns: Some(Duration::from_secs(1)) };
    let tidied = Janitor::new(rules).tidy_step(&venue.venue, &mine).await;
    tidied.map_err(|error| format!("not tidied: {error}"))?;
    audit::repair(&venue.venue).await.map_err(|error| format!("no repair: {error}"))?;
    venue.worker();
    for (owner, task) in [(&other, &tasks[0]), (&mine, &beside)] {
        let ended = jobs::wait(&venue.venue, owner, task, Duration::from_secs(30)).await;
        match ended.map_err(|error| format!("unreadable: {error}"))? {
            Some(ended) if ended.status.is_terminal() => {}
            ended => return Err(format!("{task} of {owner} doesn't run: {ended:?}")),
        }
    }
    Ok(())
}

/// The audit compares the ends of jobs in the queue with each owner's records.
#[tokio::test(flavor = "multi_thread")]
async fn documents_of_another_type_cost_their_owner_alone() {
    let (Some(server), Some(url)) = (RedisServer::shared(), nats::shared()) else { return };
    let (options, dir) = (server.options(ServerOrInjected::Injected), tempfile::tempdir().unwrap());
    let (prefix, bus) = (options.prefix.clone(), NatsBus::open(&nats::options(&url)).await.unwrap());
    let store = RedisStore::open(options).await.unwrap();
    let mut venue = TestVenue::new(store, Arc::new(bus), dir.path(), ECHO).await;
    let (other, mine): (Owner, Owner) = ("local/other".parse().unwrap(), venue.owner.clone());
    venue.worker();
    for owner in [&other, &mine] {
        venue.owner = owner.clone();
        venue.agent("helper", json!({})).await;
        venue.run("helper", "t", json!("x")).await;
    }
    let key = format!("{}:doc", RedisServer::base(&prefix, &mine));
    command(server, &[b"SET", key.as_bytes(), b"junk"]).await;
    let books = audit::audit_all(&venue.venue).await.unwrap();
    let lines = books.damaged_records.join("\n");
    assert!(lines.contains("`local/me`") && lines.contains("`doc`") && !lines.contains("local/other"), "{lines}");
    assert_eq!((books.completed, books.unknown), (1, 0), "{books:?}");
    audit::repair(&venue.venue).await.unwrap();
    // What another owner has lost is still named.
    let base = RedisServer::base(&prefix, &other);
    command(server, &[b"DEL", format!("{base}:doc").as_bytes(), format!("{base}:keys").as_bytes()]).await;
    let books = audit::audit_all(&venue.venue).await.unwrap();
    assert!(books.missing.iter().any(|line| line.contains("`local/other`")), "{books:?}");
    venue.shutdown.trigger();
}
