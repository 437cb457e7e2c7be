//! A copy of the whole store as of one moment, made while writes go on.
//!
//! The files of the database can't be copied while it runs, since tables and journals come and go. This writes the
//! content of one snapshot into a new database, which is the folder of a store like any other.

use super::layout::Space;
use super::open::database_path;
use super::view::{Db, DurableState, StoreFault};
use crate::store::{BackupFacts, BackupOutcome, StoreError};
use fjall::{PersistMode, Readable};
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Bytes per batch of the copy.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Copies `state` into the new store `to`, whose parent folder is created.
///
/// Afterwards `to` is complete and durable. After a crash before the end `to` is absent; the unfinished copy has the
/// same name with a leading dot, and [`remove_unfinished`] removes it.
pub(super) fn copy(state: &DurableState, to: &Path, store: &str) -> Result<BackupOutcome, StoreError> {
    let cannot = |what: &str, error: std::io::Error| StoreError::Unavailable {
        store: store.to_owned(),
        reason: format!("the backup `{}` can't be {what}: {error}", to.display()),
    };
    let parent = to.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(|error| cannot("made", error))?;
    if to.exists() {
        return Ok(BackupOutcome::Exists(to.to_owned()));
    }
    let mut name = std::ffi::OsString::from(".");
    name.push(to.file_name().unwrap_or_default());
    let part = to.with_file_name(name);
    if part.exists() {
        std::fs::remove_dir_all(&part).map_err(|error| cannot("made", error))?;
    }
    DirBuilder::new().mode(0o700).create(&part).map_err(|error| cannot("made", error))?;
    let made = fill(state, &database_path(&part)).map_err(|fault| {
        // The unfinished copy is of no use.
        let _ = std::fs::remove_dir_all(&part);
        fault.into_store_error(store)
    })?;
    std::fs::rename(&part, to).map_err(|error| {
        let _ = std::fs::remove_dir_all(&part);
        cannot("named", error)
    })?;
    File::open(parent).and_then(|folder| folder.sync_all()).map_err(|error| cannot("named", error))?;
    Ok(BackupOutcome::Made(BackupFacts { path: to.to_owned(), ..made }))
}

/// Removes backups that a crash left unfinished. Only the process that holds the store's lock may call it, before it
/// makes any.
pub(super) fn remove_unfinished(backups: &Path) {
    let Ok(entries) = std::fs::read_dir(backups) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b".")) {
        let path = entry.path();
        match std::fs::remove_dir_all(&path) {
            Ok(()) => tracing::info!("removed the unfinished backup `{}`", path.display()),
            Err(error) => tracing::warn!("the unfinished backup `{}` can't be removed: {error}", path.display()),
        }
    }
}

fn fill(state: &DurableState, database: &Path) -> Result<BackupFacts, StoreFault> {
    let DurableState::Folder(db, snapshot) = state else {
        return Err(StoreFault::Record("it lies in memory; only a store in a folder can be copied".to_owned()));
    };
    let new = Db::open(database)?;
    let mut made = BackupFacts::default();
    for space in Space::ALL {
        let (mut batch, mut bytes) = (new.database.batch(), 0);
        for item in snapshot.iter(db.keyspace(space)) {
            let (key, value) = item.into_inner()?;
            bytes += key.len() + value.len();
            made.records += 1;
            made.bytes += (key.len() + value.len()) as u64;
            batch.insert(new.keyspace(space), key, value);
            if bytes >= BATCH_BYTES {
                std::mem::replace(&mut batch, new.database.batch()).commit()?;
                bytes = 0;
            }
        }
        batch.commit()?;
    }
    new.database.persist(PersistMode::SyncAll)?;
    Ok(made)
}
