//! Lineage of an event: the outermost request, and the agents whose turns are between that one and this.
//!
//! Every way by which a turn causes another one carries the lineage: requests, messages, chats, delegates and timers;
//! results and answers carry it with the request that they run under.

use super::ids::{AgentId, EventId};
use super::limits::JOB_DEPTH;
use super::time::Millis;
use serde::{Deserialize, Serialize};

/// Path from the outermost request to an event. It is empty for a person's request, and for events of a person's timer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Lineage {
    /// Event of the outermost request; absent = the event itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<EventId>,
    /// Agents above the event, outermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<AgentId>,
}

/// Reason why an agent may not be reached with this lineage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineageError {
    /// The request would come back to an agent of its own chain.
    #[error("agent `{to}` is already part of this chain of requests: {path}")]
    Cycle {
        /// Agent that it would reach.
        to: AgentId,
        /// Chain to that agent.
        path: String,
    },
    /// The chain would be too long.
    #[error("a chain of requests may be {JOB_DEPTH} deep, this one would be deeper: {path}")]
    Depth {
        /// Chain to the agent.
        path: String,
    },
}

impl Lineage {
    /// Whether no request is above it.
    pub fn is_outermost(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the lineage for the turns that serve `event`, which is its own origin when nothing is above it.
    #[must_use]
    pub fn for_turn(&self, event: Option<&EventId>) -> Self {
        Self { origin: self.origin.clone().or_else(|| event.cloned()), ..self.clone() }
    }

    /// Returns the lineage of events that a turn of `agent` causes in another session.
    #[must_use]
    pub fn under_agent(&self, agent: &AgentId) -> Self {
        let mut below = self.clone();
        below.chain.push(agent.clone());
        below
    }

    /// Checks that it may reach an agent; `None` = an anonymous delegate, which calls nobody.
    pub fn check_target(&self, to: Option<&AgentId>) -> Result<(), LineageError> {
        if let Some(to) = to.filter(|to| self.chain.contains(to)) {
            return Err(LineageError::Cycle { to: to.clone(), path: self.path(Some(to)) });
        }
        if self.chain.len() > JOB_DEPTH as usize {
            return Err(LineageError::Depth { path: self.path(to) });
        }
        Ok(())
    }

    /// Returns the agents of the chain and the one that it reaches, in words.
    pub fn path(&self, to: Option<&AgentId>) -> String {
        self.chain.iter().chain(to).map(AgentId::as_str).collect::<Vec<_>>().join(" -> ")
    }

    /// Returns why a turn with this lineage isn't run: its origin has caused `used` turns, and `limit` are allowed.
    pub fn exhaustion_error(&self, agent: &AgentId, used: u32, limit: u32) -> Option<String> {
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

/// Returns the hour of the clock in which turns are counted.
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
        agents.iter().fold(Lineage::default(), |way, agent| way.under_agent(&id(agent)))
    }

    #[test]
    fn cycles_and_long_chains_are_refused_with_the_path() {
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
            let got = way(chain).check_target(to.map(id).as_ref()).map_err(|error| error.to_string());
            assert_eq!(got, expected.map_err(str::to_owned), "{chain:?} -> {to:?}");
        }
    }

    #[test]
    fn the_origin_is_the_outermost_event_and_stays_it() {
        let (first, second): (EventId, EventId) = ("e1".parse().unwrap(), "e2".parse().unwrap());
        let turn = Lineage::default().for_turn(Some(&first));
        assert_eq!(turn.origin.as_ref(), Some(&first));
        assert_eq!(turn.under_agent(&id("a")).for_turn(Some(&second)).origin, Some(first));
        assert!(Lineage::default().is_outermost() && !turn.is_outermost());
    }

    #[test]
    fn at_the_limit_a_turn_is_refused_with_its_path() {
        let way = way(&["a"]).for_turn(Some(&"e1".parse().unwrap()));
        assert_eq!(way.exhaustion_error(&id("b"), 9, 10), None);
        assert_eq!(way.exhaustion_error(&id("b"), 10, 0), None, "no limit");
        let reason = way.exhaustion_error(&id("b"), 10, 10).unwrap();
        assert!(reason.contains("`e1` has caused 10 turns") && reason.ends_with("by a -> b"), "{reason}");
    }
}
