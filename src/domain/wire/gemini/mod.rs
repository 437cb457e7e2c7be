//! Gemini `generateContent`: requests and streamed replies.

mod decode;
mod encode;
mod thinking;

pub(super) use decode::take_frame;
pub(super) use encode::encode;

/// Key of the signature of a part, in what is sent, received and recorded.
const SIGNATURE: &str = "thoughtSignature";
