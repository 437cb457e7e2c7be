//! Keys of documents about the store itself (history, format, workers), and which documents users would miss.

use super::{
    DELETIONS, ERASURES, GARBAGE, MARKER, MCP_LOGINS, NOTIFICATIONS_STATE, PART_SCANS, POLICY, QUOTA, SECRETS,
    SESSION_DAYS, SWEPT_BY_TIME, WEBHOOK_STATES, is_spending,
};
use crate::domain::ids::{Owner, OwnerPart, encode_token};
use crate::domain::time::Millis;

/// User of the venue's own owner, and of the owner of a tenant's shared documents.
pub const VENUE_USER: &str = "_venue";

/// The owner of the venue's own documents; it has no agents and no jobs.
pub fn venue_owner() -> Owner {
    "_venue/_venue".parse().expect("a legal owner")
}

/// Returns the owner of a tenant's shared documents; it has no agents and no jobs, and is no user of the tenant.
pub fn tenant_owner(tenant: &OwnerPart) -> Owner {
    Owner::new(tenant.clone(), OwnerPart::new(VENUE_USER).expect("a legal name"))
}

/// Whether an owner is the venue's or a tenant's own: nobody can act as it.
pub fn is_reserved(owner: &Owner) -> bool {
    owner.user().as_str() == VENUE_USER
}

/// Key of the format of all documents.
pub const FORMAT: &str = "format";

/// Key of the names that all processes on the store share.
pub const NAMES: &str = "names";

/// Key of the store's last mark, which grows with every beat.
pub const EPOCH: &str = "epoch";

/// Prefix of records of times at which the store was found set back.
pub const SET_BACKS: &str = "epoch.back/";

/// Returns the key of the record of one such time.
pub fn set_back_record(found: Millis) -> String {
    format!("{SET_BACKS}{:016}", found.0)
}

/// Prefix of records of missing acknowledged changes, oldest first.
pub const LOSSES: &str = "epoch.tail/";

/// Returns the key of what the process `by` found missing at `found`.
pub fn losses(found: Millis, by: &str) -> String {
    format!("{LOSSES}{:016}-{by}", found.0)
}

/// Returns the key of one part of such a record; part 0 has the key of [`losses`].
pub fn losses_part(found: Millis, by: &str, part: usize) -> String {
    if part == 0 { losses(found, by) } else { format!("{}.{part:06}", losses(found, by)) }
}

/// Returns the key of one part of what the process `by` found missing by the journal at `found`: the process may have
/// found something by itself in the same millisecond.
pub fn journal_losses_part(found: Millis, by: &str, part: usize) -> String {
    losses_part(found, &format!("{by}-journal"), part)
}

/// Key of the time up to which the store is known to be complete.
pub const SAFE_POINT: &str = "epoch.safe";

/// Key of the last settlement of what was lost.
pub const SETTLED: &str = "epoch.settled";

/// Prefix of the entries of the worker registry.
pub const WORKERS: &str = "worker/";

/// Returns the key of a worker's entry in the registry.
pub fn worker(name: &str) -> String {
    format!("{WORKERS}{}", encode_token(name))
}

/// Keys and prefixes of the processes' own bookkeeping: its documents are written again, or no user misses them.
const BOOKKEEPING: [&str; 15] = [
    FORMAT,
    EPOCH,
    "epoch.",
    MARKER,
    WORKERS,
    GARBAGE,
    PART_SCANS,
    DELETIONS,
    SESSION_DAYS,
    "origin/",
    "stray/",
    "l/",
    "m.of/",
    NOTIFICATIONS_STATE,
    WEBHOOK_STATES,
];

/// Whether a user would miss the document, written outside turns, if it were lost: all but the bookkeeping of
/// processes. Unknown keys count as missed.
pub fn is_user_document(key: &str) -> bool {
    // A push notification of a job may have any name, this one included.
    let is_wait = || key.starts_with("j/") && key.ends_with("/w") && key.matches('/').count() == 2;
    let is_copy = || key.starts_with("g/") && key.contains("/copy");
    !(BOOKKEEPING.iter().any(|of| key.starts_with(of))
        || SWEPT_BY_TIME.iter().any(|of| key.starts_with(of))
        || is_spending(key)
        || key.starts_with("rate/")
        || is_wait()
        || is_copy())
}

/// Key of the copy of an owner's policy: written with it, and in force when the policy is missing or can't be read.
pub const POLICY_COPY: &str = "policy.copy";

/// Whether a document decides what an owner's agents may do: policy, quota, record and gate of an agent, secret, login.
pub fn is_protected_setting(key: &str) -> bool {
    let is_of_agent =
        |rest: &str| rest.split_once('/').is_none_or(|(_, last)| last == "gate" || last.starts_with(MCP_LOGINS));
    [POLICY, POLICY_COPY, QUOTA, ERASURES].contains(&key)
        || key.starts_with(SECRETS)
        || key.starts_with(MCP_LOGINS)
        || key.strip_prefix("g/").is_some_and(is_of_agent)
}

/// Whether a key is that of a turn record.
pub fn is_turn_record(key: &str) -> bool {
    let mut parts = key.split('/');
    (parts.next(), parts.nth(1)) == (Some("g"), Some("turn"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_documents_are_recognised_at_any_depth() {
        for key in [
            "w/a",
            "w.e/a/b",
            "o/x",
            "m/0f",
            "h/0f",
            "u/0f",
            "i/0f",
            "a/0f",
            "q/0f",
            "policy",
            "g/echo",
            "new/x",
            "j/0f/n/w",
            "hook/phone",
        ] {
            assert!(is_user_document(key), "{key}");
        }
        for key in [
            "epoch",
            "epoch.tail/1-w",
            "worker/w",
            "rate/x",
            "b/0f-agent",
            "cap/2026-01-01",
            "m.due/1-0f",
            "j/0f/w",
            "g/echo/spend/main",
            "x/w",
            "e.due/1-0f",
            "e.state",
            "hook.at/venue/ops",
        ] {
            assert!(!is_user_document(key), "{key}");
        }
    }

    #[test]
    fn finds_of_a_process_and_of_the_journal_have_keys_of_their_own() {
        let found = Millis(7);
        let own = [losses(found, "w"), losses_part(found, "w", 1)];
        let of_journal = [0, 1].map(|part| journal_losses_part(found, "w", part));
        for key in &of_journal {
            assert!(key.starts_with(LOSSES) && !own.contains(key), "{key}");
            assert!(*key < losses(Millis(8), "a"), "they stay in the order of their time");
        }
    }

    #[test]
    fn settings_are_told_apart_from_what_agents_do() {
        for (key, is_setting) in [
            ("policy", true),
            ("policy.copy", true),
            ("s/KEY", true),
            ("g/echo", true),
            ("g/echo/gate", true),
            ("mcp.login/hub", true),
            ("g/echo/mcp.login/hub", true),
            ("g/echo/mcp/hub", false),
            ("g/echo/turn/main/0000000000000001", false),
            ("w/a", false),
        ] {
            assert_eq!(is_protected_setting(key), is_setting, "{key}");
        }
        assert!(is_turn_record("g/echo/turn/main/0000000000000001") && !is_turn_record("g/echo/gate"));
    }
}
