//! The servers of a process: those of the venue's configuration, and what is known of each server in use.

use super::endpoint::McpEndpoint;
use super::peer::McpPeer;
use super::session::{SessionOwner, SessionTable};
use crate::domain::ids::{AgentId, Owner};
use crate::domain::limits::MCP_FRESH;
use crate::domain::mcp::definition::SkippedTool;
use crate::domain::mcp::name::ServerName;
use crate::domain::mcp::server::McpServer;
use crate::venue::outbound::send::HttpSender;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use reqwest::header::HeaderMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Servers of agents and owners about which something is kept; it can be found out again.
const KNOWN: usize = 10_000;

/// A server of the venue's configuration.
pub struct VenueServer {
    /// The server as it is asked.
    pub endpoint: Arc<McpEndpoint>,
    /// Whether all owners see the same: no header has a secret of the owner.
    pub is_shared: bool,
}

/// The servers of a process.
pub struct McpServers {
    own: BTreeMap<ServerName, VenueServer>,
    known: Cache<ServerKey, Arc<KnownServer>>,
    sessions: SessionTable,
}

impl Default for McpServers {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

/// A server in use, with those who may call it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ServerKey {
    /// Owner of the agent, or whose secrets are used; `None` for a server that all owners share.
    pub(crate) owner: Option<Owner>,
    /// Agent that has declared the server; `None` for one of the venue.
    pub(crate) agent: Option<AgentId>,
    /// Name of the server.
    pub(crate) server: ServerName,
}

/// What this process knows of a server in use.
pub(crate) struct KnownServer {
    /// The server as it is asked.
    pub(crate) endpoint: Arc<McpEndpoint>,
    state: Mutex<ServerState>,
    is_asked: AtomicBool,
}

/// Times and results, on the steady clock of the process.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerState {
    /// When the approved definitions were last read.
    pub(crate) read: Option<Duration>,
    /// What was published last: versions of the approved definitions and of the change that waits.
    pub(crate) published: Option<(String, Option<String>)>,
    /// When the server's list is old.
    pub(crate) list_due: Option<Duration>,
    /// Time and reason of the last failure, if nothing has succeeded since.
    pub(crate) failure: Option<(Duration, String)>,
    /// Tools that can't be published.
    pub(crate) skipped: Vec<SkippedTool>,
}

impl McpServers {
    /// Makes the servers of a venue.
    pub fn new(own: impl IntoIterator<Item = VenueServer>) -> Self {
        let by_name = |server: VenueServer| (server.endpoint.settings().name.clone(), server);
        let own = own.into_iter().map(by_name).collect();
        Self { own, known: Cache::new(KNOWN), sessions: SessionTable::default() }
    }

    /// Returns the servers of the venue's configuration.
    pub fn of_venue(&self) -> impl Iterator<Item = &VenueServer> {
        self.own.values()
    }

    /// Returns a server of the venue's configuration.
    pub(crate) fn find(&self, name: &ServerName) -> Option<&VenueServer> {
        self.own.get(name)
    }

    /// Returns what is known of a server in use; nothing, if its settings have changed. `make` makes its endpoint.
    pub(crate) fn open_known<E>(
        &self,
        key: &ServerKey,
        settings: &McpServer,
        make: impl FnOnce() -> Result<Arc<McpEndpoint>, E>,
    ) -> Result<Arc<KnownServer>, E> {
        if let Some(known) = self.known.get(key).filter(|known| known.endpoint.settings() == settings) {
            return Ok(known);
        }
        let (endpoint, state) = (make()?, Mutex::default());
        let known = Arc::new(KnownServer { endpoint, state, is_asked: AtomicBool::new(false) });
        self.known.insert(key.clone(), Arc::clone(&known));
        Ok(known)
    }

    /// Returns what is known of a server, if it is in use.
    pub(crate) fn find_known(&self, key: &ServerKey) -> Option<Arc<KnownServer>> {
        self.known.get(key)
    }

    /// Returns a server as it is asked for one caller.
    pub(crate) fn peer<'a>(
        &'a self,
        endpoint: &'a McpEndpoint,
        hosts: &'a HttpSender,
        headers: HeaderMap,
        turn: Option<SessionOwner>,
    ) -> McpPeer<'a> {
        McpPeer { endpoint, hosts, headers, turn, sessions: &self.sessions }
    }
}

impl KnownServer {
    /// Returns a copy of what is known.
    pub(crate) fn state(&self) -> ServerState {
        self.state.lock().clone()
    }

    /// Changes what is known.
    pub(crate) fn change(&self, change: impl FnOnce(&mut ServerState)) {
        change(&mut self.state.lock());
    }

    /// Records that a list has come.
    pub(crate) fn note_list(&self, now: Duration, fresh: Option<Duration>) {
        self.change(|state| {
            state.list_due = Some(now + fresh.unwrap_or(MCP_FRESH));
            state.failure = None;
        });
    }

    /// Claims the right to ask for the list in the background; `false` if another task has it.
    pub(crate) fn claim_list(&self) -> bool {
        !self.is_asked.swap(true, Ordering::AcqRel)
    }

    /// Gives the right back.
    pub(crate) fn release_list(&self) {
        self.is_asked.store(false, Ordering::Release);
    }
}
