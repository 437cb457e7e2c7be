//! The abilities that operations, routes and resources ask for.

use super::capability::ability_covers;

/// Every ability that an operation, a route or a resource asks for; a test compares it with the code.
pub const ABILITIES: [&str; 48] = [
    "agent/create",
    "agent/delete",
    "agent/fork",
    "agent/message",
    "agent/request",
    "agent/resume",
    "agent/session",
    "agent/suspend",
    "agent/trigger",
    "agent/update",
    "asset/store",
    "crud/append",
    "crud/delete",
    "crud/read",
    "crud/write",
    "http/get",
    "http/post",
    "job/approve",
    "job/cancel",
    "job/complete",
    "job/delete",
    "job/message",
    "job/pause",
    "job/redrive",
    "job/resume",
    "job/settle",
    "policy/approvals",
    "policy/restore",
    "policy/revoke",
    "policy/roots",
    "policy/show",
    "queue/publish",
    "quota/set",
    "quota/show",
    "read",
    "resource/list",
    "resource/purge",
    "secret/delete",
    "secret/list",
    "secret/set",
    "secret/use",
    "timer/keep",
    "venue/audit",
    "venue/backup",
    "venue/doctor",
    "worker/drain",
    "worker/list",
    "write",
];

/// Whether a held ability is enough for any of [`ABILITIES`].
pub fn is_known(held: &str) -> bool {
    ABILITIES.iter().any(|asked| ability_covers(held, asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_covering_ability_is_known() {
        for (held, known) in [
            ("*", true),
            ("crud", true),
            ("crud/read", true),
            ("write", true),
            ("crud/raed", false),
            ("crud/read/x", false),
            ("crude", false),
            ("", false),
        ] {
            assert_eq!(is_known(held), known, "{held:?}");
        }
        assert!(ABILITIES.is_sorted());
    }
}
