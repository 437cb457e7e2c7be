//! Cache of the parts of prompt records that are stored already, and of packed tool tables and system prompts.

use crate::domain::agent::AgentRecord;
use crate::domain::context::inputs::Inputs;
use crate::domain::context::record::part::{PackedContent, PartName, PartNamer};
use crate::domain::context::record::period::Period;
use crate::domain::context::record::{LedgerWrite, pack_system, pack_tools};
use crate::domain::ids::{AgentId, Owner, sha256_hex};
use crate::domain::time::Millis;
use crate::domain::tools::ToolTable;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use std::collections::HashSet;
use std::convert::Infallible;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// Names remembered as stored, in each of two halves: about 5 MB.
const RECENT_PARTS_MAX: usize = 50_000;
/// Age at which a half is dropped, so that parts purged meanwhile are stored again.
const RECENT_TIME: Duration = Duration::from_mins(5);
/// Cached packed tool tables; the same number of packed system prompts.
const CACHED_TABLES_MAX: usize = 1_024;

/// Cache of the prompt records that this worker has written.
pub(crate) struct PromptRecordCache {
    recent: Mutex<RecentParts>,
    /// Keyed by the table's address; the entry holds the table, so that no other table gets that address.
    tools: Cache<(Owner, usize), (Arc<ToolTable>, Arc<PackedContent>)>,
    systems: Cache<SystemKey, Arc<PackedContent>>,
}

impl Default for PromptRecordCache {
    fn default() -> Self {
        Self { recent: Mutex::default(), tools: Cache::new(CACHED_TABLES_MAX), systems: Cache::new(CACHED_TABLES_MAX) }
    }
}

/// Parts stored lately, each in its period; a name belongs to one owner.
#[derive(Default)]
struct RecentParts {
    period_start: Millis,
    current: HashSet<(Period, PartName)>,
    previous: HashSet<(Period, PartName)>,
}

/// Key of a system prompt: all that it depends on.
#[derive(Clone, PartialEq, Eq, Hash)]
struct SystemKey {
    owner: Owner,
    agent: AgentId,
    created: Millis,
    config_version: u64,
    /// SHA-256 of the text: a step of a pipeline has its own, and the input of a task decides on blocks of it.
    text: String,
}

impl RecentParts {
    fn rotate(&mut self, now: Millis) {
        if self.current.len() >= RECENT_PARTS_MAX || now.elapsed_since(self.period_start) >= RECENT_TIME {
            self.previous = std::mem::take(&mut self.current);
            self.period_start = now;
        }
    }
}

impl PromptRecordCache {
    /// Removes from a record the parts that are surely stored.
    pub(crate) fn remove_stored(&self, now: Millis, write: &mut LedgerWrite) {
        let mut recent = self.recent.lock();
        recent.rotate(now);
        let period = write.period;
        write.parts.retain(|(name, _)| {
            let part = (period, name.clone());
            !recent.current.contains(&part) && !recent.previous.contains(&part)
        });
    }

    /// Remembers the parts of a committed record as stored.
    pub(crate) fn mark_stored(&self, write: &LedgerWrite) {
        let mut recent = self.recent.lock();
        recent.current.extend(write.parts.iter().map(|(name, _)| (write.period, name.clone())));
    }

    /// Returns the packed tool table and system prompt of a turn.
    pub(crate) fn pack_prompt(
        &self,
        owner: &Owner,
        agent: &AgentRecord,
        inputs: &Inputs,
        namer: &PartNamer,
    ) -> (Arc<PackedContent>, Arc<PackedContent>) {
        let table = &inputs.tools;
        let pack = || Arc::new(pack_tools(namer, table));
        let tools = if Arc::strong_count(table) == 1 {
            // The table was built for this turn alone.
            pack()
        } else {
            let key = (owner.clone(), Arc::as_ptr(table).addr());
            get_or_make(&self.tools, &key, || (Arc::clone(table), pack())).1
        };
        let pack = || Arc::new(pack_system(namer, &inputs.system));
        if inputs.frame.bare {
            // A prompt of one call; no other turn of the agent has the same.
            return (tools, pack());
        }
        let key = SystemKey {
            owner: owner.clone(),
            agent: agent.id.clone(),
            created: agent.created,
            config_version: agent.config_version,
            text: sha256_hex(inputs.system.as_bytes()),
        };
        (tools, get_or_make(&self.systems, &key, pack))
    }
}

/// Returns the cached value of a key, or makes and caches it.
fn get_or_make<K: Clone + Eq + Hash, V: Clone>(cache: &Cache<K, V>, key: &K, make: impl FnOnce() -> V) -> V {
    cache.get_or_insert_with(key, || Ok::<_, Infallible>(make())).unwrap_or_else(|never| match never {})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recently_stored_records_are_not_stored_again() {
        let books = PromptRecordCache::default();
        let namer = PartNamer::new(b"k", &"t/u".parse().unwrap());
        let write = |contents: &[&str]| LedgerWrite {
            manifest: String::new(),
            period: Period::from_start(Millis(0)),
            parts: contents.iter().map(|content| (namer.part_name(content), (*content).to_owned())).collect(),
        };
        let left = |now: u64, contents: &[&str]| {
            let mut trimmed = write(contents);
            books.remove_stored(Millis(now), &mut trimmed);
            trimmed.parts.len()
        };
        let minute = 60_000;
        assert_eq!(left(10 * minute, &["a", "b"]), 2);
        books.mark_stored(&write(&["a"]));
        assert_eq!(left(11 * minute, &["a", "b"]), 1);
        assert_eq!(left(16 * minute, &["a"]), 0, "it is in the older half now");
        assert_eq!(left(22 * minute, &["a"]), 1, "forgotten");
    }
}
