//! What an owner keeps, and a recount of it.

use crate::domain::quota::{Own, QuotaUsage};

/// Answer of [`crate::store::Accounts::usage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// What is kept.
    pub used: QuotaUsage,
    /// What operators have said of this owner.
    pub own: Own,
}

/// Answer of [`crate::store::Accounts::recount`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recount {
    /// There is more to count: call again.
    More,
    /// All is counted.
    Done {
        /// As it stood.
        was: QuotaUsage,
        /// As it is.
        is: QuotaUsage,
    },
}
