//! Records that are gone: what the rest of the store tells is put back, and what it doesn't is named.

use super::busy_venue::{RULES, START};
use super::command;
use crate::support::both_stores::{On, on_both};
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::json;
use std::time::Duration;
use trellis::domain::authority::policy::Policy;
use trellis::domain::event::{Mandate, Submission};
use trellis::domain::ids::{JobId, Owner, SessionKey};
use trellis::domain::session::{PendingJob, SessionState};
use trellis::domain::shard::Share;
use trellis::process::clock::Clock;
use trellis::store::redis::{RedisOptions, RedisStore, ServerOrInjected};
use trellis::store::{DocEffect, DocWrite, EventKind, Expect, SessionSnapshot, SetSessionOutcome, Store, keys};
use trellis::venue::upkeep::audit::{self, AuditWatch};
use trellis::venue::{jobs, policy};
use trellis::view::audit::RepairView;

const ECHO: &str = "[[rule]]\nthen = { text = \"done {{input}}\" }\n";

on_both! {
    a_lost_result_is_told_and_sent_again_within_a_minute
    a_lost_status_is_written_again_and_its_job_runs_once
    records_that_others_need_are_named_when_they_are_gone
    a_lost_or_damaged_policy_stays_in_force_and_is_repaired
    each_document_that_cant_be_read_is_named
}

async fn look(venue: &TestVenue) -> Vec<RepairView> {
    let mut repaired = Vec::new();
    AuditWatch::default().check_share(&venue.venue, &Share::default(), &mut repaired).await.unwrap();
    repaired
}

/// A job that has ended, by a worker that is gone.
async fn ended_job(venue: &TestVenue) -> JobId {
    venue.agent("helper", json!({})).await;
    venue.worker();
    let child = venue.run("helper", "t", json!("x")).await.head.id;
    venue.shutdown.trigger();
    child
}

/// A session of `parent` whose task waits for the result of a job.
async fn parked(venue: &TestVenue, child: &JobId) -> SessionKey {
    venue.agent("parent", json!({})).await;
    let pending =
        PendingJob { agent: "helper".parse().unwrap(), started: START, under: Some(Mandate::default()), frame: 0 };
    let state = SessionState { pending: [(child.clone(), pending)].into(), ..SessionState::default() };
    let snapshot = SessionSnapshot { version: 1, state: serde_json::to_vec(&state).unwrap().into(), quota: None };
    let key = SessionKey { agent: "parent".parse().unwrap(), session: "s".parse().unwrap() };
    let outcome =
        venue.venue.store.set_session(venue.venue.now(), &venue.owner, &key, Some(&snapshot), &[]).await.unwrap();
    assert_eq!(outcome, SetSessionOutcome::Done);
    let submission = Submission { input: json!("go"), session_id: Some(key.session.clone()), ..Submission::default() };
    venue.arrive("parent", "p1", true, submission).await;
    key
}

async fn a_lost_result_is_told_and_sent_again_within_a_minute(on: On) {
    let Some((venue, _dir)) = on.venue(ECHO, Clock::manual(START)).await else { return };
    let child = ended_job(&venue).await;
    parked(&venue, &child).await;
    venue.venue.clock.advance(Duration::from_secs(21));
    let books = audit::audit_all(&venue.venue).await.unwrap();
    assert_eq!(books.unaccounted, 1, "{books:?}");
    assert!(books.missing[0].contains(child.as_str()) && books.missing[0].contains("parent/s"), "{books:?}");
    let repaired = look(&venue).await;
    assert_eq!(repaired.len(), 1, "{repaired:?}");
    assert!(repaired[0].found.contains(child.as_str()), "{repaired:?}");
    let agent = "parent".parse().unwrap();
    let facts = venue.venue.store.sessions(&venue.owner, Some(&agent), None, 9).await.unwrap().remove(0);
    let results: Vec<_> = facts.mailbox.iter().filter(|entry| entry.kind == EventKind::Result).collect();
    assert_eq!(results.len(), 1, "{facts:?}");
    assert_eq!(audit::audit_all(&venue.venue).await.unwrap().unaccounted, 0);
    assert_eq!(look(&venue).await, [], "once");
}

async fn write(venue: &TestVenue, key: String, change: DocEffect) {
    let write = DocWrite { key, expect: Expect::Any, change };
    venue.venue.store.write(venue.venue.now(), &venue.owner, &[write]).await.unwrap();
}

async fn a_lost_status_is_written_again_and_its_job_runs_once(on: On) {
    for change in [DocEffect::Delete, DocEffect::Put("JUNK".into()), DocEffect::Put("COMP".into())] {
        let Some((venue, _dir)) = on.venue(ECHO, Clock::manual(START)).await else { return };
        let job = ended_job(&venue).await;
        let calls = venue.model_calls().len();
        write(&venue, keys::job_status(&job), change).await;
        venue.venue.clock.advance(Duration::from_mins(11));
        let books = audit::audit_all(&venue.venue).await.unwrap();
        assert_eq!((books.completed, books.unaccounted, books.damaged), (1, 0, 1), "{books:?}");
        assert!(books.damaged_records[0].contains(job.as_str()), "{books:?}");
        let repaired = audit::repair(&venue.venue).await.unwrap();
        assert!(repaired.iter().any(|repair| repair.did.contains("COMPLETE again")), "{repaired:?}");
        let books = audit::audit_all(&venue.venue).await.unwrap();
        assert!(books.are_balanced() && books.completed == 1, "{books:?}");
        assert_eq!(venue.model_calls().len(), calls, "it isn't run again");
    }
}

async fn records_that_others_need_are_named_when_they_are_gone(on: On) {
    for kind in ["result", "head", "gate", "agent"] {
        let Some((venue, _dir)) = on.venue(ECHO, Clock::manual(START)).await else { return };
        let ended = ended_job(&venue).await;
        let waits = venue.submit("helper", "waits", json!("x")).await.job.unwrap();
        assert!(audit::audit_all(&venue.venue).await.unwrap().are_balanced());
        let (key, word) = match kind {
            "result" => (keys::job_result(&ended), ended.as_str()),
            "head" => (keys::job_head(&waits), waits.as_str()),
            "gate" => (keys::agent_gate(&"helper".parse().unwrap()), "g/helper/gate"),
            _ => (keys::agent(&"helper".parse().unwrap()), "`g/helper`"),
        };
        for change in [DocEffect::Put("\u{1} junk".into()), DocEffect::Put("{".into()), DocEffect::Delete] {
            write(&venue, key.clone(), change.clone()).await;
            venue.venue.clock.advance(Duration::from_secs(30));
            let books = audit::audit_all(&venue.venue).await.unwrap();
            let named = books.damaged_records.iter().any(|line| line.contains(word));
            assert!(named && books.damaged > 0, "{kind} {change:?}: {books:?}");
        }
    }
}

async fn a_lost_or_damaged_policy_stays_in_force_and_is_repaired(on: On) {
    for change in [DocEffect::Delete, DocEffect::Put("\u{1} junk".into()), DocEffect::Put("{\"revocations\":[".into())]
    {
        let Some((venue, _dir)) = on.venue(RULES, Clock::manual(START)).await else { return };
        venue.agent("thief", json!({})).await;
        venue.revoke("w/other").await;
        let revoked = policy::load(&*venue.venue.store, &venue.owner).await.unwrap().0;
        venue.venue.store.write(START, &venue.owner, &[DocWrite::delete(keys::POLICY)]).await.unwrap();
        venue.revoke("w/forbidden").await;
        let both = policy::load(&*venue.venue.store, &venue.owner).await.unwrap().0;
        assert_eq!((revoked.revocations.len(), both.revocations.len()), (1, 2), "{change:?}");
        write(&venue, keys::POLICY.to_owned(), change.clone()).await;
        assert_eq!(policy::load(&*venue.venue.store, &venue.owner).await.unwrap().0, both, "{change:?}");
        venue.worker();
        let task = venue.submit("thief", "t", json!("go")).await.job.unwrap();
        let ended = jobs::wait(&venue.venue, &venue.owner, &task, Duration::from_mins(1)).await.unwrap().unwrap();
        assert!(ended.status.is_terminal(), "{change:?}: {ended:?}");
        assert_eq!(venue.read("w/forbidden").await, None, "{change:?}");
        let books = audit::audit_all(&venue.venue).await.unwrap();
        assert!(books.damaged_records.iter().any(|line| line.contains("policy")), "{change:?}: {books:?}");
        let repaired = audit::repair(&venue.venue).await.unwrap();
        assert!(repaired.iter().any(|repair| repair.found.contains("policy")), "{change:?}: {repaired:?}");
        assert!(audit::audit_all(&venue.venue).await.unwrap().are_balanced(), "{change:?}");
        let stored = venue.venue.store.get::<Policy>(&venue.owner, keys::POLICY).await.unwrap();
        assert_eq!(stored, Some(both), "{change:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_is_missing_from_the_list_is_listed_again() {
    let Some(server) = RedisServer::shared() else { return };
    let (venue, _dir, prefix) = TestVenue::redis_at(server, ECHO, Clock::manual(START)).await;
    venue.agent("helper", json!({})).await;
    venue.submit("helper", "t", json!("x")).await;
    let idle: Owner = "local/idle".parse().unwrap();
    let write = DocWrite { key: "w/a".into(), expect: Expect::Any, change: DocEffect::Put("1".into()) };
    venue.venue.store.write(START, &idle, &[write]).await.unwrap();
    let owners = async || venue.venue.store.owners(None, 9).await.unwrap();
    let before = owners().await;
    assert!(before.contains(&idle) && before.contains(&venue.owner), "{before:?}");
    command(server, &[b"ZREM", format!("{prefix}:owners").as_bytes(), b"local/me", b"local/idle"]).await;
    assert_eq!(owners().await.len(), before.len() - 2);
    let now = venue.venue.clock.advance(Duration::from_secs(10));
    venue.venue.store.due_owners(now, "w", Duration::from_secs(1), 100).await.unwrap();
    assert_eq!(owners().await, before);
    assert_eq!(audit::audit_all(&venue.venue).await.unwrap().accepted, 1);
    // A process that has never heard of the idle one finds it by its keys.
    command(server, &[b"ZREM", format!("{prefix}:owners").as_bytes(), b"local/idle"]).await;
    let options = RedisOptions { prefix, ..server.options(ServerOrInjected::Injected) };
    let fresh = RedisStore::open(options).await.unwrap();
    for _ in 0..60 {
        let now = venue.venue.clock.advance(Duration::from_secs(1));
        fresh.due_owners(now, "w2", Duration::from_secs(1), 100).await.unwrap();
    }
    assert_eq!(owners().await, before, "within a minute");
}

/// Documents that the index lacks are in no list, and count for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_index_without_documents_is_named_and_built_again() {
    let Some(server) = RedisServer::shared() else { return };
    for lost in [&[":keys"][..], &[":gone"], &[":keys", ":gone"]] {
        let (venue, _dir, prefix) = TestVenue::redis_at(server, ECHO, Clock::manual(START)).await;
        venue.agent("helper", json!({})).await;
        let waits = venue.submit("helper", "waits", json!("x")).await.job.unwrap();
        write(&venue, "w/a".to_owned(), DocEffect::Put("1".into())).await;
        write(&venue, "w/b".to_owned(), DocEffect::Put("1".into())).await;
        write(&venue, "w/b".to_owned(), DocEffect::Delete).await;
        let before = audit::audit_all(&venue.venue).await.unwrap();
        assert!(before.are_balanced() && before.pending == 1, "{before:?}");
        let keys = venue.venue.store.docs(&venue.owner, "").keys().await.unwrap();
        for key in lost {
            let key = format!("{}{key}", RedisServer::base(&prefix, &venue.owner));
            command(server, &[b"DEL", key.as_bytes()]).await;
        }
        write(&venue, "w/c".to_owned(), DocEffect::Put("1".into())).await;
        let books = audit::audit_all(&venue.venue).await.unwrap();
        let is_named = books.damaged_records.iter().any(|line| line.contains("index `keys` lacks"));
        assert_eq!(is_named, lost.contains(&":keys"), "{lost:?}: {books:?}");
        let repaired = audit::repair(&venue.venue).await.unwrap();
        assert_eq!(repaired.len(), usize::from(is_named), "{lost:?}: {repaired:?}");
        write(&venue, "w/c".to_owned(), DocEffect::Delete).await;
        assert_eq!(venue.venue.store.docs(&venue.owner, "").keys().await.unwrap(), keys, "{lost:?}");
        let books = audit::audit_all(&venue.venue).await.unwrap();
        assert!(books.are_balanced() && books.pending == 1, "{lost:?}: {books:?}");
        assert!(jobs::get(&venue.venue, &venue.owner, &waits).await.unwrap().is_some());
        let job = venue.venue.store.doc(&venue.owner, "w/b").await.unwrap();
        assert_eq!((job.value, job.version > 0), (None, true), "a deleted document has its version");
    }
}

async fn each_document_that_cant_be_read_is_named(on: On) {
    let Some((venue, _dir)) = on.venue(ECHO, Clock::manual(START)).await else { return };
    for agent in ["helper", "helper-2"] {
        venue.agent(agent, json!({})).await;
    }
    let id = "0f".repeat(16);
    let documents = [
        format!("m/{id}"),
        "s/KEY".to_owned(),
        format!("h/{id}"),
        format!("u/{id}"),
        format!("u.due/0000000000000005-{id}"),
        format!("q/{id}"),
        format!("i/{id}"),
        format!("b/{id}-request"),
        "cap/2026-01-01".to_owned(),
        "cap/2026-01-01/ann".to_owned(),
        format!("dead/0000000000000005-{id}"),
        "mcp/hub".to_owned(),
        "card/hub".to_owned(),
        "hook/phone".to_owned(),
        "hook.at/phone".to_owned(),
        "e.state".to_owned(),
        "quota".to_owned(),
        "g/helper/mcp/shop".to_owned(),
        "g/helper-2/card/shop".to_owned(),
        "g/helper/spend/main".to_owned(),
    ];
    assert!(audit::audit_all(&venue.venue).await.unwrap().are_balanced());
    for key in &documents {
        write(&venue, key.clone(), DocEffect::Put("{\"cut\": ".into())).await;
    }
    let books = audit::audit_all(&venue.venue).await.unwrap();
    for key in &documents {
        assert!(books.damaged_records.iter().any(|line| line.contains(&format!("`{key}`"))), "{key}: {books:#?}");
    }
    assert_eq!(books.damaged, documents.len() as u64, "{books:#?}");
    // One of all owners lies with the venue's own documents.
    let shared = DocWrite { key: "mcp/all".to_owned(), expect: Expect::Any, change: DocEffect::Put("[".into()) };
    venue.venue.store.write(venue.venue.now(), &keys::venue_owner(), &[shared]).await.unwrap();
    let books = audit::audit_all(&venue.venue).await.unwrap();
    assert!(books.damaged_records.iter().any(|line| line.contains("`mcp/all`")), "{books:#?}");
}
