//! Under whom and under what something was made: what a revocation may name.

use super::Authority;
use serde::{Deserialize, Serialize};

/// Entries of each list at most: who made an agent, and everybody who has changed it since.
pub const MAX_TRAIL: usize = 100;

/// Holders and grants that a record goes back to. What is revoked of one of them is revoked of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Trail {
    /// Callers, and `agent:<id>` of each agent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<String>,
    /// Ids of tokens and of jobs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<String>,
}

impl Trail {
    /// It goes back to nothing that has a name.
    pub const fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.grants.is_empty()
    }

    /// No more fits into it.
    pub const fn is_full(&self) -> bool {
        self.holders.len() > MAX_TRAIL || self.grants.len() > MAX_TRAIL
    }

    /// Both, each name once.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        add(&mut self.holders, &other.holders);
        add(&mut self.grants, &other.grants);
        self
    }
}

/// Adds the names that aren't there.
pub(super) fn add(names: &mut Vec<String>, more: &[String]) {
    for name in more {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
}

/// Who makes something that acts later: what it may do, and what that goes back to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Maker {
    /// What is made can do no more.
    pub authority: Authority,
    /// What is made stops with this.
    pub trail: Trail,
}

/// Somebody without a name.
impl From<&Authority> for Maker {
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
        let both = trail("a").and(&trail("b")).and(&trail("a"));
        assert_eq!((both.holders, both.grants), (vec!["a".into(), "b".into()], vec!["a-1".into(), "b-1".into()]));
        assert!(Trail::default().is_empty() && !trail("a").is_empty());
        let long = (0..=MAX_TRAIL).fold(Trail::default(), |all, n| all.and(&trail(&n.to_string())));
        assert!(long.is_full() && !trail("a").is_full());
    }
}
