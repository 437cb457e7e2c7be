//! Stage 5: sends a request to a model and returns its reply and its usage, or when to call again. Money is reserved
//! before the call and settled after it. The reply is recorded; its calls are made in stage 6.

pub(super) mod fallback;
pub(super) mod media;
pub(super) mod record;

mod call;
mod origin;
mod spend;
pub(super) mod wallet;
