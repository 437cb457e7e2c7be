//! Limits of the HTTP API.

use std::time::Duration;

/// Bytes of a request's header, and of the buffered part of an answer: a chain of tokens fits four times.
pub const HTTP_HEADER_BYTES: usize = 128 * 1024;

/// Connections above the limit that are refused, or get an answer about health, at once; the oldest is closed for the
/// next.
pub const HTTP_REFUSALS: usize = 32;

/// Longest time for a refusal, or for an answer about health.
pub const HTTP_REFUSAL_TIME: Duration = Duration::from_secs(5);

/// Time that the rest of an unwanted body is read before its connection is closed.
pub const HTTP_DISCARD_TIME: Duration = Duration::from_secs(1);

/// Time that a request waits for free memory; after it the answer is 503.
pub const HTTP_ROOM_TIME: Duration = Duration::from_secs(10);
