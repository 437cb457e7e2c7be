//! Entries that have grown are kept in parts: the tree is the same JSON value, however it lies in documents.

use crate::support::both_stores::{On, on_both};
use crate::support::dice::Dice;
use crate::support::site::{NOW, Site, path, write};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use trellis::domain::lattice::layout::prefixes_below;
use trellis::domain::lattice::value;
use trellis::process::clock::Clock;
use trellis::store::{DocEffect, DocWrite, DocumentStore, WriteOutcome};
use trellis::venue::workspace::{Workspace, WorkspaceError, WriteOp};

fn expecting(at: &str, value: Value, version: u64) -> WriteOp {
    WriteOp::Write { path: path(at), value, expect: Some(version) }
}

fn map(entries: u64) -> Value {
    Value::Object((0..entries).map(|n| (format!("k{n:03}"), json!({"n": n}))).collect())
}

impl Site {
    async fn now(&self, op: WriteOp) -> Result<Value, WorkspaceError> {
        self.tree().apply_now(NOW, &op).await
    }

    async fn get(&self, at: &str) -> Option<Value> {
        self.tree().get(&path(at)).await.unwrap()
    }

    async fn version(&self, at: &str) -> u64 {
        self.tree().version(&path(at)).await.unwrap().unwrap_or(0)
    }

    /// Whether the writes of a turn are committed as they are.
    async fn commits(&self, turn: &Workspace) -> bool {
        let writes = turn.writes().await;
        self.store.write(NOW, &self.owner, &writes).await.unwrap() == WriteOutcome::Done
    }

    /// As the janitor does.
    async fn free(&self) {
        let mut writes = Vec::new();
        for (mark, _) in self.store.scan(&self.owner, "x/", None, false, 100).await.unwrap() {
            for prefix in prefixes_below(&mark[2..]) {
                let found = self.store.scan(&self.owner, &prefix, None, false, 10_000).await.unwrap();
                writes.extend(found.into_iter().map(|(key, _)| DocWrite::delete(key)));
            }
            writes.push(DocWrite::delete(mark));
        }
        self.store.write(NOW, &self.owner, &writes).await.unwrap();
    }

    /// `w/s/10` with many entries, in parts.
    async fn grown() -> Self {
        let site = Self::new();
        site.now(write("w/s/10", map(40))).await.unwrap();
        site.now(write("w/s/10/first", json!(1))).await.unwrap();
        site
    }
}

#[tokio::test]
async fn writers_of_different_keys_of_one_map_never_meet() {
    let site = Site::grown().await;
    let (one, two, three) = (site.tree(), site.tree(), site.tree());
    one.apply(0, write("w/s/10/a", json!(1))).await.unwrap();
    two.apply(0, write("w/s/10/b/deep", json!(2))).await.unwrap();
    three.apply(0, WriteOp::Delete { path: path("w/s/10/k007") }).await.unwrap();
    assert!(site.commits(&one).await && site.commits(&two).await && site.commits(&three).await);
    let all = site.get("w/s/10").await.unwrap();
    assert_eq!((&all["a"], &all["b"], all.get("k007")), (&json!(1), &json!({"deep": 2}), None));
    assert_eq!(all.as_object().unwrap().len(), 40 + 1 + 2 - 1);
    // Who replaces the whole meets all of them.
    let (whole, part) = (site.tree(), site.tree());
    part.apply(0, write("w/s/10/c", json!(3))).await.unwrap();
    whole.apply(0, write("w/s", json!({"10": {"new": true}}))).await.unwrap();
    assert!(site.commits(&whole).await);
    assert!(!site.commits(&part).await, "it would be written where nobody finds it");
    part.rebase().await.unwrap();
    assert!(site.commits(&part).await);
    assert_eq!(site.get("w/s").await, Some(json!({"10": {"new": true, "c": 3}})));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_update_is_lost_while_a_map_grows() {
    let site = Arc::new(Site::new());
    let writers = (0..8).map(|writer| {
        let site = Arc::clone(&site);
        tokio::spawn(async move {
            for n in 0..20 {
                site.now(write(&format!("w/s/10/{writer}-{n}"), json!(n))).await.unwrap();
            }
        })
    });
    futures::future::join_all(writers).await.into_iter().for_each(Result::unwrap);
    let all = site.get("w/s/10").await.unwrap();
    assert_eq!(all.as_object().unwrap().len(), 160);
    assert_eq!(all["3-19"], json!(19));
}

#[tokio::test]
async fn a_write_costs_its_own_size() {
    let site = Site::grown().await;
    let turn = site.tree();
    turn.apply(0, write("w/s/10/k001", json!({"n": 2}))).await.unwrap();
    let puts: Vec<_> = turn.writes().await.into_iter().filter(|write| write.change != DocEffect::Check).collect();
    assert_eq!(puts.len(), 1, "{puts:?}");
    assert!(puts[0].key.ends_with("/k001"), "{puts:?}");
    for n in 0..130 {
        site.now(WriteOp::Append { path: path("w/s/log"), value: json!("x".repeat(100) + &n.to_string()) })
            .await
            .unwrap();
    }
    let turn = site.tree();
    let appended = turn.apply(0, WriteOp::Append { path: path("w/s/log"), value: json!("last") }).await.unwrap();
    assert_eq!(appended["newSize"], json!(131));
    let bytes: usize = turn.writes().await.iter().map(|write| size(&write.change)).sum();
    assert!(bytes < 64 * 110, "{bytes}");
    assert_eq!(turn.get(&path("w/s/log/130")).await.unwrap(), Some(json!("last")));
    assert_eq!(turn.get(&path("w/s/log/131")).await.unwrap(), None);
    let listing = turn.page(&path("w/s/log"), 129, 5, true).await.unwrap().unwrap();
    assert_eq!((listing.kind, listing.count, listing.items.len()), ("array", Some(131), 2));
}

fn size(change: &DocEffect) -> usize {
    if let DocEffect::Put(bytes) = change { bytes.len() } else { 0 }
}

#[tokio::test]
async fn pages_of_split_entries_are_those_of_any_collection() {
    let site = Site::grown().await;
    let turn = site.tree();
    turn.apply(0, write("w/s/10/k0005", json!("between"))).await.unwrap();
    turn.apply(0, write("w/s/other", json!(1))).await.unwrap();
    let listing = turn.page(&path("w/s/10"), 0, 3, true).await.unwrap().unwrap();
    assert_eq!((listing.kind, listing.count), ("map", Some(42)));
    assert_eq!(listing.items[0], ("first".into(), json!(1)));
    let above = turn.page(&path("w/s"), 0, 10, true).await.unwrap().unwrap();
    assert_eq!((above.count, above.items.len()), (Some(2), 2), "parts are no entries of the collection");
    assert_eq!(above.items[0].1.as_object().unwrap().len(), 42);
    let names = turn.page(&path("w/s"), 0, 10, false).await.unwrap().unwrap();
    assert_eq!(names.items, [("10".into(), Value::Null), ("other".into(), Value::Null)]);
    assert_eq!(turn.get(&path("w")).await.unwrap().unwrap()["s"]["10"]["k0005"], json!("between"));
}

/// Who counts on the version of the whole keeps the whole; of what has grown only the parts have versions.
#[tokio::test]
async fn a_value_written_with_expect_is_never_split() {
    let site = Site::new();
    site.now(write("w/s/10", map(40))).await.unwrap();
    for n in 0..3 {
        let version = site.version("w/s/10/x").await;
        site.now(expecting("w/s/10/x", json!(n), version)).await.unwrap();
        assert_eq!(site.version("w/s/10").await, version + 1);
    }
    let version = site.version("w/s/10").await;
    site.now(expecting("w/s/10", map(50), version)).await.unwrap();
    let written = site.now(write("w/s/10/x", json!(1))).await.unwrap();
    assert_eq!(written["version"], json!(site.version("w/s/10/x").await));
    let seen = site.version("w/s/10/x").await;
    site.now(expecting("w/s/10/x", json!(2), seen)).await.unwrap();
    let late = site.now(expecting("w/s/10/x", json!(3), seen)).await.unwrap_err().to_string();
    assert!(late.starts_with("version conflict on `w/s/10/x`: expected"), "{late}");
    let whole = site.now(expecting("w/s/10", json!({}), 1)).await.unwrap_err();
    let whole = whole.to_string();
    assert!(whole.starts_with("`w/s/10` has grown into a collection") && whole.contains("parts"), "{whole}");
    let absent = site.now(expecting("w/s/10", json!({}), 0)).await.unwrap_err();
    assert!(absent.to_string().starts_with("version conflict on `w/s/10`: expected 0"), "{absent}");
    site.now(write("w/s/10", json!({"y": 1}))).await.unwrap();
    assert_eq!(site.get("w/s/10").await, Some(json!({"y": 1})), "it is one document again");
    site.now(expecting("w/s/10/y", json!(2), site.version("w/s/10").await)).await.unwrap();
}

/// A change of a part leaves the version of the root as it is: that version can't stand for the whole.
#[tokio::test]
async fn expect_on_a_collection_loses_no_change_of_its_parts() {
    for (whole, part, changed) in
        [(json!({"a": 1}), "w/c/new", json!({"a": 1, "new": 5})), (json!([1, 2]), "w/c/0", json!([5, 2]))]
    {
        let site = Site::new();
        let written = site.now(expecting("w/c", whole.clone(), 0)).await.unwrap()["version"].as_u64().unwrap();
        site.now(write(part, json!(5))).await.unwrap();
        let mine = json!({"mine": 1});
        let error = site.now(expecting("w/c", mine.clone(), written)).await.unwrap_err().to_string();
        assert!(
            error.starts_with("`w/c` is a collection whose parts have versions") && error.contains("`w/c/…`"),
            "{error}"
        );
        assert!(site.tree().apply(0, expecting("w/c", mine.clone(), written)).await.is_err(), "nor within a turn");
        let late = site.now(expecting("w/c", mine.clone(), 0)).await.unwrap_err().to_string();
        assert!(late.starts_with("version conflict on `w/c`: expected 0"), "{late}");
        assert_eq!(site.get("w/c").await, Some(changed));
        site.now(write("w/c", json!("a text"))).await.unwrap();
        site.now(expecting("w/c", mine, site.version("w/c").await)).await.unwrap();
    }
}

/// Parts of a collection that was replaced begin with documents of their own.
#[tokio::test]
async fn a_version_from_before_a_replacement_is_a_conflict() {
    for (whole, part) in [("w/c", "w/c/a"), ("w/s/10", "w/s/10/k000"), ("w/c", "w/c/k001/n")] {
        let site = Site::new();
        site.now(write(whole, map(40))).await.unwrap();
        site.now(write(part, json!(1))).await.unwrap();
        let mut seen = vec![site.version(part).await];
        for round in 0..3 {
            site.now(write(whole, map(40))).await.unwrap();
            let written = site.now(write(part, json!(round))).await.unwrap();
            for &old in &seen {
                let error = site.now(expecting(part, json!("lost"), old)).await.unwrap_err();
                assert!(matches!(error, WorkspaceError::VersionConflict { .. }), "{part}: {error}");
            }
            seen.push(site.version(part).await);
            assert_eq!(written["version"], json!(seen.last()), "{part}");
            assert_eq!(site.tree().read(&path(part)).await.unwrap().unwrap().version, seen.last().copied());
        }
        site.now(expecting(part, json!("won"), *seen.last().unwrap())).await.unwrap();
    }
}

/// Each turn replaces the same values several times.
#[tokio::test]
async fn a_value_replaced_twice_in_a_turn_is_written_once() {
    let site = Site::new();
    for at in ["w/s", "w/s/10"] {
        for round in 0..4 {
            let turn = site.tree();
            for n in 0..4 {
                turn.apply(0, write(at, map(40))).await.unwrap();
                turn.apply(0, write(&format!("{at}/of {round} {n}"), json!(n))).await.unwrap();
                if n % 2 == 0 {
                    turn.apply(0, WriteOp::Delete { path: path(at) }).await.unwrap();
                }
            }
            turn.apply(0, write(at, json!({"round": round}))).await.unwrap();
            assert!(site.commits(&turn).await, "{at} {round}");
            assert_eq!(site.get(at).await, Some(json!({"round": round})));
            site.free().await;
            assert_eq!(site.get(at).await, Some(json!({"round": round})), "what is there isn't what is freed");
            if round == 2 {
                site.now(WriteOp::Delete { path: path(at) }).await.unwrap();
            }
        }
    }
}

/// Parts of parts included.
async fn replaced_and_deleted_values_leave_no_documents(on: On) {
    let Some((venue, _dir)) = on.venue("", Clock::default()).await else { return };
    venue.worker();
    for at in ["w/s/10", "w/s/10/deep", "w/s/20", "w/gone/1", "w/left/1"] {
        venue.tree().apply_now(NOW, &write(at, map(40))).await.unwrap();
        venue.tree().apply_now(NOW, &write(&format!("{at}/one"), json!(1))).await.unwrap();
    }
    venue.tree().apply_now(NOW, &write("w/s/10", json!({"a": 1}))).await.unwrap();
    venue.tree().apply_now(NOW, &WriteOp::Delete { path: path("w/s/20") }).await.unwrap();
    venue.tree().apply_now(NOW, &WriteOp::Delete { path: path("w/gone") }).await.unwrap();
    assert_eq!(venue.tree().get(&path("w/s")).await.unwrap(), Some(json!({"10": {"a": 1}})));
    let store = &venue.venue.store;
    let started = Instant::now();
    loop {
        let found = store.scan(&venue.owner, "w.e/", None, false, 1_000).await.unwrap();
        let (left, other): (Vec<_>, Vec<_>) = found.iter().partition(|(key, _)| key.starts_with("w.e/left/"));
        if left.len() == 42 && other.len() == 1 {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "{} {other:?}", left.len());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(store.scan(&venue.owner, "x/", None, false, 10).await.unwrap(), []);
}

/// Paths, values and changes.
struct Random(Dice);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    fn path(&mut self) -> String {
        let roots = ["w/s", "w/s/m", "w/s/m", "w/s/l", "w/s/m/x", "w/t", "w/t/l"];
        let mut at = (*self.0.pick(&roots)).to_owned();
        for _ in 0..self.below(3) {
            let names = ["k001", "k002", "0", "65", "x", "l", "m"];
            at = format!("{at}/{}", self.0.pick(&names));
        }
        at
    }

    fn value(&mut self) -> Value {
        match self.below(8) {
            0 => map(33 + self.below(10)),
            1 => (0..60 + self.below(80)).collect(),
            2 => json!({"a": "x".repeat(5000), "b": "y".repeat(5000)}),
            3 => json!({"m": map(40), "l": [1, {"x": map(40)}]}),
            4 => Value::Null,
            _ => json!(self.below(1000)),
        }
    }

    fn op(&mut self) -> WriteOp {
        match self.below(10) {
            0 => WriteOp::Delete { path: path(&self.path()) },
            1..=3 => WriteOp::Append { path: path(&self.path()), value: self.value() },
            4 => WriteOp::Copy { from: path(&self.path()), to: path(&self.path()) },
            _ => write(&self.path(), self.value()),
        }
    }
}

/// The tree as one value; whether `op` can be done.
fn model(tree: &mut Value, op: &WriteOp) -> bool {
    let at = op.target().segments().to_vec();
    let mut next = tree.clone();
    let done = match op {
        WriteOp::Write { value, .. } => value::set(&mut next, &at, value.clone()).is_ok(),
        WriteOp::Delete { .. } => {
            value::remove(&mut next, &at);
            true
        }
        WriteOp::Append { value, .. } => value::append(&mut next, &at, value.clone()).is_ok(),
        WriteOp::Copy { from, .. } => match value::get(tree, from.segments()) {
            Some(value) => value::set(&mut next, &at, value.clone()).is_ok(),
            None => true,
        },
    };
    if done {
        *tree = next;
    }
    done
}

/// Random changes, some of them of turns that others overtake, against the same changes of one JSON value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tree_is_one_value_however_it_is_kept() {
    let mut in_parts = 0;
    for seed in 0..24 {
        let (site, mut random, mut expected) = (Site::new(), Random(Dice(seed)), Value::Object(Map::new()));
        for step in 0..60 {
            let (turn, mut accepted) = (site.tree(), Vec::new());
            for call in 0..=random.below(4) {
                let op = random.op();
                if turn.apply(u32::try_from(call).unwrap(), op.clone()).await.is_ok() {
                    accepted.push(op);
                }
            }
            let overtaken = random.below(3) == 0;
            if overtaken {
                let other = random.op();
                let done = site.now(other.clone()).await;
                assert_eq!(done.is_ok(), model(&mut expected, &other), "{seed} {step} {other:?} {done:?}");
            }
            let again = if overtaken { turn.rebase().await.unwrap() } else { Vec::new() };
            for (number, op) in accepted.iter().enumerate() {
                let done = again.get(number).is_none_or(|(_, done)| done.is_ok());
                assert_eq!(done, model(&mut expected, op), "{seed} {step} {op:?} of {accepted:?}");
            }
            assert!(site.commits(&turn).await, "{seed} {step}");
            let found = site.get("w").await.unwrap();
            assert_eq!(found, expected, "{seed} {step} {accepted:?}");
            let at = random.path();
            let part = site.get(&at).await;
            assert_eq!(part.as_ref(), value::get(&expected, path(&at).segments()), "{seed} {step} {at}");
        }
        let docs = site.store.scan(&site.owner, "w.e/", None, false, 100_000).await.unwrap();
        in_parts += docs.iter().filter(|(key, _)| key.matches(".e/").count() > 1).count();
    }
    assert!(in_parts > 100, "{in_parts}");
}

on_both! {
    replaced_and_deleted_values_leave_no_documents
}
