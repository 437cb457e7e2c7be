//! Decodes the bytes of a reply.

use super::dialect::{Dialect, WireFormat};
use super::encoder::EncodedRequest;
use super::error::DecodeError;
use super::frames::{FrameSplitter, ReplyFrame, wire_bytes_limit};
use super::openai_responses::OutputItems;
use super::reply::ReplyBuilder;
use super::{anthropic, gemini, openai_chat, openai_responses};
use crate::chat::{Reply, TokenUsage};
use std::sync::Arc;

/// Decodes the bytes of one reply.
#[derive(Debug)]
pub struct Decoder {
    frames: FrameSplitter,
    reply: ReplyBuilder,
    /// Output items of the Responses format.
    items: OutputItems,
    format: WireFormat,
}

impl Decoder {
    /// Makes the decoder for the reply to an encoded request. `model` is recorded as the author of the reasoning.
    pub fn new(dialect: &Dialect, encoded: &EncodedRequest, model: &str, max_tokens: Option<u32>) -> Self {
        Self {
            frames: FrameSplitter::new(wire_bytes_limit(max_tokens)),
            reply: ReplyBuilder::new(dialect, Arc::clone(&encoded.names), model, max_tokens),
            items: OutputItems::default(),
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
    fn take_frames(&mut self, found: Vec<ReplyFrame>, split: Result<(), DecodeError>) -> Result<(), DecodeError> {
        for frame in found {
            self.take_frame(&frame)?;
        }
        if self.reply.is_whole() { Ok(()) } else { split }
    }

    fn take_frame(&mut self, frame: &ReplyFrame) -> Result<(), DecodeError> {
        if self.reply.is_done() {
            return Ok(());
        }
        match frame {
            ReplyFrame::Done => self.reply.mark_done(),
            ReplyFrame::Json { event, value } => match self.format {
                WireFormat::OpenAiChat => openai_chat::take_frame(&mut self.reply, value)?,
                WireFormat::OpenAiResponses => openai_responses::take_frame(&mut self.reply, &mut self.items, value)?,
                WireFormat::Anthropic => anthropic::take_frame(&mut self.reply, event.as_deref(), value)?,
                WireFormat::Gemini => gemini::take_frame(&mut self.reply, value)?,
            },
        }
        Ok(())
    }
}
