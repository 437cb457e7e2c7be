//! The place of a server: its URL, how it may be reached, and the headers of each request.

use super::list_changes::ListChangeCounter;
use super::program::{McpProgram, ProgramServer};
use crate::config::url::{CallableUrlError, parse_callable};
use crate::domain::hosts::{HostRule, HostRuleError};
use crate::domain::ids::Owner;
use crate::domain::mcp::definition::SkippedTool;
use crate::domain::mcp::name::ServerName;
use crate::domain::mcp::revision::{ProtocolEra, RevisionChoice};
use crate::domain::mcp::server::McpServer;
use crate::domain::secret::{Destination, Mask};
use crate::store::Store;
use crate::venue::failure::OpError;
use crate::venue::mcp_login::ClientKey;
use crate::venue::outbound::endpoint::{Credential, CredentialError};
use crate::venue::outbound::owner_headers::{HeaderPlace, ResolvedHeaders};
use crate::venue::outbound::send::HttpSender;
use crate::venue::outbound::{HttpPolicy, url_destination};
use crate::venue::places::PlaceEndpoint;
use crate::venue::secrets::Vault;
use parking_lot::Mutex;
use reqwest::Url;
use reqwest::header::HeaderMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a server can't be asked with its settings. The texts show no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum McpEndpointError {
    /// The name of the program can't stand for it.
    #[error("`command`: expected a program and its arguments")]
    Program,
    /// The URL can't be called.
    #[error("`url`: {0}")]
    Url(#[from] CallableUrlError),
    /// The URL has a host that no rule can name.
    #[error("`url`: {0}")]
    Host(#[from] HostRuleError),
    /// The venue's own key can't be sent.
    #[error(transparent)]
    Credential(#[from] CredentialError),
}

/// A server that can be asked.
pub struct McpEndpoint {
    settings: McpServer,
    url: Url,
    /// Client of a server of the venue; servers of agents are called by the client of all hosts.
    own: Option<HttpSender>,
    /// Program that is the server, and is asked in place of the URL.
    program: Option<ProgramServer>,
    /// The venue's own headers.
    headers: ResolvedHeaders,
    /// Key of the venue's own client at the login server.
    client_key: Option<ClientKey>,
    /// How the server is spoken to, once that is known.
    era: Mutex<Option<ProtocolEra>>,
    last_id: AtomicU64,
    list_changes: ListChangeCounter,
    /// Tools whose calls the server works on as tasks, in a revision with a handshake.
    task_tools: Mutex<Vec<String>>,
}

impl McpEndpoint {
    /// Makes the place of a server that an agent names: it is called under the rules for all hosts.
    pub fn of_agent(settings: McpServer) -> Result<Self, McpEndpointError> {
        let url = parse_callable(&settings.url)?;
        Ok(Self::new(settings, url, None))
    }

    /// Makes the place of a server that the venue names: its host may be called, and no other.
    pub fn of_venue(
        settings: McpServer,
        policy: HttpPolicy,
        credential: Option<&Credential>,
    ) -> Result<Self, McpEndpointError> {
        let url = parse_callable(&settings.url)?;
        let to = url_destination(&url);
        let rule = HostRule::parse(&format!("{}:{}", to.host, to.port))?;
        let mut hosts = vec![rule];
        if let Some(issuer) = settings.auth.as_ref().and_then(|auth| auth.issuer.as_deref()) {
            let to = url_destination(&parse_callable(issuer)?);
            hosts.push(HostRule::parse(&format!("{}:{}", to.host, to.port))?);
        }
        let setting = format!("mcp.servers.{}", settings.name);
        let policy = HttpPolicy { hosts, redirects: 0, setting, ..policy };
        let mut endpoint = Self::new(settings, url, Some(HttpSender::new(policy)));
        if let Some(credential) = credential {
            let ResolvedHeaders { headers, mask } = &mut endpoint.headers;
            credential.add_to(headers, mask)?;
        }
        Ok(endpoint)
    }

    /// Makes the place of a server of the venue on the stdin and stdout of a program. The URL of the settings names the
    /// program: [`McpServer::of_program`].
    pub fn of_program(settings: McpServer, program: McpProgram) -> Result<Self, McpEndpointError> {
        let url = Url::parse(&settings.url).map_err(|_| McpEndpointError::Program)?;
        let endpoint = Self::new(settings, url, None);
        let program = ProgramServer::new(program, endpoint.list_changes.clone());
        Ok(Self { program: Some(program), ..endpoint })
    }

    fn new(settings: McpServer, url: Url, own: Option<HttpSender>) -> Self {
        let era = match settings.revision {
            RevisionChoice::Auto => None,
            RevisionChoice::Handshake => Some(ProtocolEra::Handshake),
            RevisionChoice::Stateless => Some(ProtocolEra::Stateless),
        };
        let (program, era, last_id) = (None, Mutex::new(era), AtomicU64::new(0));
        let (headers, client_key) = (ResolvedHeaders::default(), None);
        let (list_changes, task_tools) = (ListChangeCounter::default(), Mutex::default());
        Self { settings, url, own, program, headers, client_key, era, last_id, list_changes, task_tools }
    }

    /// Sets the key of the venue's own client at the login server.
    #[must_use]
    pub fn with_client_key(self, client_key: Option<ClientKey>) -> Self {
        Self { client_key, ..self }
    }

    /// Returns the key of the venue's own client at the login server.
    pub(super) const fn client_key(&self) -> Option<&ClientKey> {
        self.client_key.as_ref()
    }

    /// Returns the settings of the server.
    pub const fn settings(&self) -> &McpServer {
        &self.settings
    }

    /// Returns the URL of the server.
    pub const fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the place to which secrets may be bound; a program is none.
    pub fn destination(&self) -> Option<Destination> {
        self.program.is_none().then(|| url_destination(&self.url))
    }

    /// Returns the name of the server for errors, with its host or its program.
    pub fn display_name(&self) -> String {
        let place = match &self.program {
            Some(program) => program.name(),
            None => self.url.host_str().unwrap_or_default(),
        };
        format!("MCP server `{}` at `{place}`", self.settings.name)
    }

    /// Whether this process may ask the server: it may not start each program.
    pub(crate) fn may_be_asked(&self) -> bool {
        self.program.as_ref().is_none_or(ProgramServer::may_start)
    }

    /// Returns the program that is the server, if one is.
    pub(super) const fn program(&self) -> Option<&ProgramServer> {
        self.program.as_ref()
    }

    /// Returns the mask of the venue's key.
    pub(crate) const fn mask(&self) -> &Mask {
        &self.headers.mask
    }

    /// Returns the client for calls: its own, or that of all hosts.
    pub(super) fn sender<'a>(&'a self, hosts: &'a HttpSender) -> &'a HttpSender {
        self.own.as_ref().unwrap_or(hosts)
    }

    /// Returns a new id for a request.
    pub(crate) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Records that the server has said that its tools have changed.
    pub(super) fn note_list_change(&self) {
        self.list_changes.increment();
    }

    /// Returns how often the server has said to this process that its tools have changed.
    pub(crate) fn list_changes(&self) -> u64 {
        self.list_changes.count()
    }

    /// Sets the tools whose calls the server works on as tasks, in a revision with a handshake.
    pub(crate) fn set_task_tools(&self, tools: &[String]) {
        *self.task_tools.lock() = tools.to_vec();
    }

    /// Whether the server works on calls of a tool as tasks, in a revision with a handshake.
    pub(crate) fn has_tasks_of(&self, tool: &str) -> bool {
        self.task_tools.lock().iter().any(|name| name == tool)
    }

    /// Returns how the server is spoken to, if that is known.
    pub(crate) fn era(&self) -> Option<ProtocolEra> {
        *self.era.lock()
    }

    /// Sets how the server is spoken to.
    pub(crate) fn set_era(&self, era: ProtocolEra) {
        *self.era.lock() = Some(era);
    }

    /// Forgets how the server is spoken to: the next request finds it out.
    pub(super) fn forget_era(&self) {
        *self.era.lock() = None;
    }
}

impl PlaceEndpoint for McpEndpoint {
    type Settings = McpServer;
    type Error = McpEndpointError;
    type Facts = Vec<SkippedTool>;

    fn open(settings: McpServer) -> Result<Self, McpEndpointError> {
        Self::of_agent(settings)
    }

    fn place_settings(&self) -> &McpServer {
        self.settings()
    }

    fn name_of(settings: &McpServer) -> &ServerName {
        &settings.name
    }
}

/// Returns the headers of requests for an owner: the venue's own and those of the settings, with the owner's secrets.
pub(crate) async fn resolve_headers(
    endpoint: &McpEndpoint,
    store: &dyn Store,
    vault: &Vault,
    owner: &Owner,
) -> Result<HeaderMap, OpError> {
    let own = endpoint.headers.clone();
    let Some(to) = endpoint.destination() else { return Ok(own.headers) };
    let McpServer { headers, name, .. } = &endpoint.settings;
    let place = HeaderPlace { to, kind: "MCP server", name: name.as_str() };
    Ok(own.add_named(headers, &place, store, vault, owner).await?.headers)
}
