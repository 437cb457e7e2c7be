//! OpenAI Chat Completions: requests and streamed replies.

mod decode;
mod encode;
mod messages;
mod usage;

#[cfg(test)]
mod tests;

pub(super) use decode::take;
pub(super) use encode::{OUTPUT_NAME, encode};
pub(super) use usage::tokens;
