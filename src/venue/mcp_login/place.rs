//! The server of a login, and one request to its login server.

use crate::config::url::parse_callable;
use crate::domain::ids::Owner;
use crate::domain::ids::secret::SecretName;
use crate::domain::ids::sha256_hex;
use crate::domain::limits::{MCP_LOGIN_BYTES, MCP_LOGIN_TIME};
use crate::domain::mcp::oauth::location::is_usable_url;
use crate::domain::mcp::oauth::settings::LoginSettings;
use crate::domain::mcp::server::McpServer;
use crate::domain::secret::PlainSecret;
use crate::process::clock::Clock;
use crate::store::{DocKey, Store, keys};
use crate::venue::failure::OpError;
use crate::venue::outbound::departure::Departure;
use crate::venue::outbound::send::{HttpSender, OutgoingRequest, read_body};
use crate::venue::places::PlaceKey;
use crate::venue::secrets::Vault;
use bytes::{Bytes, BytesMut};
use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::{Method, Url};
use std::sync::Arc;

/// Digits of the hash in the name under which a login is sealed.
const NAME_DIGITS: usize = 32;

/// Parts of a venue that logins need.
#[derive(Clone, Copy)]
pub(crate) struct LoginTools<'a> {
    pub(crate) store: &'a Arc<dyn Store>,
    pub(crate) vault: &'a Vault,
    pub(crate) clock: &'a Clock,
}

/// A server at which somebody logs in.
pub(crate) struct LoginPlace<'a> {
    pub(crate) key: PlaceKey,
    pub(crate) settings: &'a McpServer,
    /// Name of the server in errors.
    pub(crate) shown: String,
    /// Client for calls of the server.
    pub(crate) own: &'a HttpSender,
    /// Client for all hosts that the venue allows.
    pub(crate) hosts: &'a HttpSender,
    /// Key of the venue's own client.
    pub(crate) client_key: Option<&'a ClientKey>,
}

/// Key by which a login server knows a client that was registered by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientKey {
    /// Secret that is sent.
    Secret(PlainSecret),
    /// Private key in PEM, which signs.
    Private(PlainSecret),
}

/// A request to a login server.
pub(super) struct LoginRequest {
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    /// Bytes and their content type.
    pub(super) body: Option<(Bytes, HeaderValue)>,
}

/// Its answer, of any status.
pub(super) struct LoginReplyBody {
    pub(super) status: u16,
    pub(super) body: BytesMut,
}

impl LoginRequest {
    /// Makes a request for metadata.
    pub(super) fn get() -> Self {
        let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("application/json"))]);
        Self { method: Method::GET, headers, body: None }
    }

    /// Makes a request with a body.
    pub(super) fn post(body: Vec<u8>, kind: &'static str) -> Self {
        Self { method: Method::POST, body: Some((body.into(), HeaderValue::from_static(kind))), ..Self::get() }
    }
}

/// Returns the name under which a document of a login is sealed: it opens in no other document.
pub(crate) fn sealed_login_name(doc_key: &str) -> SecretName {
    let name = format!("mcp-login.{}", &sha256_hex(doc_key.as_bytes())[..NAME_DIGITS]);
    SecretName::new(&name).expect("letters, digits, `-` and `.` are a name")
}

impl LoginPlace<'_> {
    /// Returns the settings of the login, if there are some.
    pub(super) fn auth(&self) -> Option<&LoginSettings> {
        self.settings.auth.as_deref()
    }

    /// Whether the venue logs in by itself.
    pub(super) fn is_of_machine(&self) -> bool {
        self.auth().is_some_and(LoginSettings::is_of_machine)
    }

    /// Returns the owner in whose documents the login is stored.
    pub(super) fn keeper(&self) -> Owner {
        self.key.keeper()
    }

    /// Returns the key of the document with the login.
    pub(super) fn doc_key(&self) -> DocKey {
        keys::mcp_login(self.key.agent.as_ref(), &self.key.name)
    }

    /// Returns the command with which a person logs in.
    pub(super) fn command(&self) -> String {
        let agent = self.key.agent.as_ref().map(|agent| format!(" --agent {agent}")).unwrap_or_default();
        format!("`trellis mcp login {}{agent}`", self.key.name)
    }

    /// Returns the error of a call without a usable token. `why` follows the name of the server.
    pub(super) fn wants_login(&self, why: &str) -> OpError {
        if self.is_of_machine() {
            return OpError::Denied(format!("the {} {why}", self.shown));
        }
        OpError::Denied(format!("the {} {why}: run {}", self.shown, self.command()))
    }

    /// Returns an error of what the server or its login server says.
    pub(super) fn upstream(&self, error: &dyn std::fmt::Display) -> OpError {
        OpError::Upstream(format!("the login at the {}: {error}", self.shown))
    }

    /// Returns the sender for a URL: that of the server for its own host, else that of all hosts, which may refuse it.
    fn sender(&self, url: &Url) -> Result<&HttpSender, OpError> {
        if self.own.check(url).is_ok() {
            return Ok(self.own);
        }
        self.hosts.check(url).map(|()| self.hosts)
    }

    /// Sends a request to a login server. No redirect is followed.
    pub(super) async fn fetch(&self, url: &str, request: LoginRequest) -> Result<LoginReplyBody, OpError> {
        let asked = |text: String| format!("the login at the {}: {text}", self.shown);
        if !is_usable_url(url, &self.settings.url) {
            let shown = crate::domain::visible::quote_foreign(url);
            return Err(OpError::Denied(asked(format!("expected an `https://` URL, got {shown}; it isn't asked"))));
        }
        let url = parse_callable(url).map_err(|error| OpError::Denied(asked(error.to_string())))?;
        let sender = self.sender(&url).map_err(|error| error.map_text(asked))?;
        let shown = crate::venue::outbound::url_resource(&url).to_string();
        let LoginRequest { method, headers, body } = request;
        let ask = OutgoingRequest { method, url, headers, body, timeout: None, repeatable: true, shown: None };
        let exchange = async {
            let response = sender.open(&ask, &Departure::default()).await?;
            let status = response.status().as_u16();
            let body = read_body(response, MCP_LOGIN_BYTES).await;
            let body = body.map_err(|error| OpError::Upstream(format!("`{shown}`: the {error}")))?;
            Ok(LoginReplyBody { status, body })
        };
        let late = |_| Err(OpError::Timeout(format!("`{shown}` gave no answer within {} s", MCP_LOGIN_TIME.as_secs())));
        let answered = tokio::time::timeout(MCP_LOGIN_TIME, exchange).await.unwrap_or_else(late);
        answered.map_err(|error| error.map_text(asked))
    }
}
