//! Parts of prompts and tools that follow from the rest of a configuration.

use super::{AgentConfig, CompletionRule, LoopKind, PromptStyle};

impl AgentConfig {
    /// Returns the style of the prompts. An agent that calls nothing and answers with a text or with a typed output
    /// gets the plain one: it could act on nothing in the full one.
    pub fn prompt_style(&self) -> PromptStyle {
        let is_typed = self.outputs.complete.is_some();
        let answers = self.calls_nothing() && (is_typed || self.completion == CompletionRule::Implicit);
        self.prompt.unwrap_or(if answers { PromptStyle::Plain } else { PromptStyle::Full })
    }

    /// Whether a task without a typed output ends with the agent's text, and with nothing else: the agent has no tools,
    /// so that those that end a task aren't offered either.
    pub fn ends_with_text(&self) -> bool {
        let is_plain = self.prompt_style() == PromptStyle::Plain;
        is_plain && self.calls_nothing() && self.completion == CompletionRule::Implicit
    }

    fn calls_nothing(&self) -> bool {
        let has_tools = !self.tools.is_empty() || self.default_tools || !self.resources.is_empty();
        !has_tools && self.looping == LoopKind::Chat
    }
}
