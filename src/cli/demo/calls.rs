//! The log of model calls: which turn called, in which process, and whether it got a reply.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[derive(Debug, Clone, Deserialize)]
struct CallLine {
    /// Name of the turn, `tenant/user/agent/session/turn`.
    turn: String,
    pid: u32,
    event: String,
}

/// All calls so far, in the order of the log.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoggedCalls(Vec<CallLine>);

impl LoggedCalls {
    /// Reads the log; an incomplete last line is left out.
    pub(crate) fn read(path: &Path) -> Self {
        Self::parse(&std::fs::read_to_string(path).unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// Returns the number of lines, which shows whether anything happened.
    pub(crate) fn lines(&self) -> usize {
        self.0.len()
    }

    fn turns<'c>(&'c self, event: &'c str) -> impl Iterator<Item = &'c CallLine> {
        self.0.iter().filter(move |line| line.event == event)
    }

    /// Counts the calls that were begun.
    pub(crate) fn count_started(&self) -> usize {
        self.turns("started").count()
    }

    /// Returns the turns with an unfinished call of this process.
    pub(crate) fn running_turns(&self, pid: u32) -> BTreeSet<String> {
        let mut open: BTreeSet<String> = BTreeSet::new();
        for line in self.0.iter().filter(|line| line.pid == pid) {
            if line.event == "started" {
                open.insert(line.turn.clone());
            } else {
                open.remove(&line.turn);
            }
        }
        open
    }

    /// Returns the turns for which this process got a reply.
    pub(crate) fn replied_turns(&self, pid: u32) -> BTreeSet<String> {
        self.turns("replied").filter(|line| line.pid == pid).map(|line| line.turn.clone()).collect()
    }

    /// Returns the turns that called more than once.
    pub(crate) fn repeated_turns(&self) -> BTreeSet<String> {
        let mut asked: BTreeMap<&str, u32> = BTreeMap::new();
        for line in self.turns("started") {
            *asked.entry(&line.turn).or_default() += 1;
        }
        asked.into_iter().filter(|(_, times)| *times > 1).map(|(turn, _)| turn.to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_call_and_its_repetition_are_found_in_the_log() {
        let line = |turn: &str, pid: u32, event: &str| {
            format!("{}\n", serde_json::json!({"turn": turn, "rule": 1, "call": 1, "pid": pid, "event": event}))
        };
        let before = [line("a/1", 7, "started"), line("b/1", 7, "started"), line("a/1", 7, "replied")].concat();
        let calls = LoggedCalls::parse(&format!("{before}{{\"turn\": \"c/1\""));
        assert_eq!(calls.running_turns(7), BTreeSet::from(["b/1".to_owned()]));
        assert_eq!(calls.replied_turns(7), BTreeSet::from(["a/1".to_owned()]));
        assert_eq!((calls.count_started(), calls.repeated_turns().len()), (2, 0));
        let after = LoggedCalls::parse(&format!("{before}{}{}", line("b/1", 8, "started"), line("b/1", 8, "replied")));
        assert_eq!(after.repeated_turns(), BTreeSet::from(["b/1".to_owned()]));
        assert!(after.running_turns(8).is_empty());
    }
}
