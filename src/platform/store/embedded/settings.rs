//! What an embedded store tells of itself: its durability, its disk, its size.

use super::view::StoreFault;
use super::{BackendSetting, EmbeddedStore, Fill, StorePlace, reclaim};

impl EmbeddedStore {
    /// Returns how durable an answer is.
    pub(super) fn durability_setting(&self) -> BackendSetting {
        let (value, problem) = match &self.place {
            StorePlace::Folder(_) => ("fsync before every answer, one for up to 256 requests", None),
            StorePlace::Memory(_) => ("none", Some("everything is lost with the process; name a folder".to_owned())),
        };
        BackendSetting { name: "embedded durability".into(), value: value.into(), problem }
    }

    /// Returns whether the store can be written and is what it was when it was closed.
    pub(super) fn disk_setting(&self) -> BackendSetting {
        let found = match &self.place {
            StorePlace::Folder(folder) => (folder.health.write_refusal(), folder.lost.clone()),
            StorePlace::Memory(_) => (None, None),
        };
        let (value, problem) = match found {
            (Some(refused), _) => ("nothing can be written", Some(refused.to_string())),
            (None, Some(lost)) => {
                let next = "restore a backup, or submit again what `trellis audit` doesn't know";
                ("it was written after it was opened last", Some(format!("{lost}; {next}")))
            }
            (None, None) => ("it can be written", None),
        };
        BackendSetting { name: "embedded disk".into(), value: value.into(), problem }
    }

    /// Returns the bytes on disk, with journals and files that are about to be removed.
    pub(super) async fn measure_size(&self) -> Fill {
        let StorePlace::Folder(folder) = &self.place else { return Fill::default() };
        let (dir, limit) = (folder.database.clone(), folder.limit);
        let used = self.query(move |_| reclaim::bytes_of(&dir).map_err(|e| StoreFault::Database(e.into()))).await;
        match used {
            Err(_) => Fill::default(),
            // A store that can't be written counts as full.
            Ok(used) if folder.health.write_refusal().is_some() => Fill { used: used.max(1), limit: Some(used.max(1)) },
            Ok(used) => Fill { used, limit },
        }
    }
}
