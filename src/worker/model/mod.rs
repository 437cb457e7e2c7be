//! Stage 5. In comes a request, out goes a reply with what it has used, or when to ask again. What it is paid from is held
//! before the model is asked and settled after. A reply is recorded; what it asks for is done elsewhere.

pub(super) mod fallback;
pub(super) mod media;
pub(super) mod record;

mod call;
mod origin;
mod spend;
mod wallet;

pub(super) use origin::Counts;
pub(super) use wallet::Payments;
