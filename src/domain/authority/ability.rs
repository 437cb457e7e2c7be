//! The abilities that operations, routes and resources ask for.

use super::capability::ability_covers;
use crate::nearest::did_you_mean;
use crate::visible::quote_foreign;

/// Ability to call an operation that was published while the process runs, on the operation's own path.
pub const INVOKE: &str = "invoke";

/// Every ability that an operation, a route or a resource asks for; a test compares it with the code.
pub const ABILITIES: [&str; 59] = [
    "a2a/approve",
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
    "http/delete",
    "http/get",
    "http/patch",
    "http/post",
    "http/put",
    INVOKE,
    "job/approve",
    "job/cancel",
    "job/complete",
    "job/delete",
    "job/message",
    "job/pause",
    "job/redrive",
    "job/resume",
    "job/settle",
    "mcp/approve",
    "mcp/login",
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
    "webhook/delete",
    "webhook/list",
    "webhook/set",
    "webhook/try",
    "worker/drain",
    "worker/list",
    "write",
];

/// Whether a held ability is enough for any of [`ABILITIES`].
pub fn is_known(held: &str) -> bool {
    ABILITIES.iter().any(|asked| ability_covers(held, asked))
}

/// Returns a warning about a held ability that is enough for none of [`ABILITIES`], with the nearest known one. It is no
/// error: builds of other versions may ask for it. `place` is the capability's place in the input, e.g. `caps[0]`.
pub fn unknown_ability(place: &str, held: &str) -> Option<String> {
    if is_known(held) {
        return None;
    }
    let groups = ABILITIES.iter().filter_map(|ability| Some(ability.split_once('/')?.0));
    let names: Vec<&str> = ABILITIES.iter().copied().chain(groups).collect();
    let hint = match held {
        // The name in Covia.
        "asset/read" => ", assets are read with `crud/read` on `a/`".to_owned(),
        held => did_you_mean(held, &names),
    };
    Some(format!("`{place}.can`: nothing needs `{}`{hint}", quote_foreign(held)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_ability_is_warned_of() {
        for (held, expected) in [
            ("crud/read", None),
            ("crud", None),
            ("crud/raed", Some("`caps[0].can`: nothing needs `crud/raed`, did you mean `crud/read`")),
            ("crd", Some("`caps[0].can`: nothing needs `crd`, did you mean `crud`")),
            ("elvis", Some("`caps[0].can`: nothing needs `elvis`")),
            ("asset/read", Some("`caps[0].can`: nothing needs `asset/read`, assets are read with `crud/read` on `a/`")),
        ] {
            assert_eq!(unknown_ability("caps[0]", held).as_deref(), expected, "{held}");
        }
    }

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
