//! Marks of work that the sweep has to finish.

use super::{INVOKED_DUE, NOTIFICATIONS_DUE, OUTBOUND_DUE, TIMERS_DUE};
use crate::domain::ids::{AgentId, JobId, decode_token};
use crate::domain::time::Millis;

/// Prefix of the marks of unreachable documents.
pub const GARBAGE: &str = "x/";

/// Returns the key that marks a document prefix as unreachable: the sweep frees its documents.
pub fn garbage(prefix: &str) -> String {
    format!("{GARBAGE}{prefix}")
}

/// Prefix of the marks of agents that are being deleted.
pub const DELETIONS: &str = "g.end/";

/// Prefix of answers that their session may not have received, by the time of the next delivery.
pub const ANSWERS_DUE: &str = "h.due/";

/// Returns the key that marks an answer as written: the sweep delivers it to the session if its writer dies first.
pub fn answer_due(due: Millis, approval: &JobId) -> String {
    format!("{ANSWERS_DUE}{:016}-{approval}", due.0)
}

/// Prefix of approvals without an answer.
pub const OPEN_APPROVALS: &str = "h.open/";

/// Returns the key of an approval's entry under [`OPEN_APPROVALS`]: a list of open approvals reads no others.
pub fn open_approval(approval: &JobId) -> String {
    format!("{OPEN_APPROVALS}{approval}")
}

/// Returns the approval of a key of [`open_approval`].
pub fn approval_of_open(key: &str) -> Option<JobId> {
    JobId::new(key.strip_prefix(OPEN_APPROVALS)?).ok()
}

/// Key of the mark that all approvals of builds without [`OPEN_APPROVALS`] have their entries.
pub const OPEN_APPROVALS_COMPLETE: &str = "h.listed";

/// Prefixes of a sweep's work beside sessions and outboxes; keys with a due time sort by it.
pub const SWEPT: [&str; 8] =
    [TIMERS_DUE, OUTBOUND_DUE, INVOKED_DUE, ANSWERS_DUE, NOTIFICATIONS_DUE, OPEN_CALLS, DELETIONS, GARBAGE];

/// The prefixes of [`SWEPT`] whose keys continue with a due time. Names under the others may look like one.
pub const SWEPT_BY_TIME: [&str; 6] =
    [TIMERS_DUE, OUTBOUND_DUE, INVOKED_DUE, ANSWERS_DUE, NOTIFICATIONS_DUE, OPEN_CALLS];

/// Returns when a sweep must read the document with this key, 0 = at once; `None`: never. A damaged key counts as due,
/// and its reader reports it.
pub fn sweep_time(key: &str) -> Option<Millis> {
    let prefix = SWEPT.into_iter().find(|prefix| key.starts_with(prefix))?;
    let at = SWEPT_BY_TIME.contains(&prefix).then(|| key[prefix.len()..].split_once('-')?.0.parse().ok()).flatten();
    Some(Millis(at.unwrap_or_default()))
}

/// Returns the key that marks an agent as being deleted: the sweep completes the deletion if its process dies.
pub fn deletion_mark(agent: &AgentId) -> String {
    format!("{DELETIONS}{}", agent.token())
}

/// Returns the agent of a key of [`deletion_mark`].
pub fn agent_of_deletion(key: &str) -> Option<AgentId> {
    AgentId::new(decode_token(key.strip_prefix(DELETIONS)?)?).ok()
}

/// Prefix of calls whose outcome is unknown.
pub const OUTCOMES: &str = "u/";

/// Returns the key of a call whose outcome is unknown.
pub fn outcome(id: &JobId) -> String {
    format!("{OUTCOMES}{id}")
}

/// Prefix of calls that have begun and have no recorded end, by due time.
pub const OPEN_CALLS: &str = "u.due/";

/// Returns the key of such a call; it is listed under the id `outcome` if its end is never recorded.
pub fn open_call(due: Millis, outcome: &JobId) -> String {
    format!("{OPEN_CALLS}{:016}-{outcome}", due.0)
}
