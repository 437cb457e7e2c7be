//! Gemini `generateContent`: requests and streamed replies.

mod decode;
mod encode;

pub(super) use decode::take;
pub(super) use encode::encode;
