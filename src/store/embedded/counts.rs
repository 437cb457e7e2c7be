//! The usage of owners: counted with every change, and recounted.

use super::layout::{self, MailRecord, STATE, Space, end_of};
use super::tx::{Db, Durable, Fault, Tx, View};
use super::{docs, index};
use crate::domain::quota::{Counts, Over, Own, Quota, QuotaKind, QuotaUsage};
use crate::store::{Change, DocWrite, Recount, Standing, keys};
use std::ops::ControlFlow;

/// The change of usage by a request.
pub(super) type Growth = Counts<i64>;

/// Converts a length for a signed sum.
pub(super) fn signed(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// Returns the change of usage when a document of length `old` gets the length `new`.
pub(super) fn of_document(key: &str, old: Option<usize>, new: Option<usize>) -> Growth {
    let number = i64::from(new.is_some()) - i64::from(old.is_some());
    let weight = |value: Option<usize>| value.map_or(0, |value| signed(key.len() + value));
    let jobs = if key.starts_with(keys::JOB_LIST) { number } else { 0 };
    Growth { documents: number, bytes: weight(new) - weight(old), sessions: 0, jobs }
}

/// Returns the usage after a change; it never falls below 0.
pub(super) fn grown(usage: &QuotaUsage, growth: &Growth) -> QuotaUsage {
    QuotaUsage::by(|kind| usage.get(kind).saturating_add_signed(growth.get(kind)))
}

/// Returns an owner's usage; counts it if the stored one is damaged.
pub(super) fn usage(view: &impl View, owner: &str) -> Result<QuotaUsage, Fault> {
    match written(view, owner)? {
        Some(usage) => Ok(usage),
        None => count(view, owner),
    }
}

/// Returns an owner's stored usage; `None` if it is damaged.
fn written(view: &impl View, owner: &str) -> Result<Option<QuotaUsage>, Fault> {
    let bytes = view.get(Space::Core, &layout::usage(owner))?;
    Ok(bytes.map_or(Some(QuotaUsage::default()), |bytes| decode(&bytes)))
}

pub(super) fn decode(bytes: &[u8]) -> Option<QuotaUsage> {
    let (mut usage, mut rest) = (QuotaUsage::default(), bytes);
    for kind in QuotaKind::ALL {
        (*usage.at(kind), rest) = layout::number(rest)?;
    }
    rest.is_empty().then_some(usage)
}

fn encode(usage: &QuotaUsage) -> Vec<u8> {
    QuotaKind::ALL.iter().flat_map(|kind| usage.get(*kind).to_be_bytes()).collect()
}

/// Implements [`crate::store::Accounts::usage`] on a state.
pub(super) fn standing(view: &impl View, owner: &str) -> Result<Standing, Fault> {
    Ok(Standing { used: usage(view, owner)?, own: own(view, owner)? })
}

/// Returns the quota that operators set for an owner.
fn own(view: &impl View, owner: &str) -> Result<Own, Fault> {
    let Some(line) = docs::get(view, owner, keys::QUOTA)?.value else { return Ok(Own::default()) };
    Own::decode(&line).ok_or_else(|| Fault::Record(format!("document `{}` is damaged", keys::QUOTA)))
}

/// Checks whether an owner may keep `adds` more. A quota that operators set for the owner takes precedence over
/// `quota`.
pub(super) fn admits(
    view: &impl View,
    owner: &str,
    quota: &Quota,
    adds: &QuotaUsage,
) -> Result<Result<(), Over>, Fault> {
    let quota = quota.of_owner(own(view, owner)?);
    Ok(if quota.is_none() { Ok(()) } else { quota.admits(&usage(view, owner)?, adds) })
}

/// Returns the usage that writes add to the stored documents.
pub(super) fn of_writes(view: &impl View, owner: &str, writes: &[DocWrite]) -> Result<QuotaUsage, Fault> {
    let mut sum = Growth::default();
    for write in writes {
        let new = match &write.change {
            Change::Put(bytes) => Some(bytes.len()),
            Change::Delete => None,
            Change::Check => continue,
        };
        let old = docs::get(view, owner, &write.key)?.value.map(|old| old.len());
        sum = sum + of_document(&write.key, old, new);
    }
    Ok(grown(&QuotaUsage::default(), &sum))
}

/// Adds the growth of a request to the stored usage of its owners.
pub(super) fn settle(tx: &mut Tx<'_>) -> Result<(), Fault> {
    for (owner, growth) in tx.take_growth() {
        if growth != Growth::default() {
            let now = if let Some(usage) = written(tx, &owner)? {
                grown(&usage, &growth)
            } else {
                tracing::error!(owner, "the counts of what it keeps were damaged; they are made anew");
                count(tx, &owner)?
            };
            tx.put(Space::Core, layout::usage(&owner), encode(&now));
        }
    }
    Ok(())
}

/// Counts the usage of an owner from its records.
fn count(view: &impl View, owner: &str) -> Result<QuotaUsage, Fault> {
    let mut found = Growth::default();
    let prefix = layout::doc(owner, "");
    view.walk(Space::Docs, &prefix, &end_of(&prefix), &mut |key, value| {
        let key = String::from_utf8_lossy(&key[prefix.len()..]);
        if let Some(doc) = docs::present(&key, value) {
            found = found + of_document(&key, None, doc.value.map(|value| value.len()));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let mut sessions = Vec::new();
    let prefix = layout::session(owner, "");
    view.walk(Space::Core, &prefix, &end_of(&prefix), &mut |key, _| {
        sessions.push(index::split(key)?.1);
        Ok(ControlFlow::Continue(()))
    })?;
    found.sessions = signed(sessions.len());
    for session in sessions {
        let state = view.get(Space::Core, &layout::part(owner, &session, STATE))?;
        found.bytes += signed(state.map_or(0, |state| state.len()));
        let prefix = layout::mailbox(owner, &session);
        view.walk(Space::Mail, &prefix, &end_of(&prefix), &mut |_, record| {
            found.bytes += MailRecord::weight(record);
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(grown(&QuotaUsage::default(), &found))
}

/// Counts for [`crate::store::Accounts::recount`] without a change, on any consistent state.
pub(super) fn compared(view: &impl View, owner: &str) -> Result<Recount, Fault> {
    Ok(Recount::Done { was: written(view, owner)?.unwrap_or_default(), is: count(view, owner)? })
}

/// Counts for [`crate::store::Accounts::recount`], and stores the result.
pub(super) fn mended(tx: &mut Tx<'_>, owner: &str) -> Result<Recount, Fault> {
    let recount = compared(tx, owner)?;
    if let Recount::Done { was, is } = &recount
        && was != is
    {
        tx.put(Space::Core, layout::usage(owner), encode(is));
    }
    Ok(recount)
}

/// Counts the usage of owners of builds without counters, once.
pub(super) fn count_old(db: &Db) -> Result<(), Fault> {
    let state = Durable::of(db);
    let mark = layout::usage("");
    if state.get(Space::Core, &mark)?.is_some() {
        return Ok(());
    }
    let mut owners = Vec::new();
    let prefix = layout::owner("");
    state.walk(Space::Core, &prefix, &end_of(&prefix), &mut |key, _| {
        owners.push(String::from_utf8_lossy(&key[prefix.len()..]).into_owned());
        Ok(ControlFlow::Continue(()))
    })?;
    let mut batch = db.database.batch();
    for owner in owners {
        batch.insert(db.keyspace(Space::Core), layout::usage(&owner), encode(&count(&state, &owner)?));
    }
    batch.insert(db.keyspace(Space::Core), mark, Vec::new());
    Ok(batch.commit()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_pinned_and_a_document_counts_with_its_key() {
        let usage = QuotaUsage { documents: 1, bytes: 2, sessions: 3, jobs: 4 };
        assert_eq!(decode(&encode(&usage)), Some(usage));
        assert_eq!(encode(&usage)[..9], [0, 0, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!((decode(b"1"), decode(&[0; 33])), (None, None));
        for (key, old, new, expected) in [
            ("w/a", None, Some(5), (1, 8, 0)),
            ("w/a", Some(5), Some(2), (0, -3, 0)),
            ("w/a", Some(5), None, (-1, -8, 0)),
            ("w/a", None, None, (0, 0, 0)),
            ("l/1-a", None, Some(0), (1, 5, 1)),
            ("l/1-a", Some(0), None, (-1, -5, -1)),
            ("j/a", None, Some(0), (1, 3, 0)),
        ] {
            let found = of_document(key, old, new);
            assert_eq!((found.documents, found.bytes, found.jobs), expected, "{key} {old:?} {new:?}");
        }
        assert_eq!(grown(&usage, &Growth { documents: -2, bytes: 5, sessions: 0, jobs: 0 }).documents, 0);
    }

    #[tokio::test]
    async fn what_was_kept_before_anybody_counted_is_counted_when_the_store_is_opened() {
        use crate::store::{Accounts, Change, DocWrite, DocumentStore, Expect, embedded::EmbeddedStore};
        let dir = tempfile::tempdir().unwrap();
        let owner = "acme/ann".parse().unwrap();
        let write = DocWrite { key: "w/a".into(), expect: Expect::Any, change: Change::Put("12345".into()) };
        let expected = QuotaUsage { documents: 1, bytes: 8, ..QuotaUsage::default() };
        let store = EmbeddedStore::open(dir.path()).unwrap();
        store.write(crate::domain::time::Millis(1), &owner, &[write]).await.unwrap();
        assert_eq!(store.usage(&owner).await.unwrap().used, expected);
        drop(store);
        let db = Db::open(&dir.path().join("db")).unwrap();
        for owner in ["acme/ann", ""] {
            db.keyspace(Space::Core).remove(layout::usage(owner)).unwrap();
        }
        drop(db);
        let store = EmbeddedStore::open(dir.path()).unwrap();
        assert_eq!(store.usage(&owner).await.unwrap().used, expected);
    }
}
