//! The head: which store this is and how many groups it has made durable, in the database and in a file beside it. A
//! database with fewer groups than the file says has lost its last ones.

use super::clock::machine_time;
use super::layout::{self, DocRecord, Space, split_number};
use super::view::{Db, DurableState, StoreFault, View};
use crate::domain::losses::{Loss, Losses};
use crate::store::keys;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Key of the head in the database.
const KEY: &[u8] = b"n";

/// Name of the head's file beside the database.
const FILE: &str = "head";

/// The random number of a store, and how many groups it has made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupCount {
    store: u64,
    groups: u64,
}

impl GroupCount {
    fn encode(self) -> [u8; 16] {
        (u128::from(self.store) << 64 | u128::from(self.groups)).to_be_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (store, rest) = split_number(bytes)?;
        let (groups, _) = split_number(rest)?;
        Some(Self { store, groups })
    }
}

/// The head of an open store.
pub(super) struct StoreHead {
    file: File,
    count: GroupCount,
}

impl StoreHead {
    /// Opens or creates the head of a folder, and compares it with the database; also returns why they differ.
    pub(super) fn open(dir: &Path, db: &Db) -> Result<(Self, Option<String>), StoreFault> {
        let failed = |error: std::io::Error| StoreFault::Database(error.into());
        let path = dir.join(FILE);
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        let mut bytes = [0; 16];
        let beside = file.read_exact_at(&mut bytes, 0).ok().and_then(|()| GroupCount::decode(&bytes));
        let inside = DurableState::snapshot(db).get(Space::Core, KEY)?.and_then(|bytes| GroupCount::decode(&bytes));
        let lost = describe_loss(inside, beside);
        let known = inside.or(beside);
        let groups = [inside, beside].into_iter().flatten().map(|count| count.groups).max().unwrap_or(0);
        let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
        let count = GroupCount { store: known.map_or(random, |count| count.store), groups };
        let mut head = Self { file, count };
        let mut batch = db.database.batch();
        if let Some(lost) = &lost {
            let (key, record) = loss_record(lost);
            batch.insert(db.keyspace(Space::Docs), key, record);
        }
        head.add_group(&mut batch, db);
        batch.commit()?;
        db.database.persist(fjall::PersistMode::SyncAll)?;
        head.write();
        Ok((head, lost))
    }

    /// Counts a group in the batch that writes it.
    pub(super) fn add_group(&mut self, batch: &mut fjall::OwnedWriteBatch, db: &Db) {
        self.count.groups += 1;
        batch.insert(db.keyspace(Space::Core), KEY, self.count.encode().to_vec());
    }

    /// Writes the count of a durable group to the file, without an fsync: a file that lags behind the database does no
    /// harm.
    pub(super) fn write(&self) {
        if let Err(error) = self.file.write_all_at(&self.count.encode(), 0) {
            tracing::warn!(%error, "the head of the store is not written; a loss may not be noticed");
        }
    }
}

/// Returns why the database isn't what the file beside it says.
fn describe_loss(inside: Option<GroupCount>, beside: Option<GroupCount>) -> Option<String> {
    let beside = beside?;
    let Some(inside) = inside else {
        return Some(format!("all of its {} groups of changes are gone: its database is a new one", beside.groups));
    };
    if inside.store != beside.store {
        return Some("its database is that of another store".to_owned());
    }
    let lost = beside.groups.checked_sub(inside.groups).filter(|lost| *lost > 0)?;
    Some(format!(
        "the last {lost} of its {} groups of changes are gone: its journal was cut, deleted or replaced",
        beside.groups
    ))
}

/// Returns key and record of the document by which the audit reports the loss.
fn loss_record(reason: &str) -> (Vec<u8>, Vec<u8>) {
    let (owner, now) = (keys::venue_owner(), machine_time());
    let told = Loss {
        owner: owner.clone(),
        acknowledged: now,
        kind: "groups of changes".to_owned(),
        what: "what the embedded store had made durable".to_owned(),
        lost: Some(reason.to_owned()),
        change: None,
    };
    let losses = Losses::split(now, "embedded store", vec![told], Vec::new());
    let losses = serde_json::to_vec(&losses[0]).unwrap_or_default();
    let key = layout::doc(&owner.token(), &keys::losses(now, "embedded store"));
    (key, DocRecord::encode(1, Ok(&losses)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_with_fewer_groups_than_its_head_has_lost_some() {
        let count = |store, groups| Some(GroupCount { store, groups });
        for (inside, beside, lost) in [
            (None, None, None),
            (count(1, 5), None, None),
            (count(1, 5), count(1, 5), None),
            (count(1, 6), count(1, 5), None),
            (count(1, 3), count(1, 5), Some("the last 2 of its 5")),
            (None, count(1, 5), Some("all of its 5")),
            (count(2, 9), count(1, 5), Some("another store")),
        ] {
            let found = describe_loss(inside, beside);
            assert_eq!(found.is_some(), lost.is_some(), "{inside:?} {beside:?}: {found:?}");
            assert!(lost.is_none_or(|lost| found.is_some_and(|found| found.contains(lost))), "{lost:?}");
        }
        let one = GroupCount { store: 7, groups: 9 };
        assert_eq!(GroupCount::decode(&one.encode()), Some(one));
    }
}
