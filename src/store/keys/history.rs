//! What is known of the store itself: its history, its format, who works on it, and what would be missed of it.

use super::{ERASURES, POLICY, QUOTA};
use crate::domain::ids::{Owner, encode_token};
use crate::domain::time::Millis;

/// The owner whose documents are the venue's own; it has no agents and no jobs.
pub fn venue_owner() -> Owner {
    "_venue/_venue".parse().expect("a legal owner")
}

/// Document of the format of all that is kept.
pub const FORMAT: &str = "format";

/// Document of the names that all processes on the store share.
pub const NAMES: &str = "names";

/// Document of how far the store is.
pub const EPOCH: &str = "epoch";

/// Prefix of times at which the store was found set back.
pub const SET_BACKS: &str = "epoch.back/";

/// Document of such a time.
pub fn set_back(found: Millis) -> String {
    format!("{SET_BACKS}{:016}", found.0)
}

/// Prefix of what was found missing of the store's end, the oldest first.
pub const LOSSES: &str = "epoch.tail/";

/// Document of what a process found missing.
pub fn losses(found: Millis, by: &str) -> String {
    format!("{LOSSES}{:016}-{by}", found.0)
}

/// Prefix of what workers say of themselves.
pub const WORKERS: &str = "worker/";

/// Document of what a worker says of itself.
pub fn worker(name: &str) -> String {
    format!("{WORKERS}{}", encode_token(name))
}

/// Whether a document is what people write outside turns, and would miss.
pub fn is_of_people(key: &str) -> bool {
    let agent = key.strip_prefix("g/").is_some_and(|agent| !agent.contains('/'));
    agent
        || [POLICY, QUOTA, ERASURES].contains(&key)
        || ["w/", "s/", "v/", "r/files/"].iter().any(|prefix| key.starts_with(prefix))
}
