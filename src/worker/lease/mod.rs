//! Stage 3. In comes a grant, out goes how the session's run ended; in between turn after turn (stages 4 to 7), under a
//! lease that is renewed, and given back. It asks no model, and what a turn decides is not its to write.

mod leased;
pub(super) mod session;

pub(super) mod control;
pub(super) mod expiry;
pub(super) mod keeper;
pub(super) mod known;
pub(super) mod quarantine;
pub(super) mod waits;

pub(super) use leased::{Leased, Stop};
