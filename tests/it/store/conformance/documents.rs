//! Versioned documents.

use super::*;
use trellis::store::DocConflict;

fn when(expect: Expect, write: DocWrite) -> DocWrite {
    DocWrite { expect, ..write }
}

fn delete(key: &str) -> DocWrite {
    DocWrite { change: DocEffect::Delete, ..put(key, "") }
}

fn check(key: &str) -> DocWrite {
    DocWrite { change: DocEffect::Check, ..put(key, "") }
}

fn conflict(key: &str, actual: u64) -> WriteOutcome {
    WriteOutcome::Conflict(vec![DocConflict { key: key.to_owned(), actual }])
}

pub async fn versions_grow_with_every_write(w: World) {
    assert_eq!(w.doc("w/a").await, Doc::default());
    assert_eq!(w.write(T0, &[when(Expect::Version(0), put("w/a", "1"))]).await, WriteOutcome::Done);
    assert_eq!(w.write(T0, &[when(Expect::Version(0), put("w/a", "2"))]).await, conflict("w/a", 1));
    assert_eq!(w.write(T0, &[when(Expect::Version(1), put("w/a", "2"))]).await, WriteOutcome::Done);
    assert_eq!(w.write(T0, &[put("w/a", "3")]).await, WriteOutcome::Done);
    assert_eq!(w.doc("w/a").await, Doc { version: 3, value: Some(Bytes::from_static(b"3")) });
}

pub async fn a_deleted_document_keeps_a_version(w: World) {
    w.write(T0, &[put("w/a", "1")]).await;
    assert_eq!(w.write(T0, &[when(Expect::Version(1), delete("w/a"))]).await, WriteOutcome::Done);
    assert_eq!(w.doc("w/a").await, Doc { version: 2, value: None });
    assert_eq!(w.write(T0, &[when(Expect::Version(0), put("w/a", "x"))]).await, conflict("w/a", 2));
    assert_eq!(w.write(T0, &[when(Expect::Version(1), put("w/a", "x"))]).await, conflict("w/a", 2));
    assert_eq!(w.write(T0, &[when(Expect::Version(2), put("w/a", "2"))]).await, WriteOutcome::Done);
    assert_eq!(w.doc("w/a").await.version, 3);
    // A sweep within the day leaves it.
    w.write(T0, &[delete("w/a")]).await;
    w.sweep(at(3_600_000)).await;
    assert_eq!(w.doc("w/a").await.version, 4);
}

pub async fn deleting_what_is_absent_changes_nothing(w: World) {
    assert_eq!(w.write(T0, &[delete("w/a"), when(Expect::Version(0), delete("w/b"))]).await, WriteOutcome::Done);
    assert_eq!((w.doc("w/a").await.version, w.doc("w/b").await.version), (0, 0));
    w.write(T0, &[put("w/a", "1")]).await;
    w.write(T0, &[delete("w/a")]).await;
    assert_eq!(w.write(T0, &[delete("w/a")]).await, WriteOutcome::Done);
    assert_eq!(w.doc("w/a").await.version, 2);
    assert_eq!(w.write(T0, &[when(Expect::Version(1), delete("w/a"))]).await, conflict("w/a", 2));
}

pub async fn a_check_writes_nothing(w: World) {
    w.write(T0, &[put("w/a", "1")]).await;
    let writes = [when(Expect::Version(1), check("w/a")), put("w/b", "1")];
    assert_eq!(w.write(T0, &writes).await, WriteOutcome::Done);
    assert_eq!((w.doc("w/a").await.version, w.doc("w/b").await.version), (1, 1));
    let writes = [when(Expect::Version(2), check("w/a")), put("w/b", "2")];
    assert_eq!(w.write(T0, &writes).await, conflict("w/a", 1));
    assert_eq!(w.doc("w/b").await.version, 1);
}

pub async fn a_conflict_names_every_document(w: World) {
    w.write(T0, &[put("w/a", "1"), put("w/b", "1")]).await;
    let writes = ["w/a", "w/b", "w/c"].map(|key| when(Expect::Version(9), put(key, "x")));
    let WriteOutcome::Conflict(mut conflicts) = w.write(T0, &writes).await else { panic!("expected conflicts") };
    conflicts.sort_by(|a, b| a.key.cmp(&b.key));
    let found: Vec<_> = conflicts.iter().map(|c| (&*c.key, c.actual)).collect();
    assert_eq!(found, [("w/a", 1), ("w/b", 1), ("w/c", 0)]);
}

pub async fn any_byte_survives(w: World) {
    let all = Bytes::from((0..=255).collect::<Vec<u8>>());
    let writes = [("w/ä|ö\"%", all.clone()), ("w/empty", Bytes::new())];
    let writes = writes.map(|(key, bytes)| DocWrite { change: DocEffect::Put(bytes), ..put(key, "") });
    w.write(T0, &writes).await;
    assert_eq!(w.doc("w/ä|ö\"%").await.value, Some(all.clone()));
    assert_eq!(w.doc("w/empty").await, Doc { version: 1, value: Some(Bytes::new()) });
    w.agent().await;
    let grant = w.run(T0, NewEvent { body: all.clone(), ..message("e\"ü|") }).await;
    assert_eq!((&*grant.mailbox[0].key, &grant.mailbox[0].body), ("0001|e\"ü|", &all));
    w.commit(at(1), &grant, &Commit { state: all.clone(), ..last_turn(&grant) }).await;
    assert_eq!(w.run(at(2), message("e2")).await.state, Some(all));
}

/// Why nobody but its caller may repeat a write.
pub async fn a_write_that_is_repeated_meets_itself(w: World) {
    let writes = [when(Expect::Version(0), put("w/a", "1"))];
    assert_eq!((w.write(T0, &writes).await, w.write(T0, &writes).await), (WriteOutcome::Done, conflict("w/a", 1)));
    for version in [1, 2] {
        assert_eq!(w.write(T0, &[put("w/b", "1")]).await, WriteOutcome::Done);
        assert_eq!(w.doc("w/b").await.version, version);
    }
    let methods = trellis::store::METHODS.iter();
    let once: Vec<_> = methods.filter(|m| m.repeat == trellis::store::Repeat::Once).map(|m| m.name).collect();
    assert_eq!(once, ["forget", "sweep", "write", "write_within", "recount", "backup"]);
}
