//! Anthropic Messages: requests and streamed replies.

mod blocks;
mod claude;
mod decode;
mod encode;
mod output;
mod thinking;

pub(super) use decode::take_frame;
pub(super) use encode::encode;
