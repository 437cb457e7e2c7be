//! Builds a reply from its pieces: text, reasoning, calls, and the reason of its end.

mod calls;
mod think;

pub use calls::CallPiece;

use super::dialect::{Dialect, ReasoningReturn};
use super::frames::{ReplyLimitError, content_bytes_limit};
use super::names::ToolNames;
use super::{DecodeError, ProviderReport};
use crate::chat::{Arguments, Reasoning, Reply, TokenUsage};
use calls::ReplyCalls;
use serde_json::{Value, json};
use std::mem::take;
use std::sync::Arc;
use think::ThinkSplitter;

/// Most calls of a reply, and most pieces of its reasoning. No known model makes a tenth of it. The number is limited
/// because each new piece is searched for among all.
pub(in crate::wire) const PIECES_MAX: usize = 1_000;
/// Most characters of a refusal that are kept.
const REFUSAL_CHARS: usize = 1_000;

/// Why a reply ended, as its provider reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// The reply is complete.
    Complete,
    /// The token limit cut the reply off.
    Length,
    /// A filter cut the reply off; the provider's name of the reason.
    Filtered(String),
    /// The model or the provider refuses; the provider's words.
    Refused(String),
    /// The reply is unusable; the provider's name of the reason.
    Unfinished(String),
}

/// Collects the pieces of one reply.
#[derive(Debug)]
pub struct ReplyBuilder {
    names: Arc<ToolNames>,
    model: String,
    /// Reasoning that is plain text goes back to the model.
    returns_thoughts: bool,
    limit: usize,
    content_bytes: usize,
    think: Option<ThinkSplitter>,
    text: String,
    /// Visible text that [`Self::live_text`] has not returned yet.
    live: String,
    /// Reasoning as text.
    thought: String,
    /// Reasoning in the provider's own pieces.
    reasoning: Vec<Value>,
    calls: ReplyCalls,
    refusal: String,
    usage: TokenUsage,
    stop: Option<StopReason>,
    done: bool,
}

impl ReplyBuilder {
    /// Makes the builder for the reply to a request with these tools. `model` is recorded as the author of the
    /// reasoning.
    pub fn new(dialect: &Dialect, names: Arc<ToolNames>, model: &str, max_tokens: Option<u32>) -> Self {
        Self {
            names,
            model: model.to_owned(),
            returns_thoughts: dialect.reasoning_return == ReasoningReturn::Content,
            limit: content_bytes_limit(max_tokens),
            content_bytes: 0,
            think: dialect.think_tags.then(ThinkSplitter::default),
            text: String::new(),
            live: String::new(),
            thought: String::new(),
            reasoning: Vec::new(),
            calls: ReplyCalls::default(),
            refusal: String::new(),
            usage: TokenUsage::default(),
            stop: None,
            done: false,
        }
    }

    /// Adds text of the answer.
    pub fn push_text(&mut self, piece: &str) -> Result<(), DecodeError> {
        self.count_bytes(piece.len())?;
        match &mut self.think {
            Some(think) => {
                let (visible, thought) = think.push(piece);
                self.push_visible(&visible);
                self.thought.push_str(&thought);
            }
            None => self.push_visible(piece),
        }
        Ok(())
    }

    /// Adds reasoning that is plain text.
    pub fn push_thought(&mut self, piece: &str) -> Result<(), DecodeError> {
        self.count_bytes(piece.len())?;
        self.thought.push_str(piece);
        Ok(())
    }

    /// Adds a piece of reasoning that goes back as it is.
    pub fn push_reasoning(&mut self, item: Value) -> Result<(), DecodeError> {
        self.count_bytes(item.to_string().len())?;
        self.reasoning.push(item);
        Ok(())
    }

    /// Appends to a text in the last piece of reasoning.
    pub fn grow_reasoning(&mut self, key: &str, piece: &str) -> Result<(), DecodeError> {
        self.count_bytes(piece.len())?;
        if let Some(Value::String(text)) = self.reasoning.last_mut().and_then(|item| item.get_mut(key)) {
            text.push_str(piece);
        }
        Ok(())
    }

    /// Returns the pieces of reasoning so far.
    pub fn reasoning(&self) -> &[Value] {
        &self.reasoning
    }

    /// Returns the pieces of reasoning so far, for formats whose pieces grow; counts `bytes` as their growth.
    pub fn reasoning_mut(&mut self, bytes: usize) -> Result<&mut Vec<Value>, DecodeError> {
        self.count_bytes(bytes)?;
        Ok(&mut self.reasoning)
    }

    /// Adds a piece of a call.
    pub fn push_call(&mut self, piece: CallPiece<'_>) -> Result<(), DecodeError> {
        let bytes = self.calls.push(piece);
        self.count_bytes(bytes)
    }

    /// Returns the number of calls so far.
    pub fn call_count(&self) -> usize {
        self.calls.len()
    }

    /// Whether a call with this number has begun.
    pub fn has_call(&self, index: u64) -> bool {
        self.calls.has_index(index)
    }

    /// Whether a text of the answer has begun.
    pub const fn has_text(&self) -> bool {
        !self.text.is_empty()
    }

    /// Returns the tokens that the provider has reported so far.
    pub const fn usage(&self) -> TokenUsage {
        self.usage
    }

    /// Returns the bytes of text, calls and reasoning so far.
    pub const fn content_bytes(&self) -> usize {
        self.content_bytes
    }

    /// Adds a piece to the text of a refusal, of which 1,000 characters are kept.
    pub fn push_refusal(&mut self, piece: &str) -> Result<(), DecodeError> {
        self.count_bytes(piece.len())?;
        let room = REFUSAL_CHARS.saturating_sub(self.refusal.chars().count());
        self.refusal.extend(piece.chars().take(room));
        Ok(())
    }

    /// Sets the reported tokens; a class that is 0 keeps its earlier value.
    pub fn set_usage(&mut self, usage: TokenUsage) {
        let told = |now: u64, before: u64| if now == 0 { before } else { now };
        let before = self.usage;
        self.usage = TokenUsage {
            input: told(usage.input, before.input),
            output: told(usage.output, before.output),
            cache_read: told(usage.cache_read, before.cache_read),
            cache_write: told(usage.cache_write, before.cache_write),
            reasoning: told(usage.reasoning, before.reasoning),
        };
    }

    /// Sets the reason of the end.
    pub fn set_stop(&mut self, stop: StopReason) {
        self.stop = Some(stop);
    }

    /// Marks the reply as ended.
    pub const fn mark_done(&mut self) {
        self.done = true;
    }

    /// Whether the reply has ended.
    pub const fn is_done(&self) -> bool {
        self.done
    }

    /// Whether the provider has said why the reply ended. If the connection breaks after that, nothing is lost.
    pub const fn is_whole(&self) -> bool {
        self.done || self.stop.is_some()
    }

    /// Returns the visible text since the last call, and clears it.
    pub fn live_text(&mut self) -> String {
        take(&mut self.live)
    }

    /// Returns the reply, and the visible text that [`Self::live_text`] has not returned yet.
    pub fn finish(mut self) -> Result<(Reply, String), DecodeError> {
        if let Some(think) = self.think.take() {
            let (visible, thought) = think.finish();
            self.push_visible(&visible);
            self.thought.push_str(&thought);
        }
        if !self.is_whole() || self.stop.is_none() && self.calls.is_incomplete() {
            return Err(DecodeError::Incomplete);
        }
        let silent = self.text.trim().is_empty() && self.calls.len() == 0;
        let truncated = match self.stop.take() {
            Some(StopReason::Unfinished(reason)) => return Err(DecodeError::Unfinished(reason)),
            Some(StopReason::Refused(reason)) => {
                let reason = if self.refusal.is_empty() { reason } else { self.refusal };
                return Err(DecodeError::Refused(reason));
            }
            Some(StopReason::Filtered(reason)) if silent => {
                return Err(DecodeError::Refused(format!("its content filter (`{reason}`)")));
            }
            // A filtered answer is an error, because its rest was removed.
            Some(StopReason::Filtered(reason)) => {
                return Err(DecodeError::Filtered { reason, chars: self.text.chars().count() });
            }
            Some(StopReason::Complete) | None if silent && !self.refusal.is_empty() => {
                return Err(DecodeError::Refused(self.refusal));
            }
            Some(StopReason::Length) => true,
            Some(StopReason::Complete) | None => false,
        };
        let live = self.live_text();
        let calls = self.calls.finish(&self.names, truncated);
        let mut items = self.reasoning;
        // Reasoning that never goes back would only take room in every record.
        if items.is_empty() && !self.thought.is_empty() && self.returns_thoughts {
            items.push(json!({"text": self.thought}));
        }
        let reasoning = (!items.is_empty()).then_some(Reasoning { by: self.model, items });
        Ok((Reply { text: self.text, calls, usage: self.usage, truncated, reasoning }, live))
    }

    fn push_visible(&mut self, piece: &str) {
        self.text.push_str(piece);
        self.live.push_str(piece);
    }

    fn count_bytes(&mut self, bytes: usize) -> Result<(), DecodeError> {
        if self.reasoning.len().max(self.calls.len()) > PIECES_MAX {
            return Err(ReplyLimitError::Pieces.into());
        }
        self.content_bytes = self.content_bytes.saturating_add(bytes);
        if self.content_bytes > self.limit { Err(ReplyLimitError::Content(self.limit).into()) } else { Ok(()) }
    }
}

/// Checks that a whole reply, of any provider, does not exceed its limit of bytes.
pub fn check_size(max_tokens: Option<u32>, reply: &Reply) -> Result<(), ReplyLimitError> {
    let limit = content_bytes_limit(max_tokens);
    let arguments = |arguments: &Arguments| match arguments {
        Arguments::Json(value) => value.to_string().len(),
        Arguments::Malformed(text) => text.len(),
    };
    let calls: usize = reply.calls.iter().map(|call| call.name.len() + arguments(&call.arguments)).sum();
    let items = reply.reasoning.iter().flat_map(|reasoning| &reasoning.items);
    let reasoned: usize = items.map(|item| item.to_string().len()).sum();
    if reply.text.len() + calls + reasoned > limit { Err(ReplyLimitError::Content(limit)) } else { Ok(()) }
}

/// Most characters of a provider's report that an error keeps.
const REPORT_CHARS: usize = 1_000;

impl ProviderReport {
    /// Reads a provider's error in any of its forms: `{error: {message, type, code}}`, `{error: "…"}`, `{message,
    /// type}`, a list of one of these, or anything else as it is.
    pub fn from_body(body: &Value) -> Self {
        let body = body.get(0).unwrap_or(body);
        let inner = body.get("error").filter(|error| !error.is_null()).unwrap_or(body);
        let text = ["message", "detail", "error", "msg"].iter().find_map(|key| inner.get(*key)?.as_str());
        let message = text.or(inner.as_str()).map_or_else(|| inner.to_string(), str::to_owned);
        let keys = ["type", "status", "code"];
        let kinds = keys.iter().filter_map(|key| inner.get(*key)?.as_str()).map(str::to_owned).collect();
        let status = keys.iter().filter_map(|key| inner.get(*key)).find_map(|value| {
            let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
            u16::try_from(number).ok().filter(|status| (100..600).contains(status))
        });
        Self { message: message.trim().chars().take(REPORT_CHARS).collect(), kinds, status }
    }
}
