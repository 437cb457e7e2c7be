//! Ids of tasks and contexts at an agent elsewhere that all owners share. To that agent they are one client, so each owner
//! may name only the ids that it has got itself: an id is shown with a code that nobody without the venue's key can make.

use crate::ids::{Owner, hmac_hex};
use crate::mcp::name::ServerName;
use serde_json::json;

/// Stands between an id and its code.
const MARK: char = '~';

/// Hexadecimal digits of a code.
const CODE_DIGITS: usize = 16;

/// What the ids of one owner at one agent are marked with.
#[derive(Debug, Clone, Copy)]
pub struct SharedAgentIds<'a> {
    /// Key of the venue.
    pub key: &'a [u8],
    /// Owner who has got the ids.
    pub owner: &'a Owner,
    /// Name of the agent.
    pub agent: &'a ServerName,
    /// Hash of its place.
    pub place: &'a str,
}

impl SharedAgentIds<'_> {
    fn code(&self, id: &str) -> String {
        let said = json!(["a2a-id", self.owner, self.agent, self.place, id]).to_string();
        hmac_hex(self.key, said.as_bytes())[..CODE_DIGITS].to_owned()
    }

    /// Returns an id as its owner is shown it.
    pub fn show(&self, id: &str) -> String {
        format!("{id}{MARK}{}", self.code(id))
    }

    /// Returns the id that was shown so to this owner; `None` for all other texts.
    pub fn read<'t>(&self, shown: &'t str) -> Option<&'t str> {
        let (id, code) = shown.rsplit_once(MARK)?;
        (self.code(id) == code).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_id_that_an_owner_has_got_reads_back() {
        let owner = |text: &str| -> Owner { text.parse().unwrap() };
        let (ann, bob) = (owner("acme/ann"), owner("acme/bob"));
        let (agent, other) = (ServerName::new("partner").unwrap(), ServerName::new("p2").unwrap());
        let own = SharedAgentIds { key: b"k", owner: &ann, agent: &agent, place: "00" };
        for id in ["t-1", "a~b", "~", "\u{e9}~"] {
            let shown = own.show(id);
            assert_eq!(own.read(&shown), Some(id), "{shown}");
            for (place, foreign) in [
                ("owner", SharedAgentIds { owner: &bob, ..own }),
                ("agent", SharedAgentIds { agent: &other, ..own }),
                ("place", SharedAgentIds { place: "01", ..own }),
                ("key", SharedAgentIds { key: b"l", ..own }),
            ] {
                assert_eq!(foreign.read(&shown), None, "{place}: {shown}");
            }
        }
        for text in ["", "t-1", "t-1~", "~", "t-1~0000000000000000", own.show("t-1").to_uppercase().as_str()] {
            assert_eq!(own.read(text), None, "{text}");
        }
    }
}
