//! Which histories of servers a process has seen: [`Inspect::history`](super::Inspect::history), from look to look.

use parking_lot::Mutex;
use std::collections::HashSet;

/// More names than servers have in a life; then only the newest are known.
const NAMES: usize = 10_000;

/// What has been seen; nothing at first.
#[derive(Debug, Default)]
pub struct KnownHistory(Mutex<HashSet<String>>);

impl KnownHistory {
    /// Whether one of these is new. A server that doesn't answer says nothing; at the first look none is.
    pub fn is_another(&self, names: &[String]) -> bool {
        let known = self.0.lock();
        !known.is_empty() && names.iter().any(|name| !known.contains(name))
    }

    /// These are known from now on.
    pub fn know(&self, names: Vec<String>) {
        let mut known = self.0.lock();
        if known.len() > NAMES {
            known.clear();
        }
        known.extend(names);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_away_and_comes_back_as_it_was_is_the_same() {
        let known = KnownHistory::default();
        for (names, is_another) in [
            (["a", "b"].as_slice(), false),
            (&["a", "b"], false),
            (&["b"], false),
            (&[], false),
            (&["b", "a"], false),
            (&["b", "c"], true),
            (&["b", "c"], false),
            (&["a", "c"], false),
        ] {
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            assert_eq!(known.is_another(&names), is_another, "{names:?}");
            known.know(names);
        }
    }
}
