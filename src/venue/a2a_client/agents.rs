//! The agents elsewhere of a process: those of the venue's configuration, and what is known of each agent in use.

use super::endpoint::{A2aEndpoint, ResolvedHeaders};
use super::exchange::AgentPeer;
use crate::domain::a2a::remote::RemoteAgent;
use crate::domain::ids::{AgentId, Owner};
use crate::domain::mcp::name::ServerName;
use crate::venue::outbound::send::HttpSender;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Agents elsewhere about which something is kept; it can be found out again.
const KNOWN: usize = 10_000;

/// An agent elsewhere of the venue's configuration.
pub struct VenueRemoteAgent {
    /// The agent as it is asked.
    pub endpoint: Arc<A2aEndpoint>,
    /// Whether all owners see the same: no header has a secret of the owner.
    pub is_shared: bool,
}

/// The agents elsewhere of a process.
pub struct A2aAgents {
    own: BTreeMap<ServerName, VenueRemoteAgent>,
    known: Cache<RemoteAgentKey, Arc<KnownRemoteAgent>>,
}

impl Default for A2aAgents {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

/// An agent elsewhere in use, with those who may call it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RemoteAgentKey {
    /// Owner of the agent that has declared it, or whose secrets are used; `None` if all owners share it.
    pub(crate) owner: Option<Owner>,
    /// Agent that has declared it; `None` for one of the venue.
    pub(crate) agent: Option<AgentId>,
    /// Name of the agent elsewhere.
    pub(crate) name: ServerName,
}

/// What this process knows of an agent elsewhere in use.
pub(crate) struct KnownRemoteAgent {
    /// The agent as it is asked.
    pub(crate) endpoint: Arc<A2aEndpoint>,
    state: Mutex<KnownAgentState>,
    is_asked: AtomicBool,
}

/// Times and results, on the steady clock of the process.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownAgentState {
    /// When the approved card was last read.
    pub(crate) read: Option<Duration>,
    /// What was published last: versions of the approved card and of the change that waits.
    pub(crate) published: Option<(String, Option<String>)>,
    /// When the card is old.
    pub(crate) card_due: Option<Duration>,
    /// Time and reason of the last failure, if nothing has succeeded since.
    pub(crate) failure: Option<(Duration, String)>,
}

impl A2aAgents {
    /// Makes the agents elsewhere of a venue.
    pub fn new(own: impl IntoIterator<Item = VenueRemoteAgent>) -> Self {
        let by_name = |agent: VenueRemoteAgent| (agent.endpoint.settings().name.clone(), agent);
        Self { own: own.into_iter().map(by_name).collect(), known: Cache::new(KNOWN) }
    }

    /// Returns the agents elsewhere of the venue's configuration.
    pub fn of_venue(&self) -> impl Iterator<Item = &VenueRemoteAgent> {
        self.own.values()
    }

    /// Returns an agent elsewhere of the venue's configuration.
    pub(crate) fn find(&self, name: &ServerName) -> Option<&VenueRemoteAgent> {
        self.own.get(name)
    }

    /// Returns what is known of an agent in use; nothing, if its settings have changed. `make` makes its endpoint.
    pub(crate) fn open_known<E>(
        &self,
        key: &RemoteAgentKey,
        settings: &RemoteAgent,
        make: impl FnOnce() -> Result<Arc<A2aEndpoint>, E>,
    ) -> Result<Arc<KnownRemoteAgent>, E> {
        if let Some(known) = self.known.get(key).filter(|known| known.endpoint.settings() == settings) {
            return Ok(known);
        }
        let (endpoint, state) = (make()?, Mutex::default());
        let known = Arc::new(KnownRemoteAgent { endpoint, state, is_asked: AtomicBool::new(false) });
        self.known.insert(key.clone(), Arc::clone(&known));
        Ok(known)
    }

    /// Returns what is known of an agent, if it is in use.
    pub(crate) fn find_known(&self, key: &RemoteAgentKey) -> Option<Arc<KnownRemoteAgent>> {
        self.known.get(key)
    }
}

impl KnownRemoteAgent {
    /// Returns the agent as it is asked with these headers.
    pub(crate) fn peer<'a>(&'a self, hosts: &'a HttpSender, resolved: ResolvedHeaders) -> AgentPeer<'a> {
        AgentPeer { endpoint: &self.endpoint, hosts, resolved }
    }

    /// Returns a copy of what is known.
    pub(crate) fn state(&self) -> KnownAgentState {
        self.state.lock().clone()
    }

    /// Changes what is known.
    pub(crate) fn change(&self, change: impl FnOnce(&mut KnownAgentState)) {
        change(&mut self.state.lock());
    }

    /// Claims the right to ask for the card in the background; `false` if another task has it.
    pub(crate) fn claim_card(&self) -> bool {
        !self.is_asked.swap(true, Ordering::AcqRel)
    }

    /// Gives the right back.
    pub(crate) fn release_card(&self) {
        self.is_asked.store(false, Ordering::Release);
    }
}
