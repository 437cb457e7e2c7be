//! Stage 3: holds a session's lease from its grant to its release, renews it, and keeps what the holder knows of the
//! session. [`session`](super::session) runs the turns under it.

mod leased;
mod stop_signals;

pub(super) mod control;
pub(super) mod keeper;
pub(super) mod records;
pub(super) mod outage;
pub(super) mod transcript;
pub(super) mod waits;

pub(super) use leased::{LeasedSession, RunStop};
