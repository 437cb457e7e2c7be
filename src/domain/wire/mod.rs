//! Wire formats of model providers: encodes a request to bytes, decodes the bytes of a reply to a [`Reply`].
//!
//! ```text
//! ModelRequest ─▶ conversation (legal for the dialect) ─▶ encode ─▶ HttpRequest
//! bytes ─▶ frames ─▶ Decoder::feed ─▶ live text … Decoder::end ─▶ Reply or DecodeError
//! ```
//!
//! This module is pure: sockets, timeouts, TLS and keys are handled outside the core. A [`Dialect`] holds as data what
//! differs between providers of one format; one codec per format reads it.

pub mod account;
pub mod conversation;
pub mod dialect;
pub mod extra;
pub mod frames;
pub mod names;
mod offer;
pub mod reply;
pub mod schema;

pub mod anthropic;
pub mod gemini;
pub mod openai_chat;
pub mod openai_responses;

#[cfg(test)]
mod tests;

use crate::chat::{ModelRequest, Reply, TokenUsage};
use crate::ids::sha256_hex;
use conversation::Conversation;
use dialect::{Dialect, WireFormat};
use names::ToolNames;
use serde_json::Value;
use std::sync::Arc;

/// An HTTP request without its host and its key.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpRequest {
    /// Path below the base URL, with its query: `chat/completions`.
    pub path: String,
    /// Headers without those for authentication.
    pub headers: Vec<(&'static str, String)>,
    /// JSON body; the method is always POST.
    pub body: Value,
}

/// Why a request can't be encoded for a provider. The same request always fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A tool's schema has no equivalent.
    #[error("tool `{tool}` can't be offered to `{provider}`: {reason}")]
    Schema {
        /// Name of the tool.
        tool: String,
        /// Name of the provider.
        provider: String,
        /// The part of the schema without an equivalent, with its place.
        reason: schema::ProjectionError,
    },
    /// `extra` names a key that Trellis writes itself.
    #[error("`model.extra.{key}`: Trellis writes this key itself; use the setting of the agent")]
    OwnKey {
        /// Name of the key.
        key: String,
    },
    /// The format has no place for a setting.
    #[error("`{provider}` has no `{setting}`: {reason}")]
    Setting {
        /// Name of the provider.
        provider: String,
        /// Key of the setting, as `model.seed`.
        setting: &'static str,
        /// What to do instead.
        reason: String,
    },
}

/// A request in a provider's format, with the names that decode its reply.
#[derive(Debug, Clone)]
pub struct EncodedRequest {
    /// The request to send.
    pub request: HttpRequest,
    /// Names that were sent in place of ours, with the schemas; shared with the decoder.
    pub names: Arc<ToolNames>,
}

/// Number of characters of a [`cache_key`].
const CACHE_KEY_CHARS: usize = 32;

/// Returns a name of the session that reveals nothing about the owner: 32 hexadecimal digits of a hash.
pub fn cache_key(request: &ModelRequest) -> String {
    let session = request.turn.rsplit_once('/').map_or(request.turn.as_str(), |(session, _)| session);
    sha256_hex(session.as_bytes())[..CACHE_KEY_CHARS].to_owned()
}

/// Encodes a request for a dialect. `cache_key` names the session for providers that route by it.
pub fn encode(request: &ModelRequest, dialect: &Dialect, cache_key: &str) -> Result<EncodedRequest, EncodeError> {
    let names = ToolNames::for_dialect(&request.tools, dialect)?;
    let conversation = Conversation::project(request, dialect, &names);
    let mut sent = match dialect.format {
        WireFormat::OpenAiChat => openai_chat::encode(request, dialect, &conversation, &names, cache_key),
        WireFormat::OpenAiResponses => openai_responses::encode(request, dialect, &conversation, &names, cache_key),
        WireFormat::Anthropic => anthropic::encode(request, dialect, &conversation, &names),
        WireFormat::Gemini => gemini::encode(request, dialect, &conversation, &names),
    }?;
    extra::merge(&mut sent.body, &request.model.extra)?;
    Ok(EncodedRequest { request: sent, names: Arc::new(names) })
}

/// Why bytes can't be decoded to a reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The connection ended before the provider said that it was finished.
    #[error("the reply ended in the middle")]
    Incomplete,
    /// The provider reports a failure inside a reply that began well.
    #[error("{}", .0.message)]
    Reported(ProviderReport),
    /// The provider or its filter refuses to answer. The same request would be refused again.
    #[error("the provider refused an answer: {0}")]
    Refused(String),
    /// The reply ended for a reason that makes it unusable (`error`, `MALFORMED_FUNCTION_CALL`, an unknown one).
    #[error("the reply ended with `{0}`, so that it is no whole answer")]
    Unfinished(String),
    /// The provider's filter removed the rest of a reply.
    #[error("the provider's content filter (`{reason}`) cut its reply off after {chars} characters")]
    Filtered {
        /// Reason as the provider names it.
        reason: String,
        /// Number of characters before the cut.
        chars: usize,
    },
    /// The answer is not a stream of this format; its beginning.
    #[error("its answer is no reply of this format ({0}): is the URL of the endpoint right?")]
    Foreign(String),
    /// The reply exceeds a limit.
    #[error(transparent)]
    Limit(#[from] frames::ReplyLimitError),
}

impl DecodeError {
    /// Returns the error with each text of the provider changed by `change`.
    #[must_use]
    pub fn map_words(self, change: impl Fn(&str) -> String) -> Self {
        match self {
            Self::Reported(report) => Self::Reported(ProviderReport { message: change(&report.message), ..report }),
            Self::Refused(words) => Self::Refused(change(&words)),
            Self::Unfinished(reason) => Self::Unfinished(change(&reason)),
            Self::Filtered { reason, chars } => Self::Filtered { reason: change(&reason), chars },
            Self::Foreign(beginning) => Self::Foreign(change(&beginning)),
            Self::Incomplete | Self::Limit(_) => self,
        }
    }
}

/// A failure as the provider reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderReport {
    /// Message, at most 1,000 characters.
    pub message: String,
    /// Values of `type`, `status` and `code`, where the report has them as text.
    pub kinds: Vec<String>,
    /// HTTP status, if one of these fields has a number from 100 to 599.
    pub status: Option<u16>,
}

/// Decodes the bytes of one reply.
#[derive(Debug)]
pub struct Decoder {
    frames: frames::FrameSplitter,
    reply: reply::ReplyBuilder,
    /// Output items of the Responses format.
    items: openai_responses::OutputItems,
    format: WireFormat,
}

impl Decoder {
    /// Makes the decoder for the reply to an encoded request. `model` is recorded as the author of the reasoning.
    pub fn new(dialect: &Dialect, encoded: &EncodedRequest, model: &str, max_tokens: Option<u32>) -> Self {
        Self {
            frames: frames::FrameSplitter::new(frames::wire_bytes_limit(max_tokens)),
            reply: reply::ReplyBuilder::new(dialect, Arc::clone(&encoded.names), model, max_tokens),
            items: openai_responses::OutputItems::default(),
            format: dialect.format,
        }
    }

    /// Decodes more bytes; returns the visible text in them for live output.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<String, DecodeError> {
        let mut found = Vec::new();
        let split = self.frames.push(bytes, &mut found);
        self.take_frames(found, split)?;
        Ok(self.reply.live_text())
    }

    /// Returns the rest of the visible text and the reply, after the connection has ended.
    pub fn end(mut self) -> Result<(String, Reply), DecodeError> {
        let mut found = Vec::new();
        let split = self.frames.end(&mut found);
        self.take_frames(found, split)?;
        if self.frames.is_foreign() {
            return Err(DecodeError::Foreign(self.frames.beginning()));
        }
        let (reply, live) = self.reply.finish()?;
        Ok((live, reply))
    }

    /// Returns the tokens that the provider has reported so far.
    pub const fn usage(&self) -> TokenUsage {
        self.reply.usage()
    }

    /// Returns the bytes of text, calls and reasoning so far.
    pub const fn content_bytes(&self) -> usize {
        self.reply.content_bytes()
    }

    /// Whether the reply has ended.
    pub const fn is_done(&self) -> bool {
        self.reply.is_done()
    }

    /// Whether the provider has said why the reply ended. If the connection breaks after that, nothing is lost.
    pub const fn is_whole(&self) -> bool {
        self.reply.is_whole()
    }

    /// Takes frames, and returns the error behind them unless the reply has ended before it.
    fn take_frames(
        &mut self,
        found: Vec<frames::ReplyFrame>,
        split: Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        for frame in found {
            self.take_frame(&frame)?;
        }
        if self.reply.is_whole() { Ok(()) } else { split }
    }

    fn take_frame(&mut self, frame: &frames::ReplyFrame) -> Result<(), DecodeError> {
        if self.reply.is_done() {
            return Ok(());
        }
        match frame {
            frames::ReplyFrame::Done => self.reply.mark_done(),
            frames::ReplyFrame::Json { event, value } => match self.format {
                WireFormat::OpenAiChat => openai_chat::take_frame(&mut self.reply, value)?,
                WireFormat::OpenAiResponses => openai_responses::take_frame(&mut self.reply, &mut self.items, value)?,
                WireFormat::Anthropic => anthropic::take_frame(&mut self.reply, event.as_deref(), value)?,
                WireFormat::Gemini => gemini::take_frame(&mut self.reply, value)?,
            },
        }
        Ok(())
    }
}
