//! The usage of owners: counted with every change, and recounted.

use super::layout::{self, MailRecord, STATE, Space, prefix_end, to_signed};
use super::tx::{Tx, UsageChange};
use super::view::{Db, DurableState, StoreFault, View};
use super::{docs, index};
use crate::domain::quota::{OwnLimits, Quota, QuotaExceeded, QuotaKind, QuotaUsage};
use crate::store::{DocEffect, DocWrite, OwnerUsage, Recount, keys};
use std::ops::ControlFlow;

/// Returns the change of usage when a document of length `old` gets the length `new`.
pub(super) fn document_change(key: &str, old: Option<usize>, new: Option<usize>) -> UsageChange {
    let number = i64::from(new.is_some()) - i64::from(old.is_some());
    let weight = |value: Option<usize>| value.map_or(0, |value| to_signed(key.len() + value));
    let jobs = if key.starts_with(keys::JOB_LIST) { number } else { 0 };
    UsageChange { documents: number, bytes: weight(new) - weight(old), sessions: 0, jobs }
}

/// Returns the usage after a change; it never falls below 0.
pub(super) fn apply_change(usage: &QuotaUsage, growth: &UsageChange) -> QuotaUsage {
    QuotaUsage::from_fn(|kind| usage.get(kind).saturating_add_signed(growth.get(kind)))
}

/// Returns an owner's usage; counts it if the stored one is damaged.
pub(super) fn usage(view: &impl View, owner: &str) -> Result<QuotaUsage, StoreFault> {
    match stored_usage(view, owner)? {
        Some(usage) => Ok(usage),
        None => count(view, owner),
    }
}

/// Returns an owner's stored usage; `None` if it is damaged.
fn stored_usage(view: &impl View, owner: &str) -> Result<Option<QuotaUsage>, StoreFault> {
    let bytes = view.get(Space::Core, &layout::usage(owner))?;
    Ok(bytes.map_or(Some(QuotaUsage::default()), |bytes| decode(&bytes)))
}

pub(super) fn decode(bytes: &[u8]) -> Option<QuotaUsage> {
    let (mut usage, mut rest) = (QuotaUsage::default(), bytes);
    for kind in QuotaKind::ALL {
        (*usage.get_mut(kind), rest) = layout::split_number(rest)?;
    }
    rest.is_empty().then_some(usage)
}

fn encode(usage: &QuotaUsage) -> Vec<u8> {
    QuotaKind::ALL.iter().flat_map(|kind| usage.get(*kind).to_be_bytes()).collect()
}

/// Implements [`crate::store::Accounts::usage`] on a state.
pub(super) fn owner_usage(view: &impl View, owner: &str) -> Result<OwnerUsage, StoreFault> {
    Ok(OwnerUsage { used: usage(view, owner)?, operator_quota: operator_quota(view, owner)? })
}

/// Returns the quota that operators set for an owner.
fn operator_quota(view: &impl View, owner: &str) -> Result<OwnLimits, StoreFault> {
    let Some(line) = docs::get(view, owner, keys::QUOTA)?.value else { return Ok(OwnLimits::default()) };
    OwnLimits::decode(&line).ok_or_else(|| StoreFault::Record(format!("document `{}` is damaged", keys::QUOTA)))
}

/// Returns the limit that has no room for `adds` more; `None` if all fit. A quota that operators set for the owner
/// takes precedence over `quota`.
pub(super) fn exceeded_quota(
    view: &impl View,
    owner: &str,
    quota: &Quota,
    adds: &QuotaUsage,
) -> Result<Option<QuotaExceeded>, StoreFault> {
    let quota = quota.with_own(operator_quota(view, owner)?);
    Ok(if quota.is_none() { None } else { quota.check_room(&usage(view, owner)?, adds).err() })
}

/// Returns the usage that writes add to the stored documents.
pub(super) fn writes_usage(view: &impl View, owner: &str, writes: &[DocWrite]) -> Result<QuotaUsage, StoreFault> {
    let mut sum = UsageChange::default();
    for write in writes {
        let new = match &write.change {
            DocEffect::Put(bytes) => Some(bytes.len()),
            DocEffect::Delete => None,
            DocEffect::Check => continue,
        };
        let old = docs::get(view, owner, &write.key)?.value.map(|old| old.len());
        sum = sum + document_change(&write.key, old, new);
    }
    Ok(apply_change(&QuotaUsage::default(), &sum))
}

/// Adds the growth of a request to the stored usage of its owners.
pub(super) fn store_changes(tx: &mut Tx<'_>) -> Result<(), StoreFault> {
    for (owner, growth) in tx.take_growth() {
        if growth != UsageChange::default() {
            let now = if let Some(usage) = stored_usage(tx, &owner)? {
                apply_change(&usage, &growth)
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
fn count(view: &impl View, owner: &str) -> Result<QuotaUsage, StoreFault> {
    let mut found = UsageChange::default();
    let prefix = layout::doc(owner, "");
    view.walk(Space::Docs, &prefix, &prefix_end(&prefix), &mut |key, value| {
        let key = String::from_utf8_lossy(&key[prefix.len()..]);
        if let Some(doc) = docs::decode_present(&key, value) {
            found = found + document_change(&key, None, doc.value.map(|value| value.len()));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let mut sessions = Vec::new();
    let prefix = layout::session(owner, "");
    view.walk(Space::Core, &prefix, &prefix_end(&prefix), &mut |key, _| {
        sessions.push(index::split_key(key)?.1);
        Ok(ControlFlow::Continue(()))
    })?;
    found.sessions = to_signed(sessions.len());
    for session in sessions {
        let state = view.get(Space::Core, &layout::part(owner, &session, STATE))?;
        found.bytes += to_signed(state.map_or(0, |state| state.len()));
        let prefix = layout::mailbox(owner, &session);
        view.walk(Space::Mail, &prefix, &prefix_end(&prefix), &mut |_, record| {
            found.bytes += MailRecord::weight(record);
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(apply_change(&QuotaUsage::default(), &found))
}

/// Counts for [`crate::store::Accounts::recount`] without a change, on any consistent state.
pub(super) fn compare(view: &impl View, owner: &str) -> Result<Recount, StoreFault> {
    Ok(Recount::Done { stored: stored_usage(view, owner)?.unwrap_or_default(), counted: count(view, owner)? })
}

/// Counts for [`crate::store::Accounts::recount`], and stores the result.
pub(super) fn mend(tx: &mut Tx<'_>, owner: &str) -> Result<Recount, StoreFault> {
    let recount = compare(tx, owner)?;
    if let Recount::Done { stored: was, counted: is } = &recount
        && was != is
    {
        tx.put(Space::Core, layout::usage(owner), encode(is));
    }
    Ok(recount)
}

/// Counts the usage of owners of builds without counters, once.
pub(super) fn count_uncounted(db: &Db) -> Result<(), StoreFault> {
    let state = DurableState::snapshot(db);
    let mark = layout::usage("");
    if state.get(Space::Core, &mark)?.is_some() {
        return Ok(());
    }
    let mut owners = Vec::new();
    let prefix = layout::owner("");
    state.walk(Space::Core, &prefix, &prefix_end(&prefix), &mut |key, _| {
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
            let found = document_change(key, old, new);
            assert_eq!((found.documents, found.bytes, found.jobs), expected, "{key} {old:?} {new:?}");
        }
        assert_eq!(apply_change(&usage, &UsageChange { documents: -2, bytes: 5, sessions: 0, jobs: 0 }).documents, 0);
    }

    #[tokio::test]
    async fn uncounted_older_stores_are_counted_when_opened() {
        use crate::store::{Accounts, DocEffect, DocWrite, DocumentStore, Expect, embedded::EmbeddedStore};
        let dir = tempfile::tempdir().unwrap();
        let owner = "acme/ann".parse().unwrap();
        let write = DocWrite { key: "w/a".into(), expect: Expect::Any, change: DocEffect::Put("12345".into()) };
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
