//! Encodes a request for a dialect.

use super::conversation::Conversation;
use super::dialect::{Dialect, WireFormat};
use super::error::EncodeError;
use super::names::ToolNames;
use super::request::HttpRequest;
use super::{anthropic, extra, gemini, openai_chat, openai_responses};
use crate::chat::ModelRequest;
use crate::ids::sha256_hex;
use std::sync::Arc;

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
