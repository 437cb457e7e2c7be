//! OpenAI Responses: requests and streamed replies.

mod decode;
mod echo;
mod encode;
mod items;

#[cfg(test)]
mod tests;

pub(super) use decode::take_frame;
pub(super) use encode::encode;
pub(super) use items::OutputItems;
