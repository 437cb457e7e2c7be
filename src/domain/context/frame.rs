//! Values of a prompt that stay the same over the turns of a configuration.

use crate::agent::{CompletionRule, PromptStyle};
use crate::authority::{Authority, Disclosure};
use crate::chat::ModelSettings;
use crate::ids::AgentId;
use serde::{Deserialize, Serialize};

/// Values that stay the same over the turns of a configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptFrame {
    /// Id of the agent.
    pub agent: AgentId,
    /// Name of the venue.
    pub venue: String,
    /// Settings of the model.
    pub model: ModelSettings,
    /// Authority of the turn.
    pub authority: Authority,
    /// How the prompt tells the model its authority; absent in older records, and where nothing is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disclosure: Option<Disclosure>,
    /// Most authority of the turn's request.
    #[serde(default, skip_serializing_if = "Authority::is_unlimited")]
    pub bound: Authority,
    /// What completes a task.
    pub completion: CompletionRule,
    /// A placeholder without a value fails the turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// Paths of the seed's catalogue (`v/ops/covia/…`) are in use.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aliases: bool,
    /// The agent is anonymous: its configured text is the whole system prompt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bare: bool,
    /// Which texts of the venue stand in the prompt.
    #[serde(default, skip_serializing_if = "is_full")]
    pub prompt: PromptStyle,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_full(prompt: &PromptStyle) -> bool {
    *prompt == PromptStyle::Full
}
