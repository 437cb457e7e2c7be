//! The database's journal, kept short: opening replays all of it, however little is new.
//!
//! fjall starts another journal only at 64 MB, and neither a clean close nor a kill writes out
//! what lies in memory, so that every open would replay the whole journal once more. A process
//! that finds more than [`KEPT`] has it written to tables, closes the database, empties the
//! journal and opens again. Killed in between, it has lost nothing: what is in tables is skipped
//! when replayed, and an empty journal is one in which nothing was written yet.

use super::tx::{Db, Fault};
use fjall::{AbstractTree, Database, KeyspaceCreateOptions, PersistMode};
use std::fs::{File, read_dir};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes that are replayed again rather than written to tables, of which each open makes some.
const KEPT: u64 = 1024 * 1024;
/// After that long the journal stays as it is: a disk this slow has other troubles.
const PATIENCE: Duration = Duration::from_mins(1);

/// Opens or makes the database in `dir`, with a journal of at most [`KEPT`].
pub(super) fn open(dir: &Path) -> Result<Db, Fault> {
    // A new journal is allocated ahead: its length says nothing. Opening cuts an old one to size.
    let is_new = !dir.try_exists().map_err(io)? || files(dir)?.is_empty();
    let db = Db::open(dir)?;
    if is_new || length(dir)? <= KEPT || !write_out(&db.database)? {
        return Ok(db);
    }
    drop(db);
    for journal in files(dir)? {
        let file = File::options().write(true).open(journal).map_err(io)?;
        file.set_len(0).and_then(|()| file.sync_all()).map_err(io)?;
    }
    Ok(Db::open(dir)?)
}

fn io(e: std::io::Error) -> Fault {
    Fault::Database(e.into())
}

fn files(dir: &Path) -> Result<Vec<PathBuf>, Fault> {
    let mut found = Vec::new();
    for entry in read_dir(dir).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.extension().is_some_and(|extension| extension == "jnl") {
            found.push(path);
        }
    }
    Ok(found)
}

fn length(dir: &Path) -> Result<u64, Fault> {
    files(dir)?.iter().map(|path| Ok(path.metadata().map_err(io)?.len())).sum()
}

/// Has everything in memory written to synced tables. False when that takes too long.
fn write_out(database: &Database) -> Result<bool, Fault> {
    let end = Instant::now() + PATIENCE;
    // Every keyspace there is: one that were left out would lose what only the journal has.
    for name in database.list_keyspace_names() {
        let keyspace = database.keyspace(&name, KeyspaceCreateOptions::default)?;
        keyspace.rotate_memtable()?;
        while keyspace.tree.get_highest_memtable_seqno().is_some() {
            if Instant::now() >= end {
                return Ok(false);
            }
            // Fails when a thread that writes tables has failed.
            database.persist(PersistMode::Buffer)?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::embedded::layout::Space;

    /// Text that does not compress.
    fn noise() -> String {
        (0u32..256).map(|n| crate::domain::ids::sha256_hex(&n.to_be_bytes())).collect()
    }

    fn fill(db: &Db, from: u32, to: u32) {
        let value = noise();
        for n in from..to {
            let mut batch = db.database.batch();
            batch.insert(db.keyspace(Space::Docs), n.to_be_bytes(), &*value);
            batch.insert(db.keyspace(Space::Core), n.to_be_bytes(), n.to_be_bytes());
            if let Some(before) = n.checked_sub(1) {
                batch.remove(db.keyspace(Space::Core), before.to_be_bytes());
            }
            batch.commit().unwrap();
        }
        db.database.persist(PersistMode::SyncAll).unwrap();
    }

    #[test]
    fn a_long_journal_is_emptied_and_nothing_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let docs = |db: &Db| db.keyspace(Space::Docs).iter().count();
        let core = |db: &Db| db.keyspace(Space::Core).iter().map(|i| i.key().unwrap().to_vec()).collect::<Vec<_>>();
        let mut written = 0;
        for _ in 0..3 {
            let db = open(dir.path()).unwrap();
            assert_eq!(docs(&db), written as usize);
            fill(&db, written, written + 90);
            written += 90;
            drop(db);
        }
        let db = open(dir.path()).unwrap();
        assert_eq!((length(dir.path()).unwrap(), docs(&db)), (0, written as usize));
        assert_eq!(core(&db), [(written - 1).to_be_bytes()], "what was removed stays removed");
        fill(&db, written, written + 1);
        drop(db);
        let db = open(dir.path()).unwrap();
        assert_eq!(docs(&db), written as usize + 1, "a write after it is newer than the tables");
        assert_eq!(core(&db), [written.to_be_bytes()]);
        let short = length(dir.path()).unwrap();
        assert!((1..=KEPT).contains(&short), "a short journal stays: {short}");
    }
}
