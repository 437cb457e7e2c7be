//! The kill of the demo's server in the middle of turns.

use std::collections::BTreeSet;

/// State at the time of the kill.
pub(crate) struct Kill {
    /// Id of the killed process.
    pub(crate) pid: u32,
    /// Turns whose model call was running.
    pub(crate) interrupted: BTreeSet<String>,
    /// Turns that had received their reply.
    pub(crate) with_reply: BTreeSet<String>,
    /// Turns that were on disk.
    pub(crate) committed: BTreeSet<String>,
    /// Tasks that had begun and not ended.
    pub(crate) started: usize,
    /// Tasks that had ended.
    pub(crate) ended: usize,
}
