//! Which histories of servers a process has seen: [`Inspect::history`](super::Inspect::history), from look to look.

use super::StoreError;
use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::HashSet;

/// More names than servers have in a life; then only the newest are known.
const NAMES: usize = 10_000;

/// Check of a server whose history may be another, before anything else is asked of it.
#[async_trait]
pub trait HistoryCheck: Send + Sync + 'static {
    /// Looks at the history, and puts in force what protects owners where it is another. A crash in it: it begins anew.
    async fn check_history(&self) -> Result<(), StoreError>;
}

/// What has been seen; nothing at first.
#[derive(Debug, Default)]
pub struct KnownHistory(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    names: HashSet<String>,
    /// Servers that answered at the last look at which one was new.
    servers: usize,
}

impl KnownHistory {
    /// Whether one of these is new. A server that doesn't answer says nothing; at the first look none is.
    pub fn is_another(&self, names: &[String]) -> bool {
        let known = &self.0.lock().names;
        !known.is_empty() && names.iter().any(|name| !known.contains(name))
    }

    /// Whether as many servers say something as ever since the last new one.
    pub fn is_whole(&self, names: &[String]) -> bool {
        !names.is_empty() && names.len() >= self.0.lock().servers
    }

    /// These are known from now on.
    pub fn know(&self, names: Vec<String>) {
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
            known.know(names);
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
            known.know(names);
        }
    }
}
