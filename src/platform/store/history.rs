//! The server histories that this process has seen, from one
//! [`StoreInspection::history`](super::StoreInspection::history) to the next.

use super::StoreError;
use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::HashSet;

/// Most names kept, more than servers have in their life; above it only the newest are kept.
const NAMES: usize = 10_000;

/// A check whether a server has another history, before anything else is sent to it.
#[async_trait]
pub trait HistoryCheck: Send + Sync + 'static {
    /// Reads the history, and applies what protects owners if it is another. After a crash in it the check begins
    /// again.
    async fn check_history(&self) -> Result<(), StoreError>;
}

/// The histories seen so far; empty at first.
#[derive(Debug, Default)]
pub struct KnownHistory(Mutex<SeenHistories>);

#[derive(Debug, Default)]
struct SeenHistories {
    names: HashSet<String>,
    /// Servers that answered when a name was last new.
    servers: usize,
}

impl KnownHistory {
    /// Whether one of `names` is new. Servers that don't answer are ignored; at the first call none is new.
    pub fn is_another(&self, names: &[String]) -> bool {
        let known = &self.0.lock().names;
        !known.is_empty() && names.iter().any(|name| !known.contains(name))
    }

    /// Whether at least as many servers answer as ever since the last new name.
    pub fn is_whole(&self, names: &[String]) -> bool {
        !names.is_empty() && names.len() >= self.0.lock().servers
    }

    /// Adds `names` to the known ones.
    pub fn note_names(&self, names: Vec<String>) {
        let mut known = self.0.lock();
        if known.names.len() > NAMES {
            known.names.clear();
        }
        let is_new = names.iter().any(|name| !known.names.contains(name));
        known.servers = if is_new { names.len() } else { known.servers.max(names.len()) };
        known.names.extend(names);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_a_server_is_away_the_look_is_not_whole() {
        let known = KnownHistory::default();
        for (names, is_whole) in [
            (["a", "b", "c"].as_slice(), true),
            (&["a", "b", "c"], true),
            (&["a", "c"], false),
            (&[], false),
            (&["a", "d", "c"], true),
            // One is taken out for good, and another has begun anew.
            (&["a", "c"], false),
            (&["a", "e"], false),
            (&["a", "e"], true),
        ] {
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            assert_eq!(known.is_whole(&names), is_whole, "{names:?}");
            known.note_names(names);
        }
    }

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
            known.note_names(names);
        }
    }
}
