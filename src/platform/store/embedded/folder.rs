//! The store in a folder: the database and its threads.

use super::backup;
use super::health::{self, Health};
use super::open::{self, OpenDatabase, StoreOpenError};
use super::reclaim::Reclaimer;
use super::view::{DurableState, StoreFault};
use super::writer::{Requests, StoreWriter};
use parking_lot::RwLock;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;

/// The database in a folder that is locked for this process.
pub(super) struct StoreFolder {
    durable: Arc<RwLock<Arc<DurableState>>>,
    fsyncs: Arc<AtomicU64>,
    /// Folder of the database, whose size on disk `limit` bounds in bytes.
    pub(super) database: PathBuf,
    /// Folder of the store's backups.
    pub(super) backups: PathBuf,
    pub(super) limit: Option<u64>,
    /// Fault found when the database was opened, in words, with the operator's next step; `None` without one.
    pub(super) lost: Option<String>,
    pub(super) health: Arc<Health>,
    reclaimer: Option<Reclaimer>,
    requests: Option<Requests>,
    writer: Option<JoinHandle<()>>,
    /// Released last, when the database is closed.
    _lock: open::FolderLock,
}

impl StoreFolder {
    /// Opens or creates the store and starts its threads; `probe` measures the room on its disk.
    pub(super) fn open(
        dir: &Path,
        name: &Arc<str>,
        limit: Option<u64>,
        probe: health::Probe,
    ) -> Result<Self, StoreOpenError> {
        let lock = open::lock_folder(dir, name)?;
        let OpenDatabase { db, index, head, lost } = open::open_database(dir, name)?;
        let health = Arc::new(Health::new(Arc::clone(name), dir, probe));
        health.measure();
        let fsyncs = Arc::clone(&db.fsyncs);
        let durable = Arc::new(RwLock::new(Arc::new(DurableState::snapshot(&db))));
        let (requests, jobs) = Requests::channel(Arc::clone(name));
        let writer = StoreWriter::new(db.clone(), index, durable.clone(), head, Arc::clone(&health), &requests);
        let thread = writer.and_then(|writer| {
            std::thread::Builder::new().name("trellis-store".into()).spawn(move || writer.run(jobs))
        });
        let failed = |e: std::io::Error| StoreFault::Database(e.into()).into_store_error(name);
        let writer = Some(thread.map_err(failed)?);
        let database = open::database_path(dir);
        let reclaimer = Some(Reclaimer::start(db, database.clone(), limit, requests.clone()).map_err(failed)?);
        let (backups, requests) = (dir.join("backups"), Some(requests));
        backup::remove_unfinished(&backups);
        Ok(Self { durable, fsyncs, database, backups, limit, lost, health, reclaimer, requests, writer, _lock: lock })
    }

    /// Returns the sender of requests to the writer.
    pub(super) const fn requests(&self) -> &Requests {
        self.requests.as_ref().expect("taken only when dropped")
    }

    /// Returns the state after the last durable group.
    pub(super) fn durable(&self) -> Arc<DurableState> {
        Arc::clone(&self.durable.read())
    }

    /// Returns the counter of durable groups.
    pub(super) fn fsyncs(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.fsyncs)
    }
}

impl Drop for StoreFolder {
    /// Waits until the writer has finished its requests, so that the folder is free afterwards.
    fn drop(&mut self) {
        self.reclaimer = None;
        self.requests = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}
