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
            (None, Some(lost)) => ("it may not be what it was when it was closed", Some(lost)),
            (None, None) => ("it can be written", None),
        };
        BackendSetting { name: "embedded disk".into(), value: value.into(), problem }
    }

    /// Returns how much of its limit the store takes. Why it can't be written at all is for [`Self::disk_setting`].
    pub(super) async fn size_setting(&self) -> BackendSetting {
        let fill = self.measure_bytes().await;
        let advice = "no new work is taken; delete what isn't needed or raise `store.max_bytes`";
        let problem = fill.is_tight().then(|| advice.to_owned());
        BackendSetting { name: "embedded size".into(), value: fill.to_string(), problem }
    }

    /// Returns how full the store is; one that can't be written counts as full.
    pub(super) async fn measure_size(&self) -> Fill {
        let fill = self.measure_bytes().await;
        match &self.place {
            StorePlace::Folder(folder) if folder.health.write_refusal().is_some() => {
                let used = fill.used.max(1);
                Fill { used, limit: Some(used) }
            }
            StorePlace::Folder(_) | StorePlace::Memory(_) => fill,
        }
    }

    /// Returns the bytes on disk, with journals and files that are about to be removed, and their limit.
    async fn measure_bytes(&self) -> Fill {
        let StorePlace::Folder(folder) = &self.place else { return Fill::default() };
        let (dir, limit) = (folder.database.clone(), folder.limit);
        let used = self.query(move |_| reclaim::bytes_of(&dir).map_err(|e| StoreFault::Database(e.into()))).await;
        used.map_or_else(|_| Fill::default(), |used| Fill { used, limit })
    }
}
