//! What an agent's configuration leaves out of its prompts and of its tools.

use super::{AgentConfig, CompletedBy, Looping, PromptStyle};

impl AgentConfig {
    /// What stands in its prompts. An agent with nothing to call that answers with a text or with a typed output reads a
    /// task and answers it: there is nothing in the rest that it could act on.
    pub fn prompt_style(&self) -> PromptStyle {
        let is_typed = self.outputs.complete.is_some();
        let answers = self.calls_nothing() && (is_typed || self.completion == CompletedBy::Implicit);
        self.prompt.unwrap_or(if answers { PromptStyle::Plain } else { PromptStyle::Full })
    }

    /// Whether a task without a typed output ends with the agent's text, and with nothing else: it has no tools, so that
    /// it isn't offered those that end a task either.
    pub fn ends_with_text(&self) -> bool {
        let is_plain = self.prompt_style() == PromptStyle::Plain;
        is_plain && self.calls_nothing() && self.completion == CompletedBy::Implicit
    }

    fn calls_nothing(&self) -> bool {
        let has_tools = !self.tools.is_empty() || self.default_tools || !self.resources.is_empty();
        !has_tools && self.looping == Looping::Chat
    }
}
