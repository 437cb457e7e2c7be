//! Stage 3. In comes a grant, out goes a session under a lease that is renewed, and given back; meanwhile what its holder
//! knows of it, its turns among that. What is done under the lease is its [`session`](super::session)'s.

mod leased;

pub(super) mod control;
pub(super) mod keeper;
pub(super) mod known;
pub(super) mod memory;
pub(super) mod outage;
pub(super) mod quarantine;
pub(super) mod transcript;
pub(super) mod waits;

pub(super) use leased::{Leased, Stop};
