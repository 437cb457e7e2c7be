//! What the stages of a turn share.

use crate::venue::workspace::Workspace;

/// What a turn stands on while it runs: the tree that it reads and writes, and the policy of its authority.
pub(super) struct Ground {
    pub(super) workspace: Workspace,
    /// Version of the owner's policy under which the turn began.
    pub(super) policy: u64,
}
