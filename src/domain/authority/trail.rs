//! Holders and grants under which something was made: a revocation may name them.

use super::Authority;
use serde::{Deserialize, Serialize};

/// Number of entries of each list at most. An agent's list holds its creator and everybody who has changed it.
pub const MAX_TRAIL: usize = 100;

/// Holders and grants that a record goes back to. A revocation of one of them applies to the record.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Trail {
    /// Names of callers, and `agent:<id>` of each agent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<String>,
    /// Ids of tokens and of jobs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<String>,
}

impl Trail {
    /// Whether it names neither a holder nor a grant.
    pub const fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.grants.is_empty()
    }

    /// Whether one of the lists is longer than [`MAX_TRAIL`].
    pub const fn is_full(&self) -> bool {
        self.holders.len() > MAX_TRAIL || self.grants.len() > MAX_TRAIL
    }

    /// Returns the names of both, each once.
    #[must_use]
    pub fn merge(mut self, other: &Self) -> Self {
        add_names(&mut self.holders, &other.holders);
        add_names(&mut self.grants, &other.grants);
        self
    }
}

/// Adds the names that aren't in the list.
pub(super) fn add_names(names: &mut Vec<String>, more: &[String]) {
    for name in more {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
}

/// Maker of something that acts later: its authority, and the trail of that.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MakerAuthority {
    /// Upper bound of what the made thing can do.
    pub authority: Authority,
    /// Holders and grants whose revocation stops the made thing.
    pub trail: Trail,
}

/// A maker without a name.
impl From<&Authority> for MakerAuthority {
    fn from(authority: &Authority) -> Self {
        Self { authority: authority.clone(), trail: Trail::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trail_has_each_name_once_and_an_end() {
        let trail = |name: &str| Trail { holders: vec![name.into()], grants: vec![format!("{name}-1")] };
        let both = trail("a").merge(&trail("b")).merge(&trail("a"));
        assert_eq!((both.holders, both.grants), (vec!["a".into(), "b".into()], vec!["a-1".into(), "b-1".into()]));
        assert!(Trail::default().is_empty() && !trail("a").is_empty());
        let long = (0..=MAX_TRAIL).fold(Trail::default(), |all, n| all.merge(&trail(&n.to_string())));
        assert!(long.is_full() && !trail("a").is_full());
    }
}
