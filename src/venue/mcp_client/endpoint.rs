//! The place of a server: its URL, how it may be reached, and the headers of each request.

use super::program::{McpProgram, ProgramServer};
use crate::config::url::{CallableUrlError, parse_callable};
use crate::domain::chat::HeaderText;
use crate::domain::hosts::{HostRule, HostRuleError};
use crate::domain::ids::Owner;
use crate::domain::ids::secret::SecretName;
use crate::domain::mcp::revision::{ProtocolEra, RevisionChoice};
use crate::domain::mcp::server::McpServer;
use crate::domain::secret::{Destination, Mask, PlainSecret};
use crate::store::Store;
use crate::venue::failure::OpError;
use crate::venue::outbound::send::HttpSender;
use crate::venue::outbound::{HttpPolicy, url_destination};
use crate::venue::secrets::Vault;
use parking_lot::Mutex;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use std::sync::atomic::{AtomicU64, Ordering};

/// The venue's own key for a server.
#[derive(Debug, Clone)]
pub struct McpCredential {
    /// Name of the header.
    pub header: String,
    /// Text before the key.
    pub prefix: String,
    /// Value of the secret.
    pub value: PlainSecret,
}

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
    /// The header has an illegal name.
    #[error("`{0}` is no header")]
    HeaderName(String),
    /// The key has characters that a header can't have.
    #[error("the key has characters that no header may have")]
    KeyCharacters,
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
    headers: HeaderMap,
    mask: Mask,
    /// How the server is spoken to, once that is known.
    era: Mutex<Option<ProtocolEra>>,
    last_id: AtomicU64,
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
        credential: Option<&McpCredential>,
    ) -> Result<Self, McpEndpointError> {
        let url = parse_callable(&settings.url)?;
        let to = url_destination(&url);
        let rule = HostRule::parse(&format!("{}:{}", to.host, to.port))?;
        let setting = format!("mcp.servers.{}", settings.name);
        let policy = HttpPolicy { hosts: vec![rule], redirects: 0, setting, ..policy };
        let mut endpoint = Self::new(settings, url, Some(HttpSender::new(policy)));
        if let Some(McpCredential { header, prefix, value }) = credential {
            let name = HeaderName::from_bytes(header.as_bytes());
            let name = name.map_err(|_| McpEndpointError::HeaderName(header.clone()))?;
            let text = HeaderValue::from_str(&format!("{prefix}{}", value.reveal()));
            let mut text = text.map_err(|_| McpEndpointError::KeyCharacters)?;
            text.set_sensitive(true);
            endpoint.headers.insert(name, text);
            if let Ok(shown) = SecretName::new(endpoint.settings.name.as_str()) {
                endpoint.mask.add(&shown, value);
            }
        }
        Ok(endpoint)
    }

    /// Makes the place of a server of the venue on the stdin and stdout of a program. The URL of the settings names the
    /// program: [`McpServer::of_program`].
    pub fn of_program(settings: McpServer, program: McpProgram) -> Result<Self, McpEndpointError> {
        let url = Url::parse(&settings.url).map_err(|_| McpEndpointError::Program)?;
        Ok(Self { program: Some(ProgramServer::new(program)), ..Self::new(settings, url, None) })
    }

    fn new(settings: McpServer, url: Url, own: Option<HttpSender>) -> Self {
        let era = match settings.revision {
            RevisionChoice::Auto => None,
            RevisionChoice::Handshake => Some(ProtocolEra::Handshake),
            RevisionChoice::Stateless => Some(ProtocolEra::Stateless),
        };
        let (headers, mask) = (HeaderMap::new(), Mask::default());
        let (program, era, last_id) = (None, Mutex::new(era), AtomicU64::new(0));
        Self { settings, url, own, program, headers, mask, era, last_id }
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
        &self.mask
    }

    /// Returns the client for calls: its own, or that of all hosts.
    pub(super) fn sender<'a>(&'a self, hosts: &'a HttpSender) -> &'a HttpSender {
        self.own.as_ref().unwrap_or(hosts)
    }

    /// Returns a new id for a request.
    pub(crate) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
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

/// Returns the headers of requests for an owner: the venue's own and those of the settings, with the owner's secrets.
pub(crate) async fn resolve_headers(
    endpoint: &McpEndpoint,
    store: &dyn Store,
    vault: &Vault,
    owner: &Owner,
) -> Result<HeaderMap, OpError> {
    let mut headers = endpoint.headers.clone();
    let Some(to) = endpoint.destination() else { return Ok(headers) };
    for (name, text) in &endpoint.settings.headers {
        let (plain, is_secret) = match text {
            HeaderText::Plain(text) => (text.clone(), false),
            HeaderText::Secret { name, prefix } => {
                let secret = vault.open(store, owner, name).await?;
                if !secret.hosts.permits(&to) {
                    return Err(OpError::Denied(format!(
                        "secret `{name}` may not go to `{}`, the place of the MCP server `{}`: bind it to that host \
                         (`trellis secret set`)",
                        to.origin(),
                        endpoint.settings.name
                    )));
                }
                (format!("{prefix}{}", secret.value.reveal()), true)
            }
        };
        let wrong = || OpError::Invalid(format!("header `{name}` of the MCP server `{}`", endpoint.settings.name));
        let legal = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        let mut value = HeaderValue::from_str(&plain).map_err(|_| wrong())?;
        value.set_sensitive(is_secret);
        headers.insert(legal, value);
    }
    Ok(headers)
}
