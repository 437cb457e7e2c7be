//! Stage 4, without the pure core: fetches the inputs of a prompt from what a turn serves and may do, with authority
//! checked per read. It changes nothing: a turn and a preview of the next one are the same here.

mod attachments;
mod cache;
mod fetch;
mod gather;
mod pins;
pub mod preview;
mod stored_session;
mod transcript;
mod values;

pub use cache::PromptCache;
pub(crate) use gather::{PromptView, begin_turn, offered_tools};
pub(crate) use stored_session::{clear_scratch, decode_inbox, decode_state, decode_stored};
pub(crate) use transcript::Transcript;
