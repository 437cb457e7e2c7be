//! Stage 6: makes the calls of a reply, each at most as often as its operation allows, and returns their outcomes.
//! Writes wait in the workspace for the commit, except where an operation takes effect at once.

pub(super) mod calls;

pub(super) mod answers;
pub(super) mod recorded_calls;
mod delegates;
mod harness;
mod resources;

mod round;
mod results;
mod errors;
