//! What prompts share: tool tables of configurations, bytes per token of models, media types of assets, and the memory
//! for attachments.

use crate::domain::chat::ModelSettings;
use crate::domain::context::budget;
use crate::domain::ids::{AgentId, AssetId, Owner};
use crate::domain::limits::ATTACHMENTS_MEMORY;
use crate::domain::media::SniffedContent;
use crate::domain::time::Millis;
use crate::domain::tools::ToolTable;
use quick_cache::sync::Cache;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Tool tables that are cached.
const TOOL_TABLES: usize = 1_024;
/// Models of owners whose ratio of bytes to tokens is cached: a configuration may name any model.
const MODELS: usize = 4_096;
/// Assets whose media type is cached.
const SNIFFED: usize = 4_096;
/// Bytes of one permit of [`PromptCache::room`].
const ROOM_UNIT: usize = 1_024;
/// Copies of its bytes that a call holds at once: the content, its Base64 in the body, and the body as it is sent.
const COPIES: usize = 4;
/// Searches through an owner's reads that a process does at once: each takes about 100 MB.
const TRAILS: usize = 2;

/// What a tool table depends on; tools are the stable part of a prompt that is worth caching. A user never gets a table
/// that was made with another user's values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ToolKey {
    pub(super) owner: Owner,
    pub(super) agent: AgentId,
    pub(super) created: Millis,
    pub(super) config_version: u64,
    /// Place of the step whose agent has the tools; empty for the agent itself.
    pub(super) step: String,
    pub(super) task_open: bool,
    /// Whether a goal inside another is worked on.
    pub(super) inner: bool,
    /// The schema of the task's output; empty when there is none.
    pub(super) output: String,
    /// The schema of the goal's result; empty when there is none.
    pub(super) goal: String,
    pub(super) found: Vec<String>,
    /// Operations of the configured tools: a pin may name another operation later.
    pub(super) operations: Vec<String>,
    /// Tools of the agent's resources; writing ones only where the agent may write.
    pub(super) resources: Vec<String>,
    /// SHA-256 of the values that bindings may fill in; empty when there are no bindings.
    pub(super) values: String,
    /// The instances that calls of the agent can name.
    pub(super) instances: Vec<String>,
    /// Numbers of the publications whose operations the turn may name.
    pub(super) published: Vec<u64>,
}

/// Cached values for later prompts. Evicted ones are computed again.
#[derive(Debug)]
pub struct PromptCache {
    pub(super) tools: Cache<ToolKey, Arc<ToolTable>>,
    /// Ratio of bytes to tokens, by owner, model and URL.
    ratios: Cache<String, u32>,
    /// Media types of assets; the name of an asset is the hash of its content, whoever owns it.
    pub(crate) sniffed: Cache<AssetId, Option<SniffedContent>>,
    /// Memory for the attachments of model calls, in permits of [`ROOM_UNIT`] bytes.
    room: Arc<Semaphore>,
    /// A permit for looking at a request with the bytes of its attachments, one at a time: model calls have the rest.
    looks: Arc<Semaphore>,
    /// Searches through all reads of an owner's models, [`TRAILS`] at a time.
    pub(crate) trails: Semaphore,
}

impl Default for PromptCache {
    fn default() -> Self {
        Self {
            tools: Cache::new(TOOL_TABLES),
            ratios: Cache::new(MODELS),
            sniffed: Cache::new(SNIFFED),
            room: Arc::new(Semaphore::new(ATTACHMENTS_MEMORY / ROOM_UNIT)),
            looks: Arc::new(Semaphore::new(1)),
            trails: Semaphore::new(TRAILS),
        }
    }
}

impl PromptCache {
    /// Waits for the memory that a call with attachments of so many bytes takes; dropping the permit gives it back.
    pub async fn reserve_attachments(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = (bytes.saturating_mul(COPIES).min(ATTACHMENTS_MEMORY) / ROOM_UNIT).max(1);
        Arc::clone(&self.room).acquire_many_owned(u32::try_from(units).unwrap_or(u32::MAX)).await.ok()
    }

    /// Like [`PromptCache::reserve_attachments`], to look at a request that is not sent: only one of them holds memory.
    pub async fn reserve_look(&self, bytes: usize) -> Option<[OwnedSemaphorePermit; 2]> {
        let look = Arc::clone(&self.looks).acquire_owned().await.ok()?;
        Some([look, self.reserve_attachments(bytes).await?])
    }

    /// Forgets what was computed from documents with a version.
    pub fn clear(&self) {
        self.tools.clear();
    }

    /// Returns the bytes per token of an owner's model, in thousandths, as its usage has shown so far. Others' prompts and
    /// servers have no part in it: they could shrink the context of an owner, or hide what a call costs.
    pub fn ratio(&self, owner: &Owner, model: &ModelSettings) -> u32 {
        self.ratios.get(&ratio_key(owner, model)).unwrap_or(budget::RATIO_DEFAULT)
    }

    /// Records how many tokens a prompt of so many bytes was. Of two records at once one may be lost.
    pub fn record_ratio(&self, owner: &Owner, model: &ModelSettings, bytes: usize, tokens: u64) {
        let corrected = budget::corrected_ratio(self.ratio(owner, model), bytes, tokens);
        self.ratios.insert(ratio_key(owner, model), corrected);
    }
}

/// No owner has a line break in its name.
fn ratio_key(owner: &Owner, model: &ModelSettings) -> String {
    format!("{owner}\n{}\n{}", model.base_url.as_deref().unwrap_or_default(), model.id())
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
        let owner: Owner = "acme/ann".parse().unwrap();
        assert_eq!(cache.ratio(&owner, &known), budget::RATIO_DEFAULT);
        cache.record_ratio(&owner, &known, 100_000, 20_000);
        assert_eq!(cache.ratio(&owner, &known), budget::corrected_ratio(budget::RATIO_DEFAULT, 100_000, 20_000));
        for n in 0..5 * MODELS {
            cache.record_ratio(&owner, &model(format!("m{n}")), 100_000, 20_000);
        }
        assert!(cache.ratios.len() <= MODELS, "{} models", cache.ratios.len());
    }

    /// A server of one owner's own, under the name of a model, may count as it likes.
    #[test]
    fn no_owner_changes_the_ratio_of_another() {
        let cache = PromptCache::default();
        let [mine, other] = ["acme/ann", "evil/eve"].map(|owner| owner.parse::<Owner>().unwrap());
        let config = serde_json::json!({"model": {"provider": "openai", "name": "gpt-4o"}});
        let model = AgentConfig::parse(&config).unwrap().model;
        let own_server = ModelSettings { base_url: Some("https://evil.example/v1/".into()), ..model.clone() };
        for _ in 0..20 {
            cache.record_ratio(&other, &model, 10_000, 9_000);
            cache.record_ratio(&mine, &own_server, 10_000, 9_000);
        }
        assert!(cache.ratio(&other, &model) < 1_500 && cache.ratio(&mine, &own_server) < 1_500);
        assert_eq!(cache.ratio(&mine, &model), budget::RATIO_DEFAULT);
    }

    #[tokio::test]
    async fn attachments_take_room_and_one_look_at_a_request_at_a_time() {
        let cache = PromptCache::default();
        let all = cache.room.available_permits();
        let call = cache.reserve_attachments(1024 * ROOM_UNIT).await;
        assert_eq!(cache.room.available_permits(), all - 1024 * COPIES);
        let look = cache.reserve_look(ROOM_UNIT).await;
        assert_eq!((cache.looks.available_permits(), cache.room.available_permits()), (0, all - 1025 * COPIES));
        drop((call, look));
        assert_eq!((cache.looks.available_permits(), cache.room.available_permits()), (1, all));
        let whole = cache.reserve_attachments(usize::MAX).await;
        assert!(whole.is_some() && cache.room.available_permits() == 0, "no more than there is");
    }
}
