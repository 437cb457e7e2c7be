//! What prompts have in common: the tables of tools that configurations make, how many bytes the tokens of a model
//! have, what assets are, and the memory for attachments.

use crate::domain::chat::ModelSettings;
use crate::domain::context::budget;
use crate::domain::ids::{AgentId, AssetId, Owner};
use crate::domain::limits::ATTACHMENTS_MEMORY;
use crate::domain::media::Sniffed;
use crate::domain::time::Millis;
use crate::domain::tools::ToolTable;
use quick_cache::sync::Cache;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Tool tables kept.
const TOOL_TABLES: usize = 1_024;
/// Models whose ratio of bytes to tokens is kept: a configuration names its model as it likes.
const MODELS: usize = 1_024;
/// Assets of which is kept what they are by their first bytes.
const SNIFFED: usize = 4_096;
/// Bytes of a permit of [`PromptCache::room`].
pub(crate) const ROOM_UNIT: usize = 1_024;

/// What the stable part of an agent's prompt that is worth keeping, its tools, depends on. Of two
/// users with different values neither gets what was made for the other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ToolKey {
    pub(super) owner: Owner,
    pub(super) agent: AgentId,
    pub(super) created: Millis,
    pub(super) config_version: u64,
    pub(super) task_open: bool,
    /// A goal inside another is worked on.
    pub(super) inner: bool,
    /// The schema of the task's output; empty when there is none.
    pub(super) output: String,
    /// The schema of the goal's result; empty when there is none.
    pub(super) goal: String,
    pub(super) found: Vec<String>,
    /// What the tools of its configuration run: pins name other operations from time to time.
    pub(super) operations: Vec<String>,
    /// Tools of its resources: those that write only where they may.
    pub(super) resources: Vec<String>,
    /// SHA-256 of the values that bindings may fill in; empty when there are no bindings.
    pub(super) values: String,
    /// The instances that its calls can be about.
    pub(super) instances: Vec<String>,
}

/// Remembered for prompts to come. What is forgotten for want of room is made again.
#[derive(Debug)]
pub struct PromptCache {
    pub(super) tools: Cache<ToolKey, Arc<ToolTable>>,
    /// By model.
    ratios: Cache<String, u32>,
    /// What assets are by their first bytes; the name of an asset is the hash of its content, whoever has it.
    pub(crate) sniffed: Cache<AssetId, Option<Sniffed>>,
    /// Memory for the attachments of model calls, in permits of [`ROOM_UNIT`] bytes.
    pub(crate) room: Semaphore,
}

impl Default for PromptCache {
    fn default() -> Self {
        Self {
            tools: Cache::new(TOOL_TABLES),
            ratios: Cache::new(MODELS),
            sniffed: Cache::new(SNIFFED),
            room: Semaphore::new(ATTACHMENTS_MEMORY / ROOM_UNIT),
        }
    }
}

impl PromptCache {
    /// Forgets what was made of documents with a version.
    pub fn forget(&self) {
        self.tools.clear();
    }

    /// Bytes per token of a model, in thousandths, as its usage has shown so far.
    pub fn ratio(&self, model: &ModelSettings) -> u32 {
        self.ratios.get(&model.id()).unwrap_or(budget::RATIO_DEFAULT)
    }

    /// A model has said how many tokens a prompt of so many bytes was. Of two that say it at once, one may be lost.
    pub fn count(&self, model: &ModelSettings, bytes: usize, tokens: u64) {
        self.ratios.insert(model.id(), budget::corrected(self.ratio(model), bytes, tokens));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::agent::AgentConfig;

    #[test]
    fn ratios_are_learned_and_only_so_many_are_kept() {
        let cache = PromptCache::default();
        let config = |name: &str| serde_json::json!({"model": {"provider": "scripted", "name": name}});
        let model = |name: String| AgentConfig::parse(&config(&name)).unwrap().model;
        let known = model("known".into());
        assert_eq!(cache.ratio(&known), budget::RATIO_DEFAULT);
        cache.count(&known, 100_000, 10_000);
        assert_eq!(cache.ratio(&known), budget::corrected(budget::RATIO_DEFAULT, 100_000, 10_000));
        for n in 0..5 * MODELS {
            cache.count(&model(format!("m{n}")), 100_000, 10_000);
        }
        assert!(cache.ratios.len() <= MODELS, "{} models", cache.ratios.len());
    }
}
