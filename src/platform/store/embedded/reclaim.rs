//! Frees disk space of deleted and overwritten records soon.
//!
//! The database frees space by itself only while much is written to it. A deletion first adds bytes to its memory, and
//! the files that a compaction has replaced stay as long as an old state refers to them. So a thread checks every few
//! seconds, releases old states, and rewrites the tables of a store that is nearly full without deleted records.

use super::layout::{self, Space};
use super::view::{Db, StoreFault};
use super::writer::Requests;
use crate::domain::quota::QuotaKind;
use crate::process::clock::Clock;
use crate::store::{Fill, StoreError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between two checks.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// Bytes of files used only by an old state that are tolerated: four tables.
const STALE: u64 = 256 * 1024 * 1024;

/// Percentage of the limit that such files may take.
const STALE_PERCENT: u64 = 5;

/// Longest wait until records in memory are in a table.
const FLUSH: Duration = Duration::from_mins(1);

/// A rewrite is followed by a pause of this many times its duration, so that it doesn't keep the disk busy.
const REST: u32 = 10;

/// Percentage of the limit that must have been deleted since the last rewrite, or by which the tables must have grown
/// more than their live records: otherwise a rewrite would free nothing, and need the space of a copy.
const DELETED_PERCENT: u64 = 1;
const GROWN_PERCENT: u64 = 10;

/// Checks for which a rewrite waits while deletions go on: half a minute.
const PATIENCE: u32 = 6;

/// Percentage that must have been deleted if the store isn't full.
const MUCH_PERCENT: u64 = 20;

/// Returns the bytes of the files in a folder and below, in disk blocks.
pub(super) fn bytes_of(dir: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        // A file that was removed meanwhile takes nothing.
        let Ok(entry) = entry else { continue };
        let Ok(found) = entry.metadata() else { continue };
        bytes += if found.is_dir() { bytes_of(&entry.path()).unwrap_or_default() } else { found.blocks() * 512 };
    }
    Ok(bytes)
}

/// The thread that frees space until it is dropped.
pub(super) struct Reclaimer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reclaimer {
    /// Starts the thread for the database in `dir`, which may take `limit` bytes.
    pub(super) fn start(db: Db, dir: PathBuf, limit: Option<u64>, requests: Requests) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let look = ReclaimLoop {
            db,
            dir,
            limit,
            requests,
            stopped,
            clock: Clock::system(),
            stale_left: 0,
            last: None,
            seen: 0,
            waited: 0,
        };
        let thread = std::thread::Builder::new().name("trellis-reclaim".into()).spawn(move || look.run())?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Reclaimer {
    /// Waits for the thread, which has the database open.
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Measurements after a rewrite, or at the first check.
struct RewriteStats {
    /// Steady time of the end.
    at: Duration,
    took: Duration,
    tables: u64,
    live: u64,
    /// Most bytes that owners have kept since.
    most: u64,
}

struct ReclaimLoop {
    db: Db,
    dir: PathBuf,
    limit: Option<u64>,
    requests: Requests,
    stopped: Receiver<()>,
    /// The machine's clock, since it measures the disk.
    clock: Clock,
    /// Stale bytes that the last release of old states has not freed.
    stale_left: u64,
    last: Option<RewriteStats>,
    /// Live bytes at the last check, and checks in a row that have found less than the one before.
    seen: u64,
    waited: u32,
}

impl ReclaimLoop {
    fn run(mut self) {
        while self.stopped.recv_timeout(CHECK_EVERY) == Err(RecvTimeoutError::Timeout) {
            if let Err(error) = self.reclaim() {
                tracing::warn!(%error, "room on the disk isn't freed; it is tried again");
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.try_recv() == Err(TryRecvError::Disconnected)
    }

    fn elapsed_since(&self, at: Duration) -> Duration {
        self.clock.steady().saturating_sub(at)
    }

    fn reclaim(&mut self) -> Result<(), StoreError> {
        let room = self.limit.map_or(STALE, |limit| STALE.min(limit / 100 * STALE_PERCENT));
        let stale = self.stale_bytes()?;
        if stale > self.stale_left + room {
            self.release_states()?;
            self.stale_left = self.stale_bytes()?;
        } else {
            self.stale_left = self.stale_left.min(stale);
        }
        let Some(limit) = self.limit else { return Ok(()) };
        let used = self.used_bytes()?;
        if !self.decide_rewrite(Fill { used, limit: Some(limit) }.is_tight(), limit / 100)? {
            return Ok(());
        }
        // What is deleted meanwhile is left for the next rewrite.
        let (began, live) = (self.clock.steady(), self.live_bytes()?);
        self.rewrite()?;
        self.last = Some(self.rewrite_stats(self.elapsed_since(began), live));
        let (now, took) = (self.used_bytes()?, self.elapsed_since(began));
        tracing::info!(bytes = used, now, ?took, "tables were written anew without what is gone");
        Ok(())
    }

    fn rewrite_stats(&self, took: Duration, live: u64) -> RewriteStats {
        RewriteStats { at: self.clock.steady(), took, tables: self.table_bytes(), live, most: live }
    }

    /// Whether a rewrite would free space, as far as is known.
    fn decide_rewrite(&mut self, is_tight: bool, percent: u64) -> Result<bool, StoreError> {
        let (tables, live) = (self.table_bytes(), self.live_bytes()?);
        // While deletions go on, a rewrite would copy records that are about to be deleted.
        self.waited = if live < self.seen { self.waited + 1 } else { 0 };
        self.seen = live;
        if let Some(last) = &mut self.last {
            last.most = last.most.max(live);
        }
        if (1..PATIENCE).contains(&self.waited) {
            return Ok(false);
        }
        let Some(last) = &self.last else {
            if !is_tight {
                self.last = Some(self.rewrite_stats(Duration::ZERO, live));
            }
            // The store was full when it was opened: it isn't known what could be freed.
            return Ok(is_tight);
        };
        if self.elapsed_since(last.at) < last.took * REST {
            return Ok(false);
        }
        let deleted = last.most - live;
        let in_vain = tables.saturating_sub(last.tables).saturating_sub(live.saturating_sub(last.live));
        let is_worth_it = deleted >= percent * DELETED_PERCENT || in_vain >= percent * GROWN_PERCENT;
        Ok(is_tight && is_worth_it || deleted >= percent * MUCH_PERCENT)
    }

    fn store_error<T, E: Into<StoreFault>>(&self, outcome: Result<T, E>) -> Result<T, StoreError> {
        outcome.map_err(|error| error.into().into_store_error(self.requests.store()))
    }

    /// Returns all bytes on the disk.
    fn used_bytes(&self) -> Result<u64, StoreError> {
        self.store_error(bytes_of(&self.dir).map_err(fjall::Error::from))
    }

    /// Returns the bytes of the current tables.
    fn table_bytes(&self) -> u64 {
        Space::ALL.iter().map(|space| self.db.keyspace(*space).disk_space()).sum()
    }

    /// Returns the bytes of files used only by an old state.
    fn stale_bytes(&self) -> Result<u64, StoreError> {
        let found = self.store_error(bytes_of(&self.dir.join("keyspaces")).map_err(fjall::Error::from))?;
        Ok(found.saturating_sub(self.table_bytes()))
    }

    /// Returns the bytes that owners keep, by their stored usage.
    fn live_bytes(&self) -> Result<u64, StoreError> {
        let mut live = 0;
        let prefix = layout::usage("");
        for item in self.db.keyspace(Space::Core).prefix(&prefix) {
            let value = self.store_error(item.value())?;
            live += super::counts::decode(&value).map_or(0, |usage| usage.get(QuotaKind::Bytes));
        }
        Ok(live)
    }

    /// Moves readers to the newest state, so that files of older ones are removed.
    fn release_states(&self) -> Result<(), StoreError> {
        // A write that changes nothing: readers use the state after it. The mark exists since the first start.
        let mark = layout::usage("");
        let touch = self.requests.call(move |tx| {
            tx.put(Space::Core, mark, Vec::new());
            Ok(())
        });
        futures::executor::block_on(touch)?;
        self.flush(Space::Core)
    }

    /// Writes the records in memory into a table.
    fn flush(&self, space: Space) -> Result<(), StoreError> {
        let keyspace = self.db.keyspace(space);
        self.store_error(keyspace.rotate_memtable())?;
        let began = self.clock.steady();
        while keyspace.sealed_memtable_count() > 0 && self.elapsed_since(began) < FLUSH && !self.is_stopped() {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Rewrites all tables without deleted records. It needs space for the live ones until the old tables go.
    fn rewrite(&self) -> Result<(), StoreError> {
        for space in Space::ALL {
            self.flush(space)?;
        }
        self.release_states()?;
        for space in Space::ALL {
            if self.is_stopped() {
                return Ok(());
            }
            self.store_error(self.db.keyspace(space).major_compact())?;
        }
        self.release_states()
    }
}
