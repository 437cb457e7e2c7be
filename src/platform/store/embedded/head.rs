//! The head: which store this is and how many groups it has made durable, in the database and in a file beside it. A
//! database with fewer groups than the file says has lost its last ones. A backup has no file; one that is there is
//! never empty, as it gets its name when it is written.

use super::clock::machine_time;
use super::layout::{self, DocRecord, Space, split_number};
use super::view::{Db, DurableState, StoreFault, View};
use crate::domain::losses::{Loss, Losses};
use crate::store::keys;
use std::fmt::{Display, Formatter};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Key of the head in the database.
const KEY: &[u8] = b"n";

/// Name of the head's file beside the database, and of a new one until it is written.
const FILE: &str = "head";
const NEW_FILE: &str = "head.new";

/// Name under which the audit has a find of the store itself.
const STORE_NAME: &str = "embedded store";

/// The random number of a store, and how many groups it has made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupCount {
    store: u64,
    groups: u64,
}

impl GroupCount {
    /// Counts a group in the batch that writes it.
    fn add_group(&mut self, batch: &mut fjall::OwnedWriteBatch, db: &Db) {
        self.groups += 1;
        batch.insert(db.keyspace(Space::Core), KEY, self.encode().to_vec());
    }

    fn encode(self) -> [u8; 16] {
        (u128::from(self.store) << 64 | u128::from(self.groups)).to_be_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (store, rest) = split_number(bytes)?;
        let (groups, _) = split_number(rest)?;
        // What a disk returns for blocks that were never written.
        (store, groups).ne(&(0, 0)).then_some(Self { store, groups })
    }
}

/// The file beside the database, as it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeadFile {
    /// No file is there: the store is new, or a backup that was put back.
    Absent,
    /// The file has no count that can be read.
    Damaged,
    /// Count that the file has.
    Known(GroupCount),
}

impl HeadFile {
    /// Opens the file of a folder, and reads it.
    fn open(dir: &Path) -> std::io::Result<(Option<File>, Self)> {
        let file = match File::options().read(true).write(true).open(dir.join(FILE)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((None, Self::Absent)),
            file => file?,
        };
        let mut bytes = [0; 16];
        let count = file.read_exact_at(&mut bytes, 0).ok().and_then(|()| GroupCount::decode(&bytes));
        Ok((Some(file), count.map_or(Self::Damaged, Self::Known)))
    }

    /// Creates the file of a folder, which has none, with a count. A crash leaves none or a whole one.
    fn create(dir: &Path, count: GroupCount) -> std::io::Result<File> {
        let new = dir.join(NEW_FILE);
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&new)?;
        file.write_all_at(&count.encode(), 0)?;
        file.sync_all()?;
        std::fs::rename(new, dir.join(FILE))?;
        Ok(file)
    }

    fn count(self) -> Option<GroupCount> {
        if let Self::Known(count) = self { Some(count) } else { None }
    }
}

/// The head of an open store.
pub(super) struct StoreHead {
    file: File,
    count: GroupCount,
}

impl StoreHead {
    /// Opens or creates the head of a folder, and compares it with the database; also returns why the database may have
    /// lost something, and what to do.
    pub(super) fn open(dir: &Path, db: &Db) -> Result<(Self, Option<String>), StoreFault> {
        let failed = |error: std::io::Error| StoreFault::Database(error.into());
        let (file, beside) = HeadFile::open(dir).map_err(failed)?;
        let inside = DurableState::snapshot(db).get(Space::Core, KEY)?.and_then(|bytes| GroupCount::decode(&bytes));
        let found = compare(inside, beside);
        let known = inside.or(beside.count());
        let groups = [inside, beside.count()].into_iter().flatten().map(|count| count.groups).max().unwrap_or(0);
        let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
        let mut count = GroupCount { store: known.map_or(random, |count| count.store), groups };
        let mut batch = db.database.batch();
        if let Some(found) = &found {
            let (key, record) = found.record();
            batch.insert(db.keyspace(Space::Docs), key, record);
        }
        count.add_group(&mut batch, db);
        batch.commit()?;
        db.database.persist(fjall::PersistMode::SyncAll)?;
        let file = match file {
            Some(file) => file,
            None => HeadFile::create(dir, count).map_err(failed)?,
        };
        let head = Self { file, count };
        head.write();
        Ok((head, found.map(|found| format!("{found}; {}", found.advice()))))
    }

    /// Counts a group in the batch that writes it.
    pub(super) fn add_group(&mut self, batch: &mut fjall::OwnedWriteBatch, db: &Db) {
        self.count.add_group(batch, db);
    }

    /// Writes the count of a durable group to the file, without an fsync: a file that lags behind the database does no
    /// harm.
    pub(super) fn write(&self) {
        if let Err(error) = self.file.write_all_at(&self.count.encode(), 0) {
            tracing::warn!(%error, "the head of the store is not written; a loss may not be noticed");
        }
    }
}

/// Why the database may not be what it was when the store was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum HeadFault {
    /// Groups of changes are gone, or the database is another one.
    Loss(String),
    /// The file can't be read, so a loss would not be noticed.
    Unreadable,
}

/// Compares the count of a database with that of the file beside it.
fn compare(inside: Option<GroupCount>, beside: HeadFile) -> Option<HeadFault> {
    let beside = match beside {
        HeadFile::Absent => return None,
        HeadFile::Damaged => return Some(HeadFault::Unreadable),
        HeadFile::Known(beside) => beside,
    };
    let Some(inside) = inside else {
        let text = format!("all of its {} groups of changes are gone: its database is a new one", beside.groups);
        return Some(HeadFault::Loss(text));
    };
    if inside.store != beside.store {
        return Some(HeadFault::Loss("its database is that of another store".to_owned()));
    }
    let lost = beside.groups.checked_sub(inside.groups).filter(|lost| *lost > 0)?;
    Some(HeadFault::Loss(format!(
        "the last {lost} of its {} groups of changes are gone: its journal was cut, deleted or replaced",
        beside.groups
    )))
}

impl Display for HeadFault {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Loss(text) => f.write_str(text),
            Self::Unreadable => {
                write!(f, "its file `{FILE}` could not be read: whether its last changes are gone is not known")
            }
        }
    }
}

impl HeadFault {
    const fn advice(&self) -> &'static str {
        match self {
            Self::Loss(_) => "restore a backup, or submit again what `trellis audit` doesn't know",
            Self::Unreadable => "compare what was submitted last with `trellis audit`; the file is written anew",
        }
    }

    /// Returns key and record of the document by which the audit reports it.
    fn record(&self) -> (Vec<u8>, Vec<u8>) {
        let (owner, now) = (keys::venue_owner(), machine_time());
        let loss = |reason: &str| Loss {
            owner: owner.clone(),
            acknowledged: now,
            kind: "groups of changes".to_owned(),
            what: "what the embedded store had made durable".to_owned(),
            lost: Some(reason.to_owned()),
            change: None,
        };
        let (lines, notes) = match self {
            Self::Loss(reason) => (vec![loss(reason)], Vec::new()),
            Self::Unreadable => (Vec::new(), vec![format!("the embedded store: {self}")]),
        };
        let losses = Losses::split(now, STORE_NAME, lines, notes);
        let losses = serde_json::to_vec(&losses[0]).unwrap_or_default();
        let key = layout::doc(&owner.token(), &keys::losses(now, STORE_NAME));
        (key, DocRecord::encode(1, Ok(&losses)))
    }
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
            let found =
                compare(inside, beside.map_or(HeadFile::Absent, HeadFile::Known)).map(|found| found.to_string());
            assert_eq!(found.is_some(), lost.is_some(), "{inside:?} {beside:?}: {found:?}");
            assert!(lost.is_none_or(|lost| found.is_some_and(|found| found.contains(lost))), "{lost:?}");
        }
        for inside in [None, count(1, 5)] {
            assert_eq!(compare(inside, HeadFile::Damaged), Some(HeadFault::Unreadable));
        }
        let one = GroupCount { store: 7, groups: 9 };
        assert_eq!(GroupCount::decode(&one.encode()), Some(one));
        assert_eq!(GroupCount::decode(&[0; 16]), None);
    }
}
