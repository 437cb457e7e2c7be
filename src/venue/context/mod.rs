//! Stage 4, the shell's part. In comes what a turn serves and may do, out go the inputs of its prompt, fetched with
//! authority checked per read. It changes nothing: a turn and a look at the next one are the same here.

mod attachments;
mod cache;
mod fetch;
mod gather;
mod pins;
pub mod preview;
mod rest;
mod transcript;
mod values;

pub use cache::PromptCache;
pub(crate) use gather::{PromptView, begin, offered};
pub(crate) use rest::{clear, inbox, state, stored};
pub(crate) use transcript::Transcript;
