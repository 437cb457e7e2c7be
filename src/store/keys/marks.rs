//! Marks of what the sweep still has to do.

use super::{INVOKED_DUE, OUTBOUND_DUE, TIMERS_DUE};
use crate::domain::ids::{AgentId, decode_token};
use crate::domain::time::Millis;

/// Prefix of garbage marks.
pub const GARBAGE: &str = "x/";

/// Mark of a document prefix that nobody can reach any more: the janitor frees it.
pub fn garbage(prefix: &str) -> String {
    format!("{GARBAGE}{prefix}")
}

/// Prefix of the marks of agents that are being deleted.
pub const ENDING: &str = "g.end/";

/// Prefixes of what a sweep does beside sessions and outboxes, in the order of their time where keys have one.
pub const SWEPT: [&str; 5] = [TIMERS_DUE, OUTBOUND_DUE, INVOKED_DUE, ENDING, GARBAGE];

/// Those of them whose keys go on with the time at which they are due. A name in the others may look like one.
pub const TIMED: [&str; 3] = [TIMERS_DUE, OUTBOUND_DUE, INVOKED_DUE];

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
