//! The owner's tree: pages that cost what they show, and a turn's own writes in them.

use crate::support::site::{NOW, Site, path, write};
use bytes::Bytes;
use serde_json::{Value, json};
use trellis::store::{DocEffect, DocWrite, DocumentStore, Expect};
use trellis::venue::workspace::{TreePage, Workspace, WriteOp};

impl Site {
    async fn write(&self, at: &str, value: Value) {
        self.tree().apply_now(NOW, &write(at, value)).await.unwrap();
    }

    /// Bytes that no read survives.
    async fn damage(&self, key: &str) {
        let change = DocEffect::Put(Bytes::from_static(b"damaged"));
        let write = DocWrite { key: key.to_owned(), expect: Expect::Any, change };
        self.store.write(NOW, &self.owner, &[write]).await.unwrap();
    }
}

async fn page(tree: &Workspace, at: &str, offset: usize, limit: usize, values: bool) -> TreePage {
    tree.page(&path(at), offset, limit, values).await.unwrap().unwrap()
}

fn names(listing: &TreePage) -> Vec<&str> {
    listing.items.iter().map(|(name, _)| name.as_str()).collect()
}

#[tokio::test]
async fn a_page_of_a_map_reads_no_other_entries() {
    let site = Site::new();
    let entries = (0..10_050).map(|n| (format!("{n:05}"), json!({"n": n})));
    site.write("w/records", Value::Object(entries.collect())).await;
    site.damage("w.e/records/1/00100").await;
    let tree = site.tree();
    let listing = page(&tree, "w/records", 98, 2, true).await;
    assert_eq!((listing.kind, listing.count), ("map", Some(10_050)));
    assert_eq!(listing.items, [("00098".to_owned(), json!({"n": 98})), ("00099".to_owned(), json!({"n": 99}))]);
    assert_eq!(names(&page(&tree, "w/records", 10_048, 100, true).await), ["10048", "10049"]);
    assert_eq!(
        names(&page(&tree, "w/records", 99, 3, false).await),
        ["00099", "00100", "00101"],
        "names need no bytes"
    );
    assert_eq!(page(&tree, "w/records", 0, 0, false).await.count, Some(10_050));
    let error = tree.page(&path("w/records"), 99, 3, true).await.unwrap_err();
    assert!(error.to_string().contains("`w.e/records/1/00100`"), "{error}");
}

/// A part of it that looks like all of it would be copied as all of it.
#[tokio::test]
async fn a_map_too_large_for_one_read_is_not_read_whole() {
    let site = Site::new();
    let entries = |count: usize| Value::Object((0..count).map(|n| (format!("{n:05}"), json!(n))).collect());
    site.write("w/most", entries(10_000)).await;
    site.write("w/more", entries(10_001)).await;
    let tree = site.tree();
    assert_eq!(tree.get(&path("w/most")).await.unwrap().unwrap().as_object().unwrap().len(), 10_000);
    let error = tree.get(&path("w/more")).await.unwrap_err().to_string();
    assert!(error.contains("more than 10000 entries") && error.contains("lattice/slice"), "{error}");
    let copy = WriteOp::Copy { from: path("w/more"), to: path("w/copy") };
    assert!(tree.apply(0, copy).await.is_err());
    tree.apply(0, write("w/most/one", json!(1))).await.unwrap();
    assert!(tree.get(&path("w/most")).await.is_err(), "with what the turn has written");
    assert_eq!(tree.get(&path("w/more/10000")).await.unwrap(), Some(json!(10_000)));
}

#[tokio::test]
async fn a_page_of_an_array_reads_its_chunks_only() {
    let site = Site::new();
    site.write("w/log", (0..300).collect()).await;
    site.damage("w.e/log/1/0000000000000000").await;
    site.damage("w.e/log/1/0000000000000003").await;
    let tree = site.tree();
    let listing = page(&tree, "w/log", 126, 4, true).await;
    let expected: Vec<_> = (126..130).map(|n: u64| (n.to_string(), json!(n))).collect();
    assert_eq!((listing.kind, listing.count, listing.items), ("array", Some(300), expected));
    assert_eq!(names(&page(&tree, "w/log", 298, 10, true).await), ["298", "299"]);
    assert_eq!(names(&page(&tree, "w/log", 300, 10, true).await), Vec::<&str>::new());
    assert_eq!(page(&tree, "w/log", 0, 10, false).await.count, Some(300));
    assert!(tree.page(&path("w/log"), 190, 4, true).await.is_err());
}

#[tokio::test]
async fn a_turn_sees_its_own_writes_in_a_page() {
    let site = Site::new();
    site.write("w/m", json!({"b": 1, "d": 1, "f": 1, "h": 1})).await;
    site.write("w/a", json!([0, 1])).await;
    let tree = site.tree();
    for (at, value) in [("w/m/a", json!(2)), ("w/m/d", json!(2)), ("w/m/g", json!(2)), ("w/new/x", json!(2))] {
        tree.apply(0, write(at, value)).await.unwrap();
    }
    tree.apply(0, WriteOp::Delete { path: path("w/m/f") }).await.unwrap();
    tree.apply(0, WriteOp::Append { path: path("w/a"), value: json!(2) }).await.unwrap();
    let all = page(&tree, "w/m", 0, 10, true).await;
    let shown: Vec<_> = all.items.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!((all.count, shown.join(" ")), (Some(5), "a=2 b=1 d=2 g=2 h=1".to_owned()));
    assert_eq!(names(&page(&tree, "w/m", 1, 2, true).await), ["b", "d"]);
    assert_eq!(names(&page(&tree, "w/m", 3, 9, false).await), ["g", "h"]);
    assert_eq!(page(&tree, "w/a", 2, 9, true).await.items, [("2".to_owned(), json!(2))]);
    let collections = page(&tree, "w", 0, 10, true).await;
    assert_eq!((collections.count, names(&collections)), (Some(3), vec!["a", "m", "new"]));
    assert_eq!(collections.items[0].1, json!([0, 1, 2]));
    assert!(tree.page(&path("w/none"), 0, 10, true).await.unwrap().is_none());
    let inside = page(&tree, "w/m/b", 0, 10, true).await;
    assert_eq!((inside.kind, inside.count), ("number", None));
}
