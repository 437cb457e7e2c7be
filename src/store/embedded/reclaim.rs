//! Room on the disk: what was deleted or written over is freed soon, and not some day.
//!
//! The database frees by itself only while much is written to it. A deletion is a few bytes more in its memory, and the
//! files that a compaction has replaced stay as long as an old state names them. So somebody looks every few
//! seconds, lets go of old states, and rewrites the tables of a store that is nearly full without what is gone.

use super::layout::{self, Space};
use super::tx::{Db, Fault};
use super::writer::Requests;
use crate::domain::quota::QuotaKind;
use crate::process::clock::Clock;
use crate::store::{Fill, StoreError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(5);

/// Bytes in files that only an old state names, which are left: four tables.
const STALE: u64 = 256 * 1024 * 1024;

/// Of a limit, so many hundredths in such files are left.
const STALE_PERCENT: u64 = 5;

/// Longest wait until what was in memory is in a table.
const FLUSH: Duration = Duration::from_mins(1);

/// A rewriting is followed by none for so many times as long as it took: it must not keep the disk busy.
const REST: u32 = 10;

/// Hundredths of the limit that must have been deleted since the last rewriting, or by which the tables must have grown
/// more than what they keep: without, another one would free nothing, and would need the room of a copy for it.
const DELETED_PERCENT: u64 = 1;
const GROWN_PERCENT: u64 = 10;

/// Looks for which a rewriting waits while somebody deletes: half a minute.
const PATIENCE: u32 = 6;

/// Hundredths that must have been deleted where the store isn't full.
const MUCH_PERCENT: u64 = 20;

/// Bytes of the files in a folder and below, as the disk counts them.
pub(super) fn bytes_of(dir: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        // What is gone by now takes nothing.
        let Ok(entry) = entry else { continue };
        let Ok(found) = entry.metadata() else { continue };
        bytes += if found.is_dir() { bytes_of(&entry.path()).unwrap_or_default() } else { found.blocks() * 512 };
    }
    Ok(bytes)
}

/// Looks until it is dropped.
pub(super) struct Reclaimer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reclaimer {
    /// Starts it for the database in `dir`, which may take so many bytes.
    pub(super) fn start(db: Db, dir: PathBuf, limit: Option<u64>, requests: Requests) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let look = Look {
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
    /// Waits for it: it has the database open.
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How it was after a rewriting, or at the first look.
struct Rewritten {
    /// On the steady clock.
    at: Duration,
    took: Duration,
    tables: u64,
    live: u64,
    /// The most that owners have kept since.
    most: u64,
}

struct Look {
    db: Db,
    dir: PathBuf,
    limit: Option<u64>,
    requests: Requests,
    stopped: Receiver<()>,
    /// The machine's: it measures the disk.
    clock: Clock,
    /// Bytes that letting go has not freed.
    stale_left: u64,
    last: Option<Rewritten>,
    /// What owners kept at the last look, and looks in a row that have found less than the one before.
    seen: u64,
    waited: u32,
}

impl Look {
    fn run(mut self) {
        while self.stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            if let Err(error) = self.look() {
                tracing::warn!(%error, "room on the disk isn't freed; it is tried again");
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.try_recv() == Err(TryRecvError::Disconnected)
    }

    fn since(&self, at: Duration) -> Duration {
        self.clock.steady().saturating_sub(at)
    }

    fn look(&mut self) -> Result<(), StoreError> {
        let room = self.limit.map_or(STALE, |limit| STALE.min(limit / 100 * STALE_PERCENT));
        let stale = self.stale()?;
        if stale > self.stale_left + room {
            self.let_go()?;
            self.stale_left = self.stale()?;
        } else {
            self.stale_left = self.stale_left.min(stale);
        }
        let Some(limit) = self.limit else { return Ok(()) };
        let used = self.used()?;
        if !self.may_free(Fill { used, limit: Some(limit) }.is_tight(), limit / 100)? {
            return Ok(());
        }
        // What is deleted meanwhile is left for the next one.
        let (began, live) = (self.clock.steady(), self.live()?);
        self.rewrite()?;
        self.last = Some(self.rewritten(self.since(began), live));
        let (now, took) = (self.used()?, self.since(began));
        tracing::info!(bytes = used, now, ?took, "tables were written anew without what is gone");
        Ok(())
    }

    fn rewritten(&self, took: Duration, live: u64) -> Rewritten {
        Rewritten { at: self.clock.steady(), took, tables: self.tables(), live, most: live }
    }

    /// Whether a rewriting would free something, as far as is known.
    fn may_free(&mut self, is_tight: bool, percent: u64) -> Result<bool, StoreError> {
        let (tables, live) = (self.tables(), self.live()?);
        // While somebody deletes, it would copy what is gone in a moment.
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
                self.last = Some(self.rewritten(Duration::ZERO, live));
            }
            // It was full when it was opened: nobody knows of what.
            return Ok(is_tight);
        };
        if self.since(last.at) < last.took * REST {
            return Ok(false);
        }
        let deleted = last.most - live;
        let in_vain = tables.saturating_sub(last.tables).saturating_sub(live.saturating_sub(last.live));
        let is_worth_it = deleted >= percent * DELETED_PERCENT || in_vain >= percent * GROWN_PERCENT;
        Ok(is_tight && is_worth_it || deleted >= percent * MUCH_PERCENT)
    }

    fn at<T, E: Into<Fault>>(&self, outcome: Result<T, E>) -> Result<T, StoreError> {
        outcome.map_err(|error| error.into().at(self.requests.store()))
    }

    /// Everything that lies on the disk.
    fn used(&self) -> Result<u64, StoreError> {
        self.at(bytes_of(&self.dir).map_err(fjall::Error::from))
    }

    /// Bytes of the tables as they are now.
    fn tables(&self) -> u64 {
        Space::ALL.iter().map(|space| self.db.keyspace(*space).disk_space()).sum()
    }

    /// Bytes in files that only an old state names.
    fn stale(&self) -> Result<u64, StoreError> {
        let found = self.at(bytes_of(&self.dir.join("keyspaces")).map_err(fjall::Error::from))?;
        Ok(found.saturating_sub(self.tables()))
    }

    /// Bytes that owners keep, as they are counted.
    fn live(&self) -> Result<u64, StoreError> {
        let mut live = 0;
        let prefix = layout::usage("");
        for item in self.db.keyspace(Space::Core).prefix(&prefix) {
            let value = self.at(item.value())?;
            live += super::counts::decode(&value).map_or(0, |usage| usage.get(QuotaKind::Bytes));
        }
        Ok(live)
    }

    /// Nobody reads an older state than the newest any more, so that its files go.
    fn let_go(&self) -> Result<(), StoreError> {
        // A write that changes nothing: readers take the state after it. The mark is there from the first start on.
        let mark = layout::usage("");
        let touch = self.requests.call(move |tx| {
            tx.put(Space::Core, mark, Vec::new());
            Ok(())
        });
        futures::executor::block_on(touch)?;
        self.flush(Space::Core)
    }

    /// Writes what is in memory into a table.
    fn flush(&self, space: Space) -> Result<(), StoreError> {
        let keyspace = self.db.keyspace(space);
        self.at(keyspace.rotate_memtable())?;
        let began = self.clock.steady();
        while keyspace.sealed_memtable_count() > 0 && self.since(began) < FLUSH && !self.is_stopped() {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Writes all tables anew, without what is gone. It needs room for what is left, until the old ones go.
    fn rewrite(&self) -> Result<(), StoreError> {
        for space in Space::ALL {
            self.flush(space)?;
        }
        self.let_go()?;
        for space in Space::ALL {
            if self.is_stopped() {
                return Ok(());
            }
            self.at(self.db.keyspace(space).major_compact())?;
        }
        self.let_go()
    }
}
