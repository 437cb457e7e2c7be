//! Sessions: list, read, fork.

use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use trellis::domain::authority::Authority;
use trellis::domain::ids::SessionKey;
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::store::{DocEffect, DocWrite, Expect, keys};
use trellis::venue::agents::lifecycle::LifecycleError;
use trellis::venue::agents::sessions;
use trellis::venue::ledger;
use trellis::view::ledger::TurnRecordView;

fn key(session: &str) -> SessionKey {
    SessionKey { agent: "a".parse().unwrap(), session: session.parse().unwrap() }
}

/// An agent whose sessions `main` has three turns, each of a message.
async fn talked() -> (TestVenue, tempfile::TempDir) {
    let (venue, dir) = TestVenue::embedded("").await;
    venue.agent("a", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
    venue.worker();
    for text in ["one", "two", "three"] {
        say(&venue, "main", text).await;
    }
    (venue, dir)
}

async fn say(venue: &TestVenue, session: &str, text: &str) {
    let submission = trellis::domain::event::Submission {
        input: json!(text),
        session_id: Some(session.parse().unwrap()),
        ..Default::default()
    };
    let job = venue.arrive("a", &format!("{session}-{text}"), true, submission).await.job.unwrap();
    venue.ended(&job).await;
}

fn heard(turns: &[TurnRecordView]) -> Vec<String> {
    turns.iter().map(|turn| turn.heard[0].text.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_listed_and_read_page_by_page() {
    let (venue, _dir) = talked().await;
    say(&venue, "other", "x").await;
    let (v, owner, agent) = (&venue.venue, &venue.owner, &key("main").agent);
    let (page, next) = sessions::list(v, owner, agent, None, None, 1).await.unwrap();
    assert_eq!((page.len(), page[0].session_id.as_str(), page[0].turns), (1, "main", 3));
    let (page, next) = sessions::list(v, owner, agent, None, next.as_ref(), 1).await.unwrap();
    assert_eq!((page[0].session_id.as_str(), next.clone().unwrap().as_str()), ("other", "other"));
    assert_eq!(sessions::list(v, owner, agent, None, next.as_ref(), 1).await.unwrap(), (Vec::new(), None));
    let (turns, next) = sessions::read(v, owner, &Authority::without_limits(), &key("main"), 0, 2).await.unwrap();
    assert_eq!((turns.len(), next), (2, Some(2)));
    assert!(heard(&turns)[0].contains("one"), "{turns:?}");
    let (turns, next) = sessions::read(v, owner, &Authority::without_limits(), &key("main"), 2, 2).await.unwrap();
    assert_eq!((turns.len(), next), (1, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_has_the_turns_up_to_one_and_goes_on_by_itself() {
    let (venue, _dir) = talked().await;
    let (v, owner) = (&venue.venue, &venue.owner);
    let forked = sessions::fork(v, owner, &key("main"), 2, Some("what-if".parse().unwrap())).await.unwrap();
    assert_eq!(forked, key("what-if"));
    assert_eq!(venue.turns("a", "what-if").await.len(), 2);
    say(&venue, "what-if", "four").await;
    say(&venue, "main", "five").await;
    let turns: Vec<_> = venue.turns("a", "what-if").await.into_iter().map(|turn| turn.turn).collect();
    assert_eq!((turns, venue.turns("a", "main").await.len()), (vec![1, 2, 3], 4));
    let past = ledger::load(&*v.store, owner, &key("what-if"), 3).await.unwrap().unwrap();
    let prompt = format!("{:?}", past.seen.unwrap().inputs.unwrap().transcript);
    assert!(prompt.contains("one") && prompt.contains("two") && !prompt.contains("three"), "{prompt}");
    let timeline = trellis::venue::agents::timeline(v, owner, &Authority::without_limits(), &key("main").agent, 0, 100)
        .await
        .unwrap();
    assert_eq!(timeline.len(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_carries_no_open_task() {
    let (venue, _dir) = TestVenue::embedded("").await;
    venue.agent("a", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
    venue.worker();
    say(&venue, "main", "one").await;
    venue.agent("a", json!({"model": {"provider": "scripted", "name": "never"}})).await;
    let submission = trellis::domain::event::Submission {
        input: json!("stays"),
        session_id: Some("main".parse().unwrap()),
        ..Default::default()
    };
    venue.arrive("a", "open", true, submission).await;
    let forked = sessions::fork(&venue.venue, &venue.owner, &key("main"), 1, None).await.unwrap();
    let facts = sessions::find(&venue.venue, &venue.owner, &forked).await.unwrap().unwrap();
    assert_eq!((facts.version, facts.mailbox.len(), facts.due), (1, 0, None));
    let mut state: Value = serde_json::from_slice(&facts.state.unwrap()).unwrap();
    assert!(state.as_object_mut().unwrap().remove("copied").is_some(), "it is as young as the copy");
    assert!(state.as_object_mut().unwrap().remove("prefixes").is_some(), "its prompts begin as those of the other");
    assert_eq!(state, json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_fork_says_why() {
    let (venue, _dir) = talked().await;
    let (v, owner) = (&venue.venue, &venue.owner);
    let fork = |session: &'static str, at: u64, to: Option<&'static str>| async move {
        let to = to.map(|to| to.parse().unwrap());
        let error: LifecycleError = sessions::fork(v, owner, &key(session), at, to).await.unwrap_err();
        error.to_string()
    };
    assert_eq!(fork("main", 4, None).await, "session `a/main` has no turn 4: its newest is 3");
    assert_eq!(fork("main", 0, None).await, "session `a/main` has no turn 0: its newest is 3");
    assert_eq!(fork("none", 1, None).await, "no session `a/none`: nothing was ever sent to it");
    assert_eq!(fork("main", 1, Some("main")).await, "session `a/main` exists: choose another name");
}

/// Sessions that are copied to one name at once: one of them is there, and nothing of the others.
async fn one_of_concurrent_forks_to_a_name_succeeds(venue: TestVenue) {
    venue.agent("a", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
    venue.worker();
    for text in ["one", "two", "three"] {
        say(&venue, "main", text).await;
    }
    let (v, owner, all) = (&venue.venue, &venue.owner, Authority::without_limits());
    let main = key("main");
    for round in 0..6 {
        let name = format!("dup{round}");
        let forks = (0..8).map(|n| sessions::fork(v, owner, &main, 1 + n % 3, Some(name.parse().unwrap())));
        let done = futures::future::join_all(forks).await;
        let won: Vec<u64> = done.iter().zip(0..).filter(|(done, _)| done.is_ok()).map(|(_, n)| 1 + n % 3).collect();
        assert_eq!(won.len(), 1, "{done:?}");
        for error in done.into_iter().filter_map(Result::err) {
            assert!(matches!(error, LifecycleError::Taken(_)), "{error}");
        }
        let (turns, _) = sessions::read(v, owner, &all, &key(&name), 0, 100).await.unwrap();
        assert_eq!(turns.len() as u64, won[0]);
        assert_eq!(venue.turns("a", &name).await.len() as u64, won[0], "and no document that nobody sees");
    }
    for round in 0..6 {
        let name = format!("mix{round}");
        let forks = (0..3).map(|_| sessions::fork(v, owner, &main, 3, Some(name.parse().unwrap())));
        let (forked, ()) = futures::future::join(futures::future::join_all(forks), say(&venue, &name, "mine")).await;
        let turns = sessions::read(v, owner, &all, &key(&name), 0, 100).await.unwrap().0;
        let heard = heard(&turns);
        match forked.iter().filter(|forked| forked.is_ok()).count() {
            0 => assert!(heard.len() == 1 && heard[0].contains("mine"), "{heard:?}"),
            won => assert!(won == 1 && heard.len() == 4 && heard[3].contains("mine"), "{won} {heard:?}"),
        }
        assert_eq!(venue.turns("a", &name).await.len(), turns.len());
    }
    let agent = key("main").agent;
    let timeline = trellis::venue::agents::timeline(v, owner, &all, &agent, 0, 1_000).await.unwrap();
    let (known, _) = sessions::list(v, owner, &agent, None, None, 100).await.unwrap();
    let turns: u64 = known.iter().map(|session| session.turns).sum();
    assert_eq!(timeline.len() as u64, turns, "nor a place in the timeline");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_concurrent_forks_to_a_name_succeeds_on_embedded() {
    let (venue, _dir) = TestVenue::embedded("").await;
    one_of_concurrent_forks_to_a_name_succeeds(venue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_concurrent_forks_to_a_name_succeeds_on_redis() {
    let Some(server) = RedisServer::shared() else { return };
    let (venue, _dir, _) = TestVenue::redis_at(server, "", Clock::system()).await;
    one_of_concurrent_forks_to_a_name_succeeds(venue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_that_died_reserves_its_name_only_for_a_while() {
    let (venue, _dir) = talked().await;
    let (v, owner) = (&venue.venue, &venue.owner);
    let claim = |since: Millis| DocWrite {
        key: keys::session_claim(&key("branch")),
        expect: Expect::Any,
        change: DocEffect::Put(since.0.to_string().into()),
    };
    let left = DocWrite {
        key: keys::turn(&key("branch"), 3),
        expect: Expect::Any,
        change: DocEffect::Put(serde_json::to_vec(&venue.turns("a", "main").await[2]).unwrap().into()),
    };
    v.store.write(v.now(), owner, &[claim(v.now()), left]).await.unwrap();
    let main = key("main");
    let fork = || sessions::fork(v, owner, &main, 2, Some("branch".parse().unwrap()));
    assert!(matches!(fork().await, Err(LifecycleError::Taken(_))));
    let reader = Authority::without_limits();
    assert!(sessions::read(v, owner, &reader, &key("branch"), 0, 9).await.unwrap().0.is_empty());
    v.store.write(v.now(), owner, &[claim(Millis(v.now().0 - 121_000))]).await.unwrap();
    fork().await.unwrap();
    let (turns, next) = sessions::read(v, owner, &reader, &key("branch"), 0, 9).await.unwrap();
    assert_eq!((turns.len(), next), (2, None), "what the dead one has left is none of its own");
}
