//! Where an event comes from: the outermost request, and the agents whose turns lie between it and this one.
//!
//! Every way by which a turn causes another one carries it: requests, messages, chats, delegates and
//! timers, and through the request that they run under also results and answers.

use super::ids::{AgentId, EventId};
use super::limits::JOB_DEPTH;
use super::time::Millis;
use serde::{Deserialize, Serialize};

/// The way from the outermost request to an event. That of a person's request, and of what a person's
/// timer sends, is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Lineage {
    /// The outermost request; absent = the event itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<EventId>,
    /// The agents above, outermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<AgentId>,
}

/// Why an agent may not be reached on this way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineageError {
    /// It would come back to where it was.
    #[error("agent `{to}` is already part of this chain of requests: {path}")]
    Cycle {
        /// Whom it would reach.
        to: AgentId,
        /// The way there.
        path: String,
    },
    /// It would be too long.
    #[error("a chain of requests may be {JOB_DEPTH} deep, this one would be deeper: {path}")]
    Depth {
        /// The way there.
        path: String,
    },
}

impl Lineage {
    /// Nothing is above it.
    pub fn is_outermost(&self) -> bool {
        *self == Self::default()
    }

    /// The same as turns see it that serve `event`, which is its own origin when nothing is above it.
    #[must_use]
    pub fn of_turn(&self, event: Option<&EventId>) -> Self {
        Self { origin: self.origin.clone().or_else(|| event.cloned()), ..self.clone() }
    }

    /// What a turn of `agent` causes in another session.
    #[must_use]
    pub fn below(&self, agent: &AgentId) -> Self {
        let mut below = self.clone();
        below.chain.push(agent.clone());
        below
    }

    /// Whether it may reach an agent; `None` = an agent without a name, which calls nobody.
    pub fn admits(&self, to: Option<&AgentId>) -> Result<(), LineageError> {
        if let Some(to) = to.filter(|to| self.chain.contains(to)) {
            return Err(LineageError::Cycle { to: to.clone(), path: self.path(Some(to)) });
        }
        if self.chain.len() > JOB_DEPTH as usize {
            return Err(LineageError::Depth { path: self.path(to) });
        }
        Ok(())
    }

    /// The agents on the way, and whom it reaches.
    pub fn path(&self, to: Option<&AgentId>) -> String {
        self.chain.iter().chain(to).map(AgentId::as_str).collect::<Vec<_>>().join(" -> ")
    }

    /// Why a turn that serves it isn't run: the turns that its origin has caused are `used` up.
    pub fn exhausted(&self, agent: &AgentId, used: u32, limit: u32) -> Option<String> {
        if limit == 0 || used < limit {
            return None;
        }
        let origin = self.origin.as_ref().map(EventId::as_str).unwrap_or_default();
        Some(format!(
            "request `{origin}` has caused {used} turns in this hour, at most {limit} may be \
             (`worker.turns_per_origin`); this one by {}",
            self.path(Some(agent))
        ))
    }
}

/// The hour of the clock in which turns are counted.
pub const fn hour(now: Millis) -> u64 {
    now.0 / 3_600_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> AgentId {
        text.parse().unwrap()
    }

    fn way(agents: &[&str]) -> Lineage {
        agents.iter().fold(Lineage::default(), |way, agent| way.below(&id(agent)))
    }

    #[test]
    fn a_chain_has_no_cycle_and_a_limit_and_the_refusal_names_the_path() {
        for (chain, to, expected) in [
            (&["a"][..], Some("b"), Ok(())),
            (&["a"], Some("a"), Err("agent `a` is already part of this chain of requests: a -> a")),
            (&["a", "b"], Some("a"), Err("agent `a` is already part of this chain of requests: a -> b -> a")),
            (&["a", "a"], None, Ok(())),
            (&["a", "b", "c", "d", "e"], Some("f"), Ok(())),
            (
                &["a", "b", "c", "d", "e", "f"],
                Some("g"),
                Err("a chain of requests may be 5 deep, this one would be deeper: a -> b -> c -> d -> e -> f -> g"),
            ),
        ] {
            let got = way(chain).admits(to.map(id).as_ref()).map_err(|error| error.to_string());
            assert_eq!(got, expected.map_err(str::to_owned), "{chain:?} -> {to:?}");
        }
    }

    #[test]
    fn the_origin_is_the_outermost_event_and_stays_it() {
        let (first, second): (EventId, EventId) = ("e1".parse().unwrap(), "e2".parse().unwrap());
        let turn = Lineage::default().of_turn(Some(&first));
        assert_eq!(turn.origin.as_ref(), Some(&first));
        assert_eq!(turn.below(&id("a")).of_turn(Some(&second)).origin, Some(first));
        assert!(Lineage::default().is_outermost() && !turn.is_outermost());
    }

    #[test]
    fn at_the_limit_a_turn_is_refused_with_its_path() {
        let way = way(&["a"]).of_turn(Some(&"e1".parse().unwrap()));
        assert_eq!(way.exhausted(&id("b"), 9, 10), None);
        assert_eq!(way.exhausted(&id("b"), 10, 0), None, "no limit");
        let reason = way.exhausted(&id("b"), 10, 10).unwrap();
        assert!(reason.contains("`e1` has caused 10 turns") && reason.ends_with("by a -> b"), "{reason}");
    }
}
