//! The tools and the type of the text in one request. A provider may take only one of them at a time.

use super::EncodeError;
use super::dialect::{Dialect, StructuredOutput};
use super::names::{SentTool, ToolNames};
use super::schema;
use crate::chat::{ModelRequest, ToolChoice};
use serde_json::{Value, json};

/// The tools and the output schema that a request offers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RequestOffer<'n> {
    /// Tools to send.
    pub tools: &'n [SentTool],
    /// Projected schema of the text; `None` also where the type has no equivalent. The runtime checks the text in any
    /// case.
    pub format: Option<Value>,
}

impl<'n> RequestOffer<'n> {
    /// Makes the offer of a request. Where a provider takes no tools beside a typed text, optional tools are left out,
    /// or else the type is.
    pub fn new(request: &ModelRequest, dialect: &Dialect, names: &'n ToolNames) -> Self {
        let tools = names.tools.as_slice();
        let Some(output) = request.output.as_ref().filter(|_| dialect.structured != StructuredOutput::Unsupported)
        else {
            return Self { tools, format: None };
        };
        // A renamed property would come back in the text, where nothing maps it.
        let projected = schema::project(&output.schema, dialect.schema).ok().filter(|it| it.renames.is_empty());
        match projected.map(|projected| projected.schema) {
            Some(format) if tools.is_empty() || dialect.structured_with_tools => Self { tools, format: Some(format) },
            Some(format) if output.tools_optional => Self { tools: &[], format: Some(format) },
            Some(_) | None => Self { tools, format: None },
        }
    }

    /// Returns `tool_choice` as OpenAI's formats write it; `None` without tools, because providers refuse it there.
    /// `named` writes the choice of one tool.
    pub fn tool_choice(
        &self,
        request: &ModelRequest,
        dialect: &Dialect,
        named: impl Fn(&str) -> Value,
    ) -> Result<Option<Value>, EncodeError> {
        let Some(choice) = request.model.tool_choice.as_ref().filter(|_| !self.tools.is_empty()) else {
            return Ok(None);
        };
        let word = match choice {
            ToolChoice::Auto => "auto",
            ToolChoice::Required => "required",
            ToolChoice::None => "none",
            ToolChoice::Tool(name) => {
                let reason = || format!("the request offers no tool `{name}`");
                let tool = self.tools.iter().find(|tool| tool.own_name == *name);
                let tool = tool.ok_or_else(|| setting_error(dialect, "model.toolChoice", &reason()))?;
                return Ok(Some(named(&tool.name)));
            }
        };
        Ok(Some(json!(word)))
    }

    /// Returns `parallel_tool_calls` as OpenAI's formats write it; `None` without tools. Every provider allows several
    /// calls by default, so only `false` needs the field.
    pub fn parallel_tool_calls(&self, request: &ModelRequest, dialect: &Dialect) -> Result<Option<bool>, EncodeError> {
        let Some(parallel) = request.model.parallel_tool_calls.filter(|_| !self.tools.is_empty()) else {
            return Ok(None);
        };
        if !parallel && !dialect.parallel_tool_calls {
            let reason = "its replies may call several tools; leave the setting out";
            return Err(setting_error(dialect, "model.parallelToolCalls", reason));
        }
        Ok(dialect.parallel_tool_calls.then_some(parallel))
    }
}

/// Returns the error for a setting that the format does not take.
pub(super) fn setting_error(dialect: &Dialect, setting: &'static str, reason: &str) -> EncodeError {
    EncodeError::Setting { provider: dialect.provider.to_owned(), setting, reason: reason.to_owned() }
}
