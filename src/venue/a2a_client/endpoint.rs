//! The place of an agent elsewhere: its card, how it may be reached, and the headers of each request.

use super::exchange::AgentPeer;
use super::signature::CardKey;
use crate::config::url::{CallableUrlError, parse_callable};
use crate::domain::a2a::remote::RemoteAgent;
use crate::domain::hosts::{HostRule, HostRuleError};
use crate::domain::ids::Owner;
use crate::domain::mcp::name::ServerName;
use crate::store::Store;
use crate::venue::failure::OpError;
use crate::venue::outbound::endpoint::{Credential, CredentialError};
use crate::venue::outbound::owner_headers::{HeaderPlace, ResolvedHeaders};
use crate::venue::outbound::send::HttpSender;
use crate::venue::outbound::{HttpPolicy, url_destination};
use crate::venue::places::PlaceEndpoint;
use crate::venue::secrets::Vault;
use reqwest::Url;

/// Why an agent can't be asked with its settings. The texts show no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum A2aEndpointError {
    /// The URL can't be called.
    #[error("`url`: {0}")]
    Url(#[from] CallableUrlError),
    /// The URL has a host that no rule can name.
    #[error("`url`: {0}")]
    Host(#[from] HostRuleError),
    /// The venue's own key can't be sent.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// A key for signatures can't be used.
    #[error(
        "`keys[{at}]`: expected a public key as JWK of `ES256`, `ES384`, `EdDSA`, `RS256`, `RS384`, `RS512` or `PS256`"
    )]
    SigningKey {
        /// Index of the key.
        at: usize,
    },
}

/// An agent elsewhere that can be asked.
pub struct A2aEndpoint {
    settings: RemoteAgent,
    card_url: Url,
    /// Client for the host of an agent of the venue; agents of agents are called by the client of all hosts.
    own: Option<HttpSender>,
    /// The venue's own headers.
    headers: ResolvedHeaders,
    keys: Vec<CardKey>,
}

impl A2aEndpoint {
    /// Makes the place of an agent that an agent of this venue names: it is called under the rules for all hosts.
    pub fn of_agent(settings: RemoteAgent) -> Result<Self, A2aEndpointError> {
        let card_url = parse_callable(&settings.card_url())?;
        let keys = settings
            .keys
            .iter()
            .enumerate()
            .map(|(at, key)| CardKey::read(key).ok_or(A2aEndpointError::SigningKey { at }));
        let keys = keys.collect::<Result<_, _>>()?;
        Ok(Self { settings, card_url, own: None, headers: ResolvedHeaders::default(), keys })
    }

    /// Makes the place of an agent that the venue names: its host may be called, and others under the rules for all hosts.
    pub fn of_venue(
        settings: RemoteAgent,
        policy: HttpPolicy,
        credential: Option<&Credential>,
    ) -> Result<Self, A2aEndpointError> {
        let mut endpoint = Self::of_agent(settings)?;
        let to = url_destination(&endpoint.card_url);
        let rule = HostRule::parse(&format!("{}:{}", to.host, to.port))?;
        let setting = format!("a2a.agents.{}", endpoint.settings.name);
        endpoint.own = Some(HttpSender::new(HttpPolicy { hosts: vec![rule], redirects: 0, setting, ..policy }));
        if let Some(credential) = credential {
            let ResolvedHeaders { headers, mask } = &mut endpoint.headers;
            credential.add_to(headers, mask)?;
        }
        Ok(endpoint)
    }

    /// Returns the agent as it is asked with these headers.
    pub(crate) fn peer<'a>(&'a self, hosts: &'a HttpSender, resolved: ResolvedHeaders) -> AgentPeer<'a> {
        AgentPeer { endpoint: self, hosts, resolved }
    }

    /// Returns the settings of the agent.
    pub const fn settings(&self) -> &RemoteAgent {
        &self.settings
    }

    /// Returns the URL of its card.
    pub const fn card_url(&self) -> &Url {
        &self.card_url
    }

    /// Returns the keys of which one must have signed the card; none = no signature is checked.
    pub(super) fn keys(&self) -> &[CardKey] {
        &self.keys
    }

    /// Whether requests to the host of the card have headers of the configuration.
    pub(super) fn has_headers(&self) -> bool {
        !self.headers.headers.is_empty() || !self.settings.headers.is_empty()
    }

    /// Returns the name of the agent for errors, with its host.
    pub fn display_name(&self) -> String {
        let host = self.card_url.host_str().unwrap_or_default();
        format!("A2A agent `{}` at `{host}`", self.settings.name)
    }

    /// Returns the client for a URL: its own for its host, else that of all hosts.
    pub(super) fn sender<'a>(&'a self, url: &Url, hosts: &'a HttpSender) -> &'a HttpSender {
        self.own.as_ref().filter(|_| url.origin() == self.card_url.origin()).unwrap_or(hosts)
    }

    /// Returns the headers of requests for an owner: the venue's own and those of the settings, with the owner's secrets.
    pub(crate) async fn resolve_headers(
        &self,
        store: &dyn Store,
        vault: &Vault,
        owner: &Owner,
    ) -> Result<ResolvedHeaders, OpError> {
        let RemoteAgent { headers, name, .. } = &self.settings;
        let place = HeaderPlace { to: url_destination(&self.card_url), kind: "A2A agent", name: name.as_str() };
        self.headers.clone().add_named(headers, &place, store, vault, owner).await
    }
}

impl PlaceEndpoint for A2aEndpoint {
    type Settings = RemoteAgent;
    type Error = A2aEndpointError;
    type Facts = ();

    fn open(settings: RemoteAgent) -> Result<Self, A2aEndpointError> {
        Self::of_agent(settings)
    }

    fn place_settings(&self) -> &RemoteAgent {
        self.settings()
    }

    fn name_of(settings: &RemoteAgent) -> &ServerName {
        &settings.name
    }
}
