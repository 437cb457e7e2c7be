//! OpenAI Chat Completions: requests and streamed replies.

mod decode;
mod encode;
mod messages;
mod usage;

#[cfg(test)]
mod tests;

pub(super) use decode::take_frame;
pub(super) use encode::{OUTPUT_NAME, encode, insert_limit_and_sampling};
pub(super) use usage::parse_usage;
