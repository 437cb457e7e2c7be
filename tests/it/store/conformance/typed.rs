//! Documents with types: edits that others get in the way of, pages and their ends, values that don't decode.

use super::*;
use std::sync::atomic::{AtomicU32, Ordering};
use trellis::domain::limits::LIST_BYTES;
use trellis::domain::quota::Quota;
use trellis::store::{DamagedRecord, EDIT_ATTEMPTS, Edit, StoreError};

/// Kind and name of the edited documents.
const KIND: &str = "the number";
const NAME: &str = "n";

pub async fn edits_at_once_all_count(w: World) {
    let store = &*w.store;
    let attempt = || async {
        let (number, version) = store.get_versioned::<u64>(&w.owner, "w/n").await?;
        let number = number.unwrap_or_default() + 1;
        Ok(Edit::write([DocWrite::json("w/n", &number).at_version(version)], number))
    };
    let add = |_| store.edit::<_, StoreError, _>(T0, &w.owner, KIND, &NAME, attempt);
    let seen: Result<Vec<u64>, _> = futures::future::join_all((0..10).map(add)).await.into_iter().collect();
    let mut seen = seen.unwrap();
    seen.sort_unstable();
    assert_eq!(seen, (1..=10).collect::<Vec<_>>(), "each counts once, over what the one before has left");
    assert_eq!(store.get(&w.owner, "w/n").await.unwrap(), Some(10));
}

pub async fn an_edit_that_others_always_outrun_is_given_up(w: World) {
    let (store, attempts) = (&*w.store, AtomicU32::new(0));
    let attempt = || async {
        attempts.fetch_add(1, Ordering::Relaxed);
        let version = store.doc(&w.owner, "w/n").await?.version;
        w.write(T0, &[put("w/n", "theirs")]).await;
        Ok(Edit::write([DocWrite::put("w/n", "mine").at_version(version), DocWrite::put("w/other", "mine")], ()))
    };
    let error = store.edit(T0, &w.owner, KIND, &NAME, attempt).await.unwrap_err();
    assert!(matches!(error, StoreError::Contended { .. }) && error.is_transient(), "{error:?}");
    assert_eq!(error.to_string(), "the number `n` is being changed by others; try again");
    assert_eq!(attempts.into_inner(), EDIT_ATTEMPTS);
    assert_eq!((w.text("w/n").await.as_deref(), w.text("w/other").await), (Some("theirs"), None));
}

pub async fn an_edit_decides_what_is_written_and_within_what(w: World) {
    let store = &*w.store;
    let edit = async |decide: &dyn Fn(u8) -> Result<Edit<u8>, StoreError>, name| {
        store.edit(T0, &w.owner, KIND, &NAME, || async move { decide(name) }).await
    };
    assert_eq!(edit(&|name| Ok(Edit::without_writes(name)), 1).await.unwrap(), 1);
    assert_eq!(w.doc("w/a").await.version, 0);
    let one = |name: u8| {
        let quota = Quota { documents: 1, ..Quota::default() };
        Ok(Edit::write([DocWrite::index_entry(format!("w/{name}")).at_version(0)], name).with_quota(quota))
    };
    assert_eq!(edit(&one, 1).await.unwrap(), 1);
    let refused = edit(&one, 2).await;
    assert!(matches!(refused, Err(StoreError::Over(_))), "{refused:?}");
    assert_eq!(w.doc("w/2").await.version, 0);
    let refused = edit(&|_| Err(StoreError::Corrupt { store: "s".into(), record: None, reason: "r".into() }), 3).await;
    assert!(matches!(refused, Err(StoreError::Corrupt { .. })), "what an attempt fails with is the answer");
}

pub async fn typed_writes_become_document_writes(w: World) {
    w.write(
        T0,
        &[DocWrite::json("w/j", &[1]), DocWrite::index_entry("w/m"), DocWrite::put("w/p", "text").at_version(0)],
    )
    .await;
    assert_eq!(w.text("w/j").await.as_deref(), Some("[1]"));
    assert_eq!((w.text("w/m").await.as_deref(), w.text("w/p").await.as_deref()), (Some(""), Some("text")));
    assert!(matches!(
        w.write(T0, &[DocWrite::check("w/j", 2), DocWrite::delete("w/m")]).await,
        WriteOutcome::Conflict(_)
    ));
    assert_eq!(
        w.write(T0, &[DocWrite::check("w/j", 1), DocWrite::delete("w/m").at_version(1)]).await,
        WriteOutcome::Done
    );
    assert_eq!(w.text("w/m").await, None);
    assert_eq!(w.store.get_many(&w.owner, &["w/x".into(), "w/j".into()]).await.unwrap(), [None, Some(vec![1])]);
    assert_eq!(w.store.get_versioned::<u8>(&w.owner, "w/m").await.unwrap(), (None, 2));
}

pub async fn the_last_page_ends_at_the_last_record(w: World) {
    let keys: Vec<String> = (0..7).map(|number| format!("w/{number}")).collect();
    for count in 0..=keys.len() {
        for limit in 1..=keys.len() + 1 {
            for reverse in [false, true] {
                let pages = if limit % 2 == 0 { w.store.docs(&w.owner, "w/") } else { w.store.entries(&w.owner, "w/") };
                let mut pages = pages.page_size(limit);
                let mut expected = keys[..count].to_vec();
                if reverse {
                    pages = pages.reverse();
                    expected.reverse();
                }
                let mut found = Vec::new();
                while let Some(page) = pages.keys().await.unwrap() {
                    assert!((1..=limit).contains(&page.len()), "{count} {limit}");
                    found.extend(page);
                }
                assert_eq!(found, expected, "{count} {limit} {reverse}");
                assert!(pages.keys().await.unwrap().is_none() && pages.last_place().is_none(), "an end stays one");
            }
        }
        if let Some(key) = keys.get(count) {
            w.write(T0, &[put(key, "1")]).await;
        }
    }
    let mut pages = w.store.entries(&w.owner, "w/").start_after(Some("w/4".into())).page_size(1);
    assert_eq!(pages.keys().await.unwrap().unwrap(), ["w/5"]);
    let place = pages.last_place();
    let mut rest = w.store.docs(&w.owner, "w/").start_after(place);
    assert_eq!(rest.keys().await.unwrap().unwrap(), ["w/6"], "it goes on where another has stopped");
    assert!(w.store.docs(&w.owner, "w/").page_size(0).next().await.unwrap().is_none());
}

pub async fn a_page_of_large_documents_is_short(w: World) {
    let large = "x".repeat(LIST_BYTES / 6);
    for number in 10..30 {
        w.write(T0, &[put(&format!("w/{number}"), &large)]).await;
    }
    let (mut pages, mut sizes) = (w.store.docs(&w.owner, "w/"), Vec::new());
    while let Some(page) = pages.next().await.unwrap() {
        sizes.push(page.len());
    }
    assert_eq!(sizes.iter().sum::<usize>(), 20);
    assert!(sizes.iter().all(|size| *size <= 8), "{sizes:?}");
}

pub async fn an_undecodable_document_is_named(w: World) {
    w.write(T0, &[put("w/a", "1"), put("w/b", "one")]).await;
    let key = Some(DamagedRecord::Document("w/b".to_owned()));
    let named = |error: StoreError| matches!(&error, StoreError::Corrupt { record, .. } if *record == key);
    assert!(named(w.store.get::<u8>(&w.owner, "w/b").await.unwrap_err()));
    assert!(named(w.store.get_versioned::<u8>(&w.owner, "w/b").await.unwrap_err()));
    assert!(named(w.store.get_many::<u8>(&w.owner, &["w/a".into(), "w/b".into()]).await.unwrap_err()));
    // In a list it keeps no other from being shown.
    let records = w.store.docs(&w.owner, "w/").records::<u8>().await.unwrap();
    assert_eq!(records, Some(vec![("w/a".to_owned(), 1)]));
}

pub async fn sessions_and_owners_come_page_after_page(w: World) {
    w.agent().await;
    for name in ["a", "b", "c"] {
        w.append(T0, name, message(name)).await;
    }
    let (mut sessions, mut sizes) = (w.store.all_sessions(&w.owner, None).page_size(2), Vec::new());
    while let Some(page) = sessions.next().await.unwrap() {
        sizes.push(page.len());
    }
    assert_eq!(sizes, [2, 1]);
    let agent = "clerk".parse().unwrap();
    let mut behind = w.store.all_sessions(&w.owner, Some(&agent)).start_after(Some(session("b")));
    assert_eq!(behind.next().await.unwrap().unwrap()[0].key, session("c"));
    w.store.write(T0, &"acme/bob".parse().unwrap(), &[put("w/a", "1")]).await.unwrap();
    let mut owners = w.store.all_owners().page_size(1);
    for name in ["acme/ann", "acme/bob"] {
        assert_eq!(owners.next().await.unwrap().unwrap()[0].to_string(), name);
    }
    assert_eq!(owners.next().await.unwrap(), None);
}
