//! Opening: the folder's lock, recovery, and the end of the previous process's leases.

use super::head::StoreHead;
use super::index::Index;
use super::layout::{self, Space, prefix_end};
use super::view::{Db, DurableState, StoreFault, View};
use super::{counts, docs};
use crate::domain::format::{FORMAT, FormatError, StoreFormat, check_format};
use crate::domain::ids::Owner;
use crate::store::{self, StoreError, keys};
use fjall::PersistMode;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{Read, Seek, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Session records rewritten per batch at open.
const VOID_BATCH: usize = 1000;

/// Why a store isn't opened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreOpenError {
    /// Its folder or its database can't be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A build whose format differs too much has worked there; nothing was changed.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// Holds the folder for this process until it is dropped.
#[derive(Debug)]
pub(super) struct FolderLock(File);

fn unavailable(store: &str, reason: String) -> StoreError {
    StoreError::Unavailable { store: store.to_owned(), reason }
}

/// Creates the folder and locks it; the lock file contains the process id of the holder.
pub(super) fn lock_folder(dir: &Path, store: &str) -> Result<FolderLock, StoreError> {
    let cannot = |what: &str, e: &std::io::Error| unavailable(store, format!("can't {what}: {e}"));
    // The folder contains prompts, answers and the key of secrets: other users of this machine must not read it.
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| cannot("create its folder", &e))?;
    let mode = std::fs::metadata(dir).map_err(|e| cannot("look at its folder", &e))?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let dir = dir.display();
        tracing::warn!(
            "others on this machine can look into the data folder `{dir}` (mode {mode:03o}); `chmod 700` it"
        );
    }
    let path = dir.join("trellis.lock");
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|e| cannot("open its lock file", &e))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            let holder =
                if pid.trim().is_empty() { "another process".to_owned() } else { format!("process {}", pid.trim()) };
            return Err(unavailable(store, format!("{holder} holds the folder; stop it or use another folder")));
        }
        Err(TryLockError::Error(e)) => return Err(cannot("lock its folder", &e)),
    }
    let write = |file: &mut File| -> std::io::Result<()> {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    write(&mut file).map_err(|e| cannot("write its lock file", &e))?;
    Ok(FolderLock(file))
}

impl Drop for FolderLock {
    /// Unlocks the file, since a process that is being started holds a copy of it until it runs: closing isn't enough.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Whether another process holds the folder.
pub(super) fn is_held(dir: &Path) -> bool {
    let Ok(file) = File::options().read(true).write(true).open(dir.join("trellis.lock")) else { return false };
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

/// Returns the path of the database in a store's folder.
pub(super) fn database_path(dir: &Path) -> PathBuf {
    dir.join("db")
}

/// The result of opening a database.
pub(super) struct OpenDatabase {
    pub(super) db: Db,
    /// The index, without live leases.
    pub(super) index: Index,
    pub(super) head: StoreHead,
    /// Fault found when the database was opened, in words, with the operator's next step; `None` without one.
    pub(super) lost: Option<String>,
}

/// Opens the database of a store if this build can work on it, voids every lease and builds the index.
pub(super) fn open_database(dir: &Path, store: &str) -> Result<OpenDatabase, StoreOpenError> {
    let failed = |fault: StoreFault| fault.into_store_error(store);
    let db = Db::open(&database_path(dir)).map_err(|error| failed(error.into()))?;
    // Before anything is written, since this build would drop what it can't decode.
    check_format(format_of(&db).map_err(failed)?.transpose()?.as_ref(), FORMAT)?;
    let (head, lost) = StoreHead::open(dir, &db).map_err(failed)?;
    if let Some(lost) = &lost {
        tracing::error!("store `{store}`: {lost}");
    }
    let index = recover(&db).map_err(failed)?;
    Ok(OpenDatabase { db, index, head, lost })
}

/// Returns the format that the store's document names.
fn format_of(db: &Db) -> Result<Option<Result<StoreFormat, StoreError>>, StoreFault> {
    let found = docs::get(&DurableState::snapshot(db), &keys::venue_owner().token(), keys::FORMAT)?;
    Ok(found.value.map(|value| store::decode(keys::FORMAT, &value)))
}

/// Voids leases, lists owners, counts usage and removes old records of the previous process; returns the index.
fn recover(db: &Db) -> Result<Index, StoreFault> {
    relist_owners(db)?;
    let core = db.keyspace(Space::Core);
    let mut batch = db.database.batch();
    let state = DurableState::snapshot(db);
    let index = Index::load_with(&state, |key, session| {
        let was = session.clone();
        session.void_lease();
        if *session == was {
            return Ok(());
        }
        batch.insert(core, key, serde_json::to_vec(session).map_err(|e| StoreFault::Record(e.to_string()))?);
        if batch.len() >= VOID_BATCH {
            std::mem::replace(&mut batch, db.database.batch()).commit()?;
        }
        Ok(())
    })?;
    batch.commit()?;
    counts::count_uncounted(db)?;
    forget_completions(db, &state)?;
    // Also what the previous process wrote before it was killed: it is readable from here on.
    db.database.persist(PersistMode::SyncAll)?;
    Ok(index)
}

/// Adds owners that have documents or sessions but are missing to the list of owners.
fn relist_owners(db: &Db) -> Result<(), StoreFault> {
    let (state, mut batch) = (DurableState::snapshot(db), db.database.batch());
    for (space, letter) in [(Space::Docs, b"".as_slice()), (Space::Core, b"s")] {
        let mut from = letter.to_vec();
        loop {
            let mut found = None;
            let end = if letter.is_empty() { vec![u8::MAX] } else { prefix_end(letter) };
            state.walk(space, &from, &end, &mut |key, _| {
                let owner = key.get(letter.len()..).and_then(|rest| rest.split(|byte| *byte == 0).next());
                found = owner.map(<[u8]>::to_vec);
                Ok(ControlFlow::Break(()))
            })?;
            let Some(owner) = found else { break };
            // The next search begins behind every key of this owner.
            from = [letter, &owner, &[layout::SEPARATOR + 1]].concat();
            let Ok(token) = String::from_utf8(owner) else { continue };
            let key = layout::owner(&token);
            if Owner::from_token(&token).is_ok() && state.get(Space::Core, &key)?.is_none() {
                tracing::warn!(owner = token, "it was missing from the list of owners, and is listed again");
                batch.insert(db.keyspace(Space::Core), key, Vec::new());
            }
        }
    }
    Ok(batch.commit()?)
}

/// Removes completions, which older builds kept in the queue: the jobs have them.
fn forget_completions(db: &Db, state: &DurableState) -> Result<(), StoreFault> {
    let mut batch = db.database.batch();
    for prefix in [b"i", b"o"] {
        state.walk(Space::Queue, prefix, &prefix_end(prefix), &mut |key, _| {
            batch.remove(db.keyspace(Space::Queue), key);
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(batch.commit()?)
}
