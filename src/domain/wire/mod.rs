//! Wire formats of model providers: encodes a request to bytes, decodes the bytes of a reply to a
//! [`Reply`](crate::chat::Reply).
//!
//! ```text
//! ModelRequest ─▶ conversation (legal for the dialect) ─▶ encode ─▶ HttpRequest
//! bytes ─▶ frames ─▶ Decoder::feed ─▶ live text … Decoder::end ─▶ Reply or DecodeError
//! ```
//!
//! This module is pure: sockets, timeouts, TLS and keys are handled outside the core. A [`Dialect`](dialect::Dialect)
//! holds as data what differs between providers of one format; one codec per format reads it.

pub mod account;
pub mod conversation;
mod decoder;
pub mod dialect;
mod encoder;
mod error;
pub mod extra;
pub mod frames;
pub mod names;
mod offer;
pub mod reply;
mod request;
pub mod schema;

pub mod anthropic;
pub mod gemini;
pub mod openai_chat;
pub mod openai_responses;

#[cfg(test)]
mod tests;

pub use decoder::Decoder;
pub use encoder::{EncodedRequest, cache_key, encode};
pub use error::{DecodeError, EncodeError, ProviderReport};
pub use request::HttpRequest;
