//! Marks of what the sweep still has to do.

use super::{INVOKED_DUE, OUTBOUND_DUE, TIMERS_DUE};
use crate::domain::ids::{AgentId, JobId, decode_token};
use crate::domain::time::Millis;

/// Prefix of garbage marks.
pub const GARBAGE: &str = "x/";

/// Mark of a document prefix that nobody can reach any more: the janitor frees it.
pub fn garbage(prefix: &str) -> String {
    format!("{GARBAGE}{prefix}")
}

/// Prefix of the marks of agents that are being deleted.
pub const ENDING: &str = "g.end/";

/// Prefix of answers of which their session may not have heard, by the time at which it is told again.
pub const ANSWERED: &str = "h.due/";

/// Mark of an answer that is written: whoever gave it may die before the session hears of it, then the sweep tells it.
pub fn answer_due(due: Millis, approval: &JobId) -> String {
    format!("{ANSWERED}{:016}-{approval}", due.0)
}

/// Prefix of approvals that nobody has answered.
pub const OPEN_APPROVALS: &str = "h.open/";

/// Entry of an approval among those that nobody has answered: a list of them reads no other.
pub fn open_approval(approval: &JobId) -> String {
    format!("{OPEN_APPROVALS}{approval}")
}

/// The approval of such an entry.
pub fn approval_of_open(key: &str) -> Option<JobId> {
    JobId::new(key.strip_prefix(OPEN_APPROVALS)?).ok()
}

/// Mark that all approvals from before there were such entries have theirs.
pub const APPROVALS_LISTED: &str = "h.listed";

/// Prefixes of what a sweep does beside sessions and outboxes, in the order of their time where keys have one.
pub const SWEPT: [&str; 7] = [TIMERS_DUE, OUTBOUND_DUE, INVOKED_DUE, ANSWERED, OPEN_CALLS, ENDING, GARBAGE];

/// Those of them whose keys go on with the time at which they are due. A name in the others may look like one.
pub const TIMED: [&str; 5] = [TIMERS_DUE, OUTBOUND_DUE, INVOKED_DUE, ANSWERED, OPEN_CALLS];

/// When a sweep must look at a document with this key, 0 = at once; `None` = it needn't. What is damaged is told by
/// who looks at it.
pub fn swept_at(key: &str) -> Option<Millis> {
    let prefix = SWEPT.into_iter().find(|prefix| key.starts_with(prefix))?;
    let at = TIMED.contains(&prefix).then(|| key[prefix.len()..].split_once('-')?.0.parse().ok()).flatten();
    Some(Millis(at.unwrap_or_default()))
}

/// Mark of an agent whose deletion has begun: whoever began it may die, then the sweep ends it.
pub fn ending(agent: &AgentId) -> String {
    format!("{ENDING}{}", agent.token())
}

/// The agent of such a mark.
pub fn ending_agent(key: &str) -> Option<AgentId> {
    AgentId::new(decode_token(key.strip_prefix(ENDING)?)?).ok()
}

/// Prefix of calls whose outcome is unknown.
pub const OUTCOMES: &str = "u/";

/// Document of a call whose outcome is unknown.
pub fn outcome(id: &JobId) -> String {
    format!("{OUTCOMES}{id}")
}

/// Prefix of calls that have begun and whose end isn't recorded, by the time at which they are looked at.
pub const OPEN_CALLS: &str = "u.due/";

/// Document of such a call, which is listed under this id when nobody records its end.
pub fn open_call(due: Millis, outcome: &JobId) -> String {
    format!("{OPEN_CALLS}{:016}-{outcome}", due.0)
}
