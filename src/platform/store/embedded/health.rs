//! Whether the store can be written: its disk has room, and no write has failed.

use crate::store::StoreError;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes that stay free on the disk, enough for a group and its tables: after a failed write the database accepts none
/// until it is opened again, so a write that may fail isn't tried.
const RESERVE: u64 = 64 * 1024 * 1024;

/// Returns the free bytes of a folder's disk; `None` if they are unknown.
pub(super) type Probe = Box<dyn Fn(&Path) -> Option<u64> + Send + Sync>;

/// The health of the disk under a store.
pub(super) struct Health {
    store: Arc<str>,
    dir: PathBuf,
    probe: Probe,
    is_short: AtomicBool,
    /// The error of the first failed write. Later requests were decided on top of it, so nothing is written until the
    /// folder is opened again.
    broken: OnceLock<StoreError>,
}

/// Returns the bytes of a folder's disk that this process may use, by `statvfs`.
pub(super) fn free_bytes(dir: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(dir).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

impl Health {
    pub(super) fn new(store: Arc<str>, dir: &Path, probe: Probe) -> Self {
        Self { store, dir: dir.to_owned(), probe, is_short: AtomicBool::default(), broken: OnceLock::new() }
    }

    /// Measures the room on the disk, and logs when it falls below or rises above the reserve.
    pub(super) fn measure(&self) {
        let is_short = (self.probe)(&self.dir).is_some_and(|free| free < RESERVE);
        if self.is_short.swap(is_short, Ordering::AcqRel) != is_short {
            if is_short {
                tracing::error!("{}", self.full_message());
            } else {
                tracing::info!("the disk of store `{}` has room again: it is written again", self.store);
            }
        }
    }

    fn full_message(&self) -> String {
        format!(
            "the disk of `{}` has less than {} MiB left, and nothing is written until there is more; free some",
            self.dir.display(),
            RESERVE / 1024 / 1024
        )
    }

    /// Returns why nothing can be written.
    pub(super) fn write_refusal(&self) -> Option<StoreError> {
        let full = || StoreError::Full { store: self.store.to_string(), reason: self.full_message() };
        let broken = self.broken.get().cloned();
        broken.or_else(|| self.is_short.load(Ordering::Acquire).then(full))
    }

    /// Records a failed write; returns the first recorded error.
    pub(super) fn record_failure(&self, error: StoreError) -> StoreError {
        self.broken.get_or_init(|| error).clone()
    }

    /// Returns the error of the first failed write.
    pub(super) fn first_failure(&self) -> Option<StoreError> {
        self.broken.get().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::folder::StoreFolder;
    use super::super::{EmbeddedStore, StorePlace};
    use super::*;
    use crate::domain::limits::STORE_LOOK;
    use crate::domain::time::Millis;
    use crate::store::{Accounts, DocWrite, DocumentStore, FillLevel, StoreInspection};
    use std::sync::atomic::AtomicU64;

    #[tokio::test]
    async fn a_disk_that_was_full_is_written_again_when_it_has_room() {
        let (dir, free) = (tempfile::tempdir().unwrap(), Arc::new(AtomicU64::new(u64::MAX)));
        let (name, seen): (Arc<str>, _) = ("embedded:test".into(), Arc::clone(&free));
        let probe: Probe = Box::new(move |_| Some(seen.load(Ordering::Acquire)));
        let folder = StoreFolder::open(dir.path(), &name, None, probe).unwrap();
        let store = EmbeddedStore {
            name,
            place: StorePlace::Folder(Box::new(folder)),
            level: FillLevel::default(),
            seen: None,
        };
        let owner = "acme/ann".parse().unwrap();
        let write = async |key: &str| {
            let writes = [DocWrite::put(key.to_owned(), "1")];
            store.write(Millis(1), &owner, &writes).await
        };
        let problem_of = async |name: &str| {
            let settings = store.settings().await.unwrap();
            settings.into_iter().find(|setting| setting.name == name).unwrap().problem
        };
        for (step, bytes, is_written) in [(0, u64::MAX, true), (1, 1_000, false), (2, RESERVE, true), (3, 0, false)] {
            free.store(bytes, Ordering::Release);
            let written = write(&format!("w/{step}")).await;
            assert_eq!(written.is_ok(), is_written, "{bytes}: {written:?}");
            assert_eq!(problem_of("embedded disk").await.is_none(), is_written, "{bytes}");
            assert_eq!(problem_of("embedded size").await, None, "no limit of the store is reached");
            assert_eq!(store.fill(STORE_LOOK * (step + 1)).await.unwrap().is_full(), !is_written, "{bytes}");
            if let Err(error) = written {
                assert!(matches!(error, StoreError::Full { .. }) && error.to_string().contains("free some"), "{error}");
                assert!(!error.to_string().contains("limit"), "no limit was set: {error}");
            }
            let docs = store.read(&owner, &["w/0".to_owned(), "w/1".to_owned()]).await.unwrap();
            assert!(docs[0].value.is_some() && docs[1].value.is_none(), "reading goes on, and nothing half is there");
        }
    }
}
