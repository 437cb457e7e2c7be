//! The embedded store under a disk that lost something, and under a clock that was set.

use super::copy_folder;
use std::path::{Path, PathBuf};
use std::time::Duration;
use trellis::domain::ids::SessionKey;
use trellis::domain::losses::Losses;
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::{
    Admit, DocEffect, DocWrite, DocumentStore, EventKind, Expect, Intake, LeaseCheck, LeaseOutcome, LeaseRequest,
    NewEvent, Store, StoreInspection, keys,
};

const NOW: Millis = Millis(1_767_225_600_000);

async fn write(store: &EmbeddedStore, key: &str) {
    let write = DocWrite { key: key.to_owned(), expect: Expect::Any, change: DocEffect::Put("value".into()) };
    store.write(NOW, &"acme/ann".parse().unwrap(), &[write]).await.unwrap();
}

/// What the store says of its history, for `trellis doctor`.
async fn problem(store: &EmbeddedStore) -> Option<String> {
    let settings = store.settings().await.unwrap();
    settings.into_iter().find(|setting| setting.name == "embedded disk").unwrap().problem
}

fn journals(dir: &Path) -> Vec<PathBuf> {
    let found = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    found.filter(|path| path.extension().is_some_and(|end| end == "jnl")).collect()
}

#[tokio::test]
async fn a_journal_that_lost_its_end_is_told_when_the_store_is_opened() {
    for how in ["whole", "replaced", "truncated", "deleted", "emptied"] {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path()).unwrap();
        write(&store, "w/first").await;
        drop(store);
        let (database, older) = (dir.path().join("db"), dir.path().join("older"));
        copy_folder(&database, &older);
        let store = EmbeddedStore::open(dir.path()).unwrap();
        for n in 0..20 {
            write(&store, &format!("w/{n}")).await;
        }
        assert_eq!(problem(&store).await, None, "{how}");
        drop(store);
        match how {
            "whole" => {}
            "replaced" | "emptied" => {
                std::fs::remove_dir_all(&database).unwrap();
                if how == "replaced" {
                    copy_folder(&older, &database);
                }
            }
            _ => {
                let journals = journals(&database);
                assert!(!journals.is_empty(), "{:?}", std::fs::read_dir(&database).unwrap().collect::<Vec<_>>());
                for journal in journals {
                    if how == "deleted" {
                        std::fs::remove_file(journal).unwrap();
                    } else {
                        let file = std::fs::File::options().write(true).open(&journal).unwrap();
                        file.set_len(600).unwrap();
                    }
                }
            }
        }
        let store = match EmbeddedStore::open(dir.path()) {
            Ok(store) => store,
            // It isn't silent either.
            Err(error) => {
                assert!(how == "truncated" || how == "deleted", "{how}: {error}");
                continue;
            }
        };
        let told = problem(&store).await;
        assert_eq!(told.is_some(), how != "whole", "{how}: {told:?}");
        let losses = store.scan(&keys::venue_owner(), keys::LOSSES, None, false, 9).await.unwrap();
        assert_eq!(losses.len(), usize::from(how != "whole"), "{how}");
        drop(store);
        let store = EmbeddedStore::open(dir.path()).unwrap();
        assert_eq!(problem(&store).await, None, "{how}: it goes on from there");
    }
}

/// A backup that was put back has no `head`.
#[tokio::test]
async fn a_head_that_cannot_be_read_is_told_and_a_missing_one_is_not() {
    for (bytes, is_told) in [(None, false), (Some(&b""[..]), true), (Some(b"short"), true), (Some(&[0; 16]), true)] {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path()).unwrap();
        write(&store, "w/first").await;
        drop(store);
        let head = dir.path().join("head");
        match bytes {
            None => std::fs::remove_file(head).unwrap(),
            Some(bytes) => std::fs::write(head, bytes).unwrap(),
        }
        let store = EmbeddedStore::open(dir.path()).unwrap();
        let told = problem(&store).await;
        assert_eq!(told.as_ref().is_some_and(|told| told.contains("`head` could not be read")), is_told, "{told:?}");
        let losses = store.scan(&keys::venue_owner(), keys::LOSSES, None, false, 9).await.unwrap();
        assert_eq!(losses.len(), usize::from(is_told), "{bytes:?}");
        if let Some((_, found)) = losses.first() {
            let found: Losses = serde_json::from_slice(found.value.as_ref().unwrap()).unwrap();
            assert!(found.notes[0].contains("`head`") && found.lines.is_empty() && found.total == 0, "{found:?}");
        }
        drop(store);
        assert_eq!(problem(&EmbeddedStore::open(dir.path()).unwrap()).await, None, "{bytes:?}: it was written anew");
    }
}

#[tokio::test]
async fn a_clock_that_was_set_forward_ends_no_lease() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open_within(dir.path(), None).unwrap();
    let now = Clock::system().now();
    let (owner, session): (_, SessionKey) =
        ("acme/ann".parse().unwrap(), SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() });
    let gate = DocWrite {
        key: keys::agent_gate(&session.agent),
        expect: Expect::Any,
        change: DocEffect::Put("ACTIVE 8 1000 queue".into()),
    };
    store.write(now, &owner, &[gate]).await.unwrap();
    let request = |token: &str, event: Option<NewEvent>| Admit {
        owner: owner.clone(),
        session: session.clone(),
        event,
        lease: Some(LeaseRequest {
            token: token.into(),
            worker: "w".into(),
            ttl: Duration::from_secs(30),
            mailbox_limit: 9,
            crash_limit: 5,
            owner_cap: 0,
        }),
    };
    let event = NewEvent {
        id: "e1".parse().unwrap(),
        body_hash: "h".into(),
        kind: EventKind::Message,
        job: None,
        order: "3-0001".into(),
        body: "{}".into(),
        open: None,
        finish: None,
        outbox: Vec::new(),
        quota: None,
        may_replace: false,
    };
    let admitted = store.admit(now, &request("one", Some(event))).await.unwrap();
    assert_eq!(admitted.intake, Intake::New);
    let LeaseOutcome::Run(grant) = admitted.lease else { panic!("no lease: {:?}", admitted.lease) };
    let later = now.plus(Duration::from_hours(2));
    let swept = store.sweep(later, &owner, Duration::from_secs(5), 9).await.unwrap();
    assert_eq!(swept.due, [], "nobody is told to take it over");
    let asked = store.admit(later, &request("two", None)).await.unwrap().lease;
    assert!(matches!(asked, LeaseOutcome::Busy(_)), "{asked:?}");
    let held = store.renew(later, &grant.lease, Duration::from_secs(30)).await.unwrap();
    assert!(matches!(held, LeaseCheck::Held { .. }), "{held:?}");
}
