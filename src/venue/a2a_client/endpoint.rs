//! The place of an agent elsewhere: its card, how it may be reached, and the headers of each request.

use super::signature::CardKey;
use crate::config::url::{CallableUrlError, parse_callable};
use crate::domain::a2a::remote::RemoteAgent;
use crate::domain::chat::HeaderText;
use crate::domain::hosts::{HostRule, HostRuleError};
use crate::domain::ids::Owner;
use crate::domain::ids::secret::SecretName;
use crate::domain::secret::{Destination, Mask, PlainSecret};
use crate::store::Store;
use crate::venue::failure::OpError;
use crate::venue::outbound::send::HttpSender;
use crate::venue::outbound::{HttpPolicy, url_destination};
use crate::venue::secrets::Vault;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// The venue's own key for an agent.
#[derive(Debug, Clone)]
pub struct A2aCredential {
    /// Name of the header.
    pub header: String,
    /// Text before the key.
    pub prefix: String,
    /// Value of the secret.
    pub value: PlainSecret,
}

/// Why an agent can't be asked with its settings. The texts show no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum A2aEndpointError {
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
    headers: HeaderMap,
    mask: Mask,
    keys: Vec<CardKey>,
}

/// Headers of requests for an owner, and what is masked in the answers.
pub(crate) struct ResolvedHeaders {
    /// Headers for the host of the card.
    pub(crate) headers: HeaderMap,
    /// Secrets among them.
    pub(crate) mask: Mask,
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
        Ok(Self { settings, card_url, own: None, headers: HeaderMap::new(), mask: Mask::default(), keys })
    }

    /// Makes the place of an agent that the venue names: its host may be called, and others under the rules for all hosts.
    pub fn of_venue(
        settings: RemoteAgent,
        policy: HttpPolicy,
        credential: Option<&A2aCredential>,
    ) -> Result<Self, A2aEndpointError> {
        let mut endpoint = Self::of_agent(settings)?;
        let to = url_destination(&endpoint.card_url);
        let rule = HostRule::parse(&format!("{}:{}", to.host, to.port))?;
        let setting = format!("a2a.agents.{}", endpoint.settings.name);
        endpoint.own = Some(HttpSender::new(HttpPolicy { hosts: vec![rule], redirects: 0, setting, ..policy }));
        if let Some(A2aCredential { header, prefix, value }) = credential {
            let name = HeaderName::from_bytes(header.as_bytes());
            let name = name.map_err(|_| A2aEndpointError::HeaderName(header.clone()))?;
            let text = HeaderValue::from_str(&format!("{prefix}{}", value.reveal()));
            let mut text = text.map_err(|_| A2aEndpointError::KeyCharacters)?;
            text.set_sensitive(true);
            endpoint.headers.insert(name, text);
            if let Ok(shown) = SecretName::new(endpoint.settings.name.as_str()) {
                endpoint.mask.add(&shown, value);
            }
        }
        Ok(endpoint)
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

    /// Returns the place to which secrets may be bound.
    fn destination(&self) -> Destination {
        url_destination(&self.card_url)
    }

    /// Whether requests to the host of the card have headers of the configuration.
    pub(super) fn has_headers(&self) -> bool {
        !self.headers.is_empty() || !self.settings.headers.is_empty()
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
        let (mut headers, mut mask) = (self.headers.clone(), self.mask.clone());
        let to = self.destination();
        for (name, text) in &self.settings.headers {
            let (plain, is_secret) = match text {
                HeaderText::Plain(text) => (text.clone(), false),
                HeaderText::Secret { name, prefix } => {
                    let secret = vault.open(store, owner, name).await?;
                    if !secret.hosts.permits(&to) {
                        return Err(OpError::Denied(format!(
                            "secret `{name}` may not go to `{}`, the place of the A2A agent `{}`: bind it to that host \
                             (`trellis secret set`)",
                            to.origin(),
                            self.settings.name
                        )));
                    }
                    mask.add(&secret.name, &secret.value);
                    (format!("{prefix}{}", secret.value.reveal()), true)
                }
            };
            let wrong = || OpError::Invalid(format!("header `{name}` of the A2A agent `{}`", self.settings.name));
            let legal = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
            let mut value = HeaderValue::from_str(&plain).map_err(|_| wrong())?;
            value.set_sensitive(is_secret);
            headers.insert(legal, value);
        }
        Ok(ResolvedHeaders { headers, mask })
    }
}
