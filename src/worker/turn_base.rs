//! Values that the stages of a turn share.

use crate::venue::workspace::Workspace;

/// The workspace that a turn reads and writes, and the version of its policy.
pub(super) struct TurnBase {
    pub(super) workspace: Workspace,
    /// Version of the owner's policy when the turn began.
    pub(super) policy: u64,
}
