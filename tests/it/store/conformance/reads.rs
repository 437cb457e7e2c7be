//! Scans, owners, sessions.

use super::*;
use trellis::store::{ForgetOutcome, ForgetRequest, RestingSession};

async fn scan(w: &World, prefix: &str, after: Option<&str>, reverse: bool, limit: usize) -> Vec<String> {
    let found = w.store.scan(&w.owner, prefix, after, reverse, limit).await.unwrap();
    for (key, doc) in &found {
        assert_eq!(doc, &w.doc(key).await, "{key}");
    }
    found.into_iter().map(|(key, _)| key).collect()
}

async fn five(w: &World) {
    let keys = ["w/a", "w/a/1", "w/ab", "w/b", "w/c", "x/d"];
    w.write(T0, &keys.map(|key| put(key, key))).await;
    w.write(T0, &[DocWrite { change: DocEffect::Delete, ..put("w/b", "") }]).await;
}

pub async fn a_scan_pages_in_order(w: World) {
    five(&w).await;
    assert_eq!(scan(&w, "w/", None, false, 10).await, ["w/a", "w/a/1", "w/ab", "w/c"]);
    assert_eq!(scan(&w, "w/", None, false, 2).await, ["w/a", "w/a/1"]);
    assert_eq!(scan(&w, "w/", Some("w/a/1"), false, 2).await, ["w/ab", "w/c"]);
    assert_eq!(scan(&w, "w/", Some("w/aa"), false, 1).await, ["w/ab"], "after need not exist");
    assert!(scan(&w, "w/", Some("w/c"), false, 10).await.is_empty());
    assert!(scan(&w, "w/", None, false, 0).await.is_empty());
}

pub async fn a_scan_runs_backwards(w: World) {
    five(&w).await;
    assert_eq!(scan(&w, "w/", None, true, 2).await, ["w/c", "w/ab"]);
    assert_eq!(scan(&w, "w/", Some("w/ab"), true, 10).await, ["w/a/1", "w/a"]);
    assert!(scan(&w, "w/", Some("w/a"), true, 10).await.is_empty());
}

pub async fn a_scan_stays_under_its_prefix(mut w: World) {
    five(&w).await;
    assert_eq!(scan(&w, "w/a", None, false, 10).await, ["w/a", "w/a/1", "w/ab"]);
    assert_eq!(scan(&w, "w/a/", None, false, 10).await, ["w/a/1"]);
    assert_eq!(scan(&w, "w/b", Some("w/a"), false, 10).await, Vec::<String>::new());
    assert_eq!(scan(&w, "w/a", Some("w/x"), true, 10).await, ["w/ab", "w/a/1", "w/a"]);
    w.owner = "acme/ann2".parse().unwrap();
    assert!(scan(&w, "w/", None, false, 10).await.is_empty());
}

pub async fn a_page_is_a_window_and_the_number_of_all(mut w: World) {
    five(&w).await;
    let check = async |prefix: &str, reverse, skip, limit, total: usize, keys: &[&str]| {
        for values in [true, false] {
            let page = w.store.page(&w.owner, prefix, Window { reverse, skip, limit, values }).await.unwrap();
            let found: Vec<_> = page.docs.iter().map(|(key, _)| &**key).collect();
            assert_eq!((page.total, &*found), (total, keys), "{prefix} {reverse} {skip} {limit}");
            for (key, doc) in &page.docs {
                let expected = if values { w.doc(key).await } else { Doc::default() };
                assert_eq!(doc, &expected, "{key}");
            }
        }
    };
    check("w/", false, 0, 10, 4, &["w/a", "w/a/1", "w/ab", "w/c"]).await;
    check("w/", false, 1, 2, 4, &["w/a/1", "w/ab"]).await;
    check("w/", false, 3, usize::MAX, 4, &["w/c"]).await;
    check("w/", false, 4, 10, 4, &[]).await;
    check("w/", false, usize::MAX, usize::MAX, 4, &[]).await;
    check("w/", false, 0, 0, 4, &[]).await;
    check("w/", true, 0, 2, 4, &["w/c", "w/ab"]).await;
    check("w/", true, 2, 2, 4, &["w/a/1", "w/a"]).await;
    check("w/a", false, 0, 10, 3, &["w/a", "w/a/1", "w/ab"]).await;
    check("w/b", false, 0, 10, 0, &[]).await;
    w.owner = "acme/ann2".parse().unwrap();
    let none = w.store.page(&w.owner, "", Window { reverse: false, skip: 0, limit: 9, values: true }).await.unwrap();
    assert_eq!((none.total, none.docs.len()), (0, 0));
}

pub async fn owners_are_registered_by_their_first_write(w: World) {
    assert!(w.store.owners(None, 10).await.unwrap().is_empty());
    for owner in ["b/x", "a/y", "a/x", "c.d/ü"] {
        w.store.write(T0, &owner.parse().unwrap(), &[put("w/a", "1")]).await.unwrap();
    }
    let names = |owners: Vec<Owner>| owners.iter().map(ToString::to_string).collect::<Vec<_>>();
    let all = w.store.owners(None, 10).await.unwrap();
    assert_eq!(names(all.clone()), ["a/x", "a/y", "b/x", "c.d/ü"]);
    assert_eq!(names(w.store.owners(None, 2).await.unwrap()), ["a/x", "a/y"]);
    assert_eq!(names(w.store.owners(Some(&all[1]), 10).await.unwrap()), ["b/x", "c.d/ü"]);
}

pub async fn sessions_page_by_agent(w: World) {
    w.agent().await;
    w.gate_of("cler", "ACTIVE 8 100 queue").await;
    for name in ["b", "a", "c", "cler/z"] {
        w.append(T0, name, message(name.trim_start_matches("cler/"))).await;
    }
    let list = async |agent: Option<&str>, after: Option<&str>, limit| {
        let agent = agent.map(|a| a.parse::<AgentId>().unwrap());
        let after = after.map(session);
        let found = w.store.sessions(&w.owner, agent.as_ref(), after.as_ref(), limit).await.unwrap();
        found.into_iter().map(|f| f.key.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(list(None, None, 10).await, ["cler/z", "clerk/a", "clerk/b", "clerk/c"]);
    assert_eq!(list(Some("clerk"), None, 2).await, ["clerk/a", "clerk/b"]);
    assert_eq!(list(Some("clerk"), Some("b"), 10).await, ["clerk/c"]);
    assert_eq!(list(Some("cler"), None, 10).await, ["cler/z"]);
    assert!(list(Some("cle"), None, 10).await.is_empty());
}

pub async fn a_page_shorter_than_its_limit_is_the_end(w: World) {
    w.agent().await;
    w.gate_of("other", "ACTIVE 8 100 queue").await;
    for name in ["a", "b", "c", "d", "e", "other/z"] {
        w.append(T0, name, message(name.trim_start_matches("other/"))).await;
    }
    for name in ["a", "c"] {
        let grant = granted(w.admit_with(T0, name, None, Some(ask())).await);
        w.done(T0, &grant).await;
        let resting = RestingSession { session: session(name), arrivals: 1 };
        let forget = ForgetRequest { sessions: vec![resting], ..ForgetRequest::default() };
        assert_eq!(w.store.forget(T0, &w.owner, &forget).await.unwrap(), ForgetOutcome::Done);
    }
    for name in ["acme/bob", "acme/cid"] {
        w.store.write(T0, &name.parse().unwrap(), &[put("w/a", "1")]).await.unwrap();
    }
    let clerk = "clerk".parse().unwrap();
    for limit in 1..=6 {
        // What is gone, or of another agent, takes no place in a page.
        for (agent, all) in [(None, 4), (Some(&clerk), 3)] {
            let (mut after, mut left) = (None, all);
            loop {
                let page = w.store.sessions(&w.owner, agent, after.as_ref(), limit).await.unwrap();
                assert_eq!(page.len(), limit.min(left), "{agent:?} {limit}");
                left -= page.len();
                let Some(last) = page.last() else { break };
                after = Some(last.key.clone());
            }
            assert_eq!(left, 0);
        }
        let (mut after, mut left) = (None, 3);
        while left > 0 {
            let page = w.store.owners(after.as_ref(), limit).await.unwrap();
            assert_eq!(page.len(), limit.min(left), "{limit}");
            left -= page.len();
            after = page.last().cloned();
        }
        assert!(w.store.owners(after.as_ref(), limit).await.unwrap().is_empty());
    }
}

pub async fn a_session_shows_what_its_last_commit_left(w: World) {
    w.agent().await;
    let grant = granted(w.admit_with(T0, "main", Some(task("e1")), Some(ask())).await);
    assert_eq!(w.facts("main").await.state, None, "before the first turn");
    for turn in 1..=2 {
        let state = Bytes::from(format!("state {turn}"));
        let commit = Commit {
            turn,
            state: state.clone(),
            consume: Vec::new(),
            after_commit: LeaseUse::Keep,
            ..last_turn(&grant)
        };
        w.commit(at(turn), &grant, &commit).await;
        assert_eq!(w.facts("main").await.state, Some(state));
    }
}

pub async fn arrivals_minus_consumed_is_the_mailbox(w: World) {
    w.agent().await;
    for n in 0..6 {
        w.append(T0, "main", task(&format!("e{n}"))).await;
    }
    let end = ends("e5", JobStatus::Cancelled);
    w.store.finish(T0, &w.owner, &session("main"), &end, None, &[]).await.unwrap();
    let mut grant = granted(w.admit_with(T0, "main", None, Some(ask())).await);
    grant.mailbox.truncate(2);
    w.commit(at(1), &grant, &turn(&grant)).await;
    w.append(at(2), "main", message("late")).await;
    let facts = w.facts("main").await;
    assert_eq!((facts.arrivals, facts.consumed, facts.mailbox.len()), (7, 3, 4));
}

pub async fn store_settings_are_reported(w: World) {
    let settings = w.store.settings().await.unwrap();
    assert!(!settings.is_empty() && settings.iter().all(|s| !s.name.is_empty() && !s.value.is_empty()));
}
