//! Stage 6. In come the calls of a reply, out go their outcomes, each call made at most as often as its operation allows.
//! What they write waits in the turn's tree for its commit, except where an operation takes effect at once.

pub(super) mod calls;

pub(super) mod answers;
pub(super) mod once;
mod hand;
mod harness;
mod resources;
mod results;
